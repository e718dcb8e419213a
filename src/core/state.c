/* state.c - the state of objects: collecting their named tensors and values (state.h). */
#include "core/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/freed.h"
#include "core/grow.h"
#include "core/number.h"
#include "core/state_path.h"

/* --- the object ------------------------------------------------------------------------------- */

static void state_destroy(gd_object *object) {
    gd_state *s = (gd_state *)object;
    gd_path_free(&s->path);
    for (int i = 0; i < s->n_tensors; i++) {
        gd_free(s->tensors[i].name);
        gd_object_release(&s->tensors[i].tensor->object);
    }
    for (int i = 0; i < s->n_values; i++) {
        gd_free(s->values[i].name);
        gd_free(s->values[i].text);
    }
    gd_free(s->tensors);
    gd_free(s->values);
    gd_name_map_free(&s->by_name);
    gd_name_map_free(&s->values_by_name);
    gd_name_map_free(&s->by_local);
    gd_map_free(&s->by_place);
    gd_object_free(object);
    gd_object_count(-1);
}

/* A state can be a part: a state that was read from a file can be written to another file. */
static gd_status give_state(gd_object *object, gd_state *state) {
    const gd_state *s = (const gd_state *)object;
    for (int i = 0; i < s->n_tensors; i++)
        GD_TRY(gd_state_put_tensor(state, s->tensors[i].name, s->tensors[i].tensor));
    for (int i = 0; i < s->n_values; i++)
        GD_TRY(gd_state_put_text(state, s->values[i].name, s->values[i].text));
    return GD_OK;
}
static gd_status take_state(gd_object *object, gd_loading *in) {
    gd_state *s = (gd_state *)object;
    for (int i = 0; i < s->n_tensors; i++)
        GD_TRY(gd_loading_tensor(in, s->tensors[i].name, s->tensors[i].tensor));
    for (int i = 0; i < s->n_values; i++)
        GD_TRY(gd_loading_text(in, s->values[i].name, &s->values[i].text));
    return GD_OK;
}
static const gd_state_rules state_rules = {give_state, take_state};
static const gd_class state_class = {
    .name = "state", .destroy = state_destroy, .state = &state_rules};
GD_KNOWN_CLASS(state_class)

gd_status gd_state_new(gd_state **out) {
    *out = gd_calloc(1, sizeof **out);
    if (!*out) return gd_no_memory(NULL, "for a state");
    gd_object_init(&(*out)->object, &state_class);
    gd_object_count(1);
    return GD_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

const void *gd_state_place(const gd_tensor *t) {
    const uintptr_t place = (uintptr_t)t->offset * (uintptr_t)0x9E3779B97F4A7C15u;
    return (const void *)(((uintptr_t)t->storage + (place << 4)) | 1);
}

bool gd_state_same(const gd_tensor *a, const gd_tensor *b) {
    if (a == b) return true;
    if (a->storage != b->storage || a->offset != b->offset || a->dtype != b->dtype ||
        a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i] || (a->dims[i] > 1 && a->strides[i] != b->strides[i]))
            return false;
    return true;
}

/* The number of the first entry with the same tensor, or -1. The later ones are in no list. */
static int find_same_tensor(const gd_state *s, const gd_tensor *t) {
    int i = gd_map_find(&s->by_place, gd_state_place(t));
    while (i >= 0 && !gd_state_same(s->tensors[i].tensor, t)) i = s->tensors[i].same_place;
    return i;
}

const gd_state_tensor *gd_state_entry_of(const gd_state *state, const gd_tensor *tensor) {
    const int i = tensor && tensor->kind == GD_VALUE ? find_same_tensor(state, tensor) : -1;
    return i < 0 ? NULL : &state->tensors[i];
}

/* Records the name of an entry without its part, and marks entries of two parts with the same name.
 * */
