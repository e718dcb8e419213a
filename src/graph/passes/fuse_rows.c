/* fuse_rows.c - groups of rows: reductions over rows whose results are then used elementwise.
 *
 * Examples are x - mean(x, -1), exp(x - max) / sum, and a layer norm composed of single ops. The
 * reduction must be complete before the rest begins, but only for one row at a time. Such steps
 * form one group, whose kernel makes all passes over a row while the row is in the cache.
 *
 * The search starts at a step that computes elements from a row's value, and walks back to the
 * reductions. It builds the group, checks it, and undoes it where it is not valid. Then the group
 * grows by the steps that its members read and by those that read them.
 */
#include "graph/passes/fuse.h"

enum {
    MAX_STEPS = 16, /* between a reduction and the elementwise step that uses it */
};

/* --- rows ------------------------------------------------------------------------------------- */

/* Whether the device has kernels for these rows. */
static bool may_have_rows(const gd_fusion_rules *rules, const gd_row_shape *r) {
    return r->n > 1 &&
           (r->n <= rules->max_row || (rules->enough_rows > 0 && r->rows >= rules->enough_rows));
}

/* Whether a step reduces rows: over the last axes, with rows of a length that the device allows. */
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
    return may_have_rows(f->rules, r);
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
    return gd_value_elements(v) == r->rows && gd_is_row_major(v->rank, v->dims, v->strides);
}

/* --- members ---------------------------------------------------------------------------------- */

/* The output of the step that writes v's root. */
static int get_written_value(const gd_fuse *f, int v) {
    const int root = f->p->values[v].root;
    const gd_pstep *s = &f->p->steps[f->writer[root]];
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k] >= 0 && f->p->values[s->out[k]].root == root) return s->out[k];
    return v;
}

static const gd_pvalue *get_result(const gd_fuse *f, int step) {
    return &f->p->values[f->p->steps[step].out[0]];
}

static bool runs_over_elements(const gd_fuse *f, int step, const gd_row_shape *r) {
    return f->steps[step].kind == GD_FUSE_EACH &&
           gd_values_have_same_dims(get_result(f, step), r->shape) &&
           gd_value_is_row_major(get_result(f, step));
}

/* The step that writes a value's root, if it is in the group; else -1. */
static int find_producer_in_group(const gd_fuse *f, int value, int group) {
    const int writer = f->writer[f->p->values[value].root];
    return writer >= 0 && f->steps[writer].group == group ? writer : -1;
}

static bool is_direct_result(const gd_fuse *f, int value, int producer, gd_dtype type) {
    return f->producer[value] == producer && gd_fuse_can_pass(f, value, type);
}

/* A member that runs over all elements may read results of other such members, and row values. */
static bool element_reads_are_valid(const gd_fuse *f, int member, int group, const gd_row_shape *r,
                                    gd_dtype type) {
    const gd_pstep *s = &f->p->steps[member];
    for (int k = 0; k < s->n_in; k++) {
        const int producer = find_producer_in_group(f, s->in[k], group);
        if (producer < 0) continue;
        if (runs_over_elements(f, producer, r)
                ? !is_direct_result(f, s->in[k], producer, type)
                : !gd_fuse_is_row_value(&f->p->values[s->in[k]], r) ||
                      !gd_fuse_can_pass(f, get_written_value(f, s->in[k]), type))
            return false;
    }
    return true;
}

/* A member with one value per row may read values of the shape of its result, and single
 * numbers. */
static bool row_reads_are_valid(const gd_fuse *f, int member, int group, const gd_row_shape *r,
                                gd_dtype type) {
    const gd_pstep *s = &f->p->steps[member];
    for (int k = 0; k < s->n_in; k++) {
        const gd_pvalue *v = &f->p->values[s->in[k]];
        const int producer = find_producer_in_group(f, s->in[k], group);
        double number;
        if (producer < 0 && (gd_fuse_constant(f, s->in[k], &number) ||
                             gd_fuse_is_scalar(f, s->in[k], type, r->rows * r->n)))
            continue;
        if (!gd_fuse_is_column(v, r) || !gd_values_have_same_dims(v, get_result(f, member)))
            return false;
        if (producer >= 0 && (v->offset != 0 || runs_over_elements(f, producer, r) ||
                              !gd_fuse_can_pass(f, get_written_value(f, s->in[k]), type)))
            return false;
    }
    return true;
}

static bool reduction_is_valid(const gd_fuse *f, int member, int group, const gd_row_shape *r,
                               gd_dtype type) {
    const int value = f->p->steps[member].in[0], producer = find_producer_in_group(f, value, group);
    gd_row_shape own;
    if (!reduces_rows(f, member, &own) || own.axes != r->axes ||
        !gd_values_have_same_dims(own.shape, r->shape))
        return false;
    if (gd_compute_dtype((gd_dtype)own.shape->dtype) != type) return false;
    if (!gd_fuse_is_column(get_result(f, member), r)) return false;
    return producer < 0 ||
           (runs_over_elements(f, producer, r) && is_direct_result(f, value, producer, type));
}

