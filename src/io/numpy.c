/* numpy.c - tensors in and out of .npy and .npz files; see gradus/npy.h. */
#include "gradus/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/tensor.h"
#include "format/npy.h"
#include "format/stream.h"
#include "format/zip.h"
#include "ops/op.h"

/* --- element types ---------------------------------------------------------------------------- */

/* The dtype that holds all values of the file's items, or nearly: uint64 is looked at one by one. */
static gd_dtype dtype_for(const gd_npy_header *h) {
    switch (h->kind) {
    case GD_NPY_FLOAT: return h->itemsize == 2 ? GD_F16 : h->itemsize == 4 ? GD_F32 : GD_F64;
    case GD_NPY_INT: return h->itemsize == 1 ? GD_I8 : h->itemsize == 8 ? GD_I64 : GD_I32;
    case GD_NPY_UINT: return h->itemsize == 1 ? GD_U8 : h->itemsize == 2 ? GD_I32 : GD_I64;
    case GD_NPY_BOOL: return GD_BOOL;
    case GD_NPY_BFLOAT: return GD_BF16;
    }
    return GD_DTYPE_NONE;
}

static void describe_dtype(gd_dtype dtype, gd_npy_header *h) {
    h->itemsize = (int)gd_dtype_size(dtype);
    h->kind = dtype == GD_BOOL           ? GD_NPY_BOOL
              : dtype == GD_BF16         ? GD_NPY_BFLOAT
              : dtype == GD_U8           ? GD_NPY_UINT
              : gd_dtype_is_float(dtype) ? GD_NPY_FLOAT
                                         : GD_NPY_INT;
}

/* Items as they came from the file into elements of `dtype`, in place. There is room for the
 * elements, which are at least as wide, so it goes from the last to the first. */
static gd_status to_elements(const char *name, const gd_npy_header *h, gd_dtype dtype, void *items,
                             int64_t count) {
    if (h->swapped) gd_npy_swap(items, (size_t)count, h->itemsize);
    uint8_t *bytes = items;
    if (h->kind == GD_NPY_BOOL) /* a bool with another value than 0 and 1 would be neither */
        for (int64_t i = 0; i < count; i++) bytes[i] = bytes[i] != 0;
    if (h->kind == GD_NPY_INT && h->itemsize == 2)
        for (int64_t i = count; i-- > 0;) {
            int16_t v;
            memcpy(&v, bytes + 2 * i, sizeof v);
            gd_store_i64(dtype, bytes + 4 * i, v);
        }
    if (h->kind != GD_NPY_UINT || h->itemsize == 1) return GD_OK;
    int width = (int)gd_dtype_size(dtype);
    for (int64_t i = count; i-- > 0;) {
        const uint8_t *from = bytes + h->itemsize * i;
        uint16_t v2;
        uint32_t v4;
        uint64_t v = 0;
        if (h->itemsize == 2) memcpy(&v2, from, sizeof v2), v = v2;
        else if (h->itemsize == 4) memcpy(&v4, from, sizeof v4), v = v4;
        else memcpy(&v, from, sizeof v);
        if (v > INT64_MAX)
            return gd_fail(GD_E_UNSUPPORTED,
                           "%s: item %" PRId64 " is %" PRIu64
                           ", an uint64 that no dtype here holds",
                           name, i, v);
        gd_store_i64(dtype, bytes + width * i, (int64_t)v);
    }
    return GD_OK;
}

/* --- loading one array ------------------------------------------------------------------------ */

/* Where an array comes from: a file, or an entry of an archive. */
typedef struct source {
    const char *name;
    uint64_t bytes; /* its length; of a gzip file, what it cannot exceed */
    gd_stream *file;
    gd_zip_stream *entry; /* or NULL */
} source;

static gd_status source_read(void *user, void *buffer, size_t bytes) {
    source *s = user;
    if (s->entry) return gd_zip_stream_read(s->entry, buffer, bytes);
    return gd_stream_take(s->file, buffer, bytes, "a .npy file");
}

/* Reads what is behind the items, so that the checksum of an archive or a gzip file is compared. */
static gd_status source_finish(source *s, const gd_npy_header *h) {
    char rest[4096];
    for (uint64_t left = s->entry ? s->bytes - h->data_offset - h->data_bytes : 0; left > 0;) {
        size_t part = left < sizeof rest ? (size_t)left : sizeof rest;
        GD_TRY(gd_zip_stream_read(s->entry, rest, part));
        left -= part;
    }
    for (size_t got = s->file && gd_stream_is_gzip(s->file); got > 0;)
        GD_TRY(gd_stream_read(s->file, rest, sizeof rest, &got));
    return GD_OK;
}

