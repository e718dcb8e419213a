/* test_data_sequences.c - datasets of texts and tokens, and CIFAR. */
#include "clean_test.h"
#include "core/alloc.h"
#include "data_files.h"
#include "data_gather.h"
#include "gradus/gradus.h"
#include "temp.h"

static void check_integers(gd_tensor *t, int64_t count, const int64_t *expected) {
    CHECK_SAYING(gd_tensor_dtype(t) == GD_I64 && gd_tensor_rank(t) == 1 &&
                     gd_tensor_numel(t) == count,
                 "%s", gd_error_message());
    if (gd_tensor_numel(t) != count || gd_tensor_dtype(t) != GD_I64) return;
    const int64_t *got = gd_data(t);
    for (int64_t i = 0; i < count; i++)
        CHECK_SAYING(got[i] == expected[i], "%lld: %lld, expected %lld", (long long)i,
                     (long long)got[i], (long long)expected[i]);
}
#define CHECK_INTEGERS(t, ...) \
    check_integers(t, (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})

static bool sample_fails(gd_dataset *d, int64_t index) {
    gd_dataset_get(d, index);
    return gd_failed();
}

/* --- text ------------------------------------------------------------------------------------- */

CLEAN_TEST(characters_are_numbered_by_their_code_points) {
    GD_SCOPE;
    const char *path = temp_write_text("t.txt", "ba\xC3\xA4 \xE2\x82\xAC\xF0\x9F\x98\x80"
                                                "ab"); /* b a ä space € 😀 a b */
    gd_dataset *d = gd_dataset_text(path, 3);
    CHECK_SAYING(gd_dataset_count(d) == 2, "%s", gd_error_message());
    CHECK(gd_dataset_class_count(d) == 6 && strcmp(gd_dataset_class_name(d, 0), " ") == 0);
    CHECK(strcmp(gd_dataset_class_name(d, 3), "\xC3\xA4") == 0);
    CHECK(strcmp(gd_dataset_class_name(d, 5), "\xF0\x9F\x98\x80") == 0);
    CHECK_INTEGERS(gd_dataset_get(d, 0).at[0], 2, 1, 3);
    CHECK_INTEGERS(gd_dataset_get(d, 0).at[1], 1, 3, 0);
    CHECK_INTEGERS(gd_dataset_get(d, 1).at[0], 0, 4, 5);
    CHECK_INTEGERS(gd_dataset_get(d, 1).at[1], 4, 5, 1);
    d = gd_dataset_text(path, 3, .stride = 1);
    CHECK(gd_dataset_count(d) == 5);
    CHECK_INTEGERS(gd_dataset_get(d, 4).at[1], 5, 1, 2);
    check_gather(d);
}

