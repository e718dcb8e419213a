/* module.c - modules and their entries: parameters, buffers, children. */
#include "nn/module.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/grow.h"
#include "gradus/autograd.h"
#include "graph/build/graph.h"
#include "nn/net.h"
#include "dispatch/intern.h"

/* --- the object ------------------------------------------------------------------------------- */

static void destroy_module(gd_object *object) {
    gd_module *m = (gd_module *)object;
    gd_object_release(m->attached); /* it retains parameters, never modules of the tree */
    if (m->link) m->link->module = NULL;
    gd_module_link_release(m->link);
    if (m->destroy && m->self) m->destroy(m->self);
    for (int i = 0; i < m->count; i++) gd_object_release(m->entries[i].object);
    gd_module_names_free(m->names);
    gd_net_rows_free(m);
    gd_free(m->entries);
    gd_name_map_free(&m->numbers);
    gd_map_free(&m->children);
    gd_free(m->hooks);
    gd_free(m->options);
    gd_free(m->op_options);
    gd_object_release(m->source);
    gd_object_release(m->saved_shapes);
    gd_free(m->self);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class module_class = {
    .name = "module", .destroy = destroy_module, .state = &gd_module_state};
GD_KNOWN_CLASS(module_class)

gd_module *gd_module_bare(const char *type) {
    const char *kept = gd_intern(type);
    gd_module *m = kept && gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *m) : NULL;
    if (!m) {
        gd_no_memory(NULL, "for a module");
        return NULL;
    }
    gd_object_init(&m->object, &module_class);
    gd_object_count(1);
    gd_scope_adopt(&m->object);
    m->type = kept;
    m->training = 1;
    m->built = true;
    m->dtype = GD_DTYPE_NONE;
    return m;
}

gd_module *gd_module_new_at(const char *site, gd_forward forward, size_t size,
                            const gd_module_options *options) {
    options = options ? options : GD_MODULE_OPTIONS_();
    gd_scope *scope = gd_scope_open(); /* frees the module if there is no memory for its struct */
    gd_module *m = gd_module_bare(options->type ? options->type : "module");
    if (m) {
        m->forward = forward;
        m->self_size = size;
        m->self = gd_calloc(1, size ? size : 1);
        m->clone = options->clone;
        if (m->self) m->destroy = options->destroy;
    }
    const bool made = m && m->self;
    if (made) gd_keep(m);
    gd_scope_close(&scope);
    if (made) return m;
    gd_report(site, gd_fail(GD_E_MEMORY, "no memory for a module of %zu bytes", size));
    return NULL;
}

gd_status gd_module_override_at(const char *site, gd_module *m, gd_forward forward, size_t size,
                                const gd_module_options *options) {
    GD_LIVE_AT(site, m);
    options = options ? options : GD_MODULE_OPTIONS_();
    if (!m || !forward || m->self)
        return gd_report(site, gd_fail(m && forward ? GD_E_STATE : GD_E_ARGUMENT,
                                       "gd_module_override: %s",
                                       !m         ? "the module is NULL"
                                       : !forward ? "the forward function is NULL"
                                                  : "the module has a function of the program"));
    const char *type = options->type ? gd_intern(options->type) : m->type;
    void *self = type ? gd_calloc(1, size ? size : 1) : NULL;
    if (!self) return gd_report(site, gd_no_memory(NULL, "for the struct of a module"));
    m->type = type;
    m->self = self;
    m->self_size = size;
    m->forward = forward;
    m->destroy = options->destroy;
    m->clone = options->clone;
    m->revision++;
    return GD_OK;
}

/* Programs write to the struct even if the module is NULL: they get scratch memory then. */
void *gd_module_self(gd_module *m) {
    GD_LIVE(m);
    if (m) return m->self;
    gd_thread *thread = &gd_this_thread;
    return memset(thread->scratch, 0, sizeof thread->scratch);
}
const char *gd_module_type(const gd_module *m) {
    GD_LIVE(m);
    return m ? m->type : "";
}

/* --- links ------------------------------------------------------------------------------------ */

static void destroy_link(gd_object *object) {
    gd_free(object);
    gd_object_count(-1);
}
static const gd_class link_class = {.name = "module link", .destroy = destroy_link};

