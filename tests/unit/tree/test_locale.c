/* test_locale.c - a locale with a decimal comma changes no result of the library.
 *
 * The locale need not be installed: localedef creates it in a folder of this test.
 */
#include <locale.h>

#include "codegen/native.h"
#include "core/number.h"
#include "fake_run.h"
#include "files.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

static bool has_comma(void) { return strcmp(localeconv()->decimal_point, ",") == 0; }

static bool find_comma(void) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE",
                                        "comma"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i]) && has_comma()) return true;
    return false;
}

/* Sets a locale with a decimal comma. Returns NULL, or the reason why that is impossible. */
static const char *set_comma(void) {
    static const char *folder; /* holds the locale and the compiled kernels */
    if (!folder) {
        folder = temp_folder();
        setenv("GRADUS_CACHE", folder, 1);
        if (find_comma()) return NULL;
        char command[400];
        snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/comma' 2>/dev/null",
                 folder);
        if (system(command) == 0) setenv("LOCPATH", folder, 1);
    }
    if (find_comma()) return NULL;
    return "no locale has a decimal comma, and localedef makes none (the package 'locales' lets "
           "it)";
}

#define COMMA_OR_SKIP                         \
    do {                                      \
        const char *comma_why_ = set_comma(); \
        if (comma_why_) SKIP(comma_why_);     \
    } while (0)

static void set_c_locale(void) { setlocale(LC_ALL, "C"); }

TEST(numbers_are_read_and_printed_with_a_decimal_point) {
    COMMA_OR_SKIP;
    char text[64], *end;
    gd_double_print(text, 1.5);
    CHECK(strcmp(text, "1.5") == 0);
    CHECK(gd_double_parse("2.5,", &end) == 2.5 && *end == ',');
    gd_snprintf(text, sizeof text, "%g %a", 0.25, 1.5);
    CHECK_SAYING(strcmp(text, "0.25 0x1.8p+0") == 0, "%s", text);
    snprintf(text, sizeof text, "%g", 0.25); /* printing by the program itself is unaffected */
    CHECK_SAYING(strcmp(text, "0,25") == 0, "%s", text);
    CHECK(gd_float_shortest(0.1f) == 0.1);
    set_c_locale();
}

TEST(options_are_read_with_a_decimal_point) {
    GD_SCOPE;
    COMMA_OR_SKIP;
    gd_tensor *x = gd_from_array(gd_dims(1), GD_F32, (float[]){-1});
    CHECK(gd_item(gd_call("leaky_relu", gd_list(x), "slope=0.25")) == -0.25);
    CHECK(!gd_failed());
    gd_call("leaky_relu", gd_list(x), "slope=0,25");
    CHECK(gd_failed());
    gd_clear_error();
    set_c_locale();
}

TEST(expressions_of_new_ops_are_read_with_a_decimal_point) {
    GD_SCOPE;
    COMMA_OR_SKIP;
    CHECK(gd_op_define("eighth(x) -> y  elementwise float\nAn eighth.\n  beta float = 1.5\n  y = "
                       "beta * x * 0.125\n",
                       NULL) == GD_OK);
    gd_tensor *x = gd_requires_grad(gd_from_array(gd_dims(1), GD_F32, (float[]){2}));
    gd_tensor *y = gd_call("eighth", gd_list(x), NULL);
    CHECK(gd_item(y) == 0.375);
    CHECK(gd_backward(y) == GD_OK && gd_item(gd_tensor_grad(x)) == 0.1875);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_clear_error();
    set_c_locale();
}

static gd_tensors elementwise_chain(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x = in.at[0], *e = gd_exp(x);
    gd_tensor *a = gd_add(gd_mul(gd_gelu(x), gd_scalar(0.3)), gd_scalar(0.7));
    gd_tensor *b = gd_sum(gd_tanh(gd_mul(x, gd_scalar(0.21))));
    gd_tensor *c = gd_sub(e, gd_mean(e, .axis = 1, .keepdim = true));
    return gd_listed(a, b, c);
}

TEST(kernels_are_compiled_and_give_the_same_bits) {
    GD_SCOPE;
    COMMA_OR_SKIP;
    char compiler[GD_NATIVE_PATH];
    struct stat identity;
    gd_tensor *x = gd_div(gd_reshape(gd_arange(0, 10000), gd_dims(100, 100)), gd_scalar(5000));
    const gd_native_counts before = gd_native_count();
    gd_tensors comma = gd_jit_call(gd_jit_new(elementwise_chain, NULL), gd_list(x));
    const gd_native_counts after = gd_native_count();
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    const char *off = getenv("GRADUS_NATIVE");
    if (gd_native_find_compiler(compiler, sizeof compiler, &identity) &&
        !(off && strcmp(off, "0") == 0))
        CHECK_SAYING(after.failed == before.failed && after.compiled > before.compiled,
                     "%d failed, %d compiled", (int)(after.failed - before.failed),
                     (int)(after.compiled - before.compiled));
    set_c_locale();
    gd_tensors plain = gd_jit_call(gd_jit_new(elementwise_chain, NULL), gd_list(x));
    for (int i = 0; i < 3; i++)
        CHECK(memcmp(gd_data(comma.at[i]), gd_data(plain.at[i]),
                     (size_t)gd_tensor_numel(plain.at[i]) * sizeof(float)) == 0);
}

TEST(tables_and_messages_have_a_decimal_point) {
    GD_SCOPE;
    COMMA_OR_SKIP;
    static char text[1 << 16];
    gd_tensor *x = gd_full(gd_dims(2), 1.5);
    gd_profiler_start();
    gd_exp(x);
    gd_profiler_stop();
    FILE *f = fmemopen(text, sizeof text, "w");
    CHECK(f && gd_profiler_table(f) == GD_OK);
    if (f) fclose(f);
    CHECK_SAYING(strchr(text, '.') && !strchr(text, ','), "%s", text);
    gd_to_text(x, text, sizeof text);
    CHECK_SAYING(strcmp(text, "[1.5 1.5]") == 0, "%s", text);
    gd_dropout(x, .p = 1.5, .training = true);
    CHECK_SAYING(strstr(gd_error_message(), "1.5"), "%s", gd_error_message());
    gd_clear_error();
    gd_graph *g = gd_graph_new();
    {
        GD_GRAPH(g);
        gd_leaky_relu(gd_placeholder(gd_dims(2)), .slope = 0.25);
    }
    char *lines = gd_graph_text(g);
    CHECK_SAYING(lines && strstr(lines, "slope=0.25"), "%s", lines ? lines : "");
    free(lines);
    set_c_locale();
}

TEST(logs_have_a_decimal_point) {
    GD_SCOPE;
    COMMA_OR_SKIP;
    const char *path = temp_path("log.csv");
    fake_run r;
    fake_begin(&r, gd_nn_linear(1, 1), NULL);
    gd_callback *log = gd_csv_log(path), *stopping = gd_early_stopping(.monitor = "loss");
    CHECK(fake_call(&r, log, GD_ON_FIT_BEGIN) == GD_OK);
    CHECK(fake_epoch(&r, log, 1, "loss", 0.5) == GD_OK);
    for (int i = 0; i < 2; i++) CHECK(fake_epoch(&r, stopping, 1, "loss", 0.5) == GD_OK);
    CHECK_SAYING(strstr(r.stopped, "the best was 0.5,"), "%s", r.stopped);
    CHECK(file_has_text(path, "epoch,step,loss\n1,1,0.5\n"));
    set_c_locale();
}

TEST_MAIN
