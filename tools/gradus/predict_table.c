/* predict_table.c - predictions for the rows of a CSV file, which are converted as in the training. */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/* A field of a CSV file, in quotes where it needs them. */
static void print_field(const char *text) {
    if (!strpbrk(text, ",\"\n\r")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) printf(*text == '"' ? "\"\"" : "%c", *text);
    putchar('"');
}

static void print_json_classes(const model_info *a, const float *p, int64_t classes, int64_t top) {
    char text[40];
    bool *shown = calloc((size_t)classes, sizeof *shown);
    json_begin_list("top");
    for (int64_t k = 0; shown && k < top && k < classes; k++) {
        int64_t best = -1;
        for (int64_t c = 0; c < classes; c++)
            if (!shown[c] && (best < 0 || p[c] > p[best])) best = c;
        shown[best] = true;
        json_begin(NULL);
        json_text("class", class_name(a, best, text, sizeof text));
        json_integer("index", best);
        json_number("probability", (double)p[best]);
        json_end();
    }
    json_end_list();
    free(shown);
}

static void print_row(const model_info *a, const float *y, int64_t width, int64_t top) {
    char text[40];
    int64_t best = 0;
    for (int64_t c = 1; c < width; c++)
        if (y[c] > y[best]) best = c;
    if (common.json && a->n_classes) {
        print_json_classes(a, y, width, top);
    } else if (common.json) {
        json_begin_list("values");
        for (int64_t c = 0; c < width; c++) json_number(NULL, (double)y[c]);
        json_end_list();
    } else if (a->n_classes) {
        print_field(class_name(a, best, text, sizeof text));
        printf(",%.4f", (double)y[best]);
    } else {
        for (int64_t c = 0; c < width; c++) printf("%s%.7g", c ? "," : "", (double)y[c]);
    }
}

/* y (rows, width): probabilities of classes, or numbers. */
static void print_rows(const model_info *a, const char *path, const float *y, int64_t rows,
                       int64_t width, const predict_options *o, bool several) {
    if (common.json) {
        json_begin(NULL);
        json_text("file", path);
        json_begin_list("rows");
    } else {
        if (several) printf("%s\n", path);
        fputs(a->n_classes ? "prediction,probability" : "prediction", stdout);
        for (int64_t c = 1; c < width && !a->n_classes; c++) printf("_%lld", (long long)c);
        putchar('\n');
    }
    for (int64_t i = 0; i < rows; i++) {
        if (common.json) json_begin(NULL);
        print_row(a, y + i * width, width, o->top);
        if (common.json) json_end();
        else putchar('\n');
    }
    if (!common.json) return;
    json_end_list();
    json_end();
    json_line();
}

int predict_table(gd_module *net, const model_info *a, const char *path, const predict_options *o,
                  bool several) {
    gd_dataset *rows = gd_dataset_csv(path, .layout = a->layout, .target = "");
    rows = rows ? apply_transforms(rows, a->transform) : NULL;
    gd_tensor *y = rows ? gd_predict(net, rows, .batch = 256) : NULL;
    if (!y || gd_failed()) return failed();
    const int64_t n = gd_tensor_dim(y, 0);
    y = gd_reshape(gd_cast(y, GD_F32), gd_dims(n, -1));
    if (a->n_classes) y = gd_softmax(y, .axis = 1);
    const size_t bytes = sizeof(float) * (size_t)gd_tensor_numel(y);
    float *values = malloc(bytes);
    if (values && gd_copy_to(gd_contiguous(y), values, bytes) == GD_OK)
        print_rows(a, path, values, n, gd_tensor_dim(y, 1), o, several);
    free(values);
    return gd_failed() ? failed() : DONE;
}
