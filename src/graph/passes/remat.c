/* remat.c - rematerialization: recomputes values instead of keeping them across the peak of memory.
 *
 * A value that is live across the peak and can be computed again may be dropped there. Before a
 * later use, the step that computes it is repeated, and the steps before that one, back to values
 * that were kept. The choice of kept values decides about the result: the part of the program
 * before the peak is cut into segments, and the values that pass from one segment to the next are
 * kept. Then one segment at a time is recomputed (n layers in segments of sqrt(n) need memory for 2
 * sqrt(n) layers instead of n). Several segment lengths are tried, with cheap steps only and with
 * all. Where values are only read after the peak, no cut is better than another: a second kind of
 * try drops the values that are read latest, and recomputes what they have in common once. Each try
 * is judged by its peak (remat_lives.c) and its cost. If the peak is still too high, the same is
 * done around the new peak.
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
    SHARES = 8,        /* how many amounts of values that are read latest are tried */
    MAX_TIMES = 8,     /* a schedule has at most so many times the steps of the program */
};

/* What is dropped at a peak. */
typedef struct remat_choice {
    int most;      /* CHEAP or HEAVY steps may be repeated */
    bool latest;   /* values that are read latest; otherwise all but those between segments */
    int64_t bytes; /* of the values that are dropped; or the length of the segments, 0: one */
} remat_choice;

/* A value that can be dropped, and the position of its first use after the peak. */
typedef struct late_use {
    int life, at;
} late_use;

/* A step that is being repeated, and the first of its operands that it may still lack. */
typedef struct repeated_step {
    int step, operand;
} repeated_step;

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
    int *boundary;              /* per position: the first end of a segment there or later */
    late_use *late;             /* the candidates, the latest first */
    int n_late;
    /* The schedule that is being built. */
    bool *there;          /* per root: it is in memory */
    int *burst, n_burst;  /* roots that were recomputed for the current step */
    repeated_step *stack; /* steps that are being repeated, each for a later one below it */
    bool shares;          /* what is recomputed stays for other values that need it */
    int *last_need;       /* per root, if it shares: the last position that needs it */
    gd_remat_schedule built;
    int room; /* the most steps of a schedule */
    bool no_memory, too_long;
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
    for (int k = m->steps[producer].in; k < m->steps[producer].out; k++) {
        const gd_remat_operand *in = &m->operands[k];
        if (f->through[in->root] && !in->updated) continue;
        const int need = can_recompute(f, in->root);
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
    f->stack = gd_malloc(((size_t)p->n_steps + 1) * sizeof *f->stack);
    f->dropped = gd_calloc((size_t)f->lives.count + 1, sizeof(bool));
    f->cut = gd_calloc(positions, sizeof(int64_t));
    f->boundary = gd_calloc(positions, sizeof(int));
    f->late = gd_malloc(((size_t)f->lives.count + 1) * sizeof *f->late);
    f->last_need = gd_calloc(roots, sizeof(int));
    if (!f->through || !f->there || !f->known || !f->life_of || !f->last_use || !f->burst ||
        !f->stack || !f->dropped || !f->cut || !f->boundary || !f->late || !f->last_need)
        return gd_no_memory(NULL, "to plan a run");
    for (int i = 0; i < p->n_steps; i++) f->room += MAX_TIMES * !p->steps[i].removed;
    for (int r = 0; r < p->n_roots; r++) f->life_of[r] = -1;
    for (int i = 0; i < f->lives.count; i++) {
        const gd_life *l = &f->lives.lives[i];
        if (l->begin > f->lives.at) break;
        f->life_of[l->root] = i;
        f->through[l->root] = l->end > f->lives.at || f->m->fetched[l->root];
    }
    for (int j = 0; j < f->s->count; j++) {
        const gd_remat_step *s = &f->m->steps[f->s->steps[j]];
        for (int k = s->in; k < s->out; k++) f->last_use[f->m->operands[k].root] = j;
    }
    for (int i = 0; i < p->n_steps; i++) /* operands first, so that the recursion is flat */
        for (int k = f->m->steps[i].out; k < f->m->steps[i].end; k++)
            can_recompute(f, f->m->operands[k].root);
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
    gd_free(f->stack);
    gd_free(f->dropped);
    gd_free(f->cut);
    gd_free(f->boundary);
    gd_free(f->late);
    gd_free(f->last_need);
    gd_free(f->built.steps);
}

/* --- choosing what to drop -------------------------------------------------------------------- */

