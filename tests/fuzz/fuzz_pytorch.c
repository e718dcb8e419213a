/* fuzz_pytorch.c - opens any bytes as a file of weights of any format but safetensors' shards, and
 * reads the tensors that it lists. */
#include "io/state_format.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 16 }; /* of a tensor to read, to keep runs short */

static void read_tensor(const gd_state_list *list, const gd_source_tensor *t) {
    uint64_t bytes = t->dtype ? gd_dtype_size(t->dtype) : 0;
    if (t->dtype == GD_DTYPE_NONE) {
        if (!t->dtype_name || !*t->dtype_name) abort();
        return;
    }
    if (t->rank > GD_MAX_RANK) return;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] < 0) abort();
        if (t->dims[i] == 0) return;
        if (t->dims[i] > MAX_BYTES || (bytes *= (uint64_t)t->dims[i]) > MAX_BYTES) return;
    }
    uint8_t *elements = malloc(bytes);
    const size_t size = gd_dtype_size(t->dtype), half = bytes / size / 2 * size;
    if (list->source.read(t->file, t->begin, elements, half) == GD_OK)
        (void)list->source.read(t->file, t->begin + half, elements + half, bytes - half);
    free(elements);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_file_reader *file;
    gd_state_list list;
    if (gd_file_reader_open_memory(&file, "fuzz", data, size) != GD_OK) return 0;
    if (gd_state_list_open_file(&list, "fuzz", file) == GD_OK) {
        for (size_t i = 0; i < list.source.n_tensors; i++)
            read_tensor(&list, &list.source.tensors[i]);
        for (size_t i = 0; i < list.source.n_values; i++)
            if (strlen(list.source.values[i].name) > size * 100) abort();
    }
    gd_state_list_close(&list);
    return 0;
}
