/* early_updates.c - moves updates of variables up, to the earliest position that is possible.
 *
 * Variables are here also captured tensors that a plan assigns, such as parameters. A graph has all
 * gradients first, then all updates, so every gradient would be live to the end. This pass moves an
 * update, and the steps that only updates need, up to the last step that it depends on or that
 * reads the old value. It stays after all steps that may fail, since a failed run must not change
 * variables (see can_write_through in plan/liveness.c). Only the order of steps changes.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/passes.h"

/* The most bytes of a value that several updates may share, such as one value per parameter. */
enum { SMALL = 4096 };

/* A sorted list of numbers for each key: at[first[key]], ..., before at[first[key + 1]]. */
typedef struct key_lists {
    int *first, *at;
} key_lists;

typedef struct update_mover {
    gd_program *p;
    key_lists touching; /* per root: the steps that read or write it */
    key_lists writing;  /* per root: the steps that write it */
    key_lists commits;  /* per step: the commits whose value's root it writes */
    bool *tail;         /* per step: only updates need it */
    int *ready;         /* per step: the step after which it can run; -1: at the start */
    int *view;          /* per value: the view step that has it as a result; -1: none */
    bool *risks;        /* per step: it may fail */
    bool *update;       /* per step: it computes the new value of a variable */
    bool *put;          /* per step: it is in `order` */
    gd_pstep *order;    /* the steps in their new order */
    int count;
} update_mover;

static void free_mover(update_mover *e) {
    key_lists *const all[] = {&e->touching, &e->writing, &e->commits};
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

static bool is_idle(const gd_pstep *s) { return s->removed || s->view; }

static bool reads_root(const gd_program *p, const gd_pstep *s, int root) {
    for (int k = 0; k < s->n_in; k++)
        if (gd_value_root(p, s->in[k]) == root) return true;
    return false;
}

/* --- lists ------------------------------------------------------------------------------------ */

/* A function that calls `what` for each pair of a key and a number, the numbers of a key in
 * descending order. */
typedef void pair_source(const update_mover *e, void (*what)(key_lists *l, int key, int number),
                         key_lists *l);

static void count_pair(key_lists *l, int key, int number) {
    (void)number;
    l->first[key]++;
}

static void store_pair(key_lists *l, int key, int number) { l->at[--l->first[key]] = number; }

static gd_status fill_lists(const update_mover *e, key_lists *l, int n_keys, pair_source *pairs) {
    l->first = gd_calloc((size_t)n_keys + 1, sizeof *l->first);
    if (!l->first) return gd_no_memory(NULL, "to plan a run");
    pairs(e, count_pair, l);
    for (int i = 0; i < n_keys; i++)
        l->first[i + 1] +=
            l->first[i]; /* where the list of key i ends; store_pair moves it to the start */
    l->at = gd_malloc(((size_t)l->first[n_keys] + 1) * sizeof *l->at);
    if (!l->at) return gd_no_memory(NULL, "to plan a run");
    pairs(e, store_pair, l);
    return GD_OK;
}

/* Value k of a step: its inputs, then its outputs. */
static int value_at(const gd_pstep *s, int k) {
    return k < s->n_in ? s->in[k] : s->out[k - s->n_in];
}

static void each_use(const update_mover *e, void (*what)(key_lists *, int, int), key_lists *l,
                     bool only_writes) {
    const gd_program *p = e->p;
    for (int i = p->n_steps; i-- > 0;) {
        const gd_pstep *s = &p->steps[i];
        for (int k = only_writes ? s->n_in : 0; k < s->n_in + s->n_out && !is_idle(s); k++) {
            const int root = gd_value_root(p, value_at(s, k));
            if (root >= 0) what(l, root, i);
        }
    }
}

static void each_touching(const update_mover *e, void (*what)(key_lists *, int, int),
                          key_lists *l) {
    each_use(e, what, l, false);
}

static void each_writing(const update_mover *e, void (*what)(key_lists *, int, int), key_lists *l) {
    each_use(e, what, l, true);
}

static void each_commit(const update_mover *e, void (*what)(key_lists *, int, int), key_lists *l) {
    const key_lists *w = &e->writing;
    for (int i = e->p->n_commits; i-- > 0;) {
        const int fresh = gd_value_root(e->p, e->p->commits[i].value);
        for (int u = w->first[fresh]; u < w->first[fresh + 1]; u++)
            if (u == w->first[fresh] || w->at[u] != w->at[u - 1]) what(l, w->at[u], i);
    }
}

/* The last number of a list; -1: it is empty. */
static int get_last(const key_lists *l, int key) {
    return l->first[key + 1] > l->first[key] ? l->at[l->first[key + 1] - 1] : -1;
}

static gd_status init_mover(update_mover *e, gd_program *p) {
    const size_t steps = (size_t)p->n_steps + 1;
    *e = (update_mover){.p = p,
                        .tail = gd_calloc(3 * steps, sizeof(bool)),
                        .ready = gd_malloc(steps * sizeof(int)),
                        .view = gd_malloc(((size_t)p->n_values + 1) * sizeof(int)),
                        .order = gd_malloc(steps * sizeof *e->order),
                        .risks = gd_program_risks(p)};
    if (!e->risks || !e->tail || !e->ready || !e->view || !e->order)
        return gd_no_memory(NULL, "to plan a run");
    for (int v = 0; v < p->n_values; v++) e->view[v] = -1;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_out && p->steps[i].view && !p->steps[i].removed; k++)
            if (p->steps[i].out[k] >= 0) e->view[p->steps[i].out[k]] = i;
    e->update = e->tail + steps;
    e->put = e->update + steps;
    GD_TRY(fill_lists(e, &e->touching, p->n_roots, each_touching));
    GD_TRY(fill_lists(e, &e->writing, p->n_roots, each_writing));
    return fill_lists(e, &e->commits, p->n_steps, each_commit);
}

