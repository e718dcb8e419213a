/* threads.c - any number of threads gives the same bits, and so does any order of a kernel's threads
 * on the emulated CUDA device; every instruction set gives the results of the reference kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cuda/emulated.h"
#include "backend/cpu/isa.h"
#include "core/alloc.h"
#include "dispatch/call.h"
#include "suites.h"

enum { LARGEST = 300000 }; /* elements of any tensor of an enlarged case */

/* --- cases enlarged so that threads share work ------------------------------------------------ */

/* A copy of the case in which every dim of this size is `factor` times as large. The text stays the
 * same, so the data begin with the same numbers. */
static test_case enlarge_case(const test_case *c, int64_t size, int64_t factor) {
    test_case big = *c;
    for (int i = 0; i < c->n_inputs; i++) {
        case_input *in = &big.inputs[i];
        in->items = malloc((size_t)(in->n_items + 1) * sizeof *in->items);
        if (in->n_items)
            memcpy(in->items, c->inputs[i].items, (size_t)in->n_items * sizeof *in->items);
        for (int k = 0; k < in->n_items; k++)
            for (int d = 0; d < in->items[k].dims.rank; d++)
                if (in->items[k].dims.at[d] == size) in->items[k].dims.at[d] *= factor;
    }
    return big;
}

static void free_enlarged_case(test_case *big) {
    for (int i = 0; i < big->n_inputs; i++) free(big->inputs[i].items);
}

static int64_t elements(const test_case *c) {
    int64_t total = 0;
    for (int i = 0; i < c->n_inputs; i++)
        for (int k = 0; k < c->inputs[i].n_items; k++) {
            int64_t n = 1;
            for (int d = 0; d < c->inputs[i].items[k].dims.rank; d++)
                n *= c->inputs[i].items[k].dims.at[d];
            total += n;
        }
    return total;
}

/* The number of elements of the inputs' broadcast shape: an estimate of the work. */
static int64_t broadcast_elements(const test_case *c) {
    int64_t broadcast_dims[GD_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1}, n = 1;
    for (int i = 0; i < c->n_inputs; i++)
        for (int k = 0; k < c->inputs[i].n_items; k++) {
            const gd_shape *dims = &c->inputs[i].items[k].dims;
            for (int d = 0; d < dims->rank; d++) {
                int64_t *at = &broadcast_dims[GD_MAX_RANK - dims->rank + d];
                if (dims->at[d] > *at) *at = dims->at[d];
            }
        }
    for (int d = 0; d < GD_MAX_RANK && n < LARGEST; d++) n *= broadcast_dims[d];
    return n;
}

/* Whether the shape rule accepts the case and no tensor is larger than LARGEST. */
static bool affordable(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    const gd_op *op = c->block->op;
    if (elements(c) > LARGEST || broadcast_elements(c) > LARGEST) return false;
    if (!op->infer) return true;
    gd_meta metas[MAX_TENSORS] = {0};
    gd_tensor *in[MAX_TENSORS];
    run_setup s = {.c = c, .dtype = dtype};
    int n = build_inputs(&s, in);
    gd_infer infer = {op,    gd_op_attr_count(op) ? gd_attrs_data(build_attrs(c)) : NULL,
                      in,    n,
                      metas, gd_op_output_count(op)};
    for (int k = 0; k < infer.n_out; k++)
        metas[k] = (gd_meta){.view_of = -1, .dtype = n && in[0] ? gd_tensor_dtype(in[0]) : GD_F32};
    bool ok = op->infer(&infer) == GD_OK;
    for (int k = 0; k < infer.n_out && ok; k++) {
        int64_t elements_out = 1;
        for (int d = 0; d < infer.out[k].rank; d++)
            ok = ok && !__builtin_mul_overflow(elements_out, infer.out[k].dims[d], &elements_out);
        ok = ok && elements_out <= LARGEST;
    }
    if (infer.out != metas) gd_free(infer.out);
    return ok;
}

/* --- threads ---------------------------------------------------------------------------------- */

/* What must not change the bits of a result: `set` chooses one of several numbers. */
typedef struct variation {
    const char *text; /* of the number: "%d threads" */
    void (*set)(int number);
    int first;             /* with which the others are compared */
    const int *few, *many; /* end with -1 */
    int64_t enlarged;      /* elements of an enlarged case */
} variation;

static const variation *varied;

