/* clean_test.h - tests that must not leak objects or memory of the library. */
#ifndef GRADUS_TESTS_HARNESS_CLEAN_TEST_H
#define GRADUS_TESTS_HARNESS_CLEAN_TEST_H

#include "gradus/device.h"
#include "gradus/scope.h"
#include "gradus/status.h"
#include "test.h"

/* A TEST that also fails when it leaks objects or bytes. */
#define CLEAN_TEST(id)                                                                           \
    static void id##_body(void);                                                                 \
    TEST(id) {                                                                                   \
        int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes;           \
        id##_body();                                                                             \
        gd_clear_error();                                                                        \
        CHECK_SAYING(gd_live_objects() == objects && gd_memory_stats(NULL).live_bytes == bytes,  \
                     "leaks %lld objects, %lld bytes", (long long)(gd_live_objects() - objects), \
                     (long long)(gd_memory_stats(NULL).live_bytes - bytes));                     \
    }                                                                                            \
    static void id##_body(void)

/* Whether the recorded error message contains this text. */
static inline bool says(const char *part) { return strstr(gd_error_message(), part) != NULL; }

#endif
