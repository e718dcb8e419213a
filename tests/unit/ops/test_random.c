/* test_random.c - random numbers are a pure function of (seed, call, element), advance the
 * generator by one for each call, have the same bits for any number of threads, instruction set and
 * kernel, and follow their distributions.
 *
 * Seeds are fixed, so the statistical checks are deterministic. A fair generator passes their
 * bounds for all but one seed in a thousand or fewer.
 */
#include <math.h>

#include "backend/cpu/isa.h"
#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "ops/random/random_dist.h"
#include "ops/random/random_uniform.h"
#include "test.h"

/* --- helpers ---------------------------------------------------------------------------------- */

typedef gd_tensor *(*factory)(gd_shape dims, gd_dtype dtype);

static gd_tensor *make_uniform(gd_shape dims, gd_dtype dtype) {
    return gd_uniform(dims, .low = -3, .high = 5, .dtype = dtype);
}
static gd_tensor *make_normal(gd_shape dims, gd_dtype dtype) {
    return gd_normal(dims, .mean = 2, .std = 0.5, .dtype = dtype);
}
static gd_tensor *make_randint(gd_shape dims, gd_dtype dtype) {
    return dtype == GD_F64 ? gd_randint(dims, -7, INT64_C(1) << 40)
                           : gd_randint(dims, -7, 100, .dtype = dtype);
}
static gd_tensor *make_bernoulli(gd_shape dims, gd_dtype dtype) {
    return gd_bernoulli(gd_full(dims, 0.3, .dtype = dtype));
}
static gd_tensor *make_dropout(gd_shape dims, gd_dtype dtype) {
    return gd_dropout(gd_full(dims, 0.7, .dtype = dtype), .p = 0.3);
}
static gd_tensor *make_rand_like(gd_shape dims, gd_dtype dtype) {
    return gd_rand_like(gd_zeros(dims, .dtype = dtype));
}
static gd_tensor *make_randn_like(gd_shape dims, gd_dtype dtype) {
    return gd_randn_like(gd_zeros(dims, .dtype = dtype));
}

static const factory factories[] = {make_uniform, make_normal,    make_randint,   make_bernoulli,
                                    make_dropout, make_rand_like, make_randn_like};
enum { FACTORIES = sizeof factories / sizeof *factories };
static const gd_dtype float_dtypes[] = {GD_F32, GD_F64, GD_F16, GD_BF16};

/* Returns the elements as doubles; the caller frees them. */
static double *values_as_doubles(gd_tensor *t, int64_t *n) {
    gd_tensor *wide = gd_cast(t, GD_F64);
    *n = gd_tensor_numel(wide);
    double *v = malloc((size_t)*n * sizeof *v + 1);
    CHECK(v && gd_copy_to(wide, v, (size_t)*n * sizeof *v) == GD_OK);
    return v;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The Kolmogorov-Smirnov statistic: the largest distance between the empirical and the given
 * distribution function, times sqrt(n). */
static double kolmogorov_smirnov(gd_tensor *t, double (*distribution)(double)) {
    int64_t n;
    double *v = values_as_doubles(t, &n), worst = 0;
    qsort(v, (size_t)n, sizeof *v, by_value);
    for (int64_t i = 0; i < n; i++) {
        double f = distribution(v[i]);
        worst = fmax(worst, fmax(f - (double)i / (double)n, (double)(i + 1) / (double)n - f));
    }
    free(v);
    return worst * sqrt((double)n);
}

static double uniform_distribution(double x) { return x; }
static double normal_distribution(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }

static double central_moment(const double *v, int64_t n, int power, double center) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += pow(v[i] - center, power);
    return sum / (double)n;
}

/* --- the generator ---------------------------------------------------------------------------- */

