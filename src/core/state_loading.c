/* state_loading.c - loading a state: checks everything, then copies (state.h). */
#include "core/state_loading.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/grow.h"

/* --- queries ---------------------------------------------------------------------------------- */

/* The source's entry of a full name, or (find_tensor, find_value) of a name relative to the object.
 * If out of memory, NULL is returned and the load fails at the end. */
static gd_source_tensor *tensor_at(const gd_loading *in, const char *full) {
    const int i = full ? gd_entry_number(&in->tensors, full) : -1;
    return i < 0 ? NULL : &in->source->tensors[i];
}
static gd_source_value *value_at(const gd_loading *in, const char *full) {
    const int i = full ? gd_entry_number(&in->values, full) : -1;
    return i < 0 ? NULL : &in->source->values[i];
}

static char *full_name(gd_loading *in, const char *name) {
    char *full = gd_path_join(&in->path, name);
    if (!full) in->no_memory = true;
    return full;
}
static gd_source_tensor *find_tensor(gd_loading *in, const char *name) {
    char *full = full_name(in, name);
    gd_source_tensor *t = tensor_at(in, full);
    gd_free(full);
    return t;
}
static gd_source_value *find_value(gd_loading *in, const char *name) {
    char *full = full_name(in, name);
    gd_source_value *v = value_at(in, full);
    gd_free(full);
    return v;
}

bool gd_loading_has(gd_loading *in, const char *name) {
    return find_tensor(in, name) || find_value(in, name);
}

bool gd_loading_shape(gd_loading *in, const char *name, gd_shape *shape, gd_dtype *dtype) {
    const gd_source_tensor *t = find_tensor(in, name);
    if (!t || t->dtype == GD_DTYPE_NONE || t->rank > GD_MAX_RANK) return false;
    *shape = gd_shape_of(t->rank, t->dims);
    *dtype = t->dtype;
    return true;
}

bool gd_loading_peek_float(gd_loading *in, const char *name, double *value) {
    const gd_source_value *v = find_value(in, name);
    return v && gd_value_float(v->text, value);
}
bool gd_loading_peek_integer(gd_loading *in, const char *name, int64_t *value) {
    const gd_source_value *v = find_value(in, name);
    return v && gd_value_integer(v->text, value);
}
const char *gd_loading_peek_text(gd_loading *in, const char *name) {
    const gd_source_value *v = find_value(in, name);
    return v ? v->text : NULL;
}

/* --- requests ------------------------------------------------------------------------------------
 * */

static void request_free(gd_request *w) {
    gd_free(w->name);
    if (w->tensor) gd_object_release(&w->tensor->object);
    else if (w->kind == GD_TEXT_VALUE) gd_free(w->text);
    gd_free(w->staged);
}

static bool same_target(const gd_request *a, const gd_request *b) {
    if (a->tensor && b->tensor) return gd_state_same(a->tensor, b->tensor);
    return !a->tensor && !b->tensor && a->to == b->to;
}

/* Adds a request and takes ownership of its name; frees the request after a failure. */
static gd_status add_request(gd_loading *in, gd_request w) {
    const void *target = w.tensor ? gd_state_place(w.tensor) : w.to;
    const int there = w.name ? gd_entry_number(&in->requested, w.name) : -1;
    gd_status status = GD_OK;
    if (!w.name) status = gd_no_memory(NULL, "for a state");
    else if (there >= 0 && !same_target(&in->requests[there], &w))
        status = gd_fail(GD_E_ARGUMENT, "two %s have the name '%s'",
                         w.tensor ? "tensors" : "values", w.name);
    else if (w.tensor && gd_check_writable(w.tensor, w.name) != GD_OK) status = GD_E_STATE;
    else if (!gd_grow(in->requests, in->n_requests, in->requests_room) ||
             !gd_set_entry_number(&in->requested, w.name, in->n_requests))
        status = gd_no_memory(NULL, "for a state");
    if (status != GD_OK) {
        request_free(&w);
        return status;
    }
    w.same = gd_map_find(&in->by_target, target);
    in->requests[in->n_requests++] = w;
    if (!gd_map_put(&in->by_target, target, in->n_requests - 1))
        return gd_no_memory(NULL, "for a state");
    for (int i = w.same; i >= 0 && w.fit == GD_FITS; i = in->requests[i].same)
        if (in->requests[i].fit == GD_FITS && same_target(&in->requests[i], &w))
            in->requests[in->n_requests - 1].again = true;
    return GD_OK;
}

