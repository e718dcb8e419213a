/* idx.h - IDX files, the format of MNIST: one array of any rank, big-endian. */
#ifndef GRADUS_FORMAT_IDX_H
#define GRADUS_FORMAT_IDX_H

#include "format/stream.h"

typedef enum gd_idx_type {
    GD_IDX_U8 = 0x08,
    GD_IDX_I8 = 0x09,
    GD_IDX_I16 = 0x0B,
    GD_IDX_I32 = 0x0C,
    GD_IDX_F32 = 0x0D,
    GD_IDX_F64 = 0x0E,
} gd_idx_type;

enum { GD_IDX_MAX_RANK = 16 };

typedef struct gd_idx {
    gd_idx_type type;
    int itemsize;
    int rank;
    int64_t dims[GD_IDX_MAX_RANK];
    size_t count; /* of items */
    void *items;  /* row-major, in this machine's byte order; from gd_malloc */
} gd_idx;

/* Reads all of the file. GD_E_FORMAT: not an IDX file, damaged, or longer or shorter than its
 * header describes. Sizes are checked before memory is allocated. */
gd_status gd_idx_read(gd_idx *idx, gd_stream *stream);
void gd_idx_free(gd_idx *idx); /* {0} is fine */

#endif
