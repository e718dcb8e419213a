/* conv_im2col_template.h - im2col panels (conv_im2col.h) for `real` (f32 or f64) and the
 * instruction set that is being compiled.
 *
 * The including file defines NAME(x) and FN(x), which form function names for the dtype, and the
 * vector operations: vec, LANES, lane_mask, MASK(low, high) (lanes [low, high)), LOAD(p),
 * LOAD_LANES(p, mask), STORE(p, v), EVEN(a, b), ZIP_LOW(a, b), ZIP_HIGH(a, b).
 *
 * stride_class is a constant: the stride along the width, 1 or 2, or 3 for any other stride.
 */

/* The lanes of a vector of columns whose windows are in the same row of y. */
typedef struct {
    int64_t offset;      /* in x, of lane 0's element under the first tap; may be outside of x */
    int64_t depth, row;  /* coordinates of that element */
    int64_t column_in_x; /* its coordinate along the width */
    int64_t low, high;   /* lanes [low, high) */
} NAME(segment);

/* The lanes of a segment that are not in the padding under one tap. */
typedef struct {
    int64_t offset;
    int64_t low, high;
    lane_mask mask[2]; /* the second one for stride 2, which reads two vectors */
} NAME(span);

/* Divides columns [column, column + LANES), at most up to `end`, into segments; returns their
 * number. */
static int NAME(find_segments)(const gd_conv *c, int64_t column, int64_t end,
                               NAME(segment) * segments) {
    const int64_t plane = c->in[0] * c->in[1] * c->in[2];
    int64_t width = column % c->out[2], height = column / c->out[2] % c->out[1];
    int64_t depth = column / (c->out[2] * c->out[1]) % c->out[0];
    int64_t image = column / (c->out[2] * c->out[1] * c->out[0]);
    int count = 0;
    if (end > column + LANES) end = column + LANES;
    for (int64_t j = column; j < end;) {
        NAME(segment) *s = &segments[count++];
        const int64_t length = c->out[2] - width < end - j ? c->out[2] - width : end - j;
        s->depth = depth * c->stride[0] - c->before[0];
        s->row = height * c->stride[1] - c->before[1];
        s->low = j - column;
        s->high = s->low + length;
        s->column_in_x = (width - s->low) * c->stride[2] - c->before[2];
        s->offset = image * c->groups * c->ci * plane + (s->depth * c->in[1] + s->row) * c->in[2] +
                    s->column_in_x;
        j += length;
        width = 0;
        if (++height == c->out[1]) height = 0, depth++;
        if (depth == c->out[0]) depth = 0, image++;
    }
    return count;
}

/* Whether all lanes are in one row of y, and all elements that the taps read (two full vectors for
 * stride 2) are inside x, so that no mask is needed. */
V_FN bool NAME(needs_no_mask)(const int stride_class, const gd_conv *c, const NAME(segment) * s,
                              int count) {
    const int64_t reach = stride_class < 3 ? stride_class * LANES : (LANES - 1) * c->stride[2] + 1;
    return count == 1 && s->high == LANES && s->depth >= 0 && s->row >= 0 && s->column_in_x >= 0 &&
           s->depth + (c->kernel[0] - 1) * c->dilation[0] < c->in[0] &&
           s->row + (c->kernel[1] - 1) * c->dilation[1] < c->in[1] &&
           s->column_in_x + (c->kernel[2] - 1) * c->dilation[2] + reach <= c->in[2];
}

/* The offset from the element under the first tap to the element under `tap`. */
V_FN int64_t NAME(tap_offset)(const gd_conv *c, int64_t tap) {
    const int64_t across = tap % c->kernel[2] * c->dilation[2],
                  down = tap / c->kernel[2] % c->kernel[1] * c->dilation[1];
    const int64_t deep = tap / (c->kernel[2] * c->kernel[1]) * c->dilation[0];
    return (deep * c->in[1] + down) * c->in[2] + across;
}

/* Loads a full vector from x on. */
V_FN vec NAME(load_unmasked)(const int stride_class, int64_t stride, const real *x) {
    if (stride_class == 1) return LOAD(x);
    if (stride_class == 2) return EVEN(LOAD(x), LOAD(x + LANES));
    vec v;
    for (int l = 0; l < LANES; l++) v[l] = x[l * stride];
    return v;
}

/* Computes the spans of the segments under a tap; returns the number of those that are not
 * empty. */
