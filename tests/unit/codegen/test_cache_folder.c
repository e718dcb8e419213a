/* test_cache_folder.c - the folder of compiled kernels: who may own the folders above it, what is
 * removed from it, and that files come from the folder that was checked. */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "codegen/native.h"
#include "core/alloc.h"
#include "files.h"
#include "temp.h"
#include "test.h"

static const char key[] = "0123456789abcdef0123456789abcdef";
enum { OTHER_USER = 12345 };

/* Uses the cache folder NAME in a new temporary folder, and returns the path of that one. */
static const char *use_cache(const char *name) {
    const char *base = temp_new_folder("base");
    setenv("GRADUS_CACHE", temp_path("base/%s", name), 1);
    unsetenv("GRADUS_CACHE_MB");
    return base;
}

static void make_folder(const char *path, mode_t mode) {
    CHECK_SAYING(mkdir(path, 0700) == 0 && chmod(path, mode) == 0, "%s", path);
}

static char why[GD_NATIVE_WHY];
static bool opens(void) {
    const int folder = gd_native_open_folder(why);
    if (folder >= 0) close(folder);
    return folder >= 0;
}

/* --- the folders above ------------------------------------------------------------------------ */

TEST(folders_above_that_others_can_write_are_refused) {
    for (int depth = 0; depth < 2; depth++) { /* the cache folder, and one further up */
        use_cache(depth ? "a/b/cache" : "a");
        const char *path = temp_path("base/a");
        make_folder(path, 0777);
        CHECK_SAYING(!opens() && strstr(why, path) && strstr(why, "0777") &&
                         strstr(why, "chmod go-w"),
                     "%s", why);
        CHECK(chmod(path, 01777) == 0); /* sticky: only the owner of an entry can replace it */
        CHECK_SAYING(opens(), "%s", why);
        CHECK(chmod(path, 0755) == 0);
        CHECK_SAYING(opens(), "%s", why);
    }
    CHECK(!file_exists(temp_path("base/a/kernels/kernels")));
}

TEST(folders_above_that_a_group_can_write_are_refused) {
    if (geteuid() != 0) SKIP("only root can give a folder to another group");
    use_cache("a/cache");
    const char *path = temp_path("base/a");
    make_folder(path, 0770);
    CHECK_SAYING(opens(), "%s", why); /* the group of the user alone */
    CHECK(chown(path, 0, OTHER_USER) == 0);
    CHECK_SAYING(!opens() && strstr(why, path), "%s", why);
}

TEST(folders_above_of_another_user_are_refused) {
    if (geteuid() != 0) SKIP("only root can give a folder away");
    use_cache("a/b/cache");
    CHECK_SAYING(opens(), "%s", why);
    const char *path = temp_path("base/a");
    CHECK(chown(path, OTHER_USER, OTHER_USER) == 0);
    CHECK_SAYING(!opens() && strstr(why, path) && strstr(why, "belongs to another user"), "%s",
                 why);
}

TEST(links_are_followed_and_the_folders_that_hold_them_checked) {
    const char *base = use_cache("link/cache");
    make_folder(temp_path("base/real"), 0700);
    make_folder(temp_path("base/open"), 0777);
    CHECK(symlink("real", temp_path("base/link")) == 0);
    CHECK_SAYING(opens(), "%s", why);
    CHECK(file_exists(temp_path("base/real/cache/kernels")));
    CHECK(symlink(base, temp_path("base/open/back")) == 0); /* absolute */
    setenv("GRADUS_CACHE", temp_path("base/open/back/real/cache"), 1);
    CHECK_SAYING(!opens() && strstr(why, "base/open "), "%s", why);
    CHECK(chmod(temp_path("base/open"), 0700) == 0);
    CHECK_SAYING(opens(), "%s", why);
    CHECK(symlink("round", temp_path("base/round")) == 0);
    setenv("GRADUS_CACHE", temp_path("base/round/x"), 1);
    CHECK_SAYING(!opens() && strstr(why, "base/round"), "%s", why);
}

TEST(relative_and_untidy_paths_name_the_same_folder) {
    const char *base = use_cache("x");
    CHECK(chdir(base) == 0);
    setenv("GRADUS_CACHE", "a/./b//../c/", 1);
    CHECK_SAYING(opens() && file_exists(temp_path("base/a/c/kernels")), "%s", why);
    CHECK(chdir("/") == 0);
    char name[400];
    memset(name, 'n', sizeof name);
    name[0] = '/';
    name[300] = 0;
    setenv("GRADUS_CACHE", name, 1);
    CHECK_SAYING(!opens() && strstr(why, "File name too long"), "%s", why);
}

/* --- files of the folder that was checked ----------------------------------------------------- */

static bool stores(const char *code) { return gd_native_store_code(key, code, strlen(code)); }

