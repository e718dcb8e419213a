/* data.c - creates loaders for the tensors, datasets or loaders that a program passes to gd_fit. */
#include <stdio.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "train/batches.h"

static gd_status check_count(gd_tensors list, const char *function) {
    char what[80];
    if (list.count < 1 || !list.at)
        return gd_fail(GD_E_ARGUMENT, "there is no data: no loader, no dataset and no tensors");
    for (int64_t i = 0; i < list.count; i++) {
        snprintf(what, sizeof what, "%s: tensor %lld of the data", function, (long long)i);
        GD_TRY(gd_check_freed(list.at[i], what));
        if (!list.at[i] || list.at[i]->kind == GD_FAILED)
            return gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "%s is NULL", what);
    }
    return GD_OK;
}

gd_status gd_loader_for(gd_fit_data data, const gd_batching *o, gd_loader **loader) {
    *loader = NULL;
    GD_TRY_LIVE(data.loader, o->function);
    GD_TRY_LIVE(data.dataset, o->function);
    if (data.loader) return *loader = gd_retain(data.loader), GD_OK;
    int targets = o->targets;
    gd_dataset *dataset = data.dataset;
    gd_scope *scope = gd_scope_open();
    gd_status status = dataset ? GD_OK : check_count(data.tensors, o->function);
    if (status == GD_OK && !dataset) {
        if (data.tensors.count <= targets) targets = 0; /* inputs only */
        dataset = gd_dataset_tensors_at(NULL, data.tensors);
    }
    if (status == GD_OK && dataset)
        *loader =
            gd_retain(gd_loader_new(dataset, .batch = o->batch, .shuffle = o->shuffle,
                                    .seed = o->seed, .workers = o->workers, .targets = targets));
    gd_scope_close(&scope);
    if (status == GD_OK && !*loader) status = gd_failure();
    return status;
}
