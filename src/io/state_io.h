/* state_io.h - states in safetensors files: one file, or shards and their index. */
#ifndef GRADUS_IO_STATE_IO_H
#define GRADUS_IO_STATE_IO_H

#include "core/state.h"
#include "format/checksum.h"
#include "format/json.h"
#include "format/safetensors.h"

/* Keys of the metadata that are no values of objects: these, and GD_CHECKSUM_KEY. */
#define GD_STATE_FORMAT "format"       /* "pt": Hugging Face's loaders want it */
#define GD_STATE_PARTS  "gradus.parts" /* the names of the parts, a line each */

const char *gd_safetensors_dtype(gd_dtype dtype);     /* "F32" */
gd_dtype gd_safetensors_dtype_from(const char *name); /* GD_DTYPE_NONE: not ours */

/* Whether a path is that of an index. */
bool gd_is_state_index(const char *path);

/* --- writing ---------------------------------------------------------------------------------- */

/* What is to be written: tensors without ties, and values with the keys above. */
typedef struct gd_state_contents {
    const char *path;
    const gd_state_tensor **tensors; /* in the order of the state */
    size_t n_tensors;
    gd_safetensors_value *values; /* with a blank checksum where one is wanted */
    size_t n_values;
    bool checksum;
} gd_state_contents;

uint64_t gd_state_bytes(const gd_tensor *t);

/* Tensors as one file. A blank checksum among the values is filled in. */
gd_status gd_state_write(gd_file_writer *file, const char *path, const gd_state_tensor **tensors,
                         size_t count, const gd_safetensors_value *values, size_t n_values);

gd_status gd_state_save_shards(const gd_state_contents *c, uint64_t shard_bytes);

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct gd_state_file {
    gd_file_reader *reader;
    gd_safetensors header;
    const uint8_t *data; /* mapped */
    const char *name;    /* of a shard, as the index has it */
} gd_state_file;

typedef struct gd_state_files {
    gd_state_file *at;
    size_t count;
    gd_json_doc *index; /* NULL: one file */
} gd_state_files;

gd_status gd_state_files_open(gd_state_files *files, const char *path);
void gd_state_files_close(gd_state_files *files);

/* Loads all parts or, after a failure, nothing, from a file that must have a checksum. *damaged: the file itself
 * cannot be read or is not what was written, so that another one may do. */
/* Parts whose names begin with `optional` are left as they are where the file has none of that name. */
gd_status gd_state_load_checked(const char *path, gd_state_parts parts, const char *optional,
                                bool *damaged);

/* Reads an index, and gives the names of shards in the order of their first use, as many as *count;
 * they belong to *doc. The array is from gd_malloc. */
gd_status gd_state_index_read(const char *path, gd_json_doc **doc, const char ***names,
                              size_t *count);

#endif