CLEAN_TEST(a_class_is_found_by_its_text) {
    GD_SCOPE;
    const char *path = temp_write_text("t.txt", "ba\xC3\xA4 ab");
    gd_dataset *d = gd_dataset_text(path, 3);
    CHECK(gd_dataset_class_index(d, "\xC3\xA4") == 3 && gd_dataset_class_index(d, " ") == 0);
    CHECK(gd_dataset_class_index(gd_dataset_range(d, 0, 1), "b") == 2);
    CHECK(gd_dataset_class_index(d, "x") == -1);
    CHECK_SAYING(says("gd_dataset_class_index: text has no class 'x'; its 4 are ' ', 'a', 'b'"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_dataset_class_index(d, NULL) == -1 && says("the name is NULL"));
    gd_clear_error();
    gd_dataset *none = gd_dataset_tensors(gd_ones(gd_dims(3)));
    CHECK(gd_dataset_class_index(none, "x") == -1 && says("has no names of classes"));
    gd_clear_error();
}

CLEAN_TEST(bytes_are_numbered_by_their_value) {
    GD_SCOPE;
    const char *path = temp_write("b.txt", "\xff\0ab\n", 5);
    gd_dataset *d = gd_dataset_text(path, 2, .unit = GD_BYTE, .stride = 2);
    CHECK_SAYING(gd_dataset_count(d) == 2 && gd_dataset_class_count(d) == 256, "%s",
                 gd_error_message());
    CHECK_INTEGERS(gd_dataset_get(d, 0).at[0], 255, 0);
    CHECK_INTEGERS(gd_dataset_get(d, 1).at[1], 'b', '\n');
    CHECK(strcmp(gd_dataset_class_name(d, 'a'), "a") == 0 &&
          strcmp(gd_dataset_class_name(d, 10), "\\x0a") == 0);
    CHECK(!gd_dataset_text(path, 2) && says("b.txt: byte 0xff at byte 0 (line 1) is not UTF-8"));
    gd_clear_error();
    CHECK(!gd_dataset_text(path, 5, .unit = GD_BYTE) && says("has 5 bytes"));
    gd_clear_error();
    CHECK(gd_dataset_count(gd_dataset_text(path, 4, .unit = GD_BYTE)) == 1);
    CHECK(!gd_dataset_text(path, 0) && says("length is 0"));
    gd_clear_error();
    CHECK(!gd_dataset_text(temp_write("c.txt", "ab\ncd\xC3", 6), 1) && says("byte 5 (line 2)"));
}

CLEAN_TEST(many_characters_need_wider_numbers) {
    GD_SCOPE;
    char text[3000], *p = text;
    for (int code = 0x100; code < 0x100 + 400; code++) /* two bytes each */
        *p++ = (char)(0xC0 | code >> 6), *p++ = (char)(0x80 | (code & 63));
    gd_dataset *d = gd_dataset_text(temp_write("w.txt", text, (size_t)(p - text)), 399);
    CHECK_SAYING(gd_dataset_class_count(d) == 400, "%s", gd_error_message());
    gd_tensor *y = gd_dataset_get(d, 0).at[1];
    CHECK(((int64_t *)gd_data(y))[398] == 399 && ((int64_t *)gd_data(y))[0] == 1);
}

CLEAN_TEST(tinyshakespeare_has_65_characters) {
    const char *folder = real_data("tinyshakespeare");
    if (!folder) SKIP("no tinyshakespeare at $GRADUS_DATA or ../shared/data");
    GD_SCOPE;
    char path[700];
    snprintf(path, sizeof path, "%s/input.txt", folder);
    if (access(path, R_OK) != 0) snprintf(path, sizeof path, "%s/input.txt.gz", folder);
    gd_dataset *d = gd_dataset_text(path, 64);
    CHECK_SAYING(gd_dataset_class_count(d) == 65, "%s", gd_error_message());
    CHECK_SAYING(gd_dataset_count(d) == (1115394 - 1 - 64) / 64 + 1, "%lld",
                 (long long)gd_dataset_count(d));
    CHECK(strcmp(gd_dataset_class_name(d, 0), "\n") == 0 &&
          strcmp(gd_dataset_class_name(d, 64), "z") == 0);
}

/* --- tokens ----------------------------------------------------------------------------------- */

CLEAN_TEST(tokens_span_shards) {
    GD_SCOPE;
    uint8_t data[100];
    for (int shard = 0, token = 0; shard < 4; shard++) { /* 0, 3, 1 and 7 tokens: 1000, 1001 ... */
        static const int counts[] = {0, 3, 1, 7};
        char name[40];
        for (int i = 0; i < counts[shard]; i++)
            gd_put_u16(data + 2 * i, (uint16_t)(1000 + token++));
        snprintf(name, sizeof name, "shard_%d.bin", shard);
        temp_write(name, data, (size_t)(2 * counts[shard]));
    }
    gd_dataset *d = gd_dataset_tokens(temp_path("shard_*.bin"), 3, .stride = 2);
    CHECK_SAYING(gd_dataset_count(d) == 4, "%s", gd_error_message());
    CHECK_INTEGERS(gd_dataset_get(d, 0).at[0], 1000, 1001, 1002);
    CHECK_INTEGERS(gd_dataset_get(d, 0).at[1], 1001, 1002, 1003);
    CHECK_INTEGERS(gd_dataset_get(d, 1).at[0], 1002, 1003, 1004);
    CHECK_INTEGERS(gd_dataset_get(d, 3).at[1], 1007, 1008, 1009);
    check_gather(d);
    CHECK(gd_dataset_count(gd_dataset_tokens(temp_path("shard_*.bin"), 10)) == 1);
    CHECK(!gd_dataset_tokens(temp_path("shard_*.bin"), 11) && says("has 11 tokens"));
    gd_clear_error();
    CHECK(!gd_dataset_tokens(temp_path("nothing_*"), 3) && says("no file matches it"));
    gd_clear_error();
    d = gd_dataset_tokens(temp_path("shard_*.bin"), 3, .vocabulary = 1005);
    gd_dataset_get(d, 0);
    CHECK(!gd_failed());
    CHECK(sample_fails(d, 1) && says("shard_3.bin: token 1 is 1005; the vocabulary has 1005"));
}

CLEAN_TEST(tokens_have_several_types) {
    GD_SCOPE;
    uint8_t data[40], *p = data;
    memcpy(p, "head", 4);
    p += 4;
    for (int i = 0; i < 4; i++) p = gd_put_u32(p, (uint32_t)(100000 + i));
    const char *path = temp_write("wide.bin", data, 20);
    gd_dataset *d = gd_dataset_tokens(path, 3, .type = GD_INT32, .skip = 4);
    CHECK_SAYING(d, "%s", gd_error_message());
    CHECK_INTEGERS(gd_dataset_get(d, 0).at[1], 100001, 100002, 100003);
    size_t size;
    uint8_t *zipped = test_gzip(data, 20, &size);
    d = gd_dataset_tokens(temp_write("wide.bin.gz", zipped, size), 3, .type = GD_INT32, .skip = 4);
    CHECK_INTEGERS(gd_dataset_get(d, 0).at[0], 100000, 100001, 100002);
    free(zipped);
    CHECK(gd_save_npy(temp_path("t.npy"), gd_arange(7, 12, .dtype = GD_I64)) == GD_OK);
    d = gd_dataset_tokens(temp_path("t.npy"), 4);
    CHECK_INTEGERS(gd_dataset_get(d, 0).at[1], 8, 9, 10, 11);
    CHECK(gd_save_npy(temp_path("t.npy"), gd_ones(gd_dims(5))) == GD_OK);
    CHECK(!gd_dataset_tokens(temp_path("t.npy"), 4) && says("tokens are little-endian"));
    gd_clear_error();
    CHECK(!gd_dataset_tokens(path, 3, .type = GD_INT32, .skip = 3) && says("not a multiple of 4"));
    gd_clear_error();
    CHECK(!gd_dataset_tokens(path, 3, .skip = 30) && says("and skip is 30"));
    gd_clear_error();
    gd_put_u32(data + 8, (uint32_t)-5);
    d = gd_dataset_tokens(temp_write("wide.bin", data, 20), 3, .type = GD_INT32, .skip = 4);
    CHECK(sample_fails(d, 0) && says("token 1 is -5, which is negative"));
}

CLEAN_TEST(a_token_file_that_shrinks_is_a_status) {
    GD_SCOPE;
    static uint8_t data[40000];
    for (int i = 0; i < 20000; i++) gd_put_u16(data + 2 * i, (uint16_t)(i % 1000));
    const char *path = temp_write("shrinking.bin", data, sizeof data);
    gd_dataset *d = gd_dataset_tokens(path, 8);
    CHECK(gd_dataset_count(d) == 2499);
    CHECK(truncate(path, 100) == 0);
    CHECK_INTEGERS(gd_dataset_get(d, 1).at[1], 9, 10, 11, 12, 13, 14, 15, 16);
    CHECK(sample_fails(d, 2498) && says("shrinking.bin: has become shorter while being read"));
    gd_clear_error();
    temp_write("shrinking.bin", data, sizeof data); /* longer windows than one read */
    d = gd_dataset_tokens(path, 19999);
    gd_tensors sample = gd_dataset_get(d, 0);
    for (int i = 0; i < 19999; i += 500)
        CHECK(gd_item(gd_select(sample.at[0], 0, i)) == i % 1000 &&
              gd_item(gd_select(sample.at[1], 0, i)) == (i + 1) % 1000);
    CHECK(gd_item(gd_select(sample.at[1], 0, 19998)) == 999 && !gd_failed());
    CHECK(truncate(path, 30000) == 0);
    CHECK(sample_fails(d, 0) && says("has become shorter while being read, at 30000"));
}

/* --- CIFAR ------------------------------------------------------------------------------------ */

enum { PIXELS = 3072 };

/* Writes `count` records: labels first + i + 10 k, then pixels of value first + i. */
static size_t write_records(uint8_t *to, int count, int labels, int first) {
    uint8_t *p = to;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < labels; k++) *p++ = (uint8_t)(first + i + 10 * k);
        memset(p, first + i, PIXELS);
        p += PIXELS;
    }
    return (size_t)(p - to);
}