TEST(philox_gives_the_published_values) {
    static const struct {
        gd_rng rng;
        uint64_t block;
        uint32_t words[4];
    } known[] = {
        {{0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{UINT64_MAX, UINT64_MAX}, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x299f31d0a4093822, 0x0370734413198a2e},
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t words[4];
        gd_philox(known[i].rng, known[i].block, words);
        CHECK(memcmp(words, known[i].words, sizeof words) == 0);
    }
}

TEST(each_call_advances_the_counter_by_one) {
    GD_SCOPE;
    gd_seed(5);
    CHECK(gd_rng_state().seed == 5 && gd_rng_state().call == 0);
    uint64_t call = 0;
    gd_tensor *x = gd_ones(gd_dims(3, 4));
    CHECK(gd_rng_state().call == call);
#define CHECK_ADVANCES(n, expression)                                                    \
    do {                                                                                 \
        CHECK(!gd_tensor_is_error(expression));                                          \
        call += n;                                                                       \
        CHECK_SAYING(gd_rng_state().call == call, "%llu, not %llu",                      \
                     (unsigned long long)gd_rng_state().call, (unsigned long long)call); \
    } while (0)
    CHECK_ADVANCES(1, gd_rand(gd_dims(1)));
    CHECK_ADVANCES(1, gd_rand(gd_dims(1000, 100)));
    CHECK_ADVANCES(1, gd_rand(gd_dims(0)));
    CHECK_ADVANCES(1, gd_randn(gd_dims(5), .dtype = GD_F64));
    CHECK_ADVANCES(1, gd_uniform(gd_dims()));
    CHECK_ADVANCES(1, gd_normal(gd_dims(7)));
    CHECK_ADVANCES(1, gd_rand_like(x));
    CHECK_ADVANCES(1, gd_randn_like(x));
    CHECK_ADVANCES(1, gd_bernoulli(x));
    CHECK_ADVANCES(1, gd_randint(gd_dims(9), 0, 10));
    CHECK_ADVANCES(1, gd_randperm(100));
    CHECK_ADVANCES(1, gd_multinomial(x, 2));
    CHECK_ADVANCES(1, gd_dropout(x));
    CHECK_ADVANCES(1, gd_dropout(x, .p = 0));
    CHECK_ADVANCES(0, gd_dropout(x, .training = false));
    CHECK_ADVANCES(0, gd_zeros(gd_dims(4)));
    /* a failed call does not advance the generator */
    CHECK(gd_tensor_is_error(gd_randint(gd_dims(3), 5, 5)));
    CHECK(gd_rng_state().call == call);
    gd_clear_error();
}

TEST(state_can_be_restored) {
    GD_SCOPE;
    gd_seed(11);
    gd_rand(gd_dims(3));
    gd_rng state = gd_rng_state();
    gd_tensor *first = gd_randn(gd_dims(100));
    gd_tensor *second = gd_randn(gd_dims(100));
    CHECK(!tensors_same_bits(first, second));
    gd_rng_set_state(state);
    CHECK(tensors_same_bits(first, gd_randn(gd_dims(100))));
    gd_seed(12);
    gd_rand(gd_dims(3));
    CHECK(!tensors_same_bits(first, gd_randn(gd_dims(100))));
}

/* --- the same bits ---------------------------------------------------------------------------- */

TEST(elements_follow_the_documented_formula) {
    GD_SCOPE;
    enum { N = 1001 };
    gd_seed(0x123456789abcdef);
    gd_rng rng = gd_rng_state();
    const float *f = gd_data(gd_rand(gd_dims(N)));
    for (int i = 0; i < N; i++) CHECK(f[i] == gd_unit_f32(gd_word_at(rng, (uint64_t)i)));
    rng = gd_rng_state();
    const double *d = gd_data(gd_rand(gd_dims(N), .dtype = GD_F64));
    for (int i = 0; i < N; i++) {
        uint64_t bits =
            gd_long_at(rng, (uint64_t)i); /* the upper 27 and 26 bits of its two words */
        CHECK(d[i] == (double)(((bits >> 37) << 26) | ((bits & 0xffffffff) >> 6)) * 0x1p-53);
    }
    rng = gd_rng_state();
    const int64_t *w = gd_data(gd_randint(gd_dims(N), -10, 1000));
    for (int i = 0; i < N; i++)
        CHECK(w[i] ==
              -10 + (int64_t)((unsigned __int128)gd_long_at(rng, (uint64_t)i) * 1010 >> 64));
}

TEST(a_longer_tensor_begins_like_a_shorter_one) {
    GD_SCOPE;
    for (int m = 0; m < FACTORIES; m++)
        for (int t = 0; t < 2; t++) {
            gd_seed(3);
            gd_tensor *longer = factories[m](gd_dims(70, 1000), float_dtypes[t]);
            for (int64_t n = 1; n < 600; n += 37) {
                gd_seed(3);
                gd_tensor *shorter = factories[m](gd_dims(n), float_dtypes[t]);
                CHECK(memcmp(gd_data(longer), gd_data(shorter), tensor_bytes(shorter)) == 0);
            }
        }
}

TEST(bits_do_not_depend_on_threads_instruction_set_or_kernel) {
    static const int64_t sizes[] = {1,   2,   3,    5,    127,  128,   129,   255,
                                    256, 257, 1023, 1024, 1025, 16383, 16385, 50001};
    gd_isa best = gd_cpu_isa();
    for (int m = 0; m < FACTORIES; m++)
        for (size_t t = 0; t < 4; t++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                GD_SCOPE;
                gd_shape dims = gd_dims(sizes[s]);
                gd_rng at = {99 + (uint64_t)s, UINT64_MAX - 1};
                gd_rng_set_state(at);
                gd_tensor *expected = factories[m](dims, float_dtypes[t]);
                for (int isa = 0; isa <= (int)best; isa++) {
                    gd_cpu_set_isa((gd_isa)isa);
                    for (int threads = 1; threads <= 4; threads += 3) {
                        gd_set_num_threads(threads);
                        gd_rng_set_state(at);
                        CHECK_SAYING(
                            tensors_same_bits(expected, factories[m](dims, float_dtypes[t])),
                            "factory %d %s n %lld %s %d threads", m, gd_dtype_name(float_dtypes[t]),
                            (long long)sizes[s], gd_isa_name((gd_isa)isa), threads);
                    }
                }
                gd_cpu_set_isa(best);
                gd_set_num_threads(0);
                gd_set_reference_kernels(true);
                gd_rng_set_state(at);
                CHECK_SAYING(tensors_same_bits(expected, factories[m](dims, float_dtypes[t])),
                             "factory %d %s n %lld reference", m, gd_dtype_name(float_dtypes[t]),
                             (long long)sizes[s]);
                gd_set_reference_kernels(false);
            }
}

/* --- uniform ---------------------------------------------------------------------------------- */

TEST(uniform_numbers_are_uniform) {
    for (int t = 0; t < 2; t++) {
        GD_SCOPE;
        gd_seed(21 + (uint64_t)t);
        gd_tensor *x = gd_rand(gd_dims(1000000), .dtype = float_dtypes[t]);
        int64_t n;
        double *v = values_as_doubles(x, &n), lag = 0;
        CHECK_SAYING(kolmogorov_smirnov(x, uniform_distribution) < 1.95, "%g",
                     kolmogorov_smirnov(x, uniform_distribution));
        CHECK(fabs(central_moment(v, n, 1, 0.5)) < 3.3 * sqrt(1.0 / 12 / (double)n));
        CHECK(fabs(central_moment(v, n, 2, 0.5) - 1.0 / 12) < 3.3 * sqrt(1.0 / 180 / (double)n));
        for (int64_t i = 1; i < n; i++)
            lag += (v[i] - 0.5) * (v[i - 1] - 0.5); /* neighbors are uncorrelated */
        CHECK(fabs(lag / (double)n) < 3.3 / 12 / sqrt((double)n));
        for (int64_t i = 0; i < n; i++) CHECK(v[i] >= 0 && v[i] < 1);
        free(v);
    }
}

TEST(uniform_half_precision_numbers_stay_below_one) {
    for (int t = 2; t < 4; t++) {
        GD_SCOPE;
        gd_seed(31);
        int64_t n, levels = t == 2 ? 2048 : 256;
        double *v = values_as_doubles(gd_rand(gd_dims(400000), .dtype = float_dtypes[t]), &n),
               chi = 0;
        int *count = calloc((size_t)levels, sizeof *count);
        for (int64_t i = 0; i < n; i++) {
            CHECK(v[i] >= 0 && v[i] < 1 && v[i] * (double)levels == floor(v[i] * (double)levels));
            count[(int64_t)(v[i] * (double)levels)]++;
        }
        for (int64_t k = 0; k < levels; k++)
            chi += pow(count[k] - (double)n / (double)levels, 2) / ((double)n / (double)levels);
        CHECK(fabs(chi - (double)(levels - 1)) < 3.3 * sqrt(2 * (double)levels));
        free(count);
        free(v);
    }
}

TEST(uniform_stays_below_high_where_rounding_would_reach_it) {
    GD_SCOPE;
    for (int t = 0; t < 4; t++) {
        gd_dtype dtype = float_dtypes[t];
        gd_uniform_params p = gd_uniform_prepare(dtype, 1, 2), q = gd_uniform_prepare(dtype, -1, 0),
                          r = gd_uniform_prepare(dtype, 3, 3);
        double top = dtype == GD_F64 ? gd_uniform_f64(&p, ~0u, ~0u) : gd_uniform_f32(&p, ~0u);
        CHECK(top < 2 && gd_item(gd_scalar_of(top, dtype)) ==
                             top); /* representable, so storing does not round it up */
        top = dtype == GD_F64 ? gd_uniform_f64(&q, ~0u, ~0u) : gd_uniform_f32(&q, ~0u);
        CHECK(top < 0);
        CHECK((dtype == GD_F64 ? gd_uniform_f64(&r, ~0u, ~0u) : gd_uniform_f32(&r, ~0u)) == 3);
        int64_t n;
        double *v = values_as_doubles(
            gd_uniform(gd_dims(20000), .low = 7.5, .high = 8.25, .dtype = dtype), &n);
        for (int64_t i = 0; i < n; i++) CHECK(v[i] >= 7.5 && v[i] < 8.25);
        free(v);
    }
}

/* --- normal ----------------------------------------------------------------------------------- */

TEST(normal_numbers_are_normal) {
    for (int t = 0; t < 2; t++) {
        GD_SCOPE;
        gd_seed(41 + (uint64_t)t);
        gd_tensor *x = gd_randn(gd_dims(1000, 1000), .dtype = float_dtypes[t]);
        int64_t n;
        double *v = values_as_doubles(x, &n), root = sqrt((double)n), lag = 0, pairs = 0;
        CHECK_SAYING(kolmogorov_smirnov(x, normal_distribution) < 1.95, "%g",
                     kolmogorov_smirnov(x, normal_distribution));
        CHECK(fabs(central_moment(v, n, 1, 0)) < 3.3 / root);
        CHECK(fabs(central_moment(v, n, 2, 0) - 1) < 3.3 * sqrt(2) / root);
        CHECK(fabs(central_moment(v, n, 3, 0)) < 3.3 * sqrt(15) / root);
        CHECK(fabs(central_moment(v, n, 4, 0) - 3) < 3.3 * sqrt(96) / root);
        for (int64_t i = 1; i < n; i++) lag += v[i] * v[i - 1];
        /* the two numbers of a pair come from the same radius */
        for (int64_t i = 1; i < n; i += 2) pairs += (v[i] * v[i] - 1) * (v[i - 1] * v[i - 1] - 1);
        CHECK(fabs(lag / root) < 3.3);
        CHECK(fabs(pairs / sqrt((double)n / 2)) < 3.3 * 2);
        int64_t beyond = 0;
        for (int64_t i = 0; i < n; i++) {
            beyond += fabs(v[i]) > 4;
            CHECK(fabs(v[i]) < (t ? 8.6 : 6.7));
        }
        double expected = (double)n * 2 * normal_distribution(-4);
        CHECK(fabs((double)beyond - expected) < 3.3 * sqrt(expected));
        free(v);
    }
}

TEST(normal_numbers_agree_with_the_formula_in_higher_precision) {
    double worst = 0, worst_wide = 0;
    for (uint64_t i = 0; i < 300000; i++) {
        uint32_t w[4];
        gd_philox((gd_rng){77, 0}, i, w);
        if (i < 1000) w[0] = (uint32_t)i;                /* the far tail */
        else if (i < 2000) w[0] = ~(uint32_t)(i - 1000); /* the center */
        if (i % 5 == 0)
            w[1] = w[2] =
                (w[1] & 7) * 0x20000000u + (w[3] & 3) - 2; /* near the multiples of pi / 4 */
        float x, y;
        gd_normals_f32(w[0], w[1], &x, &y);
        double u = ((float)(int32_t)(w[0] >> 1) + 0.5f) * 0x1p-31f,
               angle = 2 * M_PI * (w[1] * 0x1p-32);
        double radius = sqrt(-2 * log(u)), scale = radius > 0 ? radius : 1;
        worst =
            fmax(worst, fmax(fabs(x - radius * cos(angle)), fabs(y - radius * sin(angle))) / scale);
        double a, b;
        gd_normals_f64(w, &a, &b);
        u = ((w[0] >> 5) * 0x1p26 + (w[1] >> 6) + 0.5) * 0x1p-53;
        angle = 2 * M_PI * (((w[2] >> 5) * 0x1p26 + (w[3] >> 6)) * 0x1p-53);
        radius = sqrt(-2 * log(u)), scale = radius > 0 ? radius : 1;
        worst_wide = fmax(
            worst_wide, fmax(fabs(a - radius * cos(angle)), fabs(b - radius * sin(angle))) / scale);
    }
    CHECK_SAYING(worst < 3e-7, "%g", worst);
    CHECK_SAYING(worst_wide < 2e-15, "%g", worst_wide);
}

TEST(mean_and_std_shift_and_scale) {
    GD_SCOPE;
    gd_seed(51);
    int64_t n;
    double *v = values_as_doubles(gd_normal(gd_dims(200000), .mean = -4, .std = 3), &n);
    CHECK(fabs(central_moment(v, n, 1, -4)) < 3.3 * 3 / sqrt((double)n));
    CHECK(fabs(central_moment(v, n, 2, -4) - 9) < 3.3 * 9 * sqrt(2) / sqrt((double)n));
    free(v);
    v = values_as_doubles(gd_normal(gd_dims(1000), .mean = 1.5, .std = 0), &n);
    for (int64_t i = 0; i < n; i++) CHECK(v[i] == 1.5);
    free(v);
}

/* --- integers --------------------------------------------------------------------------------- */

TEST(randint_covers_its_range_evenly) {
    GD_SCOPE;
    gd_seed(61);
    enum { N = 700000, LOW = -3, HIGH = 4 };
    int64_t n, count[HIGH - LOW] = {0};
    double *v = values_as_doubles(gd_randint(gd_dims(N), LOW, HIGH), &n), chi = 0;
    for (int64_t i = 0; i < n; i++) {
        CHECK(v[i] >= LOW && v[i] < HIGH);
        count[(int)v[i] - LOW]++;
    }
    for (int k = 0; k < HIGH - LOW; k++) chi += pow((double)count[k] - N / 7.0, 2) / (N / 7.0);
    CHECK_SAYING(chi < 22.5, "%g", chi); /* 6 degrees of freedom */
    free(v);
    const int64_t *full_range = gd_data(gd_randint(gd_dims(1000), INT64_MIN, INT64_MAX)),
                  *one = gd_data(gd_randint(gd_dims(50), 8, 9));
    int negative = 0;
    for (int i = 0; i < 1000; i++) negative += full_range[i] < 0;
    CHECK(abs(negative - 500) < 60);
    for (int i = 0; i < 50; i++) CHECK(one[i] == 8);
}

TEST(randperm_is_a_permutation_and_all_are_equally_likely) {
    static const int64_t sizes[] = {0, 1, 2, 3, 10, 1000, 99999};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        GD_SCOPE;
        gd_rng rng = gd_rng_state();
        gd_tensor *p = gd_randperm(sizes[s]);
        const int64_t *v = gd_data(p);
        CHECK(gd_tensor_dtype(p) == GD_I64 && gd_tensor_numel(p) == sizes[s]);
        char *seen = calloc((size_t)sizes[s] + 1, 1);
        for (int64_t i = 0; i < sizes[s]; i++) CHECK(v[i] >= 0 && v[i] < sizes[s] && !seen[v[i]]++);
        for (int64_t i = 1; i < sizes[s]; i++)
            CHECK(gd_long_at(rng, (uint64_t)v[i - 1]) <= gd_long_at(rng, (uint64_t)v[i]));
        free(seen);
    }
    int count[24] = {0}, draws = 48000;
    gd_seed(71);
    for (int i = 0; i < draws; i++) {
        GD_SCOPE;
        const int32_t *v = gd_data(gd_randperm(4, .dtype = GD_I32));
        int rank = 0; /* the rank of the permutation among all 24 */
        for (int a = 0, weight = 6; a < 3; weight /= 3 - a, a++)
            for (int b = a + 1; b < 4; b++) rank += (v[b] < v[a]) * weight;
        count[rank]++;
    }
    double chi = 0;
    for (int k = 0; k < 24; k++) chi += pow(count[k] - draws / 24.0, 2) / (draws / 24.0);
    CHECK_SAYING(chi < 49.7, "%g", chi); /* 23 degrees of freedom */
}

