/* cse.c - what is computed twice is computed once.
 *
 * Two steps are the same if they have the same op, options and inputs. Random ops are not, nor ops
 * that write their inputs or call functions of the program. The later one goes, and what looked
 * into its results looks into those of the earlier one.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/lower/program.h"

static bool same_work(const gd_pstep *a, const gd_pstep *b) {
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out) return false;
    if (memcmp(a->in, b->in, (size_t)a->n_in * sizeof *a->in) != 0) return false;
    return gd_same_options(a, b);
}

static bool is_plain(const gd_program *p, const gd_pstep *s, const int *writes) {
    if (s->removed || (s->op->flags & (GD_OP_RANDOM | GD_OP_CALLS))) return false;
    for (int i = 0; i < s->op->n_inputs; i++)
        if (s->op->inputs[i].mutated) return false;
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k] >= 0 && writes[p->values[s->out[k]].root] > 1) return false;
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] >= 0 && writes[p->values[s->in[k]].root] > 1) return false;
    return true;
}

static void unite(gd_program *p, gd_pstep *gone, gd_pstep *kept) {
    for (int k = 0; k < gone->n_out; k++) {
        if (gone->out[k] < 0) continue;
        if (kept->out[k] < 0) { /* nobody wanted it there */
            kept->out[k] = gone->out[k];
            continue;
        }
        const int from = p->values[gone->out[k]].root, to = p->values[kept->out[k]].root;
        for (int v = 0; v < p->n_values && !gone->view; v++) /* views of the result */
            if (p->values[v].root == from) p->values[v].root = to;
        gd_program_replace(p, gone->out[k], kept->out[k]);
    }
    gone->removed = true;
}

static uint32_t hash_of(const gd_pstep *s) {
    uint64_t hash = (uintptr_t)s->op;
    for (int k = 0; k < s->n_in; k++)
        hash = (hash ^ (uint64_t)(uint32_t)s->in[k]) * 0x9e3779b97f4a7c15u;
    return (uint32_t)((hash * 0x9e3779b97f4a7c15u) >> 32);
}

/* Steps that have been seen, by what they compute. */
typedef struct step_set {
    int *first; /* of each hash modulo `size`, a power of two: a step, or -1 */
    int *next;  /* of each step: the one seen before it with the same; -1: none */
    uint32_t size;
} step_set;

static bool begin(step_set *s, int n_steps) {
    s->size = 64;
    while (s->size < (uint32_t)n_steps) s->size *= 2;
    s->first = gd_malloc((s->size + (size_t)n_steps) * sizeof *s->first);
    if (!s->first) return gd_fail(GD_E_MEMORY, "no memory to plan a run"), false;
    s->next = s->first + s->size;
    memset(s->first, -1, s->size * sizeof *s->first);
    return true;
}

int gd_pass_cse(gd_program *p) {
    int *writes = gd_program_writes(p),
        changes = 0; /* contents of roots written twice change meanwhile */
    step_set seen;
    if (!writes) return -1;
    if (!begin(&seen, p->n_steps)) return gd_free(writes), -1;
    for (int i = 0; i < p->n_steps; i++) {
        gd_pstep *s = &p->steps[i];
        if (!is_plain(p, s, writes)) continue;
        int *first = &seen.first[hash_of(s) & (seen.size - 1)], same = *first;
        while (same >= 0 && !same_work(&p->steps[same], s)) same = seen.next[same];
        if (same >= 0) {
            unite(p, s, &p->steps[same]);
            changes++;
        } else {
            seen.next[i] = *first;
            *first = i;
        }
    }
    gd_free(seen.first);
    gd_free(writes);
    return changes;
}
