/* test_conv.c - promises of ops/conv/cpu/conv_algorithms.h: convolutions of any sizes, in all three directions,
 * agree with simple loops on every instruction set of this processor, write only their result, and
 * have the same bits for any number of threads.
 *
 * Shapes are random, and mostly awkward ones. The numbers are small integers, so that matrix
 * products must be exact. GRADUS_TEST_FULL=1 tests more shapes; GRADUS_TEST_SEED sets another seed.
 */
#include <math.h>

#include "ops/conv/cpu/conv_algorithms.h"
#include "backend/cpu/isa.h"
#include "compare.h"
#include "draw.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "test.h"

enum { AXES = GD_CONV_AXES };

/* --- random numbers --------------------------------------------------------------------------- */

static draws stream;

static void begin_stream(void) {
    const char *seed = getenv("GRADUS_TEST_SEED");
    stream.state = seed ? strtoull(seed, NULL, 10) : 20;
}

static int draw_count(int few, int many) { return getenv("GRADUS_TEST_FULL") ? many : few; }

/* --- forms ------------------------------------------------------------------------------------ */

static const char *const direction_names[] = {"to y", "to x", "to w"};

static const char *describe(const gd_conv *c) {
    static char text[400];
    snprintf(text, sizeof text,
             "batch %lld groups %lld ci %lld co %lld in %lld,%lld,%lld out %lld,%lld,%lld kernel "
             "%lld,%lld,%lld "
             "stride %lld,%lld,%lld dilation %lld,%lld,%lld before %lld,%lld,%lld",
             (long long)c->batch, (long long)c->groups, (long long)c->ci, (long long)c->co,
             (long long)c->in[0], (long long)c->in[1], (long long)c->in[2], (long long)c->out[0],
             (long long)c->out[1], (long long)c->out[2], (long long)c->kernel[0],
             (long long)c->kernel[1], (long long)c->kernel[2], (long long)c->stride[0],
             (long long)c->stride[1], (long long)c->stride[2], (long long)c->dilation[0],
             (long long)c->dilation[1], (long long)c->dilation[2], (long long)c->before[0],
             (long long)c->before[1], (long long)c->before[2]);
    return text;
}

static int64_t x_numbers(const gd_conv *c) {
    return c->batch * c->groups * c->ci * gd_conv_positions(c->in);
}
static int64_t w_numbers(const gd_conv *c) {
    return c->groups * c->co * c->ci * gd_conv_positions(c->kernel);
}
static int64_t y_numbers(const gd_conv *c) {
    return c->batch * c->groups * c->co * gd_conv_positions(c->out);
}
static int64_t numbers_of(const gd_conv *c, gd_conv_direction to) {
    return to == GD_CONV_TO_OUTPUT  ? y_numbers(c)
           : to == GD_CONV_TO_INPUT ? x_numbers(c)
                                    : w_numbers(c);
}
static double work_of(const gd_conv *c) {
    return (double)y_numbers(c) * (double)c->ci * (double)gd_conv_positions(c->kernel);
}

/* Draws the sizes of one axis. y may have more windows than fit, as the op conv_forward allows. */
static void draw_axis(gd_conv *c, int a, int64_t largest) {
    c->kernel[a] =
        draw_one_in(&stream, 3) ? draw_between(&stream, 1, 7) : draw_between(&stream, 1, 3);
    c->stride[a] = draw_one_in(&stream, 2)   ? 1
                   : draw_one_in(&stream, 8) ? draw_between(&stream, 3, 9)
                                             : draw_between(&stream, 1, 4);
    c->dilation[a] = draw_one_in(&stream, 2) ? 1 : draw_between(&stream, 1, 4);
    c->before[a] = draw_one_in(&stream, 4)   ? 0
                   : draw_one_in(&stream, 4) ? draw_between(&stream, 0, 12)
                                             : draw_between(&stream, 0, c->kernel[a]);
    c->in[a] =
        draw_one_in(&stream, 4) ? draw_between(&stream, 1, 3) : draw_between(&stream, 1, largest);
    const int64_t room = c->in[a] + 2 * c->before[a] - c->dilation[a] * (c->kernel[a] - 1) - 1;
    c->out[a] = room >= 0 ? room / c->stride[a] + 1 : 0;
    if (c->out[a] == 0 || draw_one_in(&stream, 8)) c->out[a] += draw_between(&stream, 0, 3);
    if (draw_one_in(&stream, 50)) c->in[a] = 0;
}

