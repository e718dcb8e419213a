/* test_core.c - scopes, errors, dtypes, shapes, copies of data, options, and user-defined ops. */
#include <math.h>
#include <pthread.h>

#include "gradus/gradus.h"
#include "clean_test.h"

static const float six[6] = {1, 2, 3, 4, 5, 6};
static gd_tensor *matrix(void) { return gd_from_array(gd_dims(2, 3), GD_F32, six); }
/* --- scopes ----------------------------------------------------------------------------------- */

TEST(a_scope_frees_its_tensors) {
    int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes;
    {
        GD_SCOPE;
        gd_tensor *x = matrix();
        for (int i = 0; i < 100; i++) x = gd_add(x, x);
        CHECK(gd_live_objects() == objects + 101);
    }
    CHECK(gd_live_objects() == objects);
    CHECK(gd_memory_stats(NULL).live_bytes == bytes);
}

static int leave_scope(int way) {
    for (int i = 0; i < 3; i++) {
        GD_SCOPE;
        matrix();
        if (way == 0 && i == 1) break;
        if (way == 1) continue;
        if (way == 2 && i == 1) return 1;
        if (way == 3 && i == 1) goto out;
    }
out:
    return 0;
}

TEST(a_scope_is_closed_by_break_continue_return_and_goto) {
    int64_t objects = gd_live_objects();
    for (int way = 0; way < 4; way++) {
        leave_scope(way);
        CHECK(gd_live_objects() == objects);
    }
}

static gd_tensor *doubled(gd_tensor *x) {
    GD_SCOPE;
    gd_tensor *y = gd_add(x, x);
    gd_add(y, y); /* not kept: freed at the end of the scope */
    return gd_keep(y);
}

TEST(keep_moves_a_result_to_the_outer_scope) {
    int64_t objects = gd_live_objects();
    {
        GD_SCOPE;
        gd_tensor *y = doubled(matrix());
        CHECK(gd_live_objects() == objects + 2);
        CHECK(((float *)gd_data(y))[5] == 12);
        {
            GD_SCOPE;
            {
                GD_SCOPE;
                y = gd_keep(doubled(y));
            }
            y = gd_keep(y);
        }
        CHECK(((float *)gd_data(y))[5] == 24);
    }
    CHECK(gd_live_objects() == objects);
}

static gd_tensor *owned; /* as another language holds it */
static void drop_owned(void) {
    gd_release(owned);
    owned = NULL;
}

TEST(hold_gives_a_reference_to_the_innermost_scope) {
    int64_t objects = gd_live_objects();
    {
        GD_SCOPE;
        owned = gd_retain(matrix());
    }
    {
        GD_SCOPE;
        gd_tensor *x = gd_hold(owned);
        drop_owned();
        CHECK(x && ((float *)gd_data(x))[5] == 6 && gd_hold(NULL) == NULL);
    }
    CHECK(gd_live_objects() == objects);
}

TEST(keep_without_an_outer_scope_makes_the_caller_the_owner) {
    int64_t objects = gd_live_objects();
    gd_tensor *x = matrix(), *y;
    {
        GD_SCOPE;
        y = gd_keep(gd_add(x, x));
    }
    CHECK(gd_live_objects() == objects + 2);
    gd_release(x);
    gd_release(y);
    CHECK(gd_live_objects() == objects);
}

TEST(without_a_scope_the_caller_owns_results_lists_and_options) {
    int64_t objects = gd_live_objects();
    gd_tensor *x = matrix(), *y = gd_call("add", gd_list(x, x), NULL);
    gd_tensors parts = gd_split(x, gd_dims(1), .axis = 1);
    CHECK(parts.count == 3);
    const gd_op *op = gd_op_find("sum");
    gd_attrs *attrs = gd_attrs_new(op);
    gd_attrs_set_int(attrs, "axis", 1);
    gd_tensors sums = gd_op_call(op, gd_list(x), attrs);
    CHECK(sums.count == 1 && gd_tensor_numel(sums.at[0]) == 2);
    gd_release_list(sums);
    gd_release(attrs);
    gd_release_list(parts);
    gd_release(x);
    gd_release(y);
    CHECK(gd_live_objects() == objects);
}

