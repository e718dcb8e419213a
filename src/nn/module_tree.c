/* module_tree.c - walks over a tree of modules: parameters, names, paths. */
#include <stdio.h>
#include <string.h>

#include "core/freed.h"
#include "core/map.h"
#include "gradus/autograd.h"
#include "nn/module.h"
#include "dispatch/attrs.h"

/* --- walking ---------------------------------------------------------------------------------- */

/* Marks an object as seen. *skip: it was seen before, and `again` is not set. */
static gd_status mark_seen(gd_tree_walk *w, const void *object, bool *skip) {
    gd_map *seen = w->seen;
    *skip = gd_map_find(seen, object) >= 0;
    if (!*skip && !gd_map_put(seen, object, 1)) return gd_no_memory(NULL, "for a list of modules");
    *skip = *skip && !w->again;
    return GD_OK;
}

static gd_status walk_module(gd_tree_walk *w, gd_module *m, size_t used) {
    bool skip;
    GD_TRY(mark_seen(w, m, &skip));
    if (skip) return GD_OK;
    if (++w->depth > GD_MAX_DEPTH)
        return gd_fail(GD_E_UNSUPPORTED, "modules are nested more than %d deep", GD_MAX_DEPTH);
    if (w->module) GD_TRY(w->module(w, m));
    for (int i = 0; i < m->count; i++) {
        gd_entry *e = &m->entries[i];
        if (!e->object) continue;
        const int n =
            snprintf(w->path + used, GD_MAX_PATH - used, "%s%s", used ? "." : "", e->name);
        if (n < 0 || (size_t)n >= GD_MAX_PATH - used)
            return gd_fail(GD_E_UNSUPPORTED, "the name '%.60s...' is too long", w->path);
        if (e->kind == GD_A_CHILD) GD_TRY(walk_module(w, (gd_module *)e->object, used + (size_t)n));
        else if (w->tensor) {
            GD_TRY(mark_seen(w, e->object, &skip));
            if (!skip) GD_TRY(w->tensor(w, m, e));
        }
        w->path[used] = 0;
    }
    w->depth--;
    return GD_OK;
}

gd_status gd_module_walk(gd_module *m, gd_tree_walk *w) {
    gd_map seen = {NULL, 0, 0};
    w->seen = &seen;
    w->path[0] = 0;
    w->depth = 0;
    const gd_status status = m ? walk_module(w, m, 0) : GD_OK;
    gd_map_free(&seen);
    return status;
}

