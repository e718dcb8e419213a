/* test.h - defines tests, checks, and the main function of a test program.
 *
 *     TEST(a_scope_frees_its_tensors) {
 *         CHECK(gd_live_objects() == 0);
 *     }
 *     TEST_MAIN
 *
 * `program PART` runs the tests whose names contain PART. The program prints each failure, then
 * "N passed, N failed", and returns nonzero when a test failed.
 */
#ifndef GRADUS_TEST_H
#define GRADUS_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct test_entry {
    const char *name;
    void (*run)(void);
    struct test_entry *next;
} test_entry;

static test_entry *test_first, **test_last = &test_first;
static _Atomic int test_failures;    /* of the running test, in any thread */
static const char *test_skipped_for; /* why the running test was skipped */

#define TEST(id)                                                        \
    static void id(void);                                               \
    static void __attribute__((constructor)) test_register_##id(void) { \
        static test_entry entry = {#id, id, NULL};                      \
        *test_last = &entry;                                            \
        test_last = &entry.next;                                        \
    }                                                                   \
    static void id(void)

/* A condition that must hold. The test continues after a failure. */
#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #condition); \
            test_failures++;                                                                      \
        }                                                                                         \
    } while (0)

/* The same, with a message for the failure. */
#define CHECK_SAYING(condition, ...)                                                              \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: %s: failed: %s: ", __FILE__, __LINE__, __func__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                                         \
            fprintf(stderr, "\n");                                                                \
            test_failures++;                                                                      \
        }                                                                                         \
    } while (0)

/* Ends the test, which cannot run on this machine. */
#define SKIP(reason)               \
    do {                           \
        test_skipped_for = reason; \
        return;                    \
    } while (0)

static inline int test_run_all(int argc, char **argv) {
    int passed = 0, failed = 0, skipped = 0;
    for (test_entry *t = test_first; t; t = t->next) {
        if (argc > 1 && !strstr(t->name, argv[1])) continue;
        test_failures = 0;
        test_skipped_for = NULL;
        t->run();
        if (test_failures) {
            failed++;
            printf("FAIL %s\n", t->name);
        } else if (test_skipped_for) {
            skipped++;
            printf("skip %s: %s\n", t->name, test_skipped_for);
        } else {
            passed++;
        }
    }
    if (skipped) printf("%d skipped\n", skipped);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

#define TEST_MAIN \
    int main(int argc, char **argv) { return test_run_all(argc, argv); }

#endif
