/* hdf5_strings.c - reads strings of fixed and of variable length. See hdf5_parts.h.
 *
 * An element of variable length is a number of bytes, the address of a collection and the number of
 * an object in it. All collections that a call meets stay in memory until the strings are freed:
 * the strings are the bytes of the objects.
 */
#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "core/grow.h"
#include "format/bytes.h"
#include "format/hdf5_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PARTS = 10000,    /* of a divided list */
    PREFIX_BYTES = 8 + 8, /* of a collection and of an object: with a length, padded */
};

typedef struct heap_object {
    uint32_t number;
    size_t at, bytes; /* in its collection */
} heap_object;

typedef struct collection {
    uint64_t address;
    uint8_t *data; /* with one byte more than it has */
    heap_object *objects;
    int count, room;
} collection;

/* What strings point into. */
struct gd_hdf5_text {
    collection *collections; /* by address */
    char **fixed;            /* blocks of strings of fixed length */
    int n_collections, collection_room, n_fixed, fixed_room;
};

typedef struct reader {
    gd_hdf5_strings *out;
    gd_hdf5_walk walk;
    size_t room;
} reader;

void gd_hdf5_strings_free(gd_hdf5_strings *s) {
    struct gd_hdf5_text *t = s->memory;
    for (int i = 0; t && i < t->n_collections; i++) {
        gd_free(t->collections[i].data);
        gd_free(t->collections[i].objects);
    }
    for (int i = 0; t && i < t->n_fixed; i++) gd_free(t->fixed[i]);
    if (t) {
        gd_free(t->collections);
        gd_free(t->fixed);
    }
    gd_free(t);
    gd_free(s->at);
    *s = (gd_hdf5_strings){0};
}

/* --- the global heap -------------------------------------------------------------------------- */

static int compare_objects(const void *a, const void *b) {
    const uint32_t x = ((const heap_object *)a)->number, y = ((const heap_object *)b)->number;
    return (x > y) - (x < y);
}

/* Lists the objects of a collection; object 0 is free space at its end. */
static gd_status list_objects(collection *k, const gd_hdf5 *file, size_t bytes) {
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, k->data, bytes);
    gd_hdf5_take_bytes(&c, PREFIX_BYTES);
    while (gd_hdf5_left(&c) >= PREFIX_BYTES) {
        heap_object o = {.number = (uint32_t)gd_hdf5_take(&c, 2)};
        gd_hdf5_take(&c, 6);
        const uint64_t size = gd_hdf5_take_length(&c);
        gd_hdf5_take_bytes(&c, 8 - (uint64_t)file->length_bytes);
        if (o.number == 0) break;
        o.at = (size_t)(c.at - k->data);
        o.bytes = (size_t)size;
        if (size > gd_hdf5_left(&c))
            return gd_hdf5_fail_at(file, k->address, "an object runs out of its collection");
        const uint64_t padded = (size + 7) / 8 * 8;
        gd_hdf5_take_bytes(&c, padded < gd_hdf5_left(&c) ? padded : gd_hdf5_left(&c));
        if (!gd_grow(k->objects, k->count, k->room)) return gd_hdf5_no_memory(file);
        k->objects[k->count++] = o;
    }
    if (k->count > 1) qsort(k->objects, (size_t)k->count, sizeof *k->objects, compare_objects);
    return GD_OK;
}

static gd_status load_collection(collection *k, gd_hdf5_walk *walk) {
    const gd_hdf5 *file = walk->file;
    uint8_t *start;
    GD_TRY(gd_hdf5_load(walk, k->address, PREFIX_BYTES, &start));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, start + 8, PREFIX_BYTES - 8);
    const uint64_t bytes = gd_hdf5_take_length(&c);
    const bool right = memcmp(start, "GCOL", 4) == 0 && start[4] == 1 && bytes >= PREFIX_BYTES;
    gd_free(start);
    if (!right) return gd_hdf5_fail_at(file, k->address, "expected 'GCOL'");
    GD_TRY(gd_hdf5_load(walk, k->address, bytes, &k->data));
    return list_objects(k, file, (size_t)bytes);
}

/* Finds or loads the collection at an address. */
static gd_status find_collection(reader *r, uint64_t address, collection **out) {
    struct gd_hdf5_text *t = r->out->memory;
    int low = 0, high = t->n_collections;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (t->collections[middle].address < address) low = middle + 1;
        else high = middle;
    }
    if (low == t->n_collections || t->collections[low].address != address) {
        collection k = {.address = address};
        gd_status status = gd_grow(t->collections, t->n_collections, t->collection_room)
                               ? load_collection(&k, &r->walk)
                               : gd_hdf5_no_memory(r->walk.file);
        if (status != GD_OK) {
            gd_free(k.data);
            gd_free(k.objects);
            return status;
        }
        memmove(t->collections + low + 1, t->collections + low,
                (size_t)(t->n_collections - low) * sizeof k);
        t->collections[low] = k;
        t->n_collections++;
    }
    *out = &t->collections[low];
    return GD_OK;
}