gd_module_link *gd_module_link_to(gd_module *m) {
    if (!m->link) {
        if (!(m->link = gd_calloc(1, sizeof *m->link))) {
            gd_no_memory(NULL, "for an optimizer of a module");
            return NULL;
        }
        gd_object_init(&m->link->object, &link_class);
        gd_object_count(1);
        m->link->module = m;
    }
    gd_object_retain(&m->link->object);
    return m->link;
}

void gd_module_link_release(gd_module_link *link) {
    if (link) gd_object_release(&link->object);
}

static atomic_uint changes;
unsigned gd_module_changes(void) { return atomic_load(&changes); }
void gd_module_changed(void) { atomic_fetch_add(&changes, 1); }

/* --- entries ---------------------------------------------------------------------------------- */

gd_entry *gd_module_entry(const gd_module *m, const char *name) {
    const int i = gd_entry_number(&m->numbers, name);
    return i < 0 ? NULL : &m->entries[i];
}

bool gd_module_note_child(gd_module *m, const void *child, int number) {
    const int known = gd_map_find(&m->children, child);
    const bool valid = known >= 0 && known < m->count && m->entries[known].object == child;
    return valid || gd_map_put(&m->children, child, number);
}

const gd_entry *gd_module_child_entry(const gd_module *m, const gd_module *child) {
    const int i = gd_map_find(&m->children, child);
    if (i < 0) return NULL;
    if (i < m->count && m->entries[i].object == &child->object) return &m->entries[i];
    for (int k = 0; k < m->count; k++) /* it was replaced there, but may be here, too */
        if (m->entries[k].object == &child->object) return &m->entries[k];
    return NULL;
}

/* The last part of "m->fc1" or "m->block.conv". */
static const char *field_name(const char *text) {
    const char *name = text;
    for (const char *c = text; *c; c++)
        if (*c == '.' || (c[0] == '-' && c[1] == '>')) name = c + (*c == '.' ? 1 : 2);
    return name;
}

/* `any_text`: a layer of a gd_nn_net may have dots, brackets and spaces in its name. */
static gd_status check_name(const gd_module *m, const char *name, bool any_text) {
    if (!name || !*name)
        return gd_fail(GD_E_ARGUMENT, "%s: the name of a part is %s", m->type,
                       name ? "empty" : "NULL");
    if (!any_text && strpbrk(name, ".[]() \t\n"))
        return gd_fail(GD_E_ARGUMENT,
                       "%s: '%.80s' cannot be the name of a part: names have no dots, "
                       "brackets or spaces; "
                       "for several parts use gd_nn_list, or gd_module_add with other names",
                       m->type, name);
    if (strlen(name) > GD_MAX_NAME)
        return gd_fail(GD_E_ARGUMENT, "%s: the name '%.40s...' is longer than %d characters",
                       m->type, name, GD_MAX_NAME);
    if (gd_module_entry(m, name))
        return gd_fail(
            GD_E_STATE,
            "%s already has a part '%s'; gd_module_replace replaces it by another module", m->type,
            name);
    return GD_OK;
}

bool gd_module_contains(const gd_module *inside, const gd_module *module, int depth) {
    if (inside == module) return true;
    for (int i = 0; depth < GD_MAX_DEPTH && i < inside->count; i++)
        if (inside->entries[i].kind == GD_A_CHILD && inside->entries[i].object &&
            gd_module_contains((gd_module *)inside->entries[i].object, module, depth + 1))
            return true;
    return false;
}

/* The offset of `field` in the module's struct, or -1. */
static ptrdiff_t field_offset(const gd_module *m, const void *field) {
    const char *start = m->self, *at = field;
    return at && start && at >= start && at + sizeof(void *) <= start + m->self_size ? at - start
                                                                                     : -1;
}

static gd_status put(gd_module *m, gd_entry_kind kind, const char *name, bool any_text,
                     void *object, const void *field) {
    GD_TRY(check_name(m, name, any_text));
    if (kind == GD_A_CHILD && object && gd_module_contains(object, m, 0))
        return gd_fail(GD_E_STATE, "%s: '%s' is the module itself, or contains it", m->type, name);
    const char *kept = gd_intern(name);
    if (!kept || !gd_grow(m->entries, m->count, m->room) ||
        (kind == GD_A_CHILD && object && !gd_module_note_child(m, object, m->count)) ||
        !gd_set_entry_number(&m->numbers, kept, m->count))
        return gd_no_memory(NULL, "for a part of a module");
    if (object) gd_object_retain(object);
    m->entries[m->count++] = (gd_entry){kind, kept, object, field_offset(m, field), false};
    m->n_children += kind == GD_A_CHILD;
    m->revision++;
    gd_module_changed();
    return GD_OK;
}

