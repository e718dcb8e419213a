/* fuzz_safetensors.c - reads any bytes as a safetensors file: an error, or every tensor is inside
 * the file and every byte of data belongs to one tensor. The header must survive writing and
 * reading. A wrong checksum must be detected, and the right one accepted. */
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "format/checksum.h"

static void check_same_header(const gd_safetensors *a, const gd_safetensors *b) {
    if (a->count != b->count || a->n_values != b->n_values) abort();
    for (size_t i = 0; i < a->count; i++) {
        const gd_safetensors_entry *x = &a->entries[i], *y = &b->entries[i];
        if (strcmp(x->name, y->name) != 0 || strcmp(x->dtype, y->dtype) != 0 ||
            x->rank != y->rank || x->bytes != y->bytes ||
            memcmp(x->dims, y->dims, sizeof *x->dims * (size_t)x->rank) != 0)
            abort();
    }
    for (size_t i = 0; i < a->n_values; i++)
        if (strcmp(a->values[i].key, b->values[i].key) != 0 ||
            strcmp(a->values[i].text, b->values[i].text) != 0)
            abort();
}

static void check_round_trip(const gd_safetensors *h, size_t data_bytes) {
    gd_safetensors again;
    gd_file_reader *file;
    char *header;
    size_t bytes;
    gd_safetensors_entry *entries = malloc((h->count + 1) * sizeof *entries);
    memcpy(entries, h->entries, h->count * sizeof *entries);
    if (gd_safetensors_make_header("again", entries, h->count, h->values, h->n_values, &header,
                                   &bytes) != GD_OK)
        abort();
    char *copy = calloc(1, bytes + data_bytes);
    memcpy(copy, header, bytes);
    if (gd_file_reader_open_memory(&file, "again", copy, bytes + data_bytes) != GD_OK) abort();
    if (gd_safetensors_read(&again, file) != GD_OK) abort();
    check_same_header(h, &again);
    gd_safetensors_free(&again);
    gd_file_reader_close(file);
    gd_free(header);
    free(copy);
    free(entries);
}

static void check_checksum(const gd_safetensors *h, const gd_file_reader *file, const uint8_t *data,
                           size_t size) {
    const gd_status status = gd_safetensors_check(h, file);
    gd_file_reader *right;
    if (!h->checksum_at) {
        if (status != GD_OK) abort();
        return;
    }
    if (h->checksum_at < 8 || h->checksum_at + GD_CHECKSUM_DIGITS >= h->data_begin) abort();
    char *copy = malloc(size), *digits = copy + h->checksum_at;
    memcpy(copy, data, size);
    memset(digits, '0', GD_CHECKSUM_DIGITS);
    gd_xxh64 hash = gd_xxh64_begin();
    gd_xxh64_add(&hash, copy, size);
    gd_checksum_print(gd_xxh64_value(&hash), digits);
    if ((memcmp(copy, data, size) == 0) != (status == GD_OK)) abort();
    if (gd_file_reader_open_memory(&right, "right", copy, size) != GD_OK) abort();
    if (gd_safetensors_check(h, right) != GD_OK) abort();
    gd_file_reader_close(right);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_file_reader *file;
    gd_safetensors h;
    if (gd_file_reader_open_memory(&file, "fuzz", data, size) != GD_OK) return 0;
    if (gd_safetensors_read(&h, file) == GD_OK) {
        uint64_t sum = 0;
        for (size_t i = 0; i < h.count; i++) {
            const gd_safetensors_entry *e = &h.entries[i];
            if (e->begin < h.data_begin || e->begin > size || e->bytes > size - e->begin) abort();
            sum += e->bytes;
        }
        if (sum != size - h.data_begin) abort();
        check_round_trip(&h, (size_t)sum);
        check_checksum(&h, file, data, size);
        gd_safetensors_free(&h);
    }
    gd_file_reader_close(file);
    return 0;
}
