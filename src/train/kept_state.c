/* kept_state.c - see kept_state.h. */
#include "train/kept_state.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "graph/build/graph.h"
#include "ops/call.h"

enum { MOST_NAME = 80 };

void gd_kept_state_drop(gd_kept_state *k) {
    for (int64_t i = 0; i < k->count; i++) gd_release(k->at[i]);
    gd_free(k->at);
    *k = (gd_kept_state){NULL, 0};
}

static bool alike(const gd_tensor *a, const gd_tensor *b) {
    return a->dtype == b->dtype && a->device == b->device && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

static bool fits(const gd_kept_state *k, const gd_state *state) {
    bool fit = k->count == gd_state_count(state) && k->at;
    for (int64_t i = 0; i < k->count && fit; i++)
        fit = alike(k->at[i], gd_state_tensor_at(state, i));
    return fit;
}

static gd_status clone_all(gd_kept_state *k, const gd_state *state) {
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
    if (!fits(k, state)) return clone_all(k, state);
    for (int64_t i = 0; i < k->count; i++)
        GD_TRY(gd_copy_tensor(k->at[i], gd_state_tensor_at(state, i)));
    return GD_OK;
}

/* Checks everything before anything is written. */
static gd_status check(const gd_kept_state *k, const gd_state *state) {
    if (gd_state_count(state) != k->count)
        return gd_fail(GD_E_STATE, "the net has %lld tensors now, and had %lld when they were kept",
                       (long long)gd_state_count(state), (long long)k->count);
    for (int64_t i = 0; i < k->count; i++) {
        const gd_tensor *to = gd_state_tensor_at(state, i), *from = k->at[i];
        char now[128], then[128];
        if (to->rank != from->rank ||
            memcmp(to->dims, from->dims, (size_t)to->rank * sizeof *to->dims) != 0)
            return gd_fail(GD_E_SHAPE, "%s is %s now, and was %s when it was kept",
                           gd_state_name(state, i), gd_describe(to, now, sizeof now),
                           gd_describe(from, then, sizeof then));
    }
    return GD_OK;
}

static gd_status write_all(const gd_kept_state *k, const gd_state *state) {
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
    GD_TRY(check(k, state));
    GD_TRY(clone_all(&now, state));
    const gd_status status = write_all(k, state);
    gd_kept_state_drop(status == GD_OK ? k : &now);
    if (status == GD_OK) *k = now;
    return status;
}

/* --- as part of another state ----------------------------------------------------------------- */

static const char *part_name(char text[MOST_NAME], const char *name, int64_t i) {
    snprintf(text, MOST_NAME, "%s.%lld", name, (long long)i);
    return text;
}

gd_status gd_kept_state_give(const gd_kept_state *k, const char *name, gd_state *state) {
    char text[MOST_NAME];
    for (int64_t i = 0; i < k->count; i++)
        GD_TRY(gd_state_put_tensor(state, part_name(text, name, i), k->at[i]));
    snprintf(text, sizeof text, "%s_count", name);
    return gd_state_put_integer(state, text, k->count);
}

typedef struct arrival {
    gd_kept_state *to, kept;
    int64_t count; /* what the load writes for NAME_count */
} arrival;

static void done(void *user, bool loaded) {
    arrival *a = user;
    if (loaded) {
        const gd_kept_state before = *a->to;
        *a->to = a->kept;
        a->kept = before;
    }
    gd_kept_state_drop(&a->kept);
    gd_free(a);
}

/* A tensor for what is there under this name. */
static gd_status take_one(gd_taking *in, const char *name, gd_kept_state *k) {
    gd_shape shape = gd_dims();
    gd_dtype dtype = GD_F32;
    gd_taking_shape(in, name, &shape, &dtype); /* one that is not there is reported as missing */
    gd_tensor *t = gd_empty(shape, dtype);
    if (t->kind == GD_FAILED) return gd_failure();
    k->at[k->count++] = gd_retain(t);
    return gd_taking_tensor(in, name, t);
}

gd_status gd_kept_state_take(gd_kept_state *k, const char *name, gd_taking *in) {
    GD_EAGER;
    GD_SCOPE;
    char text[MOST_NAME];
    int64_t count = 0;
    arrival *a = gd_calloc(1, sizeof *a);
    if (!a) return gd_no_memory(NULL, "for a copy of the weights");
    a->to = k;
    GD_TRY(gd_taking_when_done(in, done, a));
    snprintf(text, sizeof text, "%s_count", name);
    if (!gd_taking_peek_integer(in, text, &count)) count = 0;
    GD_TRY(gd_taking_integer(in, text, &a->count));
    if (count < 0 || count > 1 << 24)
        return gd_fail(GD_E_FORMAT, "%s is %lld", text, (long long)count);
    if (count && !(a->kept.at = gd_calloc((size_t)count, sizeof *a->kept.at)))
        return gd_no_memory(NULL, "for a copy of the weights");
    for (int64_t i = 0; i < count; i++) GD_TRY(take_one(in, part_name(text, name, i), &a->kept));
    return GD_OK;
}