static gd_request_fit fit_tensor(const gd_tensor *t, const gd_source_tensor *from) {
    if (!from) return GD_MISSING;
    if (from->dtype == GD_DTYPE_NONE) return GD_OTHER_DTYPE;
    if (from->rank != t->rank || memcmp(from->dims, t->dims, sizeof(int64_t) * t->rank) != 0)
        return GD_OTHER_SHAPE;
    if (from->dtype == (gd_dtype)t->dtype) return GD_FITS;
    return gd_is_float(from->dtype) && gd_is_float(t->dtype) ? GD_FITS : GD_OTHER_DTYPE;
}

gd_status gd_loading_tensor(gd_loading *in, const char *name, gd_tensor *t) {
    if (!t || t->kind != GD_VALUE)
        return gd_fail(GD_E_STATE, "'%s' has no memory to load into: it is %s", name,
                       !t                     ? "NULL"
                       : t->kind == GD_SYMBOL ? "a symbol of a graph"
                                              : "an error");
    char *full = full_name(in, name);
    gd_source_tensor *from = tensor_at(in, full);
    if (from) from->used = true;
    gd_object_retain(&t->object);
    return add_request(
        in, (gd_request){.name = full, .fit = fit_tensor(t, from), .tensor = t, .from = from});
}

static gd_status take_value(gd_loading *in, const char *name, gd_value_kind kind, void *to) {
    gd_request w = {.name = full_name(in, name), .kind = kind, .to = to};
    gd_source_value *v = value_at(in, w.name);
    w.value = v;
    if (v) {
        v->used = true;
        const size_t bytes = strlen(v->text) + 1;
        bool is_one = true;
        switch (kind) {
        case GD_FLOAT_VALUE: is_one = gd_value_float(v->text, &w.number); break;
        case GD_INTEGER_VALUE: is_one = gd_value_integer(v->text, &w.integer); break;
        case GD_UNSIGNED_VALUE: is_one = gd_value_unsigned(v->text, &w.unsigned_integer); break;
        case GD_TEXT_VALUE:
            w.text = gd_malloc(bytes);
            if (!w.text) {
                request_free(&w);
                return gd_no_memory(NULL, "for a state");
            }
            memcpy(w.text, v->text, bytes);
            break;
        }
        w.fit = is_one ? GD_FITS : GD_OTHER_VALUE;
    } else {
        w.fit = GD_MISSING;
    }
    return add_request(in, w);
}

gd_status gd_loading_float(gd_loading *in, const char *name, double *value) {
    return take_value(in, name, GD_FLOAT_VALUE, value);
}
gd_status gd_loading_integer(gd_loading *in, const char *name, int64_t *value) {
    return take_value(in, name, GD_INTEGER_VALUE, value);
}
gd_status gd_loading_unsigned(gd_loading *in, const char *name, uint64_t *value) {
    return take_value(in, name, GD_UNSIGNED_VALUE, value);
}
gd_status gd_loading_text(gd_loading *in, const char *name, char **value) {
    return take_value(in, name, GD_TEXT_VALUE, value);
}

gd_status gd_loading_object(gd_loading *in, const char *name, void *object) {
    size_t before;
    if (!object) return GD_OK;
    const gd_state_rules *rules = gd_state_rules_of(object, name);
    if (!rules) return GD_E_ARGUMENT;
    GD_TRY(gd_check_stack());
    GD_TRY(gd_path_begin(&in->path, name, &before));
    const gd_status status = rules->load(object, in);
    gd_path_end(&in->path, before);
    return status;
}

gd_status gd_loading_when_done(gd_loading *in, gd_state_done done, void *user) {
    return gd_path_when_done(&in->path, done, user);
}