static int64_t draw_channels(int64_t largest) {
    return draw_one_in(&stream, 30)  ? 0
           : draw_one_in(&stream, 3) ? draw_between(&stream, 1, 4)
           : draw_one_in(&stream, 4) ? 16 * draw_between(&stream, 1, 3)
                                     : draw_between(&stream, 1, largest);
}

static gd_conv draw_form(void) {
    for (;;) {
        const int axes = (int)draw_between(&stream, 1, AXES);
        gd_conv c = {.batch = draw_one_in(&stream, 40) ? 0 : draw_between(&stream, 1, 3),
                     .groups = draw_one_in(&stream, 3) ? draw_between(&stream, 1, 5) : 1};
        const bool deep = draw_one_in(&stream, 6),
                   wide = !deep &&
                          draw_one_in(&stream, 6); /* more rows than one block sums; many columns */
        for (int a = 0; a < AXES; a++) {
            c.in[a] = c.out[a] = c.kernel[a] = c.stride[a] = c.dilation[a] = 1;
            if (a >= AXES - axes)
                draw_axis(&c, a, wide ? 60 : deep ? 6 : axes == 3 ? 8 : axes == 2 ? 20 : 90);
        }
        if (draw_one_in(&stream, 8))
            c.groups = draw_between(&stream, 1, 40), c.ci = c.co = 1; /* depthwise */
        else c.ci = draw_channels(deep ? 300 : wide ? 4 : 40), c.co = draw_channels(wide ? 4 : 70);
        if (deep && draw_one_in(&stream, 3)) c.co = draw_between(&stream, 500, 700);
        if (work_of(&c) < 3e5 || (draw_one_in(&stream, 20) && work_of(&c) < 3e6)) return c;
    }
}

/* --- reference loops -------------------------------------------------------------------------- */

/* The index on axis a of the element under a tap, or -1. */
static int64_t element_under_tap(const gd_conv *c, int a, int64_t window, int64_t tap) {
    const int64_t i = window * c->stride[a] - c->before[a] + tap * c->dilation[a];
    return i >= 0 && i < c->in[a] ? i : -1;
}

static void run_reference_loops(const gd_conv *c, gd_conv_direction to, double *x, double *w,
                                double *y) {
    const int64_t in = gd_conv_positions(c->in), out = gd_conv_positions(c->out),
                  taps = gd_conv_positions(c->kernel);
    for (int64_t p = 0; p < out; p++)
        for (int64_t t = 0; t < taps; t++) {
            const int64_t d = element_under_tap(c, 0, p / (c->out[1] * c->out[2]),
                                                t / (c->kernel[1] * c->kernel[2]));
            const int64_t h =
                element_under_tap(c, 1, p / c->out[2] % c->out[1], t / c->kernel[2] % c->kernel[1]);
            const int64_t v = element_under_tap(c, 2, p % c->out[2], t % c->kernel[2]);
            if (d < 0 || h < 0 || v < 0) continue;
            const int64_t x_index = (d * c->in[1] + h) * c->in[2] + v;
            for (int64_t n = 0; n < c->batch; n++)
                for (int64_t o = 0; o < c->groups * c->co; o++)
                    for (int64_t i = 0; i < c->ci; i++) {
                        double *xe =
                            x + (n * c->groups * c->ci + o / c->co * c->ci + i) * in + x_index;
                        double *we = w + (o * c->ci + i) * taps + t,
                               *ye = y + (n * c->groups * c->co + o) * out + p;
                        if (to == GD_CONV_TO_OUTPUT) *ye += *xe * *we;
                        else if (to == GD_CONV_TO_INPUT) *xe += *ye * *we;
                        else *we += *xe * *ye;
                    }
        }
}

