/* token_windows.h - windows of a long sequence of tokens: the samples of the datasets text and
 * tokens.
 *
 * Sample i has the `length` tokens from i * stride on, and as target the `length` tokens from
 * i * stride + 1 on. The sequence may consist of several pieces, and a sample may span pieces.
 */
#ifndef GRADUS_DATA_TOKEN_WINDOWS_H
#define GRADUS_DATA_TOKEN_WINDOWS_H

#include "data/samples.h"
#include "format/file.h"

typedef enum gd_token_kind {
    GD_TOKEN_U8,
    GD_TOKEN_U16, /* little-endian, as the next ones */
    GD_TOKEN_I32,
    GD_TOKEN_I64,
} gd_token_kind;

typedef struct gd_token_piece {
    const uint8_t *data;        /* of a piece in memory; NULL: read from `file` */
    const gd_file_reader *file; /* of its tokens from byte `begin` on */
    uint64_t begin;
    int64_t first, count; /* the index of its first token in the sequence; its length */
    gd_token_kind kind;
    const char *name; /* of its file */
} gd_token_piece;

typedef struct gd_token_windows {
    gd_token_piece *pieces; /* in order; owned by the owner of this struct, as their data */
    int n_pieces;
    int64_t total; /* tokens in all pieces */
    int64_t length, stride;
    int64_t limit; /* tokens must be below this; 0: any token from 0 on */
} gd_token_windows;

/* Checks the options length and stride. */
gd_status gd_check_lengths(int64_t length, int64_t stride);

int gd_token_bytes(gd_token_kind kind);

/* The number of samples. Fails if there is none; the message calls tokens `what`, "characters". */
gd_status gd_token_windows_count(const gd_token_windows *t, const char *path, const char *what,
                                 int64_t *count);

/* Adds input and target: two tensors i64 (length), or for a batch (count, length). */
gd_status gd_token_windows_get(const gd_token_windows *t, int64_t index, gd_sample *sample);
gd_status gd_token_windows_gather(const gd_token_windows *t, const int64_t *indices, int64_t count,
                                  gd_sample *batch);

#endif
