/* conv_columns_template.h - moving columns, for `real` (f32 or f64) and the instruction set being
 * compiled. NAME(x), FN(x) and V(x) spell the names of this type's functions.
 */

/* count numbers in a row. */
V_FN void NAME(copy_row)(real *to, const real *from, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) V(store)(to + i, V(load)(from + i));
    if (i < count) V(store_part)(to + i, V(load_part)(from + i, (int)(count - i)), (int)(count - i));
}

V_FN void NAME(zero_row)(real *to, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) V(store)(to + i, (vec){0});
    if (i < count) V(store_part)(to + i, (vec){0}, (int)(count - i));
}

V_FN void NAME(add_row)(real *to, const real *from, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) V(store)(to + i, V(load)(to + i) + V(load)(from + i));
    if (i < count) {
        const int rest = (int)(count - i);
        V(store_part)(to + i, V(load_part)(to + i, rest) + V(load_part)(from + i, rest), rest);
    }
}

/* Every second number. */
V_FN void NAME(copy_even)(real *to, const real *from, int64_t count) {
    int64_t i = 0;
    for (; i + LANES < count; i += LANES) /* the number after the last one is still in the row */
        V(store)(to + i, EVEN(V(load)(from + 2 * i), V(load)(from + 2 * i + LANES)));
    for (; i < count; i++) to[i] = from[2 * i];
}

/* The columns of a run whose taps number `tap` along the width lie in x: [*low, *high). */
V_FN void NAME(inside)(const gd_conv *c, const gd_column_run *run, int64_t tap, int64_t *low, int64_t *high) {
    const int64_t stride = c->stride[2], first = tap * c->dilation[2] - c->before[2] + run->place * stride;
    const int64_t room = c->in[2] - first; /* x's elements from the first tap on */
    int64_t begin = first < 0 ? -first : 0, end = room > 0 ? room : 0;
    if (stride > 1) {
        begin = (begin + stride - 1) / stride;
        end = (end + stride - 1) / stride;
    }
    *high = end < run->count ? end : run->count;
    *low = begin < *high ? begin : *high;
}

/* The row of x that row (channel, taps) of the matrix needs for this run; NULL in the padding. */
V_FN const real *NAME(row_of_x)(const gd_conv *c, const real *x, const gd_column_run *run, int64_t channel,
                                int64_t tap_d, int64_t tap_h) {
    const int64_t d = run->depth + tap_d * c->dilation[0], h = run->row + tap_h * c->dilation[1];
    if (d < 0 || d >= c->in[0] || h < 0 || h >= c->in[1]) return NULL;
    return x + (((run->image * c->groups * c->ci + channel) * c->in[0] + d) * c->in[1] + h) * c->in[2];
}

void FN(gd_columns_fill)(const gd_columns *m, const real *x) {
    const gd_conv *c = m->c;
    const int64_t stride = c->stride[2];
    real *to = m->data;
    for (int64_t r = m->begin; r < m->end; r++, to += m->step) {
        const int64_t tap = r % c->kernel[2], tap_h = r / c->kernel[2] % c->kernel[1];
        const int64_t tap_d = r / (c->kernel[2] * c->kernel[1]) % c->kernel[0];
        const int64_t channel = r / (c->kernel[2] * c->kernel[1] * c->kernel[0]);
        for (const gd_column_run *run = m->runs; run < m->runs + m->count; run++) {
            const real *from = NAME(row_of_x)(c, x, run, channel, tap_d, tap_h);
            if (!from) {
                NAME(zero_row)(to + run->at, run->count);
                continue;
            }
            int64_t low, high;
            NAME(inside)(c, run, tap, &low, &high);
            from += tap * c->dilation[2] - c->before[2] + (run->place + low) * stride;
            real *row = to + run->at;
            if (low > 0) NAME(zero_row)(row, low);
            if (stride == 1) NAME(copy_row)(row + low, from, high - low);
            else if (stride == 2) NAME(copy_even)(row + low, from, high - low);
            else for (int64_t i = 0; i < high - low; i++) row[low + i] = from[i * stride];
            if (high < run->count) NAME(zero_row)(row + high, run->count - high);
        }
    }
}

void FN(gd_columns_add)(const gd_columns *m, real *x) {
    const gd_conv *c = m->c;
    const int64_t stride = c->stride[2];
    const real *from = m->data;
    for (int64_t r = m->begin; r < m->end; r++, from += m->step) {
        const int64_t tap = r % c->kernel[2], tap_h = r / c->kernel[2] % c->kernel[1];
        const int64_t tap_d = r / (c->kernel[2] * c->kernel[1]) % c->kernel[0];
        const int64_t channel = r / (c->kernel[2] * c->kernel[1] * c->kernel[0]);
        for (const gd_column_run *run = m->runs; run < m->runs + m->count; run++) {
            real *to = (real *)(uintptr_t)NAME(row_of_x)(c, x, run, channel, tap_d, tap_h);
            if (!to) continue;
            int64_t low, high;
            NAME(inside)(c, run, tap, &low, &high);
            to += tap * c->dilation[2] - c->before[2] + (run->place + low) * stride;
            const real *row = from + run->at + low;
            if (stride == 1) NAME(add_row)(to, row, high - low);
            else for (int64_t i = 0; i < high - low; i++) to[i * stride] += row[i];
        }
    }
}

#undef real
#undef vec
#undef LANES
#undef NAME
#undef FN
#undef V
#undef EVEN
