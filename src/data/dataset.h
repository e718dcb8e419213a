/* dataset.h - the internals of datasets, and records of the kind "dataset".
 *
 *     dataset mnist(path:string, part:{train, test})
 *
 * Rules are functions of the record's file, named after it:
 *
 *   NAME_check(options)       checks the options; optional
 *   NAME_open(dataset)        reads dataset->options; sets dataset->self and dataset->count, and the
 *                             classes if there are any. After a failure NAME_close is called, too.
 *   NAME_get(dataset, index, random, sample)    fills `sample`, of at most GD_SAMPLE_MAX tensors, with
 *                             new tensors of the current scope. 0 <= index < count. Thread-safe.
 *   NAME_name(dataset, index, text, size)       the name of a sample in messages, "cats/3.jpg"; optional
 *   NAME_close(dataset)       frees dataset->self; optional
 *   NAME_gather(dataset, indices, count, batch)  stacks several samples to one batch; optional
 *   NAME_layout(dataset, text)  how its files become samples, as text from gd_malloc; optional
 *
 * Datasets that combine others (src/data/combine.c) use the same rules without a record.
 */
#ifndef GRADUS_DATA_DATASET_H
#define GRADUS_DATA_DATASET_H

#include "core/error.h"
#include "core/index_set.h"
#include "core/object.h"
#include "gradus/dataset.h"
#include "dispatch/factory.h"

enum { GD_SAMPLE_MAX = 16 };

typedef struct gd_sample {
    gd_tensor *at[GD_SAMPLE_MAX];
    int count;
} gd_sample;

typedef struct gd_dataset_rules {
    gd_status (*check)(const void *options);
    gd_status (*open)(gd_dataset *dataset);
    gd_status (*get)(const gd_dataset *dataset, int64_t index, gd_random *random,
                     gd_sample *sample);
    void (*name)(const gd_dataset *dataset, int64_t index, char *text, size_t size);
    void (*close)(gd_dataset *dataset);
    /* Optional, for speed: stacks samples `indices` (in range) to a batch, in new tensors of the
     * current scope. Only for datasets without broken samples. NULL: the loader stacks them. */
    gd_status (*gather)(const gd_dataset *dataset, const int64_t *indices, int64_t count,
                        gd_sample *batch);
    gd_status (*layout)(const gd_dataset *dataset, char **text); /* see gd_dataset_layout */
    gd_dataset_type defined;                                     /* of a user-defined record */
} gd_dataset_rules;

struct gd_dataset {
    gd_object object;
    const char *type; /* "mnist", for messages */
    const gd_dataset_rules *rules;
    void *options; /* of a record, owned; or NULL */
    void *self;
    int64_t count;
    gd_dataset **inner; /* the datasets that it combines, retained */
    int n_inner;
    char **classes; /* names of classes; NULL: unknown */
    int64_t n_classes;
    gd_index_set class_names; /* of `classes`: the first of each name */
};

/* Called by the typed constructors. */
gd_dataset *gd_dataset_make(const char *site, const gd_factory *factory, const void *options);

/* Creates a dataset without a record that combines others. The caller owns it. NULL: no memory.
 * Does not call `open`. */
gd_dataset *gd_dataset_bare(const char *type, const gd_dataset_rules *rules,
                            gd_dataset *const *inner, int n_inner);
/* Adds a dataset to the scope of the program; on failure frees it and records the failure. */
gd_dataset *gd_dataset_finish(const char *site, gd_dataset *dataset, gd_status status);

/* Sets the names of classes: copies of `names`, or for NULL "0", "1", ... */
gd_status gd_dataset_set_classes(gd_dataset *dataset, const char *const *names, int64_t count);

/* Whether an object of any kind is a dataset. */
bool gd_is_dataset(const void *object);

/* Fetches a sample. Does not record a failure; its message names the sample. */
gd_status gd_dataset_fetch(const gd_dataset *dataset, int64_t index, gd_random *random,
                           gd_sample *sample);
/* The random numbers of a sample in an epoch. */
gd_random gd_sample_random(uint64_t seed, uint64_t epoch, int64_t index);
/* The seed that such random numbers were made from. */
uint64_t gd_sample_seed(const gd_random *random, uint64_t epoch);

void gd_sample_release(gd_sample *sample); /* for tensors that no scope owns */
gd_status gd_sample_from_list(gd_sample *sample, gd_tensors list);
/* Fills a sample from the result of a function of the program. `frame`: __builtin_frame_address(0)
 * of its caller. */
gd_status gd_sample_take(gd_sample *sample, gd_tensors list, const void *frame);

#endif
