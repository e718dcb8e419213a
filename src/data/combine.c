/* combine.c - datasets that combine other datasets.
 *
 * Range, subset, filter, random split and concat select samples: sample i of such a dataset is
 * sample j of an inner one, and each kind has a function from i to j. Map and zip compute new
 * samples.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/freed.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "data/dataset.h"
#include "data/indices.h"
#include "data/permute.h"

/* --- datasets that select samples ------------------------------------------------------------- */

typedef struct selection selection;
struct selection {
    /* Returns the inner dataset that has sample *index of `d`, and sets *index to the index
     * there. */
    const gd_dataset *(*find)(const gd_dataset *d, const selection *c, int64_t *index);
    int64_t first;      /* of a range or a split: its first sample */
    gd_rng key;         /* of a split */
    gd_indices indices; /* of a subset or a filter */
    int64_t *ends;      /* of concat: the index after the last sample of each dataset */
};

static const gd_dataset *find_sample(const gd_dataset *d, int64_t *index) {
    const selection *c = d->self;
    return c->find(d, c, index);
}

static gd_status selection_get(const gd_dataset *d, int64_t index, gd_random *random,
                               gd_sample *sample) {
    const gd_dataset *inner = find_sample(d, &index);
    return gd_dataset_fetch(inner, index, random, sample);
}

static void selection_name(const gd_dataset *d, int64_t index, char *text, size_t size) {
    const gd_dataset *inner = find_sample(d, &index);
    gd_dataset_sample_name((gd_dataset *)inner, index, text, size);
}

static gd_status selection_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                                  gd_sample *batch) {
    const gd_dataset *inner = d->inner[0];
    int64_t *at = gd_malloc((size_t)count * sizeof *at);
    if (!at)
        return gd_fail(GD_E_MEMORY, "no memory for the indices of %lld samples", (long long)count);
    for (int64_t i = 0; i < count; i++) at[i] = indices[i], find_sample(d, &at[i]);
    const gd_status status = inner->rules->gather(inner, at, count, batch);
    gd_free(at);
    return status;
}

static void selection_close(gd_dataset *d) {
    selection *c = d->self;
    if (!c) return;
    gd_free(c->indices.at);
    gd_free(c->ends);
    gd_free(c);
}

static const gd_dataset_rules selection_rules = {
    .get = selection_get, .name = selection_name, .close = selection_close};
static const gd_dataset_rules gathering_selection_rules = {.get = selection_get,
                                                           .name = selection_name,
                                                           .close = selection_close,
                                                           .gather = selection_gather};

/* Creates a dataset with the classes of `dataset` and `size` zero bytes as its self. NULL: no
 * memory. */
static gd_dataset *derive_dataset(const gd_dataset_rules *rules, gd_dataset *dataset, size_t size) {
    void *self = gd_calloc(1, size);
    gd_dataset *d = self ? gd_dataset_bare(dataset->type, rules, &dataset, 1) : NULL;
    if (!d) {
        gd_free(self);
        gd_no_memory(NULL, "for a dataset");
        return NULL;
    }
    d->self = self;
    if (!dataset->n_classes || gd_dataset_set_classes(d, (const char *const *)dataset->classes,
                                                      dataset->n_classes) == GD_OK)
        return d;
    gd_object_release(&d->object);
    return NULL;
}

static gd_dataset *select_from(gd_dataset *dataset, int64_t count,
                               const gd_dataset *(*how)(const gd_dataset *, const selection *,
                                                        int64_t *)) {
    const bool gathers = dataset->rules->gather != NULL;
    gd_dataset *d = derive_dataset(gathers ? &gathering_selection_rules : &selection_rules, dataset,
                                   sizeof(selection));
    if (!d) return NULL;
    ((selection *)d->self)->find = how;
    d->count = count;
    return d;
}

/* The end of every constructor: returns `d`, or frees it and records the failure. */
static gd_dataset *finish_dataset(const char *site, const char *function, gd_dataset *d,
                                  gd_status status) {
    if (status == GD_OK && !d) status = GD_E_MEMORY;
    if (status != GD_OK) gd_error_prefix("%s: ", function);
    return gd_dataset_finish(site, d, status);
}

