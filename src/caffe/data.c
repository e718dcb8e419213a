/* data.c - data layers as one loader; see data.h. The loader's dataset has a sample for each batch
 * of an epoch, which is the batch itself: the tops of all layers. */
#include "caffe/data.h"

#include <stdio.h>
#include <string.h>

#include "caffe/data_feed.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/object.h"
#include "core/tensor.h"
#include "core/thread.h"

#define ENDLESS ((int64_t)1 << 40) /* batches */

struct gd_caffe_data {
    gd_caffe_feed *feeds;
    int n_feeds, n_tops;
    int64_t batches; /* in an epoch */
    gd_loader *loader;
};

/* --- types ------------------------------------------------------------------------------------ */

static const gd_caffe_feed_rules *const types[] = {
    &gd_caffe_records_feed, &gd_caffe_images_feed, &gd_caffe_memory_feed, &gd_caffe_input_feed,
    &gd_caffe_filled_feed,  &gd_caffe_hdf5_feed,   &gd_caffe_windows_feed};
/* Types that are known and not read. */
static const char *const refused[] = {"AnnotatedData", "VideoData"};

static const gd_caffe_feed_rules *find_type(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i]->type, name) == 0) return types[i];
    return NULL;
}

static bool is_refused(const char *name) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(refused[i], name) == 0) return true;
    return false;
}

bool gd_caffe_is_data(const char *type) { return find_type(type) || is_refused(type); }

/* --- helpers of types ------------------------------------------------------------------------- */

gd_status gd_caffe_add_top(gd_sample *sample, const gd_shape *shape, float **data) {
    size_t bytes;
    void *memory = NULL;
    GD_TRY(gd_dims_bytes(shape->rank, shape->at, GD_F32, &bytes));
    GD_TRY(gd_sample_add(sample, GD_F32, shape->rank, shape->at, &memory));
    *data = memory;
    return GD_OK;
}

gd_status gd_caffe_feed_batch(gd_caffe_feed *feed, const gd_pb *layer, const char *path) {
    feed->batch = gd_pb_int_of(layer, path);
    if (feed->batch >= 1 && feed->batch <= INT32_MAX) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s is %lld; it must be at least 1", path,
                   (long long)feed->batch);
}

gd_status gd_caffe_feed_shape(const gd_pb *message, gd_shape *shape) {
    const gd_pb_list *dims = gd_pb_list_of(message, "dim");
    *shape = gd_dims();
    for (size_t i = 0; dims && i < dims->count; i++) {
        if (shape->rank == GD_MAX_RANK)
            return gd_fail(GD_E_SHAPE, "a shape has %zu sizes; at most %d are supported",
                           dims->count, GD_MAX_RANK);
        if (dims->ints[i] < 1)
            return gd_fail(GD_E_SHAPE, "size %zu of a shape is %lld", i, (long long)dims->ints[i]);
        shape->at[shape->rank++] = dims->ints[i];
    }
    return GD_OK;
}

/* --- layers ----------------------------------------------------------------------------------- */

