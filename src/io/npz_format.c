/* npz_format.c - states in NumPy's .npz files, for state_format.h. Entries may be compressed, so an
 * array is decompressed as a whole, and one is kept at a time. */
#include <string.h>

#include "core/alloc.h"
#include "io/numpy.h"
#include "io/state_format.h"

static const char suffix[] = ".npy";
enum { SUFFIX = sizeof suffix - 1 };

typedef struct npz npz;

typedef struct array {
    npz *of;
    const gd_zip_entry *entry;
    char *name; /* without .npy */
    gd_npy_header header;
} array;

struct npz {
    const gd_zip_reader *zip;
    array *arrays;
    size_t count;
    const array *kept; /* whose elements are in memory; NULL: none */
    void *elements;
};

static bool is_npy(const char *name) {
    const size_t length = strlen(name);
    return length > SUFFIX && strcmp(name + length - SUFFIX, suffix) == 0;
}

static bool matches(const gd_state_probe *p) {
    const size_t count = p->zip ? gd_zip_reader_count(p->zip) : 0;
    for (size_t i = 0; i < count; i++)
        if (!is_npy(gd_zip_reader_at(p->zip, i)->name)) return false;
    return count > 0;
}

static gd_status open_array(gd_state_list *list, array *a) {
    gd_npy_source s = {.bytes = a->entry->bytes};
    GD_TRY(gd_zip_stream_open(&s.entry, list->zip, a->entry));
    s.name = gd_zip_stream_name(s.entry);
    gd_status status = gd_npy_open(&s, &a->header);
    gd_zip_stream_close(s.entry);
    if (status != GD_OK && status != GD_E_UNSUPPORTED) return status;
    gd_source_tensor t = {.name = a->name,
                          .rank = -1,
                          .dtype_name = "a dtype of NumPy that no tensor has",
                          .file = a};
    if (status == GD_OK) {
        t.dtype = gd_npy_dtype(&a->header);
        t.dtype_name = gd_dtype_name(t.dtype);
        t.rank = a->header.rank;
        t.dims = a->header.dims;
    }
    return gd_state_list_tensor(list, t);
}

static gd_status open_npz(gd_state_list *list) {
    const size_t count = gd_zip_reader_count(list->zip);
    npz *n = list->data = gd_calloc(1, sizeof *n);
    if (n) n->arrays = gd_calloc(count + 1, sizeof *n->arrays);
    if (!n || !n->arrays) return gd_no_memory(list->path, "to save or load a state");
    n->zip = list->zip;
    for (size_t i = 0; i < count; i++) {
        array *a = &n->arrays[n->count++];
        *a = (array){.of = n, .entry = gd_zip_reader_at(list->zip, i)};
        const size_t length = strlen(a->entry->name) - SUFFIX;
        a->name = gd_malloc(length + 1);
        if (!a->name) return gd_no_memory(list->path, "to save or load a state");
        memcpy(a->name, a->entry->name, length);
        a->name[length] = 0;
        GD_TRY(open_array(list, a));
    }
    return GD_OK;
}

/* Decompresses an array, whose checksum is compared. */
static gd_status keep(npz *n, const array *a) {
    const gd_npy_header *h = &a->header;
    gd_npy_header again;
    gd_npy_source s = {.bytes = a->entry->bytes};
    if (n->kept == a) return GD_OK;
    gd_free(n->elements);
    n->kept = NULL;
    n->elements =
        gd_malloc((size_t)gd_numel(h->rank, h->dims) * gd_dtype_bytes(gd_npy_dtype(h)) + 1);
    if (!n->elements) return gd_no_memory(a->entry->name, "for the elements of an array");
    GD_TRY(gd_zip_stream_open(&s.entry, n->zip, a->entry));
    s.name = gd_zip_stream_name(s.entry);
    gd_status status = gd_npy_open(&s, &again);
    if (status == GD_OK && memcmp(again.dims, h->dims, sizeof h->dims) != 0)
        status = gd_fail(GD_E_FORMAT, "%s: has changed while it was read", s.name);
    if (status == GD_OK) status = gd_npy_read_elements(&s, h, n->elements);
    gd_zip_stream_close(s.entry);
    if (status == GD_OK) n->kept = a;
    return status;
}

static gd_status read_elements(const void *file, uint64_t begin, void *to, size_t bytes) {
    const array *a = file;
    GD_TRY(keep(a->of, a));
    memcpy(to, (const char *)a->of->elements + begin, bytes);
    return GD_OK;
}

static void close_npz(void *data) {
    npz *n = data;
    if (!n) return;
    for (size_t i = 0; i < n->count; i++) gd_free(n->arrays[i].name);
    gd_free(n->arrays);
    gd_free(n->elements);
    gd_free(n);
}

const gd_state_format gd_npz_format = {"a .npz file of NumPy", matches, open_npz, read_elements,
                                       close_npz};
