/* fuse_rows.c - groups of rows: reductions of rows that are used element by element afterwards.
 *
 * x - mean(x, -1), exp(x - max) / sum, layer norm written by hand: the reduction must be complete
 * before the rest begins, but only for one row at a time. Such steps form one group, whose kernel
 * makes all passes over a row while the row is in the cache.
 *
 * The search starts at a step that computes elements from a row's value, and walks back to the
 * reductions. It builds the group, checks it, and undoes it where it is not valid. Then the group
 * grows by the steps that its members read and by those that read them.
 */
#include <string.h>

#include "graph/passes/fuse.h"

enum {
    FAR = 16, /* steps between a reduction and an element, at most */
};

static int64_t elements(const gd_pvalue *v) { return gd_numel(v->rank, v->dims); }

/* --- rows ------------------------------------------------------------------------------------- */

/* Whether a reduction is one of rows: over the last axes, of a shape that is worth it. */
static bool reduces_rows(const gd_fuse *f, int step, gd_row_shape *r) {
    const gd_pstep *s = &f->p->steps[step];
    uint32_t axes;
    if (f->steps[step].kind != GD_FUSE_REDUCTION || gd_fuse_axes(f->p, s, &axes) != GD_OK)
        return false;
    const gd_pvalue *x = &f->p->values[s->in[0]];
    int outer = 0;
    while (outer < x->rank && !(axes >> outer & 1)) outer++;
    for (int d = outer; d < x->rank; d++)
        if (!(axes >> d & 1)) return false;
    *r = (gd_row_shape){.shape = x, .axes = x->rank - outer, .rows = gd_numel(outer, x->dims)};
    r->n = gd_numel(r->axes, x->dims + outer);
    return r->n > 1 && r->n <= f->rules->max_row;
}

bool gd_fuse_row_shape(const gd_fuse *f, int group, gd_row_shape *shape) {
    for (int m = group; m >= 0; m = f->steps[m].next)
        if (f->steps[m].row_axes) return reduces_rows(f, m, shape);
    return false;
}

bool gd_fuse_is_row_value(const gd_pvalue *v, const gd_row_shape *r) {
    const int outer = r->shape->rank - r->axes;
    int64_t step = 1;
    if (v->rank > r->shape->rank || v->offset != 0) return false;
    for (int d = r->shape->rank; d-- > 0;) {
        const int k = d - (r->shape->rank - v->rank);
        const int64_t dim = k < 0 ? 1 : v->dims[k];
        if (d >= outer ? dim != 1 && v->strides[k] != 0 : dim != r->shape->dims[d]) return false;
        if (d >= outer || dim == 1) continue;
        if (v->strides[k] != step) return false;
        step *= dim;
    }
    return true;
}

bool gd_fuse_is_column(const gd_pvalue *v, const gd_row_shape *r) {
    return elements(v) == r->rows && gd_is_row_major(v->rank, v->dims, v->strides);
}

/* --- members ---------------------------------------------------------------------------------- */

/* The value that the writer of v's memory gave it. */
static int made_value(const gd_fuse *f, int v) {
    const int root = f->p->values[v].root;
    const gd_pstep *s = &f->p->steps[f->writer[root]];
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k] >= 0 && f->p->values[s->out[k]].root == root) return s->out[k];
    return v;
}

static const gd_pvalue *result_of(const gd_fuse *f, int step) {
    return &f->p->values[f->p->steps[step].out[0]];
}

static bool is_of_elements(const gd_fuse *f, int step, const gd_row_shape *r) {
    return f->steps[step].kind == GD_FUSE_EACH && gd_fuse_same_dims(result_of(f, step), r->shape);
}

/* The step that writes what a value looks into, if it is in the group; -1: none. */
static int maker_inside(const gd_fuse *f, int value, int group) {
    const int writer = f->writer[f->p->values[value].root];
    return writer >= 0 && f->steps[writer].group == group ? writer : -1;
}

static bool is_made_whole(const gd_fuse *f, int value, int maker, gd_dtype type) {
    return f->made_by[value] == maker && gd_fuse_passes(f, value, type);
}

/* A member that runs over all elements: what is made inside comes from one like it, or is of the
 * row. */
