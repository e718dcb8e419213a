/* pytorch_format.c - states in files of PyTorch, for state_format.h.
 *
 * An archive (since PyTorch 1.6; TorchScript since 1.4) is a ZIP file with NAME/data.pkl, the object,
 * NAME/data/KEY, the elements of its storages, and since 2.1 NAME/byteorder. Before that a file was
 * a sequence of pickles: a magic number, the version 1001, information about the system, the object,
 * the keys of its storages; then for each key the number of elements in 8 bytes, and the elements.
 *
 * Order: memory; archives; the older form; the format.
 */
#include "io/pytorch.h"

#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "format/bytes.h"

/* The magic number, as LONG1 of 10 bytes. */
static const char magic[] = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
enum { MAGIC = sizeof magic - 1, VERSION = 1001, FIRST_READ = 1 << 16 };

gd_status gd_torch_no_memory(const gd_torch *t) {
    return gd_no_memory(t->list->path, "to save or load a state");
}

/* --- archives --------------------------------------------------------------------------------- */

/* The length of the folder that a name "FOLDER/data.pkl" has; -1: it is another name. */
static long folder_of(const char *name) {
    static const char file[] = "data.pkl";
    const size_t length = strlen(name), n = sizeof file - 1;
    if (length < n || strcmp(name + length - n, file) != 0) return -1;
    if (length > n && name[length - n - 1] != '/') return -1;
    return (long)(length - n);
}

/* The entry data.pkl of the outermost folder; NULL: there is none. */
static const gd_zip_entry *find_object(const gd_zip_reader *zip) {
    const gd_zip_entry *best = NULL;
    for (size_t i = 0; i < gd_zip_reader_count(zip); i++) {
        const gd_zip_entry *e = gd_zip_reader_at(zip, i);
        if (folder_of(e->name) >= 0 && (!best || strlen(e->name) < strlen(best->name))) best = e;
    }
    return best;
}

/* The position of an entry's bytes in the file. */
static gd_status locate(const gd_torch *t, const gd_zip_entry *entry, uint64_t *begin) {
    gd_zip_stream *s;
    if (entry->method != 0)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: '%s' in it is compressed, which PyTorch does not do; unpack the "
                       "archive, and pack it again with 'zip -0'",
                       t->list->path, entry->name);
    GD_TRY(gd_zip_stream_open(&s, t->list->zip, entry));
    *begin = gd_zip_stream_offset(s);
    gd_zip_stream_close(s);
    return GD_OK;
}

/* The entry FOLDER NAME KEY; NULL, with a latest failure if *status is one: there is none. */
static const gd_zip_entry *find_entry(const gd_torch *t, const char *name, const char *key,
                                      gd_status *status) {
    const size_t a = strlen(t->folder), b = strlen(name), c = strlen(key);
    char *path = gd_malloc(a + b + c + 1);
    *status = path ? GD_OK : gd_torch_no_memory(t);
    if (!path) return NULL;
    memcpy(path, t->folder, a);
    memcpy(path + a, name, b);
    memcpy(path + a + b, key, c + 1);
    const gd_zip_entry *e = gd_name_map_find(&t->entries, path);
    gd_free(path);
    return e;
}

gd_status gd_torch_find_storage(gd_torch *t, gd_torch_storage *s) {
    gd_status status = GD_OK;
    if (s->found) return GD_OK;
    const gd_zip_entry *e = t->folder ? find_entry(t, "data/", s->key, &status) : NULL;
    GD_TRY(status);
    if (!e)
        return gd_fail(GD_E_FORMAT, "%s: the storage '%.100s' of a tensor is missing",
                       t->list->path, s->key);
    GD_TRY(locate(t, e, &s->begin));
    s->bytes = e->bytes;
    s->found = true;
    return GD_OK;
}

