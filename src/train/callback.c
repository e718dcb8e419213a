/* callback.c - callback objects: creates them from records or functions, calls and saves them. */
#include "train/callback.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "gradus/ops.h"
#include "graph/build/graph.h"

/* --- the object ------------------------------------------------------------------------------- */

static void destroy_callback(gd_object *object) {
    gd_callback *c = (gd_callback *)object;
    if (c->rules->close) c->rules->close(c);
    gd_free(c->options);
    gd_object_free(object);
    gd_object_count(-1);
}

static gd_status save_callback(gd_object *object, gd_state *state) {
    gd_callback *c = (gd_callback *)object;
    return c->rules->save ? c->rules->save(c, state) : GD_OK;
}

static gd_status load_callback(gd_object *object, gd_loading *in) {
    gd_callback *c = (gd_callback *)object;
    return c->rules->load ? c->rules->load(c, in) : GD_OK;
}

static const gd_state_rules state_rules = {save_callback, load_callback};
static const gd_class callback_class = {
    .name = "callback", .destroy = destroy_callback, .state = &state_rules};
GD_KNOWN_CLASS(callback_class)

/* A callback that no scope owns yet; NULL: no memory. */
static gd_callback *new_callback(const char *type, const gd_callback_rules *rules) {
    gd_callback *c = gd_calloc(1, sizeof *c);
    if (!c) {
        gd_no_memory(NULL, "for a callback");
        return NULL;
    }
    gd_object_init(&c->object, &callback_class);
    gd_object_count(1);
    c->type = type;
    c->rules = rules;
    return c;
}

/* Passes it to the scope of the program, or frees it after a failure, which is recorded. */
static gd_callback *finish_callback(const char *site, gd_callback *c, gd_status status) {
    if (status == GD_OK && !c) status = GD_E_MEMORY;
    if (status == GD_OK) status = gd_scope_reserve(1);
    if (status == GD_OK) {
        gd_scope_adopt(&c->object);
        return c;
    }
    if (c) gd_object_release(&c->object);
    gd_report(site, status);
    return NULL;
}

/* --- from records ----------------------------------------------------------------------------- */

static gd_status open_callback(gd_callback *c) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    const gd_status status = c->rules->open(c);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}

/* Owns `options`, also after a failure. */
static gd_callback *make_callback(const char *site, const gd_factory *factory, void *options) {
    const gd_callback_rules *rules = factory->rules;
    gd_status status = gd_check_ranges(factory, options, "gd_");
    if (status != GD_OK) {
        gd_free(options);
        return finish_callback(site, NULL, status);
    }
    if (rules->check) status = rules->check(options);
    gd_callback *c = status == GD_OK ? new_callback(factory->record.name, rules) : NULL;
    if (c) {
        c->options = options;
        if (rules->open) status = open_callback(c);
    } else {
        gd_free(options);
    }
    if (status != GD_OK) gd_error_prefix("gd_%s: ", factory->record.name);
    return finish_callback(site, c, status);
}

gd_callback *gd_callback_make(const char *site, const gd_factory *factory, const void *given) {
    GD_CALLED_FROM(site);
    void *options;
    const gd_status status = gd_factory_take_options(factory, given, &options);
    if (status == GD_OK) return make_callback(site, factory, options);
    gd_error_prefix("gd_%s: ", factory->record.name);
    return finish_callback(site, NULL, status);
}

gd_callback *gd_callback_new_at(const char *site, const char *name, const char *text) {
    GD_CALLED_FROM(site);
    const gd_factory *factory;
    void *options;
    const gd_status status = gd_factory_read("callback", name, text, &factory, &options);
    return status == GD_OK ? make_callback(site, factory, options)
                           : finish_callback(site, NULL, status);
}

/* --- user-defined ----------------------------------------------------------------------------- */

/* `self` of a callback that consists of the user's functions. */
typedef struct functions {
    void *self;
    gd_callback_functions call;
    char name[80];
} functions;

static gd_status functions_on(gd_callback *c, gd_event *event) {
    const functions *f = c->self;
    gd_status (*const on[])(gd_event *, void *) = {
        [GD_ON_FIT_BEGIN] = f->call.fit_begin, [GD_ON_EPOCH_BEGIN] = f->call.epoch_begin,
        [GD_ON_BATCH_END] = f->call.batch_end, [GD_ON_EPOCH_END] = f->call.epoch_end,
        [GD_ON_FIT_END] = f->call.fit_end,
    };
    const gd_status status = on[event->kind] ? on[event->kind](event, f->self) : GD_OK;
    return gd_returned("it", status);
}

static gd_status save_any(const functions *f, gd_state *state) {
    gd_tensor *bytes = f->call.save(f->self);
    if (!bytes || bytes->kind == GD_FAILED) return gd_failed() ? gd_failure() : GD_OK;
    if (bytes->kind != GD_VALUE || bytes->dtype != GD_U8 || bytes->rank != 1)
        return gd_fail(GD_E_ARGUMENT, "callback %s: .save must return u8 of rank 1", f->name);
    return gd_state_put_tensor(state, "bytes", bytes);
}