bool gd_name_matches(const char *name, const char *pattern) {
    if (!pattern) return true;
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (*pattern == '*') star = ++pattern, from = name;
        else if (*pattern == *name) pattern++, name++;
        else if (star) pattern = star, name = ++from;
        else return false;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

/* --- lists of tensors ------------------------------------------------------------------------- */

typedef struct tensor_gathering {
    gd_entry_kind kind;
    const gd_parameters_options *options;
    gd_tensor **list; /* NULL: only counts */
    int64_t count;
} tensor_gathering;

static gd_status gather_tensor(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    tensor_gathering *g = w->user;
    gd_tensor *t = (gd_tensor *)e->object;
    (void)holder;
    if (e->kind != g->kind) return GD_OK;
    if (g->options && (!gd_name_matches(w->path, g->options->match) ||
                       (g->options->trainable && !t->requires_grad)))
        return GD_OK;
    if (g->list) g->list[g->count] = t;
    g->count++;
    return GD_OK;
}

/* Walks over the tree twice: to count the tensors, and to fill the list. */
static gd_tensors list_tensors(const char *site, gd_module *m, const char *what,
                               tensor_gathering g) {
    gd_tree_walk w = {.tensor = gather_tensor, .user = &g};
    gd_status status = m             ? GD_OK
                       : gd_failed() ? gd_failure()
                                     : gd_fail(GD_E_ARGUMENT, "%s: the module is NULL", what);
    if (status == GD_OK) status = gd_module_walk(m, &w);
    if (status == GD_OK && !(g.list = gd_list_new(g.count)))
        status = gd_fail(GD_E_MEMORY, "no memory for a list of %lld tensors", (long long)g.count);
    g.count = 0;
    if (status == GD_OK) status = gd_module_walk(m, &w);
    if (status == GD_OK) status = gd_list_hold((gd_tensors){g.list, g.count});
    if (status == GD_OK) return (gd_tensors){g.list, g.count};
    gd_report(site, status);
    return gd_list_of_errors(0);
}

gd_tensors gd_module_parameters_so_far(gd_module *m) {
    return list_tensors(NULL, m, "gd_module_parameters",
                        (tensor_gathering){.kind = GD_A_PARAMETER});
}

/* Whether a name that begins with `start` can match a pattern. */
static bool can_match(const char *start, const char *pattern) {
    if (!pattern) return true;
    while (*start && *start == *pattern) start++, pattern++;
    return !*start || *pattern == '*';
}

typedef struct unbuilt_list {
    const gd_parameters_options *options;
    bool buffers; /* only layers that will have some */
    char *text;
    size_t size;
    int count;
} unbuilt_list;

static bool will_have_buffers(const gd_module *m) {
    const gd_op_attr *a = NULL;
    return m->factory && gd_factory_option(m->factory, m->options, "track_running_stats", &a) &&
           gd_attr_number(a, m->options).value != 0;
}

static gd_status list_unbuilt(gd_tree_walk *w, gd_module *m) {
    unbuilt_list *u = w->user;
    char start[GD_MAX_PATH + 1];
    if (m->built || (u->buffers && !will_have_buffers(m))) return GD_OK;
    snprintf(start, sizeof start, "%s%s", w->path, *w->path ? "." : "");
    if (u->options &&
        (!can_match(start, u->options->match) || (u->options->trainable && m->frozen)))
        return GD_OK;
    const size_t used = strlen(u->text);
    if (u->count++ == 4) snprintf(u->text + used, u->size - used, ", ...");
    if (u->count > 4) return GD_OK;
    snprintf(u->text + used, u->size - used, *w->path ? "%s%s (%s)" : "%s%s%s", used ? ", " : "",
             w->path, m->type);
    return GD_OK;
}

int gd_module_unbuilt(gd_module *m, const gd_parameters_options *o, char *text, size_t size) {
    unbuilt_list u = {.options = o, .text = text, .size = size};
    *text = 0;
    gd_module_walk(m, &(gd_tree_walk){.module = list_unbuilt, .user = &u});
    return u.count;
}

/* Fails for `function` if a layer that it must see has none of its tensors yet. */
static gd_status check_built(gd_module *m, const char *function, unbuilt_list u,
                             const char *advice) {
    char text[500] = "";
    u.text = text;
    u.size = sizeof text;
    if (m) gd_module_walk(m, &(gd_tree_walk){.module = list_unbuilt, .user = &u});
    if (u.count == 0) return GD_OK;
    return gd_fail(GD_E_STATE,
                   "%s: %s %s no %s yet, because sizes are GD_ANY; first call the net on a batch "
                   "(or gd_module_build), or give the sizes%s",
                   function, text, u.count == 1 ? "has" : "have",
                   u.buffers ? "buffers" : "parameters", advice);
}

gd_status gd_module_check_built(gd_module *m, const char *function, const char *match) {
    const gd_parameters_options o = {.match = match};
    return check_built(m, function, (unbuilt_list){.options = &o}, "");
}

gd_tensors gd_module_parameters_at(const char *site, gd_module *m, const gd_parameters_options *o) {
    GD_LIVE_AT(site, m);
    o = o ? o : GD_PARAMETERS_OPTIONS_();
    const gd_status status =
        check_built(m, "gd_module_parameters", (unbuilt_list){.options = o},
                    "; an optimizer of the module, such as gd_optim_adam_of(net), takes in what is "
                    "built later");
    if (status == GD_OK)
        return list_tensors(site, m, "gd_module_parameters",
                            (tensor_gathering){.kind = GD_A_PARAMETER, .options = o});
    gd_report(site, status);
    return gd_list_of_errors(0);
}

gd_tensors gd_module_buffers_so_far(gd_module *m) {
    return list_tensors(NULL, m, "gd_module_buffers", (tensor_gathering){.kind = GD_A_BUFFER});
}

gd_tensors gd_module_buffers_at(const char *site, gd_module *m) {
    GD_LIVE_AT(site, m);
    const gd_status status =
        check_built(m, "gd_module_buffers", (unbuilt_list){.buffers = true}, "");
    if (status != GD_OK) {
        gd_report(site, status);
        return gd_list_of_errors(0);
    }
    return list_tensors(site, m, "gd_module_buffers", (tensor_gathering){.kind = GD_A_BUFFER});
}

static gd_status add_count(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    const gd_tensor *t = (const gd_tensor *)e->object;
    (void)holder;
    if (e->kind == GD_A_PARAMETER) *(int64_t *)w->user += gd_numel(t->rank, t->dims);
    return GD_OK;
}

int64_t gd_module_parameter_count(gd_module *m) {
    GD_LIVE(m);
    int64_t count = 0;
    gd_module_walk(m, &(gd_tree_walk){.tensor = add_count, .user = &count});
    return count;
}

/* --- paths ------------------------------------------------------------------------------------ */

/* Finds the entry at a path, "layer1.0.conv1", and the module that has it; NULL: there is none. The
 * name of a layer may have dots itself, so the name of a child can end at any dot; the longest that
 * leads to an entry is taken. */
static gd_entry *find_entry_in(gd_module *m, const char *path, gd_module **holder) {
    gd_entry *e = gd_module_entry(m, path);
    *holder = m;
    const size_t length = e ? 0 : strlen(path);
    char name[GD_MAX_PATH];
    if (length >= sizeof name) return NULL;
    memcpy(name, path, length + 1);
    for (char *dot; !e && (dot = strrchr(name, '.'));) {
        *dot = 0;
        const gd_entry *child = gd_module_entry(m, name);
        if (child && child->kind == GD_A_CHILD && child->object)
            e = find_entry_in((gd_module *)child->object, path + (dot - name) + 1, holder);
    }
    return e;
}
static gd_entry *find_entry(gd_module *m, const char *path) {
    gd_module *holder;
    return find_entry_in(m, path, &holder);
}

typedef struct name_list {
    bool modules;
    char text[400];
} name_list;

static gd_status list_name(name_list *s, const char *path) {
    if (strlen(s->text) + strlen(path) + 8 > sizeof s->text) return GD_OK;
    if (*s->text) strcat(s->text, ", ");
    strcat(s->text, path);
    return GD_OK;
}
static gd_status list_tensor(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    (void)holder, (void)e;
    return list_name(w->user, w->path);
}
static gd_status list_module(gd_tree_walk *w, gd_module *module) {
    (void)module;
    return *w->path ? list_name(w->user, w->path) : GD_OK;
}

static gd_status fail_no_such(gd_module *m, const char *what, const char *path, bool modules) {
    name_list s = {.modules = modules};
    gd_module_walk(m, &(gd_tree_walk){.module = modules ? list_module : NULL,
                                      .tensor = modules ? NULL : list_tensor,
                                      .user = &s});
    return gd_fail(GD_E_ARGUMENT, "%s: %s has no %s '%.120s'; it has %s", what, m->type,
                   modules ? "module" : "parameter or buffer", path, *s.text ? s.text : "none");
}

static gd_status check_path(const gd_module *m, const char *path, const char *what) {
    if (m && path) return GD_OK;
    if (!m && gd_failed()) return gd_failure();
    return gd_fail(GD_E_ARGUMENT, "%s: the %s is NULL", what, m ? "path" : "module");
}

static gd_status find_tensor(gd_module *m, const char *path, const char *what, gd_tensor **t) {
    GD_TRY(check_path(m, path, what));
    const gd_entry *e = find_entry(m, path);
    if (!e || e->kind == GD_A_CHILD || !e->object) return fail_no_such(m, what, path, false);
    *t = (gd_tensor *)e->object;
    return GD_OK;
}

gd_tensor *gd_module_tensor_at(const char *site, gd_module *m, const char *path) {
    GD_LIVE_AT(site, m);
    gd_tensor *t = NULL;
    gd_report(site, find_tensor(m, path, "gd_module_tensor", &t));
    return t;
}

gd_tensor *gd_module_grad_at(const char *site, gd_module *m, const char *path) {
    GD_LIVE_AT(site, m);
    gd_tensor *t = NULL;
    return gd_report(site, find_tensor(m, path, "gd_module_grad", &t)) == GD_OK ? gd_tensor_grad(t)
                                                                                : NULL;
}

static gd_status find_module(gd_module *m, const char *path, gd_module **found) {
    GD_TRY(check_path(m, path, "gd_module_find"));
    const gd_entry *e = *path ? find_entry(m, path) : NULL;
    *found = *path ? NULL : m;
    if (e && e->kind == GD_A_CHILD) *found = (gd_module *)e->object;
    return *found ? GD_OK : fail_no_such(m, "gd_module_find", path, true);
}

gd_module *gd_module_find_at(const char *site, gd_module *m, const char *path) {
    GD_LIVE_AT(site, m);
    gd_module *found = NULL;
    gd_report(site, find_module(m, path, &found));
    return found;
}

static gd_status replace_child(gd_module *m, const char *path, gd_module *child) {
    GD_TRY(check_path(m, path, "gd_module_replace"));
    if (!child)
        return gd_failed() ? gd_failure()
                           : gd_fail(GD_E_ARGUMENT, "gd_module_replace: the child is NULL");
    gd_module *parent;
    gd_entry *e = find_entry_in(m, path, &parent);
    if (!e || e->kind != GD_A_CHILD) return fail_no_such(m, "gd_module_replace", path, true);
    if (gd_module_contains(child, parent, 0))
        return gd_fail(GD_E_STATE,
                       "gd_module_replace: the new '%s' is the module itself, or contains it",
                       path);
    if (!gd_module_note_child(parent, child, (int)(e - parent->entries)))
        return gd_no_memory(NULL, "to replace a module");
    gd_retain(child);
    gd_object_release(e->object);
    e->object = (gd_object *)child;
    if (e->field >= 0) memcpy((char *)parent->self + e->field, &child, sizeof child);
    child->training = m->training;
    parent->revision++;
    gd_module_changed();
    return GD_OK;
}

gd_status gd_module_replace_at(const char *site, gd_module *m, const char *path, gd_module *child) {
    GD_LIVE_AT(site, m);
    GD_LIVE_AT(site, child);
    return gd_report(site, replace_child(m, path, child));
}

int gd_module_count(const gd_module *m) {
    GD_LIVE(m);
    return m ? m->n_children : 0;
}

/* The child with this index, which is below the number of children. */
static gd_module *child_at(gd_module *m, int index) {
    if (m->n_children == m->count) return (gd_module *)m->entries[index].object;
    const gd_entry *e = m->entries;
    while (e->kind != GD_A_CHILD || index-- > 0) e++;
    return (gd_module *)e->object;
}

static gd_status find_child(gd_module *m, int index, gd_module **child) {
    if (!m)
        return gd_failed() ? gd_failure()
                           : gd_fail(GD_E_ARGUMENT, "gd_module_at: the module is NULL");
    if (m->n_children == 0)
        return gd_fail(GD_E_INDEX, "gd_module_at: there is no child %d; '%s' has no children",
                       index, m->type);
    if (index < 0 || index >= m->n_children)
        return gd_fail(GD_E_INDEX,
                       "gd_module_at: there is no child %d; '%s' has %d, numbered from 0", index,
                       m->type, m->n_children);
    *child = child_at(m, index);
    return GD_OK;
}

gd_module *gd_module_at_at(const char *site, gd_module *m, int index) {
    GD_LIVE_AT(site, m);
    gd_module *child = NULL;
    gd_report(site, find_child(m, index, &child));
    return child;
}

/* --- apply ------------------------------------------------------------------------------------ */

typedef struct apply_call {
    gd_module_fn fn;
    void *user;
} apply_call;

static gd_status apply_one(gd_tree_walk *w, gd_module *m) {
    const apply_call *a = w->user;
    a->fn(m, w->path, a->user);
    return GD_OK;
}

gd_status gd_module_apply_at(const char *site, gd_module *m, gd_module_fn fn, void *user) {
    GD_LIVE_AT(site, m);
    if (!m || !fn)
        return gd_report(site, !m && gd_failed()
                                   ? gd_failure()
                                   : gd_fail(GD_E_ARGUMENT, "gd_module_apply: the %s is NULL",
                                             m ? "function" : "module"));
    return gd_report(site, gd_module_walk(m, &(gd_tree_walk){.module = apply_one,
                                                             .user = &(apply_call){fn, user}}));
}
