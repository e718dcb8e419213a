/* state_io.h - saved states in safetensors files: one file, or shards and their index.
 *
 * state_save.c writes one file, state_shards.c writes shards; state_files.c opens both, and
 * state_load.c loads objects from them.
 */
#ifndef GRADUS_IO_STATE_IO_H
#define GRADUS_IO_STATE_IO_H

#include "core/state.h"
#include "format/checksum.h"
#include "format/json.h"
#include "format/safetensors.h"

/* Keys of the metadata that belong to the format: these, and GD_CHECKSUM_KEY. */
#define GD_STATE_FORMAT "format"       /* "pt": Hugging Face's loaders require it */
#define GD_STATE_PARTS  "gradus.parts" /* the names of the parts, one per line */

const char *gd_safetensors_dtype(gd_dtype dtype);     /* "F32" */
gd_dtype gd_safetensors_dtype_from(const char *name); /* GD_DTYPE_NONE: unknown */

/* Whether a path is that of an index. */
bool gd_is_state_index(const char *path);

/* --- writing ---------------------------------------------------------------------------------- */

/* The contents of a file: tensors without ties, and values, including the keys above. */
typedef struct gd_state_contents {
    const char *path;
    const gd_state_tensor **tensors; /* in the order of the state */
    size_t n_tensors;
    gd_safetensors_value *values; /* with a blank checksum if the file has one */
    size_t n_values;
    bool checksum;
} gd_state_contents;

uint64_t gd_state_bytes(const gd_tensor *t);

/* Writes tensors as one file. If the values contain a blank checksum, fills it in. */
gd_status gd_state_write(gd_file_writer *file, const char *path, const gd_state_tensor **tensors,
                         size_t count, const gd_safetensors_value *values, size_t n_values);

gd_status gd_state_save_shards(const gd_state_contents *c, uint64_t shard_bytes);

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct gd_state_file {
    gd_file_reader *reader;
    gd_safetensors header;
    const char *name; /* of a shard in the index */
} gd_state_file;

typedef struct gd_state_files {
    gd_state_file *at;
    size_t count;
    gd_json_doc *index; /* NULL: one file */
} gd_state_files;

/* The file at the path is open, and stays with the caller. */
gd_status gd_state_files_open(gd_state_files *files, const char *path, gd_file_reader *file);
void gd_state_files_close(gd_state_files *files);

/* Loads all parts, or none if one fails, from a file that must have a checksum. *damaged: the file
 * cannot be read or its checksum is wrong, so the caller may try another file. Parts whose names
 * begin with `optional` stay unchanged if the file does not have them. */
gd_status gd_state_load_checked(const char *path, gd_state_parts parts, const char *optional,
                                bool *damaged);

/* Reads an index and lists the names of its shards in the order of their first use. The names
 * belong to *doc, the array is from gd_malloc. */
gd_status gd_state_index_read(const char *path, gd_json_doc **doc, const char ***names,
                              size_t *count);

#endif
