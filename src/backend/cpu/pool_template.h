/* pool_template.h - pooling of one plane of `real` (f32 or f64), and its gradients. NAME(x) spells
 * names of functions of this type. Windows of the axes are in tables (pool_kernels.c).
 */

/* --- maxima ----------------------------------------------------------------------------------- */

/* Of one window, whose rows are `rows` in each of `depths`: where the first of the largest is; a
 * NaN wins over all before it. -1: the window is empty. */
static inline int64_t NAME(place_of_max)(const pooling *p, const real *x, const gd_pool_window *d,
                                         const gd_pool_window *h, const gd_pool_window *w) {
    if (d->count == 0 || h->count == 0 || w->count == 0) return -1;
    const int64_t height = p->form.in[1], width = p->form.in[2];
    int64_t best_at = (d->first * height + h->first) * width + w->first;
    real best = x[best_at];
    for (int64_t z = 0; z < d->count; z++)
        for (int64_t r = 0; r < h->count; r++) {
            const int64_t row =
                ((d->first + z * d->step) * height + h->first + r * h->step) * width + w->first;
            for (int64_t c = 0; c < w->count; c++) {
                const real value = x[row + c * w->step];
                const bool wins =
                    (value > best) | (value != value); /* no branch: who wins is anybody's guess */
                best = wins ? value : best;
                best_at = wins ? row + c * w->step : best_at;
            }
        }
    return best_at;
}

/* Windows [from, to) of a row of y, the first of whose elements is number `at` of all. */
static void NAME(max_windows)(const pooling *p, const real *x, int64_t at, const gd_pool_window *d,
                              const gd_pool_window *h, int64_t from, int64_t to) {
    real *y = (real *)p->y + at;
    for (int64_t w = from; w < to; w++) {
        const int64_t place = NAME(place_of_max)(p, x, d, h, &p->windows[2][w]);
        y[w] = place < 0 ? -(real)INFINITY : x[place];
        if (p->short_places) p->short_places[at + w] = (int32_t)place;
        else if (p->places) p->places[at + w] = place;
    }
}

static void NAME(max_plane)(const pooling *p, int64_t plane) {
    const real *x = (const real *)p->x + plane * p->in;
    int64_t at = plane * p->out;
    for (int64_t od = 0; od < p->form.out[0]; od++)
        for (int64_t oh = 0; oh < p->form.out[1]; oh++, at += p->form.out[2]) {
            const gd_pool_window *d = &p->windows[0][od], *h = &p->windows[1][oh];
            const bool alike = NAME(alike)(p, x, at, d, h, true);
            NAME(max_windows)(p, x, at, d, h, 0, alike ? p->alike_from : p->form.out[2]);
            if (alike) NAME(max_windows)(p, x, at, d, h, p->alike_to, p->form.out[2]);
        }
}

/* --- averages --------------------------------------------------------------------------------- */

static inline double NAME(sum_row)(const real *x, int64_t count) {
    double sum = 0;
    if (count >= 16) return NAME(long_sum)(x, count);
    for (int64_t i = 0; i < count; i++) sum += (double)x[i];
    return sum;
}

static inline real NAME(average)(const pooling *p, const real *x, const gd_pool_window *d,
                                 const gd_pool_window *h, const gd_pool_window *w) {
    const int64_t height = p->form.in[1], width = p->form.in[2];
    if (d->count == 0 || h->count == 0 || w->count == 0) return 0;
    const bool whole_rows = w->count == width; /* they lie behind each other */
    const int64_t rows = whole_rows ? 1 : h->count,
                  count = whole_rows ? h->count * width : w->count;
    double sum = 0;
    for (int64_t z = 0; z < d->count; z++)
        for (int64_t r = 0; r < rows; r++)
            sum += NAME(sum_row)(x + ((d->first + z) * height + h->first + r) * width + w->first,
                                 count);
    return (real)(sum / divisor_of(p, d, h, w));
}

static void NAME(average_plane)(const pooling *p, int64_t plane) {
    const real *x = (const real *)p->x + plane * p->in;
    int64_t at = plane * p->out;
    for (int64_t od = 0; od < p->form.out[0]; od++)
        for (int64_t oh = 0; oh < p->form.out[1]; oh++, at += p->form.out[2]) {
            const gd_pool_window *d = &p->windows[0][od], *h = &p->windows[1][oh];
            const bool alike = NAME(alike)(p, x, at, d, h, false);
            for (int64_t w = 0; w < p->form.out[2]; w++) {
                if (alike && w == p->alike_from) w = p->alike_to;
                if (w < p->form.out[2])
                    ((real *)p->y)[at + w] = NAME(average)(p, x, d, h, &p->windows[2][w]);
            }
        }
}

/* The way back: each element of y over its divisor is added to its window. */
static void NAME(spread_plane)(const pooling *p, int64_t plane) {
    real *x = (real *)(uintptr_t)p->x + plane * p->in;
    const real *y = (const real *)p->y + plane * p->out;
    const int64_t height = p->form.in[1], width = p->form.in[2];
    memset(x, 0, (size_t)p->in * sizeof *x);
    for (int64_t od = 0; od < p->form.out[0]; od++)
        for (int64_t oh = 0; oh < p->form.out[1]; oh++) {
            const gd_pool_window *d = &p->windows[0][od], *h = &p->windows[1][oh];
            for (const gd_pool_window *w = p->windows[2], *end = w + p->form.out[2]; w < end; w++) {
                const real share = (real)((double)*y++ / divisor_of(p, d, h, w));
                for (int64_t z = 0; z < d->count; z++)
                    for (int64_t r = 0; r < h->count; r++) {
                        real *row = x + ((d->first + z) * height + h->first + r) * width + w->first;
                        for (int64_t c = 0; c < w->count; c++) row[c] += share;
                    }
            }
        }
}

/* --- places ----------------------------------------------------------------------------------- */

static inline int64_t NAME(place)(const pooling *p, int64_t at) {
    return p->short_places ? p->short_places[at] : p->places[at];
}

/* Elements of y are added to x at their places; returns a place that is none, or -1. */
static int64_t NAME(scatter_plane)(const pooling *p, int64_t plane) {
    real *x = (real *)(uintptr_t)p->x + plane * p->in;
    const real *y = (const real *)p->y + plane * p->out;
    memset(x, 0, (size_t)p->in * sizeof *x);
    for (int64_t i = 0; i < p->out; i++) {
        const int64_t at = NAME(place)(p, plane * p->out + i);
        if (at == -1) continue;
        if (at < -1 || at >= p->in) return at;
        x[at] += y[i];
    }
    return -1;
}

static int64_t NAME(gather_plane)(const pooling *p, int64_t plane) {
    const real *x = (const real *)p->x + plane * p->in;
    real *y = (real *)p->y + plane * p->out;
    for (int64_t i = 0; i < p->out; i++) {
        const int64_t at = NAME(place)(p, plane * p->out + i);
        if (at < -1 || at >= p->in) return at;
        y[i] = at < 0 ? 0 : x[at];
    }
    return -1;
}

#undef real
#undef NAME