static gd_status read_variable(reader *r, const uint8_t *element, const char **out) {
    gd_hdf5_cursor c =
        gd_hdf5_cursor_of(r->walk.file, element, 8 + (size_t)r->walk.file->offset_bytes);
    const uint64_t bytes = gd_hdf5_take(&c, 4), address = gd_hdf5_take_address(&c);
    const heap_object key = {.number = (uint32_t)gd_hdf5_take(&c, 4)};
    *out = "";
    if (bytes == 0) return GD_OK;
    collection *k;
    GD_TRY(find_collection(r, address, &k));
    const heap_object *o =
        k->count ? bsearch(&key, k->objects, (size_t)k->count, sizeof *k->objects, compare_objects)
                 : NULL;
    if (!o || bytes > o->bytes)
        return gd_hdf5_fail_at(r->walk.file, address, "a string is not in its collection");
    k->data[o->at + bytes] = '\0'; /* the objects are listed, so what follows is not needed */
    *out = (const char *)k->data + o->at;
    return GD_OK;
}

/* --- elements --------------------------------------------------------------------------------- */

/* Copies strings of fixed length. Those that are not padded with spaces end at a zero byte. */
static gd_status read_fixed(reader *r, const gd_hdf5_type *type, const uint8_t *data, size_t count,
                            const char **at) {
    struct gd_hdf5_text *t = r->out->memory;
    const size_t bytes = type->bytes;
    size_t all;
    if (!gd_mul_size(count, bytes + 1, &all) || !gd_grow(t->fixed, t->n_fixed, t->fixed_room))
        return gd_hdf5_no_memory(r->walk.file);
    char *text = gd_malloc(all + 1);
    if (!text) return gd_hdf5_no_memory(r->walk.file);
    t->fixed[t->n_fixed++] = text;
    for (size_t i = 0; i < count; i++, text += bytes + 1) {
        memcpy(text, data + i * bytes, bytes);
        text[bytes] = '\0';
        for (size_t n = bytes; type->spaces && n > 0 && text[n - 1] == ' '; n--) text[n - 1] = '\0';
        at[i] = text;
    }
    return GD_OK;
}

/* Appends strings to the list. */
static gd_status append(reader *r, const gd_hdf5_type *type, const uint8_t *data, int64_t count) {
    gd_hdf5_strings *out = r->out;
    size_t bytes;
    if (!gd_mul_size(out->count + (size_t)count, sizeof *out->at, &bytes))
        return gd_hdf5_no_memory(r->walk.file);
    const char **at = gd_realloc(out->at, bytes + 1);
    if (!at) return gd_hdf5_no_memory(r->walk.file);
    out->at = at;
    at += out->count;
    if (!type->variable) GD_TRY(read_fixed(r, type, data, (size_t)count, at));
    else
        for (int64_t i = 0; i < count; i++)
            GD_TRY(read_variable(r, data + (size_t)i * type->bytes, &at[i]));
    out->count += (size_t)count;
    return GD_OK;
}

static gd_status begin(reader *r, gd_hdf5_strings *out, const gd_hdf5 *file) {
    *out = (gd_hdf5_strings){.memory = gd_calloc(1, sizeof(struct gd_hdf5_text))};
    *r = (reader){.out = out, .walk = gd_hdf5_walk_begin(file)};
    return out->memory ? GD_OK : gd_hdf5_no_memory(file);
}

static gd_status end(reader *r, gd_status status) {
    if (status != GD_OK) gd_hdf5_strings_free(r->out);
    return status;
}

gd_status gd_hdf5_read_strings(gd_hdf5_strings *out, const gd_hdf5_object *dataset) {
    const gd_hdf5_full_object *d = (const gd_hdf5_full_object *)dataset;
    const gd_hdf5_shape *shape = &dataset->shape;
    reader r;
    *out = (gd_hdf5_strings){0};
    GD_TRY(gd_hdf5_check_type(dataset, NULL, &dataset->type, false));
    GD_TRY(gd_hdf5_check_size(dataset));
    uint8_t *data = gd_malloc((size_t)shape->count * dataset->type.bytes + 1);
    if (!data) return gd_hdf5_no_memory(dataset->file);
    gd_status status = gd_hdf5_read_rows(d, 0, shape->rank ? shape->dims[0] : 1, data);
    if (status == GD_OK) status = begin(&r, out, dataset->file);
    if (status == GD_OK) status = end(&r, append(&r, &dataset->type, data, shape->count));
    gd_free(data);
    return status;
}

static gd_status append_attribute(reader *r, const gd_hdf5_object *object,
                                  const gd_hdf5_attribute *a) {
    GD_TRY(gd_hdf5_check_type(object, a->name, &a->type, false));
    return append(r, &a->type, a->data, a->shape.count);
}

static gd_status append_parts(reader *r, const gd_hdf5_object *object, const char *name) {
    char part[300];
    for (int i = 0; i < MAX_PARTS; i++) {
        snprintf(part, sizeof part, "%s%d", name, i);
        const gd_hdf5_attribute *a = gd_hdf5_find_attribute(object, part);
        if (!a && i > 0) break;
        if (!a)
            return gd_fail(GD_E_ARGUMENT, "%s: '%s' has no attribute '%s'",
                           gd_file_reader_path(object->file->file), object->path, name);
        GD_TRY(append_attribute(r, object, a));
    }
    return GD_OK;
}

gd_status gd_hdf5_read_attribute_strings(gd_hdf5_strings *out, const gd_hdf5_object *object,
                                         const char *name) {
    reader r;
    *out = (gd_hdf5_strings){0};
    const gd_hdf5_attribute *a = gd_hdf5_find_attribute(object, name);
    GD_TRY(begin(&r, out, object->file));
    return end(&r, a ? append_attribute(&r, object, a) : append_parts(&r, object, name));
}