TEST(keep_list_keeps_the_list_and_its_tensors) {
    int64_t objects = gd_live_objects();
    {
        GD_SCOPE;
        gd_tensors parts;
        {
            GD_SCOPE;
            parts = gd_keep_list(gd_split(matrix(), gd_dims(1)));
        }
        CHECK(parts.count == 2 && ((float *)gd_data(parts.at[1]))[0] == 4);
    }
    CHECK(gd_live_objects() == objects);
}

TEST(retain_outlives_the_scope) {
    gd_tensor *x;
    {
        GD_SCOPE;
        x = gd_retain(matrix());
    }
    CHECK(((float *)gd_data(x))[2] == 3);
    gd_release(x);
    gd_release(NULL);
}

TEST(scopes_nest_deeper_than_their_initial_stack) {
    int64_t objects = gd_live_objects();
    gd_scope *scopes[200];
    for (int i = 0; i < 200; i++) {
        scopes[i] = gd_scope_open();
        matrix();
    }
    CHECK(gd_live_objects() == objects + 200);
    for (int i = 200; i-- > 0;) gd_scope_close(&scopes[i]);
    CHECK(gd_live_objects() == objects);
}

TEST(a_view_keeps_the_memory_of_its_base) {
    gd_tensor *view;
    {
        GD_SCOPE;
        view = gd_keep(gd_narrow(matrix(), 0, 1, 1));
    }
    CHECK(((float *)gd_data(view))[0] == 4);
    gd_release(view);
}

/* --- errors ----------------------------------------------------------------------------------- */

