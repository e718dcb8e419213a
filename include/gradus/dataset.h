/* dataset.h - datasets: numbered samples, and transforms of them.
 *
 * A dataset is two functions: the number of samples, and sample number i. A sample is a list of
 * tensors on the CPU: inputs, then targets (an image and its class). The build generates
 * datasets.h, the datasets that read files, from their records; this header has the others:
 *
 *     gd_dataset *digits = gd_dataset_mnist("mnist", GD_TRAIN);
 *     gd_dataset *mine = gd_dataset_tensors(x, y);              // sample i is x[i], y[i]
 *
 * A user-defined dataset provides the two functions:
 *
 *     static int64_t count(void *self) { return ((files *)self)->count; }
 *     static gd_tensors get(int64_t index, gd_random *random, void *self) {
 *         return gd_listed(read_image(self, index), gd_scalar_of(label(self, index), GD_I64));
 *     }
 *     gd_dataset *mine = gd_dataset_from(&files, .count = count, .get = get);
 *
 * Datasets can be transformed, mapped, filtered, concatenated and split. A sample is computed when
 * it is requested:
 *
 *     gd_dataset *train = gd_dataset_transform(digits, gd_transform_crop(28, .padding = 2),
 *                                              gd_transform_normalize(0.13, 0.31));
 *
 * Random augmentation draws from `random`, whose numbers depend only on the seed, the epoch and the
 * number of the sample. So a sample does not depend on the thread and the time of its computation.
 *
 * Threads: the workers of a loader call a dataset from several threads at once. The built-in
 * datasets allow that; the functions of a program must, too.
 *
 * A dataset never changes. It belongs to the current scope, like a tensor, and holds the datasets
 * and transforms that it uses. Constructors that fail return NULL and record the failure, and every
 * function accepts NULL.
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

/* The number of samples; 0 for NULL. */
GD_API int64_t gd_dataset_count(const gd_dataset *dataset);

typedef struct gd_sample_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    uint64_t seed GD_DEFAULT_(0); /* seed and epoch determine the random numbers of the sample */
    uint64_t epoch GD_DEFAULT_(0);
} GD_GIVEN_BY_NAME_ gd_sample_options;
#define GD_SAMPLE_OPTIONS_(...) GD_OPTIONS_(gd_sample_options, (.seed = 0, .epoch = 0), __VA_ARGS__)

