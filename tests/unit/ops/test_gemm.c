/* test_gemm.c - promises of ops/matmul/cpu/gemm.h: products of any shape, strides and dtypes agree
 * with a triple loop in double on every instruction set of this processor, write only C, and have
 * the same bits for any number of threads.
 *
 * GRADUS_GEMM_CASES is the number of random cases (default 300).
 */
#include <float.h>
#include <math.h>
#include <stdarg.h>

#include "ops/matmul/cpu/gemm.h"
#include "backend/cpu/isa.h"
#include "draw.h"
#include "fault_walk.h"
#include "gradus/testing.h"
#include "gradus/threads.h"
#include "test.h"

static draws stream = {1};

static void report_failure(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    test_failures++;
}

static void *allocate(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        printf("out of memory in the test itself\n");
        exit(2);
    }
    return p;
}

/* --- elements of any dtype, read and written without the code under test ---------------------- */

static size_t size_of(gd_dtype t) { return t == GD_F64 ? 8 : t == GD_F32 ? 4 : 2; }

static double epsilon_of(gd_dtype t) {
    return t == GD_F64 ? DBL_EPSILON : t == GD_F32 ? FLT_EPSILON : t == GD_F16 ? 0x1p-10 : 0x1p-7;
}

static double read_at(const void *data, gd_dtype t, int64_t i) {
    if (t == GD_F64) return ((const double *)data)[i];
    if (t == GD_F32) return (double)((const float *)data)[i];
    const unsigned h = ((const uint16_t *)data)[i];
    const int fraction_bits = t == GD_F16 ? 10 : 7, bias = t == GD_F16 ? 15 : 127;
    const int fraction = (int)(h & ((1u << fraction_bits) - 1));
    const int exponent = (int)((h & 0x7fff) >> fraction_bits), top = t == GD_F16 ? 31 : 255;
    double x;
    if (exponent == top) x = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0) x = ldexp(fraction, 1 - bias - fraction_bits);
    else x = ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
    return h & 0x8000 ? -x : x;
}

/* Truncates: the tests choose values for which rounding does not matter. */
static void write_at(void *data, gd_dtype t, int64_t i, double x) {
    if (t == GD_F64) {
        ((double *)data)[i] = x;
    } else if (t == GD_F32) {
        ((float *)data)[i] = (float)x;
    } else {
        const int fraction_bits = t == GD_F16 ? 10 : 7, bias = t == GD_F16 ? 15 : 127;
        const unsigned top = t == GD_F16 ? 31 : 255;
        unsigned h = signbit(x) ? 0x8000 : 0;
        if (isnan(x)) {
            h |= (top << fraction_bits) | 1u << (fraction_bits - 1);
        } else if (isinf(x)) {
            h |= top << fraction_bits;
        } else if (x != 0) {
            int e;
            double f = frexp(fabs(x), &e); /* f in [1/2, 1) */
            int exponent = e - 1 + bias;
            if (exponent > 0)
                h |= (unsigned)exponent << fraction_bits |
                     ((unsigned)ldexp(f, fraction_bits + 1) & ((1u << fraction_bits) - 1));
            else h |= (unsigned)ldexp(f, fraction_bits + exponent);
        }
        ((uint16_t *)data)[i] = (uint16_t)h;
    }
}

/* --- matrices of any layout ------------------------------------------------------------------- */

/* `count` matrices in one buffer, with NaN between their elements. */
typedef struct matrix {
    void *buffer;
    size_t bytes;
    int64_t first, row, col, step; /* in elements */
    gd_dtype dtype;
} matrix;

/* In the first four every element has its own memory, so C may use them. */
enum layout { ROWS, COLUMNS, SPREAD, BACKWARDS, REPEAT_ROW, REPEAT_COLUMN };

static void *address(const matrix *x) {
    return (char *)x->buffer + (size_t)x->first * size_of(x->dtype);
}

static double element(const matrix *x, int64_t p, int64_t i, int64_t j) {
    return read_at(x->buffer, x->dtype, x->first + p * x->step + i * x->row + j * x->col);
}

