/* read.c - reads nets and solvers, and finds the files that they name. See read.h. */
#include "caffe/read.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"

typedef struct kind {
    const char *name;
    const gd_pb_schema *schema;
    gd_status (*upgrade)(gd_pb *message, const char *file);
} kind;

static const kind net = {"net", &gd_caffe_net_schema, gd_caffe_upgrade_net},
                  solver = {"solver", &gd_caffe_solver_schema, gd_caffe_upgrade_solver};

/* A failure says so if the text is a file of the other kind. */
static gd_status load_file(gd_pb_doc **out, const kind *of, const kind *other, const char *path) {
    char message[GD_MESSAGE_MAX];
    const gd_status status = gd_pb_load_either(out, of->schema, path);
    if (status != GD_E_FORMAT) return status;
    snprintf(message, sizeof message, "%s", gd_latest_failure());
    if (gd_pb_load_text(out, other->schema, path) != GD_OK) return gd_fail(status, "%s", message);
    gd_pb_free(*out);
    *out = NULL;
    return gd_fail(status, "%s: this is a %s, and a %s is needed", path, other->name, of->name);
}

static gd_status read_file(gd_pb_doc **out, const kind *of, const kind *other, const char *path) {
    GD_TRY(load_file(out, of, other, path));
    const gd_status status = of->upgrade(gd_pb_root(*out), path);
    if (status == GD_OK) return GD_OK;
    gd_pb_free(*out);
    *out = NULL;
    return status;
}

gd_status gd_caffe_read_net(gd_pb_doc **out, const char *path) {
    return read_file(out, &net, &solver, path);
}

gd_status gd_caffe_read_solver(gd_pb_doc **out, const char *path) {
    return read_file(out, &solver, &net, path);
}

/* --- files that files name -------------------------------------------------------------------- */

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* The folder of a file as an absolute path without links; false: there is none. */
static bool folder_of(const char *file, char folder[PATH_MAX]) {
    char given[PATH_MAX];
    const char *slash = strrchr(file, '/');
    snprintf(given, sizeof given, "%.*s", slash ? (int)(slash - file + 1) : 1, slash ? file : ".");
    if (realpath(given, folder) == NULL) return false;
    if (strcmp(folder, "/") == 0) folder[0] = '\0'; /* "" "/path" */
    return true;
}

static void append(char *text, size_t size, const char *separator, const char *more) {
    const size_t length = strlen(text);
    snprintf(text + length, size - length, "%s%.300s", separator, more);
}

gd_status gd_caffe_find_file(const char *path, const char *of_file, char *found, size_t size) {
    char folder[PATH_MAX], tried[700] = "the working directory";
    if (*path == '\0') return gd_fail(GD_E_ARGUMENT, "the name of a file is empty");
    if (strlen(path) >= size || strlen(path) >= PATH_MAX)
        return gd_fail(GD_E_ARGUMENT, "the name of a file is too long: '%.100s...'", path);
    snprintf(found, size, "%s", path);
    if (exists(path)) return GD_OK;
    if (*path == '/') return gd_fail(GD_E_IO, "there is no '%.400s'", path);
    bool more = of_file != NULL && folder_of(of_file, folder);
    while (more) {
        const int length = snprintf(found, size, "%s/%s", folder, path);
        if (length > 0 && (size_t)length < size && exists(found)) return GD_OK;
        char *end = strrchr(folder, '/');
        more = end != NULL;
        append(tried, sizeof tried, more ? ", " : " or ", more ? folder : "/");
        if (more) *end = '\0';
    }
    return gd_fail(GD_E_IO, "there is no '%.200s' in %s", path, tried);
}
