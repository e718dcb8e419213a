/* early_updates.c - a variable's new value is computed as soon as it can be.
 *
 * Variables here are also tensors outside that a plan assigns to, such as parameters that are leaves.
 * A graph holds all gradients first, then all updates, so every gradient would live to the end.
 * Here an update moves up, with those steps that only updates need, behind the last step that it
 * depends on or that still reads the old value. It stays behind all steps that may fail, since a
 * run that fails must leave the variables as they were (see can_write_through in plan/build.c).
 * Nothing but the order changes.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/lower/program.h"

enum { SMALL = 4096 }; /* bytes of numbers that several updates use: one for each parameter */

/* For each thing a list of numbers, in order: at[first[thing]], ..., before at[first[thing + 1]].
 */
typedef struct lists {
    int *first, *at;
} lists;

typedef struct early {
    gd_program *p;
    lists touching, writing; /* of each root: the steps that read or write it, and that write it */
    lists commits;           /* of each step: those whose new value's root it writes */
    bool *tail;              /* of each step: it is there for updates alone */
    int *ready;              /* of each step: it can run behind this one; -1: at once */
    int *view;               /* of each value: the step that makes it as a view; -1: none */
    bool *risks;             /* of each step: it may fail */
    bool *update, *put;      /* it gives a variable its new value; it has its new place */
    gd_pstep *order;
    int count;
} early;

static void end(early *e) {
    lists *const all[] = {&e->touching, &e->writing, &e->commits};
    for (int i = 0; i < 3; i++) {
        gd_free(all[i]->first);
        gd_free(all[i]->at);
    }
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

/* --- lists ------------------------------------------------------------------------------------ */

/* Calls `what` for each pair of a thing and a number, those of one thing from the last number to
 * the first. */
typedef void each(const early *e, void (*what)(lists *l, int thing, int number), lists *l);

static void count(lists *l, int thing, int number) {
    (void)number;
    l->first[thing]++;
}

static void fill(lists *l, int thing, int number) { l->at[--l->first[thing]] = number; }

static gd_status make_lists(const early *e, lists *l, int things, each *pairs) {
    l->first = gd_calloc((size_t)things + 1, sizeof *l->first);
    if (!l->first) return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    pairs(e, count, l);
    for (int i = 0; i < things; i++)
        l->first[i + 1] += l->first[i]; /* where thing i ends, so far */
    l->at = gd_malloc(((size_t)l->first[things] + 1) * sizeof *l->at);
    if (!l->at) return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    pairs(e, fill, l);
    return GD_OK;
}

/* The values of step i: inputs, then outputs. */
static int value_at(const gd_pstep *s, int k) {
    return k < s->n_in ? s->in[k] : s->out[k - s->n_in];
}

static void each_use(const early *e, void (*what)(lists *, int, int), lists *l, bool only_writes) {
    const gd_program *p = e->p;
    for (int i = p->n_steps; i-- > 0;) {
        const gd_pstep *s = &p->steps[i];
        for (int k = only_writes ? s->n_in : 0; k < s->n_in + s->n_out && !is_idle(s); k++) {
            const int root = root_of(p, value_at(s, k));
            if (root >= 0) what(l, root, i);
        }
    }
}

static void each_touching(const early *e, void (*what)(lists *, int, int), lists *l) {
    each_use(e, what, l, false);
}

static void each_writing(const early *e, void (*what)(lists *, int, int), lists *l) {
    each_use(e, what, l, true);
}

static void each_commit(const early *e, void (*what)(lists *, int, int), lists *l) {
    const lists *w = &e->writing;
    for (int i = e->p->n_commits; i-- > 0;) {
        const int fresh = root_of(e->p, e->p->commits[i].value);
        for (int u = w->first[fresh]; u < w->first[fresh + 1]; u++)
            if (u == w->first[fresh] || w->at[u] != w->at[u - 1]) what(l, w->at[u], i);
    }
}

/* The last of a list; -1: it is empty. */
static int last_of(const lists *l, int thing) {
    return l->first[thing + 1] > l->first[thing] ? l->at[l->first[thing + 1] - 1] : -1;
}

static gd_status begin(early *e, gd_program *p) {
    const size_t steps = (size_t)p->n_steps + 1;
    *e = (early){.p = p,
                 .tail = gd_calloc(3 * steps, sizeof(bool)),
                 .ready = gd_malloc(steps * sizeof(int)),
                 .view = gd_malloc(((size_t)p->n_values + 1) * sizeof(int)),
                 .order = gd_malloc(steps * sizeof *e->order),
                 .risks = gd_program_risks(p)};
    if (!e->risks || !e->tail || !e->ready || !e->view || !e->order)
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int v = 0; v < p->n_values; v++) e->view[v] = -1;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_out && p->steps[i].view && !p->steps[i].removed; k++)
            if (p->steps[i].out[k] >= 0) e->view[p->steps[i].out[k]] = i;
    e->update = e->tail + steps;
    e->put = e->update + steps;
    GD_TRY(make_lists(e, &e->touching, p->n_roots, each_touching));
    GD_TRY(make_lists(e, &e->writing, p->n_roots, each_writing));
    return make_lists(e, &e->commits, p->n_steps, each_commit);
}

/* --- what steps are --------------------------------------------------------------------------- */

/* Whether the step gives variables, or tensors outside, their new values, and they can be computed
 * right into them. */
static bool is_update(const early *e, int at) {
    const gd_program *p = e->p;
    for (int c = e->commits.first[at]; c < e->commits.first[at + 1]; c++) {
        const gd_commit *commit = &p->commits[e->commits.at[c]];
        const int fresh = root_of(p, commit->value), old = commit->root;
        if (!gd_commit_fills_alone(p, commit) || p->roots[old].bytes != p->roots[fresh].bytes ||
            p->roots[fresh].fetched)
            return false;
        if (last_of(&e->writing, fresh) > at) return false; /* a copy that is written later */
        if (last_of(&e->touching, old) > at) return false;  /* the old value is needed longer */
    }
    return e->commits.first[at + 1] > e->commits.first[at];
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
        const lists *users = &e->touching;
        for (int u = users->first[root], last = at; u < users->first[root + 1]; u++) {
            const int user = users->at[u];
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
        const lists *l = k < s->n_in ? &e->writing : &e->touching;
        if (root < 0) continue;
        for (int u = l->first[root]; u < l->first[root + 1] && l->at[u] < at; u++)
            what(e, l->at[u], at);
    }
    for (int c = e->commits.first[at]; c < e->commits.first[at + 1] && e->update[at]; c++) {
        const lists *l = &e->touching; /* who reads the old value */
        const int old = p->commits[e->commits.at[c]].root;
        for (int u = l->first[old]; u < l->first[old + 1] && l->at[u] < at; u++)
            if (reads(p, &p->steps[l->at[u]], old)) what(e, l->at[u], at);
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

int gd_pass_early_updates(gd_program *p) {
    if (p->n_commits == 0) return 0;
    early e;
    gd_status status = begin(&e, p);
    const int moving = status == GD_OK ? look(&e) : 0;
    if (moving > 0) status = reorder(&e);
    end(&e);
    return status == GD_OK ? moving : -1;
}