static bool reads_elements_right(const gd_fuse *f, int member, int group, const gd_row_shape *r,
                                 gd_dtype type) {
    const gd_pstep *s = &f->p->steps[member];
    for (int k = 0; k < s->n_in; k++) {
        const int maker = maker_inside(f, s->in[k], group);
        if (maker < 0) continue;
        if (is_of_elements(f, maker, r) ? !is_made_whole(f, s->in[k], maker, type)
                                        : !gd_fuse_is_row_value(&f->p->values[s->in[k]], r) ||
                                              !gd_fuse_passes(f, made_value(f, s->in[k]), type))
            return false;
    }
    return true;
}

/* A member with a number for each row: all it reads is as its result is, or one number for all. */
static bool reads_rows_right(const gd_fuse *f, int member, int group, const gd_row_shape *r,
                             gd_dtype type) {
    const gd_pstep *s = &f->p->steps[member];
    for (int k = 0; k < s->n_in; k++) {
        const gd_pvalue *v = &f->p->values[s->in[k]];
        const int maker = maker_inside(f, s->in[k], group);
        double number;
        if (maker < 0 && (gd_fuse_constant(f, s->in[k], &number) ||
                          gd_fuse_is_scalar(f, s->in[k], type, r->rows * r->n)))
            continue;
        if (!gd_fuse_is_column(v, r) || !gd_fuse_same_dims(v, result_of(f, member))) return false;
        if (maker >= 0 && (v->offset != 0 || is_of_elements(f, maker, r) ||
                           !gd_fuse_passes(f, made_value(f, s->in[k]), type)))
            return false;
    }
    return true;
}

static bool reduces_right(const gd_fuse *f, int member, int group, const gd_row_shape *r,
                          gd_dtype type) {
    const int value = f->p->steps[member].in[0], maker = maker_inside(f, value, group);
    gd_row_shape own;
    if (!reduces_rows(f, member, &own) || own.axes != r->axes ||
        !gd_fuse_same_dims(own.shape, r->shape))
        return false;
    if (gd_compute_dtype((gd_dtype)own.shape->dtype) != type) return false;
    if (!gd_fuse_is_column(result_of(f, member), r)) return false;
    return maker < 0 || (is_of_elements(f, maker, r) && is_made_whole(f, value, maker, type));
}

/* Whether a group can be one kernel. */
static bool is_right(gd_fuse *f, int group) {
    gd_row_shape r;
    const gd_dtype type = gd_fuse_type(f, group);
    if (!gd_fuse_row_shape(f, group, &r) || (type != GD_F32 && type != GD_F64)) return false;
    for (int m = group; m >= 0; m = f->steps[m].next) {
        if (f->steps[m].kind == GD_FUSE_REDUCTION) {
            if (!reduces_right(f, m, group, &r, type)) return false;
            continue;
        }
        if (f->steps[m].type && f->steps[m].type != type) return false;
        if (is_of_elements(f, m, &r) ? !reads_elements_right(f, m, group, &r, type)
                                     : !gd_fuse_is_column(result_of(f, m), &r) ||
                                           !reads_rows_right(f, m, group, &r, type))
            return false;
    }
    return gd_fuse_fits(f, group, group, type, r.rows * r.n) && !gd_fuse_waits(f, group, group);
}

/* --- trying ----------------------------------------------------------------------------------- */

/* Puts a step, with its group, into the group of another. */
static void take_in(gd_fuse *f, int into, int step) {
    gd_row_shape r;
    if (reduces_rows(f, step, &r)) {
        gd_fuse_change(f, step);
        f->steps[step].row_axes = r.axes;
    }
    if (f->steps[into].group != f->steps[step].group)
        gd_fuse_unite(f, f->steps[into].group, f->steps[step].group);
}

static bool try_to_take_in(gd_fuse *f, int into, int step) {
    gd_fuse_save(f);
    take_in(f, into, step);
    if (is_right(f, f->steps[into].group)) return true;
    gd_fuse_take_back(f);
    return false;
}

static bool is_as_long(const gd_fuse *f, int step, int as) {
    return step >= 0 && f->steps[step].kind != GD_FUSE_NOT &&
           elements(result_of(f, step)) == elements(result_of(f, as));
}

/* A reduction of rows from which the step's result, a number for each row, is computed; -1: none.
 */
