/* test_misuse.c - misuse of the API: NULL, invalid counts, sizes that overflow, scopes closed
 * twice. Each returns a status and a message, never crashes, and leaks nothing.
 */
#include <math.h>
#include <pthread.h>

#include "gradus/gradus.h"

#include "test.h"

static const gd_tensors no_list = {NULL, 0}, null_list = {NULL, 2}, negative_list = {NULL, -3};

/* Checks that the call fails with this status and a message that contains `part`. */
#define CHECK_FAILED(call, status, part)                                                     \
    do {                                                                                     \
        gd_clear_error();                                                                    \
        gd_tensor *failed_ = (call);                                                         \
        CHECK_SAYING(gd_tensor_is_error(failed_) && gd_error_status() == (status), "%s: %s", \
                     gd_status_name(gd_error_status()), gd_error_message());                 \
        CHECK_SAYING(strstr(gd_error_message(), part) != NULL, "%s", gd_error_message());    \
        gd_clear_error();                                                                    \
    } while (0)

#define CHECK_STATUS(call, status)                                                          \
    do {                                                                                    \
        gd_status got_ = (call);                                                            \
        CHECK_SAYING(got_ == (status), "%s: %s", gd_status_name(got_), gd_error_message()); \
        CHECK(gd_error_status() == (status));                                               \
        gd_clear_error();                                                                   \
    } while (0)

/* A failed list holds error tensors. */
static bool all_errors(gd_tensors list) {
    for (int64_t i = 0; i < list.count; i++)
        if (!gd_tensor_is_error(list.at[i])) return false;
    return list.count > 0;
}

static gd_tensor *some_tensor(void) {
    return gd_from_array(gd_dims(3), GD_F32, (const float[]){1, 2, 3});
}

/* --- tensors ---------------------------------------------------------------------------------- */