CLEAN_TEST(cifar_images_have_their_classes) {
    GD_SCOPE;
    static uint8_t data[4 * (PIXELS + 2)];
    char name[40];
    const char *folder = temp_folder();
    CHECK(!gd_dataset_cifar10(folder, GD_TRAIN) &&
          says("has no file data_batch_1.bin or cifar-10-batches-bin/"));
    gd_clear_error();
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        temp_write(name, data, write_records(data, 2, 1, i));
    }
    size_t size, bytes = write_records(data, 3, 1, 4);
    uint8_t *zipped = test_gzip(data, bytes, &size);
    temp_write("test_batch.bin.gz", zipped, size);
    free(zipped);
    gd_dataset *d = gd_dataset_cifar10(folder, GD_TRAIN);
    CHECK_SAYING(gd_dataset_count(d) == 10 && gd_dataset_class_count(d) == 10, "%s",
                 gd_error_message());
    gd_tensors sample = gd_dataset_get(d, 9);
    CHECK(gd_item_int(sample.at[1]) == 6 && strcmp(gd_dataset_class_name(d, 6), "frog") == 0);
    CHECK(gd_tensor_dim(sample.at[0], 0) == 3 && ((float *)gd_data(sample.at[0]))[5] == 6 / 255.0f);
    CHECK(gd_dataset_count(gd_dataset_cifar10(folder, GD_TEST)) == 3);
    check_gather(d);

    temp_write("train.bin", data, write_records(data, 4, 2, 3));
    d = gd_dataset_cifar100(folder, GD_TRAIN, .bytes = true);
    CHECK(gd_item_int(gd_dataset_get(d, 1).at[1]) == 14 && gd_dataset_class_count(d) == 100);
    CHECK(((uint8_t *)gd_data(gd_dataset_get(d, 1).at[0]))[0] == 4);
    d = gd_dataset_cifar100(folder, GD_TRAIN, .labels = GD_COARSE);
    CHECK(gd_item_int(gd_dataset_get(d, 1).at[1]) == 4 && gd_dataset_class_count(d) == 20);
    CHECK(strcmp(gd_dataset_class_name(d, 4), "fruit_and_vegetables") == 0);
    check_gather(d);
}

CLEAN_TEST(damaged_cifar_files_fail_with_their_name) {
    static uint8_t data[3 * (PIXELS + 1)];
    const size_t bytes = write_records(data, 2, 1, 1);
    const char *folder = temp_folder();
    unlink(temp_path("test_batch.bin.gz"));
    for (size_t n = 0; n < bytes; n += n % 50 == 0 ? 1 : 49) {
        temp_write("test_batch.bin", data, n);
        if (n == PIXELS + 1) continue; /* one record */
        CHECK_SAYING(!gd_dataset_cifar10(folder, GD_TEST) && says("test_batch.bin: "), "%zu", n);
        gd_clear_error();
    }
    data[PIXELS + 1] = 10;
    temp_write("test_batch.bin", data, bytes);
    CHECK(!gd_dataset_cifar10(folder, GD_TEST) &&
          says("the label at byte 3073 (record 1) is 10; labels are below 10"));
}

TEST_MAIN
