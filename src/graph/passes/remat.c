/* remat.c - values are computed a second time instead of being kept over the peak.
 *
 * What lives across the peak, and can be computed again, may be dropped there: whoever needs it
 * later has the steps that made it run once more right before, and the steps before those, back to
 * what has been kept. Which to keep decides: the first part of the program is cut in segments, and
 * what goes from one segment to the next is kept. Then one segment at a time is there again (with n
 * layers and segments of sqrt(n), 2 sqrt(n) instead of n). Several lengths of segments are tried,
 * with cheap steps alone and with all, and each try is judged by what is alive then (remat_lives.c)
 * and what it costs. If that is not enough, the same is done around the new peak.
 */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/remat.h"

enum {
    ROUNDS = 6,   /* peaks that are looked at */
    LENGTHS = 28, /* of segments that are tried, each 0.7 of the one before */
    RETURNS = 64, /* values that are looked at once more, whether they can be kept */
    NOTHING = 4,  /* how much worse a cut is through what nobody keeps */
};

typedef struct search {
    const gd_remat_model *m;
    const gd_schedule *s; /* as it is */
    gd_lives lives;       /* of it */
    bool *through;        /* of each root: its latest life goes across the peak */
    int *life_of;         /* of each root: its latest life up to the peak; -1: none */
    char *known;          /* of each root, for can_return: not looked at, no, cheap, yes */
    bool *dropped;        /* of each life */
    int *last_use;        /* of each root, in the schedule */
    int64_t *cut;         /* at each position: bytes that a segment hands to the next */
    /* building */
    bool *there;         /* of each root */
    int *burst, n_burst; /* roots that were computed again right now */
    gd_schedule built;
    bool no_memory;
} search;

static int root_of(const gd_program *p, int value) {
    return value < 0 ? -1 : p->values[value].root;
}
static bool is_temporary(const gd_program *p, int root) {
    return root >= 0 && p->roots[root].kind == GD_ROOT_TEMPORARY;
}

static bool append(gd_schedule *s, int step) {
    if (s->count == s->room) {
        const int larger = s->room ? 2 * s->room : 256;
        int *grown = gd_realloc(s->steps, (size_t)larger * sizeof *grown);
        if (!grown) {
            gd_fail(GD_E_MEMORY, "no memory to plan a run");
            return false;
        }
        s->steps = grown;
        s->room = larger;
    }
    s->steps[s->count++] = step;
    return true;
}

/* --- what can come again ---------------------------------------------------------------------- */

enum { UNKNOWN, NEVER, CHEAP, HEAVY };

/* Whether a root that is gone can be had again, and whether cheap steps do it. */
static int can_return(search *f, int root) {
    const gd_remat_model *m = f->m;
    const int maker = m->maker[root];
    if (f->known[root] != UNKNOWN) return f->known[root];
    f->known[root] = NEVER;
    if (maker < 0 || !m->can[maker]) return NEVER;
    int how = m->heavy[maker] ? HEAVY : CHEAP;
    const gd_pstep *s = &m->p->steps[maker];
    for (int k = 0; k < s->n_in; k++) {
        const int in = root_of(m->p, s->in[k]);
        if (!is_temporary(m->p, in)) continue;
        const bool copied = gd_remat_is_written(m, s, in);
        if (f->through[in] && !copied) continue;
        const int need = can_return(f, in);
        if (need == NEVER) return NEVER;
        if (need == HEAVY) how = HEAVY;
    }
    f->known[root] = (char)how;
    return how;
}

static bool is_candidate(search *f, const gd_life *l, int most) {
    if (!l->counted || l->begin >= f->lives.at || l->before == f->lives.at || l->after < 0 ||
        f->m->assigned[l->root])
        return false;
    if (f->m->writers[l->root] > 1) return false; /* its maker alone does not give it again */
    const int how = can_return(f, l->root);
    return how == CHEAP || (how == HEAVY && most == HEAVY);
}