V_FN int NAME(find_spans)(const gd_conv *c, const NAME(segment) * segments, int count, int64_t tap,
                          NAME(span) * spans) {
    const int64_t stride = c->stride[2], across = tap % c->kernel[2] * c->dilation[2];
    const int64_t down = tap / c->kernel[2] % c->kernel[1] * c->dilation[1];
    const int64_t deep = tap / (c->kernel[2] * c->kernel[1]) * c->dilation[0];
    int span_count = 0;
    for (int i = 0; i < count; i++) {
        const NAME(segment) *s = &segments[i];
        const int64_t d = s->depth + deep, h = s->row + down, w = s->column_in_x + across;
        if (d < 0 || d >= c->in[0] || h < 0 || h >= c->in[1]) continue;
        /* lane l reads element w + l * stride of its row */
        int64_t low = w < 0 ? -w : 0, high = w < c->in[2] ? c->in[2] - w : 0;
        if (stride != 1) {
            low = (low + stride - 1) / stride;
            high = (high + stride - 1) / stride;
        }
        if (low < s->low) low = s->low;
        if (high > s->high) high = s->high;
        if (low >= high) continue;
        NAME(span) *p = &spans[span_count++];
        p->offset = s->offset + (deep * c->in[1] + down) * c->in[2] + across;
        p->low = low;
        p->high = high;
        if (stride == 1) {
            p->mask[0] = MASK(low, high);
        } else if (stride == 2) { /* elements 2 * low to 2 * high - 2 of two vectors */
            const int64_t first = 2 * low, last = 2 * high - 1;
            p->mask[0] = MASK(first < LANES ? first : LANES, last < LANES ? last : LANES);
            p->mask[1] = MASK(first > LANES ? first - LANES : 0, last > LANES ? last - LANES : 0);
        }
    }
    return span_count;
}

/* Loads the lanes of a span; the other lanes are 0. */
V_FN vec NAME(load_span)(const int stride_class, int64_t stride, const real *x,
                         const NAME(span) * p) {
    const real *from = x + p->offset;
    if (stride_class == 1) return LOAD_LANES(from, p->mask[0]);
    if (stride_class == 2)
        return EVEN(LOAD_LANES(from, p->mask[0]), LOAD_LANES(from + LANES, p->mask[1]));
    real lanes[LANES] = {0};
    for (int64_t l = p->low; l < p->high; l++) lanes[l] = from[l * stride];
    vec v;
    __builtin_memcpy(&v, lanes, sizeof v);
    return v;
}

/* Merges two vectors of which at least one is 0 in every lane. */
V_FN vec NAME(combine)(vec a, vec b) { return (vec)((lane_bits)a | (lane_bits)b); }

/* Fills the rows channel * taps + tap of one tap, for channels [channel, channel_end), in one
 * vector of columns. */
V_FN void NAME(fill_rows_masked)(const int stride_class, const gd_conv *c, const real *x,
                                 const NAME(span) * spans, int count, int64_t channel,
                                 int64_t channel_end, real *to, int64_t to_step) {
    const int64_t plane = c->in[0] * c->in[1] * c->in[2], stride = c->stride[2];
    const real *from = x + channel * plane;
    for (int64_t i = channel; i < channel_end; i++, from += plane, to += to_step) {
        vec v = (vec){0};
        if (count == 1) {
            v = NAME(load_span)(stride_class, stride, from, &spans[0]);
        } else if (count == 2) {
            v = NAME(combine)(NAME(load_span)(stride_class, stride, from, &spans[0]),
                              NAME(load_span)(stride_class, stride, from, &spans[1]));
        } else {
            for (int s = 0; s < count; s++)
                v = NAME(combine)(v, NAME(load_span)(stride_class, stride, from, &spans[s]));
        }
        STORE(to, v);
    }
}

/* Fills rows [row, row + depth) of a vector of columns that needs no mask; x is its element under
 * the first tap of the first channel. */
