/* remat.c - rematerialization: recomputes values instead of keeping them across the peak of memory.
 *
 * A value that is live across the peak and can be computed again may be dropped there. Before a
 * later use, the step that computes it is repeated, and the steps before that one, back to values
 * that were kept. The choice of kept values decides about the result: the part of the program
 * before the peak is cut into segments, and the values that pass from one segment to the next are
 * kept. Then one segment at a time is recomputed (n layers in segments of sqrt(n) need memory for 2
 * sqrt(n) layers instead of n). Several segment lengths are tried, with cheap steps only and with
 * all, and each try is judged by its peak (remat_lives.c) and its cost. If the peak is still too
 * high, the same is done around the new peak.
 */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/remat.h"

enum {
    ROUNDS = 6,        /* how many peaks are lowered */
    LENGTHS = 28,      /* how many segment lengths are tried, each 0.7 of the one before */
    RETURNS = 64,      /* how many dropped values are tried again, whether they can be kept */
    EXTRA_PENALTY = 4, /* the weight of bytes that a cut keeps live only for the next segment */
};

/* The search for a better schedule around one peak. */
typedef struct remat_search {
    const gd_remat_model *m;
    const gd_remat_schedule *s; /* the current schedule */
    gd_lives lives;             /* its lifetimes */
    bool *through;              /* per root: its latest life crosses the peak */
    int *life_of;               /* per root: its latest life up to the peak; -1: none */
    char *known;                /* per root: the result of can_recompute, or UNKNOWN */
    bool *dropped;              /* per life: it is dropped at the peak */
    int *last_use;              /* per root: a position in the schedule */
    int64_t *cut;               /* per position: bytes that would pass between segments cut there */
    /* The schedule that is being built. */
    bool *there;         /* per root: it is in memory */
    int *burst, n_burst; /* roots that were recomputed for the current step */
    gd_remat_schedule built;
    bool no_memory;
} remat_search;

static bool append_step(gd_remat_schedule *s, int step) {
    if (s->count == s->room) {
        const int larger = s->room ? 2 * s->room : 256;
        int *grown = gd_realloc(s->steps, (size_t)larger * sizeof *grown);
        if (!grown) {
            gd_no_memory(NULL, "to plan a run");
            return false;
        }
        s->steps = grown;
        s->room = larger;
    }
    s->steps[s->count++] = step;
    return true;
}

/* --- what can be recomputed ------------------------------------------------------------------- */

enum { UNKNOWN, NEVER, CHEAP, HEAVY };

/* Whether a dropped root can be recomputed, and whether cheap steps suffice. */
static int can_recompute(remat_search *f, int root) {
    const gd_remat_model *m = f->m;
    const int producer = m->producer[root];
    if (f->known[root] != UNKNOWN) return f->known[root];
    f->known[root] = NEVER;
    if (producer < 0 || !m->can[producer]) return NEVER;
    int how = m->heavy[producer] ? HEAVY : CHEAP;
    const gd_pstep *s = &m->p->steps[producer];
    for (int k = 0; k < s->n_in; k++) {
        const int in = gd_value_root(m->p, s->in[k]);
        if (!gd_root_is_temporary(m->p, in)) continue;
        const bool copied = gd_remat_is_written(m, s, in);
        if (f->through[in] && !copied) continue;
        const int need = can_recompute(f, in);
        if (need == NEVER) return NEVER;
        if (need == HEAVY) how = HEAVY;
    }
    f->known[root] = (char)how;
    return how;
}

static bool is_candidate(remat_search *f, const gd_life *l, int most) {
    if (!l->counted || l->begin >= f->lives.at || l->before == f->lives.at || l->after < 0 ||
        f->m->assigned[l->root])
        return false;
    if (f->m->writers[l->root] > 1) return false; /* repeating its first writer is not enough */
    const int how = can_recompute(f, l->root);
    return how == CHEAP || (how == HEAVY && most == HEAVY);
}

