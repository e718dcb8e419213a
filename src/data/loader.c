/* loader.c - loaders: options, position, state. */
#include "data/loader.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/state_fields.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "gradus/loader.h"

enum { MAX_WORKERS = 256, MAX_PREFETCH = 1024 };

/* --- the object ------------------------------------------------------------------------------- */

static void destroy_loader(gd_object *object) {
    gd_loader *l = (gd_loader *)object;
    gd_workers_end(l);
    gd_loader_drop(l, &l->given);
    gd_order_end(&l->order);
    gd_release(l->options.sampler);
    gd_release(l->dataset);
    gd_object_free(object);
    gd_object_count(-1);
}

static const gd_state_rules loader_state_rules;
static const gd_class loader_class = {
    .name = "loader", .destroy = destroy_loader, .state = &loader_state_rules};
GD_KNOWN_CLASS(loader_class)

bool gd_is_loader(const void *object) {
    return ((const gd_object *)object)->class == &loader_class;
}

static gd_status check_number(const char *name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return GD_OK;
    if (most == INT64_MAX)
        return gd_fail(GD_E_ARGUMENT, ".%s is %lld; it must be at least %lld", name,
                       (long long)value, (long long)least);
    return gd_fail(GD_E_ARGUMENT, ".%s is %lld; it must be from %lld to %lld", name,
                   (long long)value, (long long)least, (long long)most);
}

static gd_status check_options(const gd_dataset *dataset, const gd_loader_options *o) {
    if (!dataset) return gd_fail(GD_E_ARGUMENT, "the dataset is NULL");
    GD_TRY(check_number("batch", o->batch, 1, INT64_MAX));
    GD_TRY(check_number("workers", o->workers, 0, MAX_WORKERS));
    GD_TRY(check_number("prefetch", o->prefetch, 1, MAX_PREFETCH));
    GD_TRY(check_number("targets", o->targets, 0, GD_SAMPLE_MAX));
    GD_TRY(check_number("weights", o->weights, 0, 1));
    if (o->shuffle && o->sampler)
        return gd_fail(GD_E_ARGUMENT, ".shuffle and .sampler both give an order; set one of them");
    if (o->pad && o->collate)
        return gd_fail(GD_E_ARGUMENT,
                       ".pad is for stacking, which .collate replaces; set one of them");
    return gd_sampler_fits(o->sampler, dataset->count);
}

static gd_status count_batches(gd_loader *l) {
    const gd_loader_options *o = &l->options;
    const gd_status before = gd_error_status();
    l->positions = gd_order_count(&l->order);
    if (gd_error_status() != before) return gd_failure();
    if (l->positions < 0)
        return gd_fail(GD_E_ARGUMENT, "the sampler's count is %lld", (long long)l->positions);
    if (l->positions > 0 && l->order.samples == 0)
        return gd_fail(GD_E_ARGUMENT,
                       "the sampler has %lld positions, and the dataset has no samples",
                       (long long)l->positions);
    l->batches = l->positions / o->batch + (!o->drop_last && l->positions % o->batch != 0);
    return GD_OK;
}

static gd_status make_loader(gd_dataset *dataset, const gd_loader_options *o, gd_loader **made) {
    GD_TRY(check_options(dataset, o));
    GD_TRY(gd_scope_reserve(1));
    gd_loader *l = *made = gd_calloc(1, sizeof *l);
    if (!l) return gd_no_memory(NULL, "for a loader");
    gd_object_init(&l->object, &loader_class);
    gd_object_count(1);
    l->dataset = gd_retain(dataset);
    l->options = *o;
    if (o->device == gd_cpu()) l->options.device = NULL;
    gd_retain(o->sampler);
    l->order = (gd_order){.sampler = o->sampler,
                          .shuffle = o->shuffle,
                          .samples = dataset->count,
                          .batch = o->batch,
                          .seed = o->seed};
    return count_batches(l);
}

gd_loader *gd_loader_new_at(const char *site, gd_dataset *dataset,
                            const gd_loader_options *options) {
    GD_LIVE_AT(site, dataset);
    options = options ? options : GD_LOADER_OPTIONS_();
    GD_CALLED_FROM(site);
    gd_loader *l = NULL;
    const gd_status status = make_loader(dataset, options, &l);
    if (status == GD_OK) {
        gd_scope_adopt(&l->object);
        return l;
    }
    gd_error_prefix("gd_loader_new: ");
    if (l) gd_object_release(&l->object);
    gd_report(site, status);
    return NULL;
}

int64_t gd_loader_batches(const gd_loader *l) {
    GD_LIVE(l);
    return l ? l->batches : 0;
}
int gd_loader_targets(const gd_loader *l) {
    GD_LIVE(l);
    return l ? l->options.targets : 0;
}
int gd_loader_weights(const gd_loader *l) {
    GD_LIVE(l);
    return l ? l->options.weights : 0;
}
gd_dataset *gd_loader_dataset(const gd_loader *l) {
    GD_LIVE(l);
    return l ? l->dataset : NULL;
}
int64_t gd_loader_skipped(const gd_loader *l) {
    GD_LIVE(l);
    return l ? l->skipped : 0;
}

