/* dataset.h - where samples come from.
 *
 * A dataset is two functions: how many samples there are, and sample number i. A sample is a list of
 * tensors on the CPU: inputs, then targets (an image and its class). datasets.h has those that read
 * files, written by the build from their records; this header has the others:
 *
 *     gd_dataset *digits = gd_dataset_mnist("mnist", GD_TRAIN);
 *     gd_dataset *mine = gd_dataset_tensors(x, y);              // sample i is x[i], y[i]
 *
 * A program's own needs the two functions:
 *
 *     static int64_t count(void *self) { return ((files *)self)->count; }
 *     static gd_tensors get(int64_t index, gd_random *random, void *self) {
 *         return gd_listed(read_image(self, index), gd_scalar_of(label(self, index), GD_I64));
 *     }
 *     gd_dataset *mine = gd_dataset_from(&files, .count = count, .get = get);
 *
 * A dataset can be made of others: transformed, mapped, filtered, joined, cut. Nothing is computed
 * until a sample is asked for:
 *
 *     gd_dataset *train = gd_dataset_transform(digits, gd_transform_crop(28, .padding = 2),
 *                                              gd_transform_normalize(0.13, 0.31));
 *
 * Randomness (augmentation) comes from `random`, whose numbers follow from the seed, the epoch and
 * the number of the sample alone: so a sample is the same whichever thread makes it, and whenever.
 *
 * Threads: the workers of a loader call a dataset from several threads at once. The ready ones are
 * made for that; the functions of a program must be, too.
 *
 * A dataset does not change once it is made. It belongs to the current scope, like a tensor, and
 * holds the datasets and transforms that it is made of. Constructors that fail give NULL and record
 * the failure, and every function takes NULL.
 */
#ifndef GRADUS_DATASET_H
#define GRADUS_DATASET_H

#pragma GCC system_header /* as in module.h: options among the arguments of a list */

#include "gradus/options.h"
#include "gradus/random.h"
#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- using one -------------------------------------------------------------------------------- */

/* How many samples it has; 0 for NULL. */
GD_API int64_t gd_dataset_count(const gd_dataset *dataset);

typedef struct gd_sample_options {
    uint64_t seed GD_DEFAULT_(0);  /* of its random numbers */
    uint64_t epoch GD_DEFAULT_(0); /* likewise */
} gd_sample_options;