static bool add_local_name(gd_state *s, int i) {
    const char *local = s->tensors[i].name + s->tensors[i].part;
    const int other = gd_entry_number(&s->by_local, local);
    if (other < 0) return gd_set_entry_number(&s->by_local, local, i);
    s->tensors[i].ambiguous = s->tensors[other].ambiguous = true;
    return true;
}

static gd_status add_tensor(gd_state *s, char *name, gd_tensor *t) {
    const int i = s->n_tensors, same = find_same_tensor(s, t);
    const size_t length = strlen(name);
    if (!gd_grow(s->tensors, s->n_tensors, s->tensors_room))
        return gd_no_memory(NULL, "for a state");
    s->tensors[i] = (gd_state_tensor){.name = name,
                                      .part = s->path.part < length ? s->path.part : length,
                                      .tensor = t,
                                      .tied = same,
                                      .same_place = gd_map_find(&s->by_place, gd_state_place(t))};
    if (!gd_set_entry_number(&s->by_name, name, i)) return gd_no_memory(NULL, "for a state");
    const bool listed = same >= 0 || gd_map_put(&s->by_place, gd_state_place(t), i);
    if (!listed || !add_local_name(s, i)) {
        gd_name_map_remove(&s->by_name, name); /* the other maps are not used after a failure */
        return gd_no_memory(NULL, "for a state");
    }
    gd_object_retain(&t->object);
    s->n_tensors++;
    return GD_OK;
}

gd_status gd_state_put_tensor(gd_state *s, const char *name, gd_tensor *t) {
    char *full = gd_path_join(&s->path, name);
    if (!full) return gd_no_memory(NULL, "for a state");
    gd_status status = GD_OK;
    const int there = gd_entry_number(&s->by_name, full);
    if (!t || t->kind != GD_VALUE)
        status = gd_fail(GD_E_STATE, "'%s' has no value to save: it is %s", full,
                         !t                     ? "NULL"
                         : t->kind == GD_SYMBOL ? "a symbol of a graph"
                                                : "an error");
    else if (full[0] == 0)
        status = gd_fail(GD_E_ARGUMENT, "a tensor without a name; give its part one");
    else if (there >= 0 && !gd_state_same(s->tensors[there].tensor, t))
        status = gd_fail(GD_E_ARGUMENT, "two tensors have the name '%s'", full);
    else if (there < 0) status = add_tensor(s, full, t);
    if (status != GD_OK || there >= 0) gd_free(full);
    return status;
}

/* --- values ----------------------------------------------------------------------------------- */

gd_status gd_state_put_text(gd_state *s, const char *name, const char *value) {
    const size_t bytes = strlen(value) + 1;
    char *full = gd_path_join(&s->path, name), *text = gd_malloc(bytes);
    gd_status status = GD_OK;
    if (!full || !text || !gd_grow(s->values, s->n_values, s->values_room))
        status = gd_no_memory(NULL, "for a state");
    else if (gd_entry_number(&s->values_by_name, full) >= 0)
        status = gd_fail(GD_E_ARGUMENT, "two values have the name '%s'", full);
    else if (!gd_set_entry_number(&s->values_by_name, full, s->n_values))
        status = gd_no_memory(NULL, "for a state");
    if (status != GD_OK) {
        gd_free(full);
        gd_free(text);
        return status;
    }
    memcpy(text, value, bytes);
    s->values[s->n_values++] = (gd_state_value_entry){full, text};
    return GD_OK;
}

gd_status gd_state_put_float(gd_state *s, const char *name, double value) {
    char text[GD_DOUBLE_TEXT];
    if (isnan(value)) return gd_state_put_text(s, name, "nan");
    if (isinf(value)) return gd_state_put_text(s, name, value < 0 ? "-inf" : "inf");
    gd_double_print(text, value);
    return gd_state_put_text(s, name, text);
}

gd_status gd_state_put_integer(gd_state *s, const char *name, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return gd_state_put_text(s, name, text);
}

gd_status gd_state_put_unsigned(gd_state *s, const char *name, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return gd_state_put_text(s, name, text);
}

/* --- objects ---------------------------------------------------------------------------------- */

