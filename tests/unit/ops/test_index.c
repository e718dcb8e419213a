/* test_index.c - gd_index and gd_index_put with integers, ranges, index tensors and masks. */
#include <stdio.h>
#include <string.h>

#include "backend/test/device.h"
#include "compare.h"
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

/* A list of places for each form of an index. */
typedef struct {
    gd_place at[3];
    int count;
} form;
static int make_forms(form *forms) {
    const bool mask[24] = {[1] = true, [5] = true, [23] = true};
    gd_tensor *i = INTS(1, 0, 1), *j = INTS(2, 0, 2), *none = ints(gd_dims(0), NULL);
    const gd_place all = GD_ALL, rest = GD_ELLIPSIS, one = {GD_PLACE_AT, NULL, 1, 0, 1},
                   last = {GD_PLACE_AT, NULL, -1, 0, 1};
#define INDEX(t) ((gd_place){GD_PLACE_TENSOR, t, 0, 0, 1})
    const form list[] = {
        {{one}, 1},
        {{one, last, one}, 3},
        {{rest, last}, 2},
        {{gd_range(0, 1), gd_range_by(GD_UNSET, GD_UNSET, -2)}, 2},
        {{all, GD_NEWAXIS, one}, 3},
        {{INDEX(i)}, 1},
        {{INDEX(i), all, INDEX(j)}, 3},
        {{all, INDEX(j), one}, 3},
        {{INDEX(none)}, 1},
        {{INDEX(bools(gd_dims(2, 3, 4), mask))}, 1},
        {{one, INDEX(bools(gd_dims(3), mask))}, 2},
        {{rest, INDEX(bools(gd_dims(4), mask))}, 2},
    };
    const int count = (int)(sizeof list / sizeof *list);
    for (int k = 0; k < count; k++) forms[k] = list[k];
    return count;
}

static void check_in_place(gd_tensor *x, const form *f, bool accumulate, const char *what) {
    gd_place_list places = {f->at, f->count};
    gd_tensor *part = gd_index_at(GD_HERE, x, places);
    gd_tensor *values[] = {gd_scalar(7), gd_cast(gd_randint(gd_tensor_shape(part), 0, 9), GD_F32)};
    for (int v = 0; v < 2; v++) {
        gd_tensor *before = gd_clone(x);
        gd_tensor *expected = gd_index_put(x, places, values[v], .accumulate = accumulate);
        CHECK(gd_index_put_(x, places, values[v], .accumulate = accumulate) == x);
        CHECK_SAYING(tensors_same_bits(x, expected), "%s: %s", what, gd_error_message());
        gd_tensor *other =
            gd_slice(gd_cat(gd_list(before, before), .axis = 2), .axis = 2, .stop = 4);
        CHECK(gd_index_put_(other, places, values[v], .accumulate = accumulate) == other);
        CHECK_SAYING(tensors_same_bits(other, expected), "%s, strided: %s", what,
                     gd_error_message());
    }
}

TEST(index_put_in_place_gives_what_index_put_gives) {
    static const gd_dtype dtypes[] = {GD_F32, GD_F64, GD_F16, GD_BF16, GD_I64, GD_U8, GD_BOOL};
    form forms[16];
    GD_SCOPE;
    const int count = make_forms(forms);
    for (int d = 0; d < 7; d++)
        for (int k = 0; k < count; k++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                GD_SCOPE;
                char what[64];
                snprintf(what, sizeof what, "%s, form %d", gd_dtype_name(dtypes[d]), k);
                check_in_place(numbered_tensor(dtypes[d]), &forms[k], accumulate, what);
            }
    CHECK(!gd_failed());
}

TEST(index_put_in_place_works_on_devices) {
    form forms[16];
    GD_SCOPE;
    gd_device *device = gd_test_device();
    const int count = make_forms(forms);
    for (int k = 0; k < count; k++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            GD_SCOPE;
            form there = forms[k];
            for (int i = 0; i < there.count; i++)
                if (there.at[i].tensor)
                    there.at[i].tensor = gd_to_device(there.at[i].tensor, device);
            gd_tensor *x = numbered_tensor(GD_F32), *y = gd_to_device(x, device);
            const gd_place_list here = {forms[k].at, forms[k].count}, at = {there.at, there.count};
            gd_index_put_(x, here, gd_scalar(7), .accumulate = accumulate);
            CHECK(gd_index_put_(y, at, gd_scalar(7), .accumulate = accumulate) == y);
            CHECK_SAYING(tensors_same_bits(x, gd_to_device(y, "cpu")), "form %d: %s", k,
                         gd_error_message());
        }
    CHECK(!gd_failed());
}

TEST(index_put_in_place_writes_the_memory_of_views) {
    GD_SCOPE;
    gd_tensor *x = gd_zeros(gd_dims(3, 2));
    CHECK(gd_index_put_(gd_index(x, 1), gd_places(0), gd_scalar(5)) != NULL);
    CHECK_VALUES(x, gd_dims(3, 2), 0, 0, 5, 0, 0, 0);
    gd_index_put_(gd_transpose(x, 0, 1), gd_places(INTS(1), INTS(2)), gd_scalar(7));
    CHECK_VALUES(x, gd_dims(3, 2), 0, 0, 5, 0, 0, 7);
    gd_index_put_(x, gd_places(gd_range(1, 3)), gd_index(x, gd_range(0, 2))); /* overlaps */
    CHECK_VALUES(x, gd_dims(3, 2), 0, 0, 0, 0, 5, 0);
    gd_tensor *n = INTS(2, 0, 1);
    gd_index_put_(n, gd_places(n), n); /* the same tensor in all places: n[n] = n */
    CHECK_VALUES(n, gd_dims(3), 0, 1, 2);
    gd_index_put_(gd_expand(gd_zeros(gd_dims(1)), gd_dims(3)), gd_places(1), gd_scalar(1));
    CHECK(gd_failed() && strstr(gd_error_message(), "expanded"));
    gd_clear_error();
    gd_tensor *y = gd_arange(0, 4);
    gd_index_put_(y, gd_places(INTS(1, 4)), gd_scalar(9));
    CHECK(gd_error_status() == GD_E_INDEX && strstr(gd_error_message(), "gd_index_put_: "));
    CHECK(strstr(gd_error_message(), "test_index.c:"));
    gd_clear_error();
    CHECK_VALUES(y, gd_dims(4), 0, 1, 2, 3);
    gd_index_put_(y, gd_places(gd_range(0, 2)), gd_arange(0, 3));
    CHECK(gd_error_status() == GD_E_SHAPE);
    gd_clear_error();
}