static gd_status check_dataset(const gd_dataset *dataset) {
    return dataset ? GD_OK : gd_fail(GD_E_ARGUMENT, "the dataset is NULL");
}

/* --- range and random split ------------------------------------------------------------------- */

static const gd_dataset *find_in_range(const gd_dataset *d, const selection *c, int64_t *index) {
    *index += c->first;
    return d->inner[0];
}

gd_dataset *gd_dataset_range_at(const char *site, gd_dataset *dataset, int64_t first,
                                int64_t count) {
    GD_LIVE_AT(site, dataset);
    GD_CALLED_FROM(site);
    gd_dataset *d = NULL;
    gd_status status = check_dataset(dataset);
    if (status == GD_OK &&
        (first < 0 || count < 0 || first > dataset->count || count > dataset->count - first))
        status =
            gd_fail(GD_E_INDEX, "a range of %lld samples from sample %lld on; %s has %lld samples",
                    (long long)count, (long long)first, dataset->type, (long long)dataset->count);
    if (status == GD_OK && (d = select_from(dataset, count, find_in_range)))
        ((selection *)d->self)->first = first;
    return finish_dataset(site, "gd_dataset_range", d, status);
}

static const gd_dataset *find_in_split(const gd_dataset *d, const selection *c, int64_t *index) {
    *index = gd_shuffled(c->key, c->first + *index, d->inner[0]->count);
    return d->inner[0];
}

static gd_dataset *split_part(gd_dataset *dataset, uint64_t seed, int64_t first, int64_t count) {
    gd_dataset *d = select_from(dataset, count, find_in_split);
    if (!d) return NULL;
    selection *c = d->self;
    c->first = first;
    c->key = gd_draw_key(GD_DRAW_SPLIT, seed, 0);
    return d;
}

static gd_status split_dataset(gd_dataset *dataset, double share, gd_dataset **first,
                               gd_dataset **rest, uint64_t seed) {
    if (!first || !rest) return gd_fail(GD_E_ARGUMENT, "a pointer for the parts is NULL");
    *first = *rest = NULL;
    GD_TRY(check_dataset(dataset));
    if (!(share >= 0 && share <= 1))
        return gd_fail(GD_E_ARGUMENT, "share is %g; it must be in [0, 1]", share);
    int64_t count = (int64_t)floor(share * (double)dataset->count + 0.5);
    if (count > dataset->count) count = dataset->count;
    GD_TRY(gd_scope_reserve(2));
    gd_dataset *a = split_part(dataset, seed, 0, count);
    gd_dataset *b = a ? split_part(dataset, seed, count, dataset->count - count) : NULL;
    if (!b) {
        if (a) gd_object_release(&a->object);
        return GD_E_MEMORY;
    }
    gd_scope_adopt(&a->object);
    gd_scope_adopt(&b->object);
    *first = a;
    *rest = b;
    return GD_OK;
}

gd_status gd_dataset_random_split_at(const char *site, gd_dataset *dataset, double share,
                                     gd_dataset **first, gd_dataset **rest,
                                     const gd_random_split_options *options) {
    GD_LIVE_AT(site, dataset);
    options = options ? options : GD_RANDOM_SPLIT_OPTIONS_();
    GD_CALLED_FROM(site);
    const gd_status status = split_dataset(dataset, share, first, rest, options->seed);
    if (status != GD_OK) gd_error_prefix("gd_dataset_random_split: ");
    return gd_report(site, status);
}

/* --- subset and filter ------------------------------------------------------------------------ */

static const gd_dataset *find_in_list(const gd_dataset *d, const selection *c, int64_t *index) {
    *index = gd_indices_get(&c->indices, *index);
    return d->inner[0];
}

static gd_status check_indices(const gd_tensor *indices) {
    char text[160];
    if (indices && indices->kind == GD_FAILED) return gd_failure();
    if (!indices || indices->kind != GD_VALUE)
        return gd_fail(GD_E_ARGUMENT, "the indices are %s",
                       indices ? "a symbol of a graph and have no data" : "NULL");
    if (indices->rank == 1 && (indices->dtype == GD_I32 || indices->dtype == GD_I64)) return GD_OK;
    return gd_fail(GD_E_DTYPE, "the indices are %s; they should be i32 or i64 of rank 1",
                   gd_describe(indices, text, sizeof text));
}

