/* module_modes.c - changes to a tree of modules: modes, freezing, moving, cloning,
 * initialization. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/grow.h"
#include "core/map.h"
#include "gradus/autograd.h"
#include "gradus/device.h"
#include "gradus/ops.h"
#include "graph/build/graph.h"
#include "nn/initializer.h"
#include "nn/module.h"
#include "nn/net.h"

/* --- modes ------------------------------------------------------------------------------------ */

static gd_status set_mode(gd_tree_walk *w, gd_module *m) {
    GD_TRY(gd_trace_record_mode(&m->object, &m->training)); /* a jit depends on the previous mode */
    m->training = *(const int *)w->user;
    return GD_OK;
}

static void set_modes(gd_module *m, int training) {
    const gd_status status =
        gd_module_walk(m, &(gd_tree_walk){.module = set_mode, .user = &training});
    if (status != GD_OK) gd_report(NULL, status);
}
void gd_module_train(gd_module *m) {
    GD_LIVE(m);
    set_modes(m, 1);
}
void gd_module_eval(gd_module *m) {
    GD_LIVE(m);
    set_modes(m, 0);
}
void gd_module_set_training(gd_module *m, bool training) {
    GD_LIVE(m);
    if (m) m->training = training;
}

static gd_status set_requires_grad(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    (void)holder;
    return e->kind == GD_A_PARAMETER
               ? gd_set_requires_grad_at(NULL, (gd_tensor *)e->object, *(const bool *)w->user)
               : GD_OK;
}

static gd_status set_frozen_default(gd_tree_walk *w, gd_module *m) {
    m->frozen = !*(const bool *)w->user;
    return GD_OK;
}

static gd_status set_frozen(const char *site, gd_module *m, bool wanted, const char *what) {
    GD_CALLED_FROM(site);
    if (!m)
        return gd_report(site, gd_failed()
                                   ? gd_failure()
                                   : gd_fail(GD_E_ARGUMENT, "%s: the module is NULL", what));
    return gd_report(site, gd_module_walk(m, &(gd_tree_walk){.module = set_frozen_default,
                                                             .tensor = set_requires_grad,
                                                             .user = &wanted}));
}
gd_status gd_module_freeze_at(const char *site, gd_module *m) {
    GD_LIVE_AT(site, m);
    return set_frozen(site, m, false, "gd_module_freeze");
}
gd_status gd_module_unfreeze_at(const char *site, gd_module *m) {
    GD_LIVE_AT(site, m);
    return set_frozen(site, m, true, "gd_module_unfreeze");
}

static gd_status zero_gradient(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    (void)w, (void)holder;
    if (e->kind == GD_A_PARAMETER) gd_zero_grad((gd_tensor *)e->object);
    return GD_OK;
}
void gd_module_zero_grad(gd_module *m) {
    GD_LIVE(m);
    gd_module_walk(m, &(gd_tree_walk){.tensor = zero_gradient});
}

/* --- moving ----------------------------------------------------------------------------------- */

typedef struct tree_move {
    gd_device *device; /* NULL: unchanged */
    gd_dtype dtype;
    gd_tensor **made; /* the moved copy of each visited tensor; NULL: it stays */
    int64_t count, at;
    bool done; /* the second walk, which installs the copies */
} tree_move;

static gd_status count_tensor(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    (void)holder, (void)e;
    ((tree_move *)w->user)->count++;
    return GD_OK;
}

static gd_status move_tensor(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    tree_move *v = w->user;
    gd_tensor *t = (gd_tensor *)e->object;
    (void)holder;
    const int64_t i = v->at++;
    if (v->done) {
        gd_tensor *made = v->made[i];
        if (!made) return GD_OK;
        return gd_tensor_become(t, made);
    }
    const gd_dtype dtype =
        v->dtype != GD_DTYPE_NONE && gd_is_float(t->dtype) ? v->dtype : (gd_dtype)t->dtype;
    gd_device *device = v->device ? v->device : t->device;
    if (dtype == (gd_dtype)t->dtype && device == t->device) return GD_OK;
    gd_tensor *made = gd_detach(t);
    if (device != t->device) made = gd_to_device(made, device);
    if (dtype != (gd_dtype)t->dtype) made = gd_cast(made, dtype);
    if (made->kind == GD_FAILED) return gd_failure();
    v->made[i] = made;
    return GD_OK;
}

