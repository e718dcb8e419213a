/* test_digits.c - the built-in digits dataset: reproducible, in range, balanced, neither too easy
 * nor too hard. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>

#include "gradus/datasets.h"
#include "gradus/gradus.h"
#include "test.h"

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

/* The hash of samples first to first + count - 1. */
static uint64_t hash_of(gd_dataset *d, int64_t first, int64_t count) {
    uint64_t h = 14695981039346656037u;
    for (int64_t i = first; i < first + count; i++) {
        GD_SCOPE;
        gd_tensors s = gd_dataset_get(d, i);
        if (s.count != 2) return 0;
        const int64_t digit = gd_item_int(s.at[1]);
        h = hash_bytes(h, gd_data(s.at[0]), (size_t)gd_tensor_numel(s.at[0]) * sizeof(float));
        h = hash_bytes(h, &digit, sizeof digit);
    }
    return h;
}

/* The expected hash depends on the strokes, but not on the machine, the compiler or the number of
 * threads. */
TEST(samples_are_a_function_of_seed_and_number) {
    GD_SCOPE;
    gd_dataset *a = gd_dataset_digits(.seed = 1), *b = gd_dataset_new("digits", "seed=1 count=50"),
               *c = gd_dataset_digits(.seed = 2);
    const uint64_t h = hash_of(a, 0, 50);
    CHECK_SAYING(h == 0xe1550df92cdab445u, "0x%llx", (unsigned long long)h);
    CHECK(hash_of(a, 10, 5) ==
          hash_of(b, 10, 5)); /* independent of the count and of earlier samples */
    CHECK(hash_of(a, 0, 5) != hash_of(c, 0, 5));
    gd_tensors first = gd_dataset_get(a, 7, .seed = 3, .epoch = 1),
               second = gd_dataset_get(a, 7, .seed = 4, .epoch = 2);
    CHECK(memcmp(gd_data(first.at[0]), gd_data(second.at[0]), 784 * sizeof(float)) == 0);
}

TEST(images_have_the_form_of_mnist) {
    GD_SCOPE;
    gd_dataset *d = gd_dataset_digits(.count = 1000);
    double sum = 0, squares = 0;
    int counts[10] = {0};
    CHECK(gd_dataset_count(d) == 1000 && gd_dataset_class_count(d) == 10);
    CHECK(strcmp(gd_dataset_class_name(d, 7), "7") == 0);
    for (int64_t i = 0; i < 1000; i++) {
        GD_SCOPE;
        gd_tensors s = gd_dataset_get(d, i);
        CHECK(gd_tensor_dtype(s.at[0]) == GD_F32 && gd_tensor_dtype(s.at[1]) == GD_I64 &&
              gd_tensor_rank(s.at[1]) == 0);
        CHECK(gd_tensor_rank(s.at[0]) == 3 && gd_tensor_dim(s.at[0], 0) == 1 &&
              gd_tensor_dim(s.at[0], 1) == 28);
        const float *v = gd_data(s.at[0]);
        double mass = 0, x = 0, y = 0;
        for (int k = 0; k < 784; k++) {
            CHECK(v[k] >= 0 && v[k] <= 1);
            sum += v[k];
            squares += (double)v[k] * v[k];
            mass += v[k];
            x += v[k] * (k % 28 + 0.5);
            y += v[k] * (k / 28 + 0.5);
        }
        CHECK_SAYING(mass > 15 && fabs(x / mass - 14) < 0.7 && fabs(y / mass - 14) < 0.7,
                     "%lld: %g at %g %g", (long long)i, mass, x / mass, y / mass);
        counts[gd_item_int(s.at[1])]++;
    }
    for (int k = 0; k < 10; k++) CHECK(counts[k] == 100);
    const double mean = sum / 784000, deviation = sqrt(squares / 784000 - mean * mean);
    CHECK_SAYING(fabs(mean - 0.1307) < 0.015 && fabs(deviation - 0.3081) < 0.02, "%g %g", mean,
                 deviation);
}

/* Each class is equally frequent for every index modulo 10 and after every other class. */
TEST(classes_are_independent_of_the_index) {
    GD_SCOPE;
    gd_dataset *d = gd_dataset_digits(.count = 4000, .size = 8);
    int table[10][10] = {{0}}, after[10][10] = {{0}};
    int64_t before = 0;
    for (int64_t i = 0; i < 4000; i++) {
        GD_SCOPE;
        const int64_t digit = gd_item_int(gd_dataset_get(d, i).at[1]);
        table[i % 10][digit]++;
        after[before][digit]++;
        before = digit;
    }
    for (int i = 0; i < 10; i++)
        for (int k = 0; k < 10; k++) {
            CHECK_SAYING(table[i][k] > 15 && table[i][k] < 70, "%d %d: %d", i, k, table[i][k]);
            if (i != k)
                CHECK_SAYING(after[i][k] > 15 && after[i][k] < 80, "%d after %d: %d", k, i,
                             after[i][k]);
        }
}

TEST(every_size_works) {
    for (int64_t size = 8; size <= 64; size++) {
        GD_SCOPE;
        gd_dataset *d = gd_dataset_digits(.count = 40, .size = size);
        for (int64_t i = 0; i < 40; i++) {
            GD_SCOPE;
            gd_tensor *x = gd_dataset_get(d, i).at[0];
            const float *v = gd_data(x);
            double mass = 0;
            CHECK(gd_tensor_dim(x, 1) == size && gd_tensor_dim(x, 2) == size);
            for (int64_t k = 0; k < size * size; k++) mass += v[k];
            CHECK_SAYING(mass / (double)(size * size) > 0.01 && mass / (double)(size * size) < 0.5,
                         "%lld: %g", (long long)size, mass);
        }
    }
    GD_SCOPE;
    CHECK(hash_of(gd_dataset_digits(.size = 256), 0, 3) != 0);
}

