/* test_make_grid.c - several images as one, compared with torchvision's algorithm. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clean_test.h"
#include "gradus/gradus.h"
#include "values.h"

enum { MAX_ELEMENTS = 8192 };

typedef struct grid_case {
    int n, c, h, w;
    gd_make_grid_options options;
} grid_case;

static const grid_case cases[] = {
    {6, 3, 4, 5, {.nrow = 3, .padding = 2}},
    {7, 3, 4, 5, {.nrow = 3, .padding = 1, .pad_value = 0.5}},
    {2, 2, 3, 3, {.nrow = 8, .padding = 0}},
    {5, 1, 2, 6, {.nrow = 2, .padding = 3, .normalize = true}},
    {4, 3, 3, 2, {.nrow = 1, .padding = 2, .normalize = true, .value_range = {-1, 0.5}}},
    {4, 3, 3, 2, {.nrow = 2, .padding = 2, .normalize = true, .scale_each = true}},
    {1, 1, 4, 4, {.nrow = 8, .padding = 2, .normalize = true}},
};

/* torchvision's make_grid, one element at a time. Returns the number of elements of y. */
static int expect_grid(const grid_case *g, const float *x, float *y, int dims[3]) {
    const gd_make_grid_options *o = &g->options;
    const int channels = g->c == 1 ? 3 : g->c, pad = g->n == 1 ? 0 : (int)o->padding,
              columns = g->n < o->nrow ? g->n : (int)o->nrow, rows = (g->n + columns - 1) / columns,
              size = g->c * g->h * g->w;
    dims[0] = channels;
    dims[1] = rows * (g->h + pad) + pad;
    dims[2] = columns * (g->w + pad) + pad;
    for (int i = 0; i < dims[0] * dims[1] * dims[2]; i++) y[i] = (float)o->pad_value;
    for (int n = 0; n < g->n; n++) {
        float low = (float)o->value_range[0], high = (float)o->value_range[1];
        if (low == 0 && high == 0) {
            low = INFINITY, high = -INFINITY;
            for (int i = 0; i < g->n * size; i++) {
                if (o->scale_each && i / size != n) continue;
                low = fminf(low, x[i]), high = fmaxf(high, x[i]);
            }
        }
        for (int c = 0; c < channels; c++)
            for (int i = 0; i < g->h * g->w; i++) {
                float v = x[n * size + (g->c == 1 ? 0 : c) * g->h * g->w + i];
                if (o->normalize) v = (fminf(fmaxf(v, low), high) - low) / fmaxf(high - low, 1e-5f);
                const int row = n / columns * (g->h + pad) + pad + i / g->w,
                          column = n % columns * (g->w + pad) + pad + i % g->w;
                y[(c * dims[1] + row) * dims[2] + column] = v;
            }
    }
    return dims[0] * dims[1] * dims[2];
}

CLEAN_TEST(grids_are_those_of_torchvision) {
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        GD_SCOPE;
        const grid_case *g = &cases[k];
        static float x[MAX_ELEMENTS], y[MAX_ELEMENTS], found[MAX_ELEMENTS];
        int dims[3];
        for (int i = 0; i < g->n * g->c * g->h * g->w; i++) x[i] = sinf((float)i * 1.7f) * 2;
        gd_tensor *images = gd_from_array(gd_dims(g->n, g->c, g->h, g->w), GD_F32, x);
        gd_tensor *grid = gd_make_grid_at(GD_HERE, images, &g->options);
        const int count = expect_grid(g, x, y, dims);
        CHECK_SAYING(gd_tensor_rank(grid) == 3 && gd_tensor_dim(grid, 0) == dims[0] &&
                         gd_tensor_dim(grid, 1) == dims[1] && gd_tensor_dim(grid, 2) == dims[2],
                     "case %zu: %s", k, gd_error_message());
        CHECK(gd_copy_to(grid, found, (size_t)count * sizeof *found) == GD_OK);
        for (int i = 0; i < count; i++)
            CHECK_SAYING(fabsf(found[i] - y[i]) < 1e-6f, "case %zu, element %d: %g, not %g", k, i,
                         (double)found[i], (double)y[i]);
    }
}

CLEAN_TEST(images_of_other_ranks_and_dtypes_are_accepted) {
    GD_SCOPE;
    gd_tensor *one = gd_make_grid(gd_full(gd_dims(3, 5), 7, .dtype = GD_U8));
    CHECK(gd_tensor_dtype(one) == GD_U8 && gd_tensor_rank(one) == 3 && gd_tensor_dim(one, 0) == 3 &&
          gd_tensor_dim(one, 1) == 3 && gd_tensor_dim(one, 2) == 5);
    gd_tensor *many =
        gd_make_grid(gd_full(gd_dims(3, 1, 2, 2), 7, .dtype = GD_U8), .pad_value = 255);
    CHECK(gd_item_int(gd_at(many, 0, 0, 0)) == 255 && gd_item_int(gd_at(many, 2, 2, 2)) == 7);
    gd_tensor *flat = gd_make_grid(gd_ones(gd_dims(2, 3, 4, 4)), .normalize = true);
    CHECK(gd_item(gd_max(flat)) == 0); /* equal values: no division by 0 */
}

CLEAN_TEST(messages_of_grids_state_what_is_expected) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2, 3, 4, 4));
#define CHECK_FAILS(call, part)                             \
    do {                                                    \
        CHECK(gd_tensor_is_error(call));                    \
        CHECK_SAYING(says(part), "%s", gd_error_message()); \
        gd_clear_error();                                   \
    } while (0)
    CHECK_FAILS(gd_make_grid(NULL), "gd_make_grid: the images are NULL");
    CHECK_FAILS(gd_make_grid(gd_ones(gd_dims(3))), "they should be (N,C,H,W)");
    CHECK_FAILS(gd_make_grid(gd_ones(gd_dims(0, 3, 4, 4))), "f32[0,3,4,4]");
    CHECK_FAILS(gd_make_grid(x, .nrow = 0), ".nrow is 0");
    CHECK_FAILS(gd_make_grid(x, .padding = -1), ".padding is -1");
    CHECK_FAILS(gd_make_grid(x, .value_range = {-1, 1}), "is for .normalize = true");
    CHECK_FAILS(gd_make_grid(x, .normalize = true, .value_range = {1, -1}), "{1, -1}");
    CHECK_FAILS(gd_make_grid(gd_cast(x, GD_U8), .normalize = true), "gd_cast(images, GD_F32)");
}

TEST_MAIN