/* Checks the indices and copies them, as the tensor may change later. */
static gd_status copy_indices(gd_indices *to, const gd_tensor *from, const gd_dataset *dataset) {
    const gd_view v = gd_view_of(from);
    const int64_t step = v.strides[0] * (int64_t)gd_dtype_bytes(v.dtype);
    for (int64_t i = 0; i < v.dims[0]; i++) {
        const int64_t index = gd_load_i64(v.dtype, (const char *)v.data + i * step);
        if (index < 0 || index >= dataset->count)
            return gd_fail(GD_E_INDEX, "index %lld is %lld; %s has %lld samples, counted from 0",
                           (long long)i, (long long)index, dataset->type,
                           (long long)dataset->count);
        gd_indices_set(to, i, index);
    }
    return GD_OK;
}

gd_dataset *gd_dataset_subset_at(const char *site, gd_dataset *dataset, gd_tensor *indices) {
    GD_LIVE_AT(site, dataset);
    GD_CALLED_FROM(site);
    gd_dataset *d = NULL;
    gd_status status = check_dataset(dataset);
    if (status == GD_OK) status = check_indices(indices);
    gd_scope *scope = gd_scope_open();
    if (status == GD_OK && indices->device != gd_cpu()) {
        indices = gd_to_device(indices, gd_cpu());
        if (indices->kind == GD_FAILED) status = gd_failure();
    }
    if (status == GD_OK && (d = select_from(dataset, indices->dims[0], find_in_list))) {
        selection *c = d->self;
        status = gd_indices_make(&c->indices, d->count, dataset->count);
        if (status == GD_OK) status = copy_indices(&c->indices, indices, dataset);
    }
    gd_scope_close(&scope);
    return finish_dataset(site, "gd_dataset_subset", d, status);
}

typedef struct filter_pass {
    gd_dataset *dataset;
    gd_filter_fn fn;
    void *user;
    uint64_t *kept; /* a bit for each sample */
    int64_t count;
} filter_pass;

/* Records whether sample `index` passes. A failure of the program's function names the sample. */
static gd_status filter_sample(filter_pass *s, int64_t index) {
    gd_random random = gd_sample_random(0, 0, index);
    gd_sample sample;
    bool passes = false;
    gd_attempt attempt;
    gd_scope *scope = gd_scope_open();
    gd_status status = gd_dataset_fetch(s->dataset, index, &random, &sample);
    if (status == GD_OK) {
        gd_attempt_begin(&attempt);
        passes = s->fn((gd_tensors){sample.at, sample.count}, s->user);
        status = gd_attempt_end(&attempt, GD_OK);
        if (status != GD_OK) {
            char name[300];
            gd_error_prefix("%s: ", gd_dataset_sample_name(s->dataset, index, name, sizeof name));
        }
    }
    gd_scope_close(&scope);
    if (status == GD_OK && passes) {
        s->kept[index / 64] |= UINT64_C(1) << index % 64;
        s->count++;
    }
    return status;
}

static gd_status filter_dataset(filter_pass *s, gd_dataset **made) {
    s->kept = gd_calloc((size_t)s->dataset->count / 64 + 1, sizeof *s->kept);
    if (!s->kept) return gd_no_memory(NULL, "for a dataset");
    for (int64_t i = 0; i < s->dataset->count; i++) GD_TRY(filter_sample(s, i));
    gd_dataset *d = select_from(s->dataset, s->count, find_in_list);
    *made = d;
    if (!d) return GD_E_MEMORY;
    selection *c = d->self;
    GD_TRY(gd_indices_make(&c->indices, s->count, s->dataset->count));
    for (int64_t i = 0, to = 0; i < s->dataset->count; i++)
        if (s->kept[i / 64] >> i % 64 & 1) gd_indices_set(&c->indices, to++, i);
    return GD_OK;
}

