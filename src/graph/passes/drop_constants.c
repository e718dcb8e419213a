/* drop_constants.c - frees constants that no step reads any more, because they were folded into
 * others. */
#include "core/alloc.h"
#include "graph/passes/passes.h"

gd_status gd_pass_drop_constants(gd_rewrite *r) {
    gd_program *p = r->program;
    bool *read = gd_calloc((size_t)p->n_roots + 1, sizeof *read);
    if (!read) return gd_no_memory(NULL, "to plan a run");
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_in && !p->steps[i].removed; k++)
            if (p->steps[i].in[k] >= 0) read[p->values[p->steps[i].in[k]].root] = true;
    for (int i = 0; i < p->n_fetches; i++) read[p->values[p->fetches[i]].root] = true;
    for (int i = 0; i < p->n_commits; i++) read[p->values[p->commits[i].value].root] = true;
    for (int i = 0; i < p->n_roots; i++) {
        gd_root *root = &p->roots[i];
        if (!root->constant || read[i]) continue;
        gd_storage_release(root->storage);
        *root = (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = root->bytes};
        r->changes++;
    }
    gd_free(read);
    return GD_OK;
}
