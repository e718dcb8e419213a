/* test_code_cache.c - code of other compilers (NVRTC) in the cache of compiled kernels. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "codegen/native.h"
#include "core/alloc.h"
#include "files.h"
#include "test.h"

static const char key[] = "0123456789abcdef0123456789abcdef";
static char base_folder[64], cache_folder[128], code_file[256]; /* cache_folder: of kernels */

static void fresh_cache(void) {
    snprintf(base_folder, sizeof base_folder, "/tmp/gradus-code-XXXXXX");
    CHECK(mkdtemp(base_folder) != NULL);
    char top[96];
    snprintf(top, sizeof top, "%s/cache", base_folder);
    snprintf(cache_folder, sizeof cache_folder, "%s/kernels", top);
    snprintf(code_file, sizeof code_file, "%s/%s.bin", cache_folder, key);
    setenv("GRADUS_CACHE", top, 1);
    unsetenv("GRADUS_CACHE_MB");
}

static void remove_cache(void) {
    chmod(cache_folder, 0700);
    folder_remove(base_folder);
    unsetenv("GRADUS_CACHE");
}

/* Whether the cache holds exactly this code under the key. */
static bool holds(const char *code, size_t bytes) {
    size_t found = 0;
    char *text = gd_native_load_code(key, &found);
    const bool same = text && found == bytes && memcmp(text, code, bytes) == 0;
    gd_free(text);
    return same;
}

static bool is_empty(void) {
    size_t bytes;
    void *code = gd_native_load_code(key, &bytes);
    gd_free(code);
    return !code;
}

TEST(stored_code_is_found_with_all_its_bytes) {
    fresh_cache();
    CHECK(is_empty());
    CHECK(gd_native_store_code(key, "a\0b", 4));
    CHECK(holds("a\0b", 4));
    CHECK(gd_native_store_code(key, "other", 5)); /* replaces it */
    CHECK(holds("other", 5));
    CHECK(folder_count(cache_folder) == 1);
    CHECK(!gd_native_store_code("../escape", "x", 1));
    remove_cache();
}

TEST(damaged_code_is_not_loaded) {
    fresh_cache();
    CHECK(gd_native_store_code(key, "0123456789", 10));
    struct stat s;
    CHECK(stat(code_file, &s) == 0);
    for (off_t bytes = 0; bytes < s.st_size; bytes += 7) { /* truncated anywhere */
        CHECK(truncate(code_file, bytes) == 0);
        CHECK(is_empty());
        CHECK(gd_native_store_code(key, "0123456789", 10));
    }
    for (off_t at = 0; at < s.st_size; at += 5) { /* a changed byte */
        const int fd = open(code_file, O_RDWR);
        char byte;
        CHECK(pread(fd, &byte, 1, at) == 1);
        byte ^= 4;
        CHECK(pwrite(fd, &byte, 1, at) == 1);
        close(fd);
        CHECK(is_empty());
        CHECK(gd_native_store_code(key, "0123456789", 10));
    }
    CHECK(holds("0123456789", 10));
    remove_cache();
}

TEST(a_cache_that_cannot_be_written_is_harmless) {
    fresh_cache();
    CHECK(gd_native_store_code(key, "code", 4));
    CHECK(chmod(cache_folder, 0500) == 0);
    if (geteuid() != 0) CHECK(!gd_native_store_code(key, "new", 3));
    if (geteuid() != 0) CHECK(holds("code", 4));
    CHECK(chmod(cache_folder, 0777) == 0); /* others could put code there */
    CHECK(!gd_native_store_code(key, "new", 3));
    CHECK(is_empty());
    setenv("GRADUS_CACHE", "/proc/nothing/here", 1);
    CHECK(!gd_native_store_code(key, "new", 3));
    CHECK(is_empty());
    remove_cache();
}

/* Each process stores its own code under the same key; a reader sees the code of one of them. */
static int store_many_times(void *letter) {
    enum { TIMES = 40, BYTES = 20000 };
    static char code[BYTES];
    bool good = true;
    memset(code, *(int *)letter, BYTES);
    for (int t = 0; t < TIMES && good; t++) {
        size_t bytes = 0;
        good = gd_native_store_code(key, code, BYTES);
        char *found = gd_native_load_code(key, &bytes);
        good = good && found && bytes == BYTES && memcmp(found, found + 1, BYTES - 1) == 0;
        gd_free(found);
    }
    return good ? 0 : 1;
}

TEST(processes_may_store_the_same_key_at_once) {
    enum { PROCESSES = 6 };
    pid_t children[PROCESSES];
    fresh_cache();
    for (int i = 0; i < PROCESSES; i++)
        children[i] = child_start(store_many_times, &(int){'a' + i});
    for (int i = 0; i < PROCESSES; i++) CHECK(child_wait(children[i]) == 0);
    CHECK(folder_count(cache_folder) == 1);
    remove_cache();
}

TEST(the_least_recently_used_code_is_removed) {
    fresh_cache();
    setenv("GRADUS_CACHE_MB", "0.05", 1);
    char *code = calloc(1, 20000), name[GD_NATIVE_KEY];
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "%032x", i);
        CHECK(gd_native_store_code(name, code, 20000));
    }
    CHECK(folder_count(cache_folder) <= 2);
    size_t bytes;
    void *newest = gd_native_load_code(name, &bytes);
    CHECK(newest != NULL);
    gd_free(newest);
    free(code);
    unsetenv("GRADUS_CACHE_MB");
    remove_cache();
}

TEST_MAIN