const char *gd_loading_name_for(gd_loading *in, const gd_tensor *of, const char *own, int64_t index,
                                const char *suffix) {
    const gd_state_tensor *e = gd_state_entry_of(in->naming, of);
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, index);
    const char *local = e ? e->name + e->part : NULL;
    const bool is_unique = e && !e->ambiguous && *local;
    /* first the form that a save would choose */
    const char *forms[] = {!e          ? (own ? own : number)
                           : is_unique ? local
                                       : e->name,
                           is_unique ? e->name : NULL, e ? own : NULL, e || own ? number : NULL};
    const char *first = NULL;
    for (int i = 0; i < 4; i++) {
        const char *name = forms[i] ? gd_path_text(&in->path, forms[i], suffix) : NULL;
        if (forms[i] && (!name || gd_loading_has(in, name))) return name;
        if (!first) first = name;
    }
    return first;
}

/* --- a load ----------------------------------------------------------------------------------- */

static gd_status index_source(gd_loading *in) {
    const gd_source *s = in->source;
    if (s->n_tensors > INT32_MAX / 2 || s->n_values > INT32_MAX / 2)
        return gd_fail(GD_E_UNSUPPORTED, "%s: too many names", s->title);
    for (size_t i = 0; i < s->n_tensors; i++) {
        if (gd_entry_number(&in->tensors, s->tensors[i].name) >= 0)
            return gd_fail(GD_E_ARGUMENT, "%s: two tensors have the name '%s' (renamed?)", s->title,
                           s->tensors[i].name);
        if (!gd_set_entry_number(&in->tensors, s->tensors[i].name, (int)i))
            return gd_no_memory(NULL, "for a state");
    }
    for (size_t i = 0; i < s->n_values; i++)
        if (!gd_set_entry_number(&in->values, s->values[i].name, (int)i))
            return gd_no_memory(NULL, "for a state");
    return GD_OK;
}

static gd_status take_parts(gd_loading *in) {
    for (int64_t i = 0; i < in->parts.count; i++) {
        size_t before;
        gd_object *object = in->parts.at[i].object;
        const char *name = in->parts.at[i].name;
        GD_TRY(gd_path_begin_part(&in->path, name, &before));
        const gd_status status = object->class->state->load(object, in);
        gd_path_end(&in->path, before);
        if (status != GD_OK) gd_error_prefix("part '%s': ", name ? name : "");
        GD_TRY(status);
    }
    return GD_OK;
}

/* From here on nothing can fail except reads of the file, and uploads to a device whose memory the
 * host cannot write. */
static gd_status write_all(gd_loading *in) {
    gd_status status = GD_OK;
    for (int i = 0; i < in->n_requests && status == GD_OK; i++) {
        gd_request *w = &in->requests[i];
        if (w->fit == GD_FITS && !w->again) status = gd_request_write(in, w);
    }
    if (status != GD_OK) gd_error_suffix("; tensors may be loaded in part");
    return status;
}

static gd_status check_and_write(gd_loading *in, gd_load_report *partial) {
    gd_load_report report;
    GD_TRY(index_source(in));
    GD_TRY(gd_state_collect_names(in->parts, &in->naming));
    GD_TRY(take_parts(in));
    if (in->no_memory) return gd_no_memory(NULL, "for a state");
    gd_loading_report(in, &report);
    if (!partial && report.text[0])
        return gd_fail(report.unfit > 0 ? GD_E_SHAPE : GD_E_FORMAT, "%s", report.text);
    for (int i = 0; i < in->n_requests; i++)
        if (in->requests[i].fit == GD_FITS && !in->requests[i].again)
            GD_TRY(gd_request_stage(in, &in->requests[i]));
    GD_TRY(write_all(in));
    if (partial) *partial = report;
    return GD_OK;
}

gd_status gd_loading_load(const gd_source *source, gd_state_parts parts, gd_load_report *partial) {
    gd_loading in = {.source = source, .parts = parts};
    GD_TRY(gd_check_parts(parts));
    gd_scope *scope = gd_scope_open(); /* for temporaries of the `load` functions */
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    const gd_status status = gd_attempt_end(&attempt, check_and_write(&in, partial));
    gd_path_finish(&in.path, status == GD_OK);
    gd_path_free(&in.path);
    for (int i = 0; i < in.n_requests; i++) request_free(&in.requests[i]);
    gd_free(in.requests);
    gd_free(in.pieces);
    gd_name_map_free(&in.tensors);
    gd_name_map_free(&in.values);
    gd_name_map_free(&in.requested);
    gd_map_free(&in.by_target);
    if (in.naming) gd_object_release(&in.naming->object);
    gd_scope_close(&scope);
    return status;
}