static gd_status read_byte_order(gd_torch *t) {
    char text[4] = "";
    uint64_t begin;
    gd_status status;
    const gd_zip_entry *e = find_entry(t, "byteorder", "", &status);
    if (!e) return status;
    GD_TRY(locate(t, e, &begin));
    if (e->bytes >= 3) GD_TRY(gd_file_reader_read_at(t->list->file, begin, text, 3));
    t->is_big_endian = strcmp(text, "big") == 0;
    return GD_OK;
}

static gd_status index_entries(gd_torch *t) {
    for (size_t i = 0; i < gd_zip_reader_count(t->list->zip); i++) {
        const gd_zip_entry *e = gd_zip_reader_at(t->list->zip, i);
        if (gd_name_map_find(&t->entries, e->name))
            return gd_fail(GD_E_FORMAT, "%s: two entries are named '%.200s'", t->list->path,
                           e->name);
        if (!gd_name_map_add(&t->entries, e->name, (void *)(uintptr_t)e))
            return gd_torch_no_memory(t);
    }
    return GD_OK;
}

static gd_status open_archive(gd_torch *t) {
    const gd_zip_entry *object = find_object(t->list->zip);
    const size_t folder = (size_t)folder_of(object->name);
    uint64_t begin;
    GD_TRY(index_entries(t));
    if (!(t->folder = gd_calloc(1, folder + 1))) return gd_torch_no_memory(t);
    memcpy(t->folder, object->name, folder);
    GD_TRY(read_byte_order(t));
    GD_TRY(locate(t, object, &begin));
    if (!(t->text = gd_malloc((size_t)object->bytes + 1))) return gd_torch_no_memory(t);
    GD_TRY(gd_file_reader_read_at(t->list->file, begin, t->text, (size_t)object->bytes));
    return gd_pickle_read(&t->pickle, t->list->path, t->text, (size_t)object->bytes, begin, NULL);
}

/* --- the older form --------------------------------------------------------------------------- */

/* What stands before the storages. */
typedef struct older {
    gd_pickle pickles[5]; /* magic, version, system, object, keys */
    size_t end;           /* of the last one */
} older;

static void free_pickles(older *o) {
    for (int i = 0; i < 5; i++) gd_pickle_free(&o->pickles[i]);
}

/* Reads as much of the file as the pickles need, twice as much each time. */
static gd_status read_pickles(gd_torch *t, older *o) {
    const uint64_t size = gd_file_reader_size(t->list->file);
    bool cut = true;
    gd_status status = GD_OK;
    for (size_t room = FIRST_READ; cut; room *= 2) {
        const size_t bytes = room < size ? room : (size_t)size;
        gd_free(t->text);
        if (!(t->text = gd_malloc(bytes + 1))) return gd_torch_no_memory(t);
        GD_TRY(gd_file_reader_read_at(t->list->file, 0, t->text, bytes));
        *o = (older){0};
        cut = false;
        for (int i = 0; i < 5 && status == GD_OK; i++) {
            status = gd_pickle_read(&o->pickles[i], t->list->path, t->text + o->end, bytes - o->end,
                                    o->end, &cut);
            o->end += o->pickles[i].bytes;
        }
        if (!cut || bytes == size) break;
        free_pickles(o);
        status = GD_OK;
    }
    if (status != GD_OK && cut)
        gd_error_suffix("; was the download or the copy cut? Get the file again");
    return status;
}