gd_status gd_module_put(gd_module *m, gd_entry_kind kind, const char *name, void *object,
                        void *field) {
    return put(m, kind, name && field ? field_name(name) : name, false, object, field);
}

gd_status gd_module_put_layer(gd_module *m, const char *name, gd_module *layer) {
    return put(m, GD_A_CHILD, name, true, layer, NULL);
}

void gd_module_remove_last(gd_module *m) {
    const gd_entry *e = &m->entries[--m->count];
    m->n_children -= e->kind == GD_A_CHILD;
    gd_name_map_remove(&m->numbers, e->name);
    gd_object_release(e->object);
}

static gd_status check_parameter(const gd_module *m, const char *name, gd_tensor *t) {
    char text[160];
    if (t && t->kind == GD_FAILED) return gd_failure();
    if (t && t->kind != GD_VALUE)
        return gd_fail(GD_E_STATE,
                       "%s: the parameter '%s' is a symbol; a parameter is an eager tensor, which "
                       "graphs and jits capture",
                       m->type, field_name(name ? name : ""));
    if (t && !gd_is_float(t->dtype))
        return gd_fail(
            GD_E_DTYPE,
            "%s: the parameter '%s' is %s; parameters are floats; add other tensors as buffers",
            m->type, field_name(name ? name : ""), gd_describe(t, text, sizeof text));
    if (t && t->node)
        return gd_fail(GD_E_STATE,
                       "%s: the parameter '%s' is the result of recorded ops, not a leaf; "
                       "write gd_detach(...)",
                       m->type, field_name(name ? name : ""));
    return GD_OK;
}

gd_status gd_module_put_parameter(gd_module *m, const char *name, gd_tensor *t, void *field) {
    GD_TRY(check_parameter(m, name, t));
    GD_TRY(gd_module_put(m, GD_A_PARAMETER, name, t, field));
    if (t) t->requires_grad = !m->frozen;
    return GD_OK;
}

static gd_status report_added(const char *site, gd_module *m, const char *what, gd_status status) {
    if (!m && status == GD_OK && !gd_failed())
        status = gd_fail(GD_E_ARGUMENT, "%s: the module is NULL", what);
    return gd_report(site, status);
}

/* NULL is the result of a failed constructor, which has recorded the failure. */
static gd_status check_child(const gd_module *child) {
    if (child) return GD_OK;
    return gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "gd_module_add: the child is NULL");
}

gd_status gd_module_add_at(const char *site, gd_module *m, const char *name, gd_module *child,
                           void *field) {
    GD_LIVE_AT(site, m);
    GD_LIVE_AT(site, child);
    gd_status status = check_child(child);
    if (m && status == GD_OK) status = gd_module_put(m, GD_A_CHILD, name, child, field);
    return report_added(site, m, "gd_module_add", status);
}

gd_status gd_module_add_parameter_at(const char *site, gd_module *m, const char *name, gd_tensor *t,
                                     void *field) {
    GD_LIVE_AT(site, m);
    return report_added(site, m, "gd_module_add_parameter",
                        m ? gd_module_put_parameter(m, name, t, field) : GD_OK);
}

static gd_status check_buffer(const char *name, const gd_tensor *t) {
    if (t && t->kind == GD_FAILED) return gd_failure();
    if (t && t->kind != GD_VALUE)
        return gd_fail(GD_E_STATE, "the buffer '%s' is a symbol; a buffer is an eager tensor",
                       field_name(name ? name : ""));
    return GD_OK;
}

gd_status gd_module_add_buffer_at(const char *site, gd_module *m, const char *name, gd_tensor *t,
                                  void *field) {
    GD_LIVE_AT(site, m);
    gd_status status = check_buffer(name, t);
    if (m && status == GD_OK) status = gd_module_put(m, GD_A_BUFFER, name, t, field);
    return report_added(site, m, "gd_module_add_buffer", status);
}

/* --- parts ------------------------------------------------------------------------------------ */

