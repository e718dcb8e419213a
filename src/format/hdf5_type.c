/* hdf5_type.c - reads the types of elements and the shapes of arrays. See hdf5_parts.h. */
#include "core/checked.h"
#include "core/error.h"
#include "format/hdf5_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- types ------------------------------------------------------------------------------------ */

enum {
    CLASS_INT = 0,
    CLASS_FLOAT = 1,
    CLASS_STRING = 3,
    CLASS_ENUM = 8,
    CLASS_VARIABLE = 9,
    PADDED_WITH_SPACES = 2,
    NORMAL_IMPLIED = 2, /* floats: the first bit of the mantissa is 1 and not stored */
};

static const char *const class_names[] = {
    "integer",  "float",     "time",        "string",          "bitfield", "opaque",
    "compound", "reference", "enumeration", "variable-length", "array",    "complex",
};

/* Marks a type as one that cannot be read. */
static void set_other(gd_hdf5_type *t, const char *name) {
    t->kind = GD_HDF5_OTHER;
    t->dtype = GD_DTYPE_NONE;
    snprintf(t->name, sizeof t->name, "%s", name);
}

static void set_int(gd_hdf5_type *t, uint32_t bits) {
    t->kind = GD_HDF5_INT;
    t->is_signed = bits >> 3 & 1;
    t->big_endian = bits & 1;
    if (t->bytes < 1 || t->bytes > 8 || t->bits < 1 || t->first + t->bits > 8 * t->bytes) {
        char name[24];
        snprintf(name, sizeof name, "%d-bit integer", t->bits);
        set_other(t, name);
        return;
    }
    snprintf(t->name, sizeof t->name, "%c%d", t->is_signed ? 'i' : 'u', t->bits);
    if (t->bits <= 8) t->dtype = t->is_signed ? GD_I8 : GD_U8;
    else if (t->bits < 32 || (t->bits == 32 && t->is_signed)) t->dtype = GD_I32;
    else t->dtype = GD_I64;
}

/* The dtype whose bits are those of this float; otherwise the next wider one. */
static gd_dtype float_dtype(const gd_hdf5_type *t) {
    const int e = t->exponent_bits, m = t->mantissa_bits + !t->implied;
    if (e <= 5 && m <= 10) return GD_F16;
    if (e <= 8 && m <= 7) return GD_BF16;
    return e <= 8 && m <= 23 ? GD_F32 : GD_F64;
}

static void set_float(gd_hdf5_type *t, uint32_t bits) {
    const uint32_t size = 8 * t->bytes;
    const int normal = bits >> 4 & 3;
    t->kind = GD_HDF5_FLOAT;
    t->is_signed = true;
    t->big_endian = bits & 1;
    t->sign_at = (uint8_t)(bits >> 8);
    t->implied = normal == NORMAL_IMPLIED;
    snprintf(t->name, sizeof t->name, "f%d", t->bits);
    if (bits >> 6 & 1) set_other(t, "float of a VAX");
    else if (t->bytes < 1 || t->bytes > 16 || t->sign_at >= size || t->exponent_bits < 1 ||
             t->exponent_bits > 15 || t->mantissa_bits < 1 ||
             t->mantissa_bits > (t->implied ? 63 : 64) || normal > NORMAL_IMPLIED ||
             t->exponent_at + t->exponent_bits > size || t->mantissa_at + t->mantissa_bits > size) {
        char name[24];
        snprintf(name, sizeof name, "%d-bit float", t->bits);
        set_other(t, name);
    } else t->dtype = float_dtype(t);
}

static gd_status fail_type(const gd_hdf5_walk *walk, uint64_t address) {
    return gd_hdf5_fail_at(walk->file, address, "a type is damaged");
}

/* An enumeration is read as its integers, or as bools if it is {FALSE, TRUE}. The cursor is at its
 * base type. */
static gd_status read_enum(gd_hdf5_type *t, gd_hdf5_walk *walk, uint64_t address, int version,
                           uint32_t members, gd_hdf5_cursor *c) {
    gd_hdf5_type base;
    GD_TRY(gd_hdf5_type_read(&base, walk, address, c, false));
    if (base.kind != GD_HDF5_INT || base.bytes != t->bytes) return fail_type(walk, address);
    bool is_bool = members == 2 && base.bytes == 1;
    for (uint32_t i = 0; i < members; i++) {
        static const char *const names[] = {"FALSE", "TRUE"};
        const uint8_t *name = c->at, *zero = memchr(name, '\0', gd_hdf5_left(c));
        if (!zero) return fail_type(walk, address);
        const size_t length = (size_t)(zero - name) + 1;
        gd_hdf5_take_bytes(c, version < 3 ? (length + 7) / 8 * 8 : length);
        is_bool = is_bool && strcmp((const char *)name, names[i]) == 0;
    }
    const uint8_t *values = gd_hdf5_take_bytes(c, (uint64_t)members * base.bytes);
    if (!values) return fail_type(walk, address);
    *t = base;
    if (is_bool && values[0] == 0 && values[1] == 1) {
        t->dtype = GD_BOOL;
        snprintf(t->name, sizeof t->name, "bool");
    }
    return GD_OK;
}

