/* test_library_folders.c - the folders in which backends look for libraries of their vendor. */
#include <pthread.h>
#include <stdlib.h>

#include "dispatch/library_folders.h"
#include "gradus/gradus.h"
#include "test.h"

static char visited[4096];

static bool note_folder(const char *folder, size_t length, void *arg) {
    const char *last = arg;
    const size_t used = strlen(visited);
    snprintf(visited + used, sizeof visited - used, "%.*s ", (int)length, folder);
    return last && length == strlen(last) && memcmp(folder, last, length) == 0;
}
static const char *visit_until(char *last) {
    visited[0] = 0;
    gd_each_library_folder(note_folder, last);
    return visited;
}

TEST(folders_of_the_variable_come_first_and_none_twice) {
    CHECK(strcmp(visit_until(NULL), "") == 0);
    CHECK(gd_add_library_folder("/a") == GD_OK && gd_add_library_folder("/b") == GD_OK);
    CHECK(gd_add_library_folder("/a") == GD_OK);
    CHECK_SAYING(strcmp(visit_until(NULL), "/a /b ") == 0, "%s", visited);
    setenv("GRADUS_LIBRARY_PATH", "/v::/w:", 1);
    CHECK_SAYING(strcmp(visit_until(NULL), "/v /w /a /b ") == 0, "%s", visited);
    CHECK_SAYING(strcmp(visit_until("/w"), "/v /w ") == 0, "%s", visited);
    CHECK_SAYING(strcmp(visit_until("/a"), "/v /w /a ") == 0, "%s", visited);
    unsetenv("GRADUS_LIBRARY_PATH");
}

static void *add_some(void *arg) {
    (void)arg;
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "/t%d", i);
        if (gd_add_library_folder(name) != GD_OK) return "failed";
    }
    return NULL;
}

TEST(threads_may_add_the_same_folders_at_once) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, add_some, NULL) == 0);
    for (int i = 0; i < 4; i++) {
        void *failed = "";
        pthread_join(threads[i], &failed);
        CHECK(!failed);
    }
    visit_until(NULL);
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "/t%d ", i);
        const char *first = strstr(visited, name);
        CHECK_SAYING(first && !strstr(first + 1, name), "%s", visited);
    }
}

TEST(too_many_folders_are_an_error) {
    gd_status status = GD_OK;
    char name[16];
    for (int i = 0; i < 100 && status == GD_OK; i++) {
        snprintf(name, sizeof name, "/many%d", i);
        status = gd_add_library_folder(name);
    }
    CHECK(status == GD_E_STATE && strstr(gd_error_message(), "more than 64 folders"));
    gd_clear_error();
    CHECK(gd_add_library_folder("/a") == GD_OK); /* it is there */
}

TEST_MAIN
