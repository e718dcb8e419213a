/* fuzz_idx.c - reads any bytes as an IDX file: an error, or all items are readable. */
#include "format/idx.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_stream *s;
    gd_idx idx;
    if (gd_stream_open_memory(&s, "fuzz", data, size) != GD_OK) return 0;
    if (gd_idx_read(&idx, s) == GD_OK) {
        size_t count = 1;
        volatile uint8_t sum = 0;
        for (int k = 0; k < idx.rank; k++) count *= (size_t)idx.dims[k];
        if (count != idx.count || idx.rank > GD_IDX_MAX_RANK) abort();
        for (size_t i = 0; i < count * (size_t)idx.itemsize; i++)
            sum = (uint8_t)(sum + ((uint8_t *)idx.items)[i]);
        gd_idx_free(&idx);
    }
    gd_stream_close(s);
    return 0;
}