/* --- bernoulli, multinomial ------------------------------------------------------------------- */

TEST(bernoulli_uses_the_probability_of_each_element) {
    GD_SCOPE;
    gd_seed(81);
    enum { N = 100000 };
    float p[5] = {0, 1, 0.5f, 0.01f, 0.9f};
    gd_tensor *chances =
        gd_expand(gd_reshape(gd_from_array(gd_dims(5), GD_F32, p), gd_dims(1, 5)), gd_dims(N, 5));
    gd_tensor *y = gd_bernoulli(chances);
    const float *v = gd_data(y);
    CHECK(gd_tensor_dtype(y) == GD_F32);
    for (int k = 0; k < 5; k++) {
        double sum = 0;
        for (int i = 0; i < N; i++) {
            CHECK(v[5 * i + k] == 0 || v[5 * i + k] == 1);
            sum += v[5 * i + k];
        }
        CHECK(fabs(sum - N * p[k]) <= 3.5 * sqrt(N * p[k] * (1 - p[k])));
    }
}

TEST(multinomial_with_replacement_follows_the_weights) {
    GD_SCOPE;
    gd_seed(91);
    enum { N = 100000 };
    double w[2][4] = {{1, 0, 3, 6}, {2, 2, 0, 0}};
    gd_tensor *y = gd_multinomial(gd_from_array(gd_dims(2, 4), GD_F64, w), N, .replacement = true);
    const int64_t *v = gd_data(y);
    CHECK(gd_tensor_dtype(y) == GD_I64 && gd_tensor_dim(y, 0) == 2 && gd_tensor_dim(y, 1) == N);
    for (int r = 0; r < 2; r++) {
        double count[4] = {0}, total = w[r][0] + w[r][1] + w[r][2] + w[r][3];
        for (int i = 0; i < N; i++) {
            CHECK(v[r * N + i] >= 0 && v[r * N + i] < 4);
            count[v[r * N + i]]++;
        }
        for (int k = 0; k < 4; k++) {
            double p = w[r][k] / total;
            CHECK(fabs(count[k] - N * p) <= 3.5 * sqrt(N * p * (1 - p)));
        }
    }
}

