/* epilogue.c - replaces a product and the elementwise step after it by one op with an epilogue.
 *
 * Records with `fuses` name such ops: linear and relu become linear_relu, a convolution and relu
 * become conv_relu; a product whose result goes through the gradient of relu is masked; a product
 * that is only used by a step of gradient descent becomes part of that step, and is never
 * materialized.
 */
#include <string.h>

#include "core/alloc.h"
#include "codegen/record.h"
#include "graph/passes/epilogue.h"
#include "ops/call.h"

/* --- options ---------------------------------------------------------------------------------- */

static const gd_op_attr *find_option(const gd_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, name) == 0) return &op->attrs[i];
    return NULL;
}

static const void *get_option(const gd_pstep *s, const gd_op_attr *a) {
    return (const char *)(s->attrs ? s->attrs : s->op->defaults) + a->offset;
}

/* Whether `op` has all options of the step that are not at their defaults. */
static bool has_all_options(const gd_op *op, const gd_pstep *s) {
    for (int i = 0; i < s->op->n_attrs; i++) {
        const gd_op_attr *a = &s->op->attrs[i];
        if (find_option(op, a->name)) continue;
        if (a->required ||
            !gd_same_option(a, get_option(s, a), (const char *)s->op->defaults + a->offset))
            return false;
    }
    return true;
}

/* A fixed number of integers may become a list of any length. */
static bool copy_option(const gd_op_attr *to, void *field, const gd_op_attr *from,
                        const void *value) {
    if (to->type == GD_ATTR_SHAPE && from->type == GD_ATTR_INTS) {
        *(gd_shape *)field = gd_shape_of(from->count, value);
        return true;
    }
    if (to->type != from->type || to->count != from->count || to->type == GD_ATTR_GRAPH)
        return false;
    memcpy(field, value, gd_attr_size(to));
    return true;
}

/* *options is NULL where the op has none. */
bool gd_take_options(gd_program *p, const gd_op *op, const gd_pstep *inner, const gd_pstep *outer,
                     const void **options) {
    *options = NULL;
    if ((inner && !has_all_options(op, inner)) || !has_all_options(op, outer)) return false;
    if (op->n_attrs == 0) return true;
    char *made = gd_program_alloc(p, op->attrs_size);
    if (!made) return false;
    memcpy(made, op->defaults, op->attrs_size);
    for (int i = 0; i < op->n_attrs; i++) {
        const gd_op_attr *a = &op->attrs[i], *from = inner ? find_option(inner->op, a->name) : NULL;
        const gd_pstep *s = from ? inner : outer;
        if (!from) from = find_option(outer->op, a->name);
        if (from ? !copy_option(a, made + a->offset, from, get_option(s, from)) : a->required)
            return false;
    }
    *options = made;
    return true;
}

/* --- two steps -------------------------------------------------------------------------------- */

static bool is_one_of(const char *name, const char *words) {
    const size_t n = strlen(name);
    for (const char *s = words; (s = strstr(s, name)) != NULL; s += n)
        if ((s == words || s[-1] == ' ') && (s[n] == ' ' || s[n] == 0)) return true;
    return false;
}

int gd_inner_step(const gd_program *p, const gd_op_fuses *f, int at, const int *readers) {
    const gd_pstep *outer = &p->steps[at];
    int k = 0;
    while (f->outer_in[k] != GD_FUSES_INNER) k++;
    if (k >= outer->n_in || outer->in[k] < 0 || readers[p->values[outer->in[k]].root] != 1)
        return -1;
    const int from = gd_program_producer(p, outer->in[k], at);
    return from >= 0 && is_one_of(p->steps[from].op->name, f->inner) && p->steps[from].n_out == 1
               ? from
               : -1;
}

bool gd_take_operands(const gd_pstep *s, const int8_t *positions, int n_positions, int *in,
                      int *n_in) {
    for (int k = 0; k < s->n_in; k++) {
        if (k >= n_positions) return false;
        if (positions[k] < 0) continue;
        in[positions[k]] = s->in[k];
        if (positions[k] >= *n_in) *n_in = positions[k] + 1;
    }
    return true;
}

