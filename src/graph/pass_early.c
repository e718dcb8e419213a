/* pass_early.c - a variable's new value is computed as soon as it can be.
 *
 * Graphs are noted gradients first, then all updates, so that every gradient would live to the end.
 * Here an update moves up, with those steps that only updates need, behind the last step that it
 * depends on or that still reads the old value. It stays behind all steps that may fail, since a
 * run that fails must leave the variables as they were (see can_write_through in plan_build.c).
 * Nothing but the order changes.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/program.h"

enum { SMALL = 64 }; /* bytes of a number that several updates use */

typedef struct early {
    gd_program *p;
    int *first, *touching; /* steps that read or write root r: touching[first[r]] ..., in order */
    bool *tail;            /* of each step: it is there for updates alone */
    int *ready;            /* of each step: it can run behind this one; -1: at once */
    int *view;             /* of each value: the step that makes it as a view; -1: none */
    bool *risks;           /* of each step: it may fail */
    bool *update, *put;    /* it gives a variable its new value; it has its new place */
    gd_pstep *order;
    int count;
} early;

static void end(early *e) {
    gd_free(e->first);
    gd_free(e->touching);
    gd_free(e->tail);
    gd_free(e->ready);
    gd_free(e->view);
    gd_free(e->order);
    gd_free(e->risks);
}

static int root_of(const gd_program *p, int value) {
    return value < 0 ? -1 : p->values[value].root;
}

static bool is_idle(const gd_pstep *s) { return s->removed || s->view; }

static bool reads(const gd_program *p, const gd_pstep *s, int root) {
    for (int k = 0; k < s->n_in; k++)
        if (root_of(p, s->in[k]) == root) return true;
    return false;
}

static bool writes(const gd_program *p, const gd_pstep *s, int root) {
    for (int k = 0; k < s->n_out; k++)
        if (root_of(p, s->out[k]) == root) return true;
    return false;
}

/* The values of step i: inputs, then outputs. */
static int value_at(const gd_pstep *s, int k) {
    return k < s->n_in ? s->in[k] : s->out[k - s->n_in];
}

static gd_status begin(early *e, gd_program *p) {
    const size_t steps = (size_t)p->n_steps + 1;
    size_t uses = 1;
    for (int i = 0; i < p->n_steps; i++) uses += (size_t)(p->steps[i].n_in + p->steps[i].n_out);
    *e = (early){.p = p,
                 .first = gd_calloc((size_t)p->n_roots + 2, sizeof(int)),
                 .touching = gd_malloc(uses * sizeof(int))};
    e->tail = gd_calloc(3 * steps, sizeof(bool));
    e->ready = gd_malloc(steps * sizeof(int));
    e->view = gd_malloc(((size_t)p->n_values + 1) * sizeof(int));
    e->order = gd_malloc(steps * sizeof *e->order);
    e->risks = gd_program_risks(p);
    if (!e->risks || !e->first || !e->touching || !e->tail || !e->ready || !e->view || !e->order)
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int v = 0; v < p->n_values; v++) e->view[v] = -1;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_out && p->steps[i].view && !p->steps[i].removed; k++)
            if (p->steps[i].out[k] >= 0) e->view[p->steps[i].out[k]] = i;
    e->update = e->tail + steps;
    e->put = e->update + steps;
    for (int turn = 0; turn < 2;
         turn++) { /* how many, then which; first[r] ends where r + 1 begins */
        for (int i = p->n_steps; i-- > 0;)
            for (int k = 0; k < p->steps[i].n_in + p->steps[i].n_out && !is_idle(&p->steps[i]);
                 k++) {
                const int root = root_of(p, value_at(&p->steps[i], k));
                if (root < 0) continue;
                if (turn == 0)
                    e->first[root]++;
                else
                    e->touching[--e->first[root]] = i;
            }
        for (int r = 0; r <= p->n_roots && turn == 0; r++) e->first[r + 1] += e->first[r];
    }
    return GD_OK;
}

/* Whether the step gives variables their new values, and they can be computed right into them. */
static bool is_update(const early *e, int at) {
    const gd_program *p = e->p;
    bool any = false;
    for (int i = 0; i < p->n_commits; i++) {
        const int fresh = root_of(p, p->commits[i].value), old = p->commits[i].root;
        if (!writes(p, &p->steps[at], fresh)) continue;
        if (p->roots[old].kind != GD_ROOT_VARIABLE ||
            p->roots[old].bytes != p->roots[fresh].bytes || p->roots[fresh].fetched)
            return false;
        any = true;
        for (int u = e->first[fresh]; u < e->first[fresh + 1];
             u++) /* a copy that is written later */
            if (e->touching[u] > at && writes(p, &p->steps[e->touching[u]], fresh)) return false;
        for (int u = e->first[old]; u < e->first[old + 1]; u++) /* the old value is needed longer */
            if (e->touching[u] > at) return false;
    }
    return any;
}

