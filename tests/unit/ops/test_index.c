/* test_index.c - gd_index and gd_index_put with integers, ranges, index tensors and masks. */
#include "gradus/gradus.h"
#include "test.h"

/* Shape (2, 3, 4), x[i][j][k] = 100 i + 10 j + k. */
static gd_tensor *numbered_tensor(gd_dtype dtype) {
    double data[24];
    for (int n = 0; n < 24; n++) data[n] = 100 * (n / 12) + 10 * (n / 4 % 3) + n % 4;
    return gd_cast(gd_from_array(gd_dims(2, 3, 4), GD_F64, data), dtype);
}

static gd_tensor *ints(gd_shape dims, const int64_t *data) {
    return gd_from_array(dims, GD_I64, data);
}
static gd_tensor *bools(gd_shape dims, const bool *data) {
    return gd_from_array(dims, GD_BOOL, data);
}
#define INTS(...) \
    ints(gd_dims((int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8)), (int64_t[]){__VA_ARGS__})

/* Compares the shape and all elements. */
static bool has_values(gd_tensor *t, gd_shape dims, const double *expected) {
    double got[64] = {0};
    gd_shape shape = gd_tensor_shape(t);
    int64_t n = gd_tensor_numel(t);
    if (gd_tensor_is_error(t) || shape.rank != dims.rank) return false;
    for (int d = 0; d < dims.rank; d++)
        if (shape.at[d] != dims.at[d]) return false;
    if (gd_copy_to(gd_cast(t, GD_F64), got, (size_t)n * sizeof *got) != GD_OK) return false;
    for (int64_t i = 0; i < n; i++)
        if (got[i] != expected[i]) return false;
    return true;
}
#define CHECK_VALUES(t, dims, ...) \
    CHECK_SAYING(has_values(t, dims, (double[]){__VA_ARGS__}), "%s", gd_error_message())

TEST(indexing_with_integers_ranges_and_new_axes_gives_views) {
    GD_SCOPE;
    gd_tensor *x = numbered_tensor(GD_F32);
    CHECK_VALUES(gd_index(x, 1, -1, 2), gd_dims(), 122);
    CHECK_VALUES(gd_index(x, 1, GD_ALL, 0), gd_dims(3), 100, 110, 120);
    CHECK_VALUES(gd_index(x, GD_ELLIPSIS, -1), gd_dims(2, 3), 3, 13, 23, 103, 113, 123);
    CHECK_VALUES(gd_index(x, 0, gd_range(1, GD_END), gd_range_by(GD_UNSET, GD_UNSET, 2)),
                 gd_dims(2, 2), 10, 12, 20, 22);
    CHECK_VALUES(gd_index(x, 0, 0, gd_range_by(GD_UNSET, GD_UNSET, -1)), gd_dims(4), 3, 2, 1, 0);
    CHECK_VALUES(gd_index(x, 1, GD_NEWAXIS, 2, gd_range(-2, GD_END)), gd_dims(1, 2), 122, 123);
    CHECK_VALUES(gd_index(x, 1, 0), gd_dims(4), 100, 101, 102, 103);
    CHECK(gd_data(gd_index(x, 1, 0)) == (float *)gd_data(x) + 12);
    CHECK(gd_index(x) == x);
    CHECK(!gd_failed());
}

TEST(index_tensors_broadcast_and_their_dimensions_replace_the_indexed_axes) {
    GD_SCOPE;
    gd_tensor *x = numbered_tensor(GD_F64), *i = INTS(2, 0), *j = INTS(-1, 1);
    CHECK_VALUES(gd_index(x, GD_ALL, i, j), gd_dims(2, 2), 23, 1, 123, 101);
    CHECK_VALUES(gd_index(x, INTS(1, 0), i), gd_dims(2, 4), 120, 121, 122, 123, 0, 1, 2, 3);
    /* index tensors on axes that are not adjacent: their dimensions come first */
    CHECK_VALUES(gd_index(x, INTS(1, 0), GD_ALL, j), gd_dims(2, 3), 103, 113, 123, 1, 11, 21);
    CHECK_VALUES(gd_index(x, INTS(1, 0), gd_range(1, 3), j), gd_dims(2, 2), 113, 123, 11, 21);
    /* an integer removes its axis before that rule applies */
    CHECK_VALUES(gd_index(x, 1, GD_ALL, j), gd_dims(3, 2), 103, 101, 113, 111, 123, 121);
    /* index tensors broadcast */
    gd_tensor *column = ints(gd_dims(2, 1), (int64_t[]){0, 2});
    CHECK_VALUES(gd_index(x, 0, column, j), gd_dims(2, 2), 3, 1, 23, 21);
    CHECK_VALUES(gd_index(x, gd_scalar_int(-1), gd_scalar_int(0)), gd_dims(4), 100, 101, 102, 103);
    CHECK_VALUES(gd_index(x, 0, 0, ints(gd_dims(0), NULL)), gd_dims(0), 0);
    CHECK(!gd_failed());
}