TEST(null_tensors_are_accepted_or_reported) {
    CHECK(gd_tensor_rank(NULL) == 0 && gd_tensor_numel(NULL) == 0 &&
          gd_tensor_dtype(NULL) == GD_DTYPE_NONE);
    CHECK(gd_tensor_device(NULL) == NULL && gd_tensor_dim(NULL, 0) == 0 &&
          gd_tensor_stride(NULL, -1) == 0);
    CHECK(!gd_tensor_is_contiguous(NULL) && !gd_tensor_is_error(NULL) &&
          !gd_tensor_is_symbol(NULL));
    CHECK(!gd_tensor_requires_grad(NULL) && !gd_tensor_is_leaf(NULL) &&
          gd_tensor_grad(NULL) == NULL);
    CHECK(gd_data(NULL) == NULL && gd_keep(NULL) == NULL && gd_retain(NULL) == NULL);
    CHECK(gd_tensor_shape(NULL).rank == 0);
    gd_release(NULL);
    gd_zero_grad(NULL);
    gd_keep_list(no_list);
    gd_release_list(no_list);
    CHECK(isnan(gd_item(NULL)) && gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_item_int(NULL) == 0 && gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK_STATUS(gd_copy_to(NULL, NULL, 0), GD_E_ARGUMENT);
    CHECK_STATUS(gd_copy_from(NULL, NULL, 0), GD_E_ARGUMENT);
}

TEST(invalid_shapes_fail) {
    GD_SCOPE;
    CHECK_FAILED(gd_empty(gd_shape_of(-1, NULL), GD_F32), GD_E_SHAPE, "dimensions");
    CHECK_FAILED(gd_empty(gd_shape_of(9, (const int64_t[9]){0}), GD_F32), GD_E_SHAPE, "dimensions");
    CHECK_FAILED(gd_empty(gd_shape_of(3, NULL), GD_F32), GD_E_SHAPE, "dimensions");
    CHECK_FAILED(gd_empty((gd_shape){{2, 3}, 0, 0}, GD_F32), GD_E_ARGUMENT, "gd_dims");
    CHECK_FAILED(gd_empty(gd_dims(2, -3), GD_F32), GD_E_SHAPE, "negative");
    CHECK_FAILED(gd_empty(gd_dims(INT64_MAX, 2), GD_F32), GD_E_OVERFLOW, "too large");
    CHECK_FAILED(gd_empty(gd_dims(INT64_MAX / 4 + 1), GD_F32), GD_E_OVERFLOW, "too large");
    CHECK_FAILED(gd_empty(gd_dims(0, INT64_MAX, INT64_MAX), GD_F32), GD_E_OVERFLOW, "too large");
    CHECK_FAILED(gd_empty(gd_dims(2), GD_DTYPE_NONE), GD_E_DTYPE, "element type");
    CHECK_FAILED(gd_empty(gd_dims(2), (gd_dtype)77), GD_E_DTYPE, "element type");
    CHECK_FAILED(gd_scalar_of(1, (gd_dtype)77), GD_E_DTYPE, "element type");
    CHECK_FAILED(gd_from_array(gd_dims(2), GD_F32, NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_full(gd_shape_of(3, NULL), 0), GD_E_ARGUMENT, "dims");
    CHECK_FAILED(gd_reshape(some_tensor(), gd_dims(INT64_MAX, INT64_MAX, 3)), GD_E_OVERFLOW,
                 "reshape");
    CHECK_FAILED(gd_reshape(some_tensor(), gd_dims(-1, -1)), GD_E_SHAPE, "reshape");
}

TEST(external_memory_must_cover_shape_and_strides) {
    GD_SCOPE;
    _Alignas(16) char data[64] = {0};
    CHECK_FAILED(gd_from_memory(gd_dims(2), NULL, GD_F32, NULL, NULL, NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_from_memory(gd_dims(2), NULL, GD_F32, data + 1, NULL, NULL), GD_E_ARGUMENT,
                 "multiple of 4");
    CHECK_FAILED(gd_from_memory(gd_dims(2), (const int64_t[]){-1}, GD_F32, data, NULL, NULL),
                 GD_E_ARGUMENT, "negative");
    CHECK_FAILED(gd_from_memory(gd_dims(3), (const int64_t[]){INT64_MAX}, GD_F32, data, NULL, NULL),
                 GD_E_OVERFLOW, "stride 0");
    CHECK_FAILED(gd_from_memory(gd_dims(2, 2), (const int64_t[]){INT64_MAX / 16, INT64_MAX / 8},
                                GD_F32, data, NULL, NULL),
                 GD_E_OVERFLOW, "stride 1");
    CHECK(!gd_tensor_is_error(
        gd_from_memory(gd_dims(1, 4), (const int64_t[]){-7, 2}, GD_F32, data, NULL, NULL)));
    CHECK(!gd_tensor_is_error(
        gd_from_memory(gd_dims(0, 4), (const int64_t[]){INT64_MAX, 1}, GD_F32, data, NULL, NULL)));
}

TEST(without_a_scope_a_failed_call_leaks_nothing) {
    int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes;
    CHECK_FAILED(gd_from_array(gd_dims(2), GD_F32, NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_from_memory(gd_dims(2), NULL, GD_F32, NULL, NULL, NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_add(NULL, NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_cat(null_list), GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_full(gd_dims(-2), 1), GD_E_SHAPE, "negative");
    gd_tensor *x = some_tensor(), *y = gd_empty(gd_dims(4), GD_F32);
    CHECK_FAILED(gd_mse_loss(x, y), GD_E_SHAPE, "mse_loss");
    CHECK_FAILED(gd_layer_norm(x, y, NULL), GD_E_SHAPE, "layer_norm");
    CHECK(gd_split(x, gd_dims(1, 1)).count == 2 && gd_error_status() == GD_E_SHAPE);
    gd_clear_error();
    gd_release(x);
    gd_release(y);
    CHECK(gd_live_objects() == objects && gd_memory_stats(NULL).live_bytes == bytes);
}

TEST(copying_with_the_wrong_size_fails) {
    GD_SCOPE;
    float data[4];
    CHECK_STATUS(gd_copy_to(some_tensor(), data, sizeof data), GD_E_SHAPE);
    CHECK_STATUS(gd_copy_to(some_tensor(), NULL, 12), GD_E_ARGUMENT);
    CHECK_STATUS(gd_copy_from(some_tensor(), data, SIZE_MAX), GD_E_SHAPE);
    CHECK_STATUS(gd_copy_from(some_tensor(), NULL, 12), GD_E_ARGUMENT);
    CHECK(isnan(gd_item(some_tensor())) && gd_error_status() == GD_E_SHAPE);
    gd_clear_error();
}

/* --- scopes ----------------------------------------------------------------------------------- */

static void *close_scope(void *scope) {
    gd_scope_close(scope);
    return NULL;
}

TEST(a_scope_is_closed_once_and_by_its_own_thread) {
    int64_t objects = gd_live_objects();
    GD_SCOPE;
    gd_tensor *outside = some_tensor();
    gd_scope *inner = gd_scope_open(), *same = inner;
    some_tensor();
    pthread_t thread;
    pthread_create(&thread, NULL, close_scope, &same);
    pthread_join(thread, NULL);
    CHECK(gd_live_objects() == objects + 2);
    gd_scope_close(&inner);
    gd_scope_close(&inner);
    CHECK(gd_live_objects() == objects + 1 && gd_item(gd_sum(outside)) == 6);
    gd_scope_close(NULL);
    inner = NULL;
    gd_scope_close(&inner);
    CHECK(gd_item(gd_sum(outside)) == 6);
}

TEST(keeping_an_object_twice_changes_nothing) {
    GD_SCOPE;
    gd_tensor *y;
    {
        GD_SCOPE;
        y = gd_keep(gd_keep(some_tensor()));
        gd_keep(&*y);
    }
    CHECK(gd_item(gd_sum(y)) == 6);
}

/* Scopes look for an object where it was put last. */
TEST(objects_of_several_scopes_are_kept_as_often_as_scopes_hold_them) {
    const int64_t before = gd_live_objects();
    {
        GD_SCOPE;
        gd_tensor *first = some_tensor(), *inner, *all[20];
        {
            GD_SCOPE;
            gd_keep(first); /* the inner scope does not hold it */
            inner = some_tensor();
            {
                GD_SCOPE;
                some_tensor();
                gd_keep(inner);
            }
            for (int i = 0; i < 20; i++) all[i] = some_tensor();
            for (int i = 0; i < 20; i += 2) gd_keep(all[i]);
            gd_keep(inner);
            for (int i = 18; i >= 0; i -= 2) gd_keep(all[i]); /* changes nothing */
        }
        CHECK(gd_live_objects() - before == 12);
        for (int i = 0; i < 20; i += 2) CHECK(gd_item(gd_sum(all[i])) == 6);
        CHECK(gd_item(gd_sum(first)) == 6 && gd_item(gd_sum(inner)) == 6);
        gd_keep(first); /* no scope encloses this one: the program owns it */
        gd_keep(first);
        gd_release(first);
    }
    CHECK(gd_live_objects() == before);
}

/* --- calls ------------------------------------------------------------------------------------ */

TEST(null_and_invalid_lists_fail) {
    GD_SCOPE;
    gd_tensor *x = some_tensor();
    CHECK_FAILED(gd_cat(no_list), GD_E_ARGUMENT, "cat");
    CHECK_FAILED(gd_cat(null_list), GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_cat(negative_list), GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_cat(gd_list(x, NULL)), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_einsum("i,i", null_list), GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_einsum(NULL, gd_list(x)), GD_E_ARGUMENT, "equation");
    CHECK_FAILED(gd_lstm(x, NULL, NULL, NULL, null_list).y, GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_lstm(x, NULL, NULL, NULL, negative_list).y, GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_lstm(x, NULL, NULL, NULL, ((gd_tensors){&x, 100000})).y, GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_call("add", null_list, NULL), GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_call("add", negative_list, NULL), GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_call("add", no_list, NULL), GD_E_ARGUMENT, "takes 2");
    CHECK_FAILED(gd_call("add", gd_list(x, x, x), NULL), GD_E_ARGUMENT, "takes 2");
    CHECK_FAILED(gd_call("batch_norm", ((gd_tensors){NULL, 1}), NULL), GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_call(NULL, gd_list(x), NULL), GD_E_ARGUMENT, "no op");
    CHECK_FAILED(gd_call("add", gd_list(x, x), "alpha"), GD_E_ARGUMENT, "add");
    CHECK(all_errors(gd_op_call(NULL, gd_list(x), NULL)) && gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
}

TEST(unknown_options_fail) {
    GD_SCOPE;
    const gd_op *sum = gd_op_find("sum");
    gd_attrs *attrs = gd_attrs_new(sum);
    CHECK(gd_attrs_new(NULL) == NULL && gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK_STATUS(gd_attrs_set_int(NULL, "axis", 1), GD_E_ARGUMENT);
    CHECK_STATUS(gd_attrs_set_int(attrs, NULL, 1), GD_E_ARGUMENT);
    CHECK_STATUS(gd_attrs_set_ints(attrs, "axis", 2, NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_attrs_set_ints(attrs, "axis", -2, NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_attrs_set_ints(attrs, "axis", 100, (const int64_t[]){1}), GD_E_ARGUMENT);
    CHECK_STATUS(gd_attrs_set_text(attrs, "axis", NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_attrs_set_text(attrs, "axis", "1,2,3,4,5,6,7,8,9"), GD_E_ARGUMENT);
    CHECK_STATUS(gd_attrs_set_text(attrs, "axis", "99999999999999999999"), GD_E_ARGUMENT);
    CHECK_STATUS(gd_attrs_parse(attrs, NULL), GD_OK);
    CHECK_STATUS(gd_attrs_parse(NULL, "axis=1"), GD_E_ARGUMENT);
    CHECK_STATUS(gd_attrs_parse(attrs, "axis=1 =2"), GD_E_ARGUMENT);
    gd_release(NULL);
    CHECK(all_errors(
        gd_op_call(gd_op_find("mean"), gd_list(some_tensor()), attrs))); /* options of another op */
    CHECK(gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK_FAILED(gd_conv2d(gd_zeros(gd_dims(1, 1, 4, 4)), gd_zeros(gd_dims(1, 1, 1, 1)), NULL,
                           .stride = INT64_MAX),
                 GD_E_ARGUMENT, "stride");
    CHECK_FAILED(gd_conv2d(gd_zeros(gd_dims(1, 1, 4, 4)), gd_zeros(gd_dims(1, 1, 1, 1)), NULL,
                           .dilation = -INT64_MAX),
                 GD_E_ARGUMENT, "dilation");
}

TEST(invalid_queries_of_the_op_table_fail) {
    char text[8] = "full";
    CHECK(gd_op_at(-1) == NULL && gd_op_at(gd_op_count()) == NULL && gd_op_find(NULL) == NULL);
    CHECK(strcmp(gd_op_name(NULL), "") == 0 && gd_op_input(NULL, 0) == NULL &&
          gd_op_attr_at(gd_op_at(0), -1) == NULL);
    CHECK(!gd_op_differentiable(NULL) && gd_op_flags(NULL) == 0);
    CHECK(strcmp(gd_op_kernels(NULL, "cpu", text, sizeof text), "") == 0);
    CHECK(strcmp(gd_op_kernels(gd_op_at(0), NULL, text, sizeof text), "") == 0);
    gd_op_kernels(gd_op_find("conv2d"), "cpu", text, 2);
    CHECK(strlen(text) <= 1);
    CHECK(gd_op_kernels(gd_op_find("conv2d"), "cpu", NULL, 0) == NULL);
    CHECK(!gd_op_kernel_at(NULL, "cpu", 0) && !gd_op_kernel_at(gd_op_find("conv2d"), NULL, 0));
    CHECK(!gd_op_kernel_at(gd_op_find("conv2d"), "cpu", -1));
    CHECK(!gd_op_kernel_at(gd_op_find("conv2d"), "abacus", 0));
    CHECK(strcmp(gd_kernel_words(NULL, text, sizeof text), "") == 0);
    gd_kernel_words(gd_op_kernel_at(gd_op_find("conv2d"), "cpu", 0), text, 2);
    CHECK(strlen(text) <= 1);
    CHECK(gd_kernel_words(NULL, NULL, 0) == NULL);
}

TEST(running_into_outputs_of_the_wrong_shape_or_dtype_fails) {
    GD_SCOPE;
    const gd_op *add = gd_op_find("add");
    gd_tensor *x = some_tensor(), *y = gd_zeros(gd_dims(3)), *matrix = gd_zeros(gd_dims(3, 2));
    CHECK_STATUS(gd_op_run_into(add, gd_list(x, x), NULL, gd_list(y)), GD_OK);
    CHECK(gd_item(gd_sum(y)) == 12);
    CHECK_STATUS(gd_op_run_into(NULL, gd_list(x, x), NULL, gd_list(y)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(add, null_list, NULL, gd_list(y)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(add, negative_list, NULL, gd_list(y)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(add, gd_list(x), NULL, gd_list(y)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(add, gd_list(x, NULL), NULL, gd_list(y)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(add, gd_list(x, x), NULL, no_list), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(add, gd_list(x, x), NULL, ((gd_tensors){NULL, 1})), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(add, gd_list(x, x), NULL, gd_list(y, y)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(add, gd_list(x, x), NULL, gd_list(NULL)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(add, gd_list(x, x), NULL, gd_list(matrix)), GD_E_SHAPE);
    CHECK_STATUS(gd_op_run_into(add, gd_list(x, x), NULL, gd_list(gd_select(matrix, 1, 0))),
                 GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(gd_op_find("add_"), gd_list(x, x), NULL, gd_list(y)),
                 GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(gd_op_find("split"), gd_list(x), NULL, gd_list(y)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_run_into(gd_op_find("nonzero"), gd_list(x), NULL, gd_list(y)),
                 GD_E_ARGUMENT);
    gd_tensor *four = gd_zeros(gd_dims(2, 3));
    CHECK_STATUS(gd_op_run_into(gd_op_find("batch_norm"), gd_list(four, NULL, NULL, y, y), NULL,
                                gd_list(four, y, y)),
                 GD_E_ARGUMENT); /* the op writes its inputs */
}

TEST(an_op_with_too_many_outputs_fails) {
    CHECK_STATUS(gd_op_define(NULL, NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_define("", NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_op_define("nine(x) -> a, b, c, d, e, f, g, h, i\nNine.\n",
                              &(gd_op_rules){.expand = (void (*)(gd_expansion *))abort}),
                 GD_E_ARGUMENT);
    CHECK_STATUS(
        gd_op_define(
            "nine(a, b, c, d, e, f, g, h, i) -> y  elementwise\nNine.\n  y = a+b+c+d+e+f+g+h+i\n",
            NULL),
        GD_E_ARGUMENT);
    CHECK_STATUS(gd_kernel_register(NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_kernel_register(&(gd_kernel){.op = "add"}), GD_E_ARGUMENT);
    CHECK(gd_op_find("nine") == NULL);
}

/* --- gradients -------------------------------------------------------------------------------- */

static gd_tensor *sum_of_squares(gd_tensors x, void *user) {
    (void)user;
    return gd_sum(gd_square(x.at[0]));
}
static gd_tensor *no_result(gd_tensors x, void *user) {
    (void)x;
    (void)user;
    return NULL;
}
static void forward_without_outputs(gd_context *c) { (void)c; }

TEST(gradients_without_outputs_or_inputs_fail) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(some_tensor()), *y = gd_sum(gd_square(x));
    CHECK_STATUS(gd_backward(NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_backward(some_tensor()), GD_E_STATE);
    CHECK_STATUS(gd_backward(gd_square(x)), GD_E_SHAPE);
    CHECK_STATUS(gd_backward(y, .gradient = some_tensor()), GD_E_SHAPE);
    CHECK(gd_tensor_grad(x) == NULL);
    CHECK(gd_grad(no_list, gd_list(x)).count == 1 && gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(all_errors(gd_grad(gd_list(y), null_list)) && gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(all_errors(gd_grad(gd_list(y), negative_list)) && gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK_FAILED(gd_grad(null_list, gd_list(x)).at[0], GD_E_ARGUMENT, "gd_grad");
    CHECK_FAILED(gd_grad(gd_list(NULL), gd_list(x)).at[0], GD_E_ARGUMENT, "gd_grad");
    CHECK_FAILED(gd_grad(gd_list(y), gd_list(NULL)).at[0], GD_E_STATE, "input 0");
    CHECK_FAILED(gd_grad(gd_list(y), gd_list(x), .gradients = null_list).at[0], GD_E_ARGUMENT,
                 "gradients");
    CHECK_STATUS(gd_set_requires_grad(NULL, true), GD_E_ARGUMENT);
    CHECK_STATUS(gd_set_requires_grad(gd_scalar_int(1), true), GD_E_DTYPE);
    CHECK_STATUS(gd_tensor_hook(NULL, NULL, NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_tensor_hook(x, NULL, NULL), GD_E_ARGUMENT);
    CHECK_FAILED(gd_detach(NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_requires_grad(NULL), GD_E_ARGUMENT, "no tensor");
    CHECK_STATUS(gd_backward(y), GD_OK); /* none of these failures had an effect */
    CHECK(gd_item(gd_sum(gd_tensor_grad(x))) == 12);
}

TEST(a_gradient_must_have_the_shape_of_its_tensor) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(some_tensor());
    CHECK_STATUS(gd_set_grad(NULL, x), GD_E_ARGUMENT);
    CHECK_STATUS(gd_set_grad(x, gd_zeros(gd_dims(4))), GD_E_SHAPE);
    CHECK_STATUS(gd_set_grad(x, gd_zeros(gd_dims(3), .dtype = GD_I64)), GD_E_DTYPE);
    CHECK_STATUS(gd_set_grad(x, x), GD_E_ARGUMENT);
    CHECK_STATUS(gd_set_grad(x, gd_zeros(gd_dims(3))), GD_OK);
    CHECK_STATUS(gd_set_grad(x, gd_tensor_grad(x)), GD_OK);
    CHECK_STATUS(gd_set_grad(x, NULL), GD_OK);
}

TEST(function_transforms_with_invalid_functions_fail) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(some_tensor());
    gd_function function = {.name = "nothing",
                            .n_out = 1,
                            .forward = forward_without_outputs,
                            .backward = forward_without_outputs};
    CHECK_FAILED(gd_recompute(NULL, gd_list(x), NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_recompute(sum_of_squares, null_list, NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_recompute(sum_of_squares, negative_list, NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_recompute(no_result, gd_list(x), NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_jvp(NULL, gd_list(x), gd_list(x), NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_jvp(sum_of_squares, null_list, null_list, NULL), GD_E_ARGUMENT, "inputs");
    CHECK_FAILED(gd_jvp(sum_of_squares, gd_list(x), ((gd_tensors){NULL, 1}), NULL), GD_E_ARGUMENT,
                 "tangent");
    CHECK_FAILED(gd_jvp(no_result, gd_list(x), gd_list(x), NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_jacobian(NULL, gd_list(x), 0, NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_jacobian(sum_of_squares, gd_list(x), 1, NULL), GD_E_INDEX, "input 1");
    CHECK_FAILED(gd_jacobian(sum_of_squares, gd_list(x), -1, NULL), GD_E_INDEX, "input -1");
    CHECK(gd_hvp(NULL, gd_list(x), gd_list(x), NULL).count == 1 &&
          gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK_FAILED(gd_hvp(sum_of_squares, gd_list(x), ((gd_tensors){NULL, 1}), NULL).at[0],
                 GD_E_ARGUMENT, "vector");
    gd_hvp(sum_of_squares, negative_list, negative_list, NULL);
    CHECK(gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK_STATUS(gd_gradcheck(NULL, gd_list(x), NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_gradcheck(sum_of_squares, null_list, NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_gradcheck(sum_of_squares, negative_list, NULL), GD_E_ARGUMENT);
    CHECK(gd_tensor_is_error(gd_apply(NULL, gd_list(x), NULL).at[0]) &&
          gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK_FAILED(gd_apply(&function, null_list, NULL).at[0], GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_apply(&function, negative_list, NULL).at[0], GD_E_ARGUMENT, "list");
    CHECK_FAILED(gd_apply(&function, gd_list(x), NULL).at[0], GD_E_STATE, "output 0");
    gd_grad_mode_end(NULL);
}

/* --- devices, threads, files ------------------------------------------------------------------ */

TEST(invalid_devices_thread_counts_and_streams_fail) {
    GD_SCOPE;
    gd_tensor *x = some_tensor();
    CHECK(gd_device_get(NULL) == NULL && gd_device_get("") == NULL &&
          gd_device_get("cpu:7") == NULL);
    CHECK(strcmp(gd_device_name(NULL), "") == 0);
    CHECK_FAILED(gd_to_device(NULL, gd_device_get("cpu")), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_to_device(x, NULL), GD_E_ARGUMENT, "NULL");
    CHECK(gd_synchronize(NULL) == GD_OK);
    gd_memory_trim(NULL);
    gd_memory_reset_peak(NULL);
    CHECK_STATUS(gd_add_library_folder(NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_add_library_folder(""), GD_E_ARGUMENT);
    gd_set_default_device(NULL);
    CHECK(gd_default_device() == gd_device_get("cpu"));
    CHECK_STATUS(gd_set_default_device("cpu"), GD_OK);
    CHECK_STATUS(gd_set_default_device((const char *)"cpu"), GD_OK);
    CHECK_STATUS(gd_set_default_device("abacus"), GD_E_DEVICE);
    CHECK(gd_default_device() == gd_device_get("cpu"));
    CHECK(gd_to_device(x, "cpu") == x);
    CHECK_FAILED(gd_to_device(x, "abacus"), GD_E_DEVICE, "there is no device 'abacus'");
    CHECK_STATUS(gd_set_num_threads(1000000), GD_E_ARGUMENT);
    CHECK_STATUS(gd_set_num_threads(-5), GD_OK);
    CHECK_STATUS(gd_fprint_with(NULL, x, NULL), GD_E_ARGUMENT);
    CHECK(gd_to_text(x, NULL, 100) > 0 && gd_to_text(NULL, NULL, 0) > 0);
    CHECK_STATUS(gd_profiler_table(NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_profiler_save_trace(NULL), GD_E_ARGUMENT);
    CHECK(!gd_profiler_row(-1, NULL) && !gd_profiler_row(INT64_MAX, NULL));
    gd_profile_span_end(NULL);
    gd_set_log(NULL, NULL);
}

TEST(file_calls_without_a_path_fail) {
    GD_SCOPE;
    gd_tensor *x = some_tensor();
    CHECK_STATUS(gd_save_npy(NULL, x), GD_E_ARGUMENT);
    CHECK_STATUS(gd_save_npy("misuse.npy", NULL), GD_E_ARGUMENT);
    CHECK_STATUS(gd_save_npz(NULL, gd_names("x"), gd_list(x)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_save_npz("misuse.npz", NULL, gd_list(x)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_save_npz("misuse.npz", gd_names("x", "x"), null_list), GD_E_ARGUMENT);
    CHECK_STATUS(gd_save_npz("misuse.npz", gd_names("x"), negative_list), GD_E_ARGUMENT);
    CHECK_STATUS(gd_save_npz("misuse.npz", gd_names("x", NULL), gd_list(x, x)), GD_E_ARGUMENT);
    CHECK_STATUS(gd_save_npz("misuse.npz", gd_names("x"), gd_list(NULL)), GD_E_ARGUMENT);
    CHECK_FAILED(gd_load_npy(NULL), GD_E_ARGUMENT, "NULL");
    CHECK_FAILED(gd_load_npz(NULL, "x"), GD_E_ARGUMENT, "NULL");
    CHECK(gd_npz_open(NULL) == NULL && gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_npz_count(NULL) == 0 && gd_npz_name(NULL, 0) == NULL && !gd_npz_has(NULL, "x"));
    CHECK(gd_tensor_is_error(gd_npz_load(NULL, "x")) && all_errors(gd_npz_load_all(NULL)));
    gd_release(NULL);
    gd_clear_error();
    CHECK(fopen("misuse.npz", "r") == NULL && fopen("misuse.npy", "r") == NULL);
}

TEST_MAIN
