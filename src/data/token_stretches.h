/* token_stretches.h - samples of a long sequence of tokens: what text and tokens share.
 *
 * Sample i is tokens first = i * stride to first + length - 1, and as target the same one further
 * on. The sequence may lie in several pieces, which samples span.
 */
#ifndef GRADUS_DATA_TOKEN_STRETCHES_H
#define GRADUS_DATA_TOKEN_STRETCHES_H

#include "data/samples.h"

typedef enum gd_token_kind {
    GD_TOKEN_U8,
    GD_TOKEN_U16, /* little-endian, as the others */
    GD_TOKEN_I32,
    GD_TOKEN_I64,
} gd_token_kind;

typedef struct gd_token_piece {
    const uint8_t *data;
    int64_t first, count; /* the number of its first token, and how many it has */
    gd_token_kind kind;
    const char *name; /* of its file */
} gd_token_piece;

typedef struct gd_token_stretches {
    gd_token_piece *pieces; /* in order; the owner of this struct owns them, and their data */
    int n_pieces;
    int64_t total; /* tokens in all pieces */
    int64_t length, stride;
    int64_t limit; /* tokens are from 0 to below this; 0: from 0 */
} gd_token_stretches;

/* Of options. */
gd_status gd_check_lengths(int64_t length, int64_t stride);

int gd_token_bytes(gd_token_kind kind);

/* How many samples there are; fails where there is not even one. `what` is "characters". */
gd_status gd_token_stretches_count(const gd_token_stretches *t, const char *path, const char *what,
                                   int64_t *count);

/* Tokens first to first + length as two tensors i64 (length); or for a batch (count, length). */
gd_status gd_token_stretches_get(const gd_token_stretches *t, int64_t index, gd_sample *sample);
gd_status gd_token_stretches_gather(const gd_token_stretches *t, const int64_t *indices,
                                    int64_t count, gd_sample *batch);

#endif