TEST(multinomial_without_replacement_follows_the_weights) {
    GD_SCOPE;
    gd_seed(92);
    enum { N = 100000 };
    float w[4] = {1, 0, 3, 6};
    gd_tensor *rows =
        gd_expand(gd_reshape(gd_from_array(gd_dims(4), GD_F32, w), gd_dims(1, 4)), gd_dims(N, 4));
    const int64_t *v = gd_data(gd_multinomial(rows, 2));
    double pairs[4][4] = {{0}};
    for (int i = 0; i < N; i++) {
        CHECK(v[2 * i] != v[2 * i + 1]);
        pairs[v[2 * i]][v[2 * i + 1]]++;
    }
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) {
            double p = a == b ? 0 : w[a] / 10 * w[b] / (10 - w[a]);
            CHECK_SAYING(fabs(pairs[a][b] - N * p) <= 3.5 * sqrt(N * p * (1 - p)),
                         "%d then %d: %g of %g", a, b, pairs[a][b], N * p);
        }
    double many[50]; /* all of them, in some order */
    for (int k = 0; k < 50; k++) many[k] = k + 1;
    const int64_t *all = gd_data(gd_multinomial(gd_from_array(gd_dims(50), GD_F64, many), 50));
    uint64_t seen = 0;
    for (int k = 0; k < 50; k++) seen |= UINT64_C(1) << all[k];
    CHECK(seen == (UINT64_C(1) << 50) - 1);
}

