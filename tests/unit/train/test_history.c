/* test_history.c - the history table that gd_fit returns, and its plot. */
#include <math.h>

#include "clean_test.h"
#include "core/alloc.h"
#include "files.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "train/history.h"

static gd_history *make_history(int rows) {
    static const char *const names[] = {"loss",       "accuracy", "val_loss", "val_accuracy",
                                        "perplexity", "lr",       "seconds"};
    gd_history *h = gd_history_bare();
    for (int i = 0; i < 7; i++) CHECK(gd_history_column(h, names[i]) == i);
    for (int row = 0; row < rows; row++) {
        const double t = (row + 1.0) / rows,
                     values[] = {
                         2 / (1 + t), t, row % 3 == 1 ? NAN : 3 / (1 + t), t / 2, exp(2 / t),
                         0.1,         1};
        CHECK(gd_history_add_row(h) == GD_OK);
        for (int i = 0; i < 7; i++) gd_history_set(h, i, values[i]);
    }
    return h;
}

CLEAN_TEST(histories_are_tables) {
    gd_history *h = make_history(3);
    CHECK(gd_history_rows(h) == 3 && gd_history_columns(h) == 7);
    CHECK(strcmp(gd_history_name(h, 2), "val_loss") == 0 && !gd_history_name(h, 7) &&
          !gd_history_name(h, -1));
    CHECK(gd_history_value(h, "accuracy", 0) == 1 / 3.0 && gd_history_last(h, "accuracy") == 1);
    CHECK(gd_history_value(h, "accuracy", -3) == 1 / 3.0 &&
          isnan(gd_history_value(h, "accuracy", -4)));
    CHECK(isnan(gd_history_value(h, "accuracy", 3)) && isnan(gd_history_value(h, "f1", 0)) &&
          isnan(gd_history_value(h, NULL, 0)));
    CHECK(gd_history_rows(NULL) == 0 && gd_history_columns(NULL) == 0 &&
          isnan(gd_history_last(NULL, "loss")) && !gd_history_name(NULL, 0));
    /* a column that is added later has no earlier values */
    CHECK(gd_history_column(h, "late") == 7);
    CHECK(isnan(gd_history_value(h, "late", 1)) && gd_history_value(h, "accuracy", 0) == 1 / 3.0 &&
          gd_history_value(h, "seconds", 2) == 1);
    gd_release(h);
}

CLEAN_TEST(histories_are_saved_and_loaded) {
    for (int rows = 0; rows <= 40; rows += 20) {
        GD_SCOPE;
        const char *path = temp_path("history.safetensors");
        gd_history *h = make_history(rows), *other = make_history(2), *empty = gd_history_bare();
        CHECK(gd_save_state(path, gd_part("history", h)) == GD_OK);
        for (int i = 0; i < 2; i++) {
            gd_history *to = i ? empty : other;
            CHECK_SAYING(gd_load_state(path, gd_part("history", to)) == GD_OK, "%s",
                         gd_error_message());
            CHECK(gd_history_rows(to) == rows && gd_history_columns(to) == 7);
            for (int c = 0; c < 7; c++)
                for (int row = 0; row < rows; row++) {
                    const double a = gd_history_value(h, gd_history_name(h, c), row),
                                 b = gd_history_value(to, gd_history_name(h, c), row);
                    CHECK(a == b || (isnan(a) && isnan(b)));
                }
            CHECK(gd_history_add_row(to) == GD_OK && gd_history_rows(to) == rows + 1);
        }
        /* a load that fails changes nothing */
        gd_tensor *missing = gd_ones(gd_dims(2));
        CHECK(gd_load_state(path, gd_part("history", other), gd_part("missing", missing)) != GD_OK);
        gd_clear_error();
        CHECK(gd_history_rows(other) == rows + 1);
        gd_release(h);
        gd_release(other);
        gd_release(empty);
    }
}

static int count_of(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

CLEAN_TEST(plots_have_a_panel_for_each_scale) {
    static const int rows[] = {1, 5, 200};
    for (int i = 0; i < 3; i++) {
        gd_history *h = make_history(rows[i]);
        char *svg = gd_history_svg(h);
        CHECK(svg && strncmp(svg, "<svg ", 5) == 0 &&
              strcmp(svg + strlen(svg) - 7, "</svg>\n") == 0);
        CHECK_SAYING(count_of(svg, "class=\"title\"") == 3, "%d panels",
                     count_of(svg, "class=\"title\""));
        CHECK(strstr(svg, ">loss</text>") && strstr(svg, ">metrics</text>") &&
              strstr(svg, ">perplexity</text>"));
        CHECK(strstr(svg, ">val_accuracy</text>") && strstr(svg, ">epoch</text>"));
        CHECK(!strstr(svg, "nan") && !strstr(svg, "inf") && !strstr(svg, ">lr<") &&
              !strstr(svg, "href"));
        /* every third value of val_loss is missing: the curve has gaps */
        const char *dashed = strstr(svg, "class=\"val\" stroke");
        CHECK(dashed);
        if (rows[i] == 200 && dashed) {
            char curve[20000];
            snprintf(curve, sizeof curve, "%.*s", (int)strcspn(dashed, ">"), dashed);
            CHECK_SAYING(count_of(curve, "M") == 67, "%d curve segments", count_of(curve, "M"));
        }
        gd_free(svg);
        gd_release(h);
    }
}

CLEAN_TEST(plots_are_saved_as_files) {
    gd_history *h = make_history(4), *none = gd_history_bare();
    const char *path = temp_path("curve.svg");
    CHECK_SAYING(gd_history_plot(h, path) == GD_OK, "%s", gd_error_message());
    char *text = file_read(path, NULL);
    CHECK(text && strncmp(text, "<svg ", 5) == 0);
    free(text);
    CHECK(gd_history_plot(h, "/no/such/folder/curve.svg") == GD_E_IO && says("/no/such/folder"));
    gd_clear_error();
    CHECK(gd_history_plot(NULL, path) == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_history_plot(none, path) == GD_E_STATE && says("no values"));
    gd_release(h);
    gd_release(none);
}

/* Names come from the program and may contain markup. */
CLEAN_TEST(names_in_plots_are_escaped) {
    gd_history *h = gd_history_bare();
    gd_history_column(h, "a<b>&\"c\"");
    gd_history_add_row(h);
    gd_history_set(h, 0, 0.5);
    char *svg = gd_history_svg(h);
    CHECK(strstr(svg, "a&lt;b&gt;&amp;&quot;c&quot;") && !strstr(svg, "a<b>"));
    gd_free(svg);
    gd_release(h);
}

TEST_MAIN
