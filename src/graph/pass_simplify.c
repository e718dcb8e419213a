/* pass_simplify.c - steps that change nothing.
 *
 * Views of the same memory that look the same are one value: that is what a transpose of a transpose
 * and a reshape of a reshape come to. Beyond that, rules for x * 1, x + 0 and their like, for ops that
 * do nothing the second time, and for those that undo themselves.
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

/* op(x, neutral) is x. */
static const struct {
    const char *op;
    double neutral;
    bool either; /* also op(neutral, x) */
} neutral_rules[] = {{"mul", 1, true}, {"add", 0, true}, {"sub", 0, false}, {"div", 1, false}, {"pow", 1, false}};

/* op(op(x)) is op(x). */
static const char *const idempotent[] = {"relu", "relu6", "abs", "floor", "ceil", "round", "trunc", "sign"};
/* op(op(x)) is x. */
static const char *const involutions[] = {"neg", "logical_not", "bitwise_not"};

static bool is_one_of(const char *name, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, list[i]) == 0) return true;
    return false;
}
#define IS_ONE_OF(name, list) is_one_of(name, list, sizeof list / sizeof *list)

static const gd_pstep *maker(const gd_program *p, int value) {
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_out && !p->steps[i].removed; k++)
            if (p->steps[i].out[k] == value) return &p->steps[i];
    return NULL;
}

/* The value that the step's result equals, or -1. */
static int same_as(const gd_program *p, const gd_pstep *s) {
    const char *name = s->op->name;
    if (s->n_out != 1 || s->out[0] < 0 || s->n_in < 1 || s->in[0] < 0) return -1;
    for (size_t r = 0; r < sizeof neutral_rules / sizeof *neutral_rules; r++) {
        if (strcmp(name, neutral_rules[r].op) != 0 || s->n_in != 2) continue;
        if (is_number(p, s->in[1], neutral_rules[r].neutral)) return s->in[0];
        if (neutral_rules[r].either && is_number(p, s->in[0], neutral_rules[r].neutral)) return s->in[1];
    }
    if (strcmp(name, "clone") == 0 || strcmp(name, "cast") == 0) return s->in[0];
    const gd_pstep *before = maker(p, s->in[0]);
    if (!before || before->op != s->op || before->view || s->n_in != 1) return -1;
    if (IS_ONE_OF(name, idempotent)) return s->in[0];
    return IS_ONE_OF(name, involutions) ? before->in[0] : -1;
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
        const int to = same_as(p, s);
        if (to < 0 || !same_shape(&p->values[to], &p->values[s->out[0]])) continue;
        if (written[p->values[s->out[0]].root] || written[p->values[to].root]) continue;
        changes += forward(p, s, to);
    }
    gd_free(written);
    return changes;
}
