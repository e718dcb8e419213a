/* data_dummy.c - data that are made up: the layer DummyData, and random data in place of any data
 * layer. */
#include <stdlib.h>
#include <string.h>

#include "caffe/data_feed.h"
#include "caffe/filler.h"
#include "caffe/schema.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/random.h"
#include "core/tensor.h"
#include "gradus/ops.h"

/* --- DummyData -------------------------------------------------------------------------------- */

typedef struct filled {
    gd_pb_doc **fillers; /* of each top; NULL: zeros */
} filled;

/* Copies a filler, because the net's text may be freed before. */
static gd_status copy_filler(const gd_pb *filler, gd_pb_doc **made) {
    gd_pb_doc *doc = *made = gd_pb_new(&gd_caffe_filler_schema);
    if (!doc) return GD_E_MEMORY;
    for (int i = 0; i < filler->count; i++) {
        const gd_pb_list *list = &filler->lists[i];
        const char *name = list->field->name;
        if (list->field->type == GD_PB_FLOAT) gd_pb_put_float(gd_pb_root(doc), name, *list->floats);
        else if (list->field->type == GD_PB_STRING)
            gd_pb_put_string(gd_pb_root(doc), name, list->bytes->data);
        else gd_pb_put_int(gd_pb_root(doc), name, *list->ints);
    }
    return GD_OK;
}

/* Keeps the filler of a top, and tries it: a failure now has the place in the file. */
static gd_status take_filler(const gd_caffe_feed *feed, int top, const gd_pb *o) {
    const filled *f = feed->self;
    const gd_pb_list *fillers = gd_pb_list_of(o, "data_filler");
    gd_tensor *tried;
    if (!fillers) return GD_OK;
    const gd_pb *filler = fillers->messages[fillers->count > 1 ? top : 0];
    GD_TRY(gd_caffe_filled(filler, feed->shapes[top], &tried));
    return copy_filler(filler, &f->fillers[top]);
}

/* The shape of a top by the old fields num, channels, height, width. */
static gd_status read_old_shape(gd_caffe_feed *feed, const gd_pb *o, int top) {
    static const char *const fields[] = {"num", "channels", "height", "width"};
    feed->shapes[top] = gd_dims(1, 1, 1, 1);
    for (int i = 0; i < 4; i++) {
        const gd_pb_list *list = gd_pb_list_of(o, fields[i]);
        const size_t count = list ? list->count : 0;
        if (count != 1 && count != (size_t)feed->n_tops)
            return gd_fail(GD_E_FORMAT, "dummy_data_param has %zu values %s for %d tops", count,
                           fields[i], feed->n_tops);
        feed->shapes[top].at[i] = list->ints[count > 1 ? top : 0];
        if (feed->shapes[top].at[i] < 1)
            return gd_fail(GD_E_SHAPE, "dummy_data_param has a size of 0");
    }
    return GD_OK;
}

static gd_status check_counts(const gd_caffe_feed *feed, const gd_pb *o, const char *field) {
    const size_t count = gd_pb_count(o, field);
    if (count <= 1 || count == (size_t)feed->n_tops) return GD_OK;
    return gd_fail(GD_E_FORMAT, "dummy_data_param has %zu values %s for %d tops", count, field,
                   feed->n_tops);
}

static gd_status open_filled(gd_caffe_feed *feed, const gd_pb *layer) {
    const gd_pb *o = gd_pb_message_of(layer, "dummy_data_param");
    const gd_pb_list *shapes = gd_pb_list_of(o, "shape");
    filled *f = feed->self = gd_calloc(1, sizeof *f);
    if (!f || !(f->fillers = gd_calloc((size_t)feed->n_tops, sizeof *f->fillers)))
        return gd_no_memory(NULL, "for a data layer");
    GD_TRY(check_counts(feed, o, "data_filler"));
    GD_TRY(check_counts(feed, o, "shape"));
    gd_own_rng rng;
    gd_own_rng_begin(&rng, 1); /* what the fillers are tried with */
    gd_status status = GD_OK;
    for (int k = 0; k < feed->n_tops && status == GD_OK; k++) {
        status = shapes ? gd_caffe_feed_shape(shapes->messages[shapes->count > 1 ? k : 0],
                                              &feed->shapes[k])
                        : read_old_shape(feed, o, k);
        if (status == GD_OK) status = take_filler(feed, k, o);
    }
    gd_own_rng_end(&rng);
    feed->batch = feed->shapes[0].rank ? feed->shapes[0].at[0] : 1;
    return status;
}

