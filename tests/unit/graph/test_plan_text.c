/* test_plan_text.c - the text of a plan says how each step runs: by which kernel, and with how many
 * copies of its operands. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "clean_test.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "test.h"

static gd_tensors convolve(gd_tensors in, void *data) {
    (void)data;
    return gd_listed(gd_conv2d(in.at[0], in.at[1], NULL));
}

static gd_tensors convolve_each_channel(gd_tensors in, void *data) {
    (void)data;
    return gd_listed(gd_conv2d(in.at[0], in.at[1], NULL, .groups = 8));
}

/* `linear` needs row-major operands. */
static gd_tensors apply_transposed(gd_tensors in, void *data) {
    (void)data;
    return gd_listed(gd_linear(gd_transpose(gd_neg(in.at[0]), 0, 1), in.at[1], NULL));
}

static gd_tensors transpose_only(gd_tensors in, void *data) {
    (void)data;
    return gd_listed(gd_transpose(in.at[0], 0, 1));
}

/* The line of the plan's first step of this op; it is ended by 0. */
static const char *step_line(char *text, const char *op) {
    char begin[64];
    snprintf(begin, sizeof begin, " = %s(", op);
    char *line = text ? strstr(text, begin) : NULL;
    if (line) line[strcspn(line, "\n")] = 0;
    return line ? line : "";
}

static char *plan_of(gd_body function, gd_tensor *x, gd_tensor *w) {
    return gd_jit_plan_text(gd_jit_new(function, NULL), gd_list(x, w));
}

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), most = strlen(end);
    return length >= most && strcmp(text + length - most, end) == 0;
}

CLEAN_TEST(the_text_of_a_plan_names_the_kernel_of_each_step) {
    GD_SCOPE;
    char *text = plan_of(convolve, gd_ones(gd_dims(1, 8, 6, 6)), gd_ones(gd_dims(8, 8, 2, 2)));
    CHECK_SAYING(ends_with(step_line(text, "conv2d"), "  by gemm"), "%s", text);
    free(text);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* Winograd's transforms have two sizes of tiles. */
CLEAN_TEST(the_text_of_a_plan_says_what_the_kernel_of_a_step_has_chosen) {
    GD_SCOPE;
    char *text = plan_of(convolve, gd_ones(gd_dims(1, 64, 34, 34)), gd_ones(gd_dims(64, 64, 3, 3)));
    CHECK_SAYING(ends_with(step_line(text, "conv2d"), "  by winograd: tiles 4x4"), "%s", text);
    free(text);
    text = plan_of(convolve, gd_ones(gd_dims(1, 64, 8, 8)), gd_ones(gd_dims(64, 64, 3, 3)));
    CHECK_SAYING(ends_with(step_line(text, "conv2d"), "  by winograd: tiles 2x2"), "%s", text);
    free(text);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(a_preferred_kernel_runs_where_it_matches) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(1, 64, 34, 34)), *w = gd_ones(gd_dims(64, 64, 3, 3));
    static const char *const kernels[][3] = {
        /* op, kernel, what runs */
        {"conv2d", "gemm", "  by gemm"},
        {"conv2d", "reference", "  by reference, with 3 copies of operands"},
        {"conv2d", "direct", "  by winograd: tiles 4x4"}, /* it does not match */
        {"conv1d", "gemm", "  by winograd: tiles 4x4"},
    };
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        gd_set_kernel(kernels[i][0], kernels[i][1]);
        char *text = plan_of(convolve, x, w);
        CHECK_SAYING(ends_with(step_line(text, "conv2d"), kernels[i][2]), "%s", text);
        free(text);
    }
    gd_set_kernel(NULL, NULL);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(where_a_preferred_kernel_does_not_match_the_usual_one_runs) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(1, 8, 16, 16)), *w = gd_ones(gd_dims(8, 1, 3, 3));
    gd_set_kernel("conv2d", "winograd"); /* it takes no groups */
    char *text = plan_of(convolve_each_channel, x, w);
    gd_set_kernel(NULL, NULL);
    CHECK_SAYING(ends_with(step_line(text, "conv2d"), "  by direct"), "%s", text);
    free(text);
}

CLEAN_TEST(an_unknown_preferred_kernel_is_a_warning_that_lists_those_that_exist) {
    GD_SCOPE;
    capture_log(GD_LOG_WARNING);
    gd_set_kernel("relu6", "none"); /* of an op without kernels of its own: nothing is said */
    gd_relu6(gd_ones(gd_dims(3)));
    gd_set_kernel("softmax", "none");
    for (int i = 0; i < 2; i++) gd_softmax(gd_ones(gd_dims(3)));
    gd_set_kernel(NULL, NULL);
    CHECK_SAYING(
        captured.warnings == 1 &&
            strstr(captured.text, "softmax has no kernel 'none' for cpu; it has: rows, reference"),
        "%s", captured.text);
    end_log_capture();
}

CLEAN_TEST(the_text_of_a_plan_counts_copies_of_operands) {
    GD_SCOPE;
    char *text = plan_of(apply_transposed, gd_ones(gd_dims(4, 6)), gd_ones(gd_dims(5, 4)));
    const char *line = step_line(text, "linear");
    CHECK_SAYING(ends_with(line, "  by packed, with 1 copy of operands"), "%s", line);
    free(text);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(views_have_no_kernel_in_the_text_of_a_plan) {
    GD_SCOPE;
    char *text = plan_of(transpose_only, gd_ones(gd_dims(4, 6)), gd_ones(gd_dims(1)));
    const char *line = step_line(text, "transpose");
    CHECK_SAYING(*line && !strstr(line, "  by "), "%s", text);
    free(text);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST_MAIN
