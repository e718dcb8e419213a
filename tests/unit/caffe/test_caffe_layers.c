/* test_caffe_layers.c - the layers of Caffe's nets give Caffe's results and gradients: the recorded cases
 * of tests/caffe/golden, in all modes of caffe_run.h. */
#include <dirent.h>

#include "caffe_golden.h"
#include "test.h"

/* Runs the cases of a file; returns how many there are. */
static int run_file(const char *path, const char *mode) {
    static caffe_case c;
    FILE *file = fopen(path, "r");
    CHECK_SAYING(file != NULL, "%s", path);
    if (!file) return 0;
    for (int count = 0;; count++) {
        GD_SCOPE;
        if (!caffe_case_read(file, &c)) {
            CHECK_SAYING(feof(file), "%s", path);
            fclose(file);
            return count;
        }
        /* nets are saved in eval mode, and do not write their statistics then */
        if (strcmp(mode, "onnx") == 0 && (c.train || strstr(c.net, "use_global_stats: false")))
            continue;
        CHECK_SAYING(caffe_case_run(&c, mode) == 0, "%s", path);
    }
}

static void run_all(const char *mode) {
    const char *folder = GRADUS_TESTS "/caffe/golden";
    DIR *files = opendir(folder);
    int count = 0;
    CHECK(files != NULL);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        char path[4096];
        if (!strstr(entry->d_name, ".txt")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        count += run_file(path, mode);
    }
    if (files) closedir(files);
    CHECK(count > 0);
}

TEST(layers_agree_with_caffe) { run_all("eager"); }
TEST(layers_agree_with_caffe_in_a_jit) { run_all("jit"); }
TEST(layers_agree_with_caffe_on_the_test_device) { run_all("test"); }
TEST(layers_agree_with_caffe_in_f64) { run_all("f64"); }
TEST(layers_agree_with_caffe_as_onnx_files) { run_all("onnx"); }
TEST(layers_agree_with_caffe_after_saving_their_net) { run_all("saved"); }

TEST_MAIN
