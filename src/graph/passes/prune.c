/* prune.c - dead-code elimination: removes steps and hidden outputs that nothing reads.
 *
 * A step such as group awaits its operands: they must be computed, but it reads none of them. If a
 * step runs for another reason, because its results are read or committed, awaiting it has no
 * effect. The operand is dropped, so that its memory is free after the last reader and fusion passes
 * see its true readers. */
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/passes.h"

/* Values that are read, and their roots: steps that write a marked root stay. */
typedef struct live_marks {
    bool *value, *root;
} live_marks;

static void mark_value(const gd_program *p, live_marks *m, int value) {
    if (value < 0) return;
    m->value[value] = true;
    m->root[p->values[value].root] = true;
}

static bool is_needed(const gd_program *p, const live_marks *m, const gd_pstep *s) {
    for (int k = 0; k < s->n_out; k++) {
        if (s->out[k] < 0) continue;
        if (s->view ? m->value[s->out[k]] : m->root[p->values[s->out[k]].root]) return true;
    }
    return false;
}

static bool is_hidden(const gd_pstep *s, int output) {
    const gd_op *op = s->op;
    if (output >= op->n_outputs) return false; /* an item of a list, or an input that is written */
    return op->outputs[output].hidden;
}

/* Drops the operands that a step awaits, except for those in the marked roots. */
static int drop_awaited(const gd_program *p, gd_pstep *s, const bool *kept) {
    int n = 0;
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] >= 0 && kept[p->values[s->in[k]].root]) s->in[n++] = s->in[k];
    const int dropped = s->n_in - n;
    s->n_in = n;
    return dropped;
}

static gd_status init_marks(const gd_program *p, live_marks *m) {
    m->value = gd_calloc((size_t)p->n_values + 1, 1);
    m->root = gd_calloc((size_t)p->n_roots + 1, 1);
    return m->value && m->root ? GD_OK : gd_no_memory(NULL, "to plan a run");
}

static void free_marks(live_marks *m) {
    gd_free(m->value);
    gd_free(m->root);
}

/* Removes outputs without readers of a step that stays, and marks its operands. */
static int prune_step(const gd_program *p, gd_pstep *s, live_marks *read, live_marks *awaited) {
    int changes = 0;
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k] >= 0 && is_hidden(s, k) && !read->root[p->values[s->out[k]].root] &&
            !awaited->root[p->values[s->out[k]].root]) {
            s->out[k] = GD_UNWANTED(s->out[k]);
            changes++;
        }
    live_marks *marks = s->op->flags & GD_OP_AWAITS ? awaited : read;
    for (int k = 0; k < s->n_in; k++) mark_value(p, marks, s->in[k]);
    return changes;
}

/* Goes backwards through the steps. `kept` gets the roots that only awaiting steps need. */
static int prune_steps(gd_program *p, live_marks *read, live_marks *awaited, bool *kept) {
    int changes = 0;
    for (int i = p->n_steps; i-- > 0;) {
        gd_pstep *s = &p->steps[i];
        if (s->removed) continue;
        const bool is_read = is_needed(p, read, s), is_awaited = is_needed(p, awaited, s);
        if (!is_read && s->view) /* an awaited view: its operand is awaited */
            for (int k = 0; k < s->n_in && is_awaited; k++) mark_value(p, awaited, s->in[k]);
        if (!is_read && (s->view || !is_awaited)) {
            s->removed = true;
            changes++;
            continue;
        }
        for (int k = 0; k < s->n_out && !is_read; k++)
            if (s->out[k] >= 0) kept[p->values[s->out[k]].root] = true;
        changes += prune_step(p, s, read, awaited);
    }
    return changes;
}

gd_status gd_pass_prune(gd_rewrite *r) {
    gd_program *p = r->program;
    live_marks read = {NULL, NULL}, awaited = {NULL, NULL};
    bool *kept = gd_calloc((size_t)p->n_roots + 1, sizeof *kept);
    gd_status status = kept ? GD_OK : gd_no_memory(NULL, "to plan a run");
    if (status == GD_OK) status = init_marks(p, &read);
    if (status == GD_OK) status = init_marks(p, &awaited);
    if (status == GD_OK) {
        for (int i = 0; i < p->n_fetches; i++) mark_value(p, &read, p->fetches[i]);
        for (int i = 0; i < p->n_commits; i++) mark_value(p, &read, p->commits[i].value);
        r->changes += prune_steps(p, &read, &awaited, kept);
        for (int i = 0; i < p->n_steps; i++)
            if (!p->steps[i].removed && (p->steps[i].op->flags & GD_OP_AWAITS))
                r->changes += drop_awaited(p, &p->steps[i], kept);
    }
    free_marks(&read);
    free_marks(&awaited);
    gd_free(kept);
    return status;
}
