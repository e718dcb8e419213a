/* safetensors.h - the layout of safetensors files.
 *
 *     8 bytes   length N of the header, little-endian
 *     N bytes   JSON: {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3],
 *               "data_offsets": [0, 24]}, ...}, padded with spaces
 *     the rest  the tensors' elements, row-major and little-endian; offsets count from here
 *
 * Reading fails, with the reason, unless the tensors cover the rest of the file exactly: no
 * overlap, no hole, no bytes after the last. Sizes are compared with shape and dtype. An unknown
 * dtype is kept as a name: only loading that tensor fails.
 */
#ifndef GRADUS_FORMAT_SAFETENSORS_H
#define GRADUS_FORMAT_SAFETENSORS_H

#include "format/file.h"

enum { GD_SAFETENSORS_MAX_HEADER = 100 * 1000 * 1000 };

typedef struct gd_safetensors_entry {
    const char *name, *dtype;
    int rank;
    const int64_t *dims;
    uint64_t begin; /* in the file */
    uint64_t bytes;
} gd_safetensors_entry;

typedef struct gd_safetensors_value {
    const char *key, *text;
} gd_safetensors_value;

/* A header that was read. */
typedef struct gd_safetensors {
    gd_safetensors_entry *entries; /* in the order of the header */
    size_t count;
    gd_safetensors_value *values; /* of __metadata__ */
    size_t n_values;
    uint64_t data_begin;
    uint64_t checksum_at; /* the position of its checksum (checksum.h); 0: it has none */
    int64_t *all_dims;
    struct gd_json_doc *doc;
} gd_safetensors;

gd_status gd_safetensors_read(gd_safetensors *out, const gd_file_reader *file);
void gd_safetensors_free(gd_safetensors *header); /* {0} is fine */

/* Reads all of the file and compares its checksum, if it has one. */
gd_status gd_safetensors_check(const gd_safetensors *header, const gd_file_reader *file);

/* The bits of an element of a dtype; 0: unknown. */
int gd_safetensors_bits(const char *dtype);

/* Builds the length and the header of a file with these tensors in this order, from gd_malloc,
 * padded to a multiple of 64 bytes. Sets `begin` of each entry. Elements are aligned if those of
 * larger dtypes come first. `path` is for messages. */
gd_status gd_safetensors_make_header(const char *path, gd_safetensors_entry *entries, size_t count,
                                     const gd_safetensors_value *values, size_t n_values,
                                     char **header, size_t *bytes);

#endif