V_FN void NAME(fill_rows_unmasked)(const int stride_class, const gd_conv *c, const real *x,
                                   int64_t row, int64_t depth, real *to, int64_t step) {
    const int64_t taps = gd_conv_positions(c->kernel), plane = c->in[0] * c->in[1] * c->in[2];
    const real *channel = x + row / taps * plane;
    int64_t w = row % taps % c->kernel[2], h = row % taps / c->kernel[2] % c->kernel[1];
    int64_t d = row % taps / (c->kernel[2] * c->kernel[1]);
    while (depth > 0) { /* one row of taps per iteration */
        const real *from =
            channel + (d * c->dilation[0] * c->in[1] + h * c->dilation[1]) * c->in[2];
        for (; w < c->kernel[2] && depth > 0; w++, depth--, to += step)
            STORE(to, NAME(load_unmasked)(stride_class, c->stride[2], from + w * c->dilation[2]));
        w = 0;
        if (++h == c->kernel[1]) h = 0, d++;
        if (d == c->kernel[0]) d = 0, channel += plane;
    }
}

/* Packs rows [k, k + depth) and columns [j, j + n) of the submatrix m. */
V_FN void NAME(fill_panel)(const int stride_class, const gd_conv_columns *m, int64_t k,
                           int64_t depth, int64_t j, int64_t n, real *panel, int64_t step) {
    const gd_conv *c = m->c;
    const int64_t taps = gd_conv_positions(c->kernel), row = m->row + k, row_end = row + depth;
    for (int64_t v = 0; v < n; v += LANES) {
        NAME(segment) segments[LANES];
        NAME(span) spans[LANES];
        const int count = NAME(find_segments)(c, m->column + j + v, m->column + j + n, segments);
        if (NAME(needs_no_mask)(stride_class, c, segments, count)) {
            NAME(fill_rows_unmasked)
            (stride_class, c, (const real *)m->x + segments[0].offset, row, depth, panel + v, step);
            continue;
        }
        for (int64_t tap = 0; tap < taps; tap++) {
            const int64_t channel = row > tap ? (row - tap + taps - 1) / taps : 0;
            const int64_t channel_end = row_end > tap ? (row_end - tap + taps - 1) / taps : 0;
            if (channel >= channel_end) continue;
            const int span_count = NAME(find_spans)(c, segments, count, tap, spans);
            NAME(fill_rows_masked)
            (stride_class, c, m->x, spans, span_count, channel, channel_end,
             panel + (channel * taps + tap - row) * step + v, taps * step);
        }
    }
}

void FN(gd_conv_im2col)(const void *context, int64_t k, int64_t depth, int64_t j, int64_t n,
                        void *panel, int64_t step) {
    const gd_conv_columns *m = context;
    switch (m->c->stride[2]) {
    case 1: NAME(fill_panel)(1, m, k, depth, j, n, panel, step); break;
    case 2: NAME(fill_panel)(2, m, k, depth, j, n, panel, step); break;
    default: NAME(fill_panel)(3, m, k, depth, j, n, panel, step); break;
    }
}

/* --- the transposed matrix -------------------------------------------------------------------- */

/* Transposes a LANES x LANES block in registers: log2(LANES) rounds of interleaving the first half
 * of the vectors with the second half. */
V_FN void NAME(transpose_square)(vec v[LANES]) {
    UNROLL for (int step = 1; step < LANES; step *= 2) {
        vec z[LANES];
        UNROLL for (int i = 0; i < LANES / 2; i++) {
            z[2 * i] = ZIP_LOW(v[i], v[i + LANES / 2]);
            z[2 * i + 1] = ZIP_HIGH(v[i], v[i + LANES / 2]);
        }
        UNROLL for (int i = 0; i < LANES; i++) v[i] = z[i];
    }
}

/* A panel of columns^T has at most this many rows of `columns`, and therefore at most this many
 * different taps. */
enum { NAME(PANEL_ROWS) = GD_GEMM_PANEL_MAX };

/* Packs up to LANES columns of the rows [row, row_end), one square at a time. spans[t] has the
 * count[t] spans of the tap of row + t. */
