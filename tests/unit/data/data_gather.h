/* data_gather.h - checks that a dataset's gather gives the bytes of its samples. */
#ifndef GRADUS_TESTS_UNIT_DATA_DATA_GATHER_H
#define GRADUS_TESTS_UNIT_DATA_DATA_GATHER_H

#include "core/tensor.h"
#include "data/dataset.h"
#include "test.h"

/* The batch of four indices equals the four samples, stacked along a new axis 0. */
static inline void check_gather(gd_dataset *d) {
    CHECK(d && d->rules->gather);
    if (!d || !d->rules->gather) return;
    GD_SCOPE;
    const int64_t last = d->count - 1, indices[4] = {last, 0, last / 2, last};
    gd_sample batch = {.count = 0};
    CHECK(d->rules->gather(d, indices, 4, &batch) == GD_OK);
    for (int i = 0; i < 4; i++) {
        gd_tensors sample = gd_dataset_get(d, indices[i]);
        CHECK(sample.count == batch.count);
        for (int k = 0; k < batch.count && k < sample.count; k++) {
            const gd_tensor *one = sample.at[k], *all = batch.at[k];
            CHECK(all->dtype == one->dtype && all->rank == one->rank + 1 && all->dims[0] == 4);
            const size_t bytes =
                (size_t)gd_numel(one->rank, one->dims) * gd_dtype_bytes(one->dtype);
            CHECK(memcmp(one->dims, all->dims + 1, 8 * (size_t)one->rank) == 0);
            CHECK(memcmp((char *)gd_data(all) + (size_t)i * bytes, gd_data(one), bytes) == 0);
        }
    }
}

#endif
