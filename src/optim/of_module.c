/* of_module.c - optimizers of a module: their first group has all parameters of the module.
 *
 * Layers with sizes to be inferred create their parameters in their first call, after the program
 * has created its optimizer. Such an optimizer reads the module again when a module has changed,
 * before each step and each save. Its parameters are in the order of the module, whenever they were
 * built, so that sums over all of them (clipping) have the same bits.
 */
#include <stdio.h>

#include "core/alloc.h"
#include "core/map.h"
#include "gradus/ops.h"
#include "nn/module.h"
#include "optim/optimizer.h"

/* --- devices ---------------------------------------------------------------------------------- */

static gd_status first_device(gd_tree_walk *w, gd_module *m) {
    gd_device **device = w->user;
    if (!*device) *device = m->device;
    return GD_OK;
}

gd_device *gd_optimizer_device(const gd_optimizer *o, int group) {
    const gd_optim_group *g = &o->groups[group];
    if (g->n_parts > 0) return g->parts[0].parameters[0]->device;
    gd_device *device = NULL;
    if (o->of && o->of->module)
        gd_module_walk(o->of->module, &(gd_tree_walk){.module = first_device, .user = &device});
    return device ? device : gd_default_device();
}

/* Moves a rate that was created before the parameters to their device. */
static gd_status move_rate(gd_tensor *rate, gd_device *device) {
    if (!rate || rate->device == device) return GD_OK;
    GD_EAGER;
    GD_NO_GRAD;
    gd_tensor *moved = gd_to_device(rate, device);
    return moved->kind == GD_FAILED ? gd_failure() : gd_tensor_become(rate, moved);
}

/* --- parameters ------------------------------------------------------------------------------- */

/* Where each parameter is now: the number of its place in the first group, over all parts, or one
 * of these. */
enum { IN_ANOTHER_GROUP = -2, IS_NEW = -1 };

static gd_status map_places(const gd_optimizer *o, gd_map *places) {
    int number = 0;
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts; k++)
            for (int i = 0; i < o->groups[g].parts[k].count; i++)
                if (!gd_map_put(places, o->groups[g].parts[k].parameters[i],
                                g == 0 ? number++ : IN_ANOTHER_GROUP))
                    return gd_no_memory(NULL, "for an optimizer");
    return GD_OK;
}

/* A group that is filled again: the module's parameters and their places before. */
typedef struct refill {
    gd_optimizer *o;
    gd_tensors list;
    int *places;          /* of each in the list */
    int *part_of;         /* per place: the number of its part */
    int *first;           /* per part: its first place */
    gd_optim_part *parts; /* the new parts */
    int n_parts, n_parameters;
    gd_tensor **sorted; /* the parameters of the list, sorted by part, and their places */
    int *sorted_places;
    int *ends; /* per part: where its parameters end in `sorted` */
} refill;

/* The part and the index of a place. */
static gd_optim_part *part_at(const refill *r, int place, int *index) {
    const int part = r->part_of[place];
    *index = place - r->first[part];
    return &r->o->groups[0].parts[part];
}

/* Moves the slots of a parameter to its new place. */
static void move_slots(const gd_optim_group *g, const gd_optim_part *from, int i, gd_optim_part *to,
                       int at) {
    const int count = g->needs.count;
    for (int s = 0; s < count; s++) {
        to->slots[at * count + s] = from->slots[i * count + s];
        from->slots[i * count + s] = NULL;
    }
}

/* The step counts of the parameters that a part had before; 0 for new ones. `first` is the first
 * place of that part. */
static gd_status copy_steps(const gd_optim_part *from, int first, const int *places,
                            gd_optim_part *to) {
    if (!from->steps) return GD_OK;
    double *old = gd_calloc((size_t)from->count + 1, sizeof *old),
           *steps = gd_calloc((size_t)to->count + 1, sizeof *steps);
    gd_status status = old && steps ? gd_copy_out(from->steps, old, (size_t)from->count * 8)
                                    : gd_no_memory(NULL, "for an optimizer");
    for (int i = 0; i < to->count && status == GD_OK; i++)
        if (places[i] >= 0) steps[i] = old[places[i] - first];
    if (status == GD_OK) {
        GD_EAGER;
        GD_SCOPE;
        gd_device *device = gd_this_thread.device;
        gd_this_thread.device = to->parameters[0]->device;
        gd_tensor *t = gd_from_array(gd_dims(to->count), GD_F64, steps);
        gd_this_thread.device = device;
        status = t->kind == GD_FAILED ? gd_failure() : GD_OK;
        if (status == GD_OK) to->steps = gd_retain(t);
    }
    gd_free(old);
    gd_free(steps);
    return status;
}