/* Saves the bytes of the user's struct. */
static gd_status functions_save(gd_callback *c, gd_state *state) {
    const functions *f = c->self;
    GD_EAGER;
    GD_SCOPE;
    if (f->call.save) return save_any(f, state);
    if (f->call.state_bytes == 0) return GD_OK;
    gd_tensor *bytes = gd_from_array(gd_dims((int64_t)f->call.state_bytes), GD_U8, f->self);
    return bytes->kind == GD_FAILED ? gd_failure() : gd_state_put_tensor(state, "bytes", bytes);
}

/* The loaded bytes. They replace the struct when the entire load has succeeded. */
typedef struct loaded_bytes {
    functions *functions;
    gd_tensor *bytes; /* retained */
} loaded_bytes;

static void adopt_loaded(void *user, bool loaded) {
    loaded_bytes *a = user;
    if (loaded && a->functions->call.load) a->functions->call.load(a->bytes, a->functions->self);
    else if (loaded)
        memcpy(a->functions->self, gd_view_of(a->bytes).data, a->functions->call.state_bytes);
    gd_release(a->bytes);
    gd_free(a);
}

static gd_status functions_load(gd_callback *c, gd_loading *in) {
    functions *f = c->self;
    gd_shape shape = gd_dims((int64_t)f->call.state_bytes);
    gd_dtype dtype = GD_U8;
    if (f->call.load) {
        if (!gd_loading_shape(in, "bytes", &shape, &dtype)) return GD_OK; /* it had no state */
    } else if (f->call.state_bytes == 0) return GD_OK;
    GD_EAGER;
    GD_SCOPE;
    GD_ON_CPU;
    gd_tensor *bytes = gd_empty(shape, GD_U8);
    if (bytes->kind == GD_FAILED) return gd_failure();
    loaded_bytes *a = gd_calloc(1, sizeof *a);
    if (!a) return gd_no_memory(NULL, "for the state of a callback");
    *a = (loaded_bytes){f, gd_retain(bytes)};
    GD_TRY(gd_loading_when_done(in, adopt_loaded, a));
    return gd_loading_tensor(in, "bytes", bytes);
}

static void functions_close(gd_callback *c) {
    functions *f = c->self;
    if (f && f->call.destroy) f->call.destroy(f->self);
    gd_free(f);
}

static const gd_callback_rules functions_rules = {
    .on = functions_on, .save = functions_save, .load = functions_load, .close = functions_close};

static gd_status add_functions(gd_callback *c, void *self, const gd_callback_functions *call) {
    functions *f = gd_calloc(1, sizeof *f);
    if (!f) return gd_no_memory(NULL, "for a callback");
    *f = (functions){.self = self, .call = *call};
    snprintf(f->name, sizeof f->name, "%.79s", call->name && *call->name ? call->name : "callback");
    c->self = f;
    c->type = f->name;
    return GD_OK;
}

gd_callback *gd_callback_from_at(const char *site, void *self, const gd_callback_functions *call) {
    call = call ? call : GD_CALLBACK_FUNCTIONS_();
    GD_CALLED_FROM(site);
    if (!call)
        return finish_callback(site, NULL,
                               gd_fail(GD_E_ARGUMENT, "gd_callback_from: there are no functions"));
    if (!self && call->state_bytes)
        return finish_callback(site, NULL,
                               gd_fail(GD_E_ARGUMENT,
                                       "gd_callback_from: state_bytes is %zu, but self is NULL",
                                       call->state_bytes));
    gd_callback *c = new_callback("callback", &functions_rules);
    return finish_callback(site, c, c ? add_functions(c, self, call) : GD_OK);
}

static gd_status defined_open(gd_callback *c) {
    const gd_callback_type *type = &c->rules->defined;
    void *self = type->open(c->options);
    if (!self) return gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "its open returned NULL");
    gd_callback_functions call = type->functions;
    call.name = c->type;
    const gd_status status = add_functions(c, self, &call);
    if (status != GD_OK && call.destroy) call.destroy(self);
    return status;
}

gd_status gd_callback_define_at(const char *site, const char *record, gd_callback_type type) {
    GD_CALLED_FROM(site);
    gd_callback_rules rules = functions_rules;
    rules.check = type.check;
    rules.open = defined_open;
    rules.defined = type;
    gd_status status = type.open ? gd_factory_define("callback", record, &rules, sizeof rules)
                                 : gd_fail(GD_E_ARGUMENT, "a callback needs open");
    if (status != GD_OK) gd_error_prefix("gd_callback_define: ");
    return gd_report(site, status);
}

/* --- events ----------------------------------------------------------------------------------- */

static gd_status call_rule(gd_callback *c, gd_status (*rule)(gd_callback *, gd_event *),
                           gd_event *event) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = rule(c, event);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK) return GD_OK;
    gd_error_prefix("%s: ", c->type);
    return status;
}

gd_status gd_callback_call(gd_callback *c, gd_event *event) {
    return call_rule(c, c->rules->on, event);
}

gd_status gd_callbacks_call(gd_callback_list list, gd_event *event) {
    for (int64_t i = 0; i < list.count; i++) GD_TRY(gd_callback_call(list.at[i], event));
    for (int64_t i = 0; i < list.count; i++)
        if (list.at[i]->rules->after)
            GD_TRY(call_rule(list.at[i], list.at[i]->rules->after, event));
    return GD_OK;
}
