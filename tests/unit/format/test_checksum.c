/* test_checksum.c - files with a checksum: any damage is detected. */

#include "clean_test.h"
#include "core/error.h"
#include "files.h"
#include "temp.h"
#include "format/checksum.h"
#include "gradus/gradus.h"
#include "io/state_io.h"

/* --- the hash --------------------------------------------------------------------------------- */

static uint64_t hash_of(const void *data, size_t bytes, size_t piece) {
    gd_xxh64 h = gd_xxh64_begin();
    for (size_t at = 0; at < bytes; at += piece)
        gd_xxh64_add(&h, (const char *)data + at, bytes - at < piece ? bytes - at : piece);
    return gd_xxh64_value(&h);
}

/* Expected values are from Python's xxhash package. */
TEST(the_hash_is_xxh64_for_pieces_of_any_size) {
    static const struct {
        size_t bytes;
        uint64_t hash;
    } known[] = {{0, 0xef46db3751d8e999},  {9, 0x170bb6bf975b4c02},  {18, 0x28791d24c4cf5e78},
                 {27, 0x9ab0b90755292fc8}, {36, 0xc0b52b0dcc5e3f7f}, {63, 0x5e3e54b431c7493c},
                 {72, 0xfd91a561882d1ff7}, {99, 0x06a08eb098afa2c3}};
    uint8_t data[100];
    for (int i = 0; i < 100; i++) data[i] = (uint8_t)(i * 7 + 3);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (size_t piece = 1; piece <= 100; piece++)
            CHECK_SAYING(hash_of(data, known[i].bytes, piece) == known[i].hash, "%zu bytes by %zu",
                         known[i].bytes, piece);
}

/* --- the position of the digits --------------------------------------------------------------- */

static long found_at(const char *json) {
    size_t at;
    return gd_checksum_find(json, strlen(json), &at) ? (long)at : -1;
}

TEST(digits_are_found_only_in_the_member_with_the_key) {
    CHECK(found_at("{\"gradus.checksum\":\"xxh64:0123456789abcdef\"}") == 26);
    CHECK(found_at("{\"gradus.checksum\" : \"xxh64:0123456789abcdef\"}") == 28);
    CHECK(found_at(
              "{\"gradus.checksum\":{},\"a\":{\"gradus.checksum\":\"xxh64:0123456789abcdef\"}}") ==
          52);
    CHECK(found_at("{\"x\\\"gradus.checksum\":\"xxh64:0123456789abcdef\"}") == -1);
    CHECK(found_at("{\"gradus.checksum\":\"xxh64:0123456789abcdeF\"}") == -1);
    CHECK(found_at("{\"gradus.checksum\":\"xxh64:0123456789abcde\"}") == -1);
    CHECK(found_at("{\"gradus.checksum\":\"xxh64:0123456789abcdef") == -1);
    CHECK(found_at("{\"gradus.checksum\"") == -1 && found_at("") == -1);
}

/* --- files ------------------------------------------------------------------------------------ */

static const char *path, *index_path;

static void set_paths(void) {
    path = temp_path("net.safetensors");
    index_path = temp_path("net.safetensors.index.json");
}

static gd_status save_file(const char *to, bool checksum, double value) {
    gd_tensor *a = gd_full(gd_dims(5, 3), value), *b = gd_full(gd_dims(7), value, .dtype = GD_F64);
    gd_seed((uint64_t)value);
    return gd_save_state_with(
        to, gd_parts(gd_part("a", a), gd_part("b", b), gd_part("rng", gd_generator())),
        .checksum = checksum, .shard_bytes = to == index_path ? 60 : 0);
}

CLEAN_TEST(a_file_with_a_checksum_loads_without_exposing_it) {
    GD_SCOPE;
    set_paths();
    for (int i = 0; i < 4; i++) {
        const bool checksum = i % 2, shards = i / 2;
        const char *name = shards ? index_path : path;
        CHECK_SAYING(save_file(name, checksum, 2) == GD_OK, "%s", gd_error_message());
        gd_tensor *a = gd_zeros(gd_dims(5, 3));
        CHECK_SAYING(gd_load_state(name, gd_part("a", a)) == GD_OK, "%s", gd_error_message());
        CHECK(gd_item(gd_min(a)) == 2);
        gd_state *s = gd_read_state(name);
        CHECK(s && gd_state_count(s) == 2 && !gd_state_value(s, GD_CHECKSUM_KEY));
        size_t bytes;
        char *text = file_read(name, &bytes);
        CHECK((memmem(text, bytes, "\"" GD_CHECKSUM_KEY "\"", sizeof GD_CHECKSUM_KEY + 1) !=
               NULL) == checksum);
        CHECK((memmem(text, bytes, GD_CHECKSUM_BLANK, sizeof GD_CHECKSUM_BLANK - 1) != NULL) ==
              false);
        free(text);
        bool damaged;
        const gd_state_part part = {"a", a};
        if (!shards && !checksum)
            CHECK(gd_state_load_checked(name, (gd_state_parts){&part, 1}, NULL, &damaged) ==
                      GD_E_FORMAT &&
                  damaged && strstr(gd_latest_failure(), "has no checksum"));
    }
}