static gd_module_part part_of(const gd_entry *e) {
    static const gd_part_kind kinds[] = {
        [GD_A_PARAMETER] = GD_PART_PARAMETER,
        [GD_A_BUFFER] = GD_PART_BUFFER,
        [GD_A_CHILD] = GD_PART_CHILD,
    };
    return (gd_module_part){kinds[e->kind], e->name, e->object};
}

bool gd_module_part_at(const gd_module *m, int index, gd_module_part *part) {
    GD_LIVE(m);
    if (!m || index < 0 || index >= m->count) return false;
    *part = part_of(&m->entries[index]);
    return true;
}

bool gd_module_part_named(const gd_module *m, const char *name, gd_module_part *part) {
    GD_LIVE(m);
    const gd_entry *e = m && name ? gd_module_entry(m, name) : NULL;
    if (e) *part = part_of(e);
    return e != NULL;
}

static gd_status no_such_part(const char *what, const gd_module *m, const char *name) {
    if (!m) return gd_fail(GD_E_ARGUMENT, "%s: the module is NULL", what);
    return gd_fail(GD_E_ARGUMENT, "%s: the module '%s' has no part '%s'", what, m->type,
                   name ? name : "NULL");
}

/* The struct's field shows what the entry has. */
static void set_field(gd_module *m, const gd_entry *e, void *object) {
    if (e->field >= 0) memcpy((char *)m->self + e->field, &object, sizeof object);
}

/* Notes the numbers of entries that have moved, from `first` on. All are noted already, so no memory is
 * needed. */
static void renumber(gd_module *m, int first) {
    for (int i = first; i < m->count; i++) {
        gd_set_entry_number(&m->numbers, m->entries[i].name, i);
        if (m->entries[i].kind == GD_A_CHILD && m->entries[i].object)
            gd_map_put(&m->children, m->entries[i].object, i);
    }
}

void gd_module_own_parts(gd_module *m, int first) {
    for (int i = first, to = 0; i < m->count; i++, to++) {
        gd_entry e = m->entries[i];
        e.own = true;
        memmove(&m->entries[to + 1], &m->entries[to], (size_t)(i - to) * sizeof e);
        m->entries[to] = e;
    }
    if (first > 0) renumber(m, 0);
}

static gd_status remove_part(gd_module *m, const char *name) {
    const int at = m && name ? gd_entry_number(&m->numbers, name) : -1;
    if (at < 0) return no_such_part("gd_module_remove", m, name);
    if (m->net)
        return gd_fail(GD_E_STATE,
                       "gd_module_remove: the layers of a gd_nn_net read each other's "
                       "outputs; '%s' can only be replaced",
                       name);
    gd_entry e = m->entries[at];
    if (e.own)
        return gd_fail(GD_E_STATE,
                       "gd_module_remove: the layer '%s' computes with its part '%s'; it can only "
                       "be replaced",
                       m->type, name);
    gd_name_map_remove(&m->numbers, e.name);
    memmove(&m->entries[at], &m->entries[at + 1], (size_t)(--m->count - at) * sizeof e);
    renumber(m, at);
    m->n_children -= e.kind == GD_A_CHILD;
    set_field(m, &e, NULL);
    gd_object_release(e.object);
    m->revision++;
    gd_module_changed();
    return GD_OK;
}

gd_status gd_module_remove_at(const char *site, gd_module *m, const char *name) {
    GD_LIVE_AT(site, m);
    return gd_report(site, remove_part(m, name));
}

static gd_status set_tensor(gd_module *m, const char *name, gd_tensor *t) {
    gd_entry *e = m && name ? gd_module_entry(m, name) : NULL;
    if (!e || e->kind == GD_A_CHILD) return no_such_part("gd_module_set_tensor", m, name);
    if (e->kind == GD_A_PARAMETER) GD_TRY(check_parameter(m, name, t));
    else GD_TRY(check_buffer(name, t));
    if (t) gd_object_retain(&t->object);
    set_field(m, e, t);
    gd_object_release(e->object);
    e->object = t ? &t->object : NULL;
    if (t && e->kind == GD_A_PARAMETER) t->requires_grad = !m->frozen;
    m->revision++;
    gd_module_changed();
    return GD_OK;
}

gd_status gd_module_set_tensor_at(const char *site, gd_module *m, const char *name, gd_tensor *t) {
    GD_LIVE_AT(site, m);
    return gd_report(site, set_tensor(m, name, t));
}
