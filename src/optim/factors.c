/* factors.c - factors of parameters: those of a group that have the same factors are a part.
 *
 * A parameter moves to the end of the part with its factors, and a part without parameters goes.
 * gd_optimizer_set_factors only notes the moves. The parts are made once, before they are used.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/grow.h"
#include "core/index_set.h"
#include "core/map.h"
#include "optim/optimizer.h"

typedef struct part_to_be {
    gd_factors factors;
    int count;
} part_to_be;

typedef struct place {
    gd_tensor *parameter; /* NULL: it has moved to a later place */
    int part;
} place;

/* The places of all parameters of a group: in the parts that there are, then one for each move. */
struct gd_moves {
    place *places;
    part_to_be *parts;
    int n_places, places_room, n_parts, parts_room, n_parameters;
    gd_map place_of;  /* the latest place of each parameter */
    gd_map part_with; /* the latest part with these factors, by factors_key */
};

static void free_moves(gd_moves *m) {
    gd_map_free(&m->place_of);
    gd_map_free(&m->part_with);
    gd_free(m->places);
    gd_free(m->parts);
    gd_free(m);
}

void gd_optim_group_forget_moves(gd_optim_group *g) {
    if (g->moves) free_moves(g->moves);
    g->moves = NULL;
}

static bool has_equal_factors(gd_factors a, gd_factors b) {
    return a.lr == b.lr && a.weight_decay == b.weight_decay;
}

/* The key of the part with these factors in `part_with`, or the one to add it with. */
static const void *factors_key(const gd_moves *m, gd_factors f) {
    const double numbers[2] = {f.lr + 0.0, f.weight_decay + 0.0}; /* -0 is 0 */
    uint64_t bits[2];
    memcpy(bits, numbers, sizeof bits);
    uint64_t key = gd_hash_mix(gd_hash_mix(0, bits[0]), bits[1]) | 1;
    for (;; key += 16) {
        const void *at = (const void *)(uintptr_t)key;
        const int part = gd_map_find(&m->part_with, at);
        if (part < 0 || has_equal_factors(m->parts[part].factors, f)) return at;
    }
}

static bool add_part(gd_moves *m, gd_factors factors) {
    if (!gd_grow(m->parts, m->n_parts, m->parts_room) ||
        !gd_map_put(&m->part_with, factors_key(m, factors), m->n_parts))
        return false;
    m->parts[m->n_parts++] = (part_to_be){factors, 0};
    return true;
}

static bool add_place(gd_moves *m, gd_tensor *parameter, int part) {
    if (!gd_grow(m->places, m->n_places, m->places_room) ||
        !gd_map_put(&m->place_of, gd_optimizer_key(parameter), m->n_places))
        return false;
    m->places[m->n_places++] = (place){parameter, part};
    m->parts[part].count++;
    return true;
}

static bool list_places(gd_moves *m, const gd_optim_group *g) {
    for (int k = 0; k < g->n_parts; k++) {
        if (!add_part(m, g->parts[k].factors)) return false;
        for (int i = 0; i < g->parts[k].count; i++, m->n_parameters++)
            if (!add_place(m, g->parts[k].parameters[i], k)) return false;
    }
    return true;
}

static gd_status begin_moves(gd_optim_group *g) {
    gd_moves *m = gd_calloc(1, sizeof *m);
    if (m && list_places(m, g)) {
        g->moves = m;
        return GD_OK;
    }
    if (m) free_moves(m);
    return gd_no_memory(NULL, "for an optimizer");
}

/* Moves a parameter to the end of the part with these factors, which is new if there is none, or
 * none any more. */
static gd_status note_move(gd_moves *m, gd_tensor *parameter, gd_factors factors) {
    const int from = gd_map_find(&m->place_of, gd_optimizer_key(parameter));
    if (has_equal_factors(m->parts[m->places[from].part].factors, factors)) return GD_OK;
    int part = gd_map_find(&m->part_with, factors_key(m, factors));
    if (part < 0 || m->parts[part].count == 0) {
        part = m->n_parts;
        if (!add_part(m, factors)) return gd_no_memory(NULL, "for an optimizer");
    }
    if (!add_place(m, m->places[from].parameter, part))
        return gd_no_memory(NULL, "for an optimizer");
    m->parts[m->places[from].part].count--;
    m->places[from].parameter = NULL;
    return GD_OK;
}

/* --- the parts -------------------------------------------------------------------------------- */