static gd_tensor *put_in_place(gd_tensors in, void *user) {
    gd_tensor *y = gd_mul(in.at[0], in.at[0]);
    (void)user;
    gd_index_put_(y, gd_places(0, INTS(1, 0, 1)), in.at[1]);
    gd_index_put_(y, gd_places(1, GD_ALL, 2), gd_index(in.at[1], GD_ALL, 0), .accumulate = true);
    return gd_mul(y, y);
}

TEST(gradients_of_two_orders_flow_through_index_put_in_place) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_cast(gd_randn(gd_dims(2, 3, 4)), GD_F64)),
              *v = gd_requires_grad(gd_cast(gd_randn(gd_dims(3, 4)), GD_F64));
    CHECK(gd_gradcheck(put_in_place, gd_list(x, v), NULL, .second_order = true) == GD_OK);
    CHECK(gd_tensor_is_error(gd_index_put_(x, gd_places(0), gd_scalar(1))));
    CHECK(strstr(gd_error_message(), "leaf that requires grad"));
    gd_clear_error();
    {
        GD_NO_GRAD;
        CHECK(gd_index_put_(x, gd_places(0, 0, 0), gd_scalar(3)) == x);
        CHECK(gd_item(gd_index(x, 0, 0, 0)) == 3);
    }
    CHECK(!gd_failed());
}

static gd_tensors put_traced(gd_tensors in, void *user) {
    gd_tensor *state = user, *y = gd_add(in.at[0], 1);
    gd_index_put_(y, gd_places(0), gd_scalar(-1));
    gd_index_put_(state, gd_places(in.at[1]), gd_index(y, 1, gd_range(0, 2)), .accumulate = true);
    return gd_listed(y, gd_add(state, 0));
}

TEST(index_put_in_place_works_in_jits) {
    GD_SCOPE;
    gd_tensor *x = gd_reshape(gd_arange(0, 6), gd_dims(2, 3)), *state = gd_zeros(gd_dims(3));
    gd_jit *jit = gd_jit_new(put_traced, state);
    for (int call = 1; call < 4; call++) {
        gd_tensors y = gd_jit_call(jit, gd_list(x, INTS(2, 0)));
        CHECK_VALUES(y.at[0], gd_dims(2, 3), -1, -1, -1, 4, 5, 6);
        CHECK_VALUES(y.at[1], gd_dims(3), 5 * call, 0, 4 * call);
        CHECK_VALUES(state, gd_dims(3), 5 * call, 0, 4 * call);
    }
    CHECK(!gd_failed());
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

/* --- all positions of an axis ----------------------------------------------------------------- */

TEST(unbind_gives_a_view_of_each_position) {
    GD_SCOPE;
    gd_tensor *x = numbered_tensor(GD_F32);
    const gd_tensors parts = gd_unbind(x, .axis = -2);
    CHECK(parts.count == 3);
    CHECK_VALUES(parts.at[1], gd_dims(2, 4), 10, 11, 12, 13, 110, 111, 112, 113);
    gd_mul_(parts.at[2], 0);
    CHECK_VALUES(gd_select(x, 1, 2), gd_dims(2, 4), 0, 0, 0, 0, 0, 0, 0, 0);
    CHECK(gd_unbind(x).count == 2 && gd_tensor_dim(gd_unbind(x).at[1], 0) == 3);
}

TEST(gradients_of_unbound_parts_are_stacked) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(2, 3)));
    const gd_tensors columns = gd_unbind(x, .axis = 1);
    gd_backward(gd_sum(gd_add(gd_mul(columns.at[0], 2), columns.at[2])));
    CHECK_VALUES(gd_tensor_grad(x), gd_dims(2, 3), 2, 0, 1, 2, 0, 1);
}

static bool fails_to_unbind(gd_tensor *x, int axis, const char *text) {
    const gd_tensors parts = gd_unbind(x, .axis = axis);
    const bool fails = gd_failed() && strstr(gd_error_message(), text) &&
                       gd_tensor_is_error(parts.at[0]) && gd_tensor_is_error(parts.at[5]);
    if (!fails) printf("%s\n", gd_error_message());
    gd_clear_error();
    return fails;
}

TEST(unbind_says_why_there_are_no_parts) {
    GD_SCOPE;
    CHECK(fails_to_unbind(gd_zeros(gd_dims(0, 3)), 0, "axis 0 has size 0"));
    CHECK(fails_to_unbind(gd_zeros(gd_dims(2, 3)), 2, "axis"));
    CHECK(fails_to_unbind(gd_scalar(1), 0, "rank 0"));
    GD_GRAPH(gd_graph_new());
    CHECK(fails_to_unbind(gd_placeholder(gd_dims(GD_ANY, 3)), 0, "unbind"));
}

TEST_MAIN