/* --- dropout ---------------------------------------------------------------------------------- */

TEST(dropout_and_its_gradient_zero_and_scale) {
    gd_seed(101);
    for (int t = 0; t < 4; t++) {
        GD_SCOPE;
        gd_tensor *x = gd_requires_grad(
            gd_uniform(gd_dims(300, 401), .low = 0.5, .high = 1, .dtype = float_dtypes[t]));
        gd_tensor *y = gd_dropout(x, .p = 0.25);
        CHECK(gd_backward(gd_sum(y)) == GD_OK);
        int64_t n, zeros = 0;
        double *a = values_as_doubles(x, &n), *b = values_as_doubles(y, &n),
               *g = values_as_doubles(gd_tensor_grad(x), &n),
               last = t == 1   ? 1e-15
                      : t == 0 ? 1e-6
                               : 1e-2;
        for (int64_t i = 0; i < n; i++) {
            bool kept = b[i] != 0;
            zeros += !kept;
            CHECK(!kept || fabs(b[i] - a[i] / 0.75) <= last * b[i]);
            CHECK(kept ? fabs(g[i] - 1 / 0.75) <= last * 2 : g[i] == 0);
        }
        CHECK(fabs((double)zeros - 0.25 * (double)n) < 3.3 * sqrt(0.25 * 0.75 * (double)n));
        free(a), free(b), free(g);
    }
}