/* Finds each storage: their keys are in the order of their bytes. */
static gd_status place_storages(gd_torch *t, const gd_pickle_value *keys, uint64_t at) {
    const uint64_t size = gd_file_reader_size(t->list->file);
    for (size_t i = 0; i < keys->count; i++) {
        const gd_pickle_value *key = keys->items[i];
        uint8_t count[8];
        gd_torch_storage *s = NULL;
        char name[300];
        if (key->type == GD_PICKLE_TEXT && key->text.length < sizeof name &&
            !memchr(key->text.at, 0, key->text.length)) {
            memcpy(name, key->text.at, key->text.length);
            name[key->text.length] = 0;
            s = gd_name_map_find(&t->storages, name);
        }
        if (!s)
            return gd_fail(GD_E_FORMAT, "%s: storage %zu in the list belongs to no tensor",
                           t->list->path, i);
        if (size - at < 8 || s->found)
            return gd_fail(GD_E_FORMAT, "%s: ends before its storage %zu of %zu (truncated?)",
                           t->list->path, i, keys->count);
        GD_TRY(gd_file_reader_read_at(t->list->file, at, count, 8));
        s->begin = at += 8;
        s->found = true;
        if (!gd_mul_u64(gd_get_u64(count), s->dtype ? (uint64_t)s->dtype->size : 1, &s->bytes) ||
            s->bytes > size - at)
            return gd_fail(GD_E_FORMAT,
                           "%s: its storage %zu of %zu has %" PRIu64
                           " elements, but the file ends after %" PRIu64 " bytes of it; was the "
                           "download or the copy cut? Get the file again",
                           t->list->path, i, keys->count, gd_get_u64(count), size - at);
        at += s->bytes;
    }
    return GD_OK;
}

static gd_status check_older(gd_torch *t, const older *o) {
    int64_t version;
    if (!gd_torch_integer(o->pickles[1].root, &version) || version != VERSION)
        return gd_fail(GD_E_UNSUPPORTED, "%s: is a file of PyTorch of a version that is not known",
                       t->list->path);
    if (o->pickles[4].root->type != GD_PICKLE_LIST)
        return gd_fail(GD_E_FORMAT, "%s: the list of its storages is %s", t->list->path,
                       gd_pickle_type_name(o->pickles[4].root));
    return GD_OK;
}

static gd_status open_older(gd_torch *t) {
    older o = {0};
    gd_torch_storage *s;
    gd_status status = read_pickles(t, &o);
    if (status == GD_OK) status = check_older(t, &o);
    if (status == GD_OK) {
        t->pickle = o.pickles[3];
        o.pickles[3] = (gd_pickle){0};
        for (size_t i = 0; i < t->pickle.n_persistent && status == GD_OK; i++)
            status = gd_torch_storage_of(t, t->pickle.persistent[i], &s);
        if (status == GD_OK) status = place_storages(t, o.pickles[4].root, o.end);
    }
    free_pickles(&o);
    return status;
}

/* --- the format ------------------------------------------------------------------------------- */

/* A pickle of protocol 2 or later, perhaps in a frame, with the magic number. */
static bool is_older(const gd_state_probe *p) {
    size_t at = 2;
    if (p->n_first < 32 || p->first[0] != 0x80 || p->first[1] < 2 || p->first[1] > 5) return false;
    if (p->first[at] == 0x95) at += 9;
    return memcmp(p->first + at, magic, MAGIC) == 0;
}

static bool matches(const gd_state_probe *p) {
    if (p->is_folder) return false;
    return p->zip ? find_object(p->zip) != NULL : is_older(p);
}

static gd_status open_file(gd_state_list *list) {
    gd_torch *t = list->data = gd_calloc(1, sizeof *t);
    if (!t) return gd_no_memory(list->path, "to save or load a state");
    t->list = list;
    GD_TRY(list->zip ? open_archive(t) : open_older(t));
    /* new tensors may share storages, but not without end */
    list->source.most_bytes = 16 * gd_file_reader_size(list->file) + (1 << 20);
    return gd_torch_walk(t);
}

static void close_file(void *data) {
    gd_torch *t = data;
    if (!t) return;
    gd_pickle_free(&t->pickle);
    gd_name_map_free(&t->storages);
    gd_name_map_free(&t->entries);
    gd_free(t->text);
    gd_free(t->folder);
    gd_free(t->elements);
    gd_free(t);
}

const gd_state_format gd_pytorch_format = {"a file of PyTorch", matches, open_file, gd_torch_read,
                                           close_file};
