/* fuse_worth.c - which groups are worth a fused step.
 *
 * A group with a compiled kernel always is: its values stay in registers. Without a compiler, or
 * with too few elements to be worth one, a device may have an evaluator, which runs the group
 * primitive by primitive on tiles in the first-level cache. It makes a pass over the tile for each
 * primitive, while the device's kernel of a single op makes one pass over memory for all primitives
 * of the op. So the passes are counted: gelu, a dozen primitives, is faster alone. The count
 * depends on the program and the device's costs (codegen/fusion_rules.h); bench/fusion.c measures
 * whether it is right.
 */
#include "graph/passes/fuse.h"

static bool fuse_always;
void gd_fuse_set_always(bool on) { __atomic_store_n(&fuse_always, on, __ATOMIC_RELAXED); }
bool gd_fuse_always(void) { return __atomic_load_n(&fuse_always, __ATOMIC_RELAXED); }

static bool has_compiler(gd_fuse *f) {
    if (!f->compiler) f->compiler = f->rules->is_compiler_ready(f->device) ? 1 : -1;
    return f->compiler > 0;
}

static int count_primitives(const gd_op *op) {
    int count = 0;
    for (int i = 0; i < op->ir->count; i++) count += op->ir->nodes[i].code >= GD_IR_PRIM;
    return count;
}

static bool has_own_kernel(const gd_fuse *f, int step) {
    return f->rules->has_own_kernel(f->device, f->p->steps[step].op);
}

/* The passes of an elementwise member as a separate step, beyond its cost in the group: over its
 * operands, and for conversions of values that the group would keep in registers. */
static int count_passes_apart(const gd_fuse *f, int member, gd_dtype type) {
    const gd_pstep *s = &f->p->steps[member];
    int passes = has_own_kernel(f, member) ? 1 : count_primitives(s->op) + 1;
    for (int k = 0; k < s->n_in; k++) {
        const gd_pvalue *v = &f->p->values[s->in[k]];
        const int writer = f->writer[v->root];
        if (writer < 0 || f->steps[writer].group != f->steps[member].group) continue;
        if (v->dtype != type) passes += 2 * f->rules->evaluator->conversion;
    }
    return passes;
}

static bool evaluator_wins(const gd_fuse *f, int group) {
    const gd_dtype type = gd_fuse_type(f, group);
    int apart = 0, together = 0, members = 0;
    int64_t count = 0;
    for (int m = group; m >= 0; m = f->steps[m].next) {
        const gd_pstep *s = &f->p->steps[m];
        if (f->steps[m].kind == GD_FUSE_REDUCTION) {
            const gd_pvalue *x = &f->p->values[s->in[0]];
            count = gd_numel(x->rank, x->dims);
            apart += count >= f->rules->evaluator->small;
            together++;
            continue;
        }
        members++;
        apart += count_passes_apart(f, m, type ? type : GD_I32);
        together += count_primitives(s->op);
        for (int k = 0; k < s->n_out; k++) together += gd_fuse_is_wanted(f, s->out[k]);
    }
    /* the group can use the op's kernel, which the build has compiled */
    if (members == 1 && count > 0 && has_own_kernel(f, group))
        return count >= f->rules->evaluator->small;
    return together <= apart;
}

/* The number of elements that the group's kernel runs over. */
static int64_t count_group_elements(const gd_fuse *f, int group) {
    int64_t most = 0;
    for (int m = group; m >= 0; m = f->steps[m].next) {
        const gd_pstep *s = &f->p->steps[m];
        const gd_pvalue *v =
            &f->p->values[f->steps[m].kind == GD_FUSE_REDUCTION ? s->in[0] : s->out[0]];
        const int64_t count = gd_numel(v->rank, v->dims);
        if (count > most) most = count;
    }
    return most;
}

bool gd_fuse_is_worth_evaluating(gd_fuse *f, int group) {
    gd_row_shape rows;
    if (!f->rules->evaluator) return false;
    if (gd_fuse_always() || f->steps[group].next < 0) return true;
    return gd_fuse_row_shape(f, group, &rows) ? rows.n >= f->rules->evaluator->worthwhile_row
                                              : evaluator_wins(f, group);
}

bool gd_fuse_is_worth(gd_fuse *f, int group) {
    if (gd_fuse_is_worth_evaluating(f, group)) return true;
    return f->rules->is_worth_compiling(f->device, count_group_elements(f, group)) &&
           has_compiler(f);
}