TEST(dropout_outside_training_returns_its_input) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(5, 5));
    CHECK(gd_dropout(x, .training = false) == x);
    CHECK(tensors_same_bits(x, gd_dropout(x, .p = 0)));
    const float *zero = gd_data(gd_dropout(x, .p = 1));
    for (int i = 0; i < 25; i++) CHECK(zero[i] == 0);
}

TEST(dropout_works_on_strided_inputs) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(40, 30)), *transposed = gd_permute(x, gd_dims(1, 0));
    gd_rng state = gd_rng_state();
    gd_tensor *a = gd_dropout(transposed);
    gd_rng_set_state(state);
    CHECK(tensors_same_bits(a, gd_dropout(gd_clone(transposed))));
}

static gd_tensor *cube_of_dropout(gd_tensors inputs, void *user) {
    (void)user;
    gd_seed(7); /* the same mask each time */
    gd_tensor *y = gd_dropout(inputs.at[0], .p = 0.4);
    return gd_sum(gd_mul(gd_mul(y, y), y));
}

TEST(dropout_has_first_and_second_order_gradients) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(3, 5), .dtype = GD_F64));
    CHECK_SAYING(gd_gradcheck(cube_of_dropout, gd_list(x), NULL, .second_order = true) == GD_OK,
                 "%s", gd_error_message());
}