static gd_status init_search(remat_search *f) {
    const gd_program *p = f->m->p;
    const size_t roots = (size_t)p->n_roots + 1, positions = (size_t)f->s->count + 2;
    if (!gd_remat_lives(f->m, f->s, &f->lives)) return GD_E_MEMORY;
    f->through = gd_calloc(roots, sizeof(bool));
    f->there = gd_calloc(roots, sizeof(bool));
    f->known = gd_calloc(roots, 1);
    f->life_of = gd_malloc(roots * sizeof(int));
    f->last_use = gd_calloc(roots, sizeof(int));
    f->burst = gd_malloc(roots * sizeof(int));
    f->dropped = gd_calloc((size_t)f->lives.count + 1, sizeof(bool));
    f->cut = gd_calloc(positions, sizeof(int64_t));
    if (!f->through || !f->there || !f->known || !f->life_of || !f->last_use || !f->burst ||
        !f->dropped || !f->cut)
        return gd_no_memory(NULL, "to plan a run");
    for (int r = 0; r < p->n_roots; r++) f->life_of[r] = -1;
    for (int i = 0; i < f->lives.count; i++) {
        const gd_life *l = &f->lives.lives[i];
        if (l->begin > f->lives.at) break;
        f->life_of[l->root] = i;
        f->through[l->root] = l->end > f->lives.at || p->roots[l->root].fetched;
    }
    for (int j = 0; j < f->s->count; j++) {
        const gd_pstep *s = &p->steps[f->s->steps[j]];
        for (int k = 0; k < s->n_in && !s->view; k++)
            if (gd_root_is_temporary(p, gd_value_root(p, s->in[k])))
                f->last_use[gd_value_root(p, s->in[k])] = j;
    }
    return GD_OK;
}

static void free_search(remat_search *f) {
    gd_free(f->lives.lives);
    gd_free(f->through);
    gd_free(f->there);
    gd_free(f->known);
    gd_free(f->life_of);
    gd_free(f->last_use);
    gd_free(f->burst);
    gd_free(f->dropped);
    gd_free(f->cut);
    gd_free(f->built.steps);
}

/* --- choosing what to drop -------------------------------------------------------------------- */

/* At each position up to the peak: the bytes that later steps read from earlier ones. */
static void weigh_cuts(remat_search *f, int most) {
    memset(f->cut, 0, ((size_t)f->s->count + 2) * sizeof *f->cut);
    for (int i = 0; i < f->lives.count; i++) {
        const gd_life *l = &f->lives.lives[i];
        if (!l->counted || l->before <= l->begin) continue;
        int64_t bytes = (int64_t)gd_remat_bytes(f->m, l->root);
        if (!is_candidate(f, l, most)) {
            if (l->after >= 0) continue; /* it stays in memory anyway */
            bytes *= EXTRA_PENALTY;
        }
        f->cut[l->begin] += bytes;
        f->cut[l->before] -= bytes;
    }
    for (int j = 1; j <= f->lives.at; j++) f->cut[j] += f->cut[j - 1];
}

/* Keeps what the segment that ends at `boundary` passes to the next. */
static void keep_across(remat_search *f, int boundary) {
    for (int i = 0; i < f->lives.count && f->lives.lives[i].begin <= boundary; i++)
        if (f->lives.lives[i].before > boundary) f->dropped[i] = false;
}

/* Drops all candidates except those that pass between segments of about `length` bytes. */
static void choose_dropped(remat_search *f, int64_t length, int most) {
    int64_t bytes = 0;
    int best = -1;
    for (int i = 0; i < f->lives.count; i++)
        f->dropped[i] = is_candidate(f, &f->lives.lives[i], most);
    for (int j = 0, at = 0; j <= f->lives.at && length > 0; j++) {
        for (; at < f->lives.count && f->lives.lives[at].begin == j; at++)
            if (is_candidate(f, &f->lives.lives[at], most))
                bytes += (int64_t)gd_remat_bytes(f->m, f->lives.lives[at].root);
        if (2 * bytes >= length && (best < 0 || f->cut[j] <= f->cut[best])) best = j;
        if (2 * bytes < 3 * length || best < 0) continue;
        keep_across(f, best);
        bytes = 0;
        for (int i = 0; i < at; i++)
            if (f->lives.lives[i].begin > best && is_candidate(f, &f->lives.lives[i], most))
                bytes += (int64_t)gd_remat_bytes(f->m, f->lives.lives[i].root);
        best = -1;
    }
}