TEST(a_failed_op_is_recorded_with_op_shapes_and_source_line) {
    GD_SCOPE;
    float five[5] = {0};
    gd_tensor *y = gd_add(matrix(), gd_from_array(gd_dims(5), GD_F32, five));
    CHECK(gd_tensor_is_error(y) && gd_failed() && gd_error_status() == GD_E_SHAPE);
    CHECK_SAYING(says("add") && says("[2,3]") && says("[5]") && says("test_core.c:"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(!gd_failed() && !*gd_error_message());
}

TEST(error_tensors_pass_through_and_the_first_failure_stays) {
    GD_SCOPE;
    gd_tensor *bad = gd_reshape(matrix(), gd_dims(7));
    gd_tensor *y = gd_exp(gd_add(gd_mul(bad, bad), matrix()));
    CHECK(gd_tensor_is_error(y) && says("reshape"));
    gd_narrow(matrix(), 5, 0, 1); /* a second failure */
    CHECK(says("reshape") && gd_error_status() == GD_E_SHAPE);
    gd_clear_error();
    CHECK(gd_tensor_rank(y) == 0 && gd_tensor_dtype(y) == GD_DTYPE_NONE && gd_data(y) == NULL);
    gd_clear_error();
    y = gd_add(y, y); /* cleared, but y is still an error tensor */
    CHECK(gd_tensor_is_error(y));
    gd_clear_error();
}

TEST(a_failed_status_call_is_recorded) {
    GD_SCOPE;
    float out[5];
    CHECK(gd_copy_to(matrix(), out, sizeof out) == GD_E_SHAPE);
    CHECK(gd_failed() && gd_error_status() == GD_E_SHAPE && says("gd_copy_to") &&
          says("test_core.c:"));
    CHECK(gd_copy_to(NULL, out, sizeof out) == GD_E_ARGUMENT); /* the first failure stays */
    CHECK(gd_error_status() == GD_E_SHAPE);
    gd_clear_error();
}

TEST(no_state_changes_while_a_failure_is_recorded) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(matrix()), *loss = gd_sum(gd_square(w));
    gd_reshape(w, gd_dims(7));
    CHECK(gd_backward(loss) == GD_E_SHAPE);
    CHECK(gd_tensor_grad(w) == NULL);
    gd_clear_error();
    CHECK(gd_backward(loss) == GD_OK && gd_tensor_grad(w) != NULL);
}

TEST(failed_reads_explain_the_reason) {
    GD_SCOPE;
    CHECK(isnan(gd_item(matrix())) && gd_failed() && says("6 elements"));
    gd_clear_error();
    CHECK(gd_item_int(NULL) == 0 && gd_failed());
    gd_clear_error();
    CHECK(gd_call("no_such_op", gd_list(matrix()), NULL) && says("no_such_op"));
    gd_clear_error();
    CHECK(gd_device_get("abacus:0") == NULL && says("abacus"));
    gd_clear_error();
}

TEST(every_status_has_a_name) {
    for (int s = GD_OK; s <= GD_E_FORMAT; s++)
        CHECK(strncmp(gd_status_name((gd_status)s), s ? "GD_E_" : "GD_OK", 5) == 0);
}

static void *fail_in_thread(void *arg) {
    (void)arg;
    GD_SCOPE;
    gd_reshape(matrix(), gd_dims(7));
    return gd_failed() ? (void *)1 : NULL;
}

TEST(failures_belong_to_their_thread) {
    pthread_t thread;
    void *failed;
    pthread_create(&thread, NULL, fail_in_thread, NULL);
    pthread_join(thread, &failed);
    CHECK(failed && !gd_failed());
}

/* --- dtypes ----------------------------------------------------------------------------------- */

TEST(promotion_follows_the_table_in_dtype_h) {
    static const char *const table[9][9] = {
        {"bool", "u8", "i8", "i32", "i64", "f16", "bf16", "f32", "f64"},
        {"u8", "u8", "i32", "i32", "i64", "f16", "bf16", "f32", "f64"},
        {"i8", "i32", "i8", "i32", "i64", "f16", "bf16", "f32", "f64"},
        {"i32", "i32", "i32", "i32", "i64", "f16", "bf16", "f32", "f64"},
        {"i64", "i64", "i64", "i64", "i64", "f16", "bf16", "f32", "f64"},
        {"f16", "f16", "f16", "f16", "f16", "f16", "f32", "f32", "f64"},
        {"bf16", "bf16", "bf16", "bf16", "bf16", "f32", "bf16", "f32", "f64"},
        {"f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "f64"},
        {"f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64"}};
    static const char *const names[] = {"bool", "u8",   "i8",  "i32", "i64",
                                        "f16",  "bf16", "f32", "f64"};
    for (int i = 0; i < 9; i++)
        for (int k = 0; k < 9; k++) {
            gd_dtype a = gd_dtype_from_name(names[i]), b = gd_dtype_from_name(names[k]);
            CHECK_SAYING(gd_promote(a, b) == gd_dtype_from_name(table[i][k]), "%s with %s gives %s",
                         names[i], names[k], gd_dtype_name(gd_promote(a, b)));
            GD_SCOPE; /* the same in an op */
            gd_tensor *y =
                gd_add(gd_full(gd_dims(2), 1, .dtype = a), gd_full(gd_dims(2), 1, .dtype = b));
            CHECK(gd_tensor_dtype(y) == gd_promote(a, b));
        }
}

TEST(a_scalar_tensor_does_not_widen_the_dtype) {
    GD_SCOPE;
    gd_tensor *half = gd_full(gd_dims(2), 1, .dtype = GD_F16),
              *integer = gd_full(gd_dims(2), 1, .dtype = GD_I32);
    CHECK(gd_tensor_dtype(gd_mul(half, gd_scalar(2))) == GD_F16);
    CHECK(gd_tensor_dtype(gd_mul(half, gd_scalar_of(2, GD_F64))) == GD_F16);
    CHECK(gd_tensor_dtype(gd_mul(integer, gd_scalar_int(2))) == GD_I32);
    CHECK(gd_tensor_dtype(gd_mul(integer, gd_scalar(2))) == GD_F32);
    CHECK(gd_tensor_dtype(gd_add(gd_scalar(1), gd_scalar_of(1, GD_F64))) == GD_F64);
}

TEST(dtypes_have_names_and_sizes) {
    for (int d = 1; d < GD_DTYPE_COUNT; d++) {
        CHECK(gd_dtype_from_name(gd_dtype_name((gd_dtype)d)) == (gd_dtype)d);
        CHECK(gd_dtype_size((gd_dtype)d) > 0);
    }
    CHECK(gd_dtype_from_name("f31") == GD_DTYPE_NONE && gd_dtype_size(GD_DTYPE_NONE) == 0);
    CHECK(gd_dtype_is_float(GD_BF16) && !gd_dtype_is_float(GD_I8) && gd_dtype_is_int(GD_U8) &&
          !gd_dtype_is_int(GD_BOOL));
}

/* --- shapes and views ------------------------------------------------------------------------- */

TEST(shape_queries_work_for_any_tensor) {
    GD_SCOPE;
    gd_tensor *x = matrix();
    CHECK(gd_tensor_rank(x) == 2 && gd_tensor_numel(x) == 6 && gd_tensor_dim(x, -1) == 3 &&
          gd_tensor_dim(x, 0) == 2);
    CHECK(gd_tensor_stride(x, 0) == 3 && gd_tensor_stride(x, -1) == 1 && gd_tensor_dim(x, 2) == 0 &&
          gd_tensor_dim(x, -3) == 0);
    CHECK(gd_tensor_rank(NULL) == 0 && gd_tensor_numel(NULL) == 0 &&
          !gd_tensor_is_contiguous(NULL) && !gd_tensor_is_error(NULL));
    gd_shape s = gd_dims();
    CHECK(s.rank == 0 && gd_tensor_rank(gd_full(s, 3.0)) == 0 && gd_item(gd_full(s, 3.0)) == 3);
    CHECK(gd_tensor_numel(gd_full(gd_dims(3, 0, 2), 1)) == 0);
    CHECK(strcmp(gd_device_name(gd_tensor_device(x)), "cpu") == 0);
}

TEST(invalid_sizes_fail) {
    GD_SCOPE;
    const gd_shape wrong[] = {gd_dims(-1, 2), gd_dims(INT64_MAX, 2), gd_dims(INT64_MAX / 2, 1),
                              gd_dims(1ll << 40, 1ll << 40)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(gd_tensor_is_error(gd_empty(wrong[i], GD_F32)));
        gd_clear_error();
    }
    gd_shape nine = {.rank = 9, .form = 1};
    CHECK(gd_tensor_is_error(gd_empty(nine, GD_F32)));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_empty(gd_dims(2), GD_DTYPE_NONE)));
    gd_clear_error();
}

