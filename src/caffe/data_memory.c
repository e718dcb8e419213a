/* data_memory.c - layers whose arrays the program gives: MemoryData and Input. */
#include <string.h>

#include "caffe/data_feed.h"
#include "core/alloc.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/tensor.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"

typedef struct memory {
    gd_tensor *arrays[GD_SAMPLE_MAX]; /* retained, f32, row-major, on the CPU; NULL: not given */
} memory;

static gd_status make_memory(gd_caffe_feed *feed) {
    feed->self = gd_calloc(1, sizeof(memory));
    return feed->self ? GD_OK : gd_no_memory(NULL, "for a data layer");
}

static bool lacks_arrays(const gd_caffe_feed *feed) {
    return !((const memory *)feed->self)->arrays[0];
}

/* Top k takes the rows of a batch from its array, which has a whole number of batches. */
static gd_status read_memory(const gd_caffe_feed *feed, const gd_caffe_draw *draw,
                             gd_sample *sample) {
    const memory *m = feed->self;
    if (lacks_arrays(feed))
        return gd_fail(GD_E_STATE,
                       "its data are not given: a program gives them (.arrays); on the command "
                       "line, --dummy \"%s=...\" replaces them by random numbers",
                       feed->top_names[0]);
    for (int k = 0; k < feed->n_tops; k++) {
        const gd_tensor *a = m->arrays[k];
        const gd_shape *shape = &feed->shapes[k];
        const int64_t values = gd_numel(shape->rank, shape->at);
        const int64_t batches = a->dims[0] / (shape->rank ? shape->at[0] : 1);
        float *to;
        GD_TRY(gd_caffe_add_top(sample, shape, &to));
        memcpy(to, (const float *)a->storage->data + a->offset + draw->batch % batches * values,
               (size_t)values * sizeof *to);
    }
    return GD_OK;
}

/* Checks array k and converts it; *given is in the current scope. */
static gd_status check_array(const gd_caffe_feed *feed, int k, gd_tensor **given) {
    char text[160], shape_text[160];
    gd_tensor *t = *given;
    const gd_shape *shape = &feed->shapes[k];
    if (!t || t->kind == GD_FAILED)
        return t ? gd_failure()
                 : gd_fail(GD_E_ARGUMENT, "the array for '%s' is NULL", feed->top_names[k]);
    if (t->kind != GD_VALUE)
        return gd_fail(GD_E_ARGUMENT, "the array for '%s' is a symbol of a graph",
                       feed->top_names[k]);
    gd_shape_text(shape->rank, shape->at, shape_text, sizeof shape_text);
    if (t->rank != shape->rank || t->rank == 0 || t->dims[0] < 1 || t->dims[0] % shape->at[0] ||
        memcmp(t->dims + 1, shape->at + 1, sizeof *t->dims * (size_t)(t->rank - 1)) != 0)
        return gd_fail(GD_E_SHAPE,
                       "the array for '%s' is %s; a batch is %s, and the first size of the array "
                       "is a multiple of that of the batch",
                       feed->top_names[k], gd_describe(t, text, sizeof text), shape_text);
    GD_NO_GRAD;
    t = gd_contiguous(gd_cast(gd_to_device(t, gd_cpu()), GD_F32));
    *given = t;
    return t->kind == GD_FAILED ? gd_failure() : GD_OK;
}

static gd_status give_arrays(gd_caffe_feed *feed, gd_tensors arrays) {
    memory *m = feed->self;
    gd_tensor *taken[GD_SAMPLE_MAX];
    if (arrays.count != feed->n_tops)
        return gd_fail(GD_E_ARGUMENT, "it has %d tops, and %lld arrays are given", feed->n_tops,
                       (long long)arrays.count);
    for (int k = 0; k < feed->n_tops; k++) {
        taken[k] = arrays.at[k];
        GD_TRY(check_array(feed, k, &taken[k]));
        const int64_t n = taken[k]->dims[0] / feed->shapes[k].at[0],
                      of_first = taken[0]->dims[0] / feed->shapes[0].at[0];
        if (n != of_first)
            return gd_fail(GD_E_SHAPE, "'%s' has %lld batches, and '%s' %lld", feed->top_names[0],
                           (long long)of_first, feed->top_names[k], (long long)n);
    }
    for (int k = 0; k < feed->n_tops; k++) {
        gd_retain(taken[k]);
        gd_release(m->arrays[k]);
        m->arrays[k] = taken[k];
    }
    return GD_OK;
}

static void close_memory(gd_caffe_feed *feed) {
    memory *m = feed->self;
    if (!m) return;
    for (int k = 0; k < feed->n_tops; k++) gd_release(m->arrays[k]);
    gd_free(m);
}

/* --- MemoryData ------------------------------------------------------------------------------- */

static gd_status open_memory(gd_caffe_feed *feed, const gd_pb *layer) {
    static const char *const fields[] = {"channels", "height", "width"};
    const gd_pb *o = gd_pb_message_of(layer, "memory_data_param");
    GD_TRY(make_memory(feed));
    GD_TRY(gd_caffe_feed_batch(feed, layer, "memory_data_param.batch_size"));
    feed->shapes[0] = gd_dims(feed->batch, 0, 0, 0);
    feed->shapes[1] = gd_dims(feed->batch);
    for (int i = 0; i < 3; i++) {
        feed->shapes[0].at[i + 1] = gd_pb_int_of(o, fields[i]);
        if (feed->shapes[0].at[i + 1] < 1)
            return gd_fail(GD_E_FORMAT, "memory_data_param has no %s", fields[i]);
    }
    return GD_OK;
}

const gd_caffe_feed_rules gd_caffe_memory_feed = {.type = "MemoryData",
                                                  .least_tops = 2,
                                                  .most_tops = 2,
                                                  .open = open_memory,
                                                  .read = read_memory,
                                                  .close = close_memory,
                                                  .give = give_arrays,
                                                  .lacks = lacks_arrays};

/* --- Input ------------------------------------------------------------------------------------ */

static gd_status open_input(gd_caffe_feed *feed, const gd_pb *layer) {
    const gd_pb_list *shapes = gd_pb_list_of(layer, "input_param.shape");
    const size_t count = shapes ? shapes->count : 0;
    GD_TRY(make_memory(feed));
    if (count != 1 && count != (size_t)feed->n_tops)
        return gd_fail(GD_E_FORMAT,
                       "input_param has %zu shapes; give one, or one for each of the "
                       "%d tops",
                       count, feed->n_tops);
    for (int k = 0; k < feed->n_tops; k++)
        GD_TRY(gd_caffe_feed_shape(shapes->messages[count > 1 ? k : 0], &feed->shapes[k]));
    feed->batch = feed->shapes[0].rank ? feed->shapes[0].at[0] : 1;
    return GD_OK;
}

const gd_caffe_feed_rules gd_caffe_input_feed = {.type = "Input",
                                                 .least_tops = 1,
                                                 .most_tops = GD_SAMPLE_MAX,
                                                 .open = open_input,
                                                 .read = read_memory,
                                                 .close = close_memory,
                                                 .give = give_arrays,
                                                 .lacks = lacks_arrays};