/* Sample number `index`, in the current scope. A failure names the sample. */
#define gd_dataset_get(dataset, index, ...) \
    GD_WITH_OPTIONS_(gd_dataset_get_at(GD_HERE, dataset, index, GD_SAMPLE_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensors gd_dataset_get_at(const char *site, gd_dataset *dataset, int64_t index,
                                    const gd_sample_options *options);

/* The names of the classes: "cat", or "7". The count is 0 if the dataset has no names. */
GD_API int64_t gd_dataset_class_count(const gd_dataset *dataset);
GD_API const char *gd_dataset_class_name(const gd_dataset *dataset, int64_t index);
/* The class with this name: gd_dataset_class_index(pets, "cat"), or of a character of a text,
 * gd_dataset_class_index(poem, "a"). Returns -1 and records the failure if there is none. */
#define gd_dataset_class_index(dataset, name) gd_dataset_class_index_at(GD_HERE, dataset, name)
GD_API int64_t gd_dataset_class_index_at(const char *site, const gd_dataset *dataset,
                                         const char *name);

/* How a table becomes samples, as text: its columns, their categories, mean and deviation. The option
 * .layout of gd_dataset_csv converts another file in the same way, in another program, too. The
 * layout of a transformed dataset, a part and so on is that of the table below it. Writes the text
 * into `text`, truncated to `size`, and returns its full length, or -1 if there is no table. */
#define gd_dataset_layout(dataset, text, size) gd_dataset_layout_at(GD_HERE, dataset, text, size)
GD_API int64_t gd_dataset_layout_at(const char *site, gd_dataset *dataset, char *text, size_t size);

/* The name of a sample in messages: "cats/3.jpg", or "sample 17". */
GD_API const char *gd_dataset_sample_name(gd_dataset *dataset, int64_t index, char *text,
                                          size_t size);

/* --- creating one ----------------------------------------------------------------------------- */

typedef struct gd_dataset_functions {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t (*count)(void *self) GD_DEFAULT_(nullptr);
    /* Sample number `index`, from 0: return gd_listed(x, y). */
    gd_tensors (*get)(int64_t index, gd_random *random, void *self) GD_DEFAULT_(nullptr);
    void (*destroy)(void *self)
        GD_DEFAULT_(nullptr);              /* called when the dataset is freed; or NULL */
    const char *name GD_DEFAULT_(nullptr); /* for messages; NULL: "dataset" */
} GD_GIVEN_BY_NAME_ gd_dataset_functions;
#define GD_DATASET_FUNCTIONS_(...)                                                                 \
    GD_OPTIONS_(gd_dataset_functions, (.count = NULL, .get = NULL, .destroy = NULL, .name = NULL), \
                __VA_ARGS__)

#define gd_dataset_from(self, ...) \
    GD_WITH_OPTIONS_(gd_dataset_from_at(GD_HERE, self, GD_DATASET_FUNCTIONS_(__VA_ARGS__)))
GD_API gd_dataset *gd_dataset_from_at(const char *site, void *self,
                                      const gd_dataset_functions *functions);

/* A dataset of tensors with the same first size: sample i has x[i] of each tensor x. The tensors
 * are held, not copied; those of another device than the CPU are copied there. */
#define gd_dataset_tensors(...) gd_dataset_tensors_at(GD_HERE, gd_list(__VA_ARGS__))
GD_API gd_dataset *gd_dataset_tensors_at(const char *site, gd_tensors tensors);

/* A dataset by the name of its record, with options as text:
 * gd_dataset_new("mnist", "path=mnist part=train"). */
#define gd_dataset_new(name, options) gd_dataset_new_at(GD_HERE, name, options)
GD_API gd_dataset *gd_dataset_new_at(const char *site, const char *name, const char *options);

/* --- datasets from datasets ------------------------------------------------------------------- */

/* Applies `fn` to each sample. `fn` returns gd_listed(x, y), or `sample` itself; several threads
 * may call it at the same time. */
typedef gd_tensors (*gd_map_fn)(gd_tensors sample, gd_random *random, void *user);
#define gd_dataset_map(...) gd_dataset_map_at(GD_HERE, __VA_ARGS__)
GD_API gd_dataset *gd_dataset_map_at(const char *site, gd_dataset *dataset, gd_map_fn fn,
                                     void *user);

/* The samples for which `fn` is true. This call evaluates `fn` once for each sample. */
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

/* Sample i has the tensors of sample i of each dataset. All must have the same count. */
#define gd_dataset_zip(...) gd_dataset_zip_at(GD_HERE, GD_DATASETS_(__VA_ARGS__))
GD_API gd_dataset *gd_dataset_zip_at(const char *site, gd_dataset_list datasets);

/* The samples of the first, then those of the second, and so on. */
#define gd_dataset_concat(...) gd_dataset_concat_at(GD_HERE, GD_DATASETS_(__VA_ARGS__))
GD_API gd_dataset *gd_dataset_concat_at(const char *site, gd_dataset_list datasets);

/* The samples with these indices, i32 or i64 of rank 1, in this order. The indices are copied. */
#define gd_dataset_subset(dataset, indices) gd_dataset_subset_at(GD_HERE, dataset, indices)
GD_API gd_dataset *gd_dataset_subset_at(const char *site, gd_dataset *dataset, gd_tensor *indices);
/* `count` consecutive samples, from number `first` on. */
#define gd_dataset_range(dataset, first, count) gd_dataset_range_at(GD_HERE, dataset, first, count)
GD_API gd_dataset *gd_dataset_range_at(const char *site, gd_dataset *dataset, int64_t first,
                                       int64_t count);

typedef struct gd_random_split_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    uint64_t seed GD_DEFAULT_(0);
} GD_GIVEN_BY_NAME_ gd_random_split_options;
#define GD_RANDOM_SPLIT_OPTIONS_(...) GD_OPTIONS_(gd_random_split_options, (.seed = 0), __VA_ARGS__)

/* Splits a dataset at random: `first` gets the fraction `share` (in [0, 1]) of the samples, `rest`
 * the others. Uses no memory per sample.
 *
 *     gd_dataset *train, *test;
 *     gd_dataset_random_split(all, 0.9, &train, &test, .seed = 1);
 */
#define gd_dataset_random_split(dataset, share, first, rest, ...)                     \
    GD_WITH_OPTIONS_(gd_dataset_random_split_at(GD_HERE, dataset, share, first, rest, \
                                                GD_RANDOM_SPLIT_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_dataset_random_split_at(const char *site, gd_dataset *dataset, double share,
                                            gd_dataset **first, gd_dataset **rest,
                                            const gd_random_split_options *options);

/* --- transforms ------------------------------------------------------------------------------- */

/* Applies these transforms (constructors in transforms.h) to each sample, in this order. The option
 * .field of a transform selects the tensor of the sample that it changes, from 0. A NULL transform
 * is a failure. To apply a function of the program, use gd_dataset_map. */
#define gd_dataset_transform(dataset, ...) \
    gd_dataset_transform_at(GD_HERE, dataset, GD_TRANSFORMS_(__VA_ARGS__))
GD_API gd_dataset *gd_dataset_transform_at(const char *site, gd_dataset *dataset,
                                           gd_transform_list transforms);

/* A transform by the name of its record, with options as text:
 * gd_transform_new("crop", "size=28 padding=2"). */
#define gd_transform_new(name, options) gd_transform_new_at(GD_HERE, name, options)
GD_API gd_transform *gd_transform_new_at(const char *site, const char *name, const char *options);

/* Applies a transform to a tensor. `random` NULL: random transforms use seed 0. */
#define gd_transform_apply(transform, x, random) \
    gd_transform_apply_at(GD_HERE, transform, x, random)
GD_API gd_tensor *gd_transform_apply_at(const char *site, gd_transform *transform, gd_tensor *x,
                                        gd_random *random);

/* --- user-defined records --------------------------------------------------------------------- */

/* Defines a dataset or a transform that can be created by name. CONTRIBUTING.md has the form of the
 * record; `options` is a struct with its options in the order of the record. */
typedef struct gd_dataset_type {
    void *(*open)(const void *options); /* returns `self` of a new dataset; NULL is a failure */
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