/* Loads a file of save_file, and checks that a failed load changes nothing. */
static gd_status load_file(const char *name, bool checked) {
    GD_SCOPE;
    gd_tensor *a = gd_zeros(gd_dims(5, 3)), *b = gd_zeros(gd_dims(7), .dtype = GD_F64);
    gd_seed(99);
    const gd_state_part parts[] = {{"a", a}, {"b", b}, {"rng", gd_generator()}};
    bool damaged = false;
    const gd_status status =
        checked ? gd_state_load_checked(name, (gd_state_parts){parts, 3}, NULL, &damaged)
                : gd_load_state_with(name, ((gd_state_parts){parts, 3}));
    const char *message = checked ? gd_latest_failure() : gd_error_message();
    if (status == GD_OK) return GD_OK;
    CHECK_SAYING(strstr(message, temp_folder()), "%s", message); /* the message names the file */
    CHECK(!checked || damaged);
    gd_clear_error();
    CHECK(gd_item(gd_max(a)) == 0 && gd_item(gd_max(b)) == 0 && gd_rng_state().seed == 99);
    return status;
}

CLEAN_TEST(every_flipped_bit_and_every_truncation_is_detected) {
    GD_SCOPE;
    set_paths();
    CHECK(save_file(path, true, 3) == GD_OK && load_file(path, true) == GD_OK);
    size_t bytes;
    char *data = file_read(path, &bytes);
    for (size_t i = 0; i < bytes && test_failures < 10; i++) {
        const char bit = (char)(1 << i % 8);
        data[i] ^= bit;
        file_write(path, data, bytes);
        data[i] ^= bit;
        CHECK_SAYING(load_file(path, true) == GD_E_FORMAT, "byte %zu of %zu", i, bytes);
    }
    for (size_t n = 0; n < bytes && test_failures < 10; n++) { /* and truncated at every byte */
        file_write(path, data, n);
        CHECK_SAYING(load_file(path, true) == GD_E_FORMAT, "cut to %zu of %zu", n, bytes);
        if (n % 8 == 0) CHECK(load_file(path, false) == GD_E_FORMAT);
    }
    free(data);
}

CLEAN_TEST(a_damaged_element_fails_with_the_file_and_the_reason) {
    GD_SCOPE;
    set_paths();
    CHECK(save_file(path, true, 3) == GD_OK);
    size_t bytes;
    char *data = file_read(path, &bytes);
    data[bytes - 5] ^= 16;
    file_write(path, data, bytes);
    CHECK(gd_read_state(path) == NULL && gd_error_status() == GD_E_FORMAT);
    CHECK_SAYING(says("net.safetensors: is damaged: its checksum is ") &&
                     says(", but that of its bytes is "),
                 "%s", gd_error_message());
    gd_clear_error();
    free(data);
}

CLEAN_TEST(damage_to_a_shard_or_to_the_values_of_the_index_is_detected) {
    GD_SCOPE;
    set_paths();
    const char *shard = temp_path("net-00001-of-00002.safetensors");
    CHECK(save_file(index_path, true, 3) == GD_OK && load_file(index_path, false) == GD_OK);
    const char *const names[] = {shard, index_path};
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        char *data = file_read(names[i], &bytes), *seed = memmem(data, bytes, "\"3\"", 3);
        char *byte = i == 0 ? data + bytes - 1 : seed + 1;
        CHECK(i == 0 || seed);
        *byte ^= 1; /* the index is still valid JSON */
        file_write(names[i], data, bytes);
        CHECK(load_file(index_path, false) == GD_E_FORMAT);
        *byte ^= 1;
        file_write(names[i], data, bytes);
        CHECK(load_file(index_path, false) == GD_OK);
        free(data);
    }
}

TEST_MAIN