static void check_bits(const test_case *c, gd_dtype dtype, const char *what, bool large) {
    const int *numbers = large || test_full() ? varied->many : varied->few;
    GD_SCOPE;
    const char *no_grad;
    char why[512] = "", other[64];
    run_result first, later;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    varied->set(varied->first);
    run_case(&s, &first);
    if (first.status != GD_OK) { /* enlarged sizes may be invalid with the options */
        if (!large) report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    for (int i = 0; numbers[i] >= 0; i++) {
        GD_SCOPE;
        snprintf(other, sizeof other, varied->text, numbers[i]);
        varied->set(numbers[i]);
        run_case(&s, &later);
        if (later.status != GD_OK)
            report_fail(c, dtype, "%s%s: %s", what, other, gd_error_message());
        else if (results_agree(&later, &first, NULL, why)) continue;
        else
            report_fail(c, dtype, "%s%s: other bits than with %d: %s", what, other, varied->first,
                        why);
        return;
    }
    report_pass();
}

/* Checks a case and, for some, one with larger dims. */
static void check_variant(const test_case *c, gd_dtype dtype) {
    check_bits(c, dtype, "", false);
    if (dtype == GD_F64 || dtype == GD_I64 || elements(c) == 0 || !test_sampled(c, 5)) return;
    const char *name;
    int item;
    const case_item *first = case_item_at(c, 0, &name, &item);
    if (!first || first->dims.rank == 0) return;
    int64_t sizes[2] = {first->dims.at[0], first->dims.at[first->dims.rank - 1]};
    for (int i = 0; i < (sizes[0] == sizes[1] ? 1 : 2); i++) {
        if (sizes[i] <= 1) continue;
        bool done = false;
        for (int64_t factor = varied->enlarged / elements(c); factor > 1 && !done; factor /= 8) {
            test_case big = enlarge_case(c, sizes[i], factor);
            if (affordable(&big, dtype)) {
                char what[64];
                snprintf(what, sizeof what, "size %lld enlarged to %lld: ", (long long)sizes[i],
                         (long long)(sizes[i] * factor));
                check_bits(&big, dtype, what, true);
                done = true;
            }
            free_enlarged_case(&big);
        }
    }
}

static void vary(const variation *v, const test_cases *cases) {
    varied = v;
    each_variant(cases, 1u << GD_F32 | 1u << GD_F64 | 1u << GD_BF16 | 1u << GD_I64, check_variant);
    gd_clear_error();
}

static void set_threads(int number) { gd_set_num_threads(number); }

void suite_threads(const test_cases *cases) {
    static const int few[] = {3, -1}, many[] = {2, 3, 4, 7, -1};
    vary(&(variation){"%d threads", set_threads, 1, few, many, 40000}, cases);
    gd_set_num_threads(0);
}

/* --- orders ----------------------------------------------------------------------------------- */

static void set_order(int number) { emulated_cuda()->order = (uint64_t)number; }

/* Threads and blocks of kernels in ascending, descending and random order (tests/cuda/execute.cpp). */
void suite_order(const test_cases *cases) {
    static const int few[] = {1, 2, -1}, many[] = {1, 2, 3, -1};
    if (!test_on_device() || !emulated_cuda()) {
        report_skip("the device is not the emulated CUDA device");
        return;
    }
    vary(&(variation){"order %d", set_order, 0, few, many, 10000}, cases);
    set_order(0);
}

/* --- instruction sets ------------------------------------------------------------------------- */

static void check_isa(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    const char *no_grad;
    char why[512] = "";
    run_result slow, fast;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    gd_isa best = gd_cpu_isa();
    gd_set_reference_kernels(true);
    run_case(&s, &slow);
    gd_set_reference_kernels(false);
    if (slow.status != GD_OK) {
        report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    bool ok = true;
    for (int isa = GD_ISA_BASE; isa <= (int)best && ok; isa++) {
        gd_cpu_set_isa((gd_isa)isa);
        run_case(&s, &fast);
        ok = fast.status == GD_OK && results_agree(&fast, &slow, c->block, why);
        if (!ok)
            report_fail(c, dtype, "%s: %s", gd_isa_name((gd_isa)isa),
                        fast.status == GD_OK ? why : gd_error_message());
    }
    gd_cpu_set_isa(best);
    if (ok) report_pass();
}

void suite_isa(const test_cases *cases) {
    each_variant(cases, ~(1u << GD_I8 | 1u << GD_BOOL), check_isa);
}
