/* epilogue.c - replaces a step and the elementwise step after or before it by one op.
 *
 * Records with `fuses` name such ops: linear and relu become linear_relu, a convolution and relu
 * become conv_relu; a product whose result goes through the gradient of relu is masked; a product
 * that is only used by a step of gradient descent becomes part of that step, and is never
 * materialized. A fused op has the results of the outer op, except that
 *
 * - if the inner op has several results, as batch_norm has, the fused op has these, with the first
 *   one replaced by the outer result;
 * - an op with one result more than the outer op returns the inner result as its last one. It is
 *   for inner results that other steps read, too: the gradient of relu in a residual block.
 *
 * If both ops have an operand of the same name, the inner step stays: the fused op computes its
 * result again from the operands, instead of reading it.
 */
#include <string.h>

#include "core/alloc.h"
#include "codegen/record.h"
#include "graph/build/options.h"
#include "graph/passes/epilogue.h"
#include "dispatch/call.h"
#include "dispatch/call_infer.h"

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

int gd_inner_step(const gd_uses *uses, const gd_op_fuses *f, int at, const int *readers) {
    const gd_program *p = uses->program;
    const gd_pstep *outer = &p->steps[at];
    int k = 0;
    while (f->outer_in[k] != GD_FUSES_INNER) k++;
    if (k >= outer->n_in || outer->in[k] < 0 || readers[p->values[outer->in[k]].root] != 1)
        return -1;
    const int from = gd_uses_producer(uses, outer->in[k], at);
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
    gd_infer infer = {s->op, s->attrs, at, s->n_in, metas, n_out};
    gd_attempt attempt; /* a failure only means that the op does not fit */
    gd_attempt_begin(&attempt);
    bool agrees = gd_attempt_end(&attempt, gd_infer_known(&infer)) == GD_OK;
    for (int k = 0; k < n_out && agrees; k++) {
        const int value = s->out[k] < -1 ? GD_UNWANTED(s->out[k]) : s->out[k];
        const gd_pvalue *v = value < 0 ? NULL : &p->values[value];
        agrees = v && v->dtype == metas[k].dtype && v->rank == metas[k].rank &&
                 memcmp(v->dims, metas[k].dims, sizeof(int64_t) * v->rank) == 0;
    }
    return agrees;
}

bool gd_step_can_run(const gd_program *p, const gd_pstep *s, gd_device *device) {
    return accepts_operands(p, s, device) && gd_kernel_exists(s->op, device->api->kind) &&
           gd_step_kernel(p, s, device);
}

/* A pair of steps that may become one step of `op`. */
typedef struct step_pair {
    const gd_op *op;
    int inner, outer; /* their numbers */
    int operand;      /* the input of `outer` that is the inner result */
    bool swapped;     /* the two inputs of `outer`, a commutative op, are in the other order */
    bool keeps_inner; /* other steps read the inner result: it is the last result of `op` */
    bool repeats;     /* the inner step stays, and `op` computes its result again */
} step_pair;

/* Whether the record names an operand of both ops. */
static bool shares_operand(const gd_op_fuses *f) {
    for (int i = 0; i < f->n_inner; i++)
        for (int k = 0; k < f->n_outer; k++)
            if (f->inner_in[i] >= 0 && f->inner_in[i] == f->outer_in[k]) return true;
    return false;
}

/* Whether the outer step reads other results of the inner one: then they belong together. */
static bool reads_other_results(const gd_pstep *outer, const gd_pstep *inner) {
    for (int k = 0; k < outer->n_in; k++)
        for (int i = 1; i < inner->n_out; i++)
            if (outer->in[k] >= 0 && outer->in[k] == inner->out[i]) return true;
    return false;
}

