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
#ifndef GRADUS_TESTS_HARNESS_TEST_H
#define GRADUS_TESTS_HARNESS_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct test_entry {
    const char *name;
    void (*run)(void);
    struct test_entry *next;
} test_entry;

extern _Atomic int test_failures;    /* of the running test, in any thread */
extern const char *test_skipped_for; /* why the running test was skipped */

/* Adds a test; they run in the order in which they were added. */
void test_add(test_entry *entry);

#define TEST(id)                                                        \
    static void id(void);                                               \
    static void __attribute__((constructor)) test_register_##id(void) { \
        static test_entry entry = {#id, id, NULL};                      \
        test_add(&entry);                                               \
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

/* Runs the tests whose names contain argv[1], or all. Returns the status of the program. */
int test_run_all(int argc, char **argv);

#define TEST_MAIN \
    int main(int argc, char **argv) { return test_run_all(argc, argv); }

#endif
