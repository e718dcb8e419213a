/* dataset_text.c - windows of characters or bytes of a text file. */
#include <stdio.h>

#include "core/alloc.h"
#include "data/token_windows.h"
#include "format/characters.h"
#include "format/stream.h"
#include "gradus/datasets.h"

/*dataset text(path:string, length:int)
 * A text file, gzipped or not, cut into windows of `length` characters or bytes. Samples: the class
 * of each unit, i64 (length), and as target the same shifted by one unit. Classes are the
 * characters that occur, in the order of their code points, or the 256 bytes; gd_dataset_class_name
 * gives the text of each.
 *   unit {character, byte} = character   characters of UTF-8, or bytes
 *   stride int = 0                       distance between the starts of two samples; 0: length
 */
typedef struct text_file {
    char *bytes;
    gd_characters characters;
    gd_token_piece piece;
    gd_token_windows windows;
} text_file;

static gd_status text_check(const void *options) {
    const gd_dataset_text_options *o = options;
    GD_TRY(gd_check_path(o->path, "path"));
    return gd_check_lengths(o->length, o->stride);
}

/* Sets the names of classes: characters as they are; bytes other than printable ASCII as "\x0a". */
static gd_status set_unit_names(gd_dataset *d, const gd_characters *c, bool bytes) {
    const int64_t count = bytes ? 256 : c->n_vocabulary;
    char(*texts)[5] = gd_calloc((size_t)count, sizeof *texts);
    const char **names = gd_calloc((size_t)count, sizeof *names);
    for (int64_t i = 0; texts && names && i < count; i++) {
        if (!bytes) gd_character_print(c->vocabulary[i], texts[i]);
        else if (i >= ' ' && i < 127) texts[i][0] = (char)i;
        else snprintf(texts[i], sizeof texts[i], "\\x%02x", (unsigned)i & 255);
        names[i] = texts[i];
    }
    const gd_status status = texts && names ? gd_dataset_set_classes(d, names, count)
                                            : gd_no_memory(NULL, "for names of classes");
    gd_free(texts);
    gd_free(names);
    return status;
}

static gd_status read_text(const char *path, char **data, size_t *bytes) {
    gd_stream *stream;
    GD_TRY(gd_stream_open(&stream, path));
    const gd_status status = gd_stream_read_all(stream, SIZE_MAX / 4, data, bytes);
    gd_stream_close(stream);
    return status;
}

static gd_status text_open(gd_dataset *d) {
    const gd_dataset_text_options *o = d->options;
    const bool bytes = o->unit == GD_BYTE;
    size_t size;
    text_file *t = d->self = gd_calloc(1, sizeof *t);
    if (!t) return gd_no_memory(NULL, "for a dataset");
    GD_TRY(read_text(o->path, &t->bytes, &size));
    t->piece = (gd_token_piece){
        .data = (const uint8_t *)t->bytes, .count = (int64_t)size, .name = o->path};
    if (!bytes) {
        gd_characters *c = &t->characters;
        GD_TRY(gd_characters_read(c, o->path, t->bytes, size));
        gd_free(t->bytes);
        t->bytes = NULL;
        t->piece.data = c->numbers;
        t->piece.count = c->count;
        t->piece.kind = c->itemsize == 1   ? GD_TOKEN_U8
                        : c->itemsize == 2 ? GD_TOKEN_U16
                                           : GD_TOKEN_I32;
    }
    t->windows = (gd_token_windows){.pieces = &t->piece,
                                    .n_pieces = 1,
                                    .total = t->piece.count,
                                    .length = o->length,
                                    .stride = o->stride ? o->stride : o->length};
    GD_TRY(gd_token_windows_count(&t->windows, o->path, bytes ? "bytes" : "characters", &d->count));
    return set_unit_names(d, &t->characters, bytes);
}

static gd_status text_get(const gd_dataset *d, int64_t index, gd_random *random,
                          gd_sample *sample) {
    (void)random;
    return gd_token_windows_get(&((const text_file *)d->self)->windows, index, sample);
}
static gd_status text_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                             gd_sample *batch) {
    return gd_token_windows_gather(&((const text_file *)d->self)->windows, indices, count, batch);
}

static void text_close(gd_dataset *d) {
    text_file *t = d->self;
    if (!t) return;
    gd_free(t->bytes);
    gd_characters_free(&t->characters);
    gd_free(t);
}

#include "data/dataset_text.gen.h"