/* Whether the order of the op's two inputs does not matter: a sum or a product of them. */
static bool is_commutative(const gd_op *op) {
    const gd_ir *ir = op->ir;
    if (!ir || op->n_inputs != 2 || ir->n_outputs != 1 || ir->count != 3) return false;
    const gd_ir_node *n = &ir->nodes[ir->output[0]];
    if (n->code < GD_IR_PRIM) return false;
    const char *name = gd_prims[n->code - GD_IR_PRIM].name;
    return n->arg[0] != n->arg[1] && (strcmp(name, "add") == 0 || strcmp(name, "mul") == 0);
}

/* Whether the results of both steps, without the inner one that only the outer step reads, are
 * those of the op. */
static bool has_same_results(const gd_program *p, step_pair *pair, const int *readers) {
    const gd_pstep *inner = &p->steps[pair->inner], *outer = &p->steps[pair->outer];
    const gd_op *op = pair->op;
    if (pair->repeats)
        return reads_other_results(outer, inner) && op->n_outputs == outer->op->n_outputs &&
               op->n_mutated == 0 && outer->op->n_mutated == 0;
    const bool shared = readers[p->values[inner->out[0]].root] != 1;
    if (inner->n_out > 1) /* the outer result replaces the first inner one */
        return !shared && outer->n_out == 1 && op->n_outputs == inner->op->n_outputs &&
               op->n_mutated == inner->op->n_mutated;
    pair->keeps_inner = op->n_outputs == outer->op->n_outputs + 1;
    return pair->keeps_inner ? shared && op->n_mutated == 0 && outer->op->n_mutated == 0
                             : !shared && op->n_outputs == outer->op->n_outputs &&
                                   op->n_mutated == outer->op->n_mutated;
}

/* Finds the step that is fused with step `at` into `op`. */
static bool find_pair(const gd_uses *uses, const gd_op *op, int at, bool swapped,
                      const int *readers, step_pair *pair) {
    const gd_program *p = uses->program;
    const gd_op_fuses *f = &op->facts.fuses;
    const gd_pstep *outer = &p->steps[at];
    int k = 0;
    while (f->outer_in[k] != GD_FUSES_INNER) k++;
    if (swapped) k = 1 - k;
    if (k >= outer->n_in || outer->in[k] < 0) return false;
    const int from = gd_uses_producer(uses, outer->in[k], at);
    if (from < 0 || !is_one_of(p->steps[from].op->name, f->inner) || p->steps[from].view ||
        p->steps[from].out[0] != outer->in[k])
        return false;
    *pair = (step_pair){op, from, at, k, swapped, false, shares_operand(f)};
    return has_same_results(p, pair, readers);
}

bool gd_step_can_move(const gd_uses *uses, int s, int end, bool earlier, int but) {
    const gd_program *p = uses->program;
    const gd_pstep *moved = &p->steps[s];
    const int first = earlier ? end : s + 1, last = earlier ? s : end;
    for (int k = 0; k < moved->n_out; k++)
        if (moved->out[k] >= 0 &&
            gd_uses_touches(uses, p->values[moved->out[k]].root, first, last, but))
            return false;
    for (int k = 0; k < moved->n_in; k++)
        if (moved->in[k] >= 0 &&
            gd_uses_writes(uses, p->values[moved->in[k]].root, first, last, but))
            return false;
    return true;
}

/* The results of the fused step. */
static bool set_results(gd_program *p, const step_pair *pair, gd_pstep *made) {
    const gd_pstep *inner = &p->steps[pair->inner], *outer = &p->steps[pair->outer];
    if (pair->repeats) return true;                          /* those of the outer step */
    const gd_pstep *most = inner->n_out > 1 ? inner : outer; /* the step with most of them */
    made->n_out = most->n_out + pair->keeps_inner;
    made->out = gd_program_alloc(p, ((size_t)made->n_out + 1) * sizeof *made->out);
    if (!made->out) return false;
    memcpy(made->out, most->out, (size_t)most->n_out * sizeof *made->out);
    if (inner->n_out > 1) made->out[0] = outer->out[0];
    if (pair->keeps_inner) made->out[most->n_out] = inner->out[0];
    return true;
}

/* Adds the operands of an inner step that stays. An operand that the outer step has, too, must be
 * the same value. */