TEST(views_share_memory) {
    GD_SCOPE;
    gd_tensor *x = matrix(), *t = gd_permute(x, gd_dims(1, 0)), *row = gd_narrow(x, 0, 1, 1),
              *flat = gd_reshape(x, gd_dims(-1));
    CHECK(gd_data(t) == gd_data(x) && !gd_tensor_is_contiguous(t) && gd_tensor_dim(t, 0) == 3);
    CHECK(gd_data(flat) == gd_data(x) && (float *)gd_data(row) == (float *)gd_data(x) + 3);
    ((float *)gd_data(x))[3] = 40;
    float out[6];
    CHECK(gd_copy_to(t, out, sizeof out) == GD_OK && out[1] == 40 && out[2] == 2);
    CHECK(gd_data(gd_reshape(t, gd_dims(6))) != gd_data(x)); /* cannot be a view */
}

TEST(copy_to_and_from_follow_strides) {
    GD_SCOPE;
    gd_tensor *x = matrix(), *t = gd_permute(x, gd_dims(1, 0));
    float in[6] = {10, 20, 30, 40, 50, 60}, out[6];
    CHECK(gd_copy_from(t, in, sizeof in) == GD_OK);
    CHECK(gd_copy_to(t, out, sizeof out) == GD_OK && memcmp(in, out, sizeof in) == 0);
    CHECK(gd_copy_to(x, out, sizeof out) == GD_OK && out[1] == 30 && out[3] == 20);
    CHECK(gd_copy_from(t, in, 4) == GD_E_SHAPE &&
          gd_copy_from(t, NULL, sizeof in) == GD_E_ARGUMENT);
    gd_clear_error();
    gd_tensor *nothing = gd_full(gd_dims(0), 1);
    CHECK(gd_copy_to(nothing, NULL, 0) == GD_OK && gd_copy_from(nothing, NULL, 0) == GD_OK);
    gd_clear_error();
}

