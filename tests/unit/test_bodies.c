/* test_bodies.c - what the generated cases of bodies cannot say: places that are not there. */
#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "test.h"

static gd_tensor *places(int64_t a, int64_t b) {
    return gd_from_array(gd_dims(1, 2), GD_I64, (int64_t[]){a, b});
}

static gd_tensor *planes(void) { return gd_reshape(gd_arange(1, 5), gd_dims(1, 4)); }

static bool equals(gd_tensor *y, const float *expected, int n) {
    const float *data = gd_data(y);
    for (int i = 0; data && i < n; i++)
        if (data[i] != expected[i]) return false;
    return data != NULL;
}

static void check_places(void) {
    GD_SCOPE;
    gd_tensor *y = gd_call("pool_gather", gd_list(planes(), places(3, -1)), "axes=1");
    CHECK(equals(y, (float[]){4, 0}, 2));
    y = gd_call("pool_scatter", gd_list(gd_ones(gd_dims(1, 2)), places(-1, 2)), "dims=4");
    CHECK(equals(y, (float[]){0, 0, 1, 0}, 4));
    for (int64_t bad = -2; bad <= 4; bad += 6) {
        gd_call("pool_gather", gd_list(planes(), places(0, bad)), "axes=1");
        CHECK(gd_error_status() == GD_E_INDEX);
        gd_clear_error();
        gd_call("pool_scatter", gd_list(gd_ones(gd_dims(1, 2)), places(0, bad)), "dims=4");
        CHECK(gd_error_status() == GD_E_INDEX);
        gd_clear_error();
    }
}

TEST(place_minus_one_is_nowhere_and_others_outside_fail) { check_places(); }

TEST(bodies_treat_places_outside_as_kernels_do) {
    gd_set_op_bodies(true);
    check_places();
    gd_set_op_bodies(false);
}

TEST_MAIN
