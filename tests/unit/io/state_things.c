/* state_things.c - objects with state for tests of saving and loading. */
#include "state_things.h"

#include "core/alloc.h"

/* --- a net ------------------------------------------------------------------------------------ */

static void net_destroy(gd_object *object) {
    net *n = (net *)object;
    for (int i = 0; i < n->count; i++) gd_release(n->tensors[i]);
    if (n->inner) gd_object_release(&n->inner->object);
    gd_free(n->text);
    gd_free(n);
}

static gd_status net_save(gd_object *object, gd_state *state) {
    net *n = (net *)object;
    for (int i = 0; i < n->count; i++)
        GD_TRY(gd_state_put_tensor(state, n->names[i], n->tensors[i]));
    if (n->has_values) {
        GD_TRY(gd_state_put_float(state, "number", n->number));
        GD_TRY(gd_state_put_integer(state, "integer", n->integer));
        GD_TRY(gd_state_put_unsigned(state, "natural", n->natural));
        GD_TRY(gd_state_put_text(state, "text", n->text ? n->text : ""));
    }
    return gd_state_put_object(state, "inner", n->inner);
}

static gd_status net_load(gd_object *object, gd_loading *in) {
    net *n = (net *)object;
    for (int i = 0; i < n->count; i++) GD_TRY(gd_loading_tensor(in, n->names[i], n->tensors[i]));
    if (n->has_values) {
        GD_TRY(gd_loading_float(in, "number", &n->number));
        GD_TRY(gd_loading_integer(in, "integer", &n->integer));
        GD_TRY(gd_loading_unsigned(in, "natural", &n->natural));
        GD_TRY(gd_loading_text(in, "text", &n->text));
    }
    return gd_loading_object(in, "inner", n->inner);
}

static const gd_state_rules net_rules = {net_save, net_load};
static const gd_class net_class = {.name = "net", .destroy = net_destroy, .state = &net_rules};

net *new_net(void) {
    net *n = gd_calloc(1, sizeof *n);
    if (!n) abort();
    gd_object_init(&n->object, &net_class);
    return n;
}
void end_net(net *n) { gd_object_release(&n->object); }

void add(net *n, const char *name, gd_tensor *t) {
    n->names[n->count] = name;
    n->tensors[n->count++] = gd_retain(t);
}

net *small_net(double value) {
    GD_SCOPE;
    net *n = new_net();
    add(n, "fc1.weight", gd_full(gd_dims(3, 2), value));
    add(n, "fc1.bias", gd_full(gd_dims(3), value));
    add(n, "fc2.weight", gd_full(gd_dims(2, 3), value));
    return n;
}

bool all_are(const net *n, double value) {
    GD_SCOPE;
    for (int i = 0; i < n->count; i++) {
        gd_tensor *t = gd_cast(n->tensors[i], GD_F64);
        if (gd_tensor_numel(t) > 0 && (gd_item(gd_min(t)) != value || gd_item(gd_max(t)) != value))
            return false;
    }
    return true;
}

/* --- an optimizer ----------------------------------------------------------------------------- */

static void moments_destroy(gd_object *object) {
    moments *m = (moments *)object;
    for (int i = 0; i < m->of->count; i++) gd_release(m->moment[i]);
    gd_object_release(&m->of->object);
    gd_free(m);
}

static gd_status moments_save(gd_object *object, gd_state *state) {
    moments *m = (moments *)object;
    for (int i = 0; i < m->of->count; i++) {
        if (!m->moment[i]) continue;
        const char *name = gd_state_name_for(state, m->of->tensors[i], NULL, i, "exp_avg");
        if (!name) return GD_E_MEMORY;
        GD_TRY(gd_state_put_tensor(state, name, m->moment[i]));
    }
    return gd_state_put_integer(state, "steps", m->steps);
}

typedef struct loaded_moments {
    moments *of;
    gd_tensor *moment[24];
} loaded_moments;

static void moments_done(void *user, bool loaded) {
    loaded_moments *l = user;
    for (int i = 0; i < l->of->of->count; i++) {
        if (loaded && l->moment[i]) {
            gd_release(l->of->moment[i]);
            l->of->moment[i] = l->moment[i];
        } else {
            gd_release(l->moment[i]);
        }
    }
    gd_free(l);
}

/* Missing moments are created with the shapes of the file. */
static gd_status moments_load(gd_object *object, gd_loading *in) {
    moments *m = (moments *)object;
    loaded_moments *l = gd_calloc(1, sizeof *l);
    if (!l) return gd_fail(GD_E_MEMORY, "no memory");
    l->of = m;
    GD_TRY(gd_loading_when_done(in, moments_done, l));
    for (int i = 0; i < m->of->count; i++) {
        gd_shape shape;
        gd_dtype dtype;
        const char *name = gd_loading_name_for(in, m->of->tensors[i], NULL, i, "exp_avg");
        if (!name) return GD_E_MEMORY;
        gd_tensor *t = m->moment[i];
        if (!t && gd_loading_shape(in, name, &shape, &dtype)) {
            t = gd_empty(shape, dtype);
            if (gd_tensor_is_error(t)) return gd_error_status();
            l->moment[i] = gd_retain(t);
        }
        if (t) GD_TRY(gd_loading_tensor(in, name, t));
    }
    return gd_loading_integer(in, "steps", &m->steps);
}

static const gd_state_rules moments_rules = {moments_save, moments_load};
static const gd_class moments_class = {
    .name = "moments", .destroy = moments_destroy, .state = &moments_rules};

moments *new_moments(net *of, double value) {
    GD_SCOPE;
    moments *m = gd_calloc(1, sizeof *m);
    if (!m) abort();
    gd_object_init(&m->object, &moments_class);
    m->of = of;
    gd_object_retain(&of->object);
    for (int i = 0; i < of->count && value != 0; i++)
        m->moment[i] = gd_retain(gd_full(gd_tensor_shape(of->tensors[i]), value));
    return m;
}
void end_moments(moments *m) { gd_object_release(&m->object); }
