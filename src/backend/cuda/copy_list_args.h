/* copy_list_args.h - parameters of the kernel in copy_list.cu. */
#ifndef GRADUS_BACKEND_CUDA_COPY_LIST_ARGS_H
#define GRADUS_BACKEND_CUDA_COPY_LIST_ARGS_H

#include "backend/cuda/view.h"

enum {
    GD_CUDA_COPY_ENTRIES = 80, /* of a launch: its parameters are at most 4 KB */
    GD_CUDA_COPY_THREADS = 256,
    GD_CUDA_COPY_TILE = 2304, /* elements of a block: 256 channels of 3 x 3 taps */
};

typedef enum gd_cuda_copy_order {
    GD_CUDA_COPY_FLAT,      /* both lie alike */
    GD_CUDA_COPY_TO_LAST,   /* from (rows, channels, taps) to (rows, taps, channels) */
    GD_CUDA_COPY_FROM_LAST, /* the reverse */
} gd_cuda_copy_order;

/* A copy with conversion. FLAT: `rows` elements. Otherwise all of rows x channels x taps; a block
 * copies `tile` channels of a row. */
typedef struct gd_cuda_copy_entry {
    void *to;
    const void *from;
    long long rows;
    int channels, taps, tile;
    unsigned first; /* its first block */
    unsigned char to_dtype, from_dtype, order;
} gd_cuda_copy_entry;

typedef struct gd_cuda_copy_list {
    gd_cuda_call call;
    int count; /* of entries */
    gd_cuda_copy_entry entries[GD_CUDA_COPY_ENTRIES];
} gd_cuda_copy_list;

#endif
