/* fuzz_hdf5.c - reads any bytes as an HDF5 file: an error, or all objects and attributes can be read
 * or refused. The sums of all values are computed, so that sanitizers see what was never written. */
#include "format/hdf5.h"
#include "format/hdf5_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMENTS = 1 << 18, MAX_OBJECTS = 500, MAX_DEPTH = 12 }; /* to keep runs short */

typedef struct budget {
    int64_t elements;
    int objects;
} budget;

static volatile uint64_t sink;

static void use_bytes(const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i++) sum += p[i];
    sink += sum;
}

static void use_strings(gd_hdf5_strings *s) {
    for (size_t i = 0; i < s->count; i++) use_bytes(s->at[i], strlen(s->at[i]));
    gd_hdf5_strings_free(s);
}

static void read_attribute(const gd_hdf5_object *o, const gd_hdf5_attribute *a, budget *left) {
    gd_hdf5_strings strings;
    if (a->shape.count > left->elements) return;
    left->elements -= a->shape.count;
    if (gd_hdf5_read_attribute_strings(&strings, o, a->name) == GD_OK) use_strings(&strings);
    double *x = malloc((size_t)a->shape.count * sizeof *x + 1);
    if (gd_hdf5_read_attribute(o, a->name, GD_F64, a->shape.count, x) == GD_OK)
        use_bytes(x, (size_t)a->shape.count * sizeof *x);
    free(x);
}

static void read_rows(const gd_hdf5_object *o, int64_t first, int64_t rows, gd_dtype dtype) {
    const int64_t all = o->shape.empty ? 0 : o->shape.rank ? o->shape.dims[0] : 1;
    if (all == 0) return;
    const size_t bytes = (size_t)(o->shape.count / all * rows) * gd_dtype_size(dtype);
    void *x = malloc(bytes + 1);
    if (gd_hdf5_read(o, first, rows, dtype, x) == GD_OK) use_bytes(x, bytes);
    free(x);
}

static void read_dataset(const gd_hdf5_object *o, budget *left) {
    gd_hdf5_strings strings;
    if (gd_hdf5_check_size(o) != GD_OK || o->shape.count > left->elements ||
        o->shape.count * (int64_t)o->type.bytes > 8 * left->elements)
        return;
    left->elements -= o->shape.count;
    const int64_t rows = o->shape.empty ? 0 : o->shape.rank ? o->shape.dims[0] : 1;
    read_rows(o, 0, rows, GD_F32);
    read_rows(o, rows / 2, rows - rows / 2, GD_I32);
    if (o->type.dtype != GD_DTYPE_NONE) read_rows(o, 0, rows, o->type.dtype);
    if (gd_hdf5_read_strings(&strings, o) == GD_OK) use_strings(&strings);
}

static void read_object(const gd_hdf5_object *o, int depth, budget *left) {
    for (size_t i = 0; i < o->n_attributes; i++) read_attribute(o, &o->attributes[i], left);
    if (!o->is_group) read_dataset(o, left);
    for (size_t i = 0; i < o->n_names && depth < MAX_DEPTH && left->objects-- > 0; i++) {
        gd_hdf5_object *part;
        if (gd_hdf5_object_open(&part, o, o->names[i]) != GD_OK) continue;
        read_object(part, depth + 1, left);
        gd_hdf5_object_close(part);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_file_reader *file;
    gd_hdf5 *h;
    budget left = {MAX_ELEMENTS, MAX_OBJECTS};
    gd_hdf5_ignores_checksums = true;
    if (gd_file_reader_open_memory(&file, "fuzz", data, size) != GD_OK) return 0;
    if (gd_hdf5_open(&h, file) == GD_OK) {
        read_object(gd_hdf5_root(h), 0, &left);
        gd_hdf5_close(h);
    }
    gd_file_reader_close(file);
    gd_hdf5_ignores_checksums = false;
    return 0;
}
