/* state_format.h - the formats of files with weights. gd_load_state and gd_read_state find the format
 * of a file by its bytes; names, prefixes, renames, shapes and messages are then the same for all.
 *
 * A format is a file NAME_format.c in a folder of src/, with the variable
 *
 *     const gd_state_format gd_NAME_format = {"a .npz file", matches, open, read, close};
 *
 * The build lists them all (gd_state_formats), so no file names those of later folders.
 *
 * `open` lists the tensors and values of the file, with names, dtypes and shapes, and reads no
 * elements. `read` gives the elements of one tensor as if they were row-major and little-endian in
 * its dtype, whatever the file has: strides, byte orders and compression are the format's own.
 */
#ifndef GRADUS_IO_STATE_FORMAT_H
#define GRADUS_IO_STATE_FORMAT_H

#include "core/state.h"
#include "format/file.h"
#include "format/zip.h"

/* What a format is recognized by. */
typedef struct gd_state_probe {
    const char *path;
    bool is_folder;             /* then there are no bytes */
    const uint8_t *first;       /* the first bytes of the file */
    size_t n_first;             /* at most GD_STATE_FIRST_BYTES */
    uint64_t bytes;             /* of the file */
    const gd_file_reader *file; /* NULL: a folder */
    const gd_zip_reader *zip;   /* NULL: not a ZIP archive */
} gd_state_probe;

enum { GD_STATE_FIRST_BYTES = 512 };

typedef struct gd_state_list gd_state_list;

typedef struct gd_state_format {
    const char *name; /* "a .npz file", for messages */
    bool (*matches)(const gd_state_probe *probe);
    /* Fills the list. `list->data` is for the format; `close` gets it also if `open` has failed. */
    gd_status (*open)(gd_state_list *list);
    /* Reads `bytes` bytes of a tensor's elements from byte `begin` on, both multiples of the size of
     * an element; `begin` counts from `begin` of the gd_source_tensor. */
    gd_status (*read)(const void *file, uint64_t begin, void *to, size_t bytes);
    void (*close)(void *data);
} gd_state_format;

/* All formats, then NULL. They match different files, so their order does not matter. */
extern const gd_state_format *const gd_state_formats[];

/* What a file holds. */
struct gd_state_list {
    const char *path;
    gd_file_reader *file; /* open; NULL: a folder */
    gd_zip_reader *zip;   /* if the file is a ZIP archive */
    const gd_state_format *format;
    void *data;
    gd_source source; /* names as in the file */
    size_t tensors_room, values_room;
    bool has_checksum; /* which was compared */
};

gd_status gd_state_list_open(gd_state_list *list, const char *path);
/* The same for an open file, which the list closes; NULL: a folder. */
gd_status gd_state_list_open_file(gd_state_list *list, const char *path, gd_file_reader *file);
void gd_state_list_close(gd_state_list *list); /* {0} is fine */

/* For `open`: names, dims and texts live until `close`. A tensor that cannot be loaded has the dtype
 * GD_DTYPE_NONE and a text that says what it is ("complex64", "a sparse tensor"); it fails only if
 * it is asked for. Its rank is -1 if the shape is unknown. */
gd_status gd_state_list_tensor(gd_state_list *list, gd_source_tensor tensor);
gd_status gd_state_list_value(gd_state_list *list, const char *name, const char *text);

/* Fails with what a file is that no format matches. */
gd_status gd_state_unknown(const gd_state_probe *probe);

extern const gd_state_format gd_safetensors_format; /* also explains what a damaged file lacks */

#endif
