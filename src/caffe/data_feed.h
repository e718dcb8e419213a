/* data_feed.h - a data layer as a source of batches; the parts of data.h. */
#ifndef GRADUS_CAFFE_DATA_FEED_H
#define GRADUS_CAFFE_DATA_FEED_H

#include "caffe/data.h"
#include "caffe/transform.h"
#include "data/samples.h"

typedef struct gd_caffe_feed gd_caffe_feed;

/* Which batch of the stream it is, and what its random numbers depend on. */
typedef struct gd_caffe_draw {
    int64_t batch; /* from 0, over all epochs */
    uint64_t seed; /* of the stream, for what lasts longer than a batch (orders) */
    uint64_t key;  /* of the layer in this batch: sample i has gd_random_of(key, i) */
} gd_caffe_draw;

/* A type of layer. */
typedef struct gd_caffe_feed_rules {
    const char *type;
    int least_tops, most_tops;
    /* Reads the layer: sets feed->batch, the shapes of all tops, and feed->self, which close frees,
     * also after a failure. */
    gd_status (*open)(gd_caffe_feed *feed, const gd_pb *layer);
    /* Adds the tops of a batch to `sample`, in the current scope. Thread-safe. */
    gd_status (*read)(const gd_caffe_feed *feed, const gd_caffe_draw *draw, gd_sample *sample);
    void (*close)(gd_caffe_feed *feed); /* NULL: nothing to free */
    /* For layers whose arrays the program gives (gd_caffe_data_give): takes them, and says whether
     * they are still missing. */
    gd_status (*give)(gd_caffe_feed *feed, gd_tensors arrays);
    bool (*lacks)(const gd_caffe_feed *feed);
} gd_caffe_feed_rules;

struct gd_caffe_feed {
    const gd_caffe_feed_rules *rules;
    gd_caffe_phase phase;
    const char *of_file;                  /* only while it is opened */
    const gd_caffe_data_options *options; /* the same */
    char *name;
    int n_tops;
    char **top_names;
    gd_shape *shapes; /* of the tops */
    int64_t batch;
    void *self;
};

extern const gd_caffe_feed_rules gd_caffe_records_feed, gd_caffe_images_feed, gd_caffe_memory_feed,
    gd_caffe_input_feed, gd_caffe_filled_feed, gd_caffe_hdf5_feed, gd_caffe_windows_feed;

/* Random data in place of a layer of any type, as options->dummy describes them. */
extern const gd_caffe_feed_rules gd_caffe_dummy_feed;
/* Whether options->dummy names a top of the layer. */
bool gd_caffe_dummy_names(const gd_caffe_feed *feed);
/* Checks the text; `layers` are all data layers. Fails if none of them has a top that it names:
 * those that are missing may be in the other phase. */
gd_status gd_caffe_dummy_check(const char *dummy, const gd_pb *const *layers, int count);

/* Adds a tensor of f32 to a sample; *data is its memory, to be filled. */
gd_status gd_caffe_add_top(gd_sample *sample, const gd_shape *shape, float **data);

/* Reads the batch size, which must be positive; `path` is its field. */
gd_status gd_caffe_feed_batch(gd_caffe_feed *feed, const gd_pb *layer, const char *path);
/* Reads a BlobShape, whose sizes must be positive. */
gd_status gd_caffe_feed_shape(const gd_pb *message, gd_shape *shape);

/* --- pictures with labels --------------------------------------------------------------------- */

/* What Data and ImageData have in common: a list of pictures with labels, which the stream runs
 * through again and again. */
typedef struct gd_caffe_pictures {
    gd_caffe_transform transform;
    int64_t count;     /* of the list */
    int64_t rand_skip; /* the first batch begins with a random one of the first rand_skip */
    bool shuffle;      /* another order in each pass */
} gd_caffe_pictures;

/* The numbers in the list of the samples of a batch. */
void gd_caffe_pictures_at(const gd_caffe_pictures *pictures, const gd_caffe_feed *feed,
                          const gd_caffe_draw *draw, int64_t *indices);

/* Sets the shapes of the tops from the first picture. */
gd_status gd_caffe_pictures_shape(const gd_caffe_pictures *pictures, gd_caffe_feed *feed,
                                  const gd_caffe_picture *first);

/* A batch while it is filled, one picture after the other. The first picture decides on the
 * size. */
typedef struct gd_caffe_filling {
    const gd_caffe_pictures *pictures;
    const gd_caffe_feed *feed;
    uint64_t key; /* of the draw */
    gd_sample *sample;
    int channels, sizes[2];
    float *data, *labels; /* labels NULL: there is no top for them */
    int64_t filled;
} gd_caffe_filling;

gd_status gd_caffe_filling_add(gd_caffe_filling *filling, const gd_caffe_picture *picture);

#endif