static int deleted;
static void count_delete(void *data, void *user) {
    (void)data;
    deleted += *(int *)user;
}

TEST(user_memory_is_used_in_place_and_deleted_once) {
    float memory[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    int one = 1;
    int64_t strides[] = {1, 4};
    deleted = 0;
    gd_tensor *kept;
    {
        GD_SCOPE;
        gd_tensor *x = gd_from_memory(gd_dims(2, 3), strides, GD_F32, memory, count_delete, &one);
        CHECK(gd_data(x) == memory);
        gd_tensor *view = gd_permute(x, gd_dims(1, 0));
        CHECK(gd_item(gd_sum(view)) == 0 + 4 + 8 + 1 + 5 + 9);
        kept = gd_retain(view);
    }
    CHECK(deleted == 0);
    gd_release(kept);
    CHECK(deleted == 1);
    {
        GD_SCOPE;
        CHECK(
            gd_tensor_is_error(gd_from_memory(gd_dims(2), NULL, GD_F32, NULL, count_delete, &one)));
        strides[0] = -1;
        CHECK(gd_tensor_is_error(
            gd_from_memory(gd_dims(2, 3), strides, GD_F32, memory, count_delete, &one)));
        gd_clear_error();
        gd_from_memory(gd_dims(2), NULL, GD_F32, memory, NULL, NULL);
    }
    CHECK(deleted == 1); /* after a failed call the caller still owns the memory */
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *compute_in_thread(void *arg) {
    for (int i = 0; i < 50; i++) {
        GD_SCOPE;
        gd_tensor *x = gd_full(gd_dims(300, 40), 0.5),
                  *w = gd_requires_grad(gd_full(gd_dims(40), 2));
        gd_tensor *loss = gd_sum(gd_mul(gd_add(x, *(gd_tensor **)arg), w));
        if (gd_backward(loss) != GD_OK || gd_item(loss) != 300 * 40 * 3.0f) return (void *)1;
        if (((float *)gd_data(gd_tensor_grad(w)))[7] != 300 * 1.5f) return (void *)1;
    }
    return NULL;
}

TEST(threads_may_compute_concurrently_and_share_a_tensor) {
    int64_t objects = gd_live_objects();
    pthread_t threads[4];
    gd_tensor *shared = gd_full(gd_dims(), 1.0);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, compute_in_thread, &shared);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        CHECK(!failed);
    }
    gd_release(shared);
    CHECK(gd_live_objects() == objects);
}

TEST(the_number_of_threads_can_be_set) {
    CHECK(gd_set_num_threads(3) == GD_OK && gd_num_threads() == 3);
    CHECK(gd_set_num_threads(0) == GD_OK && gd_num_threads() >= 1);
}

/* --- options ---------------------------------------------------------------------------------- */