/* Reads the items into `elements`, row-major, using `scratch` where their order is another one. */
static gd_status read_elements(source *s, const gd_npy_header *h, const gd_tensor *t,
                               void *elements, void *scratch) {
    int64_t count = gd_numel(t->rank, t->dims);
    gd_dtype dtype = (gd_dtype)t->dtype;
    void *to = scratch ? scratch : elements;
    if (h->data_bytes > 0) GD_TRY(source_read(s, to, (size_t)h->data_bytes));
    GD_TRY(source_finish(s, h));
    if (count == 0) return GD_OK;
    GD_TRY(to_elements(s->name, h, dtype, to, count));
    if (!scratch) return GD_OK;
    gd_view row_major = gd_view_of(t);
    row_major.data = elements;
    gd_view column_major = row_major;
    column_major.data = scratch;
    for (int64_t k = 0, step = 1; k < t->rank; step *= t->dims[k++]) column_major.strides[k] = step;
    gd_copy_elements(&row_major, &column_major);
    return GD_OK;
}

static gd_status load_into(source *s, const gd_npy_header *h, gd_tensor *t) {
    size_t bytes = (size_t)gd_numel(t->rank, t->dims) * gd_dtype_bytes(t->dtype);
    void *elements = gd_data(t), *staged = NULL, *scratch = NULL;
    gd_status status = GD_OK;
    if (bytes > 0 && !elements) elements = staged = gd_malloc(bytes); /* not the CPU's memory */
    if (bytes > 0 && h->fortran && h->rank > 1) scratch = gd_malloc(bytes);
    if (bytes > 0 && (!elements || (h->fortran && h->rank > 1 && !scratch)))
        status = gd_fail(GD_E_MEMORY, "%s: no memory for its %zu bytes", s->name, bytes);
    if (status == GD_OK) status = read_elements(s, h, t, elements, scratch);
    if (status == GD_OK && staged) status = gd_copy_in(t, staged, bytes);
    gd_free(staged);
    gd_free(scratch);
    return status;
}

static gd_status load(source *s, gd_tensor **out) {
    gd_npy_header h;
    GD_TRY(gd_npy_read_header(&h, s->name, s->bytes, source_read, s));
    if (h.rank > GD_MAX_RANK)
        return gd_fail(GD_E_UNSUPPORTED, "%s: has %d dimensions; at most %d are possible here",
                       s->name, h.rank, GD_MAX_RANK);
    gd_tensor *t = gd_empty(gd_shape_of(h.rank, h.dims), dtype_for(&h));
    if (gd_tensor_is_error(t)) return gd_this_thread.noted;
    *out = t;
    return load_into(s, &h, t);
}

/* The tensor, handed to the caller's scope, or the error tensor. */
static gd_tensor *load_or_fail(source *s) {
    gd_tensor *t = NULL;
    gd_scope *scope = gd_scope_open(); /* owns the tensor until it is complete */
    gd_status status = load(s, &t);
    if (status == GD_OK) gd_keep(t);
    gd_scope_close(&scope);
    return status == GD_OK ? t : gd_tensor_fail(status);
}

gd_tensor *gd_load_npy_at(const char *site, const char *path) {
    GD_CALLED_FROM(site);
    if (!path) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_load_npy: path is NULL"));
    gd_stream *file;
    gd_status status = gd_stream_open(&file, path);
    if (status != GD_OK) return gd_tensor_fail(status);
    source s = {.name = path, .bytes = gd_stream_most(file), .file = file};
    gd_tensor *t = load_or_fail(&s);
    gd_stream_close(file);
    return t;
}

/* --- saving one array ------------------------------------------------------------------------- */

typedef gd_status (*write_fn)(void *target, const void *data, size_t bytes);

static gd_status check_savable(const gd_tensor *t, const char *what) {
    if (!t) return gd_fail(GD_E_ARGUMENT, "%s: the tensor is NULL", what);
    if (t->kind == GD_VALUE) return GD_OK;
    return gd_fail(GD_E_STATE, "%s: the tensor has no value to save", what);
}

static gd_status save(const gd_tensor *t, write_fn write, void *target) {
    gd_npy_header h = {.rank = t->rank};
    uint8_t head[GD_NPY_MAX_HEADER];
    size_t head_bytes;
    memcpy(h.dims, t->dims, sizeof *h.dims * t->rank);
    describe_dtype((gd_dtype)t->dtype, &h);
    GD_TRY(gd_npy_make_header(&h, head, &head_bytes));
    GD_TRY(write(target, head, head_bytes));
    size_t bytes = (size_t)h.data_bytes;
    if (bytes == 0) return GD_OK;
    if (gd_data(t) && gd_is_row_major(t->rank, t->dims, t->strides))
        return write(target, gd_data(t), bytes);
    void *copy = gd_malloc(bytes);
    if (!copy) return gd_fail(GD_E_MEMORY, "no memory to gather %zu bytes of a tensor", bytes);
    gd_status status = gd_copy_out(t, copy, bytes);
    if (status == GD_OK) status = write(target, copy, bytes);
    gd_free(copy);
    return status;
}

