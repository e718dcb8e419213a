/* pass_simplify.c - steps that change nothing.
 *
 * Views of the same memory that look the same are one value: that is what a transpose of a transpose
 * and a reshape of a reshape come to. Beyond that, what the records of ops say: x * 1, x + 0 and their
 * like (`neutral`), ops that do nothing the second time (`idempotent`), and those that undo themselves
 * (`involution`).
 */
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "graph/program.h"

/* Everything that looks into the result of step s, which only has a copy of `to`, looks into `to`. */
static bool forward(gd_program *p, gd_pstep *s, int to) {
    const gd_pvalue from = p->values[s->out[0]], target = p->values[to];
    for (int v = 0; v < p->n_values; v++) /* views of the copy would need its layout */
        if (p->values[v].root == from.root && v != s->out[0] &&
            (target.offset != from.offset || memcmp(target.strides, from.strides, sizeof(int64_t) * from.rank) != 0))
            return false;
    for (int v = 0; v < p->n_values; v++)
        if (p->values[v].root == from.root && v != s->out[0]) p->values[v].root = target.root;
    gd_program_replace(p, s->out[0], to);
    s->removed = true;
    return true;
}

static bool same_shape(const gd_pvalue *a, const gd_pvalue *b) {
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0;
}

static bool same_view(const gd_pvalue *a, const gd_pvalue *b) {
    return a->root == b->root && a->offset == b->offset && same_shape(a, b) &&
           memcmp(a->strides, b->strides, sizeof(int64_t) * a->rank) == 0;
}

static int unite_views(gd_program *p) {
    int changes = 0;
    for (int i = 0; i < p->n_steps; i++) {
        gd_pstep *s = &p->steps[i];
        int united = 0;
        for (int k = 0; s->view && !s->removed && k < s->n_out; k++) {
            const int mine = s->out[k];
            for (int v = 0; v < mine; v++)
                if (same_view(&p->values[v], &p->values[mine])) {
                    gd_program_replace(p, mine, v);
                    united++;
                    break;
                }
        }
        if (united > 0 && united == s->n_out) {
            s->removed = true;
            changes++;
        }
    }
    return changes;
}

/* --- rules ------------------------------------------------------------------------------------- */

/* Whether the value is a folded constant, `number` everywhere. */
static bool is_number(const gd_program *p, int value, double number) {
    const gd_pvalue *v = &p->values[value];
    const gd_root *root = &p->roots[v->root];
    if (root->kind != GD_ROOT_OUTSIDE || !root->constant || !root->storage->device->api->host_reads) return false;
    /* the whole root, which is at most as large as folding allows: any view of it is then the same */
    const size_t size = gd_dtype_bytes(v->dtype);
    for (size_t at = 0; at + size <= root->bytes; at += size)
        if (gd_load_f64((gd_dtype)v->dtype, (const char *)root->storage->data + at) != number) return false;
    return root->bytes > 0;
}

/* op(x, neutral) is x, and op(neutral, x). */
static int other_operand(const gd_program *p, const gd_pstep *s) {
    if (s->n_in != 2 || s->op->n_inputs != 2 || s->in[1] < 0) return -1;
    for (int k = 2; k-- > 0;)
        if (s->op->inputs[k].has_neutral && is_number(p, s->in[k], s->op->inputs[k].neutral)) return s->in[1 - k];
    return -1;
}

/* The value that the result of step `at` equals, as far as its op's record says; or -1. */
static int same_as(const gd_program *p, int at) {
    const gd_pstep *s = &p->steps[at];
    if (s->n_out != 1 || s->out[0] < 0 || s->n_in < 1 || s->in[0] < 0) return -1;
    const int other = other_operand(p, s);
    if (other >= 0) return other;
    if (s->n_in != 1) return -1;
    if (gd_op_copies(s->op)) return s->in[0]; /* a copy */
    if (!(s->op->flags & (GD_OP_IDEMPOTENT | GD_OP_INVOLUTION))) return -1;
    const int maker = gd_program_maker(p, s->in[0], at);
    const gd_pstep *before = maker < 0 ? NULL : &p->steps[maker];
    if (!before || before->op != s->op || before->view || before->n_in != 1 || !gd_same_options(before, s)) return -1;
    return s->op->flags & GD_OP_IDEMPOTENT ? s->in[0] : before->in[0];
}

/* Roots that are written after they were made, by ops that write their inputs: their copies stay. */
static bool *written_roots(const gd_program *p) {
    bool *written = gd_calloc((size_t)p->n_roots + 1, sizeof *written);
    for (int i = 0; written && i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        for (int k = s->op->n_outputs; k < s->n_out && !s->removed; k++)
            if (s->out[k] >= 0) written[p->values[s->out[k]].root] = true;
    }
    return written;
}

int gd_pass_simplify(gd_program *p) {
    bool *written = written_roots(p);
    if (!written) {
        gd_fail(GD_E_MEMORY, "no memory to plan a run");
        return -1;
    }
    int changes = unite_views(p);
    for (int i = 0; i < p->n_steps; i++) {
        gd_pstep *s = &p->steps[i];
        if (s->removed || s->view) continue;
        const int to = same_as(p, i);
        if (to < 0 || !same_shape(&p->values[to], &p->values[s->out[0]])) continue;
        if (written[p->values[s->out[0]].root] || written[p->values[to].root]) continue;
        changes += forward(p, s, to);
    }
    gd_free(written);
    return changes;
}
