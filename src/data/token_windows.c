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

/* Widens `count` tokens to i64. */
static void widen_tokens(gd_token_kind kind, const uint8_t *from, int64_t count, int64_t *to) {
    switch (kind) {
    case GD_TOKEN_U8:
        for (int64_t i = 0; i < count; i++) to[i] = from[i];
        break;
    case GD_TOKEN_U16:
        for (int64_t i = 0; i < count; i++) to[i] = gd_get_u16(from + 2 * i);
        break;
    case GD_TOKEN_I32:
        for (int64_t i = 0; i < count; i++) to[i] = (int32_t)gd_get_u32(from + 4 * i);
        break;
    case GD_TOKEN_I64:
        for (int64_t i = 0; i < count; i++) to[i] = (int64_t)gd_get_u64(from + 8 * i);
        break;
    }
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

static gd_status fail_token(const gd_token_windows *t, const gd_token_piece *p, int64_t i,
                            int64_t value) {
    if (t->limit == 0)
        return gd_fail(GD_E_FORMAT, "%s: token %" PRId64 " is %" PRId64 ", which is negative",
                       p->name, i, value);
    return gd_fail(GD_E_FORMAT, "%s: token %" PRId64 " is %" PRId64 "; the vocabulary has %" PRId64,
                   p->name, i, value, t->limit);
}

/* Checks `count` tokens of a piece, of which the first has this number in it. */
static gd_status check_tokens(const gd_token_windows *t, const gd_token_piece *p, int64_t first,
                              int64_t count, const int64_t *tokens) {
    const uint64_t limit = t->limit ? (uint64_t)t->limit : (uint64_t)INT64_MAX + 1;
    bool good = true; /* without a branch, so that the loop is vectorized */
    for (int64_t i = 0; i < count; i++) good &= (uint64_t)tokens[i] < limit;
    for (int64_t i = 0; i < count && !good; i++)
        if ((uint64_t)tokens[i] >= limit) return fail_token(t, p, first + i, tokens[i]);
    return GD_OK;
}

/* Where a window goes: token k to x[k], the last one only to y. */
typedef struct window {
    const gd_token_windows *of;
    int64_t first; /* in the sequence */
    int64_t *x, *y;
} window;

static int64_t *place_of(const window *w, int64_t k) {
    return k < w->of->length ? w->x + k : w->y + k - 1;
}

/* Widens and checks `count` tokens of a piece; the first has the number `at` in the sequence. */
static gd_status put_tokens(const window *w, const gd_token_piece *p, const uint8_t *from,
                            int64_t at, int64_t count) {
    for (int64_t i = 0, n; i < count; i += n) {
        const int64_t k = at + i - w->first, left = w->of->length - k;
        n = left < 1 ? 1 : count - i < left ? count - i : left;
        widen_tokens(p->kind, from + i * gd_token_bytes(p->kind), n, place_of(w, k));
        GD_TRY(check_tokens(w->of, p, at + i - p->first, n, place_of(w, k)));
    }
    return GD_OK;
}

/* The same, from the memory or the file of the piece. */
static gd_status copy_tokens(const window *w, const gd_token_piece *p, int64_t at, int64_t count) {
    uint8_t buffer[8192];
    const int64_t size = gd_token_bytes(p->kind), most = (int64_t)sizeof buffer / size,
                  first = at - p->first;
    if (p->data) return put_tokens(w, p, p->data + first * size, at, count);
    for (int64_t i = 0; i < count; i += most) {
        const int64_t n = count - i < most ? count - i : most;
        GD_TRY(gd_file_reader_read_at(p->file, p->begin + (uint64_t)((first + i) * size), buffer,
                                      (size_t)(n * size)));
        GD_TRY(put_tokens(w, p, buffer, at + i, n));
    }
    return GD_OK;
}

/* Copies `length` tokens from `first` on into x, and those from first + 1 on into y. */
static gd_status copy_window(const gd_token_windows *t, int64_t first, int64_t *x, int64_t *y) {
    const window w = {t, first, x, y};
    const int64_t end = first + t->length + 1;
    for (int64_t at = first; at < end;) {
        const gd_token_piece *p = find_piece(t, at);
        const int64_t stop = p->first + p->count < end ? p->first + p->count : end;
        GD_TRY(copy_tokens(&w, p, at, stop - at));
        at = stop;
    }
    memcpy(y, x + 1, (size_t)(t->length - 1) * sizeof *y);
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
