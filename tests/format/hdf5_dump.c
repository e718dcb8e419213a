/* hdf5_dump.c - prints or copies what the library reads of an HDF5 file, for tests/format/hdf5.py.
 *
 *     hdf5_dump print FILE        a line for each object and attribute, with all values
 *     hdf5_dump copy FILE NEW     writes all that can be read to a new file
 *
 * A line is a list of words: the kind, the path in hexadecimal, the name of an attribute in
 * hexadecimal or "-", the dtype (or "string"), the dims as "3x4" or "scalar" or "empty", the values in
 * hexadecimal. Rows of datasets that are converted to f32 follow as "rows". A soft link is "link" and
 * the path of its object; what cannot be read is "refused" with the status and the message.
 */
#include "core/alloc.h"
#include "core/error.h"
#include "format/hdf5.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gd_hdf5_writer *writer; /* NULL: print */
static bool writing_failed;

static void check_written(gd_status status, const char *path) {
    if (status == GD_OK) return;
    printf("failed %s: %s\n", path, gd_latest_failure());
    writing_failed = true;
}

static void put_hex(const void *data, size_t bytes) {
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) printf("%02x", p[i]);
    if (bytes == 0) putchar('-');
}

static void put_head(const char *kind, const char *path, const char *name, const char *dtype,
                     const gd_hdf5_shape *shape) {
    printf("%s ", kind);
    put_hex(path, strlen(path));
    putchar(' ');
    put_hex(name, name ? strlen(name) : 0);
    printf(" %s ", dtype);
    if (shape->empty) printf("empty ");
    else if (shape->rank == 0) printf("scalar ");
    else
        for (int i = 0; i < shape->rank; i++)
            printf("%" PRId64 "%c", shape->dims[i], i + 1 < shape->rank ? 'x' : ' ');
}

static void put_refusal(const char *path, const char *name, gd_status status) {
    printf("refused ");
    put_hex(path, strlen(path));
    putchar(' ');
    put_hex(name, name ? strlen(name) : 0);
    printf(" %s %s\n", gd_status_name(status), gd_latest_failure());
}

static void put_strings(const char *kind, const gd_hdf5_object *o, const char *name,
                        const gd_hdf5_shape *shape, gd_hdf5_strings *s) {
    if (writer && name) {
        const bool single = shape->rank == 0 && !shape->empty;
        check_written(single ? gd_hdf5_writer_text(writer, o->path, name, s->at[0])
                             : gd_hdf5_writer_texts(writer, o->path, name, s->at, s->count),
                      o->path);
    } else if (!writer) {
        put_head(kind, o->path, name, "string", shape);
        for (size_t i = 0; i < s->count; i++) {
            printf("%s", i ? "," : "");
            put_hex(s->at[i], strlen(s->at[i]));
        }
        printf("%s\n", s->count ? "" : "-");
    }
    gd_hdf5_strings_free(s);
}

static void put_attribute(const gd_hdf5_object *o, const gd_hdf5_attribute *a) {
    gd_status status;
    if (a->type.kind == GD_HDF5_STRING) {
        gd_hdf5_strings s;
        status = gd_hdf5_read_attribute_strings(&s, o, a->name);
        if (status != GD_OK) put_refusal(o->path, a->name, status);
        else put_strings("attribute", o, a->name, &a->shape, &s);
        return;
    }
    const size_t bytes = (size_t)a->shape.count * gd_dtype_size(a->type.dtype);
    void *data = malloc(bytes + 1);
    status = gd_hdf5_read_attribute(o, a->name, a->type.dtype, a->shape.count, data);
    if (status != GD_OK) put_refusal(o->path, a->name, status);
    else if (!writer) {
        put_head("attribute", o->path, a->name, gd_dtype_name(a->type.dtype), &a->shape);
        put_hex(data, bytes);
        putchar('\n');
    } else if (!a->shape.empty && a->type.dtype != GD_BF16)
        check_written(gd_hdf5_writer_attribute(writer, o->path, a->name, a->type.dtype,
                                               a->shape.rank, a->shape.dims, data),
                      o->path);
    free(data);
}