/* The type of another object, or its place in a table that all objects share. */
static gd_status read_shared(gd_hdf5_type *out, gd_hdf5_walk *walk, uint64_t address,
                             gd_hdf5_cursor *c) {
    const int version = (int)gd_hdf5_take(c, 1), kind = (int)gd_hdf5_take(c, 1);
    if (version < 1 || version > 3) return fail_type(walk, address);
    if (version == 3 && kind == 1) { /* an ID of a heap */
        gd_hdf5_take_bytes(c, 8);
        set_other(out, "shared message");
        return c->ended ? fail_type(walk, address) : GD_OK;
    }
    if (version == 1) gd_hdf5_take_bytes(c, 6);
    const uint64_t where = gd_hdf5_take_address(c);
    if (c->ended) return fail_type(walk, address);
    gd_hdf5_header header;
    gd_hdf5_walk own = gd_hdf5_walk_begin(walk->file); /* many objects may share a type */
    GD_TRY(gd_hdf5_header_read(&header, &own, where));
    const gd_hdf5_message *m = gd_hdf5_find_message(&header, GD_HDF5_MESSAGE_TYPE);
    gd_status status = m && !(m->flags & GD_HDF5_MESSAGE_SHARED) ? GD_OK : fail_type(walk, where);
    if (status == GD_OK) {
        gd_hdf5_cursor type = gd_hdf5_message_cursor(walk->file, m);
        status = gd_hdf5_type_read(out, &own, where, &type, false);
    }
    gd_hdf5_header_free(&header);
    return status;
}

gd_status gd_hdf5_type_read(gd_hdf5_type *out, gd_hdf5_walk *walk, uint64_t address,
                            gd_hdf5_cursor *c, bool shared) {
    *out = (gd_hdf5_type){0};
    if (shared) return read_shared(out, walk, address, c);
    const uint32_t first = (uint32_t)gd_hdf5_take(c, 1), class = first & 15;
    const int version = (int)(first >> 4);
    const uint32_t bits = (uint32_t)gd_hdf5_take(c, 3);
    out->bytes = (uint32_t)gd_hdf5_take(c, 4);
    if (c->ended || version < 1 || version > 5 || out->bytes == 0) return fail_type(walk, address);
    if (class == CLASS_INT || class == CLASS_FLOAT) {
        out->first = (uint16_t)gd_hdf5_take(c, 2);
        out->bits = (uint16_t)gd_hdf5_take(c, 2);
        if (class == CLASS_FLOAT) {
            out->exponent_at = (uint8_t)gd_hdf5_take(c, 1);
            out->exponent_bits = (uint8_t)gd_hdf5_take(c, 1);
            out->mantissa_at = (uint8_t)gd_hdf5_take(c, 1);
            out->mantissa_bits = (uint8_t)gd_hdf5_take(c, 1);
            out->bias = (uint32_t)gd_hdf5_take(c, 4);
            set_float(out, bits);
        } else set_int(out, bits);
    } else if (class == CLASS_STRING || (class == CLASS_VARIABLE && (bits & 15) == 1)) {
        out->kind = GD_HDF5_STRING;
        out->variable = class == CLASS_VARIABLE;
        out->spaces = !out->variable && (bits & 15) == PADDED_WITH_SPACES;
        snprintf(out->name, sizeof out->name, "string");
        /* a length, the address of a collection, an index */
        if (out->variable && out->bytes != 8 + (uint32_t)c->file->offset_bytes)
            return fail_type(walk, address);
    } else if (class == CLASS_ENUM) {
        GD_TRY(read_enum(out, walk, address, version, bits & 0xffff, c));
    } else {
        set_other(out, class < sizeof class_names / sizeof *class_names ? class_names[class]
                                                                        : "unknown type");
    }
    return c->ended ? fail_type(walk, address) : GD_OK;
}

/* --- shapes ----------------------------------------------------------------------------------- */

/* Counts the elements; false if their bytes do not fit into 63 bits. */
static bool count_elements(gd_hdf5_shape *s, uint32_t element_bytes) {
    s->count = s->empty ? 0 : 1;
    for (int i = 0; i < s->rank; i++)
        if (s->dims[i] == 0) s->count = 0;
    int64_t bytes = 0;
    for (int i = 0; i < s->rank && s->count > 0; i++)
        if (!gd_mul_i64(s->count, s->dims[i], &s->count)) return false;
    return gd_mul_i64(s->count, element_bytes, &bytes);
}

gd_status gd_hdf5_shape_read(gd_hdf5_shape *out, uint64_t most[GD_HDF5_MAX_RANK], uint64_t address,
                             gd_hdf5_cursor *c, uint32_t element_bytes) {
    *out = (gd_hdf5_shape){0};
    const int version = (int)gd_hdf5_take(c, 1);
    out->rank = (int)gd_hdf5_take(c, 1);
    const int flags = (int)gd_hdf5_take(c, 1), kind = (int)gd_hdf5_take(c, 1);
    if (version == 1) gd_hdf5_take(c, 4);
    if ((version != 1 && version != 2) || out->rank > GD_HDF5_MAX_RANK ||
        (version == 2 && kind > 2))
        return gd_hdf5_fail_at(c->file, address, "a shape is damaged");
    out->empty = version == 2 && kind == 2;
    if (out->empty) out->rank = 0;
    for (int i = 0; i < out->rank; i++) {
        const uint64_t dim = gd_hdf5_take_length(c);
        if (dim > INT64_MAX) return gd_hdf5_fail_at(c->file, address, "a shape is too large");
        out->dims[i] = (int64_t)dim;
    }
    const uint64_t none = UINT64_MAX >> (64 - 8 * c->file->length_bytes);
    for (int i = 0; i < out->rank; i++) {
        const uint64_t dim = flags & 1 ? gd_hdf5_take_length(c) : (uint64_t)out->dims[i];
        if (most) most[i] = dim == none ? UINT64_MAX : dim;
    }
    if (c->ended) return gd_hdf5_fail_at(c->file, address, "a shape is damaged");
    if (!count_elements(out, element_bytes))
        return gd_hdf5_fail_at(c->file, address, "a shape is too large");
    return GD_OK;
}