/* --- the schedule ----------------------------------------------------------------------------- */

static void repeat_step(remat_search *f, int step);

static void ensure_root(remat_search *f, int root) {
    if (gd_root_is_temporary(f->m->p, root) && !f->there[root] && f->m->producer[root] >= 0)
        repeat_step(f, f->m->producer[root]);
}

/* Appends the step again, after steps that recompute what it needs. */
static void repeat_step(remat_search *f, int step) {
    const gd_program *p = f->m->p;
    const gd_pstep *s = &p->steps[step];
    if (f->no_memory) return;
    for (int k = 0; k < s->n_in; k++) {
        const int root = gd_value_root(p, s->in[k]);
        if (gd_root_is_temporary(p, root) && gd_remat_is_written(f->m, s, root))
            repeat_step(f, f->m->producer[root]); /* it needs a new copy */
        else ensure_root(f, root);
    }
    if (!append_step(&f->built, step)) f->no_memory = true;
    for (int k = 0; k < s->n_out; k++) {
        const int root = gd_value_root(p, s->out[k]);
        if (!gd_root_is_temporary(p, root) || f->there[root]) continue;
        f->there[root] = true;
        f->burst[f->n_burst++] = root;
    }
}

/* Builds the schedule in which values that are dropped at the peak are recomputed for later
 * uses. */
static bool build_schedule(remat_search *f) {
    const gd_program *p = f->m->p;
    f->built.count = 0;
    f->no_memory = false;
    for (int j = 0; j <= f->lives.at && !f->no_memory; j++)
        f->no_memory = !append_step(&f->built, f->s->steps[j]);
    for (int r = 0; r < p->n_roots; r++)
        f->there[r] = f->through[r] && f->life_of[r] >= 0 && !f->dropped[f->life_of[r]];
    for (int j = f->lives.at + 1; j < f->s->count && !f->no_memory; j++) {
        const gd_pstep *s = &p->steps[f->s->steps[j]];
        f->n_burst = 0;
        for (int k = 0; k < s->n_in && !s->view; k++) ensure_root(f, gd_value_root(p, s->in[k]));
        if (!append_step(&f->built, f->s->steps[j])) f->no_memory = true;
        for (int i = 0; i < f->n_burst; i++) /* drop what no later step reads */
            if (f->last_use[f->burst[i]] <= j) f->there[f->burst[i]] = false;
        for (int k = 0; k < s->n_out && !s->view; k++)
            if (gd_root_is_temporary(p, gd_value_root(p, s->out[k])))
                f->there[gd_value_root(p, s->out[k])] = true;
    }
    return !f->no_memory;
}

/* --- the search ------------------------------------------------------------------------------- */

typedef struct remat_outcome {
    size_t peak;
    double cost;
} remat_outcome;

static bool judge_schedule(remat_search *f, remat_outcome *o) {
    gd_lives lives;
    if (!build_schedule(f) || !gd_remat_lives(f->m, &f->built, &lives)) return false;
    *o = (remat_outcome){lives.peak, lives.cost};
    gd_free(lives.lives);
    return true;
}

static bool is_better(const remat_outcome *a, const remat_outcome *b, size_t target) {
    if ((a->peak <= target) != (b->peak <= target)) return a->peak <= target;
    if (a->peak <= target) return a->cost < b->cost;
    return a->peak < b->peak || (a->peak == b->peak && a->cost < b->cost);
}