TEST(options_are_given_by_name_and_others_have_defaults) {
    GD_SCOPE;
    gd_tensor *x = gd_full(gd_dims(1, 1, 8, 8), 1);
    gd_shape s = gd_tensor_shape(gd_avg_pool2d(x, .kernel = 2));
    CHECK(s.at[2] == 4 && s.at[3] == 4); /* the default stride is the kernel size */
    s = gd_tensor_shape(gd_avg_pool2d(x, .kernel = 2, .stride = 1));
    CHECK(s.at[2] == 7 && s.at[3] == 7);
    s = gd_tensor_shape(gd_avg_pool2d(x, .kernel = 2, .stride = {2, 1}));
    CHECK(s.at[2] == 4 && s.at[3] == 7);
    s = gd_tensor_shape(gd_avg_pool2d(x, .stride = {4, 3}, .kernel = {2, 3}, .padding = 1));
    CHECK(s.at[2] == 3 && s.at[3] == 3);
    /* 0 is not the same as unset */
    CHECK(gd_tensor_numel(gd_sum(matrix(), .axis = 0)) == 3 &&
          gd_tensor_numel(gd_sum(matrix(), .axis = -1)) == 2);
    CHECK(gd_tensor_numel(gd_sum(matrix())) == 1 &&
          gd_tensor_rank(gd_sum(matrix(), .axis = gd_dims(0, 1), .keepdim = true)) == 2);
    CHECK(gd_item(gd_clamp(gd_scalar(5), .max = 0)) == 0 && gd_item(gd_clamp(gd_scalar(5))) == 5);
    CHECK(!gd_failed());
}

TEST(a_list_in_braces_without_its_length_fails) {
    GD_SCOPE;
    CHECK(gd_tensor_is_error(gd_sum(matrix(), .axis = {0, 1})) && says("gd_dims"));
    gd_clear_error();
}

TEST(options_structs_have_defaults_without_macros) {
    GD_SCOPE;
    gd_sum_options o = gd_sum_defaults();
    o.keepdim = true;
    CHECK(gd_tensor_rank(gd_sum_at(GD_HERE, matrix(), &o)) == 2);
    gd_leaky_relu_options l = gd_leaky_relu_defaults();
    CHECK(l.slope == 0.01);
}

TEST(options_can_be_given_as_text) {
    GD_SCOPE;
    gd_attrs *attrs = gd_attrs_new(gd_op_find("sum"));
    CHECK(gd_attrs_parse(attrs, "axis=0,1 keepdim=true dtype=f64") == GD_OK);
    gd_tensors y = gd_op_call(gd_op_find("sum"), gd_list(matrix()), attrs);
    CHECK(y.count == 1 && gd_tensor_dtype(y.at[0]) == GD_F64 && gd_tensor_rank(y.at[0]) == 2);
    CHECK(gd_attrs_set_text(attrs, "keepdim", "perhaps") == GD_E_ARGUMENT && says("sum") &&
          says("keepdim"));
    gd_clear_error();
    CHECK(gd_attrs_set_text(attrs, "axes", "1") == GD_E_ARGUMENT && says("axis"));
    gd_clear_error(); /* lists the known options */
    CHECK(gd_op_call(gd_op_find("exp"), gd_list(matrix()), attrs).at[0] != NULL && gd_failed());
    gd_clear_error();
}

TEST(words_are_hashes_of_their_text) {
    CHECK(gd_word_of("same") == GD_SAME && gd_word_of("valid") == GD_VALID &&
          gd_word_of("same") != gd_word_of("valid"));
    GD_SCOPE;
    gd_tensor *x = gd_full(gd_dims(1, 1, 4, 4), 1), *w = gd_full(gd_dims(1, 1, 3, 3), 1);
    gd_tensor *y = gd_conv2d(x, w, NULL, .pad_mode = GD_SAME);
    CHECK(gd_tensor_dim(y, 2) == 4);
    y = gd_conv2d(x, w, NULL, .pad_mode = gd_word_of("sideways"));
    CHECK(gd_tensor_is_error(y) && says("pad_mode") && says("same"));
    gd_clear_error();
}

/* --- the op table ----------------------------------------------------------------------------- */

