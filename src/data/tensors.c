/* tensors.c - gd_dataset_tensors: sample i is row i of each tensor. */
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "data/dataset.h"

typedef struct tensor_rows {
    int count;
    gd_tensor *at[]; /* retained; row i of each belongs to sample i */
} tensor_rows;

static gd_status tensors_get(const gd_dataset *d, int64_t index, gd_random *random,
                             gd_sample *sample) {
    const tensor_rows *r = d->self;
    (void)random;
    for (sample->count = 0; sample->count < r->count; sample->count++) {
        gd_tensor *t = r->at[sample->count];
        gd_tensor *row = gd_tensor_view(t, t->rank - 1, t->dims + 1, t->strides + 1,
                                        t->offset + index * t->strides[0]);
        if (!row) return GD_E_MEMORY;
        sample->at[sample->count] = row;
    }
    return GD_OK;
}

/* Copies rows `indices` of `from` to `to` (count, ...). */
static void copy_rows(gd_tensor *to, const gd_tensor *from, const int64_t *indices, int64_t count) {
    const size_t size = gd_dtype_bytes(from->dtype);
    gd_view source = gd_view_of(from), target = gd_view_of(to);
    source.rank--, target.rank--;
    memmove(source.dims, source.dims + 1, sizeof(int64_t) * (size_t)source.rank);
    memmove(source.strides, source.strides + 1, sizeof(int64_t) * (size_t)source.rank);
    memmove(target.dims, target.dims + 1, sizeof(int64_t) * (size_t)target.rank);
    memmove(target.strides, target.strides + 1, sizeof(int64_t) * (size_t)target.rank);
    const bool contiguous = gd_is_row_major(source.rank, source.dims, source.strides);
    const size_t row = (size_t)gd_numel(source.rank, source.dims) * size;
    char *first = source.data;
    for (int64_t i = 0; i < count && row; i++, target.data = (char *)target.data + row) {
        source.data = first + (ptrdiff_t)(indices[i] * from->strides[0]) * (ptrdiff_t)size;
        if (contiguous) memcpy(target.data, source.data, row);
        else gd_copy_elements(&target, &source);
    }
}

static gd_status tensors_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                                gd_sample *batch) {
    const tensor_rows *r = d->self;
    for (batch->count = 0; batch->count < r->count; batch->count++) {
        const gd_tensor *t = r->at[batch->count];
        int64_t dims[GD_MAX_RANK];
        size_t bytes;
        memcpy(dims, t->dims, sizeof dims);
        dims[0] = count;
        GD_TRY(gd_dims_bytes(t->rank, dims, (gd_dtype)t->dtype,
                             &bytes)); /* indices may repeat, so the batch can exceed t */
        gd_tensor *made = gd_tensor_new(gd_cpu(), (gd_dtype)t->dtype, t->rank, dims);
        if (!made) return GD_E_MEMORY;
        copy_rows(made, t, indices, count);
        batch->at[batch->count] = made;
    }
    return GD_OK;
}

static void tensors_close(gd_dataset *d) {
    tensor_rows *r = d->self;
    for (int i = 0; r && i < r->count; i++) gd_release(r->at[i]);
    gd_free(r);
}

static const gd_dataset_rules tensors_rules = {
    .get = tensors_get, .gather = tensors_gather, .close = tensors_close};

static gd_status check_tensors(gd_tensors list) {
    char text[2][160];
    if (!list.at || list.count < 1 || list.count > GD_SAMPLE_MAX)
        return gd_fail(GD_E_ARGUMENT, "%lld tensors; it takes 1 to %d", (long long)list.count,
                       GD_SAMPLE_MAX);
    for (int64_t i = 0; i < list.count; i++) {
        const gd_tensor *t = list.at[i], *first = list.at[0];
        if (t && t->kind == GD_FAILED) return gd_failure();
        if (!t || t->kind != GD_VALUE)
            return gd_fail(GD_E_ARGUMENT, "tensor %lld is %s", (long long)i,
                           t ? "a symbol of a graph and has no data" : "NULL");
        if (t->rank == 0)
            return gd_fail(GD_E_SHAPE,
                           "tensor %lld is a single number; its first axis should be the samples",
                           (long long)i);
        if (t->dims[0] != first->dims[0])
            return gd_fail(GD_E_SHAPE,
                           "tensor %lld is %s and tensor 0 is %s; the first sizes, the numbers of "
                           "samples, must be equal",
                           (long long)i, gd_describe(t, text[0], sizeof *text),
                           gd_describe(first, text[1], sizeof *text));
    }
    return GD_OK;
}

/* Batches are gathered on the CPU, so tensors of other devices are copied there once. */
static gd_status hold_tensors(tensor_rows *r, gd_tensors list) {
    gd_scope *scope = gd_scope_open();
    gd_status status = GD_OK;
    while (r->count < list.count && status == GD_OK) {
        gd_tensor *t = list.at[r->count];
        if (t->device != gd_cpu()) t = gd_to_device(t, gd_cpu());
        if (t->kind == GD_FAILED) status = gd_failure();
        else r->at[r->count++] = gd_retain(t);
    }
    gd_scope_close(&scope);
    return status;
}

gd_dataset *gd_dataset_tensors_at(const char *site, gd_tensors list) {
    GD_CALLED_FROM(site);
    gd_status status = check_tensors(list);
    tensor_rows *r = NULL;
    gd_dataset *d = NULL;
    if (status == GD_OK) {
        r = gd_calloc(1, sizeof *r + (size_t)list.count * sizeof *r->at);
        d = r ? gd_dataset_bare("tensors", &tensors_rules, NULL, 0) : NULL;
        if (!d) status = gd_no_memory(NULL, "for a dataset");
    }
    if (status != GD_OK) {
        gd_free(r);
        gd_error_prefix("gd_dataset_tensors: ");
        return gd_dataset_finish(site, NULL, status);
    }
    d->self = r;
    d->count = list.at[0]->dims[0];
    status = hold_tensors(r, list);
    if (status != GD_OK) gd_error_prefix("gd_dataset_tensors: ");
    return gd_dataset_finish(site, d, status);
}
