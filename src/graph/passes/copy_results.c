/* copy_results.c - copies results of a run that are no temporaries: a fetch of a feed, a variable or a
 * constant, and a commit of another variable's old value. */
#include <string.h>

#include "graph/passes/passes.h"
#include "dispatch/op.h"

/* Adds a step at the start that copies a value which is not a temporary. -1: no memory. */
static int copy_at_start(gd_program *p, int value, bool fetched) {
    const gd_pvalue v = p->values[value];
    size_t bytes;
    if (gd_dims_bytes(v.rank, v.dims, (gd_dtype)v.dtype, &bytes) != GD_OK) return -1;
    gd_pvalue copy = v;
    copy.root = gd_program_root(
        p, (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = bytes, .fetched = fetched});
    copy.offset = 0;
    gd_row_major(v.rank, v.dims, copy.strides);
    int *ids = gd_program_alloc(p, 2 * sizeof *ids);
    if (copy.root < 0 || !ids || !gd_program_step(p)) return -1;
    ids[0] = value;
    ids[1] = gd_program_value(p, copy);
    if (ids[1] < 0) return -1;
    memmove(p->steps + 1, p->steps, (size_t)(p->n_steps - 1) * sizeof *p->steps);
    p->steps[0] =
        (gd_pstep){.op = gd_op_find("clone"), .n_in = 1, .n_out = 1, .in = ids, .out = ids + 1};
    return ids[1];
}

gd_status gd_pass_copy_results(gd_rewrite *r) {
    gd_program *p = r->program;
    for (int i = 0; i < p->n_fetches; i++) {
        gd_root *root = &p->roots[p->values[p->fetches[i]].root];
        if (root->kind == GD_ROOT_TEMPORARY) {
            root->fetched = true;
            continue;
        }
        if ((p->fetches[i] = copy_at_start(p, p->fetches[i], true)) < 0) return gd_failure();
        r->changes++;
    }
    for (int i = 0; i < p->n_commits; i++) {
        const gd_root_kind kind = p->roots[p->values[p->commits[i].value].root].kind;
        if (kind != GD_ROOT_VARIABLE && kind != GD_ROOT_CAPTURED) continue;
        /* that variable may be committed first */
        if ((p->commits[i].value = copy_at_start(p, p->commits[i].value, false)) < 0)
            return gd_failure();
        r->changes++;
    }
    return GD_OK;
}
