/* pass_share.c - what is computed twice is computed once.
 *
 * Two steps are the same if they have the same op, options and inputs. Random ops are not, nor ops
 * that write their inputs. The later one goes, and what looked into its results looks into those of
 * the earlier one.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/program.h"

static bool same_option(const gd_op_attr *a, const char *x, const char *y) {
    switch (a->type) {
    case GD_ATTR_INT: return memcmp(x, y, sizeof(int64_t)) == 0;
    case GD_ATTR_FLOAT: return memcmp(x, y, sizeof(double)) == 0;
    case GD_ATTR_BOOL: return *(const bool *)x == *(const bool *)y;
    case GD_ATTR_INTS: return memcmp(x, y, (size_t)a->count * sizeof(int64_t)) == 0;
    case GD_ATTR_SHAPE: {
        const gd_shape *s = (const gd_shape *)x, *t = (const gd_shape *)y;
        return s->rank == t->rank && s->form == t->form && memcmp(s->at, t->at, sizeof(int64_t) * (size_t)(s->rank > 0 ? s->rank : 0)) == 0;
    }
    case GD_ATTR_WORD: return *(const gd_word *)x == *(const gd_word *)y;
    case GD_ATTR_DTYPE: return *(const gd_dtype *)x == *(const gd_dtype *)y;
    case GD_ATTR_STRING: {
        const char *s = *(const char *const *)x, *t = *(const char *const *)y;
        return s == t || (s && t && strcmp(s, t) == 0);
    }
    case GD_ATTR_GRAPH: return *(gd_subgraph *const *)x == *(gd_subgraph *const *)y;
    }
    return false;
}

static bool same_work(const gd_pstep *a, const gd_pstep *b) {
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out) return false;
    if (memcmp(a->in, b->in, (size_t)a->n_in * sizeof *a->in) != 0) return false;
    if (a->attrs == b->attrs) return true;
    if (!a->attrs || !b->attrs) return false;
    for (int i = 0; i < a->op->n_attrs; i++) {
        const gd_op_attr *attr = &a->op->attrs[i];
        if (!same_option(attr, (const char *)a->attrs + attr->offset, (const char *)b->attrs + attr->offset)) return false;
    }
    return true;
}

/* Roots that more than one step writes: their contents change during the run. */
static bool *written_again(const gd_program *p) {
    bool *once = gd_calloc((size_t)p->n_roots + 1, 2), *again = once + p->n_roots + 1;
    if (!once) return NULL;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        for (int k = 0; k < s->n_out && !s->view && !s->removed; k++) {
            if (s->out[k] < 0) continue;
            const int root = p->values[s->out[k]].root;
            if (once[root]) again[root] = true;
            once[root] = true;
        }
    }
    return once;
}

static bool is_plain(const gd_program *p, const gd_pstep *s, const bool *again) {
    if (s->removed || (s->op->flags & GD_OP_RANDOM)) return false;
    for (int i = 0; i < s->op->n_inputs; i++)
        if (s->op->inputs[i].mutated) return false;
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k] >= 0 && again[p->values[s->out[k]].root]) return false;
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] >= 0 && again[p->values[s->in[k]].root]) return false;
    return true;
}

static void unite(gd_program *p, gd_pstep *gone, const gd_pstep *kept) {
    for (int k = 0; k < gone->n_out; k++) {
        if (gone->out[k] < 0) continue;
        const int from = p->values[gone->out[k]].root, to = p->values[kept->out[k]].root;
        for (int v = 0; v < p->n_values && !gone->view; v++) /* views of the result */
            if (p->values[v].root == from) p->values[v].root = to;
        gd_program_replace(p, gone->out[k], kept->out[k]);
    }
    gone->removed = true;
}

int gd_pass_share(gd_program *p) {
    bool *once = written_again(p), *again = once + p->n_roots + 1;
    int changes = 0;
    if (!once) {
        gd_fail(GD_E_MEMORY, "no memory to plan a run");
        return -1;
    }
    for (int i = 0; i < p->n_steps; i++) {
        if (!is_plain(p, &p->steps[i], again)) continue;
        for (int k = i + 1; k < p->n_steps; k++) {
            if (p->steps[k].op != p->steps[i].op || !is_plain(p, &p->steps[k], again)) continue;
            if (!same_work(&p->steps[i], &p->steps[k])) continue;
            unite(p, &p->steps[k], &p->steps[i]);
            changes++;
        }
    }
    gd_free(once);
    return changes;
}
