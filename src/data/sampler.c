/* sampler.c - samplers: the object, orders, the distributed sampler and user-defined ones. */
#include "data/sampler.h"

#include <stdio.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "data/permute.h"

/* --- the object ------------------------------------------------------------------------------- */

static void destroy_sampler(gd_object *object) {
    gd_sampler *s = (gd_sampler *)object;
    if (s->rules->close) s->rules->close(s);
    gd_free(s->self);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class sampler_class = {.name = "sampler", .destroy = destroy_sampler};
GD_KNOWN_CLASS(sampler_class)

gd_sampler *gd_sampler_bare(const gd_sampler_rules *rules, int64_t made_for, size_t size) {
    gd_sampler *s = gd_calloc(1, sizeof *s);
    void *self = s ? gd_calloc(1, size) : NULL;
    if (!self) {
        gd_free(s);
        gd_no_memory(NULL, "for a sampler");
        return NULL;
    }
    gd_object_init(&s->object, &sampler_class);
    gd_object_count(1);
    s->rules = rules;
    s->made_for = made_for;
    s->self = self;
    return s;
}

gd_sampler *gd_sampler_finish(const char *site, const char *function, gd_sampler *s,
                              gd_status status) {
    if (status == GD_OK && !s) status = GD_E_MEMORY;
    if (status == GD_OK) status = gd_scope_reserve(1);
    if (status == GD_OK) {
        gd_scope_adopt(&s->object);
        return s;
    }
    gd_error_prefix("%s: ", function);
    if (s) gd_object_release(&s->object);
    gd_report(site, status);
    return NULL;
}

gd_status gd_sampler_column(gd_tensor **column, const char *what) {
    char text[160];
    gd_tensor *t = *column;
    if (t && t->kind == GD_FAILED) return gd_failure();
    if (!t || t->kind != GD_VALUE)
        return gd_fail(GD_E_ARGUMENT, "the %s are %s", what,
                       t ? "a symbol of a graph and have no data" : "NULL");
    if (t->rank != 1)
        return gd_fail(GD_E_SHAPE,
                       "the %s are %s; they should have rank 1, a number for each sample", what,
                       gd_describe(t, text, sizeof text));
    if (t->device == gd_cpu()) return GD_OK;
    *column = gd_to_device(t, gd_cpu());
    return (*column)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

gd_status gd_sampler_fits(const gd_sampler *s, int64_t samples) {
    GD_TRY_LIVE(s, "gd_loader_new");
    if (!s || s->made_for < 0 || s->made_for == samples) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "the sampler is for %lld samples, and the dataset has %lld",
                   (long long)s->made_for, (long long)samples);
}

/* --- orders ----------------------------------------------------------------------------------- */

int64_t gd_order_count(const gd_order *o) {
    return o->sampler ? o->sampler->rules->count(o->sampler, o->samples) : o->samples;
}

gd_status gd_order_begin(gd_order *o, uint64_t epoch) {
    gd_order_end(o);
    o->epoch = epoch;
    return o->sampler && o->sampler->rules->begin ? o->sampler->rules->begin(o) : GD_OK;
}

void gd_order_end(gd_order *o) {
    gd_free(o->table);
    o->table = NULL;
}

gd_status gd_order_at(const gd_order *o, int64_t first, int64_t count, int64_t *indices) {
    if (o->sampler) return o->sampler->rules->at(o, first, count, indices);
    const gd_rng key = gd_draw_key(GD_DRAW_ORDER, o->seed, o->epoch);
    for (int64_t i = 0; i < count; i++)
        indices[i] = o->shuffle ? gd_shuffled(key, first + i, o->samples) : first + i;
    return GD_OK;
}

void gd_order_describe(const gd_order *o, char *text, size_t size) {
    if (o->sampler) o->sampler->rules->describe(o->sampler, text, size);
    else snprintf(text, size, "%s", o->shuffle ? "shuffled" : "in order");
}

/* --- distributed ------------------------------------------------------------------------------ */

typedef struct distributed {
    int64_t rank, world;
    bool shuffle, drop_last;
} distributed;

static int64_t distributed_count(const gd_sampler *s, int64_t samples) {
    const distributed *d = s->self;
    return samples / d->world + (!d->drop_last && samples % d->world != 0);
}

/* Rank r takes positions r, r + world, ...; positions beyond the last sample wrap around. */
static gd_status distributed_at(const gd_order *o, int64_t first, int64_t count, int64_t *indices) {
    const distributed *d = o->sampler->self;
    const gd_rng key = gd_draw_key(GD_DRAW_ORDER, o->seed, o->epoch);
    for (int64_t i = 0; i < count; i++) {
        const int64_t position = ((first + i) * d->world + d->rank) % o->samples;
        indices[i] = d->shuffle ? gd_shuffled(key, position, o->samples) : position;
    }
    return GD_OK;
}

static void distributed_describe(const gd_sampler *s, char *text, size_t size) {
    const distributed *d = s->self;
    snprintf(text, size, "distributed, rank %lld of %lld, %s%s", (long long)d->rank,
             (long long)d->world, d->shuffle ? "shuffled" : "in order",
             d->drop_last ? ", drop_last" : "");
}

static const gd_sampler_rules distributed_rules = {
    .count = distributed_count, .at = distributed_at, .describe = distributed_describe};

gd_sampler *gd_sampler_distributed_at(const char *site, int rank, int world,
                                      const gd_sampler_distributed_options *given) {
    given = given ? given : GD_SAMPLER_DISTRIBUTED_OPTIONS_();
    GD_CALLED_FROM(site);
    const gd_sampler_distributed_options o = *given;
    gd_sampler *s = NULL;
    gd_status status = GD_OK;
    if (world < 1) status = gd_fail(GD_E_ARGUMENT, "world is %d; it must be at least 1", world);
    else if (rank < 0 || rank >= world)
        status = gd_fail(GD_E_ARGUMENT, "rank is %d; with a world of %d it must be from 0 to %d",
                         rank, world, world - 1);
    else if ((s = gd_sampler_bare(&distributed_rules, -1, sizeof(distributed))))
        *(distributed *)s->self = (distributed){rank, world, o.shuffle, o.drop_last};
    return gd_sampler_finish(site, "gd_sampler_distributed", s, status);
}

/* --- user-defined ----------------------------------------------------------------------------- */

typedef struct user_sampler {
    void *self;
    gd_sampler_functions call;
} user_sampler;

static int64_t user_count(const gd_sampler *s, int64_t samples) {
    const user_sampler *f = s->self;
    return f->call.count ? f->call.count(samples, f->self) : samples;
}

static gd_status user_at(const gd_order *o, int64_t first, int64_t count, int64_t *indices) {
    const user_sampler *f = o->sampler->self;
    const gd_status before = gd_error_status();
    for (int64_t i = 0; i < count; i++) {
        indices[i] = f->call.at(first + i, o->seed, o->epoch, o->samples, f->self);
        if (gd_error_status() != before) return gd_failure();
        if (indices[i] < 0 || indices[i] >= o->samples)
            return gd_fail(
                GD_E_INDEX,
                "the sampler returned sample %lld at position %lld; the dataset has %lld "
                "samples, counted from 0",
                (long long)indices[i], (long long)(first + i), (long long)o->samples);
    }
    return GD_OK;
}

static void user_describe(const gd_sampler *s, char *text, size_t size) {
    (void)s;
    snprintf(text, size, "the program's own");
}

static void user_close(gd_sampler *s) {
    const user_sampler *f = s->self;
    if (f->call.destroy) f->call.destroy(f->self);
}

static const gd_sampler_rules user_rules = {
    .count = user_count, .at = user_at, .describe = user_describe, .close = user_close};

gd_sampler *gd_sampler_from_at(const char *site, void *self, const gd_sampler_functions *call) {
    call = call ? call : GD_SAMPLER_FUNCTIONS_();
    GD_CALLED_FROM(site);
    gd_sampler *s = NULL;
    gd_status status = gd_scope_reserve(1); /* first: on failure the program keeps `self` */
    if (status == GD_OK && (!call || !call->at))
        status = gd_fail(GD_E_ARGUMENT, "it needs .at, the sample at a position");
    else if (status == GD_OK && (s = gd_sampler_bare(&user_rules, -1, sizeof(user_sampler))))
        *(user_sampler *)s->self = (user_sampler){self, *call};
    return gd_sampler_finish(site, "gd_sampler_from", s, status);
}
