/* token_windows.c - copies windows of tokens to samples; see token_windows.h. */
#include "data/token_windows.h"

#include <inttypes.h>
#include <string.h>

#include "format/bytes.h"

gd_status gd_check_lengths(int64_t length, int64_t stride) {
    if (length < 1 || length > INT32_MAX)
        return gd_fail(GD_E_ARGUMENT, "length is %lld; it must be at least 1", (long long)length);
    if (stride < 0)
        return gd_fail(GD_E_ARGUMENT, "stride is %lld; it must be at least 1", (long long)stride);
    return GD_OK;
}

int gd_token_bytes(gd_token_kind kind) { return 1 << kind; }

gd_status gd_token_windows_count(const gd_token_windows *t, const char *path, const char *what,
                                 int64_t *count) {
    if (t->total <= t->length) /* the target is shifted by one token */
        return gd_fail(GD_E_SHAPE,
                       "%s: has %" PRId64 " %s; a sample of length %" PRId64
                       " needs one more than that",
                       path, t->total, what, t->length);
    *count = (t->total - 1 - t->length) / t->stride + 1;
    return GD_OK;
}

static int64_t load_token(const gd_token_piece *p, int64_t i) {
    const uint8_t *at = p->data + (size_t)i * (size_t)gd_token_bytes(p->kind);
    switch (p->kind) {
    case GD_TOKEN_U8: return *at;
    case GD_TOKEN_U16: return gd_get_u16(at);
    case GD_TOKEN_I32: return (int32_t)gd_get_u32(at);
    case GD_TOKEN_I64: return (int64_t)gd_get_u64(at);
    }
    return 0;
}

static const gd_token_piece *find_piece(const gd_token_windows *t, int64_t number) {
    int low = 0, high = t->n_pieces - 1;
    while (low < high) { /* finds the last piece that begins at or before it */
        const int middle = (low + high + 1) / 2;
        if (t->pieces[middle].first <= number) low = middle;
        else high = middle - 1;
    }
    return &t->pieces[low];
}

static gd_status check_token(const gd_token_windows *t, const gd_token_piece *p, int64_t i,
                             int64_t value) {
    if (value >= 0 && (t->limit == 0 || value < t->limit)) return GD_OK;
    if (t->limit == 0)
        return gd_fail(GD_E_FORMAT, "%s: token %" PRId64 " is %" PRId64 ", which is negative",
                       p->name, i, value);
    return gd_fail(GD_E_FORMAT, "%s: token %" PRId64 " is %" PRId64 "; the vocabulary has %" PRId64,
                   p->name, i, value, t->limit);
}

/* Copies `length` tokens from `first` on into x, and those from first + 1 on into y. */
static gd_status copy_window(const gd_token_windows *t, int64_t first, int64_t *x, int64_t *y) {
    const int64_t end = first + t->length + 1;
    for (int64_t at = first; at < end;) {
        const gd_token_piece *p = find_piece(t, at);
        const int64_t stop = p->first + p->count < end ? p->first + p->count : end;
        for (; at < stop; at++) {
            const int64_t value = load_token(p, at - p->first), k = at - first;
            GD_TRY(check_token(t, p, at - p->first, value));
            if (k < t->length) x[k] = value;
            if (k > 0) y[k - 1] = value;
        }
    }
    return GD_OK;
}

/* Adds x and y: (length) for rank 1, (count, length) for rank 2. */
static gd_status add_windows(const gd_token_windows *t, int rank, int64_t count,
                             const int64_t *indices, gd_sample *sample) {
    const int64_t dims[2] = {count, t->length};
    void *x = NULL, *y = NULL;
    GD_TRY(gd_sample_add(sample, GD_I64, rank, dims + 2 - rank, &x));
    GD_TRY(gd_sample_add(sample, GD_I64, rank, dims + 2 - rank, &y));
    for (int64_t i = 0; i < count; i++)
        GD_TRY(copy_window(t, indices[i] * t->stride, (int64_t *)x + i * t->length,
                           (int64_t *)y + i * t->length));
    return GD_OK;
}

gd_status gd_token_windows_get(const gd_token_windows *t, int64_t index, gd_sample *sample) {
    return add_windows(t, 1, 1, &index, sample);
}

gd_status gd_token_windows_gather(const gd_token_windows *t, const int64_t *indices, int64_t count,
                                  gd_sample *batch) {
    return add_windows(t, 2, count, indices, batch);
}