/* --- one form, one direction ------------------------------------------------------------------ */

static void *allocate(int64_t bytes) {
    void *p = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (!p) {
        printf("out of memory in the test itself\n");
        exit(2);
    }
    return p;
}

static double *draw_numbers(int64_t n) {
    double *to = allocate(n * 8);
    for (int64_t i = 0; i < n; i++) to[i] = (double)draw_between(&stream, -4, 4);
    return to;
}

/* A copy allocated with its exact size, so that a sanitizer finds accesses outside it. */
static void *copy_as(const double *from, int64_t n, gd_dtype dtype) {
    void *to = allocate(n * (dtype == GD_F64 ? 8 : 4));
    for (int64_t i = 0; i < n; i++) {
        if (dtype == GD_F64) ((double *)to)[i] = from[i];
        else ((float *)to)[i] = (float)from[i];
    }
    return to;
}

static double number_at(const void *from, int64_t i, gd_dtype dtype) {
    return dtype == GD_F64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

/* An implementation of convolution. */
typedef struct {
    const char *name;
    size_t (*bytes)(const gd_conv *c, gd_conv_direction to, gd_dtype dtype);
    gd_status (*run)(const gd_conv_call *call, gd_conv_direction to);
    double tolerance; /* in units of typical sums */
} algorithm;

/* The typical absolute value of an element of the result, a sum of random products. */
static double typical_sum(const gd_conv *c, gd_conv_direction to) {
    const double taps = (double)gd_conv_positions(c->kernel);
    const double terms = to == GD_CONV_TO_OUTPUT ? (double)c->ci * taps
                         : to == GD_CONV_TO_INPUT
                             ? (double)c->co * taps
                             : (double)c->batch * (double)gd_conv_positions(c->out);
    return 6.7 *
           sqrt(terms); /* products of integers from -4 to 4 have a standard deviation of 6.7 */
}

static size_t gemm_bytes(const gd_conv *c, gd_conv_direction to, gd_dtype dtype) {
    return to == GD_CONV_TO_OUTPUT  ? gd_conv_gemm_output_bytes(c, dtype)
           : to == GD_CONV_TO_INPUT ? gd_conv_gemm_input_bytes(c, dtype)
                                    : gd_conv_gemm_weight_bytes(c, dtype);
}
static gd_status run_gemm(const gd_conv_call *call, gd_conv_direction to) {
    return to == GD_CONV_TO_OUTPUT  ? gd_conv_gemm_output(call)
           : to == GD_CONV_TO_INPUT ? gd_conv_gemm_input(call)
                                    : gd_conv_gemm_weight(call);
}
static size_t wino_bytes(const gd_conv *c, gd_conv_direction to, gd_dtype dtype) {
    (void)dtype;
    return gd_conv_winograd_bytes(c, to);
}
static size_t direct_bytes(const gd_conv *c, gd_conv_direction to, gd_dtype dtype) {
    (void)dtype;
    return gd_conv_direct_bytes(c, to);
}
static const algorithm by_direct = {"direct", direct_bytes, gd_conv_direct, 0};
static const algorithm by_products = {"products", gemm_bytes, run_gemm, 0};
static const algorithm by_winograd = {"Winograd", wino_bytes, gd_conv_winograd, 3e-5};

/* Runs on this number of threads and returns the result, which the caller frees. */
static void *run_algorithm(const algorithm *how, const gd_conv *c, gd_conv_direction to,
                           gd_dtype dtype, int threads, const void *x, const void *w, const void *y,
                           const void *bias) {
    const int64_t size = dtype == GD_F64 ? 8 : 4;
    gd_set_num_threads(threads);
    const size_t bytes = how->bytes(c, to, dtype);
    void *result = allocate(numbers_of(c, to) * size), *workspace = NULL;
    memset(result, 0xff,
           (size_t)(numbers_of(c, to) * size)); /* NaN marks elements that were not written */
    if (bytes > 0) {
        workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!workspace) exit(2);
        memset(workspace, 0xff, bytes);
    }
    const gd_conv_call call = {.c = *c,
                               .dtype = dtype,
                               .bias = bias,
                               .workspace = workspace,
                               .workspace_bytes = bytes,
                               .x = to == GD_CONV_TO_INPUT ? result : (void *)(uintptr_t)x,
                               .w = to == GD_CONV_TO_WEIGHT ? result : (void *)(uintptr_t)w,
                               .y = to == GD_CONV_TO_OUTPUT ? result : (void *)(uintptr_t)y};
    const gd_status status = how->run(&call, to);
    CHECK_SAYING(status == GD_OK, "%s %s: %s", how->name, direction_names[to], describe(c));
    free(workspace);
    return result;
}

