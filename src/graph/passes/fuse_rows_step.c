/* fuse_rows_step.c - the row program of a fused group that reduces rows. */
#include "graph/passes/fuse.h"

static gd_row_use get_row_fold(const gd_op *op) {
    if (op->facts.reduces == GD_REDUCES_MAX) return GD_ROW_MAX;
    return op->facts.reduces == GD_REDUCES_MIN ? GD_ROW_MIN : GD_ROW_SUM;
}

/* The value of a reduction is a parameter after the columns. A mean is the sum divided by the
 * count. */
static bool add_reduction(gd_fusing *g, int i, gd_row_program_request *r) {
    const gd_pstep *s = &g->f->p->steps[g->members[i]];
    if (r->n_reductions == GD_ROW_REDUCTIONS) return false;
    const int number = r->n_reductions++;
    r->fold[number] = get_row_fold(s->op);
    r->reduced[number] = gd_fusing_node(g, i, s->in[0]);
    int value = gd_ir_param(&g->b, r->n_params + r->n_columns + number);
    if (s->op->facts.reduces == GD_REDUCES_MEAN) {
        const int count = g->model.n_scalars + gd_fusing_constant(g, (double)g->row_shape.n);
        value = gd_ir_apply(&g->b, "div", value, gd_ir_param(&g->b, count), -1);
    }
    g->made[i][0] = value;
    return r->reduced[number] >= 0 && value >= 0;
}

bool gd_fusing_rows(gd_fusing *g) {
    const gd_fuse *f = g->f;
    gd_row_program_request r = {.b = &g->b,
                                .n_tensors = g->model.n_tensors,
                                .n_params = g->model.n_scalars + g->model.n_constants,
                                .n_columns = g->n_columns};
    for (int i = 0; i < g->n_members; i++) {
        if (f->steps[g->members[i]].kind == GD_FUSE_EACH) gd_fusing_member(g, i);
        else if (!add_reduction(g, i, &r)) return false;
    }
    for (int i = 0; i < g->n_members; i++) {
        const gd_pstep *s = &f->p->steps[g->members[i]];
        for (int k = 0; k < s->n_out; k++) {
            if (!gd_fuse_is_wanted(f, s->out[k])) continue;
            if (r.n_results == GD_FUSED_OUTPUTS || r.n_results == GD_ROW_RESULTS) return false;
            r.is_row[r.n_results] =
                !gd_values_have_same_dims(&f->p->values[s->out[k]], g->row_shape.shape);
            r.result[r.n_results++] = g->made[i][k];
            g->outputs[g->n_outputs++] = s->out[k];
        }
    }
    if (g->b.error[0] || !gd_row_program_make(&r, &g->rows)) return false;
    for (int d = 0; d < g->row_shape.axes; d++) g->options.axes |= 1u << (g->options.rank - 1 - d);
    g->model.rows = &g->rows;
    g->model.ir.nodes = g->nodes;
    return true;
}