static gd_status read_filled(const gd_caffe_feed *feed, const gd_caffe_draw *draw,
                             gd_sample *sample) {
    const filled *f = feed->self;
    gd_own_rng rng;
    gd_own_rng_begin(&rng, draw->key | 1); /* 0 would be the generator of the process */
    gd_status status = GD_OK;
    for (int k = 0; k < feed->n_tops && status == GD_OK; k++) {
        const gd_pb *filler = f->fillers[k] ? gd_pb_root(f->fillers[k]) : NULL;
        status = gd_caffe_filled(filler, feed->shapes[k], &sample->at[sample->count]);
        if (status == GD_OK) sample->count++;
    }
    gd_own_rng_end(&rng);
    return status;
}

static void close_filled(gd_caffe_feed *feed) {
    filled *f = feed->self;
    for (int k = 0; f && f->fillers && k < feed->n_tops; k++) gd_pb_free(f->fillers[k]);
    if (f) gd_free(f->fillers);
    gd_free(f);
}

const gd_caffe_feed_rules gd_caffe_filled_feed = {.type = "DummyData",
                                                  .least_tops = 1,
                                                  .most_tops = GD_SAMPLE_MAX,
                                                  .open = open_filled,
                                                  .read = read_filled,
                                                  .close = close_filled};

/* --- random data in place of a layer ---------------------------------------------------------- */

/* An entry of the text: "data=3,227,227". */
typedef struct entry {
    const char *name;
    size_t length;
    gd_shape numbers;
} entry;

/* Reads the next entry. False: there is none, or *status says what is wrong with it. */
static bool next_entry(const char **text, entry *e, gd_status *status) {
    const char *at = *text + strspn(*text, " \t\n;"), *end = at + strcspn(at, " \t\n;"),
               *sign = end;
    if (*status != GD_OK || at == end) return false;
    while (sign > at && *sign != '=') sign--;
    *e = (entry){.name = at, .length = (size_t)(sign - at), .numbers = gd_dims()};
    bool right = sign > at && sign + 1 < end;
    for (const char *p = sign + 1; right && p <= end;) {
        char *after;
        const long long n = strtoll(p, &after, 10);
        right = after > p && (after == end || *after == ',') && n > 0 &&
                e->numbers.rank < GD_MAX_RANK - 1;
        if (right) e->numbers.at[e->numbers.rank++] = n;
        p = after + 1;
    }
    *text = end;
    if (!right)
        *status = gd_fail(GD_E_ARGUMENT,
                          "'%.*s' is no random data: the name of a top and its sizes without the "
                          "batch are expected, as in 'data=3,227,227', or a number of classes, as "
                          "in 'label=1000'",
                          (int)(end - at), at);
    return right;
}

static bool is_entry_of(const entry *e, const char *top) {
    return strlen(top) == e->length && memcmp(top, e->name, e->length) == 0;
}

/* Finds the entry of a top. */
static bool find_entry(const char *text, const char *top, entry *e) {
    gd_status status = GD_OK;
    while (text && next_entry(&text, e, &status))
        if (is_entry_of(e, top)) return true;
    return false;
}

bool gd_caffe_dummy_names(const gd_caffe_feed *feed) {
    entry e;
    for (int k = 0; k < feed->n_tops; k++)
        if (find_entry(feed->options->dummy, feed->top_names[k], &e)) return true;
    return false;
}

static bool is_top(const entry *e, const gd_pb *const *layers, int count) {
    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < gd_pb_count(layers[i], "top"); k++)
            if (is_entry_of(e, gd_pb_string_at(layers[i], "top", k))) return true;
    return false;
}

