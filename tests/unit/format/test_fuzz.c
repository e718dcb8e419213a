/* test_fuzz.c - the short form of fuzz targets: runs them on files truncated at each byte and on
 * some thousand damaged copies, the same in each run. test_onnx.c, test_onnx_control.c,
 * test_protobuf.c, test_hdf5.c, test_pickle.c and test_pytorch.c run fuzz_onnx, fuzz_protobuf, fuzz_hdf5, fuzz_pickle and
 * fuzz_pytorch. `make fuzz` runs all targets for longer, with
 * clang's libFuzzer. */

#include "fuzz/damage.h"
#include "clean_test.h"
#include "core/alloc.h"
#include "gradus/gradus.h"
#include "temp.h"

#define LLVMFuzzerTestOneInput fuzz_json
#include "fuzz/fuzz_json.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_npy
#include "fuzz/fuzz_npy.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_zip
#include "fuzz/fuzz_zip.c"
#undef LLVMFuzzerTestOneInput

static void run_cut_and_damaged(fuzz_target run, const char *original, size_t bytes, int rounds) {
    run_cut(run, original, bytes);
    run_damaged(run, original, bytes, rounds);
}

static char *make_numpy_file(const char *suffix, size_t *bytes) {
    GD_SCOPE;
    char *data = NULL;
    const char *path = temp_path("fuzz%s", suffix);
    gd_tensor *a = gd_full(gd_dims(2, 3), 0.5), *b = gd_full(gd_dims(4), 7, .dtype = GD_I32);
    const char *names[] = {"first", "second"};
    gd_status status = strcmp(suffix, ".npy") == 0 ? gd_save_npy(path, a)
                                                   : gd_save_npz(path, names, gd_list(a, b));
    if (status != GD_OK || gd_file_read_all(path, &data, bytes) != GD_OK) abort();
    return data;
}

CLEAN_TEST(damaged_json_fails_or_is_read_completely) {
    static const char text[] =
        "{\"a\": [1, -2.5e3, true, null, {\"b\": \"\\u00e4\\ud83d\\ude00 x\"}], "
        "\"\": [[], {}], \"long\": 12345678901234567890}";
    run_cut_and_damaged(fuzz_json, text, sizeof text - 1, 20000);
}

CLEAN_TEST(a_damaged_npy_file_fails_or_is_read_completely) {
    size_t bytes;
    char *original = make_numpy_file(".npy", &bytes);
    run_cut_and_damaged(fuzz_npy, original, bytes, 20000);
    gd_free(original);
}

CLEAN_TEST(a_damaged_zip_archive_fails_or_is_read_completely) {
    size_t bytes;
    char *original = make_numpy_file(".npz", &bytes);
    run_cut_and_damaged(fuzz_zip, original, bytes, 5000);
    gd_free(original);
}

TEST_MAIN