V_FN void NAME(fill_squares_masked)(const int stride_class, const gd_conv_columns *m, int64_t row,
                                    int64_t row_end, const NAME(span) spans[][LANES],
                                    const int *count, int64_t columns, real *panel, int64_t step) {
    const gd_conv *c = m->c;
    const int64_t taps = gd_conv_positions(c->kernel), plane = c->in[0] * c->in[1] * c->in[2];
    const real *x = (const real *)m->x + row / taps * plane;
    int64_t tap = row % taps, slot = 0;
    for (; row < row_end; row += LANES, panel += LANES) {
        vec v[LANES];
        for (int64_t i = 0; i < LANES; i++) {
            v[i] = (vec){0};
            if (row + i >= row_end) continue;
            for (int s = 0; s < count[slot]; s++)
                v[i] = NAME(combine)(
                    v[i], NAME(load_span)(stride_class, c->stride[2], x, &spans[slot][s]));
            if (++slot == taps) slot = 0;
            if (++tap == taps) tap = 0, x += plane;
        }
        NAME(transpose_square)(v);
        if (columns == LANES) {
            UNROLL for (int i = 0; i < LANES; i++) STORE(panel + i * step, v[i]);
        } else {
            for (int64_t i = 0; i < columns; i++) STORE(panel + i * step, v[i]);
        }
    }
}

/* The same for LANES columns that need no mask. x is their element under the first tap of the first
 * channel; offset[t] is the offset of the tap of row + t. */
V_FN void NAME(fill_squares_unmasked)(const int stride_class, const gd_conv *c, const real *x,
                                      int64_t row, int64_t row_end, const int64_t *offset,
                                      real *panel, int64_t step) {
    const int64_t taps = gd_conv_positions(c->kernel), plane = c->in[0] * c->in[1] * c->in[2];
    int64_t tap = row % taps, slot = 0;
    x += row / taps * plane;
    for (; row < row_end; row += LANES, panel += LANES) {
        vec v[LANES];
        for (int64_t i = 0; i < LANES; i++) {
            v[i] = (vec){0};
            if (row + i >= row_end) continue;
            v[i] = NAME(load_unmasked)(stride_class, c->stride[2], x + offset[slot]);
            if (++slot == taps) slot = 0;
            if (++tap == taps) tap = 0, x += plane;
        }
        NAME(transpose_square)(v);
        UNROLL for (int i = 0; i < LANES; i++) STORE(panel + i * step, v[i]);
    }
}

/* The same for the transpose of m: rows of the panel are columns of the im2col matrix. */
V_FN void NAME(fill_transposed_panel)(const int stride_class, const gd_conv_columns *m, int64_t k,
                                      int64_t depth, int64_t j, int64_t n, real *panel,
                                      int64_t step) {
    const gd_conv *c = m->c;
    const int64_t taps = gd_conv_positions(c->kernel), row = m->row + j;
    const int64_t used = taps < n ? taps : n; /* the number of different taps in these rows */
    typedef NAME(span) row_spans[LANES];
    GD_TILE(int64_t, offset, NAME(PANEL_ROWS));
    GD_TILE(row_spans, spans, NAME(PANEL_ROWS));
    GD_TILE(int, span_count, NAME(PANEL_ROWS));
    for (int64_t t = 0; t < used; t++) offset[t] = NAME(tap_offset)(c, (row + t) % taps);
    for (int64_t i = 0; i < depth; i += LANES) {
        NAME(segment) segments[LANES];
        const int count =
            NAME(find_segments)(c, m->column + k + i, m->column + k + depth, segments);
        if (NAME(needs_no_mask)(stride_class, c, segments, count)) {
            NAME(fill_squares_unmasked)
            (stride_class, c, (const real *)m->x + segments[0].offset, row, row + n, offset,
             panel + i * step, step);
            continue;
        }
        for (int64_t t = 0; t < used; t++)
            span_count[t] = NAME(find_spans)(c, segments, count, (row + t) % taps, spans[t]);
        NAME(fill_squares_masked)
        (stride_class, m, row, row + n, spans, span_count, depth - i < LANES ? depth - i : LANES,
         panel + i * step, step);
    }
}

void FN(gd_conv_im2col_transposed)(const void *context, int64_t k, int64_t depth, int64_t j,
                                   int64_t n, void *panel, int64_t step) {
    const gd_conv_columns *m = context;
    switch (m->c->stride[2]) {
    case 1: NAME(fill_transposed_panel)(1, m, k, depth, j, n, panel, step); break;
    case 2: NAME(fill_transposed_panel)(2, m, k, depth, j, n, panel, step); break;
    default: NAME(fill_transposed_panel)(3, m, k, depth, j, n, panel, step); break;
    }
}

#undef real
#undef vec
#undef LANES
#undef lane_bits
#undef lane_mask
#undef NAME
#undef FN
#undef MASK
#undef LOAD_LANES
#undef LOAD
#undef STORE
#undef EVEN
#undef ZIP_LOW
#undef ZIP_HIGH