gd_status gd_caffe_dummy_check(const char *text, const gd_pb *const *layers, int count) {
    const char *at = text;
    entry e;
    gd_status status = GD_OK;
    bool any = false, found = false;
    while (at && next_entry(&at, &e, &status)) any = true, found |= is_top(&e, layers, count);
    if (status != GD_OK || found || !any) return status;
    gd_fail(GD_E_ARGUMENT, "no data layer has a top that '%.100s' names; their tops are", text);
    const char *separator = " ";
    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < gd_pb_count(layers[i], "top"); k++, separator = ", ")
            gd_error_suffix("%s%s", separator, gd_pb_string_at(layers[i], "top", k));
    return GD_E_ARGUMENT;
}

/* The batch size that the layer would have. */
static int64_t usual_batch(const gd_pb *layer) {
    static const char *const fields[] = {
        "data_param.batch_size", "image_data_param.batch_size", "hdf5_data_param.batch_size",
        "memory_data_param.batch_size", "window_data_param.batch_size"};
    gd_shape shape;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (gd_pb_has(layer, fields[i])) return gd_pb_int_of(layer, fields[i]);
    const gd_pb *first = gd_pb_message_of(layer, "input_param.shape");
    if (!first) first = gd_pb_message_of(layer, "dummy_data_param.shape");
    if (first && gd_caffe_feed_shape(first, &shape) == GD_OK && shape.rank) return shape.at[0];
    return 1;
}

/* The numbers of classes of the tops; 0: its numbers are normally distributed. */
static gd_status open_dummy(gd_caffe_feed *feed, const gd_pb *layer) {
    int64_t *classes = feed->self = gd_calloc((size_t)feed->n_tops, sizeof *classes);
    if (!classes) return gd_no_memory(NULL, "for a data layer");
    feed->batch = usual_batch(layer);
    if (feed->batch < 1)
        return gd_fail(GD_E_ARGUMENT, "its batch size is %lld", (long long)feed->batch);
    for (int k = 0; k < feed->n_tops; k++) {
        entry e = {.numbers = {.rank = 0}};
        const bool named = find_entry(feed->options->dummy, feed->top_names[k], &e);
        feed->shapes[k] = gd_dims(feed->batch);
        if (!named && k == 0)
            return gd_fail(GD_E_ARGUMENT, "its first top '%s' needs sizes, too: '%s=3,227,227'",
                           feed->top_names[k], feed->top_names[k]);
        if (!named) classes[k] = 2;
        else if (k > 0 && e.numbers.rank == 1) classes[k] = e.numbers.at[0];
        else
            for (int i = 0; i < e.numbers.rank; i++)
                feed->shapes[k].at[feed->shapes[k].rank++] = e.numbers.at[i];
    }
    return GD_OK;
}

static gd_status draw_classes(const gd_caffe_feed *feed, uint64_t key, int top, gd_sample *sample) {
    const int64_t *classes = feed->self;
    gd_random random = gd_random_of(key, (uint64_t)top);
    float *to;
    GD_TRY(gd_caffe_add_top(sample, &feed->shapes[top], &to));
    for (int64_t i = 0; i < feed->batch; i++) to[i] = (float)gd_random_below(&random, classes[top]);
    return GD_OK;
}

static gd_status draw_normals(const gd_caffe_feed *feed, uint64_t key, int top, gd_sample *sample) {
    gd_own_rng rng;
    gd_own_rng_begin(&rng, (key + (uint64_t)top) | 1);
    gd_tensor *t = gd_randn(feed->shapes[top]);
    gd_own_rng_end(&rng);
    if (t->kind == GD_FAILED) return gd_failure();
    sample->at[sample->count++] = t;
    return GD_OK;
}

static gd_status read_dummy(const gd_caffe_feed *feed, const gd_caffe_draw *draw,
                            gd_sample *sample) {
    const int64_t *classes = feed->self;
    for (int k = 0; k < feed->n_tops; k++)
        GD_TRY((classes[k] ? draw_classes : draw_normals)(feed, draw->key, k, sample));
    return GD_OK;
}

static void close_dummy(gd_caffe_feed *feed) { gd_free(feed->self); }

const gd_caffe_feed_rules gd_caffe_dummy_feed = {.type = "random data",
                                                 .least_tops = 1,
                                                 .most_tops = GD_SAMPLE_MAX,
                                                 .open = open_dummy,
                                                 .read = read_dummy,
                                                 .close = close_dummy};