/* --- batches ---------------------------------------------------------------------------------- */

static gd_status begin_epoch(gd_loader *l) {
    if (l->begun) return GD_OK;
    GD_TRY(gd_order_begin(&l->order, (uint64_t)l->at.epoch));
    if (l->options.workers > 0) GD_TRY(gd_workers_begin(l));
    l->begun = true;
    return GD_OK;
}

void gd_loader_drop(const gd_loader *l, gd_prepared_batch *p) {
    gd_sample_release(&p->batch);
    if (p->uploaded) gd_device_drop_mark(l->options.device, p->uploaded);
    p->uploaded = NULL;
}

/* Discards prepared batches. */
static void discard_batches(gd_loader *l) {
    gd_workers_end(l);
    l->begun = false;
}

/* Sets l->given to batch l->at.batch, which workers or this thread prepare. */
static gd_status take_batch(gd_loader *l) {
    static const _Atomic bool never;
    GD_TRY(begin_epoch(l));
    if (l->workers && gd_workers_take(l->workers, &l->given)) return GD_OK;
    if (l->workers) { /* a fork or the end of the process has ended them */
        discard_batches(l);
        GD_TRY(begin_epoch(l));
        if (l->workers && gd_workers_take(l->workers, &l->given)) return GD_OK;
    }
    gd_loader_prepare(l, l->at.batch, &never, &l->given);
    return GD_OK;
}

/* Later kernels wait until the batch is on the device. */
static gd_status join_upload(gd_loader *l) {
    gd_queue_event *uploaded = l->given.uploaded;
    l->given.uploaded = NULL;
    return uploaded ? gd_device_join_uploads(l->options.device, uploaded) : GD_OK;
}

/* Sets l->given to the next batch that is not empty; to none at the end of an epoch. */
static gd_status next_batch(gd_loader *l) {
    gd_loader_drop(l, &l->given);
    while (l->at.batch < l->batches) {
        GD_TRY(take_batch(l));
        l->at.batch++;
        l->skipped += l->given.skipped;
        if (l->given.status != GD_OK) {
            gd_fail(l->given.status, "%s", l->given.text);
            gd_this_thread.latest_placed = l->given.placed;
            return l->given.status;
        }
        if (l->given.batch.count > 0) return join_upload(l);
    }
    l->at = (gd_loader_position){l->at.epoch + 1, 0};
    l->begun = false;
    gd_order_end(&l->order);
    return GD_OK;
}

bool gd_loader_next_at(const char *site, gd_loader *l, gd_tensors *batch) {
    GD_LIVE_AT(site, l);
    GD_CALLED_FROM(site);
    gd_tensors unwanted;
    if (!batch) batch = &unwanted;
    *batch = gd_list_of_errors(0);
    if (gd_failed()) return false; /* after a failure no state changes */
    gd_status status;
    if (!l) status = gd_fail(GD_E_ARGUMENT, "gd_loader_next: the loader is NULL");
    else if (gd_this_thread.tracer)
        status = gd_fail(GD_E_STATE,
                         "gd_loader_next: a function is being traced, and the batch would become a "
                         "constant of the trace; pass the batch as an argument");
    else status = next_batch(l);
    if (gd_report(site, status) != GD_OK) return false;
    *batch = (gd_tensors){l->given.batch.at, l->given.batch.count};
    return batch->count > 0;
}

bool gd_loader_row_name(gd_loader *l, int64_t row, char *text, size_t size) {
    const int64_t at = (l->at.batch - 1) * l->options.batch + row;
    int64_t index;
    /* broken samples that were skipped have no rows */
    if (!l->begun || l->given.batch.count == 0 || l->given.skipped > 0 || row < 0 ||
        row >= l->options.batch || at < 0 || at >= l->positions ||
        gd_order_at(&l->order, at, 1, &index) != GD_OK)
        return false;
    gd_dataset_sample_name(l->dataset, index, text, size);
    return true;
}

gd_device *gd_loader_set_device(gd_loader *l, gd_device *device) {
    gd_device *before = l->options.device;
    if (device == gd_cpu()) device = NULL;
    if (before != device) discard_batches(l);
    l->options.device = device;
    return before;
}

void gd_loader_stop(gd_loader *l) {
    GD_LIVE(l);
    if (l) discard_batches(l);
}

/* --- position --------------------------------------------------------------------------------- */

gd_loader_position gd_loader_tell(const gd_loader *l) {
    GD_LIVE(l);
    return l ? l->at : (gd_loader_position){0, 0};
}

static gd_status check_position(const gd_loader *l, gd_loader_position to) {
    if (to.epoch < 0)
        return gd_fail(GD_E_INDEX, "epoch is %lld; epochs count from 0", (long long)to.epoch);
    if (to.batch >= 0 && to.batch <= l->batches) return GD_OK;
    return gd_fail(GD_E_INDEX, "batch is %lld; an epoch has %lld batches, counted from 0",
                   (long long)to.batch, (long long)l->batches);
}