/* At each position up to the peak: the bytes that later steps read from earlier ones. */
static void weigh_cuts(remat_search *f, int most) {
    memset(f->cut, 0, ((size_t)f->s->count + 2) * sizeof *f->cut);
    for (int i = 0; i < f->lives.count; i++) {
        const gd_life *l = &f->lives.lives[i];
        if (!l->counted || l->before <= l->begin) continue;
        int64_t bytes = (int64_t)f->m->bytes[l->root];
        if (!is_candidate(f, l, most)) {
            if (l->after >= 0) continue; /* it stays in memory anyway */
            bytes *= EXTRA_PENALTY;
        }
        f->cut[l->begin] += bytes;
        f->cut[l->before] -= bytes;
    }
    for (int j = 1; j <= f->lives.at; j++) f->cut[j] += f->cut[j - 1];
}

/* Drops all candidates except those that pass between segments of about `length` bytes. */
static void drop_inside_segments(remat_search *f, int64_t length, int most) {
    const int end = f->s->count;
    const gd_life *lives = f->lives.lives;
    int64_t bytes = 0;
    int best = -1;
    for (int j = 0; j <= end; j++) f->boundary[j] = end;
    for (int j = 0, at = 0; j <= f->lives.at && length > 0; j++) {
        for (; at < f->lives.count && lives[at].begin == j; at++)
            if (is_candidate(f, &lives[at], most)) bytes += (int64_t)f->m->bytes[lives[at].root];
        if (2 * bytes >= length && (best < 0 || f->cut[j] <= f->cut[best])) best = j;
        if (2 * bytes < 3 * length || best < 0) continue;
        f->boundary[best] = best;
        bytes = 0;
        for (int i = at - 1; i >= 0 && lives[i].begin > best; i--)
            if (is_candidate(f, &lives[i], most)) bytes += (int64_t)f->m->bytes[lives[i].root];
        best = -1;
    }
    for (int j = end; j-- > 0;)
        if (f->boundary[j + 1] < f->boundary[j]) f->boundary[j] = f->boundary[j + 1];
    for (int i = 0; i < f->lives.count; i++)
        f->dropped[i] =
            is_candidate(f, &lives[i], most) && f->boundary[lives[i].begin] >= lives[i].before;
}

static int compare_late(const void *a, const void *b) {
    const late_use *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at) - (x->at > y->at) : x->life - y->life;
}

static void list_late_uses(remat_search *f, int most) {
    f->n_late = 0;
    for (int i = 0; i < f->lives.count; i++)
        if (is_candidate(f, &f->lives.lives[i], most))
            f->late[f->n_late++] = (late_use){i, f->lives.lives[i].after};
    qsort(f->late, (size_t)f->n_late, sizeof *f->late, compare_late);
}

/* Drops values of so many bytes: those that are read latest. */
static void drop_latest(remat_search *f, int64_t bytes, int most) {
    list_late_uses(f, most);
    memset(f->dropped, 0, (size_t)f->lives.count * sizeof *f->dropped);
    for (int i = 0; i < f->n_late && bytes > 0; i++) {
        f->dropped[f->late[i].life] = true;
        bytes -= (int64_t)f->m->bytes[f->lives.lives[f->late[i].life].root];
    }
}

static void drop_values(remat_search *f, const remat_choice *choice) {
    f->shares = choice->latest;
    if (choice->latest) {
        drop_latest(f, choice->bytes, choice->most);
        return;
    }
    weigh_cuts(f, choice->most);
    drop_inside_segments(f, choice->bytes, choice->most);
}

/* --- the schedule ----------------------------------------------------------------------------- */

static void add_to_schedule(remat_search *f, int step) {
    if (f->built.count >= f->room) f->too_long = true;
    else if (!append_step(&f->built, step)) f->no_memory = true;
}

static void note_results(remat_search *f, const gd_remat_step *s) {
    for (int k = s->out; k < s->end; k++) {
        const int root = f->m->operands[k].root;
        if (f->there[root]) continue;
        f->there[root] = true;
        f->burst[f->n_burst++] = root;
    }
}

/* The step that must be repeated before step `r->step` can be, or -1. */
static int next_missing(const remat_search *f, repeated_step *r) {
    const gd_remat_model *m = f->m;
    while (r->operand < m->steps[r->step].out) {
        const gd_remat_operand *in = &m->operands[r->operand++];
        if (in->updated || (!f->there[in->root] && m->producer[in->root] >= 0))
            return m->producer[in->root];
    }
    return -1;
}

/* Appends the step again, after steps that recompute what it needs: in deep nets thousands of steps
 * that need each other. */
static void repeat_step(remat_search *f, int step) {
    int depth = 0;
    f->stack[depth++] = (repeated_step){step, f->m->steps[step].in};
    while (depth > 0 && !f->no_memory && !f->too_long) {
        const int missing = next_missing(f, &f->stack[depth - 1]);
        if (missing >= 0) {
            f->stack[depth++] = (repeated_step){missing, f->m->steps[missing].in};
            continue;
        }
        step = f->stack[--depth].step;
        add_to_schedule(f, step);
        note_results(f, &f->m->steps[step]);
    }
}