/* The number of the part without factors, which new parameters join; if there is none, of a part
 * behind the others. */
static int find_plain_part(const gd_optim_group *g) {
    int k = 0;
    while (k < g->n_parts &&
           !(g->parts[k].factors.lr == 1 && g->parts[k].factors.weight_decay == 1))
        k++;
    return k;
}

/* Sorts the parameters of the list by the parts that they join, and leaves out those of other
 * groups. */
static void sort_by_part(refill *r) {
    const gd_optim_group *g = &r->o->groups[0];
    const int plain = find_plain_part(g);
    for (int pass = 0; pass < 2; pass++) { /* counts, then sorts */
        for (int64_t i = 0; i < r->list.count; i++) {
            const int place = r->places[i];
            if (place < 0 && place != IS_NEW) continue;
            const int to = r->ends[place == IS_NEW ? plain : r->part_of[place]]++;
            if (pass == 0) continue;
            r->sorted[to] = r->list.at[i];
            r->sorted_places[to] = place;
        }
        for (int k = 0, n = 0; k <= g->n_parts && pass == 0; k++) {
            const int count = r->ends[k];
            r->ends[k] = n;
            n += count;
        }
    }
}

/* Makes the new part with the parameters of the old part number `k` and those that join it. */
static gd_status refill_part(refill *r, int k) {
    const gd_optim_group *g = &r->o->groups[0];
    const gd_optim_part *old = k < g->n_parts ? &g->parts[k] : NULL;
    const int from = k ? r->ends[k - 1] : 0, count = r->ends[k] - from;
    if (count == 0) return GD_OK;
    gd_optim_part *part = &r->parts[r->n_parts];
    GD_TRY(gd_optim_part_make(r->o, g, old ? old->factors : *GD_FACTORS_(), r->sorted + from, count,
                              part));
    r->n_parts++;
    r->n_parameters += count;
    return old ? copy_steps(old, r->first[k], r->sorted_places + from, part) : GD_OK;
}

static gd_status refill_parts(refill *r) {
    sort_by_part(r);
    for (int k = 0; k <= r->o->groups[0].n_parts; k++) GD_TRY(refill_part(r, k));
    return GD_OK;
}

/* Notes that the new parameters are in the group. */
static gd_status note_new(refill *r) {
    int64_t count = 0;
    for (int64_t i = 0; i < r->list.count; i++)
        if (r->places[i] == IS_NEW) r->sorted[count++] = r->list.at[i];
    return gd_optimizer_note_group(r->o, (gd_tensors){r->sorted, count}, 0);
}

/* Replaces the parts of the group by the new ones, which get the slots. Cannot fail. */
static void adopt_parts(refill *r, gd_map *places) {
    gd_optim_group *g = &r->o->groups[0];
    for (int k = 0; k < r->n_parts; k++)
        for (int i = 0, index; i < r->parts[k].count; i++) {
            const int place = gd_map_find(places, r->parts[k].parameters[i]);
            if (place < 0) continue;
            const gd_optim_part *from = part_at(r, place, &index);
            move_slots(g, from, index, &r->parts[k], i);
        }
    for (int k = 0; k < g->n_parts; k++) {
        for (int i = 0; i < g->parts[k].count; i++) /* some are no longer in the module */
            gd_optimizer_change_group(r->o, g->parts[k].parameters[i], -1);
        r->o->n_parameters -= g->parts[k].count;
        gd_optim_part_free(g, &g->parts[k]);
    }
    for (int k = 0; k < r->n_parts; k++)
        for (int i = 0; i < r->parts[k].count; i++)
            gd_optimizer_change_group(r->o, r->parts[k].parameters[i], 0);
    gd_free(g->parts);
    g->parts = r->parts;
    g->n_parts = r->n_parts;
    r->o->n_parameters += r->n_parameters;
    r->o->revision++;
}

static void list_old_places(refill *r) {
    const gd_optim_group *g = &r->o->groups[0];
    for (int k = 0, n = 0; k < g->n_parts; k++) {
        r->first[k] = n;
        for (int i = 0; i < g->parts[k].count; i++) r->part_of[n++] = k;
    }
}