/* The parameters in the order of their parts. `ends`: per part, where its parameters end. */
static void sort_by_part(const gd_moves *m, gd_tensor **sorted, int *ends) {
    for (int k = 0, n = 0; k < m->n_parts; n += m->parts[k++].count) ends[k] = n;
    for (int i = 0; i < m->n_places; i++)
        if (m->places[i].parameter) sorted[ends[m->places[i].part]++] = m->places[i].parameter;
}

/* Makes the parts of a group again, or after a failure none. They have no state yet. */
static gd_status make_parts(const gd_optimizer *o, gd_optim_group *g) {
    const gd_moves *m = g->moves;
    gd_optim_part *parts = gd_calloc((size_t)m->n_parts, sizeof *parts);
    gd_tensor **sorted = gd_calloc((size_t)m->n_parameters, sizeof *sorted);
    int *ends = gd_calloc((size_t)m->n_parts, sizeof *ends), n = 0;
    gd_status status = parts && sorted && ends ? GD_OK : gd_no_memory(NULL, "for an optimizer");
    if (status == GD_OK) sort_by_part(m, sorted, ends);
    for (int k = 0; k < m->n_parts && status == GD_OK; k++) {
        const part_to_be *p = &m->parts[k];
        if (p->count == 0) continue;
        status =
            gd_optim_part_make(o, g, p->factors, sorted + ends[k] - p->count, p->count, &parts[n]);
        n += status == GD_OK;
    }
    gd_optim_part *old = status == GD_OK ? g->parts : parts;
    for (int k = 0; old && k < (status == GD_OK ? g->n_parts : n); k++)
        gd_optim_part_free(g, &old[k]);
    gd_free(old);
    gd_free(sorted);
    gd_free(ends);
    if (status != GD_OK) return status;
    g->parts = parts;
    g->n_parts = n;
    return GD_OK;
}

gd_status gd_optimizer_move(gd_optimizer *o) {
    for (int i = 0; i < o->n_groups; i++) {
        gd_optim_group *g = &o->groups[i];
        if (!g->moves) continue;
        if (g->moves->n_places > g->moves->n_parameters) GD_TRY(make_parts(o, g));
        gd_optim_group_forget_moves(g);
    }
    return GD_OK;
}

gd_status gd_optimizer_arrange(gd_optimizer *o) {
    GD_TRY(gd_optimizer_collect(o));
    return gd_optimizer_move(o);
}

/* --- gd_optimizer_set_factors ----------------------------------------------------------------- */

static bool has_state(const gd_optim_group *g) {
    for (int k = 0; k < g->n_parts; k++) {
        const gd_optim_part *part = &g->parts[k];
        if (part->steps) return true;
        for (int i = 0; i < part->count * g->needs.count; i++)
            if (part->slots[i]) return true;
    }
    return false;
}

static gd_status set_factors(gd_optimizer *o, gd_tensor *p, gd_factors factors) {
    if (!o) return gd_fail(GD_E_ARGUMENT, "gd_optimizer_set_factors: the optimizer is NULL");
    GD_TRY(gd_optimizer_collect(o));
    const int group =
        p && p->kind != GD_FAILED ? gd_map_find(&o->group_of, gd_optimizer_key(p)) : -1;
    if (group < 0)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_optimizer_set_factors: the tensor is not a parameter of the optimizer");
    gd_optim_group *g = &o->groups[group];
    if (!(factors.lr >= 0 && factors.weight_decay >= 0))
        return gd_fail(GD_E_ARGUMENT, "gd_optimizer_set_factors: %s is %g; it must be in [0, inf)",
                       factors.lr >= 0 ? "weight_decay" : "lr",
                       factors.lr >= 0 ? factors.weight_decay : factors.lr);
    if (factors.weight_decay != 1 &&
        !gd_factory_option(o->factory, g->options, "weight_decay", NULL))
        return gd_fail(GD_E_ARGUMENT, "gd_optimizer_set_factors: %s has no option weight_decay",
                       o->factory->record.name);
    if (!g->moves && has_state(g)) /* moves are made before there is state */
        return gd_fail(GD_E_STATE, "gd_optimizer_set_factors: the optimizer has state already; "
                                   "call it before the first step");
    if (!g->moves) GD_TRY(begin_moves(g));
    GD_TRY(note_move(g->moves, p, factors));
    o->revision++; /* a jit traces its steps again */
    return GD_OK;
}

gd_status gd_optimizer_set_factors_at(const char *site, gd_optimizer *o, gd_tensor *parameter,
                                      const gd_factors *factors) {
    GD_LIVE_AT(site, o);
    factors = factors ? factors : GD_FACTORS_();
    GD_CALLED_FROM(site);
    return gd_report(site, set_factors(o, parameter, *factors));
}
