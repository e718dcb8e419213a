/* test_safetensors.c - the bytes of safetensors files: valid files are read, and invalid ones fail
 * with a reason. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "fuzz/damage.h"
#include "clean_test.h"
#include "core/alloc.h"
#include "core/error.h"
#include "files.h"
#include "format/bytes.h"
#include "gradus/gradus.h"
#include "temp.h"

#include "fuzz/fuzz_safetensors.c"

static gd_status read_bytes(const void *data, size_t bytes, gd_safetensors *h) {
    gd_file_reader *file;
    if (gd_file_reader_open_memory(&file, "test", data, bytes) != GD_OK) return GD_E_MEMORY;
    const gd_status status = gd_safetensors_read(h, file);
    gd_file_reader_close(file);
    return status;
}

/* --- malicious files -------------------------------------------------------------------------- */

TEST(every_invalid_file_of_the_corpus_fails_with_its_reason) {
    FILE *list = fopen(GRADUS_CORPUS "/safetensors/expected.txt", "r");
    char line[400], path[600];
    int count = 0;
    CHECK(list);
    while (list && fgets(line, sizeof line, list)) {
        char *reason = strchr(line, '\t');
        if (!reason) continue;
        *reason++ = 0;
        reason[strcspn(reason, "\n")] = 0;
        snprintf(path, sizeof path, "%s/safetensors/%s", GRADUS_CORPUS, line);
        gd_file_reader *file;
        gd_safetensors h;
        CHECK(gd_file_reader_open(&file, path) == GD_OK);
        const gd_status status = gd_safetensors_read(&h, file);
        CHECK_SAYING(status == GD_E_FORMAT, "%s: %s", line, gd_status_name(status));
        CHECK_SAYING(strstr(gd_latest_failure(), reason) && strstr(gd_latest_failure(), line),
                     "%s: %s, not %s", line, gd_latest_failure(), reason);
        if (status == GD_OK) gd_safetensors_free(&h);
        gd_file_reader_close(file);
        CHECK(gd_read_state(path) == NULL &&
              gd_error_status() == GD_E_FORMAT); /* and through the public call */
        gd_clear_error();
        count++;
    }
    if (list) fclose(list);
    CHECK_SAYING(count > 50, "%d files", count);
}

TEST(damaged_files_fail_or_load_completely) {
    size_t bytes;
    uint8_t *data = file_read(GRADUS_GOLDEN "/safetensors/all.safetensors", &bytes);
    CHECK(data);
    run_cut(LLVMFuzzerTestOneInput, data, bytes);
    run_damaged(LLVMFuzzerTestOneInput, data, bytes, 3000);
    free(data);
}

TEST(damaged_files_with_a_checksum_fail_or_load_completely) {
    GD_SCOPE;
    const char *path = temp_path("sum.safetensors");
    size_t bytes;
    CHECK(gd_save_state_with(
              path, gd_parts(gd_part("w", gd_ones(gd_dims(3))), gd_part("rng", gd_generator())),
              .checksum = true) == GD_OK);
    uint8_t *data = file_read(path, &bytes);
    CHECK(data);
    run_cut(LLVMFuzzerTestOneInput, data, bytes);
    run_damaged(LLVMFuzzerTestOneInput, data, bytes, 3000);
    free(data);
}

/* --- headers ---------------------------------------------------------------------------------- */

TEST(a_written_header_is_read_back) {
    const int64_t dims[] = {2, 3};
    gd_safetensors_entry entries[] = {
        {.name = "a \"quoted\" n\xc3\xa4me", .dtype = "F32", .rank = 2, .dims = dims, .bytes = 24},
        {.name = "scalar", .dtype = "F64", .bytes = 8}};
    const gd_safetensors_value values[] = {{"step", "12"}, {"text", "two\nlines\t\"\\"}};
    char *header;
    size_t bytes;
    gd_safetensors h;
    CHECK(gd_safetensors_make_header("x", entries, 2, values, 2, &header, &bytes) == GD_OK);
    CHECK(bytes % 64 == 0 && entries[0].begin == bytes && entries[1].begin == bytes + 24);
    char *file = calloc(1, bytes + 32);
    memcpy(file, header, bytes);
    CHECK(read_bytes(file, bytes + 32, &h) == GD_OK);
    CHECK(h.count == 2 && h.n_values == 2 && strcmp(h.values[1].text, values[1].text) == 0);
    CHECK(strcmp(h.entries[0].name, entries[0].name) == 0 &&
          h.entries[1].begin == entries[1].begin);
    gd_safetensors_free(&h);
    gd_free(header);
    free(file);
}

