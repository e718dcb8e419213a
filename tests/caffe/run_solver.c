/* run_solver.c - trains with a solver of Caffe, for against_solver.py.
 *
 *     run_solver database FOLDER COUNT SEED      writes samples (3,6,5) of 4 classes as LMDB
 *     run_solver train SOLVER [weights=FILE] [snapshot=FILE] [checkpoints=FOLDER] [resume] [eager]
 *
 * SIGHUP writes a snapshot. The log goes to stderr, the history to stdout. The exit status is 1 after a failure, with its message.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caffe_data.h"
#include "core/error.h"
#include "gradus/gradus.h"

static int write_database(const char *folder, int count, int seed) {
    const gd_status status = caffe_write_database(folder, count, seed);
    if (status != GD_OK) printf("%s\n", gd_latest_failure());
    return status != GD_OK;
}

/* --- a training ------------------------------------------------------------------------------- */

static void print_line(const char *line, void *user) { fprintf(user, "%s\n", line); }

/* The value behind "NAME="; NULL: it is another argument. */
static const char *value_of(const char *argument, const char *name) {
    const size_t length = strlen(name);
    return strncmp(argument, name, length) == 0 && argument[length] == '=' ? argument + length + 1
                                                                           : NULL;
}

static void read_argument(const char *a, gd_caffe_train_options *o) {
    const char *v;
    if ((v = value_of(a, "weights"))) o->weights = v;
    if ((v = value_of(a, "snapshot"))) o->snapshot = v;
    if ((v = value_of(a, "checkpoints"))) o->checkpoints = v;
    if ((v = value_of(a, "dummy"))) o->dummy = v;
    if ((v = value_of(a, "device"))) o->device = v;
    if ((v = value_of(a, "iterations"))) o->iterations = strtol(v, NULL, 10);
    if (strcmp(a, "resume") == 0) o->resume = true;
    if (strcmp(a, "eager") == 0) o->jit = false;
}

static void request_snapshot(int number) {
    (void)number;
    gd_caffe_request_snapshot();
}

static int train(int argc, char **argv) {
    signal(SIGHUP, request_snapshot);
    gd_caffe_train_options o = *GD_CAFFE_TRAIN_OPTIONS_();
    o.line = print_line;
    o.line_user = stderr;
    for (int i = 1; i < argc; i++) read_argument(argv[i], &o);
    gd_history *h = gd_caffe_train_at(NULL, argv[0], &o);
    if (!h) printf("%s\n", gd_error_message());
    for (int64_t c = 0; h && c < gd_history_columns(h); c++) {
        printf("%s", gd_history_name(h, c));
        for (int64_t row = 0; row < gd_history_rows(h); row++)
            printf(" %.9g", gd_history_value(h, gd_history_name(h, c), row));
        printf("\n");
    }
    return h == NULL;
}

int main(int argc, char **argv) {
    GD_SCOPE;
    if (argc >= 3 && strcmp(argv[1], "train") == 0) return train(argc - 2, argv + 2);
    if (argc == 5 && strcmp(argv[1], "database") == 0)
        return write_database(argv[2], (int)strtol(argv[3], NULL, 10),
                              (int)strtol(argv[4], NULL, 10));
    printf("usage: run_solver database FOLDER COUNT SEED | train SOLVER ...\n");
    return 2;
}