static void set_element(matrix *x, int64_t p, int64_t i, int64_t j, double value) {
    write_at(x->buffer, x->dtype, x->first + p * x->step + i * x->row + j * x->col, value);
}

static matrix make_matrix(int64_t m, int64_t n, int64_t count, enum layout layout, gd_dtype dtype) {
    const int64_t gap = draw_between(&stream, 0, 1) ? draw_between(&stream, 0, 5) : 0;
    matrix x = {.dtype = dtype};
    switch (layout) {
    case ROWS: x.col = 1, x.row = n + gap; break;
    case COLUMNS: x.row = 1, x.col = m + gap; break;
    case SPREAD: x.col = 2, x.row = 2 * n + gap; break;
    case BACKWARDS: x.col = -1, x.row = -(n + gap); break;
    case REPEAT_ROW: x.col = 1; break;
    default: x.row = 1; break; /* REPEAT_COLUMN */
    }
    const int64_t m1 = m > 0 ? m - 1 : 0, n1 = n > 0 ? n - 1 : 0;
    const int64_t extent = m1 * llabs(x.row) + n1 * llabs(x.col) + 1;
    x.step = extent + gap;
    const int64_t total = x.step * count + 8;
    x.first = layout == BACKWARDS ? extent - 1 + 4 : 4;
    x.bytes = (size_t)total * size_of(dtype);
    x.buffer = allocate(x.bytes);
    for (int64_t i = 0; i < total; i++) write_at(x.buffer, dtype, i, (double)NAN);
    for (int64_t p = 0; p < count; p++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) set_element(&x, p, i, j, draw_real(&stream));
    return x;
}

/* --- one case --------------------------------------------------------------------------------- */

typedef struct test_case {
    int64_t m, n, k, products;
    matrix a, b, c, bias, mask;
    bool accumulate, scaled, biased, masked;
    double scale;
    gd_gemm_act act;
    bool share_a, share_b; /* one matrix for all products */
    const char *name;
} test_case;

static void report_case(const test_case *t, const char *isa, const char *what) {
    report_failure(
        "%s: %s: %lld products of (%lld, %lld, %lld), types %d %d %d, strides a %lld %lld b %lld "
        "%lld c %lld %lld bias %lld %lld%s%s%s%s%s%s",
        t->name, isa, (long long)t->products, (long long)t->m, (long long)t->n, (long long)t->k,
        (int)t->a.dtype, (int)t->b.dtype, (int)t->c.dtype, (long long)t->a.row, (long long)t->a.col,
        (long long)t->b.row, (long long)t->b.col, (long long)t->c.row, (long long)t->c.col,
        (long long)t->bias.row, (long long)t->bias.col, t->accumulate ? " accumulate" : "",
        t->biased ? " bias" : "", t->scaled ? " scale" : "", t->masked ? " mask" : "",
        t->act == GD_GEMM_RELU ? " relu: " : ": ", what);
}

static gd_status run_case(const test_case *t) {
    gd_gemm g = {
        .m = t->m,
        .n = t->n,
        .k = t->k,
        .a = {address(&t->a), t->a.dtype, t->a.row, t->a.col},
        .b = {address(&t->b), t->b.dtype, t->b.row, t->b.col},
        .c = {address(&t->c), t->c.dtype, t->c.row, t->c.col},
        .accumulate = t->accumulate,
        .scaled = t->scaled,
        .scale = t->scale,
        .act = t->act,
    };
    if (t->masked)
        g.mask = (gd_gemm_in){address(&t->mask), t->mask.dtype, t->mask.row, t->mask.col};
    if (t->biased)
        g.bias = (gd_gemm_in){address(&t->bias), t->bias.dtype, t->bias.row, t->bias.col};
    if (t->products == 1 && !t->share_a) return gd_gemm_run(&g);
    /* An even number of products is passed as a batch of rank 2. */
    const int64_t inner = t->products % 2 == 0 ? 2 : 1;
    const int64_t a = t->share_a ? 0 : t->a.step, b = t->share_b ? 0 : t->b.step;
    gd_gemm_batch batch = {
        .rank = 2,
        .size = {t->products / inner, inner},
        .a_step = {a * inner, a},
        .b_step = {b * inner, b},
        .c_step = {t->c.step * inner, t->c.step},
        .bias_step = {t->bias.step * inner, t->bias.step},
    };
    return gd_gemm_run_batch(&g, &batch);
}