TEST(unaligned_headers_and_padding_are_accepted) {
    static const char text[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3],\"extra\":1}}  \n ";
    char file[200];
    gd_safetensors h;
    gd_put_u64((uint8_t *)file, sizeof text - 1);
    memcpy(file + 8, text, sizeof text - 1);
    memcpy(file + 8 + sizeof text - 1, "xyz", 3);
    CHECK_SAYING(read_bytes(file, 8 + sizeof text - 1 + 3, &h) == GD_OK, "%s", gd_latest_failure());
    CHECK(h.count == 1 && memcmp(file + h.entries[0].begin, "xyz", 3) == 0);
    gd_safetensors_free(&h);
}

TEST(invalid_names_and_sizes_are_not_written) {
    const int64_t dims[] = {INT64_MAX};
    char *header;
    size_t bytes;
    gd_safetensors_entry bad = {.name = "\xff", .dtype = "U8", .bytes = 1};
    CHECK(gd_safetensors_make_header("x", &bad, 1, NULL, 0, &header, &bytes) == GD_E_ARGUMENT);
    bad.name = "__metadata__";
    CHECK(gd_safetensors_make_header("x", &bad, 1, NULL, 0, &header, &bytes) == GD_E_ARGUMENT);
    gd_safetensors_entry large[] = {
        {.name = "a", .dtype = "U8", .rank = 1, .dims = dims, .bytes = INT64_MAX},
        {.name = "b", .dtype = "U8", .rank = 1, .dims = dims, .bytes = INT64_MAX}};
    CHECK(gd_safetensors_make_header("x", large, 2, NULL, 0, &header, &bytes) == GD_E_OVERFLOW);
}

/* Elements at odd addresses, and a bool that is neither 0 nor 1. */
CLEAN_TEST(unaligned_data_is_loaded_and_converted) {
    GD_SCOPE;
    static const char text[] = "{\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]},"
                               "\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[3,19]}}";
    static const float values[] = {1.5f, -2, 3, 4};
    const char *path = temp_path("odd.safetensors");
    uint8_t length[8];
    gd_put_u64(length, sizeof text - 1);
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(length, 1, 8, f) == 8 &&
          fwrite(text, 1, sizeof text - 1, f) == sizeof text - 1 &&
          fwrite("\0\1\7", 1, 3, f) == 3 && fwrite(values, 4, 4, f) == 4);
    if (f) fclose(f);
    gd_tensor *b = gd_zeros(gd_dims(3), .dtype = GD_BOOL), *w = gd_zeros(gd_dims(2, 2)),
              *wide = gd_zeros(gd_dims(2, 2), .dtype = GD_F64);
    gd_tensor *transposed = gd_transpose(gd_zeros(gd_dims(2, 2)), 0, 1);
    gd_tensor *const targets[] = {w, wide, transposed};
    for (int i = 0; i < 3; i++) {
        CHECK_SAYING(gd_load_state(path, gd_part("b", b), gd_part("w", targets[i])) == GD_OK, "%s",
                     gd_error_message());
        CHECK(gd_item(gd_at(targets[i], 0, 0)) == 1.5 && gd_item(gd_at(targets[i], 0, 1)) == -2 &&
              gd_item(gd_at(targets[i], 1, 0)) == 3);
    }
    uint8_t bools[3];
    CHECK(gd_copy_to(b, bools, 3) == GD_OK && bools[0] == 0 && bools[1] == 1 && bools[2] == 1);
}

/* --- more than 4 GB --------------------------------------------------------------------------- */

CLEAN_TEST(a_file_of_more_than_4_gb_is_read_through_a_map) {
    GD_SCOPE;
    const uint64_t large = (uint64_t)5 << 30;
    const int64_t dims[] = {(int64_t)large}, two[] = {2};
    gd_safetensors_entry entries[] = {
        {.name = "large", .dtype = "U8", .rank = 1, .dims = dims, .bytes = large},
        {.name = "behind", .dtype = "F32", .rank = 1, .dims = two, .bytes = 8}};
    const char *path = temp_path("large.safetensors");
    char *header;
    size_t bytes;
    const float values[] = {1.5f, -2.5f};
    float got[2] = {0};
    CHECK(gd_safetensors_make_header(path, entries, 2, NULL, 0, &header, &bytes) == GD_OK);
    const int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    const bool sparse = fd >= 0 && ftruncate(fd, (off_t)(entries[1].begin + 8)) == 0 &&
                        pwrite(fd, header, bytes, 0) == (ssize_t)bytes &&
                        pwrite(fd, values, 8, (off_t)entries[1].begin) == 8;
    gd_free(header);
    if (fd >= 0) close(fd);
    gd_tensor *behind = gd_zeros(gd_dims(2));
    const gd_status status = sparse ? gd_load_state(path, gd_part("behind", behind)) : GD_OK;
    unlink(path);
    if (!sparse) SKIP("no sparse files of 5 GB here");
    CHECK_SAYING(status == GD_OK, "%s", gd_error_message());
    CHECK(gd_copy_to(behind, got, sizeof got) == GD_OK && got[0] == 1.5f && got[1] == -2.5f);
}

