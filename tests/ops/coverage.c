/* coverage.c - every op of the table has cases, documentation, and a gradient check. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/test/device.h"
#include "core/alloc.h"
#include "dispatch/op.h"
#include "format/file.h"
#include "gradus/testing.h"
#include "suites.h"

/* Ops that need no cases: internal ones, in-place twins (tested with their base op), and ops that a
 * test program has defined. */
static bool needs_no_cases(const gd_op *op) {
    return gd_op_flags(op) & (GD_OP_INTERNAL | GD_OP_INPLACE | GD_OP_USER);
}

/* The section of an op in docs/reference/ops.md; NULL: none. */
static char *find_section(char *page, const gd_op *op, size_t *length) {
    char head[96];
    snprintf(head, sizeof head, "### `gd_%s(", gd_op_name(op));
    char *at = strstr(page, head), *next = at ? strstr(at + 1, "\n### ") : NULL;
    if (at) *length = next ? (size_t)(next - at) : strlen(at);
    return at;
}

/* The section lists every word of a word option as the constant that a C program writes. */
static void check_words(char *page, const gd_op *op) {
    size_t length = 0;
    const char *section = find_section(page, op, &length);
    for (int i = 0; i < gd_op_attr_count(op); i++)
        for (const char *w = gd_op_attr_at(op, i)->words; w && *w; w += strspn(w, " ")) {
            char constant[64] = "`GD_";
            size_t n = strcspn(w, " ");
            for (size_t c = 0; c < n && c < 48; c++)
                constant[4 + c] = (char)toupper((unsigned char)w[c]);
            strcat(constant, "`");
            if (section && memmem(section, length, constant, strlen(constant))) report_pass();
            else
                report_fail(NULL, GD_DTYPE_NONE,
                            "docs/reference/ops.md does not list %s for .%s of %s", constant,
                            gd_op_attr_at(op, i)->name, gd_op_name(op));
            w += n;
        }
}

static void check_reference(void) {
    char *page = NULL;
    size_t bytes = 0;
    if (gd_file_read_all(GRADUS_CASES_DIR "/../../docs/reference/ops.md", &page, &bytes) != GD_OK) {
        report_fail(NULL, GD_DTYPE_NONE, "docs/reference/ops.md: %s", gd_error_message());
        return;
    }
    for (int i = 0; i < gd_op_count(); i++)
        if (!needs_no_cases(gd_op_at(i))) check_words(page, gd_op_at(i));
    gd_free(page);
}

/* The most kernels that a device may need beside elementwise ones; other ops run as bodies. */
enum { MAX_KERNELS = 40 };

static void check_kernel_count(void) {
    char names[4096] = "";
    int count = 0;
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        if (!gd_op_needs_kernel(op) || (gd_op_flags(op) & (GD_OP_INPLACE | GD_OP_USER))) continue;
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, " %s", gd_op_name(op));
        count++;
    }
    if (count <= MAX_KERNELS) report_pass();
    else
        report_fail(NULL, GD_DTYPE_NONE,
                    "%d ops have neither an expression nor a body, at most %d may:%s", count,
                    MAX_KERNELS, names);
    printf("  a device needs %d kernels beside elementwise ones:%s\n", count, names);
}

/* Runs all cases with bodies instead of kernels: this ends only if bodies do not call each other in
 * a cycle. */
static void check_bodies_end(const test_cases *cases) {
    gd_set_op_bodies(true);
    for (int b = 0; b < cases->n_blocks; b++)
        for (int k = 0; k < cases->blocks[b].n_cases; k++) {
            GD_SCOPE;
            const test_case *c = &cases->blocks[b].cases[k];
            run_result result;
            report_at(c, GD_F32);
            run_case(&(run_setup){.c = c, .dtype = GD_F32}, &result);
            gd_clear_error();
            report_pass();
        }
    gd_set_op_bodies(false);
}

/* --- samples ----------------------------------------------------------------------------------- */

static bool *runs; /* of each block: a variant of it was chosen */
static const test_cases *all;

