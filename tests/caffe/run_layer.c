/* run_layer.c - runs nets from text, for against_caffe.py.
 *
 *     run_layer MODE... < list
 *
 * Each line of standard input names a folder with net.prototxt (of phase TRAIN if there is a file
 * `train`) and given.npz. For each mode (eager, jit, test, saved, onnx) the program writes MODE.npz there, with the
 * names of caffe_run.h, or MODE.txt with a message. It answers each line with "done".
 */
#include <stdio.h>
#include <string.h>

#include "caffe_run.h"
#include "core/error.h"
#include "files.h"

static void run(const char *folder, const char *mode) {
    GD_SCOPE;
    static named_tensors given, results;
    char path[600];
    given.count = 0;
    gd_clear_error();
    snprintf(path, sizeof path, "%s/given.npz", folder);
    gd_npz *npz = gd_npz_open(path);
    for (int64_t i = 0; i < gd_npz_count(npz); i++)
        named_add(&given, gd_npz_load(npz, gd_npz_name(npz, i)), "%s", gd_npz_name(npz, i));
    snprintf(path, sizeof path, "%s/train", folder);
    const bool train = file_exists(path);
    snprintf(path, sizeof path, "%s/net.prototxt", folder);
    gd_status status = gd_error_status();
    if (status == GD_OK) status = caffe_run(path, train, mode, &given, &results);
    if (status == GD_OK) {
        const char *names[NAMED_MAX];
        for (int i = 0; i < results.count; i++) names[i] = results.names[i];
        snprintf(path, sizeof path, "%s/%s.npz", folder, mode);
        status = gd_save_npz(path, names, ((gd_tensors){results.at, results.count}));
    }
    if (status != GD_OK) {
        snprintf(path, sizeof path, "%s/%s.txt", folder, mode);
        file_write_text(path, gd_latest_failure());
    }
    gd_clear_error();
}

int main(int argc, char **argv) {
    char folder[500];
    while (fgets(folder, sizeof folder, stdin)) {
        folder[strcspn(folder, "\n")] = '\0';
        for (int i = 1; i < argc; i++) run(folder, argv[i]);
        puts("done");
        fflush(stdout);
    }
    return 0;
}