static char *copy_text(const char *text) {
    char *copy = gd_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

static void close_feed(gd_caffe_feed *f) {
    if (f->rules && f->rules->close) f->rules->close(f);
    for (int k = 0; f->top_names && k < f->n_tops; k++) gd_free(f->top_names[k]);
    gd_free(f->top_names);
    gd_free(f->shapes);
    gd_free(f->name);
}

/* Copies the names of the layer and its tops. */
static gd_status name_feed(gd_caffe_feed *f, const gd_pb *layer) {
    const size_t count = gd_pb_count(layer, "top");
    if (count > GD_SAMPLE_MAX)
        return gd_fail(GD_E_UNSUPPORTED, "it has %zu tops; at most %d are supported", count,
                       GD_SAMPLE_MAX);
    f->name = copy_text(gd_pb_string(layer, "name"));
    f->top_names = gd_calloc(count + 1, sizeof *f->top_names);
    f->shapes = gd_calloc(count + 1, sizeof *f->shapes);
    if (!f->name || !f->top_names || !f->shapes) return gd_no_memory(NULL, "for a data layer");
    for (size_t k = 0; k < count; k++, f->n_tops++)
        if (!(f->top_names[k] = copy_text(gd_pb_string_at(layer, "top", k))))
            return gd_no_memory(NULL, "for a data layer");
    return GD_OK;
}

static gd_status check_tops(const gd_caffe_feed *f) {
    const int least = f->rules->least_tops, most = f->rules->most_tops;
    if (f->n_tops >= least && f->n_tops <= most) return GD_OK;
    if (least == most)
        return gd_fail(GD_E_FORMAT, "it has %d tops; layers of this type have %d", f->n_tops,
                       least);
    return gd_fail(GD_E_FORMAT, "it has %d tops; layers of this type have %d to %d", f->n_tops,
                   least, most);
}

static gd_status start_feed(gd_caffe_feed *f, const gd_pb *layer) {
    const char *type = gd_pb_string(layer, "type");
    GD_TRY(name_feed(f, layer));
    f->rules = gd_caffe_dummy_names(f) ? &gd_caffe_dummy_feed : find_type(type);
    if (!f->rules)
        return gd_fail(GD_E_UNSUPPORTED,
                       "data of this type are not read; --dummy \"%s=...\" "
                       "replaces them by random numbers",
                       f->n_tops ? f->top_names[0] : "TOP");
    GD_TRY(check_tops(f));
    return f->rules->open(f, layer);
}

/* The length of the place "FILE:LINE:COLUMN: " at the beginning of a text, where FILE is the first
 * `file` bytes of `place`; 0: the text has none. */
static size_t place_length(const char *text, const char *place, size_t file) {
    if (strncmp(text, place, file) != 0 || text[file] != ':') return 0;
    const size_t length = file + strspn(text + file, ":0123456789");
    return text[length] == ' ' ? length + 1 : 0;
}

/* Adds the place and the name of the layer to a message, which may have a place of its own. */
static gd_status fail_layer(const gd_pb *layer, gd_status status) {
    char text[GD_MESSAGE_MAX], place[GD_MESSAGE_MAX];
    snprintf(text, sizeof text, "%s", gd_latest_failure());
    gd_pb_fail(layer, "%s", "");
    snprintf(place, sizeof place, "%s", gd_latest_failure());
    size_t file = strlen(place), own;
    while (file > 0 && strchr(": 0123456789", place[file - 1])) file--;
    own = place_length(text, place, file);
    if (own) memcpy(place, text, own), place[own] = 0;
    return gd_fail(status, "%slayer '%s' (%s): %s", place, gd_pb_string(layer, "name"),
                   gd_pb_string(layer, "type"), text + own);
}

static gd_status open_feed(gd_caffe_feed *f, const gd_pb *layer) {
    const gd_status status = start_feed(f, layer);
    return status == GD_OK ? GD_OK : fail_layer(layer, status);
}

/* --- the dataset: sample i is batch i of an epoch --------------------------------------------- */

static gd_status read_feed(const gd_caffe_feed *f, const gd_caffe_draw *draw, gd_sample *sample) {
    const gd_status status = f->rules->read(f, draw, sample);
    if (status != GD_OK) gd_error_prefix("layer '%s' (%s): ", f->name, f->rules->type);
    return status;
}

static gd_status data_get(const gd_dataset *d, int64_t index, gd_random *random,
                          gd_sample *sample) {
    const gd_caffe_data *data = d->self;
    int64_t epoch = gd_loader_preparing().epoch;
    if (epoch < 0) epoch = 0; /* no loader reads it */
    gd_caffe_draw draw = {.batch = epoch * data->batches + index,
                          .seed = gd_sample_seed(random, (uint64_t)epoch)};
    sample->count = 0;
    for (int i = 0; i < data->n_feeds; i++) {
        draw.key = (uint64_t)gd_random_word(random) << 32;
        draw.key |= gd_random_word(random);
        GD_TRY(read_feed(&data->feeds[i], &draw, sample));
    }
    return GD_OK;
}

static void data_name(const gd_dataset *d, int64_t index, char *text, size_t size) {
    (void)d;
    snprintf(text, size, "batch %lld", (long long)index);
}

static void data_close(gd_dataset *d) {
    gd_caffe_data *data = d->self;
    if (!data) return;
    for (int i = 0; i < data->n_feeds; i++) close_feed(&data->feeds[i]);
    gd_free(data->feeds);
    gd_free(data);
}

static const gd_dataset_rules data_rules = {
    .get = data_get, .name = data_name, .close = data_close};

/* A sample is a batch already. */
static gd_tensors take_single(const gd_tensors *samples, int64_t count, void *user) {
    (void)count, (void)user;
    return samples[0];
}

/* --- opening ---------------------------------------------------------------------------------- */

static gd_status give_feed(gd_caffe_feed *f, gd_tensors arrays) {
    gd_status status;
    if (f->rules->give) {
        GD_ON_CPU;
        gd_scope *scope = gd_scope_open();
        status = f->rules->give(f, arrays);
        gd_scope_close(&scope);
    } else {
        status = gd_fail(GD_E_ARGUMENT, "it takes no arrays from a program");
    }
    if (status != GD_OK) gd_error_prefix("layer '%s' (%s): ", f->name, f->rules->type);
    return status;
}

/* Gives the layer what .arrays has for it. */
static gd_status give_options(gd_caffe_feed *f, const gd_caffe_arrays *given) {
    for (; given && given->layer; given++)
        if (strcmp(f->name, given->layer) == 0) GD_TRY(give_feed(f, given->arrays));
    return GD_OK;
}

static gd_status open_feeds(gd_caffe_data *data, const gd_pb *const *layers, int count,
                            gd_caffe_phase phase, const char *of_file,
                            const gd_caffe_data_options *options) {
    GD_TRY(gd_caffe_dummy_check(options->dummy, layers, count));
    data->feeds = gd_calloc((size_t)count, sizeof *data->feeds);
    if (!data->feeds) return gd_no_memory(NULL, "for data layers");
    for (int i = 0; i < count; i++) {
        gd_caffe_feed *f = &data->feeds[data->n_feeds++];
        *f = (gd_caffe_feed){.phase = phase, .of_file = of_file, .options = options};
        GD_TRY(open_feed(f, layers[i]));
        GD_TRY(give_options(f, options->arrays));
        f->of_file = NULL;
        f->options = NULL;
        data->n_tops += f->n_tops;
    }
    if (data->n_tops <= GD_SAMPLE_MAX) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED, "the data layers have %d tops; at most %d are supported",
                   data->n_tops, GD_SAMPLE_MAX);
}

