/* drop_groups.c - drops groups whose operands are all computed, on asynchronous devices: the entry of
 * a run stores their results, which saves a kernel call. */
#include "core/alloc.h"
#include "graph/passes/passes.h"

gd_status gd_pass_drop_groups(gd_rewrite *r) {
    gd_program *p = r->program;
    int *readers = gd_program_readers(p);
    if (!readers) return GD_E_MEMORY;
    for (int i = 0; i < p->n_steps; i++) {
        gd_pstep *s = &p->steps[i];
        if (s->removed || !(s->op->flags & GD_OP_AWAITS) || s->n_in > 0) continue;
        const int root = gd_value_root(p, s->out[0]);
        int fetches = 0;
        for (int k = 0; k < p->n_fetches; k++) fetches += gd_value_root(p, p->fetches[k]) == root;
        if (root < 0 || !p->roots[root].fetched || readers[root] != fetches) continue;
        p->roots[root].always_true = true;
        s->removed = true;
        r->changes++;
    }
    gd_free(readers);
    return GD_OK;
}
