/* test_state_shards.c - states in shards with an index: split by size and replaced together;
 * malicious indexes fail. */
#include <dirent.h>

#include "files.h"
#include "state_things.h"
#include "temp.h"

static const char *folder, *index_path;

static void begin_test(void) {
    folder = temp_new_folder("shards");
    index_path = temp_path("shards/model.safetensors.index.json");
}

/* Returns the number of files whose names begin with `start`. */
static int count_files(const char *start) {
    DIR *d = opendir(folder);
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        count += e->d_name[0] != '.' && strncmp(e->d_name, start, strlen(start)) == 0;
    if (d) closedir(d);
    return count;
}

static void write_text(const char *name, const char *text) {
    file_write_text(temp_path("shards/%s", name), text);
}

CLEAN_TEST(a_state_is_split_into_shards_and_loaded_by_its_index) {
    GD_SCOPE;
    begin_test();
    net *from = small_net(2), *to = small_net(0);
    from->has_values = to->has_values = true;
    from->integer = 77;
    moments *m = new_moments(from, 3), *loaded = new_moments(to, 0);
    /* 24, 12, 24 bytes for the net and again for the moments */
    const struct {
        int64_t bytes;
        int shards;
    } sizes[] = {{24, 6}, {36, 4}, {1, 6}, {72, 2}, {1000, 1}, {0, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_SAYING(
            gd_save_state_with(index_path,
                               gd_parts(gd_part("net", (void *)from), gd_part("adam", (void *)m)),
                               .shard_bytes = sizes[i].bytes) == GD_OK,
            "%s", gd_error_message());
        CHECK_SAYING(count_files("model-") == sizes[i].shards &&
                         count_files("") == sizes[i].shards + 1,
                     "%d shards of %lld bytes", count_files("model-"), (long long)sizes[i].bytes);
        CHECK_SAYING(gd_load_state(index_path, gd_part("net", (void *)to),
                                   gd_part("adam", (void *)loaded)) == GD_OK,
                     "%s", gd_error_message());
        CHECK(all_are(to, 2) && to->integer == 77 && loaded->moment[2] &&
              gd_item(gd_min(loaded->moment[2])) == 3);
    }
    gd_state *s = gd_read_state(index_path);
    CHECK(gd_state_count(s) == 6 && !gd_state_value(s, "total_size"));
    end_moments(m);
    end_moments(loaded);
    end_net(from);
    end_net(to);
}

CLEAN_TEST(other_files_of_the_folder_are_kept) {
    GD_SCOPE;
    begin_test();
    net *n = small_net(1);
    static const char *const others[] = {"model.safetensors",
                                         "model-final.safetensors",
                                         "other-00001-of-00001.safetensors",
                                         "model-00001-of-00002.bin",
                                         "model-0001-of-0002.safetensors",
                                         "xmodel-00001-of-00002.safetensors"};
    for (int i = 0; i < 6; i++) write_text(others[i], "mine");
    write_text("model-00009-of-00009.safetensors", "of a save that was killed");
    write_text("model.safetensors.index.json-00003.tmp-1", "of a save that was killed");
    for (int k = 0; k < 3; k++)
        CHECK(gd_save_state_with(index_path, gd_parts(gd_part("", (void *)n)), .shard_bytes = 24) ==
              GD_OK);
    for (int i = 0; i < 6; i++) CHECK_SAYING(count_files(others[i]) >= 1, "%s", others[i]);
    CHECK_SAYING(count_files("") == 6 + 3 + 1, "%d files", count_files(""));
    CHECK(gd_load_state(index_path, gd_part("", (void *)n)) == GD_OK);
    end_net(n);
}

CLEAN_TEST(an_invalid_index_fails_with_the_reason) {
    GD_SCOPE;
    begin_test();
    net *n = small_net(1);
    CHECK(gd_save_state_with(index_path, gd_parts(gd_part("", (void *)n)), .shard_bytes = 36) ==
          GD_OK);
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "expected"},
        {"[]", "has no \"weight_map\""},
        {"{\"weight_map\": []}", "has no \"weight_map\""},
        {"{\"weight_map\": {\"a\": 3}}", "the file of 'a' is a number"},
        {"{\"weight_map\": {\"a\": \"../secret.safetensors\"}}",
         "which is not in the folder of the index"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "which is not in the folder of the index"},
        {"{\"weight_map\": {\"a\": \"..\"}}", "which is not in the folder of the index"},
        {"{\"weight_map\": {\"a\": \"\"}}", "which is not in the folder of the index"},
        {"{\"weight_map\": {\"a\": \"nowhere.safetensors\"}}",
         "nowhere.safetensors: cannot be opened"},
        {"{\"weight_map\": {\"a\": \"model.safetensors.index.json\"}}",
         "is not a safetensors file"},
        {"{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}",
         "'a' is not in model-00001-of-00002.safetensors"},
        {"{\"weight_map\": {\"fc2.weight\": \"model-00001-of-00002.safetensors\"}}",
         "'fc2.weight' is not in model-00001"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text("model.safetensors.index.json", bad[i].text);
        CHECK(gd_load_state(index_path, gd_part("", (void *)n)) != GD_OK);
        CHECK_SAYING(says(bad[i].why), "%s: %s", bad[i].text, gd_error_message());
        gd_clear_error();
    }
    CHECK(gd_save_state_with(index_path, gd_parts(gd_part("", (void *)n)), .shard_bytes = 36) ==
          GD_OK); /* replaces a damaged index */
    CHECK(gd_load_state(index_path, gd_part("", (void *)n)) == GD_OK && count_files("") == 3);
    end_net(n);
}

CLEAN_TEST(too_many_shards_fail) {
    GD_SCOPE;
    begin_test();
    static char names[600][8];
    gd_state_part parts[600];
    for (int i = 0; i < 600; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        parts[i] = gd_part(names[i], gd_ones(gd_dims(2)));
    }
    const gd_state_parts all = {parts, 600};
    CHECK(gd_save_state_with(index_path, all, .shard_bytes = 1) == GD_E_ARGUMENT &&
          says("choose a larger .shard_bytes"));
    gd_clear_error();
    CHECK(count_files("") == 0);
    CHECK(gd_save_state_with(index_path, all, .shard_bytes = 16) == GD_OK &&
          count_files("model-") == 300);
    CHECK_SAYING(gd_load_state_at(NULL, index_path, all, NULL) == GD_OK, "%s", gd_error_message());
}

CLEAN_TEST(a_state_without_tensors_is_only_an_index) {
    GD_SCOPE;
    begin_test();
    CHECK_SAYING(gd_save_state(index_path, gd_part("rng", gd_generator())) == GD_OK &&
                     count_files("") == 1,
                 "%d files: %s", count_files(""), gd_error_message());
    CHECK(gd_load_state(index_path, gd_part("rng", gd_generator())) == GD_OK);
}

TEST_MAIN