/* Keeps dropped values again where the target allows it, the most expensive first. */
static bool keep_after_all(remat_search *f, remat_outcome *best, size_t target) {
    for (int n = 0; n < RETURNS; n++) {
        int costliest = -1;
        for (int i = 0; i < f->lives.count; i++)
            if (f->dropped[i] &&
                (costliest < 0 || f->m->cost[f->m->producer[f->lives.lives[i].root]] >
                                      f->m->cost[f->m->producer[f->lives.lives[costliest].root]]) &&
                f->known[f->lives.lives[i].root] != NEVER)
                costliest = i;
        if (costliest < 0) return true;
        remat_outcome o;
        f->dropped[costliest] = false;
        if (!judge_schedule(f, &o)) return false;
        if (is_better(&o, best, target)) *best = o;
        else f->dropped[costliest] = true;
        f->known[f->lives.lives[costliest].root] = NEVER; /* tried; can_recompute is done by now */
    }
    return true;
}

/* Lowers one peak. 1: `built` is the best schedule found; 0: none is better; -1: no memory. */
static int lower_peak(remat_search *f, size_t target, remat_outcome *reached) {
    remat_outcome best = {f->lives.peak, f->lives.cost}, o;
    int best_most = 0;
    int64_t best_length = -1, total = 0;
    for (int i = 0; i < f->lives.count; i++)
        if (is_candidate(f, &f->lives.lives[i], HEAVY))
            total += (int64_t)gd_remat_bytes(f->m, f->lives.lives[i].root);
    if (total == 0) return 0;
    for (int most = CHEAP; most <= HEAVY; most++) {
        weigh_cuts(f, most);
        int64_t length = total;
        for (int n = 0; n < LENGTHS && length > 0; n++, length -= length * 3 / 10 + 1) {
            choose_dropped(f, n == 0 ? 0 : length, most); /* first drop all candidates */
            if (!judge_schedule(f, &o)) return -1;
            if (!is_better(&o, &best, target)) continue;
            best = o;
            best_most = most;
            best_length = n == 0 ? 0 : length;
        }
    }
    if (best_length < 0) return 0;
    weigh_cuts(f, best_most);
    choose_dropped(f, best_length, best_most);
    if (best.peak <= target && !keep_after_all(f, &best, target)) return -1;
    if (!judge_schedule(f, reached)) return -1;
    return 1;
}

static int count_repeated(const gd_remat_model *m, const gd_remat_schedule *s) {
    int steps = 0;
    for (int i = 0; i < m->p->n_steps; i++) steps += !m->p->steps[i].removed;
    return s->count - steps;
}

/* Lowers one peak after the other until the target is reached. */
static gd_status find_schedule(const gd_remat_model *m, gd_remat_schedule *s, size_t target) {
    for (int round = 0; round < ROUNDS; round++) {
        remat_search f = {.m = m, .s = s};
        remat_outcome reached = {0, 0};
        gd_status status = init_search(&f);
        int lower = status == GD_OK && f.lives.peak > target ? lower_peak(&f, target, &reached) : 0;
        if (lower > 0) {
            const gd_remat_schedule old = *s;
            *s = f.built;
            f.built = old;
        }
        free_search(&f);
        if (status != GD_OK || lower < 0) return GD_E_MEMORY;
        if (lower == 0 || reached.peak <= target) break;
    }
    return GD_OK;
}

gd_status gd_pass_remat(gd_rewrite *r) {
    gd_program *p = r->program;
    gd_remat_model m;
    gd_remat_schedule s = {NULL, 0, 0};
    gd_status status = gd_remat_begin(&m, p, r->remat);
    for (int i = 0; i < p->n_steps && status == GD_OK; i++)
        if (!p->steps[i].removed && !append_step(&s, i)) status = GD_E_MEMORY;
    if (status == GD_OK) status = find_schedule(&m, &s, r->remat->target);
    const int repeated = status == GD_OK ? count_repeated(&m, &s) : 0;
    if (repeated > 0) status = gd_remat_apply(&m, &s);
    gd_free(s.steps);
    gd_remat_end(&m);
    r->changes += repeated;
    return status;
}
