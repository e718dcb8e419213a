/* absorb_casts.c - removes casts between f32 and 16-bit floats beside kernels that take either.
 *
 * Autocast computes a layer norm or a loss in f32 and the products around it in bf16, with casts
 * between them. A kernel with the flag GD_KERNEL_MIXED converts the elements itself:
 *
 *     %2 f32 = cast(%1 bf16)                 %3, %4 = index_cross_entropy(%1, target)
 *     %3, %4 = index_cross_entropy(%2, ...)
 *
 *     %2 f32 = layer_norm(%1, ...)           %3 bf16 = layer_norm(%1, ...)
 *     %3 bf16 = cast(%2)
 *
 * The kernel's `match` decides which dtypes it takes, so a step is tried without any of its casts,
 * and then without one after the other. Elementwise steps are fused with casts; here only updates
 * of variables absorb those of their gradients.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/passes.h"

typedef struct cast_pass {
    gd_program *p;
    gd_device *device;
    int *writes, *reads;  /* per root: how many steps write it; how many steps, fetches and
                              * commits read it, without views */
    int *writer, *reader; /* per root: the last of these steps */
} cast_pass;

/* --- casts ------------------------------------------------------------------------------------ */

static bool is_narrow(const gd_pvalue *v) { return v->dtype == GD_F16 || v->dtype == GD_BF16; }

static void find_uses(cast_pass *c) {
    const gd_program *p = c->p;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        if (s->removed || s->view) continue;
        for (int k = 0; k < s->n_in; k++) {
            const int root = gd_value_root(p, s->in[k]);
            if (root >= 0) c->reads[root]++, c->reader[root] = i;
        }
        for (int k = 0; k < s->n_out; k++) {
            const int root = gd_value_root(p, s->out[k]);
            if (root >= 0) c->writes[root]++, c->writer[root] = i;
        }
    }
    for (int i = 0; i < p->n_fetches; i++) c->reads[p->values[p->fetches[i]].root]++;
    for (int i = 0; i < p->n_commits; i++) c->reads[p->values[p->commits[i].value].root]++;
}

/* Whether the step converts all elements of its input, which is row-major, to all of a root. */
static bool is_full_cast(const gd_program *p, const gd_pstep *s) {
    return !s->removed && !s->view && !s->each && gd_op_copies(s->op) && s->n_out == 1 &&
           s->in[0] >= 0 && s->out[0] >= 0 && gd_value_is_row_major(&p->values[s->in[0]]) &&
           gd_value_fills_root(p, &p->values[s->out[0]]);
}

/* Whether the root holds the same values from its only write until the end of the run. */
static bool is_written_once(const cast_pass *c, int root) {
    const gd_root_kind kind = c->p->roots[root].kind;
    return kind == GD_ROOT_FEED || (kind == GD_ROOT_TEMPORARY && c->writes[root] == 1);
}

/* --- operands --------------------------------------------------------------------------------- */

/* The input before its cast, seen as the cast's result is; the input itself if it has none. -1: no
 * memory. */
static int input_before_cast(const cast_pass *c, int input) {
    if (input < 0) return input;
    const gd_program *p = c->p;
    gd_pvalue v = p->values[input];
    if (v.dtype != GD_F32 || !gd_root_is_temporary(p, v.root) || c->writes[v.root] != 1)
        return input;
    const gd_pstep *cast = &p->steps[c->writer[v.root]];
    if (!is_full_cast(p, cast)) return input;
    const gd_pvalue *from = &p->values[cast->in[0]];
    if (!is_narrow(from) || !is_written_once(c, from->root)) return input;
    v.root = from->root;
    v.offset += from->offset;
    v.dtype = from->dtype;
    return gd_program_value(c->p, v);
}

/* The step that casts an output to a 16-bit float and is its only reader; -1: none. */
static int cast_of_output(const cast_pass *c, int output) {
    const gd_program *p = c->p;
    if (output < 0) return -1;
    const gd_pvalue *v = &p->values[output];
    if (v->dtype != GD_F32 || !gd_root_is_temporary(p, v->root) || p->roots[v->root].fetched ||
        c->writes[v->root] != 1 || c->reads[v->root] != 1 || !gd_value_fills_root(p, v))
        return -1;
    const int at = c->reader[v->root];
    if (at < 0 || !is_full_cast(p, &p->steps[at])) return -1;
    const gd_pvalue *from = &p->values[p->steps[at].in[0]], *to = &p->values[p->steps[at].out[0]];
    return gd_value_fills_root(p, from) && is_narrow(to) && gd_root_is_temporary(p, to->root) &&
                   c->writes[to->root] == 1
               ? at
               : -1;
}