static void ensure_root(remat_search *f, int root) {
    if (!f->there[root] && f->m->producer[root] >= 0) repeat_step(f, f->m->producer[root]);
}

/* Per root: the last position that reads it, or a value that is recomputed from it. */
static void find_last_needs(remat_search *f) {
    const gd_remat_model *m = f->m;
    memcpy(f->last_need, f->last_use, (size_t)m->p->n_roots * sizeof *f->last_need);
    for (int i = m->p->n_steps; i-- > 0 && f->shares;) {
        const gd_remat_step *s = &m->steps[i];
        int need = -1;
        for (int k = s->out; k < s->end; k++) {
            const int root = m->operands[k].root;
            if (f->life_of[root] < 0 || f->there[root]) continue;
            if (f->last_need[root] > need) need = f->last_need[root];
        }
        if (need <= f->lives.at) continue;
        for (int k = s->in; k < s->out; k++) {
            const int root = m->operands[k].root;
            if (f->last_need[root] < need) f->last_need[root] = need;
        }
    }
}

/* Builds the schedule in which values that are dropped at the peak are recomputed for later
 * uses. */
static bool build_schedule(remat_search *f) {
    const gd_remat_model *m = f->m;
    f->built.count = 0;
    f->no_memory = f->too_long = false;
    for (int j = 0; j <= f->lives.at; j++) add_to_schedule(f, f->s->steps[j]);
    for (int r = 0; r < m->p->n_roots; r++)
        f->there[r] = f->through[r] && f->life_of[r] >= 0 && !f->dropped[f->life_of[r]];
    find_last_needs(f);
    for (int j = f->lives.at + 1; j < f->s->count && !f->no_memory && !f->too_long; j++) {
        const gd_remat_step *s = &m->steps[f->s->steps[j]];
        f->n_burst = 0;
        for (int k = s->in; k < s->out; k++) ensure_root(f, m->operands[k].root);
        add_to_schedule(f, f->s->steps[j]);
        for (int i = 0; i < f->n_burst; i++) /* drop what no later step needs */
            if (f->last_need[f->burst[i]] <= j) f->there[f->burst[i]] = false;
        for (int k = s->out; k < s->end; k++) f->there[m->operands[k].root] = true;
    }
    return !f->no_memory;
}

/* --- the search ------------------------------------------------------------------------------- */

typedef struct remat_outcome {
    size_t peak;
    double cost;
} remat_outcome;

/* False: no memory. A schedule that is too long is worse than any other. */
static bool judge_schedule(remat_search *f, remat_outcome *o) {
    gd_lives lives;
    *o = (remat_outcome){SIZE_MAX, 0};
    if (!build_schedule(f)) return false;
    if (f->too_long) return true;
    if (!gd_remat_peak(f->m, &f->built, &lives)) return false;
    *o = (remat_outcome){lives.peak, lives.cost};
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

/* Judges a choice; it replaces *best if it is better. False: no memory. */
static bool try_choice(remat_search *f, remat_choice choice, size_t target, remat_outcome *best,
                       remat_choice *best_choice) {
    remat_outcome o;
    drop_values(f, &choice);
    if (!judge_schedule(f, &o)) return false;
    if (!is_better(&o, best, target)) return true;
    *best = o;
    *best_choice = choice;
    return true;
}

/* Lowers one peak. 1: `built` is the best schedule found; 0: none is better; -1: no memory. */
static int lower_peak(remat_search *f, size_t target, remat_outcome *reached) {
    remat_outcome best = {f->lives.peak, f->lives.cost};
    remat_choice chosen = {.most = UNKNOWN};
    int64_t total = 0;
    for (int i = 0; i < f->lives.count; i++)
        if (is_candidate(f, &f->lives.lives[i], HEAVY))
            total += (int64_t)f->m->bytes[f->lives.lives[i].root];
    if (total == 0) return 0;
    for (int most = CHEAP; most <= HEAVY; most++) {
        int64_t length = total, amount = (int64_t)(f->lives.peak - target);
        for (int n = 0; n < LENGTHS && length > 0; n++, length -= length * 3 / 10 + 1) {
            const remat_choice choice = {most, false, n == 0 ? 0 : length}; /* first drop all */
            if (!try_choice(f, choice, target, &best, &chosen)) return -1;
        }
        for (int n = 0; n < SHARES && amount <= total; n++, amount += amount / 2 + 1) {
            const remat_choice choice = {most, true, amount};
            if (!try_choice(f, choice, target, &best, &chosen)) return -1;
        }
    }
    if (chosen.most == UNKNOWN) return 0;
    drop_values(f, &chosen);
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
