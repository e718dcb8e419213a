/* remat_lives.c - lifetimes and peak memory of a schedule (remat.h). */
#include "core/alloc.h"
#include "graph/passes/remat.h"
#include "dispatch/fused.h"

typedef struct schedule_walk {
    const gd_remat_model *m;
    const gd_remat_schedule *s;
    gd_lives *r;
    int *now;      /* per root: its latest life; -1: none */
    int64_t *live; /* per position: the change of live bytes there */
    bool *seen;    /* per step: it has occurred */
} schedule_walk;

static void extend_life(schedule_walk *w, int root, int at) {
    if (w->now[root] < 0) return;
    gd_life *l = &w->r->lives[w->now[root]];
    if (at > l->end) l->end = at; /* a committed value is live to the end anyway */
}

static void begin_life(schedule_walk *w, int root, int at, bool first) {
    const bool elsewhere = first && w->m->given->elsewhere && w->m->given->elsewhere[root];
    w->now[root] = w->r->count;
    w->r->lives[w->r->count++] = (gd_life){.root = root,
                                           .begin = at,
                                           .end = first && w->m->assigned[root] ? w->s->count : at,
                                           .before = -1,
                                           .after = -1,
                                           .counted = !w->m->fetched[root] && !elsewhere};
}

static void find_lives(schedule_walk *w) {
    const gd_remat_model *m = w->m;
    for (int j = 0; j < w->s->count; j++) {
        const int number = w->s->steps[j];
        const gd_remat_step *s = &m->steps[number];
        for (int k = s->in; k < s->out; k++) extend_life(w, m->operands[k].root, j);
        for (int k = s->out; k < s->end; k++) {
            const int root = m->operands[k].root;
            const bool known = w->now[root] >= 0 && (m->producer[root] != number ||
                                                     w->r->lives[w->now[root]].begin == j);
            if (known) extend_life(w, root, j);
            else begin_life(w, root, j, !w->seen[number]);
        }
        if (w->seen[number]) w->r->cost += m->cost[number];
        w->seen[number] = true;
    }
    for (int r = 0; r < m->p->n_roots; r++) w->now[r] = -1;
}

static bool can_share_memory(const gd_program *p, const gd_pstep *s, const gd_pvalue *out,
                             int root) {
    for (int k = 0; k < s->n_in; k++) {
        if (gd_value_root(p, s->in[k]) != root) continue;
        const gd_pvalue *in = &p->values[s->in[k]];
        if (!gd_value_covers_root(p, in) || !gd_values_lie_alike(in, out) ||
            gd_dtype_size((gd_dtype)in->dtype) != gd_dtype_size((gd_dtype)out->dtype))
            return false;
    }
    return true;
}

/* Results that share the memory of operands that are dead after position j: see share_in_place in
 * plan/liveness.c. */
static void share_in_place(schedule_walk *w, int j, const int *lives_now) {
    const gd_remat_model *m = w->m;
    const gd_program *p = m->p;
    const gd_pstep *s = &p->steps[w->s->steps[j]];
    const gd_remat_step *listed = &m->steps[w->s->steps[j]];
    const bool reduces = s->op->fusion && s->op->fusion->reduction;
    int taken[4], n_taken = 0;
    for (int k = 0; k < s->n_out - reduces && n_taken < 4; k++) {
        const int out = gd_value_root(p, s->out[k]);
        if (!gd_root_is_temporary(p, out) || lives_now[out] < 0) continue;
        const gd_life *o = &w->r->lives[lives_now[out]];
        if (!o->counted || o->begin != j || !gd_value_covers_root(p, &p->values[s->out[k]]))
            continue;
        for (int i = listed->in; i < listed->out; i++) {
            const int in = m->operands[i].root;
            if (lives_now[in] < 0 || in == out) continue;
            const gd_life *l = &w->r->lives[lives_now[in]];
            bool free = l->counted && l->end == j && l->begin != j &&
                        can_share_memory(p, s, &p->values[s->out[k]], in);
            for (int t = 0; t < n_taken; t++) free &= taken[t] != in;
            if (!free) continue;
            taken[n_taken++] = in;
            w->live[j] -= (int64_t)m->bytes[out];
            break;
        }
    }
}

static void find_peak(schedule_walk *w) {
    gd_lives *r = w->r;
    int64_t alive = 0;
    for (int j = 0, at = 0; j < w->s->count; j++) {
        const int number = w->s->steps[j];
        for (; at < r->count && r->lives[at].begin == j; at++) {
            const gd_life *l = &r->lives[at];
            w->now[l->root] = at;
            if (!l->counted) continue;
            alive += (int64_t)w->m->bytes[l->root];
            if (l->end < w->s->count) w->live[l->end + 1] -= (int64_t)w->m->bytes[l->root];
        }
        alive += w->live[j]; /* lives that ended before j */
        w->live[j] = 0;
        if (w->m->in_place[number]) share_in_place(w, j, w->now);
        int64_t here = alive + w->live[j];
        if (w->m->given->scratch) here += (int64_t)w->m->given->scratch[number];
        if (here > (int64_t)r->peak) {
            r->peak = (size_t)here;
            r->at = j;
        }
    }
}

/* Finds the last use of each life before the peak, and the first after it. */
static void find_uses_around_peak(schedule_walk *w) {
    const gd_remat_model *m = w->m;
    for (int r = 0; r < m->p->n_roots; r++) w->now[r] = -1;
    for (int j = 0, at = 0; j < w->s->count; j++) {
        const gd_remat_step *s = &m->steps[w->s->steps[j]];
        for (int k = s->in; k < s->out; k++) {
            const int root = m->operands[k].root;
            if (w->now[root] < 0) continue;
            gd_life *l = &w->r->lives[w->now[root]];
            if (j <= w->r->at) l->before = j;
            else if (l->after < 0) l->after = j;
        }
        for (; at < w->r->count && w->r->lives[at].begin == j; at++)
            w->now[w->r->lives[at].root] = at;
    }
}

static bool walk_schedule(const gd_remat_model *m, const gd_remat_schedule *s, gd_lives *r,
                          bool uses) {
    const gd_program *p = m->p;
    size_t outputs = 1;
    for (int j = 0; j < s->count; j++)
        outputs += (size_t)(m->steps[s->steps[j]].end - m->steps[s->steps[j]].out);
    *r = (gd_lives){.lives = gd_malloc(outputs * sizeof *r->lives)};
    schedule_walk w = {.m = m,
                       .s = s,
                       .r = r,
                       .now = gd_malloc(((size_t)p->n_roots + 1) * sizeof(int)),
                       .live = gd_calloc((size_t)s->count + 2, sizeof(int64_t)),
                       .seen = gd_calloc((size_t)p->n_steps + 1, sizeof(bool))};
    const bool fine = r->lives && w.now && w.live && w.seen;
    if (fine) {
        for (int i = 0; i < p->n_roots; i++) w.now[i] = -1;
        find_lives(&w);
        find_peak(&w);
        if (uses) find_uses_around_peak(&w);
    } else {
        gd_no_memory(NULL, "to plan a run");
    }
    if (!fine || !uses) {
        gd_free(r->lives);
        r->lives = NULL;
    }
    gd_free(w.now);
    gd_free(w.live);
    gd_free(w.seen);
    return fine;
}

bool gd_remat_lives(const gd_remat_model *m, const gd_remat_schedule *s, gd_lives *r) {
    return walk_schedule(m, s, r, true);
}

bool gd_remat_peak(const gd_remat_model *m, const gd_remat_schedule *s, gd_lives *r) {
    return walk_schedule(m, s, r, false);
}
