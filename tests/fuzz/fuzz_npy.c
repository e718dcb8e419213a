/* fuzz_npy.c - reads any bytes as a .npy file: an error, or all items are inside the file. The
 * header must survive writing and reading. */
#include "format/npy.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_file_reader *file;
    gd_npy_header h, again;
    if (gd_file_reader_open_memory(&file, "fuzz", data, size) != GD_OK) return 0;
    gd_status status = gd_npy_read_file_header(&h, file);
    gd_file_reader_close(file);
    if (status != GD_OK) return 0;
    if (h.data_offset > size || h.data_bytes > size - h.data_offset) abort();

    uint8_t header[GD_NPY_MAX_HEADER];
    size_t bytes;
    again = h;
    if (gd_npy_make_header(&again, header, &bytes) != GD_OK) abort();
    uint8_t *copy = calloc(1, bytes + h.data_bytes);
    memcpy(copy, header, bytes);
    if (gd_file_reader_open_memory(&file, "again", copy, bytes + h.data_bytes) != GD_OK) abort();
    if (gd_npy_read_file_header(&again, file) != GD_OK) abort();
    gd_file_reader_close(file);
    free(copy);
    if (again.kind != h.kind || again.itemsize != h.itemsize || again.swapped != h.swapped ||
        again.fortran != h.fortran || again.rank != h.rank ||
        memcmp(again.dims, h.dims, sizeof h.dims) != 0)
        abort();
    return 0;
}
