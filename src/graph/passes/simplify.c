/* simplify.c - algebraic simplification: removes steps that change nothing.
 *
 * Equal views of a root are one value, which removes a transpose of a transpose and a reshape of a
 * reshape. The records of ops allow the rest: x * 1, x + 0 and the like (`neutral`), ops that do
 * nothing the second time (`idempotent`), and ops that undo themselves (`involution`).
 */
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/index_set.h"
#include "graph/passes/passes.h"

typedef struct simplifier {
    gd_program *p;
    int *instead;      /* per value: the value that replaces it; itself if none */
    int *producer;     /* per value: the last step so far that has it as a result; -1: none */
    int *first, *next; /* per root: a linked list of its values; -1: the end */
    bool *written;     /* per root: some op updates it, so that its copies are needed */
} simplifier;

/* Replaces the result of step s, which equals `to`, and all views of it by `to` and views of `to`.
 * Removes s. False if that needs other views. */
static bool replace_result(simplifier *f, gd_pstep *s, int to) {
    gd_program *p = f->p;
    const gd_pvalue from = p->values[s->out[0]], target = p->values[to];
    const bool same_layout = target.offset == from.offset &&
                             memcmp(target.strides, from.strides, sizeof(int64_t) * from.rank) == 0;
    for (int v = f->first[from.root]; v >= 0 && !same_layout; v = f->next[v])
        if (v != s->out[0]) return false; /* views of the copy would need its layout */
    for (int v = f->first[from.root], next; v >= 0; v = next) {
        next = f->next[v];
        if (v == s->out[0]) continue;
        p->values[v].root = target.root;
        f->next[v] = f->first[target.root];
        f->first[target.root] = v;
    }
    f->first[from.root] = s->out[0];
    f->next[s->out[0]] = -1;
    f->instead[s->out[0]] = to;
    s->removed = true;
    return true;
}

/* The value that finally replaces a value. */
static int final_value(const simplifier *f, int value) {
    while (value >= 0 && f->instead[value] != value) value = f->instead[value];
    return value;
}

static void replace_inputs(const simplifier *f, gd_pstep *s) {
    for (int k = 0; k < s->n_in; k++) s->in[k] = final_value(f, s->in[k]);
}

static void replace_fetches(const simplifier *f) {
    gd_program *p = f->p;
    for (int i = 0; i < p->n_fetches; i++) p->fetches[i] = final_value(f, p->fetches[i]);
    for (int i = 0; i < p->n_commits; i++)
        p->commits[i].value = final_value(f, p->commits[i].value);
}

static bool same_shape(const gd_pvalue *a, const gd_pvalue *b) {
    return a->dtype == b->dtype && gd_values_have_same_dims(a, b);
}

static bool is_same_view(const gd_pvalue *a, const gd_pvalue *b) {
    return a->root == b->root && a->offset == b->offset && same_shape(a, b) &&
           memcmp(a->strides, b->strides, sizeof(int64_t) * a->rank) == 0;
}

static uint64_t hash_value(const gd_pvalue *v) {
    uint64_t hash = gd_hash_mix((uint64_t)v->root, (uint64_t)v->offset);
    for (int d = 0; d < v->rank; d++)
        hash = gd_hash_mix(hash, (uint64_t)v->dims[d] ^ (uint64_t)v->strides[d] << 32);
    return hash;
}

/* Per value: the first value that is the same view. gd_free it; NULL: no memory. */
static int *find_first_views(const gd_program *p) {
    int *first = gd_malloc(((size_t)p->n_values + 1) * sizeof *first);
    gd_index_set seen = {0};
    for (int v = 0; v < p->n_values && first; v++) {
        const uint64_t hash = hash_value(&p->values[v]);
        int same;
        for (size_t probe = 0; (same = gd_index_set_next(&seen, hash, &probe)) >= 0;)
            if (is_same_view(&p->values[same], &p->values[v])) break;
        first[v] = same >= 0 ? same : v;
        if (same >= 0 || gd_index_set_add(&seen, hash, v)) continue;
        gd_free(first);
        first = NULL;
    }
    gd_index_set_free(&seen);
    if (!first) gd_no_memory(NULL, "to plan a run");
    return first;
}

static int unite_views(simplifier *f) {
    gd_program *p = f->p;
    int *first = find_first_views(p), changes = 0;
    if (!first) return -1;
    for (int i = 0; i < p->n_steps; i++) {
        gd_pstep *s = &p->steps[i];
        int united = 0;
        for (int k = 0; s->view && !s->removed && k < s->n_out; k++) {
            const int mine = s->out[k];
            if (mine < 0) continue;
            f->instead[mine] = first[mine];
            united += first[mine] != mine;
        }
        if (united > 0 && united == s->n_out) {
            s->removed = true;
            changes++;
        }
    }
    gd_free(first);
    return changes;
}

/* --- rules ------------------------------------------------------------------------------------ */