static void note_block(const test_case *c, gd_dtype dtype) {
    (void)dtype;
    runs[c->block - all->blocks] = true;
}

/* Each form of a test run keeps a variant of each op in one of a suite's turns. */
static void check_samples(const test_cases *cases, gd_device *device, const char *quick) {
    gd_device *before = gd_default_device();
    const char *given = getenv("GRADUS_TEST_QUICK");
    char *kept = given ? strdup(given) : NULL;
    all = cases;
    runs = calloc((size_t)cases->n_blocks, sizeof *runs);
    gd_set_default_device(device);
    setenv("GRADUS_TEST_QUICK", quick, 1);
    for (sampling s = {.share = 5, .turns = 7}; runs && s.turn < s.turns; s.turn++)
        each_variant_in_turn(cases, ~0u, s, note_block);
    for (int b = 0; runs && b < cases->n_blocks; b++) {
        const test_block *block = &cases->blocks[b];
        if (runs[b] || block->n_cases == 0) report_pass();
        else
            report_fail(&block->cases[0], GD_DTYPE_NONE, "no case of %s runs on %s, quick=%s",
                        gd_op_name(block->op), gd_device_name(device), quick);
    }
    if (kept) setenv("GRADUS_TEST_QUICK", kept, 1);
    else unsetenv("GRADUS_TEST_QUICK");
    gd_set_default_device(before);
    free(kept);
    free(runs);
}

/* The cases of an op are in the file that has the name of its family. */
static void check_families(const test_cases *cases) {
    for (int b = 0; b < cases->n_blocks; b++) {
        const test_block *block = &cases->blocks[b];
        const gd_op *op = block->op->base ? block->op->base : block->op;
        if (strcmp(block->family, op->family) == 0) report_pass();
        else
            report_fail(
                NULL, GD_DTYPE_NONE,
                "%s is in src/ops/%s, so its cases belong in tests/cases/%s.txt, not in %s.txt",
                gd_op_name(op), op->family, op->family, block->family);
    }
}

void suite_coverage(const test_cases *cases) {
    int ops = 0, covered = 0, differentiable = 0, with_torch = 0, n_cases = 0;
    if (only_op || only_family) {
        report_skip("only some of the cases were read");
        return;
    }
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        int op_cases = 0, gradients = 0;
        bool torch = false, excused = false;
        const char *why;
        if (needs_no_cases(op)) continue;
        ops++;
        for (int b = 0; b < cases->n_blocks; b++) {
            const test_block *block = &cases->blocks[b];
            if (block->op != op) continue;
            torch |= block->torch != NULL;
            excused |= block->nograd != NULL;
            op_cases += block->n_cases;
            for (int k = 0; k < block->n_cases; k++)
                gradients += case_has_gradient(&block->cases[k], GD_F64, &why);
        }
        covered += op_cases > 0;
        with_torch += torch;
        n_cases += op_cases;
        differentiable += gd_op_differentiable(op);
        if (op_cases == 0)
            report_fail(NULL, GD_DTYPE_NONE, "%s has no case in tests/cases/", gd_op_name(op));
        else if (gd_op_differentiable(op) && gradients == 0 && !excused)
            report_fail(NULL, GD_DTYPE_NONE, "%s has a gradient, but no case checks it",
                        gd_op_name(op));
        else report_pass();
        if (!*gd_op_doc(op))
            report_fail(NULL, GD_DTYPE_NONE, "%s has no documentation", gd_op_name(op));
    }
    for (int quick = 0; quick < 2; quick++) {
        check_samples(cases, gd_device_get("cpu"), quick ? "1" : "0");
        check_samples(cases, gd_test_device(), quick ? "1" : "0");
    }
    check_families(cases);
    check_onnx_page();
    check_reference();
    check_kernel_count();
    check_bodies_end(cases);
    printf("  %d of %d ops have cases (%d in all); %d ops are compared with PyTorch, %d are "
           "differentiable\n",
           covered, ops, n_cases, with_torch, differentiable);
}