/* --- files of the safetensors package --------------------------------------------------------- */

static double expected_value(gd_dtype dtype, int64_t i) {
    return dtype == GD_BOOL ? i % 3 == 0 : dtype == GD_U8 ? (3 * i + 1) % 5 : (3 * i + 1) % 7 - 2;
}

static void check_values(gd_tensor *t, gd_shape shape, gd_dtype dtype) {
    CHECK(gd_tensor_dtype(t) == dtype && gd_tensor_rank(t) == shape.rank);
    for (int k = 0; k < shape.rank; k++) CHECK(gd_tensor_dim(t, k) == shape.at[k]);
    gd_tensor *flat = gd_reshape(gd_cast(t, GD_F64), gd_dims(-1));
    for (int64_t i = 0; i < gd_tensor_numel(t) && gd_tensor_numel(t) > 0; i++)
        CHECK(gd_item(gd_at(flat, i)) == expected_value(dtype, i));
}

CLEAN_TEST(files_of_the_safetensors_package_are_read) {
    GD_SCOPE;
    gd_state *s = gd_read_state(GRADUS_GOLDEN "/safetensors/all.safetensors");
    CHECK_SAYING(s, "%s", gd_error_message());
    CHECK(gd_state_count(s) == 20);
    for (gd_dtype dtype = GD_BOOL; dtype < GD_DTYPE_COUNT; dtype++) {
        char name[32];
        snprintf(name, sizeof name, "%s.weight", gd_dtype_name(dtype));
        check_values(gd_state_find(s, name), gd_dims(2, 3), dtype);
    }
    for (int rank = 0; rank <= 8; rank++) {
        char name[32];
        gd_shape shape = gd_dims(1, 2, 1, 2, 1, 2, 1, 2);
        shape.rank = rank;
        snprintf(name, sizeof name, "rank%d", rank);
        check_values(gd_state_find(s, name), shape, GD_F32);
    }
    check_values(gd_state_find(s, "empty"), gd_dims(0), GD_F32);
    check_values(gd_state_find(s, "empty2"), gd_dims(3, 0, 2), GD_I64);
    CHECK(strcmp(gd_state_value(s, "step"), "41") == 0 && !gd_state_value(s, "format"));
}

CLEAN_TEST(unsupported_dtypes_fail_only_when_their_tensor_is_loaded) {
    GD_SCOPE;
    const char *path = GRADUS_GOLDEN "/safetensors/others.safetensors";
    gd_tensor *plain = gd_zeros(gd_dims(2)), *half = gd_zeros(gd_dims(4)),
              *word = gd_zeros(gd_dims(3), .dtype = GD_I32);
    CHECK_SAYING(gd_load_state(path, gd_part("plain", plain)) == GD_OK, "%s", gd_error_message());
    check_values(plain, gd_dims(2), GD_F32);
    CHECK(gd_load_state(path, gd_part("half", half), gd_part("word", word)) != GD_OK);
    CHECK_SAYING(says("half (F8_E4M3[4], f32[4] here), word (I16[3], i32[3] here)") &&
                     says("others.safetensors"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_read_state(path) == NULL && says("which is not supported"));
    gd_clear_error();
}

CLEAN_TEST(shards_with_a_hugging_face_index_are_read) {
    GD_SCOPE;
    gd_state *s = gd_read_state(GRADUS_GOLDEN "/safetensors/model.safetensors.index.json");
    CHECK_SAYING(s, "%s", gd_error_message());
    CHECK(gd_state_count(s) == 4);
    check_values(gd_state_find(s, "fc1.weight"), gd_dims(4, 3), GD_F32);
    check_values(gd_state_find(s, "fc2.bias"), gd_dims(2), GD_F32);
}

TEST_MAIN
