/* pool_template.h - pooling of one plane of `real` (f32 or f64), and its gradients. NAME(x) forms
 * function names for the dtype. The windows of the axes are in tables (pool_kernels.c).
 */

/* --- max pooling ------------------------------------------------------------------------------ */

/* The index of the first maximum of a window; a NaN replaces everything before it. -1 if the window
 * is empty. */
static inline int64_t NAME(index_of_max)(const pool_job *p, const real *x, const gd_pool_window *d,
                                         const gd_pool_window *h, const gd_pool_window *w) {
    if (d->count == 0 || h->count == 0 || w->count == 0) return -1;
    const int64_t height = p->form.in[1], width = p->form.in[2];
    int64_t best_index = (d->first * height + h->first) * width + w->first;
    real best = x[best_index];
    for (int64_t z = 0; z < d->count; z++)
        for (int64_t r = 0; r < h->count; r++) {
            const int64_t row =
                ((d->first + z * d->step) * height + h->first + r * h->step) * width + w->first;
            for (int64_t c = 0; c < w->count; c++) {
                const real value = x[row + c * w->step];
                /* Branch-free, because the comparison is unpredictable. */
                const bool replaces = (value > best) | (value != value);
                best = replaces ? value : best;
                best_index = replaces ? row + c * w->step : best_index;
            }
        }
    return best_index;
}

/* Computes windows [from, to) of a row of y; `at` is the index of the row's first element in y. */
static void NAME(max_windows)(const pool_job *p, const real *x, int64_t at, const gd_pool_window *d,
                              const gd_pool_window *h, int64_t from, int64_t to) {
    real *y = (real *)p->y + at;
    for (int64_t w = from; w < to; w++) {
        const int64_t index = NAME(index_of_max)(p, x, d, h, &p->windows[2][w]);
        y[w] = index < 0 ? -(real)INFINITY : x[index];
        if (p->indices_i32) p->indices_i32[at + w] = (int32_t)index;
        else if (p->indices) p->indices[at + w] = index;
    }
}

static void NAME(max_plane)(const pool_job *p, int64_t plane) {
    const real *x = (const real *)p->x + plane * p->in;
    int64_t at = plane * p->out;
    for (int64_t od = 0; od < p->form.out[0]; od++)
        for (int64_t oh = 0; oh < p->form.out[1]; oh++, at += p->form.out[2]) {
            const gd_pool_window *d = &p->windows[0][od], *h = &p->windows[1][oh];
            const bool uniform = NAME(uniform_windows)(p, x, at, d, h, true);
            NAME(max_windows)(p, x, at, d, h, 0, uniform ? p->uniform_from : p->form.out[2]);
            if (uniform) NAME(max_windows)(p, x, at, d, h, p->uniform_to, p->form.out[2]);
        }
}

/* --- average pooling -------------------------------------------------------------------------- */

static inline double NAME(sum_window_row)(const real *x, int64_t count) {
    double sum = 0;
    if (count >= 16) return NAME(long_sum)(x, count);
    for (int64_t i = 0; i < count; i++) sum += (double)x[i];
    return sum;
}

static inline real NAME(average_window)(const pool_job *p, const real *x, const gd_pool_window *d,
                                        const gd_pool_window *h, const gd_pool_window *w) {
    const int64_t height = p->form.in[1], width = p->form.in[2];
    if (d->count == 0 || h->count == 0 || w->count == 0) return 0;
    const bool full_rows = w->count == width; /* the rows are contiguous */
    const int64_t rows = full_rows ? 1 : h->count, count = full_rows ? h->count * width : w->count;
    double sum = 0;
    for (int64_t z = 0; z < d->count; z++)
        for (int64_t r = 0; r < rows; r++)
            sum += NAME(sum_window_row)(
                x + ((d->first + z) * height + h->first + r) * width + w->first, count);
    return (real)(sum / average_divisor(p, d, h, w));
}

static void NAME(average_plane)(const pool_job *p, int64_t plane) {
    const real *x = (const real *)p->x + plane * p->in;
    int64_t at = plane * p->out;
    for (int64_t od = 0; od < p->form.out[0]; od++)
        for (int64_t oh = 0; oh < p->form.out[1]; oh++, at += p->form.out[2]) {
            const gd_pool_window *d = &p->windows[0][od], *h = &p->windows[1][oh];
            const bool uniform = NAME(uniform_windows)(p, x, at, d, h, false);
            for (int64_t w = 0; w < p->form.out[2]; w++) {
                if (uniform && w == p->uniform_from) w = p->uniform_to;
                if (w < p->form.out[2])
                    ((real *)p->y)[at + w] = NAME(average_window)(p, x, d, h, &p->windows[2][w]);
            }
        }
}

/* The gradient: adds each element of y, divided by its divisor, to its window. */
static void NAME(average_grad_plane)(const pool_job *p, int64_t plane) {
    real *x = (real *)(uintptr_t)p->x + plane * p->in;
    const real *y = (const real *)p->y + plane * p->out;
    const int64_t height = p->form.in[1], width = p->form.in[2];
    memset(x, 0, (size_t)p->in * sizeof *x);
    for (int64_t od = 0; od < p->form.out[0]; od++)
        for (int64_t oh = 0; oh < p->form.out[1]; oh++) {
            const gd_pool_window *d = &p->windows[0][od], *h = &p->windows[1][oh];
            for (const gd_pool_window *w = p->windows[2], *end = w + p->form.out[2]; w < end; w++) {
                const real share = (real)((double)*y++ / average_divisor(p, d, h, w));
                for (int64_t z = 0; z < d->count; z++)
                    for (int64_t r = 0; r < h->count; r++) {
                        real *row = x + ((d->first + z) * height + h->first + r) * width + w->first;
                        for (int64_t c = 0; c < w->count; c++) row[c] += share;
                    }
            }
        }
}

/* --- scatter and gather by index -------------------------------------------------------------- */

static inline int64_t NAME(index_at)(const pool_job *p, int64_t at) {
    return p->indices_i32 ? p->indices_i32[at] : p->indices[at];
}

/* Adds the elements of y to x at their indices; returns an index that is out of range, or -1. */
static int64_t NAME(scatter_plane)(const pool_job *p, int64_t plane) {
    real *x = (real *)(uintptr_t)p->x + plane * p->in;
    const real *y = (const real *)p->y + plane * p->out;
    memset(x, 0, (size_t)p->in * sizeof *x);
    for (int64_t i = 0; i < p->out; i++) {
        const int64_t at = NAME(index_at)(p, plane * p->out + i);
        if (at == -1) continue;
        if (at < -1 || at >= p->in) return at;
        x[at] += y[i];
    }
    return -1;
}

static int64_t NAME(gather_plane)(const pool_job *p, int64_t plane) {
    const real *x = (const real *)p->x + plane * p->in;
    real *y = (real *)p->y + plane * p->out;
    for (int64_t i = 0; i < p->out; i++) {
        const int64_t at = NAME(index_at)(p, plane * p->out + i);
        if (at < -1 || at >= p->in) return at;
        y[i] = at < 0 ? 0 : x[at];
    }
    return -1;
}

#undef real
#undef NAME