/* Whether a group can become one kernel. */
static bool group_is_valid(gd_fuse *f, int group) {
    gd_row_shape r;
    const gd_dtype type = gd_fuse_type(f, group);
    if (!gd_fuse_row_shape(f, group, &r) || (type != GD_F32 && type != GD_F64)) return false;
    for (int m = group; m >= 0; m = f->steps[m].next) {
        if (f->steps[m].kind == GD_FUSE_REDUCTION) {
            if (!reduction_is_valid(f, m, group, &r, type)) return false;
            continue;
        }
        if (f->steps[m].type && f->steps[m].type != type) return false;
        if (runs_over_elements(f, m, &r) ? !element_reads_are_valid(f, m, group, &r, type)
                                         : !gd_fuse_is_column(get_result(f, m), &r) ||
                                               !row_reads_are_valid(f, m, group, &r, type))
            return false;
    }
    return gd_fuse_fits(f, group, group, type, r.rows * r.n) &&
           !gd_fuse_forms_cycle(f, group, group);
}

/* --- building groups -------------------------------------------------------------------------- */

/* Adds a step, with its group, to the group of another. */
static void add_member(gd_fuse *f, int into, int step) {
    gd_row_shape r;
    if (reduces_rows(f, step, &r)) {
        gd_fuse_change(f, step);
        f->steps[step].row_axes = r.axes;
    }
    if (f->steps[into].group != f->steps[step].group)
        gd_fuse_unite(f, f->steps[into].group, f->steps[step].group);
}

static bool try_to_add_member(gd_fuse *f, int into, int step) {
    gd_fuse_save(f);
    add_member(f, into, step);
    if (group_is_valid(f, f->steps[into].group)) return true;
    gd_fuse_restore(f);
    return false;
}

static bool has_equal_count(const gd_fuse *f, int step, int as) {
    return step >= 0 && f->steps[step].kind != GD_FUSE_NOT &&
           gd_value_elements(get_result(f, step)) == gd_value_elements(get_result(f, as));
}

/* A reduction of rows from which the step's result, one value per row, is computed; -1: none. */
static int find_reduction(const gd_fuse *f, int step, int steps_left) {
    gd_row_shape r;
    if (reduces_rows(f, step, &r)) return step;
    if (f->steps[step].kind != GD_FUSE_EACH || steps_left == 0) return -1;
    const gd_pstep *s = &f->p->steps[step];
    for (int k = 0; k < s->n_in; k++) {
        const int writer = f->writer[f->p->values[s->in[k]].root];
        if (!has_equal_count(f, writer, step)) continue;
        const int found = find_reduction(f, writer, steps_left - 1);
        if (found >= 0) return found;
    }
    return -1;
}

/* Adds a step, and the steps between it and its reductions. */
static void add_path_to_reduction(gd_fuse *f, int into, int step, int steps_left) {
    add_member(f, into, step);
    if (f->steps[step].kind != GD_FUSE_EACH || steps_left == 0) return;
    const gd_pstep *s = &f->p->steps[step];
    for (int k = 0; k < s->n_in; k++) {
        const int writer = f->writer[f->p->values[s->in[k]].root];
        if (!has_equal_count(f, writer, step)) continue;
        if (find_reduction(f, writer, steps_left - 1) >= 0)
            add_path_to_reduction(f, into, writer, steps_left - 1);
    }
}

/* Starts a group at an elementwise step that reads a row value. */
static bool begin_group_at(gd_fuse *f, int step) {
    const gd_pstep *s = &f->p->steps[step];
    bool found = false;
    gd_fuse_save(f);
    for (int k = 0; k < s->n_in; k++) {
        const int writer = f->writer[f->p->values[s->in[k]].root];
        const int reduction = writer < 0 ? -1 : find_reduction(f, writer, MAX_STEPS);
        gd_row_shape r;
        if (reduction < 0 || !reduces_rows(f, reduction, &r) ||
            !gd_values_have_same_dims(r.shape, get_result(f, step)) ||
            !gd_fuse_is_row_value(&f->p->values[s->in[k]], &r))
            continue;
        add_path_to_reduction(f, step, writer, MAX_STEPS);
        found = true;
    }
    if (found && group_is_valid(f, f->steps[step].group)) return true;
    gd_fuse_restore(f);
    return false;
}

static bool may_be_member(const gd_fuse *f, int step, const gd_row_shape *r) {
    gd_row_shape own;
    if (f->steps[step].kind == GD_FUSE_EACH)
        return runs_over_elements(f, step, r) || gd_value_elements(get_result(f, step)) == r->rows;
    return reduces_rows(f, step, &own);
}

/* Adds steps whose results members read, as long as the group stays valid. */
static void add_producers(gd_fuse *f, int step) {
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
                more = try_to_add_member(f, step, writer);
            }
    }
}

/* Adds a step to the groups of rows whose results it reads, where that is valid. */
static void join_groups_of_producers(gd_fuse *f, int step) {
    gd_row_shape r;
    for (int k = 0; k < f->p->steps[step].n_in; k++) {
        const int value = f->p->steps[step].in[k],
                  writer = value < 0 ? -1 : f->writer[f->p->values[value].root];
        if (writer < 0 || f->steps[writer].group == f->steps[step].group) continue;
        if (!gd_fuse_row_shape(f, f->steps[writer].group, &r) || !may_be_member(f, step, &r))
            continue;
        if (f->steps[step].kind == GD_FUSE_EACH && !runs_over_elements(f, step, &r)) continue;
        try_to_add_member(f, writer, step);
    }
}

void gd_fuse_rows(gd_fuse *f) {
    const int n = f->p->n_steps;
    bool any = false;
    for (int i = 0; i < n; i++)
        if (f->steps[i].kind == GD_FUSE_EACH && begin_group_at(f, i)) {
            add_producers(f, i);
            any = true;
        }
    for (int i = 0; i < n && any; i++)
        if (f->steps[i].kind != GD_FUSE_NOT) join_groups_of_producers(f, i);
}
