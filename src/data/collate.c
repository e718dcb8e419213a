/* collate.c - builds a batch from samples. Each tensor of a sample is copied once, into its row of
 * the batch. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/freed.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "data/loader.h"
#include "gradus/ops.h"

/* A batch under construction. */
typedef struct batch_job {
    const gd_loader *loader;
    const _Atomic bool *stop;
    int64_t *indices; /* of its samples */
    int64_t count;
    int64_t rows;    /* samples that are in the batch */
    int64_t first;   /* the index of the first of these, for messages */
    int64_t skipped; /* broken samples */
    gd_sample batch;
    gd_queue_event *uploaded;
} batch_job;

/* Fetches sample i of the batch into the current scope. *there is false if it is broken and is
 * skipped. */
static gd_status fetch_sample(batch_job *j, int64_t i, gd_sample *sample, bool *there) {
    const gd_loader *l = j->loader;
    *there = false;
    if (atomic_load_explicit(j->stop, memory_order_relaxed))
        return gd_fail(GD_E_STATE, "the loader was stopped");
    gd_random random = gd_sample_random(l->order.seed, l->order.epoch, j->indices[i]);
    gd_status status = gd_dataset_fetch(l->dataset, j->indices[i], &random, sample);
    for (int k = 0; k < sample->count && status == GD_OK; k++) {
        if (sample->at[k]->device == gd_cpu()) continue;
        sample->at[k] = gd_to_device(sample->at[k], gd_cpu());
        if (sample->at[k]->kind == GD_FAILED) status = gd_failure();
    }
    if (status == GD_OK) {
        *there = true;
        return GD_OK;
    }
    /* running out of memory is not the fault of the sample */
    if (!l->options.skip_broken || status == GD_E_MEMORY) return status;
    j->skipped++;
    return GD_OK;
}

/* --- stacking --------------------------------------------------------------------------------- */

static const char *describe_tensor(unsigned dtype, int rank, const int64_t *dims, char *text,
                                   size_t size) {
    const int used = snprintf(text, size, "%s", gd_dtype_name((gd_dtype)dtype));
    gd_shape_text(rank, dims, text + used, size - (size_t)used);
    return text;
}

/* Fails because tensor k of sample `index` differs from that of the first sample, whose dtype, rank
 * and dims are given. */
static gd_status fail_mismatch(const batch_job *j, int64_t index, int k, unsigned dtype, int rank,
                               const int64_t *dims, const gd_tensor *t) {
    char names[2][300], texts[2][160];
    gd_dataset *d = j->loader->dataset;
    const bool dtypes = dtype != t->dtype;
    return gd_fail(dtypes ? GD_E_DTYPE : GD_E_SHAPE,
                   "%s and %s do not fit in one batch: tensor %d is %s and %s%s",
                   gd_dataset_sample_name(d, j->first, names[0], sizeof *names),
                   gd_dataset_sample_name(d, index, names[1], sizeof *names), k,
                   describe_tensor(dtype, rank, dims, texts[0], sizeof *texts),
                   gd_describe(t, texts[1], sizeof *texts),
                   dtypes            ? ""
                   : rank == t->rank ? ". Crop or resize them, or set .pad"
                                     : "");
}

static gd_status fail_count_mismatch(const batch_job *j, int64_t index, int count) {
    char names[2][300];
    gd_dataset *d = j->loader->dataset;
    return gd_fail(GD_E_ARGUMENT, "%s has %d tensors and %s has %d",
                   gd_dataset_sample_name(d, j->first, names[0], sizeof *names), j->batch.count,
                   gd_dataset_sample_name(d, index, names[1], sizeof *names), count);
}

/* Allocates a tensor (rows, dims...). */
static gd_status allocate_rows(int64_t rows, unsigned dtype, int rank, const int64_t *dims,
                               gd_tensor **made) {
    int64_t all[GD_MAX_RANK + 1] = {rows};
    size_t bytes;
    if (rank == GD_MAX_RANK)
        return gd_fail(
            GD_E_SHAPE,
            "samples have a tensor of rank %d, and a batch of them would have one more; %d is "
            "the most",
            rank, GD_MAX_RANK);
    memcpy(all + 1, dims, sizeof *dims * (size_t)rank);
    GD_TRY(gd_dims_bytes(rank + 1, all, (gd_dtype)dtype, &bytes));
    *made = gd_tensor_new(gd_cpu(), (gd_dtype)dtype, rank + 1, all);
    return *made ? GD_OK : GD_E_MEMORY;
}

