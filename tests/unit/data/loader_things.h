/* loader_things.h - datasets for tests of loaders. */
#ifndef GRADUS_TESTS_UNIT_DATA_LOADER_THINGS_H
#define GRADUS_TESTS_UNIT_DATA_LOADER_THINGS_H

#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "clean_test.h"
#include "gradus/gradus.h"

/* Samples (x, y): x is f32[2] with the index and a random number, y is the index. */
typedef struct numbers {
    int64_t count;
    int broken_every; /* every n-th sample fails; 0: no sample */
    int sleep_us;
    bool records; /* a broken sample records a failure and returns tensors */
    _Atomic int calls;
} numbers;

static inline int64_t numbers_count(void *self) { return ((numbers *)self)->count; }

static inline gd_tensors numbers_get(int64_t index, gd_random *random, void *self) {
    numbers *n = self;
    atomic_fetch_add(&n->calls, 1);
    if (n->sleep_us) usleep((useconds_t)n->sleep_us);
    const bool broken = n->broken_every && index % n->broken_every == n->broken_every - 1;
    gd_tensor *y = gd_scalar_of((double)index, GD_I64);
    if (broken && n->records) {
        gd_matmul(y, gd_ones(gd_dims(3, 3, 3))); /* fails, and the caller does not check it */
        return gd_listed(y, y);
    }
    if (broken) return gd_listed(gd_reshape(y, gd_dims(7)), y);
    const float x[] = {(float)index, (float)gd_random_uniform(random)};
    return gd_listed(gd_from_array(gd_dims(2), GD_F32, x), y);
}

#define NUMBERS(n) gd_dataset_from(n, .count = numbers_count, .get = numbers_get, .name = "numbers")

/* Hashes the bytes of batches. */
static inline uint64_t hash(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static inline uint64_t hash_batch(uint64_t h, gd_tensors batch) {
    for (int64_t i = 0; i < batch.count; i++) {
        const gd_tensor *t = batch.at[i];
        const gd_shape shape = gd_tensor_shape(t);
        const gd_dtype dtype = gd_tensor_dtype(t);
        h = hash(h, &dtype, sizeof dtype);
        h = hash(h, shape.at, sizeof *shape.at * (size_t)shape.rank);
        char *bytes = malloc((size_t)gd_tensor_numel(t) * gd_dtype_size(dtype) + 1);
        gd_copy_to(t, bytes, (size_t)gd_tensor_numel(t) * gd_dtype_size(dtype));
        h = hash(h, bytes, (size_t)gd_tensor_numel(t) * gd_dtype_size(dtype));
        free(bytes);
    }
    return h;
}

/* Hashes the rest of the epoch and counts its batches in *batches. */
static inline uint64_t hash_epoch(gd_loader *loader, int *batches) {
    uint64_t h = 0xcbf29ce484222325u;
    int count = 0;
    for (gd_tensors batch; gd_loader_next(loader, &batch); count++) h = hash_batch(h, batch);
    if (batches) *batches = count;
    return h;
}

/* Copies the integers of a tensor. */
static inline void read_ints(const gd_tensor *t, int64_t *to, int64_t room) {
    const int64_t count = gd_tensor_numel(t);
    CHECK(count <= room && gd_tensor_dtype(t) == GD_I64);
    if (count <= room) gd_copy_to(t, to, (size_t)count * sizeof *to);
}

#endif
