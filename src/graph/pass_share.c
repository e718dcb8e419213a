/* pass_share.c - what is computed twice is computed once.
 *
 * Two steps are the same if they have the same op, options and inputs. Random ops are not, nor ops
 * that write their inputs. The later one goes, and what looked into its results looks into those of
 * the earlier one.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/program.h"

static bool same_work(const gd_pstep *a, const gd_pstep *b) {
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out) return false;
    if (memcmp(a->in, b->in, (size_t)a->n_in * sizeof *a->in) != 0) return false;
    return gd_same_options(a, b);
}

static bool is_plain(const gd_program *p, const gd_pstep *s, const int *writes) {
    if (s->removed || (s->op->flags & GD_OP_RANDOM)) return false;
    for (int i = 0; i < s->op->n_inputs; i++)
        if (s->op->inputs[i].mutated) return false;
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k] >= 0 && writes[p->values[s->out[k]].root] > 1) return false;
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] >= 0 && writes[p->values[s->in[k]].root] > 1) return false;
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
    int *writes = gd_program_writes(p), changes = 0; /* contents of roots written twice change meanwhile */
    if (!writes) return -1;
    for (int i = 0; i < p->n_steps; i++) {
        if (!is_plain(p, &p->steps[i], writes)) continue;
        for (int k = i + 1; k < p->n_steps; k++) {
            if (p->steps[k].op != p->steps[i].op || !is_plain(p, &p->steps[k], writes)) continue;
            if (!same_work(&p->steps[i], &p->steps[k])) continue;
            unite(p, &p->steps[k], &p->steps[i]);
            changes++;
        }
    }
    gd_free(writes);
    return changes;
}
