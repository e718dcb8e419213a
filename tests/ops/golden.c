/* golden.c - compares results and gradients with those stored from PyTorch. */
#include <stdio.h>
#include <string.h>

#include "suites.h"

static const char *open_family;
static golden *open_golden;

static const golden *golden_of_family(const char *family) {
    if (!open_family || strcmp(open_family, family) != 0) {
        golden_close(open_golden);
        open_golden = golden_open(golden_folder, family);
        open_family = family;
    }
    return open_golden;
}

static void check_variant(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    const char *no_grad;
    char why[512] = "";
    run_result r;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    const golden *g = golden_of_family(c->block->family);
    uint64_t key = golden_key(c, dtype);
    golden_answer answer = golden_look(g, key);
    if (answer == GOLDEN_MISSING) {
        report_fail(c, dtype, "no golden result for this case; run: python tests/golden/make.py %s",
                    c->block->family);
        return;
    }
    if (answer == GOLDEN_TORCH_ERROR) {
        report_skip("PyTorch does not take this dtype");
        return;
    }
    run_case(&s, &r);
    if (r.status != GD_OK) {
        report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    if (golden_compare(g, key, &r, c->block, why) == GOLDEN_SAME) report_pass();
    else report_fail(c, dtype, "%s", why);
}

void suite_golden(const test_cases *cases) {
    const gd_op *last = NULL;
    int ops = 0, n_cases = 0;
    for (int b = 0; b < cases->n_blocks; b++) {
        const test_block *block = &cases->blocks[b];
        if (!block->torch) {
            report_skip("the block has no torch line");
            continue;
        }
        ops += block->op != last;
        last = block->op;
        for (int k = 0; k < block->n_cases; k++) {
            gd_dtype dtypes[GD_DTYPE_COUNT];
            int n = golden_dtypes(&block->cases[k], dtypes);
            if (block->cases[k].notorch) {
                report_skip("marked notorch");
                continue;
            }
            n_cases++;
            for (int d = 0; d < n; d++) check_variant(&block->cases[k], dtypes[d]);
        }
    }
    printf("  %d ops, %d cases compared with PyTorch\n", ops, n_cases);
    golden_close(open_golden);
    open_golden = NULL;
    open_family = NULL;
}