TEST(options_change_the_samples) {
    GD_SCOPE;
    double mass[3];
    for (int k = 0; k < 3; k++) {
        gd_dataset *d = gd_dataset_digits(.count = 200, .thickness = 0.5 * (k + 1), .noise = 0);
        mass[k] = 0;
        for (int64_t i = 0; i < 200; i++) {
            GD_SCOPE;
            const float *v = gd_data(gd_dataset_get(d, i).at[0]);
            for (int e = 0; e < 784; e++) mass[k] += v[e];
        }
    }
    CHECK_SAYING(mass[0] * 1.5 < mass[1] && mass[1] * 1.2 < mass[2], "%g %g %g", mass[0], mass[1],
                 mass[2]);
    static const char *const all[] = {"jitter=0",
                                      "slant=0",
                                      "rotation=0",
                                      "warp=0",
                                      "noise=0",
                                      "thickness=2",
                                      "jitter=4 slant=4 rotation=4 warp=4 noise=1 thickness=4"};
    const uint64_t plain = hash_of(gd_dataset_digits(), 0, 20);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK_SAYING(hash_of(gd_dataset_new("digits", all[i]), 0, 20) != plain, "%s", all[i]);
    static const char *const wrong[] = {"size=7",    "size=257",   "count=-1",
                                        "jitter=-1", "jitter=nan", "thickness=0",
                                        "noise=2",   "slant=inf",  "colour=red"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_SAYING(!gd_dataset_new("digits", wrong[i]), "%s", wrong[i]);
        CHECK_SAYING(strstr(gd_error_message(), "digits"), "%s", gd_error_message());
        gd_clear_error();
    }
    gd_dataset_get(gd_dataset_digits(.count = 5), 5);
    CHECK_SAYING(gd_failed() && strstr(gd_error_message(), "digits has 5 samples"), "%s",
                 gd_error_message());
    gd_clear_error();
}

typedef struct {
    gd_dataset *dataset;
    uint64_t hash;
} work;
static void *hash_in_thread(void *p) {
    work *w = p;
    w->hash = hash_of(w->dataset, 0, 300);
    return NULL;
}

TEST(threads_share_a_dataset) {
    GD_SCOPE;
    pthread_t threads[4];
    work works[4];
    gd_dataset *d = gd_dataset_digits();
    for (int i = 0; i < 4; i++) {
        works[i] = (work){.dataset = d};
        pthread_create(&threads[i], NULL, hash_in_thread, &works[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) CHECK(works[i].hash == hash_of(d, 0, 300));
}

/* --- difficulty ------------------------------------------------------------------------------- */

enum { PIXELS = 784 };

static void read_all(int64_t seed, int64_t count, float *x, int *y) {
    GD_SCOPE;
    gd_dataset *d = gd_dataset_digits(.count = count, .seed = seed);
    for (int64_t i = 0; i < count; i++) {
        GD_SCOPE;
        gd_tensors s = gd_dataset_get(d, i);
        memcpy(x + i * PIXELS, gd_data(s.at[0]), PIXELS * sizeof *x);
        y[i] = (int)gd_item_int(s.at[1]);
    }
}

static int scores_of(float w[10][PIXELS + 1], const float *x, float *score) {
    int best = 0;
    for (int k = 0; k < 10; k++) {
        float s = w[k][PIXELS];
        for (int i = 0; i < PIXELS; i++) s += w[k][i] * x[i];
        score[k] = s;
        if (s > score[best]) best = k;
    }
    return best;
}

/* Softmax regression by gradient descent, one sample at a time. Returns the accuracy on other
 * digits. */
static double linear_accuracy(int64_t count, int epochs) {
    const int64_t unseen = 2000;
    float(*w)[PIXELS + 1] = calloc(10, sizeof *w),
                       *x = malloc((size_t)(count + unseen) * PIXELS * sizeof *x), score[10];
    int *y = malloc((size_t)(count + unseen) * sizeof *y), right = 0;
    read_all(1, count, x, y);
    read_all(2, unseen, x + count * PIXELS, y + count);
    const int64_t steps = count * epochs;
    for (int64_t step = 0; step < steps; step++) {
        const int64_t i = step % count;
        const float rate = 0.02f * (1 - (float)step / (float)steps), *v = x + i * PIXELS;
        const int best = scores_of(w, v, score);
        const float top = score[best];
        float sum = 0;
        for (int k = 0; k < 10; k++) sum += score[k] = expf(score[k] - top);
        for (int k = 0; k < 10; k++) {
            const float change = rate * ((k == y[i]) - score[k] / sum);
            for (int e = 0; e < PIXELS; e++) w[k][e] += change * v[e];
            w[k][PIXELS] += change;
        }
    }
    for (int64_t i = count; i < count + unseen; i++)
        right += scores_of(w, x + i * PIXELS, score) == y[i];
    free(w);
    free(x);
    free(y);
    return (double)right / (double)unseen;
}

/* With GRADUS_TEST_FULL=1 the training converges. */
TEST(a_linear_classifier_stays_under_90_percent) {
    const bool full = getenv("GRADUS_TEST_FULL") != NULL;
    const double share = full ? linear_accuracy(20000, 20) : linear_accuracy(5000, 3);
    CHECK_SAYING(share > 0.6 && share < 0.9, "%.1f %%", 100 * share);
    if (full) printf("a linear classifier: %.1f %% of unseen digits\n", 100 * share);
}

TEST_MAIN