/* The expected element (i, j) of product p, and its tolerance. */
static double expected(const test_case *t, const matrix *c, int64_t p, int64_t i, int64_t j,
                       double *tolerance) {
    double sum = 0, size = 0;
    for (int64_t k = 0; k < t->k; k++) {
        double term =
            element(&t->a, t->share_a ? 0 : p, i, k) * element(&t->b, t->share_b ? 0 : p, k, j);
        sum += term;
        size += fabs(term);
    }
    if (t->scaled) sum *= t->scale, size *= fabs(t->scale);
    double old = t->accumulate ? element(c, p, i, j) : 0;
    double bias = t->biased ? element(&t->bias, p, i, j) : 0;
    double result = sum + old + bias;
    if (t->act == GD_GEMM_RELU && result < 0) result = 0;
    if (t->masked && element(&t->mask, p, i, j) <= 0) result = 0;
    const double sum_epsilon = epsilon_of(t->c.dtype == GD_F64 ? GD_F64 : GD_F32);
    /* Errors of random terms grow with the square root of their number, errors of equal terms
     * linearly. */
    const bool equal = t->a.col == 0 && t->b.row == 0;
    const double growth = 4 + (equal ? (double)t->k : sqrt((double)t->k));
    *tolerance = sum_epsilon * growth * (size + fabs(old) + fabs(bias)) +
                 0.51 * epsilon_of(t->c.dtype) * fabs(result) + 0x1p-24 * (t->c.dtype == GD_F16);
    return result;
}

static void check_values(const test_case *t, const matrix *before, const double *want,
                         const double *tolerance, const char *isa) {
    /* Memory that is not an element of C must be unchanged. Checked elements are marked. */
    matrix rest = t->c;
    rest.buffer = allocate(t->c.bytes);
    memcpy(rest.buffer, t->c.buffer, t->c.bytes);
    int64_t at = 0;
    for (int64_t p = 0; p < t->products; p++)
        for (int64_t i = 0; i < t->m; i++)
            for (int64_t j = 0; j < t->n; j++, at++) {
                double got = element(&t->c, p, i, j), off = fabs(got - want[at]);
                bool same = isnan(want[at]) ? isnan(got) : got == want[at] || off <= tolerance[at];
                if (!same) {
                    char what[128];
                    snprintf(what, sizeof what, "product %lld (%lld, %lld) is %.9g, expected %.9g",
                             (long long)p, (long long)i, (long long)j, got, want[at]);
                    report_case(t, isa, what);
                    free(rest.buffer);
                    return;
                }
                set_element(&rest, p, i, j, element(before, p, i, j));
            }
    if (memcmp(rest.buffer, before->buffer, t->c.bytes) != 0) report_case(t, isa, "wrote beside C");
    free(rest.buffer);
}

static void check_case(test_case *t) {
    matrix before = t->c;
    before.buffer = allocate(t->c.bytes);
    memcpy(before.buffer, t->c.buffer, t->c.bytes);
    const size_t count = (size_t)(t->products * t->m * t->n);
    double *want = allocate(count * sizeof *want), *tolerance = allocate(count * sizeof *want);
    size_t at = 0;
    for (int64_t p = 0; p < t->products; p++)
        for (int64_t i = 0; i < t->m; i++)
            for (int64_t j = 0; j < t->n; j++, at++)
                want[at] = expected(t, &before, p, i, j, &tolerance[at]);

    void *bits = allocate(t->c.bytes);
    for (int isa = 0; isa < GD_ISA_COUNT; isa++) {
        if (gd_cpu_set_isa((gd_isa)isa) != (gd_isa)isa) continue;
        static const int threads[] = {1, 2, 3, 4, 7};
        for (size_t x = 0; x < sizeof threads / sizeof *threads; x++) {
            gd_set_num_threads(threads[x]);
            memcpy(t->c.buffer, before.buffer, t->c.bytes);
            if (run_case(t) != GD_OK) {
                report_case(t, gd_isa_name((gd_isa)isa), "failed");
            } else if (x == 0) {
                check_values(t, &before, want, tolerance, gd_isa_name((gd_isa)isa));
                memcpy(bits, t->c.buffer, t->c.bytes);
            } else if (memcmp(bits, t->c.buffer, t->c.bytes) != 0) {
                report_case(t, gd_isa_name((gd_isa)isa),
                            "other bits with another number of threads");
            }
        }
    }
    memcpy(t->c.buffer, before.buffer, t->c.bytes);
    free(bits);
    free(want);
    free(tolerance);
    free(before.buffer);
}