static gd_status write_file(void *target, const void *data, size_t bytes) {
    return gd_file_writer_write(target, data, bytes);
}
static gd_status write_entry(void *target, const void *data, size_t bytes) {
    return gd_zip_writer_write(target, data, bytes);
}

static gd_status save_npy(const char *path, const gd_tensor *t) {
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_save_npy: path is NULL");
    GD_TRY(check_savable(t, path));
    gd_file_writer *file;
    GD_TRY(gd_file_writer_begin(&file, path));
    gd_status status = save(t, write_file, file);
    if (status == GD_OK) return gd_file_writer_commit(file);
    gd_file_writer_cancel(file);
    return status;
}

gd_status gd_save_npy_at(const char *site, const char *path, const gd_tensor *t) {
    if (gd_failed()) return gd_error_status(); /* half a program's results are none */
    return gd_report(site, save_npy(path, t));
}

/* --- archives --------------------------------------------------------------------------------- */

static const char suffix[] = ".npy";
enum { SUFFIX = sizeof suffix - 1 };

static gd_status save_entry(gd_zip_writer *zip, const char *name, const gd_tensor *t) {
    size_t length = strlen(name);
    char *entry = gd_malloc(length + sizeof suffix);
    if (!entry) return gd_fail(GD_E_MEMORY, "no memory for the name of an array");
    memcpy(entry, name, length);
    memcpy(entry + length, suffix, sizeof suffix);
    gd_status status = gd_zip_writer_entry(zip, entry);
    gd_free(entry);
    return status == GD_OK ? save(t, write_entry, zip) : status;
}

static gd_status save_npz(const char *path, const char *const *names, gd_tensors tensors) {
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_save_npz: path is NULL");
    if (tensors.count < 0 || (tensors.count > 0 && (!names || !tensors.at)))
        return gd_fail(GD_E_ARGUMENT,
                       "%s: the names or the tensors are NULL, or their number is negative", path);
    for (int64_t i = 0; i < tensors.count; i++) {
        if (!names[i] || !*names[i])
            return gd_fail(GD_E_ARGUMENT, "%s: tensor %" PRId64 " has no name", path, i);
        for (int64_t k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0)
                return gd_fail(GD_E_ARGUMENT, "%s: two tensors are named '%s'", path, names[i]);
        GD_TRY(check_savable(tensors.at[i], names[i]));
    }
    gd_zip_writer *zip;
    GD_TRY(gd_zip_writer_begin(&zip, path));
    gd_status status = GD_OK;
    for (int64_t i = 0; i < tensors.count && status == GD_OK; i++)
        status = save_entry(zip, names[i], tensors.at[i]);
    if (status == GD_OK) return gd_zip_writer_commit(zip);
    gd_zip_writer_cancel(zip);
    return status;
}

gd_status gd_save_npz_at(const char *site, const char *path, const char *const *names,
                         gd_tensors tensors) {
    if (gd_failed()) return gd_error_status();
    return gd_report(site, save_npz(path, names, tensors));
}

struct gd_npz {
    gd_object object;
    gd_file_reader *file;
    gd_zip_reader *zip;
    int64_t count;
    const gd_zip_entry **entries; /* those whose name ends in .npy */
    char **names;                 /* without it */
};

static void npz_destroy(gd_object *object) {
    gd_npz *npz = (gd_npz *)object;
    for (int64_t i = 0; i < npz->count; i++) gd_free(npz->names[i]);
    gd_free(npz->names);
    gd_free(npz->entries);
    gd_zip_reader_close(npz->zip);
    gd_file_reader_close(npz->file);
    gd_free(npz);
    gd_object_count(-1);
}
static const gd_class npz_class = {.name = "npz", .destroy = npz_destroy};

static gd_status list_entries(gd_npz *npz) {
    size_t all = gd_zip_reader_count(npz->zip);
    npz->entries = gd_calloc(all + 1, sizeof *npz->entries);
    npz->names = gd_calloc(all + 1, sizeof *npz->names);
    if (!npz->entries || !npz->names) return gd_fail(GD_E_MEMORY, "no memory for %zu entries", all);
    for (size_t i = 0; i < all; i++) {
        const gd_zip_entry *entry = gd_zip_reader_at(npz->zip, i);
        size_t length = strlen(entry->name);
        if (length < SUFFIX || strcmp(entry->name + length - SUFFIX, suffix) != 0) continue;
        char *name = gd_malloc(length - SUFFIX + 1);
        if (!name) return gd_fail(GD_E_MEMORY, "no memory for the names of %zu entries", all);
        memcpy(name, entry->name, length - SUFFIX);
        name[length - SUFFIX] = 0;
        npz->entries[npz->count] = entry;
        npz->names[npz->count++] = name;
    }
    return GD_OK;
}