static int reduction_behind(const gd_fuse *f, int step, int far) {
    gd_row_shape r;
    if (reduces_rows(f, step, &r)) return step;
    if (f->steps[step].kind != GD_FUSE_EACH || far == 0) return -1;
    const gd_pstep *s = &f->p->steps[step];
    for (int k = 0; k < s->n_in; k++) {
        const int writer = f->writer[f->p->values[s->in[k]].root];
        if (!is_as_long(f, writer, step)) continue;
        const int found = reduction_behind(f, writer, far - 1);
        if (found >= 0) return found;
    }
    return -1;
}

/* The step, and what is between it and its reductions. */
static void take_in_path(gd_fuse *f, int into, int step, int far) {
    take_in(f, into, step);
    if (f->steps[step].kind != GD_FUSE_EACH || far == 0) return;
    const gd_pstep *s = &f->p->steps[step];
    for (int k = 0; k < s->n_in; k++) {
        const int writer = f->writer[f->p->values[s->in[k]].root];
        if (!is_as_long(f, writer, step)) continue;
        if (reduction_behind(f, writer, far - 1) >= 0) take_in_path(f, into, writer, far - 1);
    }
}

/* An elementwise step that reads a value of the row. */
static bool begin_at(gd_fuse *f, int step) {
    const gd_pstep *s = &f->p->steps[step];
    bool found = false;
    gd_fuse_save(f);
    for (int k = 0; k < s->n_in; k++) {
        const int writer = f->writer[f->p->values[s->in[k]].root];
        const int reduction = writer < 0 ? -1 : reduction_behind(f, writer, FAR);
        gd_row_shape r;
        if (reduction < 0 || !reduces_rows(f, reduction, &r) ||
            !gd_fuse_same_dims(r.shape, result_of(f, step)) ||
            !gd_fuse_is_row_value(&f->p->values[s->in[k]], &r))
            continue;
        take_in_path(f, step, writer, FAR);
        found = true;
    }
    if (found && is_right(f, f->steps[step].group)) return true;
    gd_fuse_take_back(f);
    return false;
}

static bool may_be_member(const gd_fuse *f, int step, const gd_row_shape *r) {
    gd_row_shape own;
    if (f->steps[step].kind == GD_FUSE_EACH)
        return is_of_elements(f, step, r) || elements(result_of(f, step)) == r->rows;
    return reduces_rows(f, step, &own);
}

/* What its members read. */
static void take_in_makers(gd_fuse *f, int step) {
    gd_row_shape r;
    for (bool more = true; more;) {
        more = false;
        for (int m = f->steps[step].group; m >= 0 && !more; m = f->steps[m].next)
            for (int k = 0; k < f->p->steps[m].n_in && !more; k++) {
                const int writer = f->writer[f->p->values[f->p->steps[m].in[k]].root];
                if (writer < 0 || f->steps[writer].group == f->steps[step].group) continue;
                if (!gd_fuse_row_shape(f, f->steps[step].group, &r) ||
                    !may_be_member(f, writer, &r))
                    continue;
                more = try_to_take_in(f, step, writer);
            }
    }
}

/* A step that reads what a group makes which goes by rows. */
static void join_makers(gd_fuse *f, int step) {
    gd_row_shape r;
    for (int k = 0; k < f->p->steps[step].n_in; k++) {
        const int value = f->p->steps[step].in[k],
                  writer = value < 0 ? -1 : f->writer[f->p->values[value].root];
        if (writer < 0 || f->steps[writer].group == f->steps[step].group) continue;
        if (!gd_fuse_row_shape(f, f->steps[writer].group, &r) || !may_be_member(f, step, &r))
            continue;
        if (f->steps[step].kind == GD_FUSE_EACH && !is_of_elements(f, step, &r)) continue;
        try_to_take_in(f, writer, step);
    }
}

void gd_fuse_rows(gd_fuse *f) {
    const int n = f->p->n_steps;
    bool any = false;
    for (int i = 0; i < n; i++)
        if (f->steps[i].kind == GD_FUSE_EACH && begin_at(f, i)) {
            take_in_makers(f, i);
            any = true;
        }
    for (int i = 0; i < n && any; i++)
        if (f->steps[i].kind != GD_FUSE_NOT) join_makers(f, i);
}