TEST(the_op_table_can_be_read) {
    int n = gd_op_count();
    for (int i = 1; i < n; i++)
        CHECK(strcmp(gd_op_name(gd_op_at(i - 1)), gd_op_name(gd_op_at(i))) < 0);
    CHECK(gd_op_at(-1) == NULL && gd_op_at(n) == NULL && gd_op_find(NULL) == NULL &&
          gd_op_find("nope") == NULL);
    const gd_op *sum = gd_op_find("sum");
    CHECK(strcmp(gd_op_onnx_name(sum), "ReduceSum") == 0 && gd_op_input_count(sum) == 1 &&
          gd_op_differentiable(sum));
    CHECK(strcmp(gd_op_attr_at(sum, 0)->name, "axis") == 0 && gd_op_attr_at(sum, 99) == NULL &&
          *gd_op_doc(sum));
    char text[200];
    CHECK(strstr(gd_op_kernels(sum, "cpu", text, sizeof text), "reference") != NULL);
}

/* Names, ranks, the words of blocks, and a sentence. */
TEST(kernels_are_listed_in_the_order_in_which_they_are_tried) {
    char text[200];
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        const gd_kernel *k, *before = NULL;
        const bool own = strcmp(gd_op_runs_as(op, "cpu"), "kernel") == 0;
        for (int n = 0; (k = gd_op_kernel_at(op, "cpu", n)); n++, before = k) {
            CHECK_SAYING(k->doc && *k->doc, "%s.%s has no text", gd_op_name(op), k->variant);
            CHECK_SAYING(!before || strcmp(before->op, k->op) != 0 || before->rank >= k->rank,
                         "%s.%s comes too late", gd_op_name(op), k->variant);
        }
        CHECK_SAYING(before || !own, "%s has no kernel", gd_op_name(op));
    }
    const gd_op *linear = gd_op_find("linear");
    const gd_kernel *packed = gd_op_kernel_at(linear, "cpu", 0),
                    *reference = gd_op_kernel_at(linear, "cpu", 1);
    CHECK(packed && strcmp(packed->variant, "packed") == 0 && packed->rank == 10);
    CHECK(packed->dtypes == (1u << GD_F16 | 1u << GD_BF16 | 1u << GD_F32 | 1u << GD_F64));
    CHECK(strcmp(gd_kernel_words(packed, text, sizeof text), "contiguous") == 0);
    CHECK(reference && reference->rank == 0 && !gd_op_kernel_at(linear, "cpu", 2));
    CHECK(strcmp(gd_kernel_words(reference, text, sizeof text), "double") == 0);
}

TEST(a_program_defines_an_elementwise_op_by_its_expression) {
    GD_SCOPE;
    const char *record = "test_swish(x) -> y  elementwise float\n"
                         "x times the sigmoid of beta x.\n"
                         "  beta float = 1\n"
                         "  y = x / (1 + exp(-beta*x))\n";
    CHECK_SAYING(gd_op_define(record, NULL) == GD_OK, "%s", gd_error_message());
    CHECK(gd_op_define(record, NULL) == GD_E_ARGUMENT && says("test_swish"));
    gd_clear_error(); /* the name exists already */
    gd_clear_error();
    const gd_op *op = gd_op_find("test_swish");
    CHECK(op && gd_op_flags(op) & GD_OP_USER && gd_op_flags(op) & GD_OP_ELEMENTWISE &&
          gd_op_differentiable(op));
    gd_tensor *x = gd_requires_grad(gd_full(gd_dims(3), 0.7, .dtype = GD_F64));
    gd_tensor *y = gd_call("test_swish", gd_list(x), "beta=2");
    double s = 1 / (1 + exp(-1.4));
    CHECK(fabs(((double *)gd_data(y))[1] - 0.7 * s) < 1e-15);
    gd_tensors g = gd_grad(gd_list(y), gd_list(x), .create_graph = true);
    CHECK(fabs(((double *)gd_data(g.at[0]))[1] - (s + 0.7 * 2 * s * (1 - s))) < 1e-14);
    gd_tensors gg = gd_grad(g, gd_list(x));
    double second = 4 * s * (1 - s) + 0.7 * 4 * s * (1 - s) * (1 - 2 * s);
    CHECK(fabs(((double *)gd_data(gg.at[0]))[1] - second) < 1e-13);
    CHECK(!gd_failed());
}

