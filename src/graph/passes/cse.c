/* cse.c - common subexpression elimination.
 *
 * Two steps are the same if they have the same op, options and inputs. Random ops are never the
 * same, nor ops that write their inputs or call functions of the program. The later step is removed,
 * and its readers and views use the results of the earlier one.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/index_set.h"
#include "graph/passes/passes.h"

static bool is_same_step(const gd_pstep *a, const gd_pstep *b) {
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out) return false;
    if (memcmp(a->in, b->in, (size_t)a->n_in * sizeof *a->in) != 0) return false;
    return gd_same_options(a, b);
}

/* Roots that are written twice change their contents, so their readers are not shared either. */
static bool can_be_shared(const gd_program *p, const gd_pstep *s, const int *writes) {
    if (s->removed || (s->op->flags & (GD_OP_RANDOM | GD_OP_CALLS))) return false;
    for (int i = 0; i < s->op->n_inputs; i++)
        if (s->op->inputs[i].mutated) return false;
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k] >= 0 && writes[p->values[s->out[k]].root] > 1) return false;
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] >= 0 && writes[p->values[s->in[k]].root] > 1) return false;
    return true;
}

/* What removed steps computed is replaced: value_to[v] by value, and root_to[r] by root. */
typedef struct replacements {
    int *value_to, *root_to;
} replacements;

static gd_status make_replacements(const gd_program *p, replacements *r) {
    r->value_to = gd_malloc((size_t)(p->n_values + p->n_roots + 1) * sizeof *r->value_to);
    if (!r->value_to) return gd_no_memory(NULL, "to plan a run");
    r->root_to = r->value_to + p->n_values;
    for (int v = 0; v < p->n_values; v++) r->value_to[v] = v;
    for (int k = 0; k < p->n_roots; k++) r->root_to[k] = k;
    return GD_OK;
}

/* Removes `gone`, which computes the same as the earlier step `kept`. */
static void replace_step(const gd_program *p, replacements *r, gd_pstep *gone, gd_pstep *kept) {
    for (int k = 0; k < gone->n_out; k++) {
        if (gone->out[k] < 0) continue;
        if (kept->out[k] < 0) { /* it is unused there */
            kept->out[k] = gone->out[k];
            continue;
        }
        const int from = p->values[gone->out[k]].root, to = p->values[kept->out[k]].root;
        if (!gone->view) r->root_to[from] = to; /* for views of the result */
        r->value_to[gone->out[k]] = kept->out[k];
    }
    gone->removed = true;
}

static void replace_inputs(const replacements *r, gd_pstep *s) {
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] >= 0) s->in[k] = r->value_to[s->in[k]];
}

static void replace_others(gd_program *p, const replacements *r) {
    for (int v = 0; v < p->n_values; v++) p->values[v].root = r->root_to[p->values[v].root];
    for (int i = 0; i < p->n_fetches; i++) p->fetches[i] = r->value_to[p->fetches[i]];
    for (int i = 0; i < p->n_commits; i++) p->commits[i].value = r->value_to[p->commits[i].value];
}

static uint64_t hash_step(const gd_pstep *s) {
    uint64_t hash = gd_hash_mix(0, (uintptr_t)s->op);
    for (int k = 0; k < s->n_in; k++) hash = gd_hash_mix(hash, (uint64_t)s->in[k]);
    return gd_hash_options(hash, s);
}

/* An earlier step that computes the same; -1: none. */
static int find_same_step(const gd_program *p, const gd_index_set *seen, uint64_t hash,
                          const gd_pstep *s) {
    int same;
    for (size_t probe = 0; (same = gd_index_set_next(seen, hash, &probe)) >= 0;)
        if (is_same_step(&p->steps[same], s)) break;
    return same;
}

gd_status gd_pass_cse(gd_rewrite *r) {
    gd_program *p = r->program;
    int *writes = gd_program_writes(p);
    replacements replaced = {NULL, NULL};
    gd_index_set seen = {0};
    gd_status status = writes ? make_replacements(p, &replaced) : GD_E_MEMORY;
    for (int i = 0; i < p->n_steps && status == GD_OK; i++) {
        gd_pstep *s = &p->steps[i];
        replace_inputs(&replaced, s);
        if (!can_be_shared(p, s, writes)) continue;
        const uint64_t hash = hash_step(s);
        const int same = find_same_step(p, &seen, hash, s);
        if (same >= 0) {
            replace_step(p, &replaced, s, &p->steps[same]);
            r->changes++;
        } else if (!gd_index_set_add(&seen, hash, i)) {
            status = gd_no_memory(NULL, "to plan a run");
        }
    }
    if (r->changes > 0) replace_others(p, &replaced);
    gd_index_set_free(&seen);
    gd_free(replaced.value_to);
    gd_free(writes);
    return status;
}