/* Copies a tensor of a sample to the start of a row, which may be larger. */
static void copy_to_row(gd_tensor *batch, int64_t row, const gd_tensor *from) {
    const gd_view source = gd_view_of(from);
    gd_view target = source;
    const size_t size = gd_dtype_bytes(batch->dtype);
    target.data =
        (char *)batch->storage->data + (size_t)(batch->offset + row * batch->strides[0]) * size;
    memcpy(target.strides, batch->strides + 1, sizeof *target.strides * (size_t)from->rank);
    const int64_t numel = gd_numel(from->rank, from->dims);
    if (numel == 0) return;
    if (gd_is_row_major(source.rank, source.dims, source.strides) &&
        gd_is_row_major(target.rank, target.dims, target.strides))
        memcpy(target.data, source.data, (size_t)numel * size);
    else gd_copy_elements(&target, &source);
}

/* Allocates a batch for samples like the first one, in the outer scope. */
static gd_status allocate_batch(batch_job *j, int64_t index, const gd_sample *sample) {
    j->first = index;
    for (j->batch.count = 0; j->batch.count < sample->count; j->batch.count++) {
        const gd_tensor *t = sample->at[j->batch.count];
        gd_tensor **made = &j->batch.at[j->batch.count];
        GD_TRY(allocate_rows(j->count, t->dtype, t->rank, t->dims, made));
        gd_keep(*made);
    }
    return GD_OK;
}

static gd_status add_row(batch_job *j, int64_t index, const gd_sample *sample) {
    if (j->rows == 0) GD_TRY(allocate_batch(j, index, sample));
    if (sample->count != j->batch.count) return fail_count_mismatch(j, index, sample->count);
    for (int k = 0; k < sample->count; k++) {
        const gd_tensor *t = sample->at[k], *b = j->batch.at[k];
        if (t->dtype != b->dtype || t->rank + 1 != b->rank ||
            memcmp(t->dims, b->dims + 1, sizeof *t->dims * t->rank) != 0)
            return fail_mismatch(j, index, k, b->dtype, b->rank - 1, b->dims + 1, t);
        copy_to_row(j->batch.at[k], j->rows, t);
    }
    j->rows++;
    return GD_OK;
}

/* Fetches one sample at a time and frees its tensors once they are copied. */
static gd_status stack_samples(batch_job *j) {
    gd_status status = GD_OK;
    for (int64_t i = 0; i < j->count && status == GD_OK; i++) {
        gd_scope *scope = gd_scope_open();
        gd_sample sample;
        bool there;
        status = fetch_sample(j, i, &sample, &there);
        if (there) status = add_row(j, j->indices[i], &sample);
        gd_scope_close(&scope);
    }
    if (j->rows == 0) j->batch.count = 0;
    /* skipped samples leave rows unused; nobody else has seen these tensors */
    for (int k = 0; k < j->batch.count; k++) j->batch.at[k]->dims[0] = j->rows;
    return status;
}

/* --- padding and user functions: all samples at once ------------------------------------------ */

/* Fetches all samples. Indices of those that are not skipped move to the front of j->indices. */
static gd_status fetch_all_samples(batch_job *j, gd_sample *samples) {
    for (int64_t i = 0; i < j->count; i++) {
        bool there;
        GD_TRY(fetch_sample(j, i, &samples[j->rows], &there));
        if (there) j->indices[j->rows++] = j->indices[i];
    }
    return GD_OK;
}

static void fill_tensor(gd_tensor *t, double value) {
    const size_t size = gd_dtype_bytes(t->dtype);
    const int64_t numel = gd_numel(t->rank, t->dims);
    char one[8], *to = t->storage->data;
    gd_store_f64((gd_dtype)t->dtype, one, value);
    for (int64_t i = 0; i < numel; i++) memcpy(to + (size_t)i * size, one, size);
}

/* Copies tensor k of each sample to the start of a row that has the largest sizes. */
static gd_status pad_tensor(batch_job *j, const gd_sample *samples, int k) {
    const gd_tensor *first = samples[0].at[k];
    int64_t largest[GD_MAX_RANK];
    bool equal = true;
    memcpy(largest, first->dims, sizeof largest);
    for (int64_t i = 1; i < j->rows; i++) {
        const gd_tensor *t = samples[i].at[k];
        if (t->dtype != first->dtype || t->rank != first->rank)
            return fail_mismatch(j, j->indices[i], k, first->dtype, first->rank, first->dims, t);
        for (int a = 0; a < t->rank; a++) {
            equal = equal && t->dims[a] == first->dims[a];
            if (t->dims[a] > largest[a]) largest[a] = t->dims[a];
        }
    }
    gd_tensor **made = &j->batch.at[k];
    GD_TRY(allocate_rows(j->rows, first->dtype, first->rank, largest, made));
    if (!equal) fill_tensor(*made, j->loader->options.pad_value);
    for (int64_t i = 0; i < j->rows; i++) copy_to_row(*made, i, samples[i].at[k]);
    return GD_OK;
}