static void check_form(const algorithm *how, const gd_conv *c, gd_conv_direction to,
                       gd_dtype dtype) {
    const int64_t n = numbers_of(c, to), size = dtype == GD_F64 ? 8 : 4;
    double *x = draw_numbers(x_numbers(c)), *w = draw_numbers(w_numbers(c)),
           *y = draw_numbers(y_numbers(c));
    double *want = to == GD_CONV_TO_INPUT ? x : to == GD_CONV_TO_WEIGHT ? w : y;
    const bool biased = to != GD_CONV_TO_WEIGHT && draw_one_in(&stream, 2);
    const int64_t channels = c->groups * (to == GD_CONV_TO_INPUT ? c->ci : c->co);
    const int64_t places =
        to == GD_CONV_TO_INPUT ? gd_conv_positions(c->in) : gd_conv_positions(c->out);
    double *bias = draw_numbers(channels);
    for (int64_t i = 0; i < n; i++) want[i] = biased ? bias[i / places % channels] : 0;
    void *in_x = copy_as(x, x_numbers(c), dtype), *in_w = copy_as(w, w_numbers(c), dtype),
         *in_y = copy_as(y, y_numbers(c), dtype);
    void *in_bias = copy_as(bias, channels, dtype);
    run_reference_loops(c, to, x, w, y);
    const double tolerance = how->tolerance * typical_sum(c, to);
    for (int isa = 0; isa < GD_ISA_COUNT; isa++) {
        if (gd_cpu_set_isa((gd_isa)isa) != (gd_isa)isa) continue;
        void *first = NULL;
        for (int threads = 1; threads <= 3; threads++) {
            void *got = run_algorithm(how, c, to, dtype, threads, in_x, in_w, in_y,
                                      biased ? in_bias : NULL);
            int64_t wrong = -1;
            for (int64_t i = 0; i < n && wrong < 0; i++)
                if (!(fabs(number_at(got, i, dtype) - want[i]) <= tolerance)) wrong = i;
            CHECK_SAYING(wrong < 0,
                         "%s %s, %s, %d threads, %s: number %lld is %.9g, expected %.9g: %s",
                         how->name, direction_names[to], dtype == GD_F64 ? "f64" : "f32", threads,
                         gd_isa_name((gd_isa)isa), (long long)wrong, number_at(got, wrong, dtype),
                         want[wrong], describe(c));
            if (first) {
                CHECK_SAYING(memcmp(first, got, (size_t)(n * size)) == 0,
                             "other bits with %d threads, %s %s: %s", threads, how->name,
                             direction_names[to], describe(c));
                free(got);
            } else {
                first = got;
            }
        }
        free(first);
    }
    gd_cpu_set_isa(GD_ISA_AVX512);
    gd_set_num_threads(0);
    free(x), free(w), free(y), free(bias), free(in_x), free(in_w), free(in_y), free(in_bias);
}