gd_dataset *gd_dataset_filter_at(const char *site, gd_dataset *dataset, gd_filter_fn fn,
                                 void *user) {
    GD_LIVE_AT(site, dataset);
    GD_CALLED_FROM(site);
    filter_pass s = {.dataset = dataset, .fn = fn, .user = user};
    gd_dataset *d = NULL;
    gd_status status = check_dataset(dataset);
    if (status == GD_OK && !fn) status = gd_fail(GD_E_ARGUMENT, "the function is NULL");
    if (status == GD_OK) status = filter_dataset(&s, &d);
    gd_free(s.kept);
    return finish_dataset(site, "gd_dataset_filter", d, status);
}

/* --- concat and zip --------------------------------------------------------------------------- */

static gd_status check_datasets(gd_dataset_list list) {
    if (!list.at || list.count < 1) return gd_fail(GD_E_ARGUMENT, "it takes one dataset or more");
    if (list.count > INT32_MAX)
        return gd_fail(GD_E_ARGUMENT, "%lld datasets are too many", (long long)list.count);
    for (int64_t i = 0; i < list.count; i++) {
        char name[40];
        snprintf(name, sizeof name, "dataset %lld", (long long)i);
        if (!list.at[i]) return gd_fail(GD_E_ARGUMENT, "%s is NULL", name);
        GD_TRY(gd_check_freed_object(list.at[i], name));
    }
    return GD_OK;
}

static bool same_classes(const gd_dataset *a, const gd_dataset *b) {
    bool same = a->n_classes == b->n_classes;
    for (int64_t i = 0; same && i < a->n_classes; i++)
        same = strcmp(a->classes[i], b->classes[i]) == 0;
    return same;
}

static gd_status copy_classes(gd_dataset *d, const gd_dataset *from) {
    if (!from || !from->n_classes) return GD_OK;
    return gd_dataset_set_classes(d, (const char *const *)from->classes, from->n_classes);
}

static const gd_dataset *find_in_concat(const gd_dataset *d, const selection *c, int64_t *index) {
    int low = 0, high = d->n_inner - 1; /* finds the first dataset that ends after the index */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (c->ends[middle] > *index) high = middle;
        else low = middle + 1;
    }
    if (low > 0) *index -= c->ends[low - 1];
    return d->inner[low];
}

static gd_status fill_concat(gd_dataset *d) {
    selection *c = d->self = gd_calloc(1, sizeof *c);
    if (!c || !(c->ends = gd_calloc((size_t)d->n_inner, sizeof *c->ends)))
        return gd_no_memory(NULL, "for a dataset");
    c->find = find_in_concat;
    bool same = true;
    for (int i = 0; i < d->n_inner; i++) {
        if (!gd_add_i64(d->count, d->inner[i]->count, &d->count))
            return gd_fail(GD_E_OVERFLOW, "together they have too many samples");
        c->ends[i] = d->count;
        same = same && same_classes(d->inner[0], d->inner[i]);
    }
    return copy_classes(d, same ? d->inner[0] : NULL);
}

gd_dataset *gd_dataset_concat_at(const char *site, gd_dataset_list list) {
    GD_CALLED_FROM(site);
    gd_dataset *d = NULL;
    gd_status status = check_datasets(list);
    if (status == GD_OK &&
        (d = gd_dataset_bare("concat", &selection_rules, list.at, (int)list.count)))
        status = fill_concat(d);
    return finish_dataset(site, "gd_dataset_concat", d, status);
}

/* Appends the tensors of one dataset of a zip. */
static gd_status append_tensors(gd_sample *to, const gd_sample *more) {
    if (to->count + more->count > GD_SAMPLE_MAX)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_dataset_zip: a sample would have %d tensors; at most %d fit",
                       to->count + more->count, GD_SAMPLE_MAX);
    for (int i = 0; i < more->count; i++) to->at[to->count++] = more->at[i];
    return GD_OK;
}

static gd_status zip_get(const gd_dataset *d, int64_t index, gd_random *random, gd_sample *sample) {
    gd_sample one;
    sample->count = 0;
    for (int i = 0; i < d->n_inner; i++) {
        GD_TRY(gd_dataset_fetch(d->inner[i], index, random, &one));
        GD_TRY(append_tensors(sample, &one));
    }
    return GD_OK;
}