static gd_status make_loader(gd_caffe_data *data, gd_dataset *dataset,
                             const gd_caffe_data_options *o) {
    gd_loader_options options = *GD_LOADER_OPTIONS_();
    options.batch = 1;
    options.targets = 0;
    options.collate = take_single;
    options.seed = o->seed;
    options.workers = o->workers;
    if (o->prefetch) options.prefetch = o->prefetch;
    options.device = o->device;
    data->loader = gd_loader_new_at(NULL, dataset, &options);
    return data->loader ? GD_OK : gd_failure();
}

gd_status gd_caffe_data_open(gd_caffe_data **out, const gd_pb *const *layers, int count,
                             gd_caffe_phase phase, const char *of_file,
                             const gd_caffe_data_options *options) {
    static const gd_caffe_data_options none;
    if (!options) options = &none;
    *out = NULL;
    if (count == 0) return GD_OK;
    GD_ON_CPU; /* where batches are made, whatever the default device */
    gd_dataset *dataset = gd_dataset_bare("data", &data_rules, NULL, 0);
    if (!dataset) return GD_E_MEMORY;
    gd_caffe_data *data = dataset->self = gd_calloc(1, sizeof *data);
    gd_status status = data ? GD_OK : gd_no_memory(NULL, "for data layers");
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    if (status == GD_OK) status = open_feeds(data, layers, count, phase, of_file, options);
    gd_scope_close(&scope);
    if (status == GD_OK) {
        data->batches = dataset->count = options->batches ? options->batches : ENDLESS;
        status = make_loader(data, dataset, options);
    }
    status = gd_attempt_end(&attempt, status);
    gd_object_release(&dataset->object); /* the loader holds it */
    if (status == GD_OK) *out = data;
    return status;
}

/* --- access ----------------------------------------------------------------------------------- */

int gd_caffe_data_tops(const gd_caffe_data *data) { return data->n_tops; }

/* The layer that has a top of the stream; *top becomes its number there. */
static const gd_caffe_feed *find_top(const gd_caffe_data *data, int *top) {
    const gd_caffe_feed *f = data->feeds;
    for (; *top >= f->n_tops; f++) *top -= f->n_tops;
    return f;
}

const char *gd_caffe_data_top(const gd_caffe_data *data, int top) {
    const gd_caffe_feed *f = find_top(data, &top);
    return f->top_names[top];
}

gd_shape gd_caffe_data_shape(const gd_caffe_data *data, int top) {
    const gd_caffe_feed *f = find_top(data, &top);
    return f->shapes[top];
}

gd_loader *gd_caffe_data_loader(const gd_caffe_data *data) { return data->loader; }

gd_status gd_caffe_data_give(gd_caffe_data *data, const char *layer, gd_tensors arrays) {
    for (int i = 0; i < data->n_feeds; i++) {
        if (strcmp(data->feeds[i].name, layer) != 0) continue;
        gd_loader_stop(data->loader); /* its workers may read the arrays */
        return give_feed(&data->feeds[i], arrays);
    }
    return gd_fail(GD_E_ARGUMENT, "there is no data layer '%s'", layer);
}

bool gd_caffe_data_lacks(const gd_caffe_data *data, const char **layer) {
    for (int i = 0; i < data->n_feeds; i++) {
        const gd_caffe_feed *f = &data->feeds[i];
        if (!f->rules->lacks || !f->rules->lacks(f)) continue;
        *layer = f->name;
        return true;
    }
    return false;
}