static gd_status set_defaults(gd_tree_walk *w, gd_module *m) {
    const tree_move *v = w->user;
    if (!v->done) return GD_OK;
    if (v->device) m->device = v->device;
    if (v->dtype != GD_DTYPE_NONE) m->dtype = v->dtype;
    return GD_OK;
}

static gd_status move_tree(gd_module *m, const char *device, gd_dtype dtype) {
    tree_move v = {.dtype = dtype};
    if (!m)
        return gd_failed() ? gd_failure()
                           : gd_fail(GD_E_ARGUMENT, "gd_module_to: the module is NULL");
    if (gd_this_thread.tracer)
        return gd_fail(GD_E_STATE, "gd_module_to: a function is being traced, or a graph built; "
                                   "move the module before that");
    if (dtype != GD_DTYPE_NONE && !gd_is_float(dtype))
        return gd_fail(GD_E_DTYPE, "gd_module_to: dtype is %s; parameters are floats",
                       gd_dtype_name(dtype));
    if (device && !(v.device = gd_device_get(device))) {
        const gd_status status = gd_failure(); /* its message lists the devices */
        gd_error_prefix("gd_module_to: ");
        return status;
    }
    GD_TRY(gd_module_walk(m, &(gd_tree_walk){.tensor = count_tensor, .user = &v}));
    v.made = gd_calloc((size_t)v.count + 1, sizeof *v.made);
    if (!v.made) return gd_no_memory(NULL, "to move a module");
    gd_tree_walk w = {.module = set_defaults, .tensor = move_tensor, .user = &v};
    gd_status status = gd_module_walk(m, &w);
    v.done = true;
    v.at = 0;
    if (status == GD_OK) status = gd_module_walk(m, &w);
    gd_free(v.made);
    return status;
}

gd_status gd_module_to_at(const char *site, gd_module *m, const char *device, gd_dtype dtype) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    const gd_status status = move_tree(m, device, dtype);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    return gd_report(site, gd_attempt_end(&attempt, status));
}

/* --- copying ---------------------------------------------------------------------------------- */

typedef struct tree_clone {
    gd_map indices; /* from objects of the original to indices in `made` */
    gd_object **made;
    int count, room;
} tree_clone;

static gd_status record_clone(tree_clone *c, const void *original, void *made) {
    if (!gd_grow(c->made, c->count, c->room) || !gd_map_put(&c->indices, original, c->count))
        return gd_no_memory(NULL, "to copy a module");
    c->made[c->count++] = made;
    return GD_OK;
}

static void *find_clone(const tree_clone *c, const void *original) {
    const int at = gd_map_find(&c->indices, original);
    return at >= 0 ? c->made[at] : NULL;
}

static gd_status copy_bytes(const void *from, size_t size, void **to) {
    *to = NULL;
    if (!from || size == 0) return GD_OK;
    if (!(*to = gd_malloc(size))) return gd_no_memory(NULL, "to copy a module");
    memcpy(*to, from, size);
    return GD_OK;
}

static gd_status clone_tensor(tree_clone *c, const gd_tensor *t, gd_tensor **made) {
    if ((*made = find_clone(c, t))) return GD_OK;
    gd_tensor *copy = gd_clone(gd_detach((gd_tensor *)t));
    if (copy->kind == GD_FAILED) return gd_failure();
    copy->requires_grad = t->requires_grad;
    *made = copy;
    return record_clone(c, t, copy);
}

/* The function of the program that completes the struct of a copy. */
static gd_status complete_struct(gd_module *copy, const gd_module *m) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status = gd_returned("its clone function", m->clone(copy, copy->self, m->self));
    status = gd_attempt_end(&attempt, status);
    if (status != GD_OK) gd_error_prefix("gd_module_clone: %s: ", m->type);
    else copy->destroy = m->destroy;
    return status;
}

