/* fused_kernels.c - an elementwise expression fused with a reduction of its last result. The
 * reduction computes the elements leaf by leaf (gd_reduction.source), so that result is never
 * materialized.
 */
#include <string.h>

#include "backend/cpu/elementwise_job.h"
#include "backend/cpu/reduce.h"

/* The tensor that is reduced. It has a shape but no memory: its address is a placeholder that is
 * never dereferenced. */
static gd_view reduced_view(const gd_kernel_call *k) {
    static char placeholder;
    const gd_fused_options *o = k->attrs;
    gd_view v = {.data = &placeholder, .dtype = k->op->fusion->type, .rank = o->rank};
    memcpy(v.dims, o->dims, sizeof v.dims);
    gd_row_major(v.rank, v.dims, v.strides);
    return v;
}

static void compute_elements(const void *context, int64_t first, int64_t n, void *to) {
    gd_ew_compute_range(context, first, n, to);
}

static gd_reduction describe_reduction(const gd_kernel_call *k, const gd_ew_job *job) {
    const gd_fusion *f = k->op->fusion;
    const gd_fused_options *o = k->attrs;
    gd_reduction r = {.fold = GD_FOLD_SUM,
                      .mask = o->axes,
                      .type = f->type,
                      .y = &k->out[k->n_out - 1],
                      .source = compute_elements,
                      .context = job};
    const gd_op_reduces kind = f->reduction->facts.reduces;
    if (kind == GD_REDUCES_MAX) r.fold = GD_FOLD_MAX;
    if (kind == GD_REDUCES_MIN) r.fold = GD_FOLD_MIN;
    if (kind == GD_REDUCES_MEAN) r.finish = GD_FINISH_MEAN;
    return r;
}

/*kernel fused_reduction.blocked  rank 10  run fused_run  workspace fused_workspace
 * Sum, mean, max or min of an expression; floats.
 */
static size_t fused_workspace(const gd_kernel_call *k) {
    const gd_view reduced = reduced_view(k);
    const gd_reduction r = describe_reduction(k, NULL);
    gd_fused_compile_call(k, gd_numel(reduced.rank, reduced.dims));
    return gd_reduce_bytes(&reduced, &r);
}

static gd_status fused_run(gd_kernel_call *k) {
    const gd_fusion *f = k->op->fusion;
    const gd_view reduced = reduced_view(k);
    gd_view out[GD_IR_MAX_OUTPUTS];
    gd_ew_job job;
    job.n_in = f->n_tensors;
    job.n_out = k->n_out;
    GD_TRY(gd_ew_prepare(k, &f->ir, gd_ew_type(f->type), &job.program));
    memcpy(out, k->out, (size_t)(k->n_out - 1) * sizeof *out);
    out[k->n_out - 1] = reduced;
    gd_ew_bind_operands(&job, k->in, out, &reduced);
    const gd_reduction r = describe_reduction(k, &job);
    gd_reduce(&reduced, &r, k->workspace);
    return GD_OK;
}

/* Not in fused_rules.c: a static library links this file for its kernel, but not that one. */
static void __attribute__((constructor)) set_fusion_rules(void) {
    gd_cpu_set_fusion(&gd_cpu_fusion_rules);
}

#include "backend/cpu/fused_kernels.gen.h"