gd_status gd_state_put_object(gd_state *s, const char *name, void *object) {
    size_t before;
    if (!object) return GD_OK;
    const gd_state_rules *rules = gd_state_rules_of(object, name);
    if (!rules) return GD_E_ARGUMENT;
    GD_TRY(gd_check_stack());
    GD_TRY(gd_path_begin(&s->path, name, &before));
    const gd_status status = rules->save(object, s);
    gd_path_end(&s->path, before);
    return status;
}

gd_status gd_state_when_done(gd_state *s, gd_state_done done, void *user) {
    return gd_path_when_done(&s->path, done, user);
}

const char *gd_state_name_for(gd_state *s, const gd_tensor *of, const char *own, int64_t index,
                              const char *suffix) {
    const gd_state_tensor *e = gd_state_entry_of(s->naming ? s->naming : s, of);
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, index);
    if (!e) return gd_path_text(&s->path, own ? own : number, suffix);
    const char *local = e->name + e->part;
    return gd_path_text(&s->path, e->ambiguous || !*local ? e->name : local, suffix);
}

static gd_status give_part(gd_state *s, const gd_state_part *part) {
    size_t before;
    GD_TRY(gd_path_begin_part(&s->path, part->name, &before));
    gd_object *object = part->object;
    const gd_status status = object->class->state->save(object, s);
    gd_path_end(&s->path, before);
    if (status != GD_OK) gd_error_prefix("part '%s': ", part->name ? part->name : "");
    return status;
}

gd_status gd_state_collect_names(gd_state_parts parts, gd_state **out) {
    gd_status status = GD_OK;
    GD_TRY(gd_state_new(out));
    for (int64_t i = 0; i < parts.count && status != GD_E_MEMORY; i++) {
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        status = gd_attempt_end(&attempt, give_part(*out, &parts.at[i]));
    }
    gd_path_finish(&(*out)->path, false);
    if (status != GD_E_MEMORY) return GD_OK;
    gd_object_release(&(*out)->object);
    *out = NULL;
    return status;
}

gd_status gd_state_collect(gd_state_parts parts, gd_state **out) {
    gd_state *naming = NULL;
    *out = NULL;
    GD_TRY(gd_check_parts(parts));
    if (parts.count > 1) GD_TRY(gd_state_collect_names(parts, &naming));
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status = gd_state_new(out);
    if (status == GD_OK) (*out)->naming = naming;
    for (int64_t i = 0; i < parts.count && status == GD_OK; i++)
        status = give_part(*out, &parts.at[i]);
    status = gd_attempt_end(&attempt, status);
    if (*out) (*out)->naming = NULL;
    if (naming) gd_object_release(&naming->object);
    if (status == GD_OK || !*out) return status;
    gd_state_end_save(*out);
    *out = NULL;
    return status;
}

void gd_state_end_save(gd_state *state) {
    if (!state) return;
    gd_path_finish(&state->path, false);
    gd_object_release(&state->object);
}

/* --- tensors as parts ------------------------------------------------------------------------- */

static gd_status give_tensor(gd_object *object, gd_state *state) {
    return gd_state_put_tensor(state, "", (gd_tensor *)object);
}
static gd_status take_tensor(gd_object *object, gd_loading *in) {
    return gd_loading_tensor(in, "", (gd_tensor *)object);
}
const gd_state_rules gd_tensor_state_rules = {give_tensor, take_tensor};

/* --- public ----------------------------------------------------------------------------------- */

gd_state *gd_state_of_at(const char *site, void *object) {
    GD_CALLED_FROM(site);
    gd_state *state = NULL;
    const gd_state_part part = {"", object};
    gd_status status = gd_state_rules_of(object, NULL)
                           ? gd_check_traced_access(NULL, "gd_state_of", false)
                           : GD_E_ARGUMENT;
    if (status == GD_OK) status = gd_scope_reserve(1);
    if (status == GD_OK) status = gd_state_collect((gd_state_parts){&part, 1}, &state);
    if (status != GD_OK) {
        gd_error_prefix("gd_state_of: ");
        gd_report(site, status);
        return NULL;
    }
    gd_path_finish(&state->path, false);
    gd_scope_adopt(&state->object);
    return state;
}