static void free_case(test_case *t) {
    free(t->a.buffer);
    free(t->b.buffer);
    free(t->c.buffer);
    free(t->bias.buffer);
    free(t->mask.buffer);
}

/* Creates the matrices of a case whose sizes and settings are given. */
static void fill_case(test_case *t, enum layout a, enum layout b, enum layout c, gd_dtype ta,
                      gd_dtype tb, gd_dtype tc) {
    static const enum layout bias_layouts[] = {REPEAT_ROW, REPEAT_COLUMN, ROWS, COLUMNS};
    t->a = make_matrix(t->m, t->k, t->share_a ? 1 : t->products, a, ta);
    t->b = make_matrix(t->k, t->n, t->share_b ? 1 : t->products, b, tb);
    t->c = make_matrix(t->m, t->n, t->products, c, tc);
    if (t->masked)
        t->mask = make_matrix(t->m, t->n, 1, bias_layouts[draw_between(&stream, 0, 3)], tc);
    if (t->biased)
        t->bias =
            make_matrix(t->m, t->n, t->products, bias_layouts[draw_between(&stream, 0, 3)], tc);
}

/* --- the tests -------------------------------------------------------------------------------- */

static int64_t random_size(void) {
    switch (draw_between(&stream, 0, 5)) {
    case 0: return draw_between(&stream, 1, 4);
    case 1: return draw_between(&stream, 1, 20);
    case 2: return 16 * draw_between(&stream, 1, 8);
    default: return draw_between(&stream, 1, 140);
    }
}

TEST(random_products_agree_with_a_triple_loop) {
    const char *given = getenv("GRADUS_GEMM_CASES");
    const int64_t cases = given ? atoll(given) : 300;
    static const gd_dtype narrow[] = {GD_F32, GD_F32, GD_F32, GD_F16, GD_BF16};
    for (int64_t i = 0; i < cases; i++) {
        test_case t = {.name = "random", .products = 1};
        t.m = random_size(), t.n = random_size(), t.k = random_size();
        if (draw_between(&stream, 0, 3) == 0) t.products = draw_between(&stream, 1, 9);
        if (draw_between(&stream, 0, 7) == 0) t.k = draw_between(&stream, 500, 2600);
        t.share_a = t.products > 1 && draw_between(&stream, 0, 3) == 0;
        t.share_b = t.products > 1 && draw_between(&stream, 0, 2) == 0;
        t.accumulate = draw_between(&stream, 0, 1), t.biased = draw_between(&stream, 0, 1);
        t.scaled = draw_between(&stream, 0, 3) == 0, t.scale = draw_real(&stream);
        t.act = draw_between(&stream, 0, 1) ? GD_GEMM_RELU : GD_GEMM_IDENTITY;
        t.masked = t.products == 1 && draw_between(&stream, 0, 2) == 0;
        gd_dtype types[3] = {GD_F64, GD_F64, GD_F64};
        if (draw_between(&stream, 0, 3) > 0) {
            const bool plain = draw_between(&stream, 0, 1); /* all f32 */
            for (int x = 0; x < 3; x++)
                types[x] = plain ? GD_F32 : narrow[draw_between(&stream, 0, 4)];
        }
        const int a = (int)draw_between(&stream, 0, REPEAT_COLUMN),
                  b = (int)draw_between(&stream, 0, REPEAT_COLUMN);
        const int c = (int)draw_between(&stream, 0, BACKWARDS);
        fill_case(&t, (enum layout)a, (enum layout)b, (enum layout)c, types[0], types[1], types[2]);
        check_case(&t);
        free_case(&t);
    }
}

