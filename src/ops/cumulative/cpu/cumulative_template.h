/* cumulative_template.h - cumulative ops of one dtype (see cumulative.h).
 *
 * The including file defines TYPE, E (the element) and A (the accumulator; unsigned for integers,
 * so that they wrap).
 */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)
#define NAME(name)  JOIN(name, TYPE)
#define INLINE      static inline __attribute__((always_inline))

/* --- lines ------------------------------------------------------------------------------------ */

/* y = the cumulative sum or product of x, for `count` lines, from acc on. */
INLINE void NAME(accumulate_lines)(gd_cumulative_kind kind, bool exclusive, int64_t n, int count,
                                   int64_t step, const void *const *x, void *const *y, A *acc) {
    for (int64_t t = 0; t < n; t++)
        for (int l = 0; l < count; l++) {
            A before = acc[l], v = (A)((const E *)x[l])[t * step];
            acc[l] = kind == GD_CUMULATIVE_SUM ? before + v : before * v;
            ((E *)y[l])[t * step] = (E)(exclusive ? before : acc[l]);
        }
}

/* y[t] = a[t] * y[t - 1] + b[t]; the coefficient is a[t - 1] if `shifted`. y[0] = b[0]. */
INLINE void NAME(linear_lines)(bool shifted, int64_t n, int count, int64_t step,
                               const void *const *a, const void *const *b, void *const *y) {
    A acc[GD_CUMULATIVE_LINES];
    for (int l = 0; l < count && n > 0; l++) {
        acc[l] = (A)((const E *)b[l])[0];
        ((E *)y[l])[0] = (E)acc[l];
    }
    for (int64_t t = 1; t < n; t++)
        for (int l = 0; l < count; l++) {
            A c = (A)((const E *)a[l])[(t - shifted) * step];
            acc[l] = c * acc[l] + (A)((const E *)b[l])[t * step];
            ((E *)y[l])[t * step] = (E)acc[l];
        }
}

static void NAME(cumulate_lines)(const gd_cumulative *s, int count, int64_t step,
                                 const void *const *a, const void *const *x, void *const *y,
                                 const void *starts) {
    if (s->kind == GD_CUMULATIVE_LINEAR) {
        if (count == GD_CUMULATIVE_LINES)
            NAME(linear_lines)(s->shifted, s->n, GD_CUMULATIVE_LINES, step, a, x, y);
        else NAME(linear_lines)(s->shifted, s->n, count, step, a, x, y);
        return;
    }
    A acc[GD_CUMULATIVE_LINES];
    for (int l = 0; l < count; l++) acc[l] = ((const A *)starts)[l];
    /* Constant arguments let the compiler unroll and specialize the common cases. */
    const bool full = count == GD_CUMULATIVE_LINES;
    if (full && s->exclusive) {
        NAME(accumulate_lines)(s->kind, true, s->n, GD_CUMULATIVE_LINES, step, x, y, acc);
    } else if (full && s->kind == GD_CUMULATIVE_SUM) {
        const gd_cumulative_kind kind = GD_CUMULATIVE_SUM;
        NAME(accumulate_lines)(kind, false, s->n, GD_CUMULATIVE_LINES, step, x, y, acc);
    } else if (full) {
        const gd_cumulative_kind kind = GD_CUMULATIVE_PROD;
        NAME(accumulate_lines)(kind, false, s->n, GD_CUMULATIVE_LINES, step, x, y, acc);
    } else {
        NAME(accumulate_lines)(s->kind, s->exclusive, s->n, count, step, x, y, acc);
    }
}

/* --- columns ---------------------------------------------------------------------------------- */

INLINE void NAME(accumulate_columns)(gd_cumulative_kind kind, bool exclusive, int64_t n,
                                     int64_t cols, int64_t step, const E *x, E *y) {
    A acc[GD_CUMULATIVE_COLUMNS];
    for (int64_t c = 0; c < cols; c++) acc[c] = kind == GD_CUMULATIVE_PROD;
    for (int64_t t = 0; t < n; t++, x += step, y += step)
        for (int64_t c = 0; c < cols; c++) {
            A before = acc[c], v = (A)x[c];
            acc[c] = kind == GD_CUMULATIVE_SUM ? before + v : before * v;
            y[c] = (E)(exclusive ? before : acc[c]);
        }
}

INLINE void NAME(linear_columns)(bool shifted, int64_t n, int64_t cols, int64_t step, const E *a,
                                 const E *b, E *y) {
    A acc[GD_CUMULATIVE_COLUMNS];
    for (int64_t c = 0; c < cols; c++) acc[c] = (A)b[c], y[c] = b[c];
    for (int64_t t = 1; t < n; t++) {
        const E *from = a + (t - shifted) * step, *plus = b + t * step;
        E *to = y + t * step;
        for (int64_t c = 0; c < cols; c++) {
            acc[c] = (A)from[c] * acc[c] + (A)plus[c];
            to[c] = (E)acc[c];
        }
    }
}

static void NAME(cumulate_columns)(const gd_cumulative *s, int64_t cols, int64_t step,
                                   const void *a, const void *x, void *y) {
    if (s->kind == GD_CUMULATIVE_LINEAR)
        NAME(linear_columns)(s->shifted, s->n, cols, step, a, x, y);
    else if (s->kind == GD_CUMULATIVE_SUM)
        NAME(accumulate_columns)(GD_CUMULATIVE_SUM, s->exclusive, s->n, cols, step, x, y);
    else NAME(accumulate_columns)(GD_CUMULATIVE_PROD, s->exclusive, s->n, cols, step, x, y);
}

/* --- blocks of a long line -------------------------------------------------------------------- */

static void NAME(cumulate_total)(gd_cumulative_kind kind, const void *p, int64_t n, void *result) {
    const E *x = p;
    A acc[8];
    int64_t i = 0;
    for (int k = 0; k < 8; k++) acc[k] = kind == GD_CUMULATIVE_PROD;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            acc[k] = kind == GD_CUMULATIVE_SUM ? acc[k] + (A)x[i + k] : acc[k] * (A)x[i + k];
    for (; i < n; i++) acc[0] = kind == GD_CUMULATIVE_SUM ? acc[0] + (A)x[i] : acc[0] * (A)x[i];
    for (int h = 4; h > 0; h /= 2)
        for (int k = 0; k < h; k++)
            acc[k] = kind == GD_CUMULATIVE_SUM ? acc[k] + acc[k + h] : acc[k] * acc[k + h];
    *(A *)result = acc[0];
}

static void NAME(exclusive_prefix)(gd_cumulative_kind kind, int64_t n, bool reverse, void *totals) {
    A sum = kind == GD_CUMULATIVE_PROD, *at = totals;
    for (int64_t k = 0; k < n; k++) {
        A *t = &at[reverse ? n - 1 - k : k], own = *t;
        *t = sum;
        sum = kind == GD_CUMULATIVE_SUM ? sum + own : sum * own;
    }
}

#define TABLE_(type) GD_ISA_FN(gd_cumulative_##type)
#define TABLE(type)  TABLE_(type)
const gd_cumulative_isa TABLE(TYPE)[1] = {
    {NAME(cumulate_lines), NAME(cumulate_columns), NAME(cumulate_total), NAME(exclusive_prefix)}};

#undef JOIN_
#undef JOIN
#undef NAME
#undef INLINE
#undef TABLE_
#undef TABLE
#undef TYPE
#undef E
#undef A