static gd_status pad_samples(batch_job *j, const gd_sample *samples) {
    j->first = j->indices[0];
    j->batch.count = samples[0].count;
    for (int64_t i = 1; i < j->rows; i++)
        if (samples[i].count != j->batch.count)
            return fail_count_mismatch(j, j->indices[i], samples[i].count);
    for (int k = 0; k < j->batch.count; k++) GD_TRY(pad_tensor(j, samples, k));
    return GD_OK;
}

/* Calls the collate function of the program. */
static gd_status call_collate(batch_job *j, const gd_sample *samples) {
    const gd_loader_options *o = &j->loader->options;
    gd_tensors *lists = gd_malloc((size_t)j->rows * sizeof *lists);
    if (!lists) return gd_no_memory(NULL, "for a batch");
    for (int64_t i = 0; i < j->rows; i++)
        lists[i] = (gd_tensors){(gd_tensor **)samples[i].at, samples[i].count};
    const gd_tensors made = o->collate(lists, j->rows, o->user);
    gd_status status = gd_sample_take(&j->batch, made, __builtin_frame_address(0));
    gd_free(lists);
    if (status == GD_OK && gd_failed()) status = gd_failure();
    if (status != GD_OK) gd_error_prefix("the collate function: ");
    return status;
}

static gd_status collect_samples(batch_job *j) {
    gd_sample *samples = gd_malloc((size_t)j->count * sizeof *samples);
    if (!samples) return gd_no_memory(NULL, "for a batch");
    gd_status status = fetch_all_samples(j, samples);
    if (status == GD_OK && j->rows > 0)
        status = j->loader->options.collate ? call_collate(j, samples) : pad_samples(j, samples);
    gd_free(samples);
    return status;
}

/* --- a batch ---------------------------------------------------------------------------------- */

static gd_status make_batch(batch_job *j, int64_t number) {
    const gd_loader *l = j->loader;
    const gd_loader_options *o = &l->options;
    const int64_t first = number * o->batch;
    j->count = l->positions - first < o->batch ? l->positions - first : o->batch;
    j->indices = gd_malloc((size_t)j->count * sizeof *j->indices);
    if (!j->indices) return gd_no_memory(NULL, "for a batch");
    GD_TRY(gd_order_at(&l->order, first, j->count, j->indices));
    if (o->collate || o->pad) GD_TRY(collect_samples(j));
    else if (l->dataset->rules->gather)
        GD_TRY(l->dataset->rules->gather(l->dataset, j->indices, j->count, &j->batch));
    else GD_TRY(stack_samples(j));
    if (j->batch.count == 0 || o->targets + o->weights <= j->batch.count) return GD_OK;
    return gd_fail(GD_E_ARGUMENT,
                   "batches have %d tensors; .targets = %d and .weights = %d would be %d of them",
                   j->batch.count, o->targets, o->weights, o->targets + o->weights);
}

/* Replaces the tensors of a batch by copies on the loader's device. */
static gd_status upload_batch(batch_job *j) {
    gd_device *device = j->loader->options.device;
    if (!device || j->batch.count == 0) return GD_OK;
    for (int k = 0; k < j->batch.count; k++) {
        gd_tensor *t = j->batch.at[k];
        if (!gd_is_row_major(t->rank, t->dims, t->strides)) t = gd_contiguous(t);
        if (t->kind == GD_FAILED) return gd_failure();
        t = gd_tensor_upload_ahead(device, t);
        if (!t) return gd_this_thread.latest;
        j->batch.at[k] = t;
    }
    return gd_device_mark_uploads(device, &j->uploaded);
}

static _Thread_local gd_loader_position preparing = {-1, -1};
gd_loader_position gd_loader_preparing(void) { return preparing; }

/* Samples are computed on the CPU and without a tape, whatever the settings of the thread. */
void gd_loader_prepare(const gd_loader *l, int64_t number, const _Atomic bool *stop,
                       gd_prepared_batch *p) {
    gd_thread *thread = &gd_this_thread;
    gd_device *device = thread->device;
    batch_job j = {.loader = l, .stop = stop};
    const gd_loader_position outer = preparing; /* a dataset may read another loader */
    preparing = (gd_loader_position){(int64_t)l->order.epoch, number};
    thread->device = NULL;
    thread->no_grad++;
    gd_scope *scope = gd_scope_open();
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status = make_batch(&j, number);
    if (status == GD_OK) status = upload_batch(&j);
    p->status = gd_attempt_end(&attempt, status);
    p->batch.count = 0;
    p->uploaded = j.uploaded;
    p->skipped = p->status == GD_OK ? j.skipped : 0;
    if (p->status == GD_OK) {
        p->batch = j.batch;
        for (int k = 0; k < p->batch.count; k++) gd_object_retain(&p->batch.at[k]->object);
    } else {
        p->placed = thread->latest_placed;
        snprintf(p->text, sizeof p->text, "%s", gd_latest_failure());
    }
    gd_scope_close(&scope);
    gd_free(j.indices);
    thread->no_grad--;
    thread->device = device;
    preparing = outer;
}