static gd_status look(search *f) {
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
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
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
            if (is_temporary(p, root_of(p, s->in[k]))) f->last_use[root_of(p, s->in[k])] = j;
    }
    return GD_OK;
}

static void forget(search *f) {
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

/* --- which to drop ---------------------------------------------------------------------------- */

/* At each position up to the peak, what steps behind it read from before it. */
static void weigh_cuts(search *f, int most) {
    memset(f->cut, 0, ((size_t)f->s->count + 2) * sizeof *f->cut);
    for (int i = 0; i < f->lives.count; i++) {
        const gd_life *l = &f->lives.lives[i];
        if (!l->counted || l->before <= l->begin) continue;
        int64_t bytes = (int64_t)gd_remat_bytes(f->m, l->root);
        if (!is_candidate(f, l, most)) {
            if (l->after >= 0) continue; /* it is there anyway */
            bytes *= NOTHING;
        }
        f->cut[l->begin] += bytes;
        f->cut[l->before] -= bytes;
    }
    for (int j = 1; j <= f->lives.at; j++) f->cut[j] += f->cut[j - 1];
}

/* What the segment that ends at `boundary` hands on is kept. */
static void keep_across(search *f, int boundary) {
    for (int i = 0; i < f->lives.count && f->lives.lives[i].begin <= boundary; i++)
        if (f->lives.lives[i].before > boundary) f->dropped[i] = false;
}

/* Drops all candidates but what goes from one segment of about so many bytes to the next. */
static void choose(search *f, int64_t length, int most) {
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

static void again(search *f, int step);

static void have(search *f, int root) {
    if (is_temporary(f->m->p, root) && !f->there[root] && f->m->maker[root] >= 0)
        again(f, f->m->maker[root]);
}

/* The step once more, behind what it needs. */
static void again(search *f, int step) {
    const gd_program *p = f->m->p;
    const gd_pstep *s = &p->steps[step];
    if (f->no_memory) return;
    for (int k = 0; k < s->n_in; k++) {
        const int root = root_of(p, s->in[k]);
        if (is_temporary(p, root) && gd_remat_is_written(f->m, s, root))
            again(f, f->m->maker[root]); /* a copy of its own */
        else have(f, root);
    }
    if (!append(&f->built, step)) f->no_memory = true;
    for (int k = 0; k < s->n_out; k++) {
        const int root = root_of(p, s->out[k]);
        if (!is_temporary(p, root) || f->there[root]) continue;
        f->there[root] = true;
        f->burst[f->n_burst++] = root;
    }
}

/* The schedule with what is dropped at the peak computed again where it is needed. */
static bool build(search *f) {
    const gd_program *p = f->m->p;
    f->built.count = 0;
    f->no_memory = false;
    for (int j = 0; j <= f->lives.at && !f->no_memory; j++)
        f->no_memory = !append(&f->built, f->s->steps[j]);
    for (int r = 0; r < p->n_roots; r++)
        f->there[r] = f->through[r] && f->life_of[r] >= 0 && !f->dropped[f->life_of[r]];
    for (int j = f->lives.at + 1; j < f->s->count && !f->no_memory; j++) {
        const gd_pstep *s = &p->steps[f->s->steps[j]];
        f->n_burst = 0;
        for (int k = 0; k < s->n_in && !s->view; k++) have(f, root_of(p, s->in[k]));
        if (!append(&f->built, f->s->steps[j])) f->no_memory = true;
        for (int i = 0; i < f->n_burst; i++) /* what was needed on the way alone is gone again */
            if (f->last_use[f->burst[i]] <= j) f->there[f->burst[i]] = false;
        for (int k = 0; k < s->n_out && !s->view; k++)
            if (is_temporary(p, root_of(p, s->out[k]))) f->there[root_of(p, s->out[k])] = true;
    }
    return !f->no_memory;
}

/* --- the search ------------------------------------------------------------------------------- */

typedef struct outcome {
    size_t peak;
    double cost;
} outcome;

static bool judge(search *f, outcome *o) {
    gd_lives lives;
    if (!build(f) || !gd_remat_lives(f->m, &f->built, &lives)) return false;
    *o = (outcome){lives.peak, lives.cost};
    gd_free(lives.lives);
    return true;
}

static bool is_better(const outcome *a, const outcome *b, size_t target) {
    if ((a->peak <= target) != (b->peak <= target)) return a->peak <= target;
    if (a->peak <= target) return a->cost < b->cost;
    return a->peak < b->peak || (a->peak == b->peak && a->cost < b->cost);
}

/* Values that can be kept after all, dear ones first. */
static bool give_back(search *f, outcome *best, size_t target) {
    for (int n = 0; n < RETURNS; n++) {
        int dearest = -1;
        for (int i = 0; i < f->lives.count; i++)
            if (f->dropped[i] &&
                (dearest < 0 || f->m->cost[f->m->maker[f->lives.lives[i].root]] >
                                    f->m->cost[f->m->maker[f->lives.lives[dearest].root]]) &&
                f->known[f->lives.lives[i].root] != NEVER)
                dearest = i;
        if (dearest < 0) return true;
        outcome o;
        f->dropped[dearest] = false;
        if (!judge(f, &o)) return false;
        if (is_better(&o, best, target)) *best = o;
        else f->dropped[dearest] = true;
        f->known[f->lives.lives[dearest].root] =
            NEVER; /* looked at; can_return is not asked any more */
    }
    return true;
}

/* One peak: the best schedule found is left in `built`. 0: there is none better; -1: no memory. */
static int lower_peak(search *f, size_t target, outcome *reached) {
    outcome best = {f->lives.peak, f->lives.cost}, o;
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
            choose(f, n == 0 ? 0 : length, most); /* first all candidates */
            if (!judge(f, &o)) return -1;
            if (!is_better(&o, &best, target)) continue;
            best = o;
            best_most = most;
            best_length = n == 0 ? 0 : length;
        }
    }
    if (best_length < 0) return 0;
    weigh_cuts(f, best_most);
    choose(f, best_length, best_most);
    if (best.peak <= target && !give_back(f, &best, target)) return -1;
    if (!judge(f, reached)) return -1;
    return 1;
}