/* Owned by the caller; NULL, with the failure noted. */
static gd_npz *open_npz(const char *path, gd_status *status) {
    gd_npz *npz = gd_calloc(1, sizeof *npz);
    if (!npz) {
        *status = gd_fail(GD_E_MEMORY, "%s: no memory to open it", path);
        return NULL;
    }
    gd_object_init(&npz->object, &npz_class);
    gd_object_count(1);
    *status = gd_file_reader_open(&npz->file, path);
    if (*status == GD_OK) *status = gd_zip_reader_open(&npz->zip, npz->file);
    if (*status == GD_OK) *status = list_entries(npz);
    if (*status == GD_OK) return npz;
    gd_object_release(&npz->object);
    return NULL;
}

gd_npz *gd_npz_open_at(const char *site, const char *path) {
    GD_CALLED_FROM(site);
    gd_status status =
        path ? gd_scope_reserve(1) : gd_fail(GD_E_ARGUMENT, "gd_npz_open: path is NULL");
    gd_npz *npz = status == GD_OK ? open_npz(path, &status) : NULL;
    if (npz) gd_scope_adopt(&npz->object);
    else gd_error_stick(status);
    return npz;
}

int64_t gd_npz_count(const gd_npz *npz) { return npz ? npz->count : 0; }

const char *gd_npz_name(const gd_npz *npz, int64_t i) {
    return npz && i >= 0 && i < npz->count ? npz->names[i] : NULL;
}

/* The last of that name, as NumPy has it; -1 where there is none. */
static int64_t find_name(const gd_npz *npz, const char *name) {
    for (int64_t i = npz->count; i-- > 0;)
        if (strcmp(npz->names[i], name) == 0) return i;
    return -1;
}

bool gd_npz_has(const gd_npz *npz, const char *name) {
    return npz && name && find_name(npz, name) >= 0;
}

static gd_tensor *load_at(const gd_npz *npz, int64_t i) {
    source s = {.bytes = npz->entries[i]->bytes};
    gd_status status = gd_zip_stream_open(&s.entry, npz->zip, npz->entries[i]);
    if (status != GD_OK) return gd_tensor_fail(status);
    s.name = gd_zip_stream_name(s.entry);
    gd_tensor *t = load_or_fail(&s);
    gd_zip_stream_close(s.entry);
    return t;
}

/* "weight, bias" for a message; a long list is cut. */
static const char *name_list(const gd_npz *npz, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int64_t i = 0; i < npz->count && used + 1 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", npz->names[i]);
    if (used >= size) memcpy(text + size - 4, "...", 4);
    return text;
}

gd_tensor *gd_npz_load_at(const char *site, const gd_npz *npz, const char *name) {
    GD_CALLED_FROM(site);
    char text[400];
    if (!npz) /* the failure to open it is recorded already */
        return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_npz_load: no file"));
    int64_t i = name ? find_name(npz, name) : -1;
    if (i < 0)
        return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "%s: has no array '%s'; it has %s",
                                      gd_file_reader_path(npz->file), name ? name : "(NULL)",
                                      npz->count ? name_list(npz, text, sizeof text) : "none"));
    return load_at(npz, i);
}

gd_tensors gd_npz_load_all_at(const char *site, const gd_npz *npz) {
    GD_CALLED_FROM(site);
    gd_tensor **tensors = npz ? gd_list_new(npz->count) : NULL;
    if (!tensors) {
        gd_error_stick(npz ? GD_E_MEMORY : gd_fail(GD_E_ARGUMENT, "gd_npz_load_all: no file"));
        return gd_list_of_errors(npz ? npz->count : 0);
    }
    for (int64_t i = 0; i < npz->count; i++) {
        tensors[i] = load_at(npz, i);
        if (tensors[i]->kind != GD_FAILED) continue;
        /* without a scope what came before is the caller's, who will not see it */
        if (gd_this_thread.depth == 0) gd_release_list((gd_tensors){tensors, i});
        return gd_list_of_errors(npz->count);
    }
    return (gd_tensors){tensors, npz->count};
}

gd_tensor *gd_load_npz_at(const char *site, const char *path, const char *name) {
    GD_CALLED_FROM(site);
    gd_status status;
    if (!path) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_load_npz: path is NULL"));
    gd_npz *npz = open_npz(path, &status);
    if (!npz) return gd_tensor_fail(status);
    gd_tensor *t = gd_npz_load(npz, name);
    gd_release(npz);
    return t;
}