TEST(every_layout_and_dtype_agrees_for_chosen_shapes) {
    static const int64_t shapes[][3] = {
        {1, 1, 1},     {1, 300, 70},  {300, 1, 70},  {1, 90, 5000}, {3, 200, 90},
        {200, 4, 90},  {2, 3, 9000},  {64, 64, 64},  {65, 49, 33},  {57, 97, 513},
        {129, 130, 7}, {400, 50, 20}, {50, 800, 20}, {8, 48, 1025}, {20, 30, 4100},
    };
    static const gd_dtype types[] = {GD_F32, GD_F64, GD_F16, GD_BF16};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int layouts = 0; layouts < 8; layouts++)
            for (int type = 0; type < 4; type++) {
                test_case t = {.name = "chosen", .products = 1};
                t.m = shapes[s][0], t.n = shapes[s][1], t.k = shapes[s][2];
                t.biased = layouts % 3 == 0, t.accumulate = layouts % 3 == 1;
                if (type >= 2 && t.m * t.n * t.k > 200000) continue;
                fill_case(&t, layouts & 1 ? COLUMNS : ROWS, layouts & 2 ? COLUMNS : ROWS,
                          layouts & 4 ? COLUMNS : ROWS, types[type], types[type], types[type]);
                check_case(&t);
                free_case(&t);
            }
}

TEST(large_products_are_split_and_agree) {
    static const int64_t shapes[][3] = {{700, 500, 60}, {130, 900, 300}, {1000, 33, 40}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int layouts = 0; layouts < 4; layouts++) {
            test_case t = {.name = "large", .products = 1};
            t.m = shapes[s][0], t.n = shapes[s][1], t.k = shapes[s][2];
            fill_case(&t, layouts & 1 ? COLUMNS : ROWS, layouts & 2 ? COLUMNS : ROWS, ROWS, GD_F32,
                      GD_F32, GD_F32);
            check_case(&t);
            free_case(&t);
        }
}

TEST(many_small_products_are_grouped_and_agree) {
    test_case t = {.name = "batch", .products = 500, .m = 9, .n = 17, .k = 11, .biased = true};
    fill_case(&t, ROWS, COLUMNS, ROWS, GD_F32, GD_F32, GD_F32);
    check_case(&t);
    free_case(&t);
    test_case row = {.name = "merge", .products = 30, .m = 1, .n = 70, .k = 40, .share_b = true};
    fill_case(&row, ROWS, ROWS, ROWS, GD_F32, GD_F32, GD_F32);
    check_case(&row);
    free_case(&row);
}

TEST(empty_products_are_zero) {
    for (int zero = 0; zero < 8; zero++)
        for (int type = 0; type < 2; type++) {
            test_case t = {.name = "empty", .products = 1, .biased = true};
            t.m = zero & 1 ? 0 : 5, t.n = zero & 2 ? 0 : 40, t.k = zero & 4 ? 0 : 3;
            const gd_dtype dtype = type ? GD_F64 : GD_BF16;
            fill_case(&t, ROWS, COLUMNS, ROWS, dtype, dtype, dtype);
            check_case(&t);
            t.act = GD_GEMM_RELU, t.accumulate = true, t.biased = false;
            check_case(&t);
            free_case(&t);
        }
    float c[4] = {1, 2, 3, 4};
    gd_gemm g = {.m = 2, .n = 2, .a.dtype = GD_F32, .b.dtype = GD_F32, .c = {c, GD_F32, 2, 1}};
    if (gd_gemm_run(&g) != GD_OK || c[0] != 0 || c[1] != 0 || c[2] != 0 || c[3] != 0)
        report_failure("empty: k == 0 with no A and B does not give zeros");
    gd_gemm_batch none = {.rank = 1, .size = {0}};
    c[0] = 1;
    if (gd_gemm_run_batch(&g, &none) != GD_OK || c[0] != 1)
        report_failure("empty: a batch of none is not");
}

