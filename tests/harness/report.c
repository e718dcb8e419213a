/* report.c - see report.h. */
#include "report.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REASONS = 64, MAX_PRINTED = 60 };

static const suite *running;
static int passed, failed;
static struct {
    char text[160];
    int count;
} reasons[MAX_REASONS];
static int n_reasons;

void report_begin(const suite *s) {
    running = s;
    passed = failed = n_reasons = 0;
}

int report_end(void) {
    for (int i = 0; i < n_reasons; i++)
        printf("  %d skipped: %s\n", reasons[i].count, reasons[i].text);
    printf("%s: %d passed, %d failed\n", running->name, passed, failed);
    fflush(stdout);
    return failed;
}

static const test_case *current;
static gd_dtype current_dtype;

void report_at(const test_case *c, gd_dtype dtype) {
    current = c;
    current_dtype = dtype;
}

/* printf is not async-signal-safe, but the process ends anyway and the name of the case helps. */
static void crashed(int signal_number) {
    printf("CRASH %s (signal %d): %s [%s]\n", running ? running->name : "", signal_number,
           current ? case_name(current) : "outside of a case", gd_dtype_name(current_dtype));
    fflush(stdout);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void report_crashes(void) {
#ifndef GD_SANITIZED
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], crashed);
#else
    (void)crashed;
#endif
}

void report_pass(void) { passed++; }

void report_fail(const test_case *c, gd_dtype dtype, const char *format, ...) {
    if (++failed == MAX_PRINTED) printf("(more failures are counted, not printed)\n");
    if (failed >= MAX_PRINTED) return;
    va_list args;
    va_start(args, format);
    printf("FAIL %s: ", running->name);
    if (c) printf("%s", case_name(c));
    if (c && dtype) printf(" [%s]", gd_dtype_name(dtype));
    if (c) printf("\n     ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
}

void report_skip(const char *reason) {
    for (int i = 0; i < n_reasons; i++)
        if (strcmp(reasons[i].text, reason) == 0) {
            reasons[i].count++;
            return;
        }
    if (n_reasons == MAX_REASONS) return;
    snprintf(reasons[n_reasons].text, sizeof reasons[0].text, "%s", reason);
    reasons[n_reasons++].count = 1;
}

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

bool test_full(void) { return is_set("GRADUS_TEST_FULL"); }

bool test_quick(void) { return is_set("GRADUS_TEST_QUICK") && !test_full() && !only_op; }

bool test_on_device(void) { return gd_default_device() != gd_device_get("cpu"); }

bool test_sampled(const test_case *c, int n) {
    return only_op || test_full() ||
           text_hash(text_hash(0, gd_op_name(c->block->op)), c->text) % (uint64_t)n == 0;
}
