/* dataset_tokens.c - windows of token ids in files, from which each sample is read. */
#include <glob.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "data/folder.h"
#include "data/token_windows.h"
#include "format/npy.h"
#include "format/stream.h"
#include "gradus/datasets.h"

/*dataset tokens(path:string, length:int)
 * Files of token ids, cut into windows of `length` tokens that may begin in one file and end in
 * the next. `path` is a file, a folder, or a pattern such as 'data/train_*.bin'; several files are
 * read in the order of their names. A sample is read from the files when it is needed; gzipped
 * files are unpacked into memory. .npy files have a type; others are raw and little-endian.
 * Samples: ids, i64 (length), and as target the same shifted by one token.
 *   type {uint16, int32} = uint16   of files that are not .npy
 *   skip int = 0                    bytes of a header at the start of each such file
 *   stride int = 0                  distance between the starts of two samples; 0: length
 *   vocabulary int = 0              ids must be below this; 0: not checked
 */
typedef struct shards {
    gd_token_windows windows;
    gd_file_reader **files; /* one for each piece */
    char **unpacked;        /* the contents of a gzipped file; otherwise NULL */
    char **names;
    int count;
} shards;

static gd_status tokens_check(const void *options) {
    const gd_dataset_tokens_options *o = options;
    GD_TRY(gd_check_path(o->path, "path"));
    if (o->skip < 0)
        return gd_fail(GD_E_ARGUMENT, "skip is %lld; it must be at least 0", (long long)o->skip);
    if (o->vocabulary < 0)
        return gd_fail(GD_E_ARGUMENT, "vocabulary is %lld; it must be at least 0",
                       (long long)o->vocabulary);
    return gd_check_lengths(o->length, o->stride);
}

static gd_status add_name(shards *s, const char *folder, const char *name) {
    char *path = folder ? gd_folder_join(folder, name) : gd_malloc(strlen(name) + 1);
    if (!path) return gd_no_memory(NULL, "for a dataset");
    s->names[s->count++] = folder ? path : strcpy(path, name);
    return GD_OK;
}

static gd_status allocate_shards(shards *s, size_t count) {
    s->names = gd_calloc(count + 1, sizeof *s->names);
    s->files = gd_calloc(count + 1, sizeof *s->files);
    s->unpacked = gd_calloc(count + 1, sizeof *s->unpacked);
    s->windows.pieces = gd_calloc(count + 1, sizeof *s->windows.pieces);
    return s->names && s->files && s->unpacked && s->windows.pieces
               ? GD_OK
               : gd_no_memory(NULL, "for a dataset");
}

static gd_status list_folder(shards *s, const char *path) {
    gd_folder in;
    GD_TRY(gd_folder_read(&in, path));
    gd_status status = allocate_shards(s, (size_t)in.count);
    for (int i = 0; i < in.count && status == GD_OK; i++)
        if (!in.is_folder[i]) status = add_name(s, path, in.names[i]);
    gd_folder_free(&in);
    if (status == GD_OK && s->count == 0) status = gd_fail(GD_E_IO, "%s: has no files", path);
    return status;
}

static gd_status list_pattern(shards *s, const char *pattern) {
    glob_t found = {0};
    const int result = glob(pattern, 0, NULL, &found);
    gd_status status =
        result == 0 && found.gl_pathc < INT_MAX ? allocate_shards(s, found.gl_pathc)
        : result == GLOB_NOSPACE
            ? gd_no_memory(NULL, "for a dataset")
            : gd_fail(GD_E_IO, "%s: there is no such file, and no file matches it as a pattern",
                      pattern);
    for (size_t i = 0; status == GD_OK && i < found.gl_pathc; i++)
        status = add_name(s, NULL, found.gl_pathv[i]);
    globfree(&found);
    return status;
}

static gd_status list_files(shards *s, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return list_pattern(s, path);
    if (S_ISDIR(info.st_mode)) return list_folder(s, path);
    GD_TRY(allocate_shards(s, 1));
    return add_name(s, NULL, path);
}

/* Opens or decompresses file `i`. */
static gd_status open_bytes(shards *s, int i) {
    gd_stream *stream;
    size_t bytes = 0;
    GD_TRY(gd_stream_open(&stream, s->names[i]));
    const bool gzip = gd_stream_is_gzip(stream);
    gd_status status =
        gzip ? gd_stream_read_all(stream, SIZE_MAX / 4, &s->unpacked[i], &bytes) : GD_OK;
    gd_stream_close(stream);
    if (status == GD_OK && gzip)
        status = gd_file_reader_open_memory(&s->files[i], s->names[i], s->unpacked[i], bytes);
    else if (status == GD_OK) status = gd_file_reader_open(&s->files[i], s->names[i]);
    return status;
}