gd_status gd_loader_seek_at(const char *site, gd_loader *l, gd_loader_position to) {
    GD_LIVE_AT(site, l);
    GD_CALLED_FROM(site);
    gd_status status = l ? check_position(l, to) : gd_fail(GD_E_ARGUMENT, "the loader is NULL");
    if (status != GD_OK) gd_error_prefix("gd_loader_seek: ");
    else if (to.epoch != l->at.epoch || to.batch != l->at.batch) {
        discard_batches(l);
        l->at = to;
    }
    return gd_report(site, status);
}

/* --- state ------------------------------------------------------------------------------------ */

/* The saved state: the position, and options that must be equal in a loader that resumes. */
typedef struct loader_state {
    gd_loader *loader;
    int64_t epoch, batch, skipped;
    uint64_t seed;
    int64_t samples, batch_size, drop_last;
    char *order;
} loader_state;

static const gd_state_field loader_fields[] = {
    {"epoch", GD_FIELD_INTEGER, offsetof(loader_state, epoch)},
    {"batch", GD_FIELD_INTEGER, offsetof(loader_state, batch)},
    {"skipped", GD_FIELD_INTEGER, offsetof(loader_state, skipped)},
    {"seed", GD_FIELD_UNSIGNED, offsetof(loader_state, seed)},
    {"samples", GD_FIELD_INTEGER, offsetof(loader_state, samples)},
    {"batch_size", GD_FIELD_INTEGER, offsetof(loader_state, batch_size)},
    {"drop_last", GD_FIELD_INTEGER, offsetof(loader_state, drop_last)},
    {"order", GD_FIELD_TEXT, offsetof(loader_state, order)},
};
enum { LOADER_FIELDS = sizeof loader_fields / sizeof *loader_fields };

/* The state of a loader, without its order. */
static loader_state state_of(gd_loader *l) {
    return (loader_state){.loader = l,
                          .epoch = l->at.epoch,
                          .batch = l->at.batch,
                          .skipped = l->skipped,
                          .seed = l->order.seed,
                          .samples = l->order.samples,
                          .batch_size = l->options.batch,
                          .drop_last = l->options.drop_last};
}

static gd_status give_state(gd_object *object, gd_state *out) {
    gd_loader *l = (gd_loader *)object;
    loader_state s = state_of(l);
    char order[120];
    gd_order_describe(&l->order, order, sizeof order);
    s.order = order;
    return gd_state_put_fields(out, &s, loader_fields, LOADER_FIELDS);
}

static gd_status check_integer(gd_loading *in, const char *name, int64_t own, const char *what) {
    int64_t value;
    if (!gd_loading_peek_integer(in, name, &value) || value == own) return GD_OK;
    return gd_fail(GD_E_STATE, "the loader has %s = %lld, and the one that was saved had %lld",
                   what, (long long)own, (long long)value);
}

/* A position means the same samples only in a loader with the same order and batches. */
static gd_status check_same(const gd_loader *l, gd_loading *in) {
    char own[120];
    GD_TRY(check_integer(in, "samples", l->order.samples, "a dataset with samples"));
    GD_TRY(check_integer(in, "batch_size", l->options.batch, ".batch"));
    GD_TRY(check_integer(in, "drop_last", l->options.drop_last, ".drop_last"));
    const char *order = gd_loading_peek_text(in, "order");
    gd_order_describe(&l->order, own, sizeof own);
    if (order && strcmp(order, own) != 0)
        return gd_fail(GD_E_STATE,
                       "the order of the loader is \"%s\", and of the one that was saved "
                       "\"%s\": .shuffle or .sampler differ",
                       own, order);
    gd_loader_position to = l->at;
    gd_loading_peek_integer(in, "epoch", &to.epoch);
    gd_loading_peek_integer(in, "batch", &to.batch);
    return check_position(l, to);
}

static void finish_taking_state(void *user, bool loaded) {
    loader_state *s = user;
    gd_loader *l = s->loader;
    if (loaded) {
        discard_batches(l);
        l->at = (gd_loader_position){s->epoch, s->batch};
        l->skipped = s->skipped;
        l->order.seed = s->seed;
    }
    gd_free(s->order);
    gd_free(s);
}

static gd_status take_state(gd_object *object, gd_loading *in) {
    gd_loader *l = (gd_loader *)object;
    GD_TRY(check_same(l, in));
    loader_state *s = gd_calloc(1, sizeof *s);
    if (!s) return gd_no_memory(NULL, "to load a loader");
    *s = state_of(l);
    GD_TRY(gd_loading_when_done(in, finish_taking_state, s));
    return gd_loading_fields(in, s, loader_fields, LOADER_FIELDS);
}

static const gd_state_rules loader_state_rules = {give_state, take_state};