/* `had`: how many parameters the group has. */
static gd_status refill_group(gd_optimizer *o, gd_tensors list, int *places, gd_map *map, int had) {
    gd_optim_group *g = &o->groups[0];
    const size_t most = (size_t)list.count + 1, parts = (size_t)g->n_parts + 2;
    refill r = {.o = o, .list = list, .places = places};
    r.parts = gd_calloc(parts, sizeof *r.parts);
    r.first = gd_calloc(parts, sizeof *r.first);
    r.ends = gd_calloc(parts, sizeof *r.ends);
    r.part_of = gd_calloc((size_t)had + 1, sizeof *r.part_of);
    r.sorted = gd_calloc(most, sizeof *r.sorted);
    r.sorted_places = gd_calloc(most, sizeof *r.sorted_places);
    const bool room = r.parts && r.first && r.ends && r.part_of && r.sorted && r.sorted_places;
    if (room) list_old_places(&r);
    gd_status status = room ? refill_parts(&r) : gd_no_memory(NULL, "for an optimizer");
    if (status == GD_OK) status = note_new(&r);
    if (status == GD_OK) adopt_parts(&r, map);
    for (int k = 0; k < r.n_parts && status != GD_OK; k++) gd_optim_part_free(g, &r.parts[k]);
    if (status != GD_OK) gd_free(r.parts);
    gd_free(r.first);
    gd_free(r.ends);
    gd_free(r.part_of);
    gd_free(r.sorted);
    gd_free(r.sorted_places);
    if (status == GD_OK) status = move_rate(g->lr, gd_optimizer_device(o, 0));
    return status == GD_OK ? move_rate(g->base, gd_optimizer_device(o, 0)) : status;
}

/* Refills the group unless it has exactly the parameters of the list. */
static gd_status take_list(gd_optimizer *o, gd_tensors list) {
    gd_map map = {NULL, 0, 0};
    int *places = gd_calloc((size_t)list.count + 1, sizeof *places);
    gd_status status = places ? map_places(o, &map) : gd_no_memory(NULL, "for an optimizer");
    int known = 0, added = 0, had = 0;
    for (int k = 0; k < o->groups[0].n_parts; k++) had += o->groups[0].parts[k].count;
    for (int64_t i = 0; i < list.count && status == GD_OK; i++) {
        places[i] = gd_map_find(&map, list.at[i]);
        known += places[i] >= 0;
        added += places[i] == IS_NEW;
    }
    if (status == GD_OK && (added > 0 || known < had))
        status = refill_group(o, list, places, &map, had);
    gd_map_free(&map);
    gd_free(places);
    return status;
}

gd_status gd_optimizer_collect(gd_optimizer *o) {
    if (!o->of || !o->of->module) return GD_OK;
    const unsigned now = gd_module_changes();
    if (now == o->seen && o->n_parameters > 0) return GD_OK;
    GD_TRY(gd_optimizer_move(o));
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    const gd_tensors list = gd_module_parameters_so_far(o->of->module);
    gd_status status = gd_failed() ? gd_failure() : take_list(o, list);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK) o->seen = now;
    return status;
}

/* --- membership ------------------------------------------------------------------------------- */

static gd_status fail_foreign(const gd_optimizer *o, const gd_tensor *p, int number) {
    char name[GD_MAX_PATH], text[160], own[GD_MAX_PATH + 20] = "";
    if (o->of && o->of->module && gd_module_name_of(o->of->module, p, name, sizeof name))
        snprintf(own, sizeof own, " '%s' of its module", name);
    return gd_fail(GD_E_ARGUMENT,
                   "parameter %d of the optimizer,%s %s, is not a parameter of the net; create the "
                   "optimizer from gd_module_parameters of this net, or as an optimizer of it "
                   "(gd_optim_%s_of)",
                   number, own, gd_describe(p, text, sizeof text), o->factory->record.name);
}

static gd_status check_list(const gd_optimizer *o, gd_tensors of_net, gd_map *known) {
    int number = 0;
    for (int64_t i = 0; i < of_net.count; i++)
        if (!gd_map_put(known, of_net.at[i], 1)) return gd_no_memory(NULL, "for an optimizer");
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts; k++)
            for (int i = 0; i < o->groups[g].parts[k].count; i++, number++)
                if (gd_map_find(known, o->groups[g].parts[k].parameters[i]) < 0)
                    return fail_foreign(o, o->groups[g].parts[k].parameters[i], number);
    return GD_OK;
}

gd_status gd_optimizer_check_within(gd_optimizer *o, gd_module *net) {
    GD_TRY(gd_optimizer_arrange(o));
    if (o->n_parameters == 0 && o->of &&
        !(o->of->module && gd_module_contains(net, o->of->module, 0)))
        return gd_fail(GD_E_ARGUMENT, "the optimizer is that of another module, which is not a "
                                      "part of the net");
    gd_map known = {NULL, 0, 0};
    gd_scope *scope = gd_scope_open();
    const gd_tensors list = gd_module_parameters_so_far(net);
    const gd_status status = gd_failed() ? gd_failure() : check_list(o, list, &known);
    gd_scope_close(&scope);
    gd_map_free(&known);
    return status;
}