/* Sample number `index`, in the current scope. A failure names the sample. */
#define gd_dataset_get(dataset, index, ...) \
    GD_WITH_OPTIONS_(gd_dataset_get_at(     \
        GD_HERE, dataset, index,            \
        GD_OPTIONS_(gd_sample_options, (.seed = 0, .epoch = 0) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_tensors gd_dataset_get_at(const char *site, gd_dataset *dataset, int64_t index,
                                    const gd_sample_options *options);

/* Names of classes, where the dataset knows them: "cat", or "7". The count is 0 where it does not. */
GD_API int64_t gd_dataset_class_count(const gd_dataset *dataset);
GD_API const char *gd_dataset_class_name(const gd_dataset *dataset, int64_t index);

/* What messages call a sample: "cats/3.jpg", or "sample 17". */
GD_API const char *gd_dataset_sample_name(gd_dataset *dataset, int64_t index, char *text,
                                          size_t size);

/* --- making one ------------------------------------------------------------------------------- */

typedef struct gd_dataset_functions {
    int64_t (*count)(void *self) GD_DEFAULT_(nullptr);
    /* Sample number `index`, from 0: return gd_listed(x, y). */
    gd_tensors (*get)(int64_t index, gd_random *random, void *self) GD_DEFAULT_(nullptr);
    void (*destroy)(void *self)
        GD_DEFAULT_(nullptr);              /* called when the dataset is freed; or NULL */
    const char *name GD_DEFAULT_(nullptr); /* for messages; NULL: "dataset" */
} gd_dataset_functions;

#define gd_dataset_from(self, ...)                                                      \
    GD_WITH_OPTIONS_(gd_dataset_from_at(                                                \
        GD_HERE, self,                                                                  \
        GD_OPTIONS_(gd_dataset_functions, (.count = NULL, .get = NULL, .destroy = NULL, \
                                           .name = NULL) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_dataset *gd_dataset_from_at(const char *site, void *self,
                                      const gd_dataset_functions *functions);

/* Tensors on the CPU with the same first size: sample i has row i of each. They are held, not copied. */
#define gd_dataset_tensors(...) gd_dataset_tensors_at(GD_HERE, gd_list(__VA_ARGS__))
GD_API gd_dataset *gd_dataset_tensors_at(const char *site, gd_tensors tensors);

/* By the name of its record, with options as text: gd_dataset_new("mnist", "path=mnist part=train"). */
#define gd_dataset_new(name, options) gd_dataset_new_at(GD_HERE, name, options)
GD_API gd_dataset *gd_dataset_new_at(const char *site, const char *name, const char *options);

/* --- of others -------------------------------------------------------------------------------- */

/* Samples that `fn` makes of those of a dataset: return gd_listed(x, y), or `sample` itself. Several
 * threads call it. */
typedef gd_tensors (*gd_map_fn)(gd_tensors sample, gd_random *random, void *user);
#define gd_dataset_map(...) gd_dataset_map_at(GD_HERE, __VA_ARGS__)
GD_API gd_dataset *gd_dataset_map_at(const char *site, gd_dataset *dataset, gd_map_fn fn,
                                     void *user);

/* The samples for which `fn` is true. It is called once for each sample, now. */
typedef bool (*gd_filter_fn)(gd_tensors sample, void *user);
#define gd_dataset_filter(...) gd_dataset_filter_at(GD_HERE, __VA_ARGS__)
GD_API gd_dataset *gd_dataset_filter_at(const char *site, gd_dataset *dataset, gd_filter_fn fn,
                                        void *user);

typedef struct gd_dataset_list {
    gd_dataset *const *at;
    int64_t count;
} gd_dataset_list;
typedef struct gd_transform_list {
    gd_transform *const *at;
    int64_t count;
} gd_transform_list;
#ifdef __cplusplus
}
template <typename List, typename Item, int items> struct gd_items_of_ {
    Item *at[items];
    operator List() const { return List{at, items}; }
};
template <typename... Items>
inline gd_items_of_<gd_dataset_list, gd_dataset, sizeof...(Items)> gd_datasets_(Items... items) {
    return {{items...}};
}
template <typename... Items>
inline gd_items_of_<gd_transform_list, gd_transform, sizeof...(Items)>
gd_transforms_(Items... items) {
    return {{items...}};
}
#define GD_DATASETS_(...)   gd_datasets_(__VA_ARGS__)
#define GD_TRANSFORMS_(...) gd_transforms_(__VA_ARGS__)
extern "C" {
#else
#define GD_DATASETS_(...)                                          \
    (__extension__(gd_dataset_list){(gd_dataset *[]){__VA_ARGS__}, \
                                    sizeof((gd_dataset *[]){__VA_ARGS__}) / sizeof(gd_dataset *)})
#define GD_TRANSFORMS_(...)                                                     \
    (__extension__(gd_transform_list){(gd_transform *[]){__VA_ARGS__},          \
                                      sizeof((gd_transform *[]){__VA_ARGS__}) / \
                                          sizeof(gd_transform *)})
#endif

/* Sample i has the tensors of sample i of each. All have the same count. */
#define gd_dataset_zip(...) gd_dataset_zip_at(GD_HERE, GD_DATASETS_(__VA_ARGS__))
GD_API gd_dataset *gd_dataset_zip_at(const char *site, gd_dataset_list datasets);

/* The samples of the first, then those of the second, and so on. */
#define gd_dataset_concat(...) gd_dataset_concat_at(GD_HERE, GD_DATASETS_(__VA_ARGS__))
GD_API gd_dataset *gd_dataset_concat_at(const char *site, gd_dataset_list datasets);

/* The samples with these numbers, i32 or i64 of rank 1, in this order. The numbers are copied. */
#define gd_dataset_subset(dataset, indices) gd_dataset_subset_at(GD_HERE, dataset, indices)
GD_API gd_dataset *gd_dataset_subset_at(const char *site, gd_dataset *dataset, gd_tensor *indices);
/* Samples first, first + 1 ... of it, `count` of them. */
#define gd_dataset_range(dataset, first, count) gd_dataset_range_at(GD_HERE, dataset, first, count)
GD_API gd_dataset *gd_dataset_range_at(const char *site, gd_dataset *dataset, int64_t first,
                                       int64_t count);

typedef struct gd_random_split_options {
    uint64_t seed GD_DEFAULT_(0);
} gd_random_split_options;

/* Cuts it into two parts at random: `share` of the samples (in [0, 1]), and the rest. It takes no
 * memory for each sample.
 *
 *     gd_dataset *train, *test;
 *     gd_dataset_random_split(all, 0.9, &train, &test, .seed = 1);
 */
#define gd_dataset_random_split(dataset, share, first, rest, ...) \
    GD_WITH_OPTIONS_(gd_dataset_random_split_at(                  \
        GD_HERE, dataset, share, first, rest,                     \
        GD_OPTIONS_(gd_random_split_options, (.seed = 0) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_status gd_dataset_random_split_at(const char *site, gd_dataset *dataset, double share,
                                            gd_dataset **first, gd_dataset **rest,
                                            const gd_random_split_options *options);

/* --- transforms ------------------------------------------------------------------------------- */

/* Samples with these transforms applied in this order (transforms.h has the constructors). Each has
 * an option .field: the tensor of the sample that it changes, from 0. A transform that is NULL is a
 * failure; for a function of the program there is gd_dataset_map. */
#define gd_dataset_transform(dataset, ...) \
    gd_dataset_transform_at(GD_HERE, dataset, GD_TRANSFORMS_(__VA_ARGS__))
GD_API gd_dataset *gd_dataset_transform_at(const char *site, gd_dataset *dataset,
                                           gd_transform_list transforms);

/* By the name of its record, with options as text: gd_transform_new("crop", "size=28 padding=2"). */
#define gd_transform_new(name, options) gd_transform_new_at(GD_HERE, name, options)
GD_API gd_transform *gd_transform_new_at(const char *site, const char *name, const char *options);

/* Applies one to a tensor. `random` NULL: random transforms draw from seed 0. */
#define gd_transform_apply(transform, x, random) \
    gd_transform_apply_at(GD_HERE, transform, x, random)
GD_API gd_tensor *gd_transform_apply_at(const char *site, gd_transform *transform, gd_tensor *x,
                                        gd_random *random);

/* --- user-defined records --------------------------------------------------------------------- */

/* A dataset or a transform that can be made by name. The record has the form of the library's
 * (CONTRIBUTING.md), `options` is the struct of its options in the order of the record. */
typedef struct gd_dataset_type {
    void *(*open)(const void *options); /* its struct, `self` below; NULL: failed */
    int64_t (*count)(void *self);
    gd_tensors (*get)(int64_t index, gd_random *random, void *self);
    void (*destroy)(void *self); /* NULL: nothing to free */
} gd_dataset_type;
#define gd_dataset_define(...) gd_dataset_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_dataset_define_at(const char *site, const char *record, gd_dataset_type type);

typedef gd_tensor *(*gd_transform_fn)(const void *options, gd_tensor *x, gd_random *random);
#define gd_transform_define(...) gd_transform_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_transform_define_at(const char *site, const char *record,
                                        gd_transform_fn apply);

#ifdef __cplusplus
}
#endif
#endif