TEST(a_mask_selects_the_positions_where_it_is_true) {
    GD_SCOPE;
    gd_tensor *x = numbered_tensor(GD_F64);
    gd_tensor *rows = bools(gd_dims(3), (bool[]){true, false, true});
    gd_tensor *pairs = bools(gd_dims(2, 3), (bool[]){false, true, false, true, false, false});
    CHECK_VALUES(gd_index(x, pairs), gd_dims(2, 4), 10, 11, 12, 13, 100, 101, 102, 103);
    CHECK_VALUES(gd_index(x, 0, rows, INTS(1, 3)), gd_dims(2), 1, 23);
    CHECK_VALUES(gd_index(x, GD_ALL, rows, 0), gd_dims(2, 2), 0, 20, 100, 120);
    CHECK_VALUES(gd_index(x, pairs, -1), gd_dims(2), 13, 103);
    CHECK_VALUES(gd_index(x, 0, 0, gd_scalar_of(1, GD_BOOL)), gd_dims(1, 4), 0, 1, 2, 3);
    CHECK_VALUES(gd_index(x, 0, 0, gd_scalar_of(0, GD_BOOL)), gd_dims(0, 4), 0);
    CHECK(!gd_failed());
}

TEST(index_put_writes_what_index_reads) {
    GD_SCOPE;
    gd_tensor *x = gd_index(numbered_tensor(GD_F64), GD_ALL, 0); /* (2, 4) */
    gd_tensor *i = INTS(0, 3);
    CHECK_VALUES(gd_index_put(x, gd_places(GD_ALL, i), gd_scalar(7)), gd_dims(2, 4), 7, 1, 2, 7, 7,
                 101, 102, 7);
    CHECK_VALUES(gd_index_put(x, gd_places(1, i), INTS(5, 6)), gd_dims(2, 4), 0, 1, 2, 3, 5, 101,
                 102, 6);
    CHECK_VALUES(gd_index_put(x, gd_places(GD_ALL, gd_range(1, 3)), gd_scalar(0)), gd_dims(2, 4), 0,
                 0, 0, 3, 100, 0, 0, 103);
    CHECK_VALUES(gd_index_put(x, gd_places(-1, -1), gd_scalar(0)), gd_dims(2, 4), 0, 1, 2, 3, 100,
                 101, 102, 0);
    CHECK_VALUES(gd_index_put(x, gd_places(0, GD_NEWAXIS), gd_scalar(4)), gd_dims(2, 4), 4, 4, 4, 4,
                 100, 101, 102, 103);
    CHECK_VALUES(gd_index_put(x, gd_places(gd_range_by(GD_UNSET, GD_UNSET, -1), gd_range(0, 1)),
                              ints(gd_dims(2, 1), (int64_t[]){8, 9})),
                 gd_dims(2, 4), 9, 1, 2, 3, 8, 101, 102, 103);
    CHECK_VALUES(gd_index_put(x, gd_places(gd_gt(x, gd_scalar(50))), gd_scalar(-1)), gd_dims(2, 4),
                 0, 1, 2, 3, -1, -1, -1, -1);
    CHECK_VALUES(gd_index_put(x, gd_places(), gd_scalar(1)), gd_dims(2, 4), 1, 1, 1, 1, 1, 1, 1, 1);
    /* repeated indices: the last write wins, or all are accumulated */
    gd_tensor *same = INTS(1, 1, 1), *v = INTS(2, 3, 4);
    CHECK_VALUES(gd_index_put(x, gd_places(0, same), v), gd_dims(2, 4), 0, 4, 2, 3, 100, 101, 102,
                 103);
    CHECK_VALUES(gd_index_put(x, gd_places(0, same), v, .accumulate = true), gd_dims(2, 4), 0, 10,
                 2, 3, 100, 101, 102, 103);
    CHECK_VALUES(gd_index_put(x, gd_places(0, gd_range(0, 2)), gd_scalar(1), .accumulate = true),
                 gd_dims(2, 4), 1, 2, 2, 3, 100, 101, 102, 103);
    CHECK_VALUES(x, gd_dims(2, 4), 0, 1, 2, 3, 100, 101, 102, 103); /* x is unchanged */
    CHECK(!gd_failed());
}