/* Whether the op's shape rule accepts the operands and infers the shapes of the outputs. */
static bool accepts_operands(const gd_program *p, const gd_pstep *s, gd_device *device) {
    gd_tensor described[GD_RECORD_MAX], *at[GD_RECORD_MAX];
    gd_meta metas[GD_MAX_OUTPUTS];
    const int n_out = s->op->n_outputs;
    for (int i = 0; i < s->n_in; i++) {
        at[i] = s->in[i] < 0 ? NULL : &described[i];
        if (at[i]) gd_program_describe(p, s->in[i], device, at[i]);
    }
    for (int k = 0; k < n_out; k++) gd_meta_clear(&metas[k], at, s->n_in);
    gd_infer infer = {s->op, s->attrs, at, s->n_in, metas, n_out};
    gd_attempt attempt; /* a failure only means that the op does not fit */
    gd_attempt_begin(&attempt);
    bool agrees = gd_attempt_end(&attempt, s->op->infer(&infer)) == GD_OK;
    for (int k = 0; k < n_out && agrees; k++) {
        const gd_pvalue *v = s->out[k] < 0 ? NULL : &p->values[s->out[k]];
        agrees = v && v->dtype == metas[k].dtype && v->rank == metas[k].rank &&
                 memcmp(v->dims, metas[k].dims, sizeof(int64_t) * v->rank) == 0;
    }
    return agrees;
}

bool gd_step_can_run(const gd_program *p, const gd_pstep *s, gd_device *device) {
    return accepts_operands(p, s, device) && gd_kernel_exists(s->op, device->api->kind) &&
           gd_step_kernel(p, s, device);
}

/* Replaces step `at` and the step whose result it reads by a step of `op`, if possible. */
static bool fuse_two_steps(gd_program *p, const gd_op *op, int at, const int *readers,
                           gd_device *device) {
    const gd_op_fuses *f = &op->facts.fuses;
    gd_pstep *outer = &p->steps[at];
    const int from = gd_inner_step(p, f, at, readers);
    if (from < 0 || op->n_outputs != outer->op->n_outputs || op->n_mutated != outer->op->n_mutated)
        return false;
    gd_pstep *inner = &p->steps[from], made = *outer;
    made.op = op;
    made.n_in = 0;
    made.in = gd_program_alloc(p, ((size_t)op->n_inputs + 1) * sizeof *made.in);
    if (!made.in) return false;
    for (int i = 0; i < op->n_inputs; i++) made.in[i] = -1;
    if (!gd_take_operands(inner, f->inner_in, f->n_inner, made.in, &made.n_in) ||
        !gd_take_operands(outer, f->outer_in, f->n_outer, made.in, &made.n_in) ||
        !gd_take_options(p, op, inner, outer, &made.attrs) || made.n_in < op->n_required ||
        !gd_step_can_run(p, &made, device))
        return false;
    if (f->n_outer == 1)
        made.node = inner->node; /* it replaces the inner step: no other operands */
    *(f->n_outer == 1 ? inner : outer) = made;
    (f->n_outer == 1 ? outer : inner)->removed = true;
    return true;
}

/* --- the pass --------------------------------------------------------------------------------- */

int gd_pass_epilogue(gd_program *p, gd_device *device) {
    enum { MOST_OPS = 64 };
    const gd_op *ops[MOST_OPS];
    int *readers = gd_program_readers(p), n_ops = 0, changes = 0;
    if (!readers) return -1;
    for (int i = gd_op_count(); i-- > 0;) {
        const gd_op *op = gd_op_at(i);
        if (op->facts.fuses.outer && n_ops < MOST_OPS) ops[n_ops++] = op;
    }
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < n_ops; k++) {
            const gd_pstep *s = &p->steps[i];
            if (s->removed || strcmp(s->op->name, ops[k]->facts.fuses.outer) != 0) continue;
            changes += fuse_two_steps(p, ops[k], i, readers, device);
        }
    gd_free(readers);
    return changes;
}
