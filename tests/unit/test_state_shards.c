/* test_state_shards.c - states in shards with an index: cut by size, replaced together, and hostile
 * indexes refused. */
#include <dirent.h>
#include <sys/stat.h>

#include "state_things.h"

static char folder[300], index_path[400];

static void begin(void) {
    snprintf(folder, sizeof folder, "%s/gradus-shards-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder)) abort();
    snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", folder);
}

/* How many files have a name that begins so; removes them if it is told to. */
static int files(const char *start, bool removed) {
    DIR *d = opendir(folder);
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char name[800];
        if (e->d_name[0] == '.' || strncmp(e->d_name, start, strlen(start)) != 0) continue;
        count++;
        snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        if (removed) unlink(name);
    }
    if (d) closedir(d);
    return count;
}

static void end(void) {
    files("", true);
    CHECK(rmdir(folder) == 0);
}

static void write_text(const char *name, const char *text) {
    char path[800];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0);
    if (f) fclose(f);
}

CLEAN_TEST(a_state_is_cut_into_shards_and_loaded_by_its_index) {
    GD_SCOPE;
    begin();
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
        CHECK_SAYING(files("model-", false) == sizes[i].shards &&
                         files("", false) == sizes[i].shards + 1,
                     "%d shards of %lld bytes", files("model-", false), (long long)sizes[i].bytes);
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
    end();
}

CLEAN_TEST(other_files_of_the_folder_stay) {
    GD_SCOPE;
    begin();
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
    for (int i = 0; i < 6; i++) CHECK_SAYING(files(others[i], false) >= 1, "%s", others[i]);
    CHECK_SAYING(files("", false) == 6 + 3 + 1, "%d files", files("", false));
    CHECK(gd_load_state(index_path, gd_part("", (void *)n)) == GD_OK);
    end_net(n);
    end();
}

CLEAN_TEST(an_index_that_is_wrong_is_refused_with_the_reason) {
    GD_SCOPE;
    begin();
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
        {"{\"weight_map\": {\"a\": \"model.safetensors.index.json\"}}", "is no safetensors file"},
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
          GD_OK); /* over a bad one */
    CHECK(gd_load_state(index_path, gd_part("", (void *)n)) == GD_OK && files("", false) == 3);
    end_net(n);
    end();
}

CLEAN_TEST(too_many_shards_are_refused) {
    GD_SCOPE;
    begin();
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
    CHECK(files("", false) == 0);
    CHECK(gd_save_state_with(index_path, all, .shard_bytes = 16) == GD_OK &&
          files("model-", false) == 300);
    CHECK_SAYING(gd_load_state_at(NULL, index_path, all, NULL) == GD_OK, "%s", gd_error_message());
    end();
}

CLEAN_TEST(a_state_without_tensors_is_an_index_alone) {
    GD_SCOPE;
    begin();
    CHECK_SAYING(gd_save_state(index_path, gd_part("rng", gd_generator())) == GD_OK &&
                     files("", false) == 1,
                 "%d files: %s", files("", false), gd_error_message());
    CHECK(gd_load_state(index_path, gd_part("rng", gd_generator())) == GD_OK);
    end();
}

TEST_MAIN
