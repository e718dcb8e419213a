/* pytorch_read.c - the elements of PyTorch's tensors, row-major and little-endian. */
#include <string.h>

#include "core/alloc.h"
#include "format/npy.h"
#include "io/pytorch.h"

/* Reads the elements of a tensor with other strides as they lie in the file, from the first to the
 * last one. Those of one tensor are kept: it is read in pieces. */
static gd_status keep(const gd_torch_tensor *x, const uint8_t **elements) {
    gd_torch *t = x->of;
    *elements = x->bytes;
    if (x->bytes) return GD_OK;
    if (t->kept != x) {
        gd_free(t->elements);
        t->kept = NULL;
        t->elements = gd_malloc((size_t)x->extent);
        if (!t->elements) return gd_torch_no_memory(t);
        GD_TRY(gd_file_reader_read_at(t->list->file, x->begin, t->elements, (size_t)x->extent));
        t->kept = x;
    }
    *elements = t->elements;
    return GD_OK;
}

/* The coordinates of element number `first`. */
static int64_t position_of(const gd_torch_tensor *x, int64_t first, int64_t *index) {
    int64_t at = 0;
    for (int k = x->rank; k-- > 0; first /= x->dims[k]) {
        index[k] = first % x->dims[k];
        at += index[k] * x->strides[k];
    }
    return at;
}

static void gather(const gd_torch_tensor *x, const uint8_t *from, int64_t first, uint8_t *to,
                   int64_t count) {
    int64_t index[GD_MAX_RANK] = {0};
    const int last = x->rank - 1;
    const size_t size = (size_t)x->size;
    while (count > 0) {
        int64_t at = position_of(x, first, index);
        const int64_t row = x->dims[last] - index[last], n = row < count ? row : count;
        for (int64_t i = 0; i < n; i++, at += x->strides[last], to += size)
            memcpy(to, from + (size_t)at * size, size);
        first += n;
        count -= n;
    }
}

gd_status gd_torch_read(const void *tensor, uint64_t begin, void *to, size_t bytes) {
    const gd_torch_tensor *x = tensor;
    const uint8_t *elements;
    if (!x->is_row_major) {
        GD_TRY(keep(x, &elements));
        gather(x, elements, (int64_t)(begin / (uint64_t)x->size), to,
               (int64_t)(bytes / (size_t)x->size));
    } else if (x->bytes) {
        memcpy(to, x->bytes + begin, bytes);
    } else {
        GD_TRY(gd_file_reader_read_at(x->of->list->file, x->begin + begin, to, bytes));
    }
    if (x->is_swapped) gd_npy_swap(to, bytes / (size_t)x->size, x->size);
    return GD_OK;
}