/* The result of an output's cast, in the shape of the output. -1: no memory. */
static int output_after_cast(const cast_pass *c, int output, const gd_pstep *cast) {
    const gd_pvalue *to = &c->p->values[cast->out[0]];
    gd_pvalue v = c->p->values[output];
    v.root = to->root;
    v.dtype = to->dtype;
    return gd_program_value(c->p, v);
}

/* --- steps ------------------------------------------------------------------------------------ */

static bool takes_mixed(const cast_pass *c, const gd_pstep *s) {
    const gd_kernel *kernel = gd_step_kernel(c->p, s, c->device);
    return kernel && (kernel->flags & GD_KERNEL_MIXED);
}

static bool may_absorb(const gd_pstep *s) {
    if (s->removed || s->view || s->each || s->op->fusion || (s->op->flags & GD_OP_OPAQUE))
        return false;
    return !s->op->ir || s->op->n_mutated > 0;
}

/* A step's operand, and the value that may replace it. */
typedef struct operand {
    int *slot, other;
    int cast; /* of an output: the step that the replacement makes superfluous; otherwise -1 */
} operand;

static void swap_operand(operand *o) {
    const int value = *o->slot;
    *o->slot = o->other;
    o->other = value;
}

/* Replaces `count` operands if a kernel takes all of them. */
static bool replace_operands(cast_pass *c, gd_pstep *s, operand *operands, int count) {
    for (int i = 0; i < count; i++) swap_operand(&operands[i]);
    const bool taken = takes_mixed(c, s);
    for (int i = 0; i < count; i++) {
        if (!taken) swap_operand(&operands[i]);
        if (!taken || operands[i].cast < 0) continue;
        c->p->steps[operands[i].cast].removed = true;
        c->writer[c->p->values[*operands[i].slot].root] = (int)(s - c->p->steps);
    }
    return taken;
}

/* Lists the operands of a step that have casts. -1: no memory. */
static int find_operands(cast_pass *c, gd_pstep *s, operand *operands) {
    int count = 0;
    for (int k = 0; k < s->n_in; k++) {
        if (k < s->op->n_inputs && s->op->inputs[k].mutated) continue;
        const int other = input_before_cast(c, s->in[k]);
        if (other < 0 && s->in[k] >= 0) return -1;
        if (other != s->in[k]) operands[count++] = (operand){&s->in[k], other, -1};
    }
    for (int k = 0; k < s->n_out - s->op->n_mutated; k++) {
        const int cast = cast_of_output(c, s->out[k]);
        if (cast < 0) continue;
        const int other = output_after_cast(c, s->out[k], &c->p->steps[cast]);
        if (other < 0) return -1;
        operands[count++] = (operand){&s->out[k], other, cast};
    }
    return count;
}

/* Returns the number of replaced operands; -1: no memory. */
static int absorb_around(cast_pass *c, gd_pstep *s) {
    enum { MAX_OPERANDS = 32 };
    operand operands[MAX_OPERANDS];
    if (s->n_in + s->n_out > MAX_OPERANDS) return 0;
    const int count = find_operands(c, s, operands);
    if (count <= 0 || replace_operands(c, s, operands, count)) return count;
    int replaced = 0;
    for (int i = 0; i < count && count > 1; i++)
        replaced += replace_operands(c, s, &operands[i], 1);
    return replaced;
}

static int absorb_all(cast_pass *c) {
    int changes = 0;
    find_uses(c);
    for (int i = 0; i < c->p->n_steps && changes >= 0; i++) {
        if (!may_absorb(&c->p->steps[i])) continue;
        const int changed = absorb_around(c, &c->p->steps[i]);
        changes = changed < 0 ? -1 : changes + changed;
    }
    return changes;
}

gd_status gd_pass_absorb_casts(gd_rewrite *r) {
    const size_t roots = (size_t)r->program->n_roots + 1;
    int *room = gd_calloc(4 * roots, sizeof *room);
    if (!room) return gd_no_memory(NULL, "to plan a run");
    cast_pass c = {r->program, r->device, room, room + roots, room + 2 * roots, room + 3 * roots};
    memset(c.reader, -1, roots * sizeof *c.reader);
    const int changes = absorb_all(&c);
    gd_free(room);
    if (changes < 0) return GD_E_MEMORY;
    r->changes += changes;
    return GD_OK;
}
