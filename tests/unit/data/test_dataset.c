/* test_dataset.c - datasets and transforms from functions, from records, and by name. */
#include <stdio.h>
#include <string.h>

#include "clean_test.h"
#include "gradus/gradus.h"
#include "test.h"

typedef struct squares {
    int64_t count;
    int destroyed;
} squares;

static int64_t count_squares(void *self) { return ((squares *)self)->count; }
static gd_tensors get_square(int64_t index, gd_random *random, void *self) {
    (void)self;
    if (index == 3) return gd_listed(gd_reshape(gd_ones(gd_dims(2)), gd_dims(3)));
    if (index == 4) return gd_listed((gd_tensor *)NULL);
    if (index == 5) return (gd_tensors){NULL, 0};
    return gd_listed(gd_scalar_of((double)(index * index), GD_F32),
                     gd_scalar_of(gd_random_uniform(random), GD_F64));
}
static void destroy_squares(void *self) { ((squares *)self)->destroyed++; }

CLEAN_TEST(a_dataset_is_two_functions) {
    squares s = {.count = 10};
    {
        GD_SCOPE;
        gd_dataset *d = gd_dataset_from(&s, .count = count_squares, .get = get_square,
                                        .destroy = destroy_squares, .name = "squares");
        CHECK(gd_dataset_count(d) == 10 && gd_dataset_count(NULL) == 0);
        gd_tensors sample = gd_dataset_get(d, 7);
        CHECK(sample.count == 2 && gd_item(sample.at[0]) == 49);
        /* its random numbers depend only on seed, epoch and index */
        const double x = gd_item(sample.at[1]);
        CHECK(gd_item(gd_dataset_get(d, 7).at[1]) == x);
        CHECK(gd_item(gd_dataset_get(d, 7, .epoch = 1).at[1]) != x);
        CHECK(gd_item(gd_dataset_get(d, 7, .seed = 1).at[1]) != x);
        CHECK(gd_item(gd_dataset_get(d, 8).at[1]) != x);
        char name[40];
        CHECK(strcmp(gd_dataset_sample_name(d, 7, name, sizeof name), "sample 7") == 0);
    }
    CHECK(s.destroyed == 1);
}

CLEAN_TEST(a_failing_sample_is_named) {
    squares s = {.count = 10};
    GD_SCOPE;
    gd_dataset *d =
        gd_dataset_from(&s, .count = count_squares, .get = get_square, .name = "squares");
    gd_tensors sample = gd_dataset_get(d, 3);
    CHECK(sample.count == GD_FAILED_COUNT && gd_tensor_is_error(sample.at[0]));
    CHECK(says("squares: sample 3: ") && says("reshape"));
    gd_clear_error();
    gd_dataset_get(d, 4);
    CHECK(says("sample 4: tensor 0 of the result is NULL"));
    gd_clear_error();
    gd_dataset_get(d, 5);
    CHECK(says("sample 5: the result has no tensors"));
    gd_clear_error();
    gd_dataset_get(d, 10);
    CHECK(says("sample 10 does not exist; squares has 10 samples"));
    gd_clear_error();
    s.count = -1;
    CHECK(gd_dataset_from(&s, .count = count_squares, .get = get_square,
                          .destroy = destroy_squares) == NULL &&
          s.destroyed == 0);
    gd_clear_error();
}

static gd_tensor *add_option(const void *options, gd_tensor *x, gd_random *random) {
    (void)random;
    return gd_add(x, gd_scalar(*(const double *)options));
}

static void *open_numbers(const void *options) {
    static int64_t n;
    n = *(const int64_t *)options;
    return &n;
}
static int64_t count_numbers(void *self) { return *(int64_t *)self; }
static gd_tensors get_number(int64_t index, gd_random *random, void *self) {
    (void)random, (void)self;
    return gd_listed(gd_scalar((double)index));
}

CLEAN_TEST(datasets_and_transforms_are_created_by_name) {
    static bool defined;
    if (!defined) {
        CHECK(gd_transform_define("plus\nAdds a number.\n  number float = 1\n  field int = 0\n",
                                  add_option) == GD_OK);
        CHECK(gd_dataset_define("numbers(n:int)\nThe numbers from 0.\n",
                                (gd_dataset_type){open_numbers, count_numbers, get_number, NULL}) ==
              GD_OK);
        defined = true;
    }
    GD_SCOPE;
    gd_dataset *d = gd_dataset_new("numbers", "n=5");
    CHECK(gd_dataset_count(d) == 5);
    gd_dataset *t = gd_dataset_transform(d, gd_transform_new("plus", "number=0.5"),
                                         gd_transform_scale(.factor = 2));
    CHECK(gd_item(gd_dataset_get(t, 3).at[0]) == 7);
    CHECK(gd_record_get("transform", "plus") && !gd_record_get("dataset", "plus"));
    CHECK(gd_dataset_new("numbers", "") == NULL && says("n"));
    gd_clear_error();
    CHECK(gd_dataset_new("number", "") == NULL && says("there is no dataset 'number'"));
    gd_clear_error();
    gd_dataset *wrong = gd_dataset_transform(d, gd_transform_new("plus", "field=1"));
    gd_dataset_get(wrong, 2);
    CHECK(says("sample 2: ") && says("field is 1, but the sample has 1 tensors"));
    gd_clear_error();
    gd_random r = gd_random_of(1, 2);
    CHECK(gd_item(gd_transform_apply(gd_transform_scale(.factor = 3), gd_scalar(2), &r)) == 6);
}

TEST_MAIN