static void put_rows(const gd_hdf5_object *o) {
    if (o->shape.rank == 0 || o->shape.dims[0] == 0) return;
    const int64_t first = o->shape.dims[0] / 3, rows = o->shape.dims[0] / 2;
    const size_t n = (size_t)(o->shape.count / o->shape.dims[0] * rows);
    float *data = malloc(n * sizeof *data + 1);
    const gd_status status = gd_hdf5_read(o, first, rows, GD_F32, data);
    if (status != GD_OK) put_refusal(o->path, NULL, status);
    else {
        put_head("rows", o->path, NULL, "f32", &o->shape);
        put_hex(data, n * sizeof *data);
        putchar('\n');
    }
    free(data);
}

/* False: it could not be read, or written. */
static bool put_dataset(const gd_hdf5_object *o) {
    gd_status status = gd_hdf5_check_size(o);
    if (status != GD_OK) {
        put_refusal(o->path, NULL, status);
        return false;
    }
    if (o->type.kind == GD_HDF5_STRING) {
        gd_hdf5_strings s;
        status = gd_hdf5_read_strings(&s, o);
        if (status != GD_OK) put_refusal(o->path, NULL, status);
        else put_strings("dataset", o, NULL, &o->shape, &s);
        return !writer;
    }
    const size_t bytes = (size_t)o->shape.count * gd_dtype_size(o->type.dtype);
    const int64_t rows = o->shape.empty ? 0 : o->shape.rank ? o->shape.dims[0] : 1;
    void *data = malloc(bytes + 1);
    status = gd_hdf5_read(o, 0, rows, o->type.dtype, data);
    if (status != GD_OK) put_refusal(o->path, NULL, status);
    else if (!writer) {
        put_head("dataset", o->path, NULL, gd_dtype_name(o->type.dtype), &o->shape);
        put_hex(data, bytes);
        putchar('\n');
        put_rows(o);
    } else if (!o->shape.empty && o->type.dtype != GD_BF16) {
        check_written(
            gd_hdf5_writer_dataset(writer, o->path, o->type.dtype, o->shape.rank, o->shape.dims),
            o->path);
        check_written(gd_hdf5_writer_write(writer, data, bytes), o->path);
    }
    free(data);
    return !writer || (status == GD_OK && !o->shape.empty && o->type.dtype != GD_BF16);
}

static void put_object(const gd_hdf5_object *o, int depth) {
    const gd_hdf5_shape none = {.empty = true};
    if (writer && o->is_group) check_written(gd_hdf5_writer_group(writer, o->path), o->path);
    else if (!writer && o->is_group) {
        put_head("group", o->path, NULL, "-", &none);
        printf("-\n");
    }
    const bool written = o->is_group || put_dataset(o);
    for (size_t i = 0; i < o->n_attributes; i++)
        if (!writer || written) put_attribute(o, &o->attributes[i]);
    for (size_t i = 0; i < o->n_names && depth < 100; i++) {
        char path[4096];
        gd_hdf5_object *part;
        const gd_status status = gd_hdf5_object_open(&part, o, o->names[i]);
        snprintf(path, sizeof path, "%s/%s", depth ? o->path : "", o->names[i]);
        if (status != GD_OK) {
            put_refusal(path, NULL, status);
            continue;
        }
        if (strcmp(part->path, path) == 0) put_object(part, depth + 1);
        else if (!writer) { /* a soft link */ printf("link ");
            put_hex(path, strlen(path));
            putchar(' ');
            put_hex(part->path, strlen(part->path));
            putchar('\n');
        }
        gd_hdf5_object_close(part);
    }
}

int main(int n, char **words) {
    gd_file_reader *file = NULL;
    gd_hdf5 *h = NULL;
    if (n < 3 || (strcmp(words[1], "copy") == 0) != (n == 4)) {
        fprintf(stderr, "usage: hdf5_dump print FILE | copy FILE NEW\n");
        return 2;
    }
    gd_status status = gd_file_reader_open(&file, words[2]);
    if (status == GD_OK) status = gd_hdf5_open(&h, file);
    if (status == GD_OK && n == 4) status = gd_hdf5_writer_begin(&writer, words[3]);
    if (status == GD_OK) put_object(gd_hdf5_root(h), 0);
    else printf("refused 2f - %s %s\n", gd_status_name(status), gd_latest_failure());
    if (writer && status == GD_OK) check_written(gd_hdf5_writer_commit(writer), words[3]);
    gd_hdf5_close(h);
    gd_file_reader_close(file);
    return status == GD_OK && !writing_failed ? 0 : 1;
}
