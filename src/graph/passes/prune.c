/* prune.c - dead-code elimination: removes steps and hidden outputs that nothing reads. */
#include <string.h>

#include "core/alloc.h"
#include "graph/lower/program.h"

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

int gd_pass_prune(gd_program *p) {
    live_marks m = {gd_calloc((size_t)p->n_values + 1, 1), gd_calloc((size_t)p->n_roots + 1, 1)};
    int changes = 0;
    if (!m.value || !m.root) {
        gd_free(m.value);
        gd_free(m.root);
        gd_no_memory(NULL, "to plan a run");
        return -1;
    }
    for (int i = 0; i < p->n_fetches; i++) mark_value(p, &m, p->fetches[i]);
    for (int i = 0; i < p->n_commits; i++) mark_value(p, &m, p->commits[i].value);
    for (int i = p->n_steps; i-- > 0;) {
        gd_pstep *s = &p->steps[i];
        if (s->removed) continue;
        if (!is_needed(p, &m, s)) {
            s->removed = true;
            changes++;
            continue;
        }
        for (int k = 0; k < s->n_out; k++)
            if (s->out[k] >= 0 && is_hidden(s, k) && !m.root[p->values[s->out[k]].root]) {
                s->out[k] = GD_UNWANTED(s->out[k]);
                changes++;
            }
        for (int k = 0; k < s->n_in; k++) mark_value(p, &m, s->in[k]);
    }
    gd_free(m.value);
    gd_free(m.root);
    return changes;
}