static bool repeat_operands(const gd_op_fuses *f, const gd_pstep *inner, gd_pstep *made) {
    for (int k = 0; k < f->n_inner; k++) {
        const int to = f->inner_in[k], value = k < inner->n_in ? inner->in[k] : -1;
        bool shared = false;
        for (int i = 0; i < f->n_outer; i++) shared = shared || f->outer_in[i] == to;
        if (shared && made->in[to] != value) return false;
        made->in[to] = value;
        if (to >= made->n_in) made->n_in = to + 1;
    }
    return true;
}

/* The operands and options of the fused step. */
static bool set_operands(gd_program *p, const step_pair *pair, gd_pstep *made) {
    const gd_op_fuses *f = &pair->op->facts.fuses;
    const gd_pstep *inner = &p->steps[pair->inner];
    gd_pstep outer = p->steps[pair->outer];
    int exchanged[2];
    if (pair->swapped) {
        exchanged[0] = outer.in[1];
        exchanged[1] = outer.in[0];
        outer.in = exchanged;
    }
    made->n_in = 0;
    made->in = gd_program_alloc(p, ((size_t)pair->op->n_inputs + 1) * sizeof *made->in);
    if (!made->in) return false;
    for (int i = 0; i < pair->op->n_inputs; i++) made->in[i] = -1;
    if (pair->repeats)
        return gd_take_operands(&outer, f->outer_in, f->n_outer, made->in, &made->n_in) &&
               repeat_operands(f, inner, made) &&
               gd_take_options(p, pair->op, NULL, &outer, &made->attrs) &&
               made->n_in >= pair->op->n_required;
    return gd_take_operands(inner, f->inner_in, f->n_inner, made->in, &made->n_in) &&
           gd_take_operands(&outer, f->outer_in, f->n_outer, made->in, &made->n_in) &&
           gd_take_options(p, pair->op, inner, &outer, &made->attrs) &&
           made->n_in >= pair->op->n_required;
}

/* Whether no step between the two writes an operand of the inner one. */
static bool operands_stay(const gd_uses *uses, const step_pair *pair) {
    const gd_program *p = uses->program;
    const gd_pstep *inner = &p->steps[pair->inner];
    for (int k = 0; k < pair->op->facts.fuses.n_inner && k < inner->n_in; k++)
        if (inner->in[k] >= 0 &&
            gd_uses_writes(uses, p->values[inner->in[k]].root, pair->inner + 1, pair->outer, -1))
            return false;
    return true;
}

/* Whether the kernel of a step has operands copied to row-major order. */
static bool copies_operands(const gd_program *p, const gd_pstep *s, gd_device *device) {
    const gd_kernel *kernel = gd_step_kernel(p, s, device);
    if (!kernel || !(kernel->flags & GD_KERNEL_STAGED)) return false;
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const int value = k < s->n_in ? s->in[k] : s->out[k - s->n_in];
        if (value >= 0 && !gd_value_is_row_major(&p->values[value])) return true;
    }
    return false;
}

/* Whether the fused step would copy operands that neither of the two steps copies. */
static bool adds_copies(const gd_program *p, const step_pair *pair, const gd_pstep *made,
                        gd_device *device) {
    return copies_operands(p, made, device) &&
           !copies_operands(p, &p->steps[pair->inner], device) &&
           !copies_operands(p, &p->steps[pair->outer], device);
}

/* Replaces both steps by one, if possible. It runs in the place of the inner step if other steps
 * read the inner result, or if the outer step has no other operands; otherwise in that of the outer
 * one. Returns the number of the new step; -1: they cannot be fused. */