static int count_repeated(const gd_remat_model *m, const gd_schedule *s) {
    int steps = 0;
    for (int i = 0; i < m->p->n_steps; i++) steps += !m->p->steps[i].removed;
    return s->count - steps;
}

/* Lowers peak after peak. */
static gd_status find_schedule(const gd_remat_model *m, gd_schedule *s, size_t target) {
    for (int round = 0; round < ROUNDS; round++) {
        search f = {.m = m, .s = s};
        outcome reached = {0, 0};
        gd_status status = look(&f);
        int lower = status == GD_OK && f.lives.peak > target ? lower_peak(&f, target, &reached) : 0;
        if (lower > 0) {
            const gd_schedule old = *s;
            *s = f.built;
            f.built = old;
        }
        forget(&f);
        if (status != GD_OK || lower < 0) return GD_E_MEMORY;
        if (lower == 0 || reached.peak <= target) break;
    }
    return GD_OK;
}

int gd_pass_remat(gd_program *p, const gd_remat *given) {
    gd_remat_model m;
    gd_schedule s = {NULL, 0, 0};
    gd_status status = gd_remat_begin(&m, p, given);
    for (int i = 0; i < p->n_steps && status == GD_OK; i++)
        if (!p->steps[i].removed && !append(&s, i)) status = GD_E_MEMORY;
    if (status == GD_OK) status = find_schedule(&m, &s, given->target);
    const int repeated = status == GD_OK ? count_repeated(&m, &s) : 0;
    if (repeated > 0) status = gd_remat_apply(&m, &s);
    gd_free(s.steps);
    gd_remat_end(&m);
    return status == GD_OK ? repeated : -1;
}
