/* test_numpy.c - gradus/npy.h: files of NumPy are read, written files equal NumPy's byte by byte,
 * and files are replaced completely or not at all. */
#include <gradus/gradus.h>

#include "fault_walk.h"
#include "files.h"
#include "numpy_sample.h"
#include "temp.h"
#include "test.h"

static bool prints_as(const gd_tensor *t, const char *text) {
    char got[4096];
    gd_to_text(t, got, sizeof got, .describe = true);
    if (strcmp(got, text) == 0) return true;
    fprintf(stderr, "expected:\n%s\ngot:\n%s\n", text, got);
    return false;
}

/* Checks that the previous call has failed with these words in the message. */
static bool failed_with(gd_status status, const char *words) {
    bool matches = gd_error_status() == status && strstr(gd_error_message(), words);
    if (!matches)
        fprintf(stderr, "%s: %s\n", gd_status_name(gd_error_status()), gd_error_message());
    gd_clear_error();
    return matches;
}

TEST(every_dtype_is_saved_and_loaded) {
    for (int d = GD_BOOL; d < GD_DTYPE_COUNT; d++) {
        GD_SCOPE;
        double values[] = {0, 1, 2.5, 100, 1, 0};
        gd_tensor *t = gd_cast(gd_from_array(gd_dims(2, 3), GD_F64, values), (gd_dtype)d);
        CHECK(gd_save_npy(temp_path("d.npy"), t) == GD_OK);
        gd_tensor *back = gd_load_npy(temp_path("d.npy"));
        CHECK(!gd_failed());
        CHECK(gd_tensor_dtype(back) == (gd_dtype)d);
        CHECK(gd_tensor_rank(back) == 2 && gd_tensor_dim(back, 0) == 2 &&
              gd_tensor_dim(back, 1) == 3);
        char a[48], b[48];
        size_t bytes = 6 * gd_dtype_size((gd_dtype)d);
        CHECK(gd_copy_to(t, a, bytes) == GD_OK && gd_copy_to(back, b, bytes) == GD_OK);
        CHECK(memcmp(a, b, bytes) == 0);
    }
}

TEST(strided_tensors_are_saved_in_logical_order) {
    GD_SCOPE;
    const int32_t values[] = {0, 1, 2, 3, 4, 5};
    gd_tensor *t = gd_from_array(gd_dims(2, 3), GD_I32, values);
    CHECK(gd_save_npy(temp_path("s.npy"), gd_permute(t, gd_dims(1, 0))) == GD_OK);
    CHECK(prints_as(gd_load_npy(temp_path("s.npy")), "[[0 3]\n [1 4]\n [2 5]]\ni32[3,2]"));
    CHECK(gd_save_npy(temp_path("s.npy"), gd_narrow(t, 1, 1, 2)) == GD_OK);
    CHECK(prints_as(gd_load_npy(temp_path("s.npy")), "[[1 2]\n [4 5]]\ni32[2,2]"));
    CHECK(gd_save_npy(temp_path("s.npy"), gd_expand(gd_scalar(7), gd_dims(3))) == GD_OK);
    CHECK(prints_as(gd_load_npy(temp_path("s.npy")), "[7. 7. 7.]\nf32[3]"));
}

TEST(files_are_byte_for_byte_those_of_numpy) {
    GD_SCOPE;
    const float values[] = {1, 2};
    CHECK(gd_save_npy(temp_path("b.npy"), gd_from_array(gd_dims(2), GD_F32, values)) == GD_OK);
    /* np.save(path, np.array([1, 2], "f4")) */
    char numpys[136];
    memcpy(numpys, "\x93NUMPY\1\0v\0", 10);
    int length =
        snprintf(numpys + 10, 118, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }");
    memset(numpys + 10 + length, ' ', (size_t)(118 - length));
    numpys[127] = '\n';
    memcpy(numpys + 128, values, 8);
    size_t size = 0;
    char *ours = file_read(temp_path("b.npy"), &size);
    CHECK(size == 136 && memcmp(ours, numpys, 136) == 0);
    free(ours);
}