static int fuse_pair(gd_program *p, const gd_uses *uses, const step_pair *pair, gd_device *device) {
    gd_pstep *inner = &p->steps[pair->inner], *outer = &p->steps[pair->outer], made = *outer;
    const bool replaces_inner = pair->keeps_inner || pair->op->facts.fuses.n_outer == 1;
    made.op = pair->op;
    if (!set_operands(p, pair, &made) || !set_results(p, pair, &made)) return -1;
    if (pair->repeats) {
        if (!operands_stay(uses, pair) || !gd_step_can_run(p, &made, device) ||
            adds_copies(p, pair, &made, device))
            return -1;
        *outer = made;
        return pair->outer;
    }
    if (replaces_inner ? pair->keeps_inner &&
                             !gd_step_can_move(uses, pair->outer, pair->inner, true, pair->inner)
                       : !gd_step_can_move(uses, pair->inner, pair->outer, false, pair->outer))
        return -1;
    if (!gd_step_can_run(p, &made, device) || adds_copies(p, pair, &made, device)) return -1;
    if (pair->op->facts.fuses.n_outer == 1) made.node = inner->node;
    *(replaces_inner ? inner : outer) = made;
    (replaces_inner ? outer : inner)->removed = true;
    return replaces_inner ? pair->inner : pair->outer;
}

/* Replaces step `at` and the step whose result it reads by a step of `op`, if possible. Returns the
 * number of the new step, or -1. */
static int fuse_two_steps(gd_program *p, const gd_uses *uses, const gd_op *op, int at,
                          const int *readers, gd_device *device) {
    const int orders = 1 + (p->steps[at].n_in == 2 && is_commutative(p->steps[at].op));
    for (int swapped = 0; swapped < orders; swapped++) {
        step_pair pair;
        const int made = find_pair(uses, op, at, swapped, readers, &pair)
                             ? fuse_pair(p, uses, &pair, device)
                             : -1;
        if (made >= 0) return made;
    }
    return -1;
}

/* --- the pass --------------------------------------------------------------------------------- */

/* Whether the op reads the result of an elementwise op. Gradients of elementwise ops, such as relu.gx,
 * are elementwise and not in the table. */
static bool fuses_elementwise_operand(const gd_op *op) {
    const gd_op *inner = gd_op_find(op->facts.fuses.inner);
    return inner ? inner->ir != NULL : strchr(op->facts.fuses.inner, '.') != NULL;
}

/* Fuses the steps of the given ops. Returns the number of changes. */
static int fuse_steps_of(gd_program *p, gd_uses *uses, const gd_op *const *ops, int n_ops,
                         const int *readers, gd_device *device) {
    int changes = 0;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < n_ops; k++) {
            const gd_pstep *s = &p->steps[i];
            if (s->removed || strcmp(s->op->name, ops[k]->facts.fuses.outer) != 0) continue;
            const int made = fuse_two_steps(p, uses, ops[k], i, readers, device);
            if (made < 0) continue;
            gd_uses_add(uses, made);
            changes++;
            i = made - 1; /* the new step may be the outer one of another op */
            break;
        }
    return changes;
}

/* An elementwise step between two others is fused with the later one if possible: batch norm's
 * gradient takes the gradient of relu, not the gradient of pooling before it. */
gd_status gd_pass_epilogue(gd_rewrite *r) {
    enum { MAX_OPS = 64 };
    const gd_op *ops[MAX_OPS], *first[MAX_OPS];
    int *readers = gd_program_readers(r->program), n_ops = 0, n_first = 0;
    gd_uses uses;
    if (!readers || gd_uses_make(&uses, r->program) != GD_OK) {
        if (readers) gd_uses_free(&uses);
        gd_free(readers);
        return GD_E_MEMORY;
    }
    for (int i = gd_op_count(); i-- > 0;) {
        const gd_op *op = gd_op_at(i);
        if (!op->facts.fuses.outer || n_ops == MAX_OPS) continue;
        ops[n_ops++] = op;
        if (fuses_elementwise_operand(op)) first[n_first++] = op;
    }
    r->changes += fuse_steps_of(r->program, &uses, first, n_first, readers, r->device);
    r->changes += fuse_steps_of(r->program, &uses, ops, n_ops, readers, r->device);
    gd_free(readers);
    return gd_uses_end(&uses);
}