static void check_all_directions(const gd_conv *c, gd_dtype dtype) {
    check_form(&by_products, c, GD_CONV_TO_OUTPUT, dtype);
    if (gd_conv_gemm_input_matches(c)) check_form(&by_products, c, GD_CONV_TO_INPUT, dtype);
    check_form(&by_products, c, GD_CONV_TO_WEIGHT, dtype);
}

/* --- the tests -------------------------------------------------------------------------------- */

TEST(convolution_by_products_is_exact_for_random_shapes) {
    begin_stream();
    for (int i = 0; i < draw_count(150, 3000) && test_failures < 10; i++) {
        const gd_conv c = draw_form();
        check_all_directions(&c, draw_one_in(&stream, 3) ? GD_F64 : GD_F32);
    }
}

/* At least as many taps as a panel of patches has rows. */
TEST(convolution_by_products_is_exact_for_many_taps) {
    begin_stream();
    for (int64_t taps = 45; taps < 70; taps += draw_one_in(&stream, 2) ? 1 : 3) {
        const gd_conv line = {.batch = 2,
                              .groups = 1,
                              .ci = 3,
                              .co = 5,
                              .in = {1, 1, 80},
                              .out = {1, 1, 80 - taps + 1},
                              .kernel = {1, 1, taps},
                              .stride = {1, 1, 1},
                              .dilation = {1, 1, 1}};
        check_all_directions(&line, GD_F32);
        check_all_directions(&line, GD_F64);
    }
    for (int64_t side = 6; side <= 9; side++)
        for (int64_t stride = 1; stride <= 3; stride++) {
            const gd_conv square = {
                .batch = 1,
                .groups = 1,
                .ci = 3,
                .co = 4,
                .in = {1, 15, 17},
                .out = {1, (15 + 6 - side) / stride + 1, (17 + 6 - side) / stride + 1},
                .kernel = {1, side, side},
                .stride = {1, stride, stride},
                .dilation = {1, 1, 1},
                .before = {0, 3, 3}};
            check_all_directions(&square, GD_F32);
        }
    const gd_conv cube = {.batch = 1,
                          .groups = 2,
                          .ci = 2,
                          .co = 3,
                          .in = {5, 6, 7},
                          .out = {4, 5, 6},
                          .kernel = {4, 4, 4},
                          .stride = {1, 1, 1},
                          .dilation = {1, 1, 1},
                          .before = {1, 1, 1}};
    check_all_directions(&cube, GD_F32);
}

TEST(direct_convolution_is_exact_for_random_shapes) {
    begin_stream();
    for (int i = 0; i < draw_count(150, 3000) && test_failures < 10; i++) {
        gd_conv c = draw_form();
        c.groups = draw_between(&stream, 2, 5);
        if (draw_one_in(&stream, 2)) c.ci = c.co = 1;
        if (draw_one_in(&stream, 4))
            c.kernel[2] = draw_between(&stream, 7, 20), c.out[2] = draw_between(&stream, 1, 40);
        for (int to = GD_CONV_TO_OUTPUT; to <= GD_CONV_TO_WEIGHT; to++)
            if (gd_conv_direct_matches(&c, (gd_conv_direction)to) && work_of(&c) < 3e6)
                check_form(&by_direct, &c, (gd_conv_direction)to, GD_F32);
    }
}