TEST(empty_and_rank_0_tensors_are_saved_and_loaded) {
    GD_SCOPE;
    CHECK(gd_save_npy(temp_path("e.npy"), gd_empty(gd_dims(2, 0, 3), GD_F64)) == GD_OK);
    CHECK(prints_as(gd_load_npy(temp_path("e.npy")), "[]\nf64[2,0,3]"));
    CHECK(gd_save_npy(temp_path("e.npy"), gd_scalar(0.5)) == GD_OK);
    CHECK(prints_as(gd_load_npy(temp_path("e.npy")), "0.5\nf32[]"));
}

TEST(a_compressed_archive_written_by_numpy_is_read) {
    GD_SCOPE;
    const char *path = temp_write("n.npz", numpy_sample, sizeof numpy_sample);
    gd_npz *npz = gd_npz_open(path);
    CHECK(gd_npz_count(npz) == 12);
    CHECK(strcmp(gd_npz_name(npz, 0), "fortran") == 0 && strcmp(gd_npz_name(npz, 11), "deep") == 0);
    CHECK(gd_npz_name(npz, 12) == NULL && gd_npz_name(npz, -1) == NULL);
    CHECK(gd_npz_has(npz, "u4") && !gd_npz_has(npz, "u4.npy") && !gd_npz_has(npz, "x"));
    CHECK(
        prints_as(gd_npz_load(npz, "fortran"), "[[0.   0.25 0.5 ]\n [0.75 1.   1.25]]\nf64[2,3]"));
    CHECK(prints_as(gd_npz_load(npz, "i2"), "[-32768      7  32767]\ni32[3]"));
    CHECK(prints_as(gd_npz_load(npz, "u2"), "[    0 65535]\ni32[2]"));
    CHECK(prints_as(gd_npz_load(npz, "u4"), "[[4294967295]\n [         1]]\ni64[2,1]"));
    CHECK(prints_as(gd_npz_load(npz, "u8"), "[9223372036854775807                   1]\ni64[2]"));
    CHECK(prints_as(gd_npz_load(npz, "b"), "[ True False]\nbool[2]"));
    CHECK(prints_as(gd_npz_load(npz, "half"), "[ 1.00e-01 -6.55e+04]\nf16[2]"));
    CHECK(prints_as(gd_npz_load(npz, "scalar"), "2.5\nf32[]"));
    CHECK(prints_as(gd_npz_load(npz, "empty"), "[]\ni32[2,0,3]"));
    CHECK(!gd_failed());
}

TEST(unsupported_arrays_fail_with_the_reason) {
    GD_SCOPE;
    const char *path = temp_write("n.npz", numpy_sample, sizeof numpy_sample);
    gd_npz *npz = gd_npz_open(path);
    CHECK(gd_tensor_is_error(gd_npz_load(npz, "too_large")));
    CHECK(failed_with(GD_E_UNSUPPORTED, "9223372036854775808"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_npz_load(npz, "complex")));
    CHECK(failed_with(GD_E_UNSUPPORTED, "c16"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_npz_load(npz, "deep")));
    CHECK(failed_with(GD_E_UNSUPPORTED, "9 dimensions"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_npz_load(npz, "nothing")));
    CHECK(failed_with(GD_E_ARGUMENT, "no array 'nothing'; it has fortran, i2"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_npz_load_all(npz).at[0]));
    CHECK(failed_with(GD_E_UNSUPPORTED, "too_large"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_load_npy(path)));
    CHECK(failed_with(GD_E_FORMAT, "not a .npy file"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_load_npy(temp_path("absent.npy"))));
    CHECK(failed_with(GD_E_IO, "absent.npy"));
    gd_clear_error();
    CHECK(gd_npz_open(temp_path("absent.npz")) == NULL);
    CHECK(failed_with(GD_E_IO, "absent.npz"));
    gd_clear_error();
}