gd_state *gd_state_of_parts_at(const char *site, gd_state_parts parts) {
    GD_CALLED_FROM(site);
    gd_state *state = NULL;
    gd_status status = gd_check_traced_access(NULL, "gd_state_of_parts", false);
    if (status == GD_OK) status = gd_scope_reserve(1);
    if (status == GD_OK) status = gd_state_collect(parts, &state);
    if (status != GD_OK) {
        gd_error_prefix("gd_state_of_parts: ");
        gd_report(site, status);
        return NULL;
    }
    gd_path_finish(&state->path, false);
    gd_scope_adopt(&state->object);
    return state;
}

gd_status gd_set_state_at(const char *site, void *object, const gd_state *state) {
    GD_LIVE_AT(site, state);
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    const gd_state_part part = {"", object};
    gd_status status = state ? gd_check_traced_access(NULL, "gd_set_state", true)
                             : gd_fail(GD_E_ARGUMENT, "the state is NULL");
    gd_source source = {.title = "the state"};
    if (status == GD_OK) {
        source.n_tensors = (size_t)state->n_tensors;
        source.n_values = (size_t)state->n_values;
        source.tensors = gd_calloc(source.n_tensors + 1, sizeof *source.tensors);
        source.values = gd_calloc(source.n_values + 1, sizeof *source.values);
        if (!source.tensors || !source.values) status = gd_no_memory(NULL, "for a state");
    }
    for (size_t i = 0; i < source.n_tensors && status == GD_OK; i++) {
        gd_tensor *t = state->tensors[i].tensor;
        source.tensors[i] = (gd_source_tensor){.name = state->tensors[i].name,
                                               .dtype_name = gd_dtype_name((gd_dtype)t->dtype),
                                               .dtype = (gd_dtype)t->dtype,
                                               .rank = t->rank,
                                               .dims = t->dims,
                                               .tensor = t};
    }
    for (size_t i = 0; i < source.n_values && status == GD_OK; i++)
        source.values[i] =
            (gd_source_value){.name = state->values[i].name, .text = state->values[i].text};
    if (status == GD_OK) source.parts = ""; /* the object must have all of its values */
    if (status == GD_OK) status = gd_loading_load(&source, (gd_state_parts){&part, 1}, NULL);
    gd_free(source.tensors);
    gd_free(source.values);
    if (status != GD_OK) gd_error_prefix("gd_set_state: ");
    return gd_report(site, status);
}

int64_t gd_state_count(const gd_state *s) {
    GD_LIVE(s);
    return s ? s->n_tensors : 0;
}
const char *gd_state_name(const gd_state *s, int64_t i) {
    GD_LIVE(s);
    return s && i >= 0 && i < s->n_tensors ? s->tensors[i].name : NULL;
}
gd_tensor *gd_state_tensor_at(const gd_state *s, int64_t i) {
    GD_LIVE(s);
    return s && i >= 0 && i < s->n_tensors ? s->tensors[i].tensor : NULL;
}
gd_tensor *gd_state_find(const gd_state *s, const char *name) {
    GD_LIVE(s);
    return s && name ? gd_state_tensor_at(s, gd_entry_number(&s->by_name, name)) : NULL;
}
int64_t gd_state_value_count(const gd_state *s) {
    GD_LIVE(s);
    return s ? s->n_values : 0;
}
const char *gd_state_value_name(const gd_state *s, int64_t i) {
    GD_LIVE(s);
    return s && i >= 0 && i < s->n_values ? s->values[i].name : NULL;
}
const char *gd_state_value(const gd_state *s, const char *name) {
    GD_LIVE(s);
    const int i = s && name ? gd_entry_number(&s->values_by_name, name) : -1;
    return i >= 0 ? s->values[i].text : NULL;
}