static gd_status read_npy_shard(shards *s, int i, gd_token_piece *p) {
    gd_npy_header h;
    GD_TRY(gd_npy_read_file_header(&h, s->files[i]));
    const bool uint = h.kind == GD_NPY_UINT, integer = h.kind == GD_NPY_INT;
    const bool known = (uint && h.itemsize <= 2) || (integer && h.itemsize >= 4);
    if (!known || h.rank != 1 || h.swapped)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: tokens are little-endian uint8, uint16, int32 or int64 in one "
                       "dimension; this has %d "
                       "dimensions of %d bytes",
                       s->names[i], h.rank, h.itemsize);
    p->kind = h.itemsize == 1   ? GD_TOKEN_U8
              : h.itemsize == 2 ? GD_TOKEN_U16
              : h.itemsize == 4 ? GD_TOKEN_I32
                                : GD_TOKEN_I64;
    p->begin = h.data_offset;
    p->count = h.dims[0];
    return GD_OK;
}

static gd_status read_raw_shard(const char *name, const gd_dataset_tokens_options *o,
                                uint64_t bytes, gd_token_piece *p) {
    p->kind = o->type == GD_UINT16 ? GD_TOKEN_U16 : GD_TOKEN_I32;
    const size_t item = (size_t)gd_token_bytes(p->kind);
    if (bytes < (uint64_t)o->skip)
        return gd_fail(GD_E_FORMAT, "%s: has %llu bytes, and skip is %lld", name,
                       (unsigned long long)bytes, (long long)o->skip);
    bytes -= (uint64_t)o->skip;
    if (bytes % item)
        return gd_fail(
            GD_E_FORMAT,
            "%s: its %llu bytes of tokens are not a multiple of %zu; is it truncated, or of "
            "another type?",
            name, (unsigned long long)bytes, item);
    p->begin = (uint64_t)o->skip;
    p->count = (int64_t)(bytes / item);
    return GD_OK;
}

static gd_status open_shard(shards *s, int i, const gd_dataset_tokens_options *o) {
    gd_token_piece *p = &s->windows.pieces[s->windows.n_pieces];
    char magic[6] = "";
    GD_TRY(open_bytes(s, i));
    *p = (gd_token_piece){.file = s->files[i], .first = s->windows.total, .name = s->names[i]};
    const uint64_t bytes = gd_file_reader_size(s->files[i]);
    if (bytes >= sizeof magic) GD_TRY(gd_file_reader_read_at(s->files[i], 0, magic, sizeof magic));
    if (memcmp(magic, "\x93NUMPY", sizeof magic) == 0) GD_TRY(read_npy_shard(s, i, p));
    else GD_TRY(read_raw_shard(s->names[i], o, bytes, p));
    s->windows.total += p->count; /* sizes of files cannot overflow it */
    s->windows.n_pieces += p->count > 0;
    return GD_OK;
}

static gd_status tokens_open(gd_dataset *d) {
    const gd_dataset_tokens_options *o = d->options;
    shards *s = d->self = gd_calloc(1, sizeof *s);
    if (!s) return gd_no_memory(NULL, "for a dataset");
    GD_TRY(list_files(s, o->path));
    s->windows.length = o->length;
    s->windows.stride = o->stride ? o->stride : o->length;
    s->windows.limit = o->vocabulary;
    for (int i = 0; i < s->count; i++) GD_TRY(open_shard(s, i, o));
    return gd_token_windows_count(&s->windows, o->path, "tokens", &d->count);
}

static gd_status tokens_get(const gd_dataset *d, int64_t index, gd_random *random,
                            gd_sample *sample) {
    (void)random;
    return gd_token_windows_get(&((const shards *)d->self)->windows, index, sample);
}

static gd_status tokens_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                               gd_sample *batch) {
    return gd_token_windows_gather(&((const shards *)d->self)->windows, indices, count, batch);
}

static void tokens_close(gd_dataset *d) {
    shards *s = d->self;
    if (!s) return;
    for (int i = 0; i < s->count; i++) {
        gd_file_reader_close(s->files[i]);
        gd_free(s->unpacked[i]);
        gd_free(s->names[i]);
    }
    gd_free(s->files);
    gd_free(s->unpacked);
    gd_free(s->names);
    gd_free(s->windows.pieces);
    gd_free(s);
}

#include "data/dataset_tokens.gen.h"
