/* uses.c - lists of the steps that use a value or a root (uses.h). */
#include "graph/passes/uses.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/grow.h"

static bool extend(int **lists, int from, int to) {
    int *grown = gd_realloc(*lists, ((size_t)to + 1) * sizeof *grown);
    if (!grown) return false;
    for (int i = from; i < to; i++) grown[i] = -1;
    *lists = grown;
    return true;
}

/* Makes room for values and roots that were added to the program. */
static bool extend_lists(gd_uses *u) {
    const gd_program *p = u->program;
    if (u->n_values < p->n_values) {
        const int n = 2 * p->n_values;
        if (!extend(&u->factories, u->n_values, n) || !extend(&u->next_value, u->n_values, n))
            return false;
        u->n_values = n;
    }
    if (u->n_roots < p->n_roots) {
        const int n = 2 * p->n_roots;
        if (!extend(&u->readers, u->n_roots, n) || !extend(&u->writers, u->n_roots, n) ||
            !extend(&u->values, u->n_roots, n))
            return false;
        u->n_roots = n;
    }
    return true;
}

static bool add_entry(gd_uses *u, int *list, int step, int place) {
    if (!gd_grow(u->entries, u->count, u->room)) return false;
    u->entries[u->count] = (gd_use){step, place, *list};
    *list = u->count++;
    return true;
}

static bool add_step(gd_uses *u, int step) {
    const gd_program *p = u->program;
    const gd_pstep *s = &p->steps[step];
    bool room = extend_lists(u);
    for (int k = 0; k < s->n_in && room; k++)
        if (s->in[k] >= 0) room = add_entry(u, &u->readers[p->values[s->in[k]].root], step, k);
    for (int k = 0; k < s->n_out && room; k++) {
        if (s->out[k] < 0) continue;
        room = add_entry(u, &u->factories[s->out[k]], step, k) &&
               (s->view || add_entry(u, &u->writers[p->values[s->out[k]].root], step, k));
    }
    return room;
}

void gd_uses_add(gd_uses *u, int step) { u->incomplete |= !add_step(u, step); }

gd_status gd_uses_make(gd_uses *u, const gd_program *p) {
    *u = (gd_uses){.program = p};
    for (int i = 0; i < p->n_steps; i++)
        if (!p->steps[i].removed) gd_uses_add(u, i);
    return u->incomplete ? gd_no_memory(NULL, "to plan a run") : GD_OK;
}

void gd_uses_free(gd_uses *u) {
    gd_free(u->factories);
    gd_free(u->readers);
    gd_free(u->writers);
    gd_free(u->values);
    gd_free(u->next_value);
    gd_free(u->entries);
}

gd_status gd_uses_end(gd_uses *u) {
    gd_uses_free(u);
    return u->incomplete ? gd_no_memory(NULL, "to plan a run") : GD_OK;
}

/* --- roots ------------------------------------------------------------------------------------ */

int gd_uses_values(gd_uses *u, int root) {
    if (u->n_listed < u->program->n_values && !extend_lists(u)) {
        u->incomplete = true;
        return -1;
    }
    for (; u->n_listed < u->program->n_values; u->n_listed++) {
        int *list = &u->values[u->program->values[u->n_listed].root];
        u->next_value[u->n_listed] = *list;
        *list = u->n_listed;
    }
    return u->values[root];
}

static void join_entries(gd_uses *u, int *from, int *to) {
    int *end = from;
    while (*end >= 0) end = &u->entries[*end].next;
    *end = *to;
    *to = *from;
    *from = -1;
}

void gd_uses_join_roots(gd_uses *u, int from, int to) {
    int *end = &u->values[from];
    while (*end >= 0) end = &u->next_value[*end];
    *end = u->values[to];
    u->values[to] = u->values[from];
    u->values[from] = -1;
    join_entries(u, &u->readers[from], &u->readers[to]);
    join_entries(u, &u->writers[from], &u->writers[to]);
}

/* --- searches --------------------------------------------------------------------------------- */

int gd_uses_producer(const gd_uses *u, int value, int before) {
    int found = -1;
    for (int e = value >= 0 && value < u->n_values ? u->factories[value] : -1; e >= 0;
         e = u->entries[e].next) {
        const int i = u->entries[e].step, place = u->entries[e].place;
        const gd_pstep *s = &u->program->steps[i];
        if (s->removed || i >= before || i <= found) continue;
        bool gives = place < s->n_out && s->out[place] == value;
        for (int k = 0; k < s->n_out && !gives; k++) gives = s->out[k] == value; /* it changed */
        if (gives) found = i;
    }
    return found;
}

static bool has_root(const gd_program *p, const int *values, int n, int root) {
    for (int k = 0; k < n; k++)
        if (values[k] >= 0 && p->values[values[k]].root == root) return true;
    return false;
}

bool gd_uses_writes(const gd_uses *u, int root, int first, int end, int but) {
    for (int e = root < u->n_roots ? u->writers[root] : -1; e >= 0; e = u->entries[e].next) {
        const int i = u->entries[e].step;
        const gd_pstep *s = &u->program->steps[i];
        if (i >= first && i < end && i != but && !s->removed && !s->view &&
            has_root(u->program, s->out, s->n_out, root))
            return true;
    }
    return false;
}

bool gd_uses_touches(const gd_uses *u, int root, int first, int end, int but) {
    for (int e = gd_uses_readers(u, root); e >= 0; e = u->entries[e].next) {
        const int i = u->entries[e].step;
        const gd_pstep *s = &u->program->steps[i];
        if (i >= first && i < end && i != but && !s->removed && !s->view &&
            has_root(u->program, s->in, s->n_in, root))
            return true;
    }
    return gd_uses_writes(u, root, first, end, but);
}
