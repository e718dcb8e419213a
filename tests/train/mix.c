/* mix.c - see mix.h. */
#include "mix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "files.h"
#include "io/state_io.h"

typedef struct open_file {
    gd_file_reader *reader;
    gd_safetensors header;
    uint8_t *data; /* free() */
} open_file;

static bool open_safetensors(open_file *s, const char *path) {
    *s = (open_file){0};
    return gd_file_reader_open(&s->reader, path) == GD_OK &&
           gd_safetensors_read(&s->header, s->reader) == GD_OK &&
           (s->data = file_read(path, NULL)) != NULL;
}

static void close_safetensors(open_file *s) {
    gd_safetensors_free(&s->header);
    gd_file_reader_close(s->reader);
    free(s->data);
}

static bool belongs_to_part(const char *name, const char *part) {
    const size_t length = strlen(part);
    return strncmp(name, part, length) == 0 && (name[length] == '.' || name[length] == 0);
}

static const gd_safetensors_entry *find_entry(const open_file *s, const char *name) {
    for (size_t i = 0; i < s->header.count; i++)
        if (strcmp(s->header.entries[i].name, name) == 0) return &s->header.entries[i];
    return NULL;
}

static const char *find_value(const open_file *s, const char *key) {
    for (size_t i = 0; i < s->header.n_values; i++)
        if (strcmp(s->header.values[i].key, key) == 0) return s->header.values[i].text;
    return NULL;
}

/* Writes a file with these entries; `data[i]` are the bytes of entry i. */
static bool write_safetensors(const char *path, gd_safetensors_entry *entries, const uint8_t **data,
                              size_t count, gd_safetensors_value *values, size_t n_values) {
    char *header;
    size_t bytes, at;
    if (gd_safetensors_make_header(path, entries, count, values, n_values, &header, &bytes) !=
        GD_OK)
        return false;
    size_t size = bytes;
    for (size_t i = 0; i < count; i++) size += entries[i].bytes;
    char *file = calloc(1, size);
    memcpy(file, header, bytes);
    for (size_t i = 0; i < count; i++) memcpy(file + entries[i].begin, data[i], entries[i].bytes);
    gd_free(header);
    if (gd_checksum_find(file + 8, bytes - 8, &at)) {
        gd_xxh64 hash = gd_xxh64_begin();
        gd_xxh64_add(&hash, file, size);
        gd_checksum_print(gd_xxh64_value(&hash), file + 8 + at);
    }
    file_write(path, file, size);
    free(file);
    return true;
}

static int mix_files(const open_file *a, const open_file *b, const char *path, const char *part) {
    const size_t count = a->header.count, n_values = a->header.n_values;
    gd_safetensors_entry *entries = calloc(count + 1, sizeof *entries);
    gd_safetensors_value *values = calloc(n_values + 1, sizeof *values);
    const uint8_t **data = calloc(count + 1, sizeof *data);
    int differ = 0;
    for (size_t i = 0; i < count; i++) {
        const gd_safetensors_entry *e = &a->header.entries[i],
                                   *other = belongs_to_part(e->name, part) ? find_entry(b, e->name)
                                                                           : NULL;
        entries[i] = other ? *other : *e;
        data[i] = other ? b->data + other->begin : a->data + e->begin;
        differ += other &&
                  (other->bytes != e->bytes || memcmp(data[i], a->data + e->begin, e->bytes) != 0);
    }
    for (size_t i = 0; i < n_values; i++) {
        const char *key = a->header.values[i].key, *text = a->header.values[i].text,
                   *other = belongs_to_part(key, part) ? find_value(b, key) : NULL;
        if (strcmp(key, GD_CHECKSUM_KEY) == 0) text = GD_CHECKSUM_BLANK;
        values[i] = (gd_safetensors_value){key, other ? other : text};
        differ += other && strcmp(other, text) != 0;
    }
    const bool done = write_safetensors(path, entries, data, count, values, n_values);
    free(entries), free(values), free(data);
    return done ? differ : -1;
}

int mix_part(const char *into, const char *from, const char *part) {
    open_file a, b;
    char path[4096];
    snprintf(path, sizeof path, "%s.mixed", into);
    int differ = -1;
    if (open_safetensors(&a, into) & open_safetensors(&b, from))
        differ = mix_files(&a, &b, path, part);
    close_safetensors(&a), close_safetensors(&b);
    return differ >= 0 && rename(path, into) == 0 ? differ : -1;
}

bool mix_parts(const char *path, char *text, int size) {
    open_file s;
    const bool is_open = open_safetensors(&s, path);
    const char *parts = is_open ? find_value(&s, GD_STATE_PARTS) : NULL;
    snprintf(text, (size_t)size, "%s", parts ? parts : "");
    close_safetensors(&s);
    return parts != NULL;
}