/* Whether the value is a folded constant, `number` everywhere. */
static bool is_constant_number(const gd_program *p, int value, double number) {
    const gd_pvalue *v = &p->values[value];
    const gd_root *root = &p->roots[v->root];
    if (root->kind != GD_ROOT_CAPTURED || !root->constant ||
        !root->storage->device->api->host_reads)
        return false;
    /* compare the entire root, which is small (fold.c), so that the strides of the view do not
     * matter */
    const size_t size = gd_dtype_bytes(v->dtype);
    for (size_t at = 0; at + size <= root->bytes; at += size)
        if (gd_load_f64((gd_dtype)v->dtype, (const char *)root->storage->data + at) != number)
            return false;
    return root->bytes > 0;
}

/* op(x, neutral) is x, and so is op(neutral, x): returns x; -1: no operand is neutral. */
static int find_other_operand(const gd_program *p, const gd_pstep *s) {
    if (s->n_in != 2 || s->op->n_inputs != 2 || s->in[1] < 0) return -1;
    for (int k = 2; k-- > 0;)
        if (s->op->inputs[k].has_neutral &&
            is_constant_number(p, s->in[k], s->op->inputs[k].neutral))
            return s->in[1 - k];
    return -1;
}

/* The value that the step's result equals by its op's record; -1: none. */
static int find_equal_value(const simplifier *f, const gd_pstep *s) {
    const gd_program *p = f->p;
    if (s->n_out != 1 || s->out[0] < 0 || s->n_in < 1 || s->in[0] < 0) return -1;
    const int other = find_other_operand(p, s);
    if (other >= 0) return other;
    if (s->n_in != 1) return -1;
    if (gd_op_copies(s->op)) return s->in[0]; /* a copy */
    if (!(s->op->flags & (GD_OP_IDEMPOTENT | GD_OP_INVOLUTION))) return -1;
    const int producer = f->producer[s->in[0]];
    const gd_pstep *before = producer < 0 ? NULL : &p->steps[producer];
    if (!before || before->op != s->op || before->view || before->n_in != 1 ||
        !gd_same_options(before, s))
        return -1;
    return s->op->flags & GD_OP_IDEMPOTENT ? s->in[0] : before->in[0];
}

/* --- the pass --------------------------------------------------------------------------------- */

static void free_simplifier(simplifier *f) {
    gd_free(f->instead);
    gd_free(f->first);
    gd_free(f->written);
}

static gd_status init_simplifier(simplifier *f, gd_program *p) {
    const size_t values = (size_t)p->n_values + 1, roots = (size_t)p->n_roots + 1;
    *f = (simplifier){.p = p,
                      .instead = gd_malloc(3 * values * sizeof(int)),
                      .first = gd_malloc(roots * sizeof(int)),
                      .written = gd_calloc(roots, sizeof(bool))};
    if (!f->instead || !f->first || !f->written) return gd_no_memory(NULL, "to plan a run");
    f->producer = f->instead + values;
    f->next = f->producer + values;
    for (int r = 0; r < p->n_roots; r++) f->first[r] = -1;
    for (int v = 0; v < p->n_values; v++) {
        f->instead[v] = v;
        f->producer[v] = -1;
        f->next[v] = f->first[p->values[v].root];
        f->first[p->values[v].root] = v;
    }
    for (int i = 0; i < p->n_steps;
         i++) { /* the outputs after those of the op are its updated inputs */
        const gd_pstep *s = &p->steps[i];
        for (int k = s->op->n_outputs; k < s->n_out && !s->removed; k++)
            if (s->out[k] >= 0) f->written[p->values[s->out[k]].root] = true;
    }
    return GD_OK;
}

/* Removes the step if its result equals another value. */
static bool drop_if_unneeded(simplifier *f, gd_pstep *s) {
    const gd_program *p = f->p;
    if (s->removed || s->view) return false;
    const int to = find_equal_value(f, s);
    return to >= 0 && same_shape(&p->values[to], &p->values[s->out[0]]) &&
           !f->written[p->values[s->out[0]].root] && !f->written[p->values[to].root] &&
           replace_result(f, s, to);
}

gd_status gd_pass_simplify(gd_rewrite *r) {
    gd_program *p = r->program;
    simplifier f;
    gd_status status = init_simplifier(&f, p);
    const int united = status == GD_OK ? unite_views(&f) : 0;
    if (united < 0) status = GD_E_MEMORY;
    r->changes += united;
    for (int i = 0; i < p->n_steps && status == GD_OK; i++) {
        gd_pstep *s = &p->steps[i];
        replace_inputs(&f, s);
        r->changes += drop_if_unneeded(&f, s);
        for (int k = 0; k < s->n_out && !s->removed; k++)
            if (s->out[k] >= 0) f.producer[s->out[k]] = i;
    }
    if (status == GD_OK) replace_fetches(&f);
    free_simplifier(&f);
    return status;
}
