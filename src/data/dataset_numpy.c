/* dataset_numpy.c - arrays in .npy and .npz files, whose first axis is the samples. */
#include <string.h>

#include "core/alloc.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "data/samples.h"
#include "format/file.h"
#include "gradus/datasets.h"
#include "gradus/npy.h"

/*dataset numpy(path:string)
 * Arrays of a .npz file, or the one of a .npy file (which may be gzipped). The first axis of each
 * is the samples: sample i has row i of each array.
 *   names string = none   arrays of a .npz file in the order of the sample: 'x y'; none: all of them
 *   python NumPy(path, names)
 */
typedef struct arrays {
    gd_tensor *tensors[GD_SAMPLE_MAX];
    gd_sample_array rows[GD_SAMPLE_MAX];
    int count;
} arrays;

static gd_status numpy_check(const void *options) {
    return gd_check_path(((const gd_dataset_numpy_options *)options)->path, "path");
}

static gd_status add_array(arrays *a, const char *path, const char *name, gd_tensor *t) {
    char text[200];
    if (t->kind == GD_FAILED) return gd_failure();
    if (a->count == GD_SAMPLE_MAX)
        return gd_fail(GD_E_ARGUMENT, "%s: a sample has at most %d arrays; select them with .names",
                       path, GD_SAMPLE_MAX);
    if (t->rank == 0)
        return gd_fail(GD_E_SHAPE, "%s: '%s' is one number, not an array of samples", path, name);
    if (a->count && t->dims[0] != a->tensors[0]->dims[0])
        return gd_fail(GD_E_SHAPE, "%s: '%s' is %s, but the first array has %lld samples", path,
                       name, gd_describe(t, text, sizeof text), (long long)a->tensors[0]->dims[0]);
    gd_sample_array *r = &a->rows[a->count];
    *r = (gd_sample_array){.data = gd_data(t), .dtype = (gd_dtype)t->dtype, .rank = t->rank - 1};
    memcpy(r->dims, t->dims + 1, sizeof *r->dims * (size_t)r->rank);
    r->bytes = (size_t)gd_numel(r->rank, r->dims) * gd_dtype_bytes(t->dtype);
    a->tensors[a->count++] = gd_retain(t);
    return GD_OK;
}

static gd_status add_named_arrays(arrays *a, const char *path, const char *names,
                                  const gd_npz *npz) {
    if (!names) {
        for (int64_t i = 0; i < gd_npz_count(npz); i++)
            GD_TRY(add_array(a, path, gd_npz_name(npz, i), gd_npz_load(npz, gd_npz_name(npz, i))));
        return a->count ? GD_OK : gd_fail(GD_E_FORMAT, "%s: has no arrays", path);
    }
    for (const char *s = names + strspn(names, " ,"); *s; s += strspn(s, " ,")) {
        char name[200];
        const size_t n = strcspn(s, " ,");
        if (n >= sizeof name) return gd_fail(GD_E_ARGUMENT, "the name '%.40s...' is too long", s);
        memcpy(name, s, n);
        name[n] = 0;
        GD_TRY(add_array(a, path, name, gd_npz_load(npz, name)));
        s += n;
    }
    return a->count ? GD_OK : gd_fail(GD_E_ARGUMENT, "names has no name");
}

static gd_status is_archive(const char *path, bool *is) {
    gd_file_reader *file;
    uint8_t magic[4] = {0};
    GD_TRY(gd_file_reader_open(&file, path));
    gd_status status = GD_OK;
    if (gd_file_reader_size(file) >= 4) status = gd_file_reader_read_at(file, 0, magic, 4);
    gd_file_reader_close(file);
    *is = memcmp(magic, "PK", 2) == 0;
    return status;
}

static gd_status open_arrays(arrays *a, const gd_dataset_numpy_options *o) {
    bool archive;
    GD_TRY(is_archive(o->path, &archive));
    if (!archive && o->names)
        return gd_fail(GD_E_ARGUMENT, "%s: is no .npz file; only .npz files have names", o->path);
    if (!archive) return add_array(a, o->path, "the array", gd_load_npy(o->path));
    gd_npz *npz = gd_npz_open(o->path);
    return npz ? add_named_arrays(a, o->path, o->names, npz) : gd_failure();
}

static gd_status numpy_open(gd_dataset *d) {
    arrays *a = d->self = gd_calloc(1, sizeof *a);
    if (!a) return gd_no_memory(NULL, "for a dataset");
    const gd_status status = open_arrays(a, d->options);
    if (status == GD_OK) d->count = a->tensors[0]->dims[0];
    return status;
}

static gd_status numpy_get(const gd_dataset *d, int64_t index, gd_random *random,
                           gd_sample *sample) {
    const arrays *a = d->self;
    (void)random;
    for (int i = 0; i < a->count; i++) GD_TRY(gd_sample_array_get(&a->rows[i], index, sample));
    return GD_OK;
}

static gd_status numpy_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                              gd_sample *batch) {
    const arrays *a = d->self;
    for (int i = 0; i < a->count; i++)
        GD_TRY(gd_sample_array_gather(&a->rows[i], indices, count, batch));
    return GD_OK;
}

static void numpy_close(gd_dataset *d) {
    arrays *a = d->self;
    for (int i = 0; a && i < a->count; i++) gd_release(a->tensors[i]);
    gd_free(a);
}

#include "data/dataset_numpy.gen.h"