/* --- classification --------------------------------------------------------------------------- */

/* Whether the step computes new values of variables, and can do so in the variables' memory. */
static bool is_update(const update_mover *e, int at) {
    const gd_program *p = e->p;
    for (int c = e->commits.first[at]; c < e->commits.first[at + 1]; c++) {
        const gd_commit *commit = &p->commits[e->commits.at[c]];
        const int fresh = gd_value_root(p, commit->value), old = commit->root;
        if (!gd_commit_fills_alone(p, commit) || p->roots[old].bytes != p->roots[fresh].bytes ||
            p->roots[fresh].fetched)
            return false;
        if (get_last(&e->writing, fresh) > at) return false; /* a later step writes the new value */
        if (get_last(&e->touching, old) > at) return false;  /* a later step reads the old value */
    }
    return e->commits.first[at + 1] > e->commits.first[at];
}

/* Whether only updates need the step: it computes a small value for several, or a tensor for one.
 * Later steps are classified already. */
static bool is_tail(const update_mover *e, int at) {
    const gd_program *p = e->p;
    const gd_pstep *s = &p->steps[at];
    if (!s->op->ir) return false;
    int readers = 0;
    bool small = true;
    for (int k = 0; k < s->n_out; k++) {
        const int root = gd_value_root(p, s->out[k]);
        if (root < 0) continue;
        if (p->roots[root].fetched || p->roots[root].kind != GD_ROOT_TEMPORARY) return false;
        small &= p->roots[root].bytes <= SMALL;
        const key_lists *users = &e->touching;
        for (int u = users->first[root], last = at; u < users->first[root + 1]; u++) {
            const int user = users->at[u];
            if (user <= last || (p->steps[user].op->flags & GD_OP_AWAITS))
                continue; /* it reads no data */
            last = user;
            readers++;
            if (!e->tail[user] && !e->update[user]) return false;
        }
    }
    return readers == 1 || small;
}

/* Calls `what` for each step before `at` that must stay before it. */
static void for_dependencies(update_mover *e, int at,
                             void (*what)(update_mover *e, int needed, int at)) {
    const gd_program *p = e->p;
    const gd_pstep *s = &p->steps[at];
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const int root = gd_value_root(p, value_at(s, k));
        const key_lists *l = k < s->n_in ? &e->writing : &e->touching;
        if (root < 0) continue;
        for (int u = l->first[root]; u < l->first[root + 1] && l->at[u] < at; u++)
            what(e, l->at[u], at);
    }
    for (int c = e->commits.first[at]; c < e->commits.first[at + 1] && e->update[at]; c++) {
        const key_lists *l = &e->touching; /* readers of the old value */
        const int old = p->commits[e->commits.at[c]].root;
        for (int u = l->first[old]; u < l->first[old + 1] && l->at[u] < at; u++)
            if (reads_root(p, &p->steps[l->at[u]], old)) what(e, l->at[u], at);
    }
}

static bool is_free(const update_mover *e, int step) { return e->tail[step] || e->update[step]; }

static void wait_for(update_mover *e, int needed, int at) {
    const int when = is_free(e, needed) ? e->ready[needed] : needed;
    if (when > e->ready[at]) e->ready[at] = when;
}

/* Classifies each step; returns how many updates can move up. */
static int classify_steps(update_mover *e) {
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

/* Appends a step to the new order, after the steps that it depends on. */
static void put_step(update_mover *e, int step, int at) {
    (void)at;
    if (e->put[step]) return;
    e->put[step] = true;
    const gd_pstep *s = &e->p->steps[step];
    if (!is_idle(s)) for_dependencies(e, step, put_step);
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] >= 0 && e->view[s->in[k]] >= 0) put_step(e, e->view[s->in[k]], step);
    e->order[e->count++] = e->p->steps[step];
}

static void put_ready(update_mover *e, const int *bucket, const int *next, int when) {
    for (int u = bucket[when + 1]; u >= 0; u = next[u]) put_step(e, u, -1);
}

static gd_status reorder_steps(update_mover *e) {
    gd_program *p = e->p;
    int *bucket = gd_malloc((2 * (size_t)p->n_steps + 2) * sizeof *bucket),
        *next = bucket + p->n_steps + 1;
    if (!bucket) return gd_no_memory(NULL, "to plan a run");
    for (int i = 0; i <= p->n_steps; i++) bucket[i] = -1;
    for (int i = p->n_steps; i-- > 0;) {
        if (!e->update[i]) continue;
        next[i] = bucket[e->ready[i] + 1];
        bucket[e->ready[i] + 1] = i;
    }
    put_ready(e, bucket, next, -1);
    for (int i = 0; i < p->n_steps; i++) {
        put_step(e, i, -1);
        put_ready(e, bucket, next, i);
    }
    memcpy(p->steps, e->order, (size_t)p->n_steps * sizeof *p->steps);
    gd_free(bucket);
    return GD_OK;
}

gd_status gd_pass_early_updates(gd_rewrite *r) {
    gd_program *p = r->program;
    if (p->n_commits == 0) return GD_OK;
    update_mover e;
    gd_status status = init_mover(&e, p);
    const int moving = status == GD_OK ? classify_steps(&e) : 0;
    if (moving > 0) status = reorder_steps(&e);
    free_mover(&e);
    r->changes += moving;
    return status;
}