static gd_tensor *read_elements(gd_tensors in, void *user) {
    (void)user;
    return gd_index(in.at[0], INTS(1, 0, 1), gd_range(0, 2), INTS(0, -1, 0));
}
static gd_tensor *write_elements(gd_tensors in, void *add) {
    gd_tensor *y = gd_index_put(in.at[0], gd_places(GD_ALL, INTS(2, 0, 2), gd_range(1, 3)),
                                in.at[1], .accumulate = *(bool *)add);
    return gd_mul(y, y);
}

TEST(gradients_of_two_orders_flow_through_index_and_index_put) {
    GD_SCOPE;
    gd_seed(3);
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(2, 3, 4), .dtype = GD_F64));
    gd_tensor *v = gd_requires_grad(gd_randn(gd_dims(3, 2), .dtype = GD_F64)); /* broadcasts */
    CHECK(gd_gradcheck(read_elements, gd_list(x), NULL, .second_order = true) == GD_OK);
    for (int add = 0; add < 2; add++)
        CHECK_SAYING(gd_gradcheck(write_elements, gd_list(x, v), &(bool){add},
                                  .second_order = true) == GD_OK,
                     "%s", gd_error_message());
    gd_clear_error();
}

TEST(an_index_out_of_range_is_reported_with_its_axis_and_range) {
    GD_SCOPE;
    gd_tensor *x = numbered_tensor(GD_F32);
    static const char *const messages[] = {
        "index 4 at position [1] of the indices is out of range for axis 2 of size 4 (-4 to 3)",
        "index -4 is out of range for axis 1 of size 3 (-3 to 2)",
        "the places index 4 dimensions, but x has 3",
        "place 1 is a tensor of f32; indices must be integers, masks bool",
        "a mask has size 2 in dimension 0, but axis 1 of x has size 3",
        "place 0 is NULL; write GD_ALL for all of an axis",
        "GD_ELLIPSIS is given 2 times",
        "the range for axis 1 has step 0",
        "index -5 at position [0] of the indices is out of range for axis 2 of size 4 (-4 to 3)",
    };
    for (int n = 0; n < 9; n++) {
        gd_tensor *y = NULL;
        switch (n) {
        case 0: y = gd_index(x, 0, GD_ALL, INTS(0, 4)); break;
        case 1: y = gd_index(x, 0, -4); break;
        case 2: y = gd_index(x, 0, GD_ALL, 1, 2); break;
        case 3: y = gd_index(x, 0, gd_scalar(1)); break;
        case 4: y = gd_index(x, 0, bools(gd_dims(2), (bool[]){true, true})); break;
        case 5: y = gd_index(x, (gd_tensor *)NULL); break;
        case 6: y = gd_index(x, GD_ELLIPSIS, 0, GD_ELLIPSIS); break;
        case 7: y = gd_index(x, 0, gd_range_by(0, 2, 0)); break;
        case 8: y = gd_index_put(x, gd_places(0, 1, INTS(-5)), gd_scalar(1)); break;
        }
        CHECK(gd_tensor_is_error(y));
        CHECK_SAYING(strstr(gd_error_message(), messages[n]), "%s", gd_error_message());
        CHECK_SAYING(strstr(gd_error_message(), "test_index.c:"), "%s", gd_error_message());
        gd_clear_error();
    }
}

/* Indexing in a graph with unknown sizes, with a mask and gradients. */
TEST(indexing_works_in_graphs_with_unknown_sizes) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *put, *gx;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(-1, 3), .dtype = GD_F64);
        y = gd_index(x, gd_gt(gd_index(x, GD_ALL, 0), gd_scalar(0)), INTS(1, -1, 0));
        put = gd_index_put(x, gd_places(GD_ALL, INTS(2)), gd_scalar(9));
        gx = gd_grad(gd_list(gd_sum(gd_mul(y, y))), gd_list(x)).at[0];
    }
    gd_session *session = gd_session_new(graph);
    gd_tensor *value =
        gd_from_array(gd_dims(4, 3), GD_F64, (double[]){1, 2, 3, -4, 5, 6, 7, 8, 9, 10, 11, 12});
    gd_tensors out = gd_session_run(session, gd_feed(x, value), gd_list(y, put, gx));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    if (gd_failed()) return;
    CHECK_VALUES(out.at[0], gd_dims(3), 2, 9, 10);
    CHECK_VALUES(out.at[1], gd_dims(4, 3), 1, 2, 9, -4, 5, 9, 7, 8, 9, 10, 11, 9);
    CHECK_VALUES(out.at[2], gd_dims(4, 3), 0, 4, 0, 0, 0, 0, 0, 0, 18, 20, 0, 0);
}

TEST_MAIN