TEST(nan_and_infinity_propagate) {
    static const int64_t shapes[][3] = {{40, 50, 30}, {1, 200, 30}, {3, 60, 40}, {70, 1, 50}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int layouts = 0; layouts < 4; layouts++)
            for (int act = 0; act < 2; act++) {
                test_case t = {.name = "nan", .products = 1, .act = (gd_gemm_act)act};
                t.m = shapes[s][0], t.n = shapes[s][1], t.k = shapes[s][2];
                fill_case(&t, layouts & 1 ? COLUMNS : ROWS, layouts & 2 ? COLUMNS : ROWS, ROWS,
                          layouts == 3 ? GD_BF16 : GD_F32, GD_F32, layouts == 2 ? GD_F16 : GD_F32);
                /* A row of zeros times a column with NaN, and times one with an infinity. */
                for (int64_t k = 0; k < t.k; k++) set_element(&t.a, 0, 0, k, 0);
                set_element(&t.b, 0, t.k / 2, 0, (double)NAN);
                set_element(&t.b, 0, t.k - 1, t.n - 1, (double)INFINITY);
                set_element(&t.a, 0, t.m - 1, 1, (double)-INFINITY);
                check_case(&t);
                free_case(&t);
            }
}

/* Multiplies all 65536 numbers of 16 bits by one: they must not change. */
TEST(f16_and_bf16_are_read_and_rounded_exactly) {
    static uint16_t in[65536], out[65536];
    static float wide[65536];
    static const gd_dtype types[] = {GD_F16, GD_BF16};
    for (int isa = 0; isa < GD_ISA_COUNT; isa++) {
        if (gd_cpu_set_isa((gd_isa)isa) != (gd_isa)isa) continue;
        for (int type = 0; type < 2; type++) {
            const gd_dtype t = types[type];
            const float one = 1;
            for (int i = 0; i < 65536; i++) in[i] = (uint16_t)i;
            gd_gemm g = {.m = 256, .n = 256, .k = 1};
            g.a = (gd_gemm_in){&one, GD_F32, 0, 1}; /* (256, 1) ones: row i is row i of B ... */
            g.b = (gd_gemm_in){in, t, 256, 1};
            g.c = (gd_gemm_out){wide, GD_F32, 256, 1};
            g.m = 1; /* ... one row at a time */
            for (int i = 0; i < 256; i++) {
                g.b.data = in + 256 * i;
                g.c.data = wide + 256 * i;
                gd_gemm_run(&g);
            }
            for (int i = 0; i < 65536; i++) {
                double want = read_at(in, t, i), got = (double)wide[i];
                if (isnan(want) ? !isnan(got) : got != want)
                    report_failure("16 bits: %s: type %d: 0x%04x is read as %g, expected %g",
                                   gd_isa_name((gd_isa)isa), (int)t, (unsigned)i, got, want);
            }
            /* Rounding: the numbers themselves, and points between a number and the next. */
            const unsigned top = t == GD_F16 ? 0x7c00 : 0x7f80;
            for (int point = 0; point < 4; point++) {
                for (unsigned i = 0; i < 65536; i++) {
                    const unsigned magnitude = i & 0x7fff;
                    const double x = read_at(in, t, i);
                    const double step =
                        magnitude + 1 < top ? read_at(in, t, (int64_t)i + 1) - x : 0;
                    wide[i] = (float)(x + step * point / 4);
                }
                g.b = (gd_gemm_in){wide, GD_F32, 256, 1};
                g.c = (gd_gemm_out){out, t, 256, 1};
                for (int i = 0; i < 256; i++) {
                    g.b.data = wide + 256 * i;
                    g.c.data = out + 256 * i;
                    gd_gemm_run(&g);
                }
                for (unsigned i = 0; i < 65536; i++) {
                    const unsigned magnitude = i & 0x7fff;
                    unsigned want = i; /* ties round to even */
                    if (magnitude + 1 < top && (point == 3 || (point == 2 && (i & 1))))
                        want = i + 1;
                    const bool nan = magnitude > top;
                    const unsigned got = out[i];
                    bool good = nan ? (got & 0x7fff) > top : got == want;
                    if (want == 0x8000 && got == 0) good = true; /* 0 + -0 is 0 */
                    if (!good)
                        report_failure("16 bits: %s: type %d: %g is written as 0x%04x, not 0x%04x",
                                       gd_isa_name((gd_isa)isa), (int)t, (double)wide[i], got,
                                       want);
                }
            }
        }
    }
}

