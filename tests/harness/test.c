/* test.c - the tests of a program, and running them. */
#include "test.h"

_Atomic int test_failures;
const char *test_skipped_for;

static test_entry *first, **last = &first;

void test_add(test_entry *entry) {
    *last = entry;
    last = &entry->next;
}

int test_run_all(int argc, char **argv) {
    int passed = 0, failed = 0, skipped = 0;
    for (test_entry *t = first; t; t = t->next) {
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
