/* plan_scratch.c - what memory a plan needs besides its block: constants, and what products work
 * in. */
#include <string.h>

#include "backend/cpu/gemm.h"
#include "graph/plan_build.h"
#include "gradus/threads.h"

size_t gd_plan_constant_bytes(const gd_plan *plan) {
    const gd_program *p = plan->program;
    size_t bytes = 0;
    for (int r = 0; r < p->n_roots; r++) {
        bool counted = !p->roots[r].constant;
        for (int k = 0; k < r && !counted; k++)
            counted = p->roots[k].constant && p->roots[k].storage == p->roots[r].storage;
        if (!counted) bytes += p->roots[r].storage->bytes;
    }
    for (int i = 0; i < p->n_inner; i++) bytes += gd_plan_constant_bytes(p->inner[i]);
    return bytes;
}

/* --- products ----------------------------------------------------------------------------------
 */

static int64_t elements(const gd_view *v) { return gd_numel(v->rank, v->dims); }
static int64_t last_dim(const gd_view *v) { return v->rank > 0 ? v->dims[v->rank - 1] : 1; }

static bool contains(const gd_op *op, const char *name) { return strstr(op->name, name) != NULL; }

/* The sizes of the product in a call: exact for those that are one, the largest that blocks can
 * have for those that are made of some. False: it is none. */
static bool product_of(const gd_plan *plan, const gd_pcall *c, int64_t *m, int64_t *n, int64_t *k) {
    enum { ANY = 1 << 20 };
    const gd_op *op = c->step->op;
    const gd_view *in = plan->views + c->first, *out = in + c->n_in;
    if (op->ir) return false;
    if (contains(op, "matmul") || contains(op, "linear")) {
        *n = last_dim(out);
        *m = *n > 0 ? elements(out) / *n : 0;
        *k = last_dim(contains(op, "matmul_step") ? &in[1] : &in[0]);
        return true;
    }
    if (contains(op, "conv") && c->n_in > 1) { /* windows by kernels */
        *n = *m = ANY;
        *k = in[1].rank > 0 && in[1].dims[0] > 0 ? elements(&in[1]) / in[1].dims[0] : 1;
        return true;
    }
    *m = *n = *k = ANY;
    return contains(op, "lstm") || contains(op, "gru") || contains(op, "rnn") ||
           contains(op, "attention") || contains(op, "einsum");
}

static void most_scratch(const gd_plan *plan, size_t *block, size_t *parts) {
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall *c = &plan->calls[i];
        int64_t m, n, k;
        size_t in_parts, in_block;
        if (!product_of(plan, c, &m, &n, &k)) continue;
        in_block = gd_gemm_most_scratch(m, n, k, plan->views[c->first].dtype, &in_parts);
        if (in_block > *block) *block = in_block;
        if (in_parts > *parts) *parts = in_parts;
    }
    for (int i = 0; i < plan->program->n_inner; i++)
        most_scratch(plan->program->inner[i], block, parts);
}

size_t gd_plan_scratch(const gd_plan *plan) {
    size_t block = 0, parts = 0;
    if (plan->device->api->host_reads) most_scratch(plan, &block, &parts);
    return (size_t)gd_num_threads() * block + parts;
}
