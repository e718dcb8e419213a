/* random_graphs.c - comparing the results of random graphs. */
#include "random_graphs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static bool is_close(double a, double b, double tolerance) {
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(a));
}

static void list_dims(gd_tensor *t, char *text, size_t size) {
    int n = snprintf(text, size, "%s[", gd_dtype_name(gd_tensor_dtype(t)));
    for (int i = 0; i < gd_tensor_rank(t); i++)
        n += snprintf(text + n, size - (size_t)n, "%s%lld", i ? "," : "",
                      (long long)gd_tensor_dim(t, i));
    snprintf(text + n, size - (size_t)n, "]");
}

void check_same(uint64_t seed, const char *mode, const results *expected, const results *got,
                double tolerance) {
    CHECK(expected->count == got->count);
    for (int i = 0; i < expected->count && i < got->count; i++) {
        char a_dims[80], b_dims[80];
        list_dims(expected->at[i], a_dims, sizeof a_dims);
        list_dims(got->at[i], b_dims, sizeof b_dims);
        if (strcmp(a_dims, b_dims) != 0) {
            CHECK_SAYING(false, "seed %llu, %s, result %d of %d: %s, but %s in eager code",
                         (unsigned long long)seed, mode, i, expected->count, b_dims, a_dims);
            return;
        }
        const double *a = gd_data(gd_contiguous(gd_cast(gd_detach(expected->at[i]), GD_F64)));
        const double *b = gd_data(gd_contiguous(gd_cast(gd_detach(got->at[i]), GD_F64)));
        const int64_t n = gd_tensor_numel(expected->at[i]);
        for (int64_t e = 0; e < n && a && b; e++) {
            if (is_close(a[e], b[e], tolerance)) continue;
            CHECK_SAYING(false,
                         "seed %llu, %s, result %d of %d (%s), element %lld: %.17g, eagerly %.17g",
                         (unsigned long long)seed, mode, i, expected->count, a_dims, (long long)e,
                         b[e], a[e]);
            return;
        }
    }
}

const char *level_name(int level) {
    static const char *const names[] = {"level 0", "level 1", "level 2"};
    return names[level];
}

void for_each_seed(uint64_t usual, void (*check)(uint64_t seed)) {
    const char *asked = getenv("GRADUS_GRAPHS"), *one = getenv("GRADUS_GRAPH");
    const uint64_t count = asked ? strtoull(asked, NULL, 10) : usual;
    if (one) {
        check(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= count; seed++) {
        GD_SCOPE;
        check(seed);
        CHECK_SAYING(!gd_failed(), "seed %llu: %s", (unsigned long long)seed, gd_error_message());
        gd_clear_error();
    }
}