static gd_conv draw_3x3(void) {
    gd_conv c = {.batch = draw_between(&stream, 1, 3),
                 .groups = 1,
                 .ci = draw_between(&stream, 4, 40),
                 .co = draw_between(&stream, 4, 40),
                 .in = {1, 1, 1},
                 .out = {1, 1, 1},
                 .kernel = {1, 3, 3},
                 .stride = {1, 1, 1},
                 .dilation = {1, 1, 1}};
    for (int a = 1; a < AXES; a++) {
        c.in[a] =
            draw_one_in(&stream, 4) ? draw_between(&stream, 1, 3) : draw_between(&stream, 1, 23);
        c.before[a] =
            draw_one_in(&stream, 5) ? draw_between(&stream, 0, 9) : draw_between(&stream, 0, 2);
        c.out[a] = c.in[a] + 2 * c.before[a] - 2;
        if (c.out[a] < 1 || draw_one_in(&stream, 8)) c.out[a] = draw_between(&stream, 1, 5);
    }
    if (draw_one_in(&stream, 10))
        c.ci = draw_between(&stream, 200, 300),
        c.co = draw_between(&stream, 120, 200); /* the threads share few tiles */
    return c;
}

TEST(convolution_by_winograd_agrees_for_random_shapes) {
    begin_stream();
    for (int i = 0; i < draw_count(60, 1000) && test_failures < 10; i++) {
        const gd_conv c = draw_3x3();
        if (work_of(&c) > 3e6) continue;
        for (int to = GD_CONV_TO_OUTPUT; to <= GD_CONV_TO_WEIGHT; to++)
            check_form(&by_winograd, &c, (gd_conv_direction)to, GD_F32);
    }
}

/* --- complete calls --------------------------------------------------------------------------- */

/* A tensor of small integers, exact in f16 and bf16, in one of several layouts. */
static gd_tensor *draw_tensor(gd_shape dims, gd_dtype dtype) {
    gd_shape order = {.rank = dims.rank, .form = 1}, back = order, made = order;
    const int layout = (int)draw_between(&stream, 0, 3);
    for (int d = 0; d < dims.rank;
         d++) { /* contiguous, channels last, transposed, every second element */
        order.at[d] = layout == 1   ? (d == 0               ? 0
                                       : d == dims.rank - 1 ? 1
                                                            : d + 1)
                      : layout == 2 ? dims.rank - 1 - d
                                    : d;
        back.at[order.at[d]] = d;
        made.at[d] = dims.at[order.at[d]];
    }
    if (layout == 3) made.at[dims.rank - 1] = 2 * dims.at[dims.rank - 1];
    int64_t n = 1;
    for (int d = 0; d < made.rank; d++) n *= made.at[d];
    double *numbers = draw_numbers(n);
    for (int64_t i = 0; i < n; i++) numbers[i] = (double)draw_between(&stream, -2, 2);
    gd_tensor *t = gd_cast(gd_from_array(made, GD_F64, numbers), dtype);
    free(numbers);
    if (layout == 3) return gd_slice(t, .axis = dims.rank - 1, .step = 2);
    return gd_permute(t, back);
}

typedef struct {
    gd_tensor *y, *gx, *gw, *gb;
} results;

static results call_with_gradients(const char *op, gd_tensor *x, gd_tensor *w, gd_tensor *b,
                                   const char *options) {
    gd_tensor *in[] = {gd_requires_grad(gd_detach(x)), gd_requires_grad(gd_detach(w)),
                       gd_requires_grad(gd_detach(b))};
    results r = {.y = gd_call(op, gd_list(in[0], in[1], in[2]), options)};
    /* a loss whose gradient has a different integer at each element */
    gd_tensor *scale = gd_sub(
        gd_remainder(gd_arange(0, (double)gd_tensor_numel(r.y)), gd_scalar(5)), gd_scalar(2));
    gd_tensors g = gd_grad(gd_list(gd_sum(gd_mul(r.y, gd_reshape(gd_cast(scale, gd_tensor_dtype(x)),
                                                                 gd_tensor_shape(r.y))))),
                           ((gd_tensors){in, 3}));
    if (g.count == 3) r.gx = g.at[0], r.gw = g.at[1], r.gb = g.at[2];
    return r;
}

/* Whether results agree up to the rounding of Winograd's sums, f16 and bf16. */
static bool results_close(gd_tensor *a, gd_tensor *b) {
    char why[256];
    const gd_dtype dtype = gd_tensor_dtype(a);
    return tensors_agree(a, b, dtype == GD_F16 ? 2e-3 : dtype == GD_BF16 ? 1.6e-2 : 1e-4, why);
}