TEST(files_come_from_the_folder_that_was_opened) {
    char text[16] = "";
    use_cache("cache");
    CHECK(stores("original"));
    const int folder = gd_native_open_folder(why);
    CHECK(rename(temp_path("base/cache"), temp_path("base/moved")) == 0);
    CHECK(stores("exchange"));
    const int fd =
        gd_native_open_sealed(folder, temp_path("%s.bin", key) + strlen(temp_folder()) + 1);
    CHECK(fd >= 0 && pread(fd, text, 8, 0) == 8 && strcmp(text, "original") == 0);
    close(fd);
    close(folder);
}

TEST(a_file_that_others_can_write_is_not_loaded) {
    size_t bytes;
    use_cache("cache");
    CHECK(stores("code"));
    const char *file = temp_path("base/cache/kernels/%s.bin", key);
    for (int i = 0; i < 3; i++) {
        static const mode_t modes[] = {0620, 0602, 0600};
        CHECK(chmod(file, modes[i]) == 0);
        void *code = gd_native_load_code(key, &bytes);
        CHECK_SAYING((code != NULL) == (modes[i] == 0600), "%o", (unsigned)modes[i]);
        gd_free(code);
    }
    if (geteuid() == 0) {
        CHECK(chown(file, OTHER_USER, OTHER_USER) == 0);
        CHECK(gd_native_load_code(key, &bytes) == NULL);
    }
}

/* --- what is removed -------------------------------------------------------------------------- */

static void make_old(const char *path) {
    const struct timespec times[2] = {{.tv_sec = time(NULL) - 7200}, {.tv_sec = time(NULL) - 7200}};
    CHECK(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0);
}

static const char *in_kernels(const char *name) { return temp_path("base/cache/kernels/%s", name); }

TEST(kernels_have_a_folder_of_their_own) {
    use_cache("cache");
    make_folder(temp_path("base/cache"), 0755); /* as the set-up script creates it */
    make_folder(temp_path("base/cache/cuda"), 0755);
    temp_write_text("base/cache/0123456789abcdef0123456789abcdef.so", "of an earlier version");
    setenv("GRADUS_CACHE_MB", "0", 1);
    CHECK(stores("code"));
    struct stat s;
    CHECK(stat(temp_path("base/cache/kernels"), &s) == 0 && (s.st_mode & 0777) == 0700);
    CHECK(folder_count(temp_path("base/cache")) == 3 &&
          folder_count(temp_path("base/cache/kernels")) == 0);
}

TEST(only_files_of_the_cache_are_removed_from_it) {
    static const char *const others[] = {"new-thesis.tex",
                                         "new-0123456789abcdef",
                                         "new-0123456789abcdef.tex",
                                         "new-0123456789abcde.c",
                                         "new-0123456789abcdef0.c",
                                         "new-0123456789ABCDEF.c",
                                         "0123456789abcdef0123456789abcde.so",
                                         "0123456789abcdef0123456789abcdef.so.bak",
                                         "0123456789ABCDEF0123456789ABCDEF.so",
                                         "0123456789abcdef0123456789abcdef"},
                             *const abandoned[] = {"new-0123456789abcdef.c",
                                                   "new-0123456789abcdef.so",
                                                   "new-0123456789abcdef.bin"};
    enum { OTHERS = sizeof others / sizeof *others };
    use_cache("cache");
    CHECK_SAYING(opens(), "%s", why);
    for (int i = 0; i < OTHERS; i++)
        make_old(temp_write_text(in_kernels(others[i]) + strlen(temp_folder()) + 1, "mine"));
    for (int i = 0; i < 3; i++)
        make_old(temp_write_text(in_kernels(abandoned[i]) + strlen(temp_folder()) + 1, "x"));
    const char *young = temp_write_text("base/cache/kernels/new-00000000000000ff.c", "in use");
    const char *folder = in_kernels("11111111111111111111111111111111.bin"),
               *link = in_kernels("22222222222222222222222222222222.so");
    make_folder(folder, 0700);
    make_old(folder);
    CHECK(symlink("new-thesis.tex", link) == 0);
    make_old(link);
    setenv("GRADUS_CACHE_MB", "0", 1);
    CHECK(stores("code"));
    for (int i = 0; i < OTHERS; i++)
        CHECK_SAYING(file_exists(in_kernels(others[i])), "%s was removed", others[i]);
    for (int i = 0; i < 3; i++)
        CHECK_SAYING(!file_exists(in_kernels(abandoned[i])), "%s is left", abandoned[i]);
    CHECK(file_exists(young) && file_exists(folder) && file_exists(link));
    CHECK_SAYING(folder_count(temp_path("base/cache/kernels")) == OTHERS + 3, "%d",
                 folder_count(temp_path("base/cache/kernels")));
}

TEST_MAIN