TEST(archives_are_loaded_as_a_list_or_by_name) {
    GD_SCOPE;
    gd_tensor *w = gd_full(gd_dims(2, 2), 0.5), *b = gd_scalar_int(7);
    const char *path = temp_path("a.npz");
    CHECK(gd_save_npz(path, gd_names("layer/w", "b"), gd_list(w, b)) == GD_OK);
    CHECK(prints_as(gd_load_npz(path, "b"), "7\ni64[]"));
    gd_npz *npz = gd_npz_open(path);
    gd_tensors all = gd_npz_load_all(npz);
    CHECK(all.count == 2 && strcmp(gd_npz_name(npz, 0), "layer/w") == 0);
    CHECK(all.count == 2 && prints_as(all.at[0], "[[0.5 0.5]\n [0.5 0.5]]\nf32[2,2]"));
    CHECK(gd_save_npz(path, NULL, (gd_tensors){NULL, 0}) == GD_OK);
    CHECK(gd_npz_count(gd_npz_open(path)) == 0);
    CHECK(gd_save_npz(path, gd_names("a", "a"), gd_list(w, b)) == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_save_npz(path, gd_names("a", ""), gd_list(w, b)) == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(!gd_failed());
}

TEST(a_failed_program_saves_nothing) {
    GD_SCOPE;
    gd_tensor *t = gd_scalar(1);
    CHECK(gd_save_npy(temp_path("k.npy"), t) == GD_OK);
    gd_add(gd_full(gd_dims(2), 0), gd_full(gd_dims(3), 0));
    CHECK(gd_save_npy(temp_path("k.npy"), gd_scalar(2)) == GD_E_SHAPE);
    CHECK(gd_save_npz(temp_path("k.npz"), gd_names("t"), gd_list(t)) == GD_E_SHAPE);
    gd_clear_error();
    CHECK(gd_item(gd_load_npy(temp_path("k.npy"))) == 1);
    CHECK(!file_exists(temp_path("k.npz")));
    CHECK(gd_save_npy(temp_path("no/such/folder.npy"), t) == GD_E_IO);
    gd_clear_error();
    CHECK(gd_save_npy(temp_path("k.npy"), NULL) == GD_E_ARGUMENT);
    gd_clear_error();
}

TEST(damaged_files_are_detected) {
    GD_SCOPE;
    unsigned char bytes[sizeof numpy_sample];
    memcpy(bytes, numpy_sample, sizeof bytes);
    int damaged = 0;
    for (size_t i = 0; i < sizeof bytes; i++) {
        GD_SCOPE;
        bytes[i] ^= 0x10;
        gd_npz *npz = gd_npz_open(temp_write("x.npz", bytes, sizeof bytes));
        for (int64_t k = 0; k < gd_npz_count(npz); k++) gd_npz_load(npz, gd_npz_name(npz, k));
        damaged += gd_failed();
        gd_clear_error();
        bytes[i] ^= 0x10;
    }
    CHECK(damaged > (int)sizeof bytes / 2);
    CHECK(gd_npz_open(temp_write("x.npz", bytes, sizeof bytes - 100)) == NULL);
    gd_clear_error();
}

TEST(failed_allocations_return_a_status_and_leak_nothing) {
    const char *path = temp_write("n.npz", numpy_sample, sizeof numpy_sample);
    int64_t before = gd_live_objects();
    for (fault_walk w = {.what = "gd_load_npz", .lasting = true}; fault_next(&w);) {
        fault_begin(&w);
        gd_tensor *t = gd_load_npz(path, "fortran"); /* there is no scope: the test owns it */
        fault_end(&w);
        CHECK_ROUND(&w, gd_failed() == gd_tensor_is_error(t));
        CHECK_FAULT(&w, gd_error_status());
        gd_release(t);
    }
    gd_npz *npz = gd_npz_open(path);
    gd_tensors all = gd_npz_load_all(npz); /* fails in the middle */
    CHECK(all.count > 0 && gd_tensor_is_error(all.at[0]) && gd_failed());
    gd_clear_error();
    gd_release(npz);
    CHECK(gd_live_objects() == before);
}

/* Checks the folder after all tests above. */
TEST(zz_no_temporary_files_are_left) {
    CHECK_SAYING(folder_count(temp_folder()) <= 8, "%d files", folder_count(temp_folder()));
}

TEST_MAIN