/* y[i] = x[i] + i along the last axis, with explicit rules and a kernel. */
static gd_status ramp_infer(gd_infer *i) {
    if (gd_tensor_rank(i->in[0]) < 1)
        return gd_op_fail(GD_E_SHAPE, "x needs at least one dimension");
    gd_shape s = gd_tensor_shape(i->in[0]);
    i->out[0].rank = s.rank;
    memcpy(i->out[0].dims, s.at, sizeof s.at);
    return GD_OK;
}
static void ramp_vjp(gd_vjp *v) { v->gx[0] = v->gy[0]; }
static gd_status ramp_run(gd_kernel_call *k) {
    const gd_view *x = &k->in[0];
    int64_t row = x->dims[x->rank - 1], n = 1;
    for (int d = 0; d < x->rank; d++) n *= x->dims[d];
    const double *step = k->attrs;
    for (int64_t i = 0; i < n; i++)
        ((double *)k->out[0].data)[i] = ((const double *)x->data)[i] + *step * (double)(i % row);
    return GD_OK;
}

TEST(a_program_defines_an_op_with_rules_and_a_kernel) {
    GD_SCOPE;
    gd_op_rules rules = {.infer = ramp_infer,
                         .vjp = ramp_vjp,
                         .reference = ramp_run,
                         .reference_flags = GD_KERNEL_DOUBLE};
    CHECK_SAYING(gd_op_define("test_ramp(x) -> y\nAdds a ramp along the last axis.\n  step float = "
                              "1\n  saves nothing\n",
                              &rules) == GD_OK,
                 "%s", gd_error_message());
    gd_tensor *x = gd_requires_grad(matrix()),
              *y = gd_call("test_ramp", gd_list(gd_permute(x, gd_dims(1, 0))), "step=10");
    float out[6];
    CHECK(gd_copy_to(y, out, sizeof out) == GD_OK && out[0] == 1 && out[1] == 14 &&
          out[5] == 16); /* strided, f32 */
    CHECK(gd_backward(gd_sum(y)) == GD_OK && ((float *)gd_data(gd_tensor_grad(x)))[3] == 1);
    CHECK(gd_tensor_is_error(gd_call("test_ramp", gd_list(gd_scalar(1)), NULL)) &&
          says("test_ramp") && says("at least one"));
    gd_clear_error();
}

TEST(a_record_that_does_not_parse_fails_with_its_line) {
    static const char *const wrong[] = {
        "",
        "noparens",
        "test_a(x -> y",
        "test_b(x) -> y  elementwise\ndoc\n  y = x +\n",
        "test_c(x) -> y  elementwise\ndoc\n  y = nothing(x)\n",
        "test_d(x) -> y\ndoc\n",
        "test_e(x) -> y  elementwise\ndoc\n  k spoon = 1\n  y = x\n",
        "Test F(x) -> y"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_SAYING(gd_op_define(wrong[i], NULL) == GD_E_ARGUMENT, "record %zu: %s", i, wrong[i]);
        CHECK(says("gd_op_define"));
        gd_clear_error();
    }
    CHECK(gd_op_define(NULL, NULL) == GD_E_ARGUMENT && !gd_op_find("test_b"));
    gd_clear_error();
}

/* --- random numbers and the log --------------------------------------------------------------- */

TEST(the_random_state_can_be_saved_and_restored) {
    GD_SCOPE;
    gd_seed(5);
    gd_tensor *a = gd_rand(gd_dims(10));
    gd_rng state = gd_rng_state();
    CHECK(state.seed == 5 && state.call == 1);
    gd_tensor *b = gd_rand(gd_dims(10));
    gd_rng_set_state(state);
    gd_tensor *c = gd_rand(gd_dims(10));
    CHECK(memcmp(gd_data(b), gd_data(c), 40) == 0 && memcmp(gd_data(a), gd_data(b), 40) != 0);
}

TEST_MAIN
