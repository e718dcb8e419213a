/* remat_lives.c - lifetimes and peak memory of a schedule (remat.h), and what steps cost. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/remat.h"
#include "dispatch/fused.h"

size_t gd_remat_bytes(const gd_remat_model *m, int root) {
    return (m->p->roots[root].bytes + GD_SLAB_ALIGNMENT - 1) / GD_SLAB_ALIGNMENT *
           GD_SLAB_ALIGNMENT;
}

bool gd_remat_is_written(const gd_remat_model *m, const gd_pstep *s, int root) {
    bool in = false, out = false;
    for (int k = 0; k < s->n_in; k++) in |= gd_value_root(m->p, s->in[k]) == root;
    for (int k = 0; k < s->n_out; k++) out |= gd_value_root(m->p, s->out[k]) == root;
    return in && out;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* An estimate of a step's time: the bytes that it reads and writes; for a product also its
 * multiply-adds: with operands of (m,k), (k,n) and (m,n) elements there are mkn. */
static double estimate_cost(const gd_program *p, const gd_pstep *s, bool heavy) {
    double bytes = 0, product = 1;
    int large = 0;
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const int v = k < s->n_in ? s->in[k] : s->out[k - s->n_in];
        if (v < 0) continue;
        const double n = (double)gd_numel(p->values[v].rank, p->values[v].dims);
        bytes += n * (double)gd_dtype_size((gd_dtype)p->values[v].dtype);
        if (large < 3 && (k < 2 || k == s->n_in)) product *= n, large++;
    }
    return heavy ? bytes + sqrt(product) : bytes;
}

/* Whether a step can be repeated with the same results. A random step can: its call number is
 * fixed. A step that updates an input can if the input is a copy of a variable: it gets a new
 * copy. */
static bool can_repeat(const gd_remat_model *m, const gd_pstep *s) {
    const gd_program *p = m->p;
    if (s->removed || s->view || (s->op->flags & GD_OP_OPAQUE) || m->risks[s - p->steps])
        return false;
    for (int k = 0; k < s->n_out; k++) {
        const int root = gd_value_root(p, s->out[k]);
        if (root < 0 || gd_remat_is_written(m, s, root)) continue;
        if (!gd_root_is_temporary(p, root) || m->writers[root] != 1) {
            const bool copy =
                gd_root_is_temporary(p, root) && m->writers[root] == 2 && gd_step_copies(p, s);
            if (!copy || gd_root_is_temporary(p, gd_value_root(p, s->in[0]))) return false;
        }
    }
    for (int k = 0; k < s->n_in; k++) {
        const int root = gd_value_root(p, s->in[k]);
        if (!gd_root_is_temporary(p, root)) continue;
        if (!gd_remat_is_written(m, s, root)) {
            if (m->writers[root] != 1) return false;
        } else if (m->writers[root] != 2 || m->producer[root] < 0 || !m->can[m->producer[root]]) {
            return false;
        }
    }
    return true;
}

gd_status gd_remat_begin(gd_remat_model *m, gd_program *p, const gd_remat *given) {
    const size_t roots = (size_t)p->n_roots + 1, steps = (size_t)p->n_steps + 1;
    *m = (gd_remat_model){.p = p,
                          .given = given,
                          .producer = gd_malloc(roots * sizeof(int)),
                          .writers = gd_calloc(roots, sizeof(int)),
                          .risks = gd_program_risks(p),
                          .can = gd_calloc(steps, sizeof(bool)),
                          .heavy = gd_calloc(steps, sizeof(bool)),
                          .cost = gd_calloc(steps, sizeof(double)),
                          .assigned = gd_calloc(roots, sizeof(bool))};
    if (!m->producer || !m->writers || !m->risks || !m->can || !m->heavy || !m->cost ||
        !m->assigned)
        return gd_no_memory(NULL, "to plan a run");
    for (int r = 0; r < p->n_roots; r++) m->producer[r] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        for (int k = 0; k < s->n_out && !s->view && !s->removed; k++) {
            const int root = gd_value_root(p, s->out[k]);
            bool again = root < 0;
            for (int l = 0; l < k; l++) again |= gd_value_root(p, s->out[l]) == root;
            if (again) continue;
            if (m->writers[root]++ == 0) m->producer[root] = i;
        }
    }
    for (int i = 0; i < p->n_commits; i++)
        m->assigned[gd_value_root(p, p->commits[i].value)] = true;
    for (int i = 0; i < p->n_steps; i++) {
        m->can[i] = can_repeat(m, &p->steps[i]);
        m->heavy[i] = p->steps[i].op->flags & GD_OP_HEAVY;
        m->cost[i] = estimate_cost(p, &p->steps[i], m->heavy[i]);
    }
    return GD_OK;
}

void gd_remat_end(gd_remat_model *m) {
    gd_free(m->producer);
    gd_free(m->writers);
    gd_free(m->risks);
    gd_free(m->can);
    gd_free(m->heavy);
    gd_free(m->cost);
    gd_free(m->assigned);
}

/* --- lives ------------------------------------------------------------------------------------ */

typedef struct schedule_walk {
    const gd_remat_model *m;
    const gd_remat_schedule *s;
    gd_lives *r;
    int *now;      /* per root: its latest life; -1: none */
    int64_t *live; /* per position: the change of live bytes there */
    bool *seen;    /* per step: it has occurred */
} schedule_walk;

