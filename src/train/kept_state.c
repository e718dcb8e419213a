/* kept_state.c - copies the tensors of an object and puts them back; see kept_state.h. */
#include "train/kept_state.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "graph/build/graph.h"
#include "dispatch/call.h"

enum { MAX_NAME = 80 };

void gd_kept_state_drop(gd_kept_state *k) {
    for (int64_t i = 0; i < k->count; i++) gd_release(k->at[i]);
    gd_free(k->at);
    *k = (gd_kept_state){NULL, 0};
}

static bool same_type(const gd_tensor *a, const gd_tensor *b) {
    return a->dtype == b->dtype && a->device == b->device && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

static bool copies_fit(const gd_kept_state *k, const gd_state *state) {
    bool fit = k->count == gd_state_count(state) && k->at;
    for (int64_t i = 0; i < k->count && fit; i++)
        fit = same_type(k->at[i], gd_state_tensor_at(state, i));
    return fit;
}

static gd_status clone_tensors(gd_kept_state *k, const gd_state *state) {
    gd_kept_state_drop(k);
    const int64_t count = gd_state_count(state);
    if (!(k->at = gd_calloc((size_t)count + 1, sizeof *k->at)))
        return gd_no_memory(NULL, "for a copy of the weights");
    while (k->count < count) {
        gd_tensor *copy = gd_clone(gd_state_tensor_at(state, k->count));
        if (copy->kind == GD_FAILED) {
            const gd_status status = gd_failure();
            gd_kept_state_drop(k);
            return status;
        }
        k->at[k->count++] = gd_retain(copy);
    }
    return GD_OK;
}

gd_status gd_kept_state_copy(gd_kept_state *k, void *object) {
    GD_EAGER;
    GD_NO_GRAD;
    GD_SCOPE;
    const gd_state *state = gd_state_of_at(NULL, object);
    if (!state) return gd_failure();
    if (!copies_fit(k, state)) return clone_tensors(k, state);
    for (int64_t i = 0; i < k->count; i++)
        GD_TRY(gd_copy_tensor(k->at[i], gd_state_tensor_at(state, i)));
    return GD_OK;
}

/* Checks everything before anything is written. */
static gd_status check_tensors(const gd_kept_state *k, const gd_state *state) {
    if (gd_state_count(state) != k->count)
        return gd_fail(GD_E_STATE, "the net has %lld tensors; it had %lld when they were copied",
                       (long long)gd_state_count(state), (long long)k->count);
    for (int64_t i = 0; i < k->count; i++) {
        const gd_tensor *to = gd_state_tensor_at(state, i), *from = k->at[i];
        char now[128], then[128];
        if (to->rank != from->rank ||
            memcmp(to->dims, from->dims, (size_t)to->rank * sizeof *to->dims) != 0)
            return gd_fail(GD_E_SHAPE, "%s is %s; it was %s when it was copied",
                           gd_state_name(state, i), gd_describe(to, now, sizeof now),
                           gd_describe(from, then, sizeof then));
    }
    return GD_OK;
}

static gd_status write_tensors(const gd_kept_state *k, const gd_state *state) {
    for (int64_t i = 0; i < k->count; i++) {
        gd_tensor *to = gd_state_tensor_at(state, i), *from = k->at[i];
        if (to->device != from->device) from = gd_to_device(from, to->device);
        if (from->kind == GD_FAILED) return gd_failure();
        GD_TRY(gd_copy_tensor(to, from));
    }
    return GD_OK;
}

gd_status gd_kept_state_exchange(gd_kept_state *k, void *object) {
    GD_EAGER;
    GD_NO_GRAD;
    GD_SCOPE;
    gd_kept_state now = {NULL, 0};
    const gd_state *state = gd_state_of_at(NULL, object);
    if (!state) return gd_failure();
    GD_TRY(check_tensors(k, state));
    GD_TRY(clone_tensors(&now, state));
    const gd_status status = write_tensors(k, state);
    gd_kept_state_drop(status == GD_OK ? k : &now);
    if (status == GD_OK) *k = now;
    return status;
}

/* --- as part of another state ----------------------------------------------------------------- */

static const char *part_name(char text[MAX_NAME], const char *name, int64_t i) {
    snprintf(text, MAX_NAME, "%s.%lld", name, (long long)i);
    return text;
}

gd_status gd_kept_state_save(const gd_kept_state *k, const char *name, gd_state *state) {
    char text[MAX_NAME];
    for (int64_t i = 0; i < k->count; i++)
        GD_TRY(gd_state_put_tensor(state, part_name(text, name, i), k->at[i]));
    snprintf(text, sizeof text, "%s_count", name);
    return gd_state_put_integer(state, text, k->count);
}

/* Loaded copies. They replace the kept ones when the entire load has succeeded. */
typedef struct loaded_state {
    gd_kept_state *to, kept;
    int64_t count; /* NAME_count, which the load writes */
} loaded_state;

static void adopt_loaded(void *user, bool loaded) {
    loaded_state *a = user;
    if (loaded) {
        const gd_kept_state before = *a->to;
        *a->to = a->kept;
        a->kept = before;
    }
    gd_kept_state_drop(&a->kept);
    gd_free(a);
}

/* Allocates and loads the tensor of this name. */
static gd_status load_tensor(gd_loading *in, const char *name, gd_kept_state *k) {
    gd_shape shape = gd_dims();
    gd_dtype dtype = GD_F32;
    gd_loading_shape(in, name, &shape, &dtype); /* the load reports a missing tensor */
    gd_tensor *t = gd_empty(shape, dtype);
    if (t->kind == GD_FAILED) return gd_failure();
    k->at[k->count++] = gd_retain(t);
    return gd_loading_tensor(in, name, t);
}

gd_status gd_kept_state_load(gd_kept_state *k, const char *name, gd_loading *in) {
    GD_EAGER;
    GD_SCOPE;
    char text[MAX_NAME];
    int64_t count = 0;
    loaded_state *a = gd_calloc(1, sizeof *a);
    if (!a) return gd_no_memory(NULL, "for a copy of the weights");
    a->to = k;
    GD_TRY(gd_loading_when_done(in, adopt_loaded, a));
    snprintf(text, sizeof text, "%s_count", name);
    if (!gd_loading_peek_integer(in, text, &count)) count = 0;
    GD_TRY(gd_loading_integer(in, text, &a->count));
    if (count < 0 || count > 1 << 24)
        return gd_fail(GD_E_FORMAT, "%s is %lld, which is no number of tensors", text,
                       (long long)count);
    if (count && !(a->kept.at = gd_calloc((size_t)count, sizeof *a->kept.at)))
        return gd_no_memory(NULL, "for a copy of the weights");
    for (int64_t i = 0; i < count; i++) GD_TRY(load_tensor(in, part_name(text, name, i), &a->kept));
    return GD_OK;
}