static void check_call(void) {
    GD_SCOPE;
    static const gd_dtype dtypes[] = {GD_F32, GD_F32, GD_F64, GD_F16, GD_BF16};
    const gd_dtype dtype = dtypes[draw_between(&stream, 0, 4)];
    const int axes = (int)draw_between(&stream, 1, 3);
    const bool transposed = draw_one_in(&stream, 2);
    const int64_t groups = draw_one_in(&stream, 2) ? 1 : draw_between(&stream, 1, 4),
                  ci = draw_between(&stream, 1, 6), co = draw_between(&stream, 1, 6);
    gd_shape x = {{draw_between(&stream, 1, 3), groups * ci}, 2, 1},
             w = {{groups * (transposed ? ci : co), transposed ? co : ci}, 2, 1};
    char op[32], options[200] = "", stride[32] = "", padding[32] = "", dilation[32] = "",
                 extra[32] = "";
    for (int d = 0; d < axes; d++) {
        const int64_t k = draw_between(&stream, 1, 4), s = draw_between(&stream, 1, 3),
                      step = draw_between(&stream, 1, 3), p = draw_between(&stream, 0, k);
        const int64_t more = transposed && draw_one_in(&stream, 2)
                                 ? draw_between(&stream, 0, (s > step ? s : step) - 1)
                                 : 0;
        x.at[x.rank++] = (k - 1) * step + 1 + draw_between(&stream, 0, axes == 3 ? 3 : 12);
        w.at[w.rank++] = k;
        const char *comma = d ? "," : "";
        sprintf(stride + strlen(stride), "%s%d", comma, (int)s);
        sprintf(padding + strlen(padding), "%s%d", comma, (int)(transposed ? p / 2 : p));
        sprintf(dilation + strlen(dilation), "%s%d", comma, (int)step);
        sprintf(extra + strlen(extra), "%s%d", comma, (int)more);
    }
    sprintf(op, transposed ? "conv_transpose%dd" : "conv%dd", axes);
    snprintf(options, sizeof options, "stride=%s padding=%s dilation=%s groups=%d%s%s", stride,
             padding, dilation, (int)groups, transposed ? " output_padding=" : "",
             transposed ? extra : "");
    gd_tensor *tx = draw_tensor(x, dtype), *tw = draw_tensor(w, dtype),
              *tb = draw_tensor(gd_dims(groups * co), dtype);
    gd_set_reference_kernels(true);
    const results want = call_with_gradients(op, tx, tw, tb, options);
    gd_set_reference_kernels(false);
    for (int isa = 0; isa < GD_ISA_COUNT && !gd_failed(); isa++) {
        if (gd_cpu_set_isa((gd_isa)isa) != (gd_isa)isa) continue;
        gd_set_num_threads((int)draw_between(&stream, 1, 3));
        const results got = call_with_gradients(op, tx, tw, tb, options);
        if (gd_failed()) break;
        const char *wrong = !results_close(got.y, want.y)     ? "y"
                            : !results_close(got.gx, want.gx) ? "gradient of x"
                            : !results_close(got.gw, want.gw) ? "gradient of w"
                            : !results_close(got.gb, want.gb) ? "gradient of b"
                                                              : NULL;
        CHECK_SAYING(!wrong, "%s: %s %s, %s, %s", wrong, op, options, gd_dtype_name(dtype),
                     gd_isa_name((gd_isa)isa));
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_clear_error();
    gd_cpu_set_isa(GD_ISA_AVX512);
    gd_set_num_threads(0);
}

TEST(calls_of_any_layout_and_dtype_agree_with_the_reference_kernels) {
    begin_stream();
    for (int i = 0; i < draw_count(60, 2000) && test_failures < 10; i++) check_call();
}

TEST_MAIN