static void extend_life(schedule_walk *w, int root, int at) {
    if (!gd_root_is_temporary(w->m->p, root) || w->now[root] < 0) return;
    gd_life *l = &w->r->lives[w->now[root]];
    if (at > l->end) l->end = at; /* a committed value is live to the end anyway */
}

static void begin_life(schedule_walk *w, int root, int at, bool first) {
    const gd_root *r = &w->m->p->roots[root];
    const bool elsewhere = first && w->m->given->elsewhere && w->m->given->elsewhere[root];
    w->now[root] = w->r->count;
    w->r->lives[w->r->count++] = (gd_life){.root = root,
                                           .begin = at,
                                           .end = first && w->m->assigned[root] ? w->s->count : at,
                                           .before = -1,
                                           .after = -1,
                                           .counted = !r->fetched && !elsewhere};
}

static void find_lives(schedule_walk *w) {
    const gd_program *p = w->m->p;
    for (int j = 0; j < w->s->count; j++) {
        const int number = w->s->steps[j];
        const gd_pstep *s = &p->steps[number];
        if (s->view) continue;
        for (int k = 0; k < s->n_in; k++) extend_life(w, gd_value_root(p, s->in[k]), j);
        for (int k = 0; k < s->n_out; k++) {
            const int root = gd_value_root(p, s->out[k]);
            if (!gd_root_is_temporary(p, root)) continue;
            const bool known = w->now[root] >= 0 && (w->m->producer[root] != number ||
                                                     w->r->lives[w->now[root]].begin == j);
            if (known) extend_life(w, root, j);
            else begin_life(w, root, j, !w->seen[number]);
        }
        if (w->seen[number]) w->r->cost += w->m->cost[number];
        w->seen[number] = true;
    }
    for (int r = 0; r < p->n_roots; r++) w->now[r] = -1;
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
    const gd_program *p = w->m->p;
    const gd_pstep *s = &p->steps[w->s->steps[j]];
    const bool reduces = s->op->fusion && s->op->fusion->reduction;
    if ((!s->op->ir && !s->op->fusion) ||
        (w->m->given->scratch && w->m->given->scratch[w->s->steps[j]]))
        return;
    int taken[4], n_taken = 0;
    for (int k = 0; k < s->n_out - reduces && n_taken < 4; k++) {
        const int out = gd_value_root(p, s->out[k]);
        if (!gd_root_is_temporary(p, out) || lives_now[out] < 0) continue;
        const gd_life *o = &w->r->lives[lives_now[out]];
        if (!o->counted || o->begin != j || !gd_value_covers_root(p, &p->values[s->out[k]]))
            continue;
        for (int i = 0; i < s->n_in; i++) {
            const int in = gd_value_root(p, s->in[i]);
            if (!gd_root_is_temporary(p, in) || lives_now[in] < 0 || in == out) continue;
            const gd_life *l = &w->r->lives[lives_now[in]];
            bool free = l->counted && l->end == j && l->begin != j &&
                        can_share_memory(p, s, &p->values[s->out[k]], in);
            for (int t = 0; t < n_taken; t++) free &= taken[t] != in;
            if (!free) continue;
            taken[n_taken++] = in;
            w->live[j] -= (int64_t)gd_remat_bytes(w->m, out);
            break;
        }
    }
}

static void find_peak(schedule_walk *w) {
    gd_lives *r = w->r;
    const gd_program *p = w->m->p;
    int64_t alive = 0;
    for (int j = 0, at = 0; j < w->s->count; j++) {
        const int number = w->s->steps[j];
        for (; at < r->count && r->lives[at].begin == j; at++) {
            const gd_life *l = &r->lives[at];
            w->now[l->root] = at;
            if (!l->counted) continue;
            alive += (int64_t)gd_remat_bytes(w->m, l->root);
            if (l->end < w->s->count) w->live[l->end + 1] -= (int64_t)gd_remat_bytes(w->m, l->root);
        }
        alive += w->live[j]; /* lives that ended before j */
        w->live[j] = 0;
        if (!p->steps[number].view) share_in_place(w, j, w->now);
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
    const gd_program *p = w->m->p;
    for (int r = 0; r < p->n_roots; r++) w->now[r] = -1;
    for (int j = 0, at = 0; j < w->s->count; j++) {
        const gd_pstep *s = &p->steps[w->s->steps[j]];
        for (int k = 0; k < s->n_in && !s->view; k++) {
            const int root = gd_value_root(p, s->in[k]);
            if (!gd_root_is_temporary(p, root) || w->now[root] < 0) continue;
            gd_life *l = &w->r->lives[w->now[root]];
            if (j <= w->r->at) l->before = j;
            else if (l->after < 0) l->after = j;
        }
        for (; at < w->r->count && w->r->lives[at].begin == j; at++)
            w->now[w->r->lives[at].root] = at;
    }
}

bool gd_remat_lives(const gd_remat_model *m, const gd_remat_schedule *s, gd_lives *r) {
    const gd_program *p = m->p;
    size_t outputs = 1;
    for (int j = 0; j < s->count; j++) outputs += (size_t)p->steps[s->steps[j]].n_out;
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
        find_uses_around_peak(&w);
    } else {
        gd_no_memory(NULL, "to plan a run");
        gd_free(r->lives);
        r->lives = NULL;
    }
    gd_free(w.now);
    gd_free(w.live);
    gd_free(w.seen);
    return fine;
}
