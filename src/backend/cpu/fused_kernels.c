/* fused_kernels.c - an elementwise expression whose last result is reduced: its elements are made
 * leaf by leaf, as the reduction takes them in, and never lie in memory.
 */
#include <string.h>

#include "backend/cpu/elementwise_job.h"
#include "backend/cpu/reduce.h"

/* What is reduced: a shape, and an address that is not looked at. */
static gd_view made_view(const gd_kernel_call *k) {
    static char nowhere;
    const gd_fused_options *o = k->attrs;
    gd_view v = {.data = &nowhere, .dtype = k->op->fusion->type, .rank = o->rank};
    memcpy(v.dims, o->dims, sizeof v.dims);
    gd_row_major(v.rank, v.dims, v.strides);
    return v;
}

static void make_some(const void *context, int64_t first, int64_t n, void *to) {
    gd_ew_compute_range(context, first, n, to);
}

static gd_reduction request(const gd_kernel_call *k, const gd_ew_job *job) {
    const gd_fusion *f = k->op->fusion;
    const gd_fused_options *o = k->attrs;
    gd_reduction r = {.fold = GD_FOLD_SUM,
                      .mask = o->axes,
                      .type = f->type,
                      .y = &k->out[k->n_out - 1],
                      .source = make_some,
                      .context = job};
    const gd_op_reduces how = f->reduction->facts.reduces;
    if (how == GD_REDUCES_MAX) r.fold = GD_FOLD_MAX;
    if (how == GD_REDUCES_MIN) r.fold = GD_FOLD_MIN;
    if (how == GD_REDUCES_MEAN) r.finish = GD_FINISH_MEAN;
    return r;
}

/*kernel fused_reduction.blocked  rank 10  run fused_run  workspace fused_workspace
 * Sum, mean, max or min, floats.
 */
static size_t fused_workspace(const gd_kernel_call *k) {
    const gd_view made = made_view(k);
    const gd_reduction r = request(k, NULL);
    gd_fused_compile_call(k, gd_numel(made.rank, made.dims));
    return gd_reduce_bytes(&made, &r);
}

static gd_status fused_run(gd_kernel_call *k) {
    const gd_fusion *f = k->op->fusion;
    const gd_view made = made_view(k);
    gd_view out[GD_IR_MAX_OUTPUTS];
    gd_ew_job job;
    job.n_in = f->n_tensors;
    job.n_out = k->n_out;
    GD_TRY(gd_ew_prepare(k, &f->ir, gd_ew_type(f->type), &job.program));
    memcpy(out, k->out, (size_t)(k->n_out - 1) * sizeof *out);
    out[k->n_out - 1] = made;
    gd_ew_bind_operands(&job, k->in, out, &made);
    const gd_reduction r = request(k, &job);
    gd_reduce(&made, &r, k->workspace);
    return GD_OK;
}

/* Here and not beside the rules: a static library links this file for its kernel. */
static void __attribute__((constructor)) set_rules(void) {
    gd_cpu_set_fusion(&gd_cpu_fusion_rules);
}

#include "fused_kernels.gen.h"