/* Whether the step is there for updates alone: it makes a number for some, or a tensor for one.
 * Later steps are known. */
static bool is_tail(const early *e, int at) {
    const gd_program *p = e->p;
    const gd_pstep *s = &p->steps[at];
    if (!s->op->ir) return false;
    int readers = 0;
    bool small = true;
    for (int k = 0; k < s->n_out; k++) {
        const int root = root_of(p, s->out[k]);
        if (root < 0) continue;
        if (p->roots[root].fetched || p->roots[root].kind != GD_ROOT_TEMPORARY) return false;
        small &= p->roots[root].bytes <= SMALL;
        for (int u = e->first[root], last = at; u < e->first[root + 1]; u++) {
            const int user = e->touching[u];
            if (user <= last || (p->steps[user].op->flags & GD_OP_AWAITS))
                continue; /* which looks at no data */
            last = user;
            readers++;
            if (!e->tail[user] && !e->update[user]) return false;
        }
    }
    return readers == 1 || small;
}

/* Calls `what` for each step before `at` that must stay before it. */
static void for_dependencies(early *e, int at, void (*what)(early *e, int needed, int at)) {
    const gd_program *p = e->p;
    const gd_pstep *s = &p->steps[at];
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const int root = root_of(p, value_at(s, k));
        for (int u = root < 0 ? 0 : e->first[root];
             root >= 0 && u < e->first[root + 1] && e->touching[u] < at; u++)
            if (k >= s->n_in || writes(p, &p->steps[e->touching[u]], root))
                what(e, e->touching[u], at);
    }
    for (int i = 0; i < p->n_commits && e->update[at]; i++) { /* who reads the old value */
        const int old = p->commits[i].root;
        if (!writes(p, s, root_of(p, p->commits[i].value))) continue;
        for (int u = e->first[old]; u < e->first[old + 1] && e->touching[u] < at; u++)
            if (reads(p, &p->steps[e->touching[u]], old)) what(e, e->touching[u], at);
    }
}

static bool is_free(const early *e, int step) { return e->tail[step] || e->update[step]; }

static void wait_for(early *e, int needed, int at) {
    const int when = is_free(e, needed) ? e->ready[needed] : needed;
    if (when > e->ready[at]) e->ready[at] = when;
}

/* Says of each step what it is; returns how many updates can move up. */
static int look(early *e) {
    const gd_program *p = e->p;
    int risk = -1, moving = 0;
    for (int i = p->n_steps; i-- > 0;) {
        if (is_idle(&p->steps[i])) continue;
        if (e->risks[i]) {
            if (i > risk) risk = i;
            continue;
        }
        e->update[i] = i > risk && is_update(e, i);
        e->tail[i] = !e->update[i] && is_tail(e, i);
    }
    for (int i = 0; i < p->n_steps; i++) {
        e->ready[i] = -1;
        if (is_idle(&p->steps[i]) || !is_free(e, i)) continue;
        for_dependencies(e, i, wait_for);
        if (e->update[i] && e->ready[i] < risk) e->ready[i] = risk;
        moving += e->update[i] && e->ready[i] < i - 1;
    }
    return moving;
}

/* The step, behind what it needs. */
static void put(early *e, int step, int at) {
    (void)at;
    if (e->put[step]) return;
    e->put[step] = true;
    const gd_pstep *s = &e->p->steps[step];
    if (!is_idle(s)) for_dependencies(e, step, put);
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] >= 0 && e->view[s->in[k]] >= 0) put(e, e->view[s->in[k]], step);
    e->order[e->count++] = e->p->steps[step];
}

static void put_ready(early *e, const int *bucket, const int *next, int when) {
    for (int u = bucket[when + 1]; u >= 0; u = next[u]) put(e, u, -1);
}

static gd_status reorder(early *e) {
    gd_program *p = e->p;
    int *bucket = gd_malloc((2 * (size_t)p->n_steps + 2) * sizeof *bucket),
        *next = bucket + p->n_steps + 1;
    if (!bucket) return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int i = 0; i <= p->n_steps; i++) bucket[i] = -1;
    for (int i = p->n_steps; i-- > 0;) {
        if (!e->update[i]) continue;
        next[i] = bucket[e->ready[i] + 1];
        bucket[e->ready[i] + 1] = i;
    }
    put_ready(e, bucket, next, -1);
    for (int i = 0; i < p->n_steps; i++) {
        put(e, i, -1);
        put_ready(e, bucket, next, i);
    }
    memcpy(p->steps, e->order, (size_t)p->n_steps * sizeof *p->steps);
    gd_free(bucket);
    return GD_OK;
}

int gd_pass_early(gd_program *p) {
    if (p->n_commits == 0) return 0;
    early e;
    gd_status status = begin(&e, p);
    const int moving = status == GD_OK ? look(&e) : 0;
    if (moving > 0) status = reorder(&e);
    end(&e);
    return status == GD_OK ? moving : -1;
}