TEST(unsupported_dtype_combinations_fail) {
    double x = 1, y = 1, z = 5;
    gd_gemm g = {.m = 1, .n = 1, .k = 1};
    g.a = (gd_gemm_in){&x, GD_F64, 1, 1};
    g.b = (gd_gemm_in){&y, GD_F32, 1, 1};
    g.c = (gd_gemm_out){&z, GD_F64, 1, 1};
    if (gd_gemm_run(&g) != GD_E_DTYPE || z != 5) report_failure("f64 times f32 does not fail");
    g.a.dtype = g.b.dtype = g.c.dtype = GD_I32;
    if (gd_gemm_run(&g) != GD_E_DTYPE || z != 5) report_failure("i32 does not fail");
}

/* Without memory a product fails, and works again once memory is available. */
TEST(a_failed_allocation_is_a_status) {
    static const int64_t shapes[][3] = {{90, 90, 90}, {300, 400, 300}, {5, 40, 9000}};
    for (int isa = 0; isa < GD_ISA_COUNT; isa++) {
        if (gd_cpu_set_isa((gd_isa)isa) != (gd_isa)isa) continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            test_case t = {.name = "memory", .products = 1};
            t.m = shapes[s][0], t.n = shapes[s][1], t.k = shapes[s][2];
            fill_case(&t, ROWS, COLUMNS, ROWS, GD_F32, GD_F32, GD_F32);
            gd_set_num_threads(3);
            fault_walk w = {.what = "a product", .lasting = true, .most = 100};
            while (fault_advance(&w)) {
                fault_begin(&w);
                const gd_status status = run_case(&t);
                fault_end(&w);
                if (status != (w.fired ? GD_E_MEMORY : GD_OK))
                    report_case(&t, gd_isa_name((gd_isa)isa), "no GD_E_MEMORY");
            }
            if (w.rounds < 2 || w.fired)
                report_case(&t, gd_isa_name((gd_isa)isa),
                            "the walk over its allocations does not end");
            check_case(&t);
            gd_cpu_set_isa((gd_isa)isa);
            free_case(&t);
        }
    }
}

/* With a reserved workspace, products have the same bits without memory as with it. */
TEST(a_reserved_workspace_is_enough_without_memory) {
    static const int64_t shapes[][3] = {
        {90, 90, 90}, {300, 400, 300}, {5, 40, 9000}, {700, 600, 3000}};
    static const gd_dtype types[] = {GD_F32, GD_F64, GD_BF16};
    CHECK(gd_gemm_reserve() == GD_OK);
    for (int isa = 0; isa < GD_ISA_COUNT; isa++) {
        if (gd_cpu_set_isa((gd_isa)isa) != (gd_isa)isa) continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (size_t d = 0; d < sizeof types / sizeof *types; d++) {
                test_case t = {.name = "reserve", .products = 1};
                t.m = shapes[s][0], t.n = shapes[s][1], t.k = shapes[s][2];
                fill_case(&t, ROWS, COLUMNS, COLUMNS, types[d], types[d], types[d]);
                gd_set_num_threads(3);
                gd_status status = run_case(&t);
                void *with = allocate(t.c.bytes);
                memcpy(with, t.c.buffer, t.c.bytes);
                gd_gemm_free_scratch();
                gd_fault_after(0, true);
                if (status == GD_OK) status = run_case(&t);
                gd_fault_after(-1, false);
                if (status != GD_OK)
                    report_case(&t, gd_isa_name((gd_isa)isa),
                                "fails despite the reserved workspace");
                if (memcmp(with, t.c.buffer, t.c.bytes) != 0)
                    report_case(&t, gd_isa_name((gd_isa)isa),
                                "has other bits in the reserved workspace");
                free(with);
                free_case(&t);
            }
    }
}

int main(int argc, char **argv) {
    const int status = test_run_all(argc, argv);
    gd_gemm_free_scratch();
    return status;
}