static gd_status clone_module(tree_clone *c, const gd_module *m, gd_module **made) {
    if ((*made = find_clone(c, m))) return GD_OK;
    GD_TRY(gd_check_stack());
    if (m->destroy && !m->clone)
        return gd_fail(GD_E_UNSUPPORTED,
                       "gd_module_clone: %s has a destroy function, so its struct cannot be copied "
                       "without a clone function; give gd_module_new the option .clone",
                       m->type);
    gd_module *copy = gd_module_bare(m->type);
    if (!copy) return gd_failure();
    GD_TRY(record_clone(c, m, copy));
    copy->factory = m->factory;
    copy->op = m->op;
    copy->built = m->built;
    copy->forward = m->forward;
    copy->clone = m->clone;
    copy->contained = m->contained;
    copy->training = m->training;
    copy->frozen = m->frozen;
    copy->dtype = m->dtype;
    copy->device = m->device;
    GD_TRY(copy_bytes(m->options, m->factory ? m->factory->record.attrs_size : 0, &copy->options));
    GD_TRY(copy_bytes(m->op_options, m->op ? m->op->attrs_size : 0, &copy->op_options));
    GD_TRY(copy_bytes(m->self, m->self_size, &copy->self));
    copy->self_size = m->self_size;
    copy->source = gd_retain((void *)m->source);
    for (int i = 0; i < m->count; i++) {
        const gd_entry *e = &m->entries[i];
        void *object = NULL;
        if (e->object && e->kind == GD_A_CHILD)
            GD_TRY(clone_module(c, (gd_module *)e->object, (gd_module **)&object));
        else if (e->object) GD_TRY(clone_tensor(c, (gd_tensor *)e->object, (gd_tensor **)&object));
        GD_TRY(e->kind == GD_A_CHILD ? gd_module_put_layer(copy, e->name, object)
                                     : gd_module_put(copy, e->kind, e->name, object, NULL));
        copy->entries[i].field = e->field;
        copy->entries[i].own = e->own;
        if (e->field >= 0) memcpy((char *)copy->self + e->field, &object, sizeof object);
    }
    *made = copy;
    GD_TRY(gd_net_rows_copy(copy, m));
    return m->clone && m->self ? complete_struct(copy, m) : GD_OK;
}

gd_module *gd_module_clone_at(const char *site, gd_module *m) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    GD_EAGER;
    tree_clone c = {.count = 0};
    gd_module *copy = NULL;
    gd_status status = m ? clone_module(&c, m, &copy)
                         : gd_fail(GD_E_ARGUMENT, "gd_module_clone: the module is NULL");
    if (status == GD_OK) gd_keep(copy);
    gd_map_free(&c.indices);
    gd_free(c.made);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    gd_report(site, status);
    return status == GD_OK ? copy : NULL;
}

/* --- initialization --------------------------------------------------------------------------- */

typedef struct initialization {
    const char *match, *text;
    int64_t count;
} initialization;

static gd_status initialize_parameter(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    initialization *s = w->user;
    (void)holder;
    if (e->kind != GD_A_PARAMETER || !gd_name_matches(w->path, s->match)) return GD_OK;
    s->count++;
    const gd_status status = gd_init_fill((gd_tensor *)e->object, s->text);
    if (status != GD_OK) gd_error_prefix("%s: ", w->path);
    return status;
}

gd_status gd_module_init_at(const char *site, gd_module *m, const char *match, const char *text) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    initialization s = {match, text, 0};
    GD_EAGER;
    gd_status status = m && text ? gd_module_check_built(m, "gd_module_init", match)
                                 : gd_fail(GD_E_ARGUMENT, "gd_module_init: the %s is NULL",
                                           m ? "initializer" : "module");
    if (status == GD_OK)
        status = gd_module_walk(m, &(gd_tree_walk){.tensor = initialize_parameter, .user = &s});
    if (status == GD_OK && s.count == 0)
        status = gd_fail(GD_E_ARGUMENT, "gd_module_init: no parameter of %s matches '%s'", m->type,
                         match ? match : "*");
    return gd_report(site, status);
}