static gd_status zip_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                            gd_sample *batch) {
    gd_sample one;
    batch->count = 0;
    for (int i = 0; i < d->n_inner; i++) {
        GD_TRY(d->inner[i]->rules->gather(d->inner[i], indices, count, &one));
        GD_TRY(append_tensors(batch, &one));
    }
    return GD_OK;
}

static void inner_name(const gd_dataset *d, int64_t index, char *text, size_t size) {
    gd_dataset_sample_name(d->inner[0], index, text, size);
}

static const gd_dataset_rules zip_rules = {.get = zip_get, .name = inner_name};
static const gd_dataset_rules gathering_zip_rules = {
    .get = zip_get, .name = inner_name, .gather = zip_gather};

static gd_status check_zip(gd_dataset_list list, bool *gathers) {
    GD_TRY(check_datasets(list));
    for (int64_t i = 0; i < list.count; i++) {
        *gathers = *gathers && list.at[i]->rules->gather;
        if (list.at[i]->count != list.at[0]->count)
            return gd_fail(
                GD_E_ARGUMENT,
                "dataset %lld has %lld samples and dataset 0 has %lld; they must have equally many",
                (long long)i, (long long)list.at[i]->count, (long long)list.at[0]->count);
    }
    return GD_OK;
}

gd_dataset *gd_dataset_zip_at(const char *site, gd_dataset_list list) {
    GD_CALLED_FROM(site);
    gd_dataset *d = NULL;
    bool gathers = true;
    gd_status status = check_zip(list, &gathers);
    if (status == GD_OK)
        d = gd_dataset_bare("zip", gathers ? &gathering_zip_rules : &zip_rules, list.at,
                            (int)list.count);
    if (d) {
        const gd_dataset *named = NULL; /* the first dataset with names of classes */
        for (int64_t i = 0; i < list.count && !named; i++)
            if (list.at[i]->n_classes) named = list.at[i];
        d->count = list.at[0]->count;
        status = copy_classes(d, named);
    }
    return finish_dataset(site, "gd_dataset_zip", d, status);
}

/* --- map -------------------------------------------------------------------------------------- */

typedef struct mapping {
    gd_map_fn fn;
    void *user;
} mapping;

static gd_status map_get(const gd_dataset *d, int64_t index, gd_random *random, gd_sample *sample) {
    const mapping *m = d->self;
    gd_sample given;
    GD_TRY(gd_dataset_fetch(d->inner[0], index, random, &given));
    const gd_tensors made = m->fn((gd_tensors){given.at, given.count}, random, m->user);
    /* the function may return the list that it received, which is in this frame */
    const void *frame = made.at == given.at ? NULL : __builtin_frame_address(0);
    const gd_status status = gd_sample_take(sample, made, frame);
    if (status == GD_OK && !gd_failed()) return GD_OK;
    if (status == GD_OK) gd_failure(); /* the function has recorded a failure */
    char name[300];
    gd_dataset_sample_name(d->inner[0], index, name, sizeof name);
    gd_error_prefix("%s: %s: gd_dataset_map: ", d->type, name);
    return status == GD_OK ? gd_error_status() : status;
}

static void map_close(gd_dataset *d) { gd_free(d->self); }

static const gd_dataset_rules map_rules = {.get = map_get, .name = inner_name, .close = map_close};

gd_dataset *gd_dataset_map_at(const char *site, gd_dataset *dataset, gd_map_fn fn, void *user) {
    GD_LIVE_AT(site, dataset);
    GD_CALLED_FROM(site);
    gd_dataset *d = NULL;
    gd_status status = check_dataset(dataset);
    if (status == GD_OK && !fn) status = gd_fail(GD_E_ARGUMENT, "the function is NULL");
    if (status == GD_OK && (d = derive_dataset(&map_rules, dataset, sizeof(mapping)))) {
        *(mapping *)d->self = (mapping){fn, user};
        d->count = dataset->count;
    }
    return finish_dataset(site, "gd_dataset_map", d, status);
}