/* --- failures --------------------------------------------------------------------------------- */

TEST(invalid_arguments_fail) {
    GD_SCOPE;
    float bad[3] = {0.5f, 1.5f, 0}, nan[2] = {NAN, 1}, none[2] = {0, 0}, negative[2] = {1, -1};
    gd_tensor *integer = gd_full(gd_dims(3), 1, .dtype = GD_I64), *x = gd_ones(gd_dims(3));
#define CHECK_FAILS(status, expression)                                                        \
    do {                                                                                       \
        CHECK(gd_tensor_is_error(expression));                                                 \
        CHECK_SAYING(gd_error_status() == status, "%s: %s", gd_status_name(gd_error_status()), \
                     gd_error_message());                                                      \
        gd_clear_error();                                                                      \
    } while (0)
    CHECK_FAILS(GD_E_DTYPE, gd_rand(gd_dims(3), .dtype = GD_I32));
    CHECK_FAILS(GD_E_DTYPE, gd_randn_like(integer));
    CHECK_FAILS(GD_E_SHAPE, gd_rand(gd_dims(3, -1)));
    CHECK_FAILS(GD_E_OVERFLOW, gd_randn(gd_dims(INT64_C(1) << 40, INT64_C(1) << 40)));
    CHECK_FAILS(GD_E_ARGUMENT, gd_uniform(gd_dims(3), .low = 2, .high = 1));
    CHECK_FAILS(GD_E_ARGUMENT, gd_uniform(gd_dims(3), .low = NAN));
    CHECK_FAILS(GD_E_ARGUMENT, gd_uniform(gd_dims(3), .high = INFINITY));
    CHECK_FAILS(GD_E_ARGUMENT, gd_uniform(gd_dims(3), .low = -3e38, .high = 3e38));
    CHECK_FAILS(GD_E_ARGUMENT, gd_uniform(gd_dims(3), .high = 70000, .dtype = GD_F16));
    CHECK_FAILS(GD_E_ARGUMENT, gd_normal(gd_dims(3), .std = -1));
    CHECK_FAILS(GD_E_ARGUMENT, gd_randint(gd_dims(3), 4, 4));
    CHECK_FAILS(GD_E_OVERFLOW, gd_randint(gd_dims(3), 0, 300, .dtype = GD_U8));
    CHECK_FAILS(GD_E_ARGUMENT, gd_randperm(-1));
    CHECK_FAILS(GD_E_OVERFLOW, gd_randperm(300, .dtype = GD_U8));
    CHECK_FAILS(GD_E_DTYPE, gd_randperm(3, .dtype = GD_F32));
    CHECK_FAILS(GD_E_ARGUMENT, gd_bernoulli(gd_from_array(gd_dims(3), GD_F32, bad)));
    CHECK_FAILS(GD_E_ARGUMENT, gd_bernoulli(gd_from_array(gd_dims(2), GD_F32, nan)));
    CHECK_FAILS(GD_E_DTYPE, gd_bernoulli(integer));
    CHECK_FAILS(GD_E_ARGUMENT, gd_multinomial(x, 4));
    CHECK_FAILS(GD_E_ARGUMENT, gd_multinomial(x, 0));
    CHECK_FAILS(GD_E_ARGUMENT, gd_multinomial(gd_from_array(gd_dims(3), GD_F32, bad), 3));
    CHECK_FAILS(GD_E_ARGUMENT, gd_multinomial(gd_from_array(gd_dims(2), GD_F32, none), 1));
    CHECK_FAILS(GD_E_ARGUMENT, gd_multinomial(gd_from_array(gd_dims(2), GD_F32, negative), 1));
    CHECK_FAILS(GD_E_ARGUMENT, gd_multinomial(gd_from_array(gd_dims(2), GD_F32, nan), 1));
    CHECK_FAILS(GD_E_SHAPE, gd_multinomial(gd_ones(gd_dims(2, 2, 2)), 1));
    CHECK_FAILS(GD_E_ARGUMENT, gd_dropout(x, .p = 1.5));
    CHECK_FAILS(GD_E_ARGUMENT, gd_dropout(x, .p = -0.1));
    CHECK_FAILS(GD_E_DTYPE, gd_dropout(integer));
}

TEST(an_invalid_probability_is_reported_with_its_index) {
    GD_SCOPE;
    gd_tensor *p = gd_full(gd_dims(40000), 0.5);
    float *v = gd_data(p);
    v[39000] = 2, v[17] = -0.25f;
    gd_bernoulli(p);
    CHECK_SAYING(strstr(gd_error_message(), "element 17 of 'p' is -0.25"), "%s",
                 gd_error_message());
    gd_clear_error();
}

TEST(failed_allocations_return_a_status) {
    for (fault_walk faults = {.what = "drawing", .lasting = true}; fault_next(&faults);) {
        GD_SCOPE;
        gd_tensor *w = gd_ones(gd_dims(5));
        fault_begin(&faults);
        gd_tensor *made[] = {gd_randperm(100), gd_multinomial(w, 2), gd_randn(gd_dims(100)),
                             gd_dropout(w)};
        fault_end(&faults);
        for (size_t i = 0; i < sizeof made / sizeof *made; i++)
            CHECK_ROUND(&faults, gd_failed() || !gd_tensor_is_error(made[i]));
        CHECK_FAULT(&faults, gd_error_status());
    }
}

TEST_MAIN
