/* stack.c - every op and its gradients need less than 64 KiB of stack. */
#include <stdbool.h>
#include <stdio.h>

#include "backend/cpu/isa.h"
#include "stack.h"
#include "suites.h"

static run_setup setup;
static run_result result;

static void run_in_thread(void *unused) {
    (void)unused;
    GD_SCOPE;
    run_case(&setup, &result);
}

static void check_stack(const test_case *c, gd_dtype dtype) {
    const char *no_grad;
    const gd_isa best = gd_cpu_isa();
    size_t most = 0;
    gd_isa most_isa = best;
    setup = (run_setup){.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    for (int isa = GD_ISA_BASE; isa <= (int)best; isa++) {
        gd_cpu_set_isa((gd_isa)isa);
        const size_t used = stack_used(run_in_thread, NULL);
        if (used <= most) continue;
        most = used;
        most_isa = (gd_isa)isa;
    }
    gd_cpu_set_isa(best);
    if (most <= STACK_ALLOWED) report_pass();
    else
        report_fail(c, dtype, "needs %zu bytes of stack (%s); at most %d are allowed", most,
                    gd_isa_name(most_isa), STACK_ALLOWED);
}

void suite_stack(const test_cases *cases) {
#ifdef GD_SANITIZED /* instrumented frames are larger */
    (void)cases, (void)check_stack;
    report_skip("frames are larger under a sanitizer");
#else
    gd_set_num_threads(1); /* the caller does all the work itself */
    each_variant(cases, 1u << GD_F32 | 1u << GD_BF16 | 1u << GD_F64 | 1u << GD_I64, check_stack);
    gd_set_num_threads(0);
#endif
}
