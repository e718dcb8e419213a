/* samples.c - adds tensors to samples and converts bytes; see samples.h. */
#include "data/samples.h"

#include <string.h>

#include "core/alloc.h"
#include "core/tensor.h"

gd_status gd_sample_add(gd_sample *s, gd_dtype dtype, int rank, const int64_t *dims, void **data) {
    if (s->count == GD_SAMPLE_MAX)
        return gd_fail(GD_E_ARGUMENT, "a sample has at most %d tensors", GD_SAMPLE_MAX);
    gd_tensor *t = gd_tensor_new(gd_cpu(), dtype, rank, dims);
    if (!t) return gd_this_thread.latest;
    s->at[s->count++] = t;
    *data = t->storage->data;
    return GD_OK;
}

gd_status gd_sample_add_classes(gd_sample *s, const int64_t *classes, const int64_t *indices,
                                int64_t count) {
    void *data = NULL;
    GD_TRY(gd_sample_add(s, GD_I64, indices ? 1 : 0, &count, &data));
    int64_t *to = data;
    if (!indices) *to = *classes;
    for (int64_t i = 0; indices && i < count; i++) to[i] = classes[indices[i]];
    return GD_OK;
}

/* A table is faster than a division, and a product with 1 / 255 rounds differently. */
#define U1(i)  (float)((i) / 255.0)
#define U4(i)  U1(i), U1((i) + 1), U1((i) + 2), U1((i) + 3)
#define U16(i) U4(i), U4((i) + 4), U4((i) + 8), U4((i) + 12)
#define U64(i) U16(i), U16((i) + 16), U16((i) + 32), U16((i) + 48)
static const float unit[256] = {U64(0), U64(64), U64(128), U64(192)};

void gd_bytes_to_unit(float *to, const uint8_t *from, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = unit[from[i]];
}

void gd_pixels_to_bytes(uint8_t *to, const uint8_t *from, size_t plane, size_t channels) {
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < plane; i++) to[c * plane + i] = from[i * channels + c];
}

void gd_pixels_to_unit(float *to, const uint8_t *from, size_t plane, size_t channels) {
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < plane; i++) to[c * plane + i] = unit[from[i * channels + c]];
}

gd_status gd_check_path(const char *path, const char *option) {
    return path && *path ? GD_OK : gd_fail(GD_E_ARGUMENT, "%s is not given", option);
}

char *gd_folder_join(const char *folder, const char *name) {
    const size_t length = strlen(folder), bytes = strlen(name) + 1;
    char *path = gd_malloc(length + 1 + bytes);
    if (!path) return NULL;
    memcpy(path, folder, length);
    path[length] = '/';
    memcpy(path + length + 1, name, bytes);
    return path;
}

/* --- samples as rows of an array -------------------------------------------------------------- */

static void copy_row(const gd_sample_array *r, int64_t index, void *to, int64_t at) {
    const uint8_t *from = (const uint8_t *)r->data + (size_t)index * r->bytes;
    if (r->unit) gd_bytes_to_unit((float *)to + (size_t)at * r->bytes, from, r->bytes);
    else memcpy((uint8_t *)to + (size_t)at * r->bytes, from, r->bytes);
}

gd_status gd_sample_array_get(const gd_sample_array *r, int64_t index, gd_sample *sample) {
    void *to = NULL;
    GD_TRY(gd_sample_add(sample, r->unit ? GD_F32 : r->dtype, r->rank, r->dims, &to));
    if (r->bytes) copy_row(r, index, to, 0);
    return GD_OK;
}

gd_status gd_sample_array_gather(const gd_sample_array *r, const int64_t *indices, int64_t count,
                                 gd_sample *batch) {
    int64_t dims[GD_MAX_RANK] = {count};
    void *to = NULL;
    for (int k = 0; k < r->rank; k++) dims[k + 1] = r->dims[k];
    GD_TRY(gd_sample_add(batch, r->unit ? GD_F32 : r->dtype, r->rank + 1, dims, &to));
    for (int64_t i = 0; r->bytes && i < count; i++) copy_row(r, indices[i], to, i);
    return GD_OK;
}
