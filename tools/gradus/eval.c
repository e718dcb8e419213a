/* eval.c - gradus eval: computes the loss and metrics of a saved model on data. */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static struct {
    const char *data, *metrics, *loss;
    int64_t batch, workers;
    bool confusion;
} o = {.batch = 64, .workers = 1};

static const option options[] = {
    {"data", TEXT, &o.data, "KIND:PATH",
     "data to evaluate on, as for gradus train; their test part, if they have one"},
    {"metrics", TEXT, &o.metrics, "LIST",
     "metrics, separated by commas (default: accuracy for classes, mae for numbers)"},
    {"loss", TEXT, &o.loss, "NAME", "loss (default: the one that the model was trained with)"},
    {"confusion", FLAG, &o.confusion, NULL, "print the confusion matrix"},
    {"batch", INTEGER, &o.batch, "N", "in [1, inf): samples in a batch (default 64)"},
    {"workers", INTEGER, &o.workers, "N", "in [0, 64]: threads that prepare batches (default 1)"},
    {0}};

/* "classes": their names, "confusion": the rows of the matrix. */
static void print_json_confusion(gd_metric *confusion, const model_info *a) {
    int n;
    char text[40];
    double *m = confusion_values(gd_metric_value(confusion), &n);
    if (!m) return;
    json_begin_list("classes");
    for (int i = 0; i < n; i++) json_text(NULL, class_name(a, i, text, sizeof text));
    json_end_list();
    json_begin_list("confusion");
    for (int i = 0; i < n; i++) {
        json_begin_list(NULL);
        for (int k = 0; k < n; k++) json_number(NULL, m[i * n + k]);
        json_end_list();
    }
    json_end_list();
    free(m);
}

static void print_json(const gd_history *h, const char *path, int64_t samples, const model_info *a,
                       gd_metric *confusion) {
    json_begin(NULL);
    json_text("model", path);
    json_integer("samples", samples);
    for (int64_t c = 0; c < gd_history_columns(h); c++)
        json_number(gd_history_name(h, c), gd_history_value(h, gd_history_name(h, c), 0));
    if (confusion) print_json_confusion(confusion, a);
    json_end();
    json_line();
}

static void print_results(const gd_history *h, int64_t samples, const model_info *a,
                          gd_metric *confusion) {
    printf("%lld samples\n", (long long)samples);
    for (int64_t c = 0; c < gd_history_columns(h); c++) {
        const char *name = gd_history_name(h, c);
        if (strcmp(name, "seconds") == 0 || strcmp(name, "lr") == 0) continue;
        printf("%-12s %.5g\n", name, gd_history_value(h, name, 0));
    }
    if (!confusion) return;
    putchar('\n');
    show_confusion(gd_metric_value(confusion), a->classes, a->n_classes);
}

/* Compiles the net for its data; *confusion is NULL without --confusion. */
static gd_status compile_net(gd_module *net, gd_tensors sample, const model_info *a,
                             gd_metric **confusion) {
    const bool classes = !gd_dtype_is_float(gd_tensor_dtype(sample.at[sample.count - 1]));
    gd_compile_options compile = {.precision = "f32", .accumulate = 1};
    set_task(&compile, sample, classes, o.loss ? o.loss : *a->loss ? a->loss : NULL, o.metrics);
    *confusion = o.confusion && classes && !is_text(sample) ? gd_metric_confusion() : NULL;
    compile.metric_objects = (gd_metric_list){confusion, *confusion != NULL};
    return gd_compile_at(NULL, net, &compile);
}

/* Opens the data as the model expects them. */
static gd_dataset *open_samples(const model_info *a, const char *path, gd_tensors *sample,
                                int *code) {
    gd_dataset *test = open_test_data(o.data, a->layout, code);
    if (test && !(test = match_classes(test, a, path))) *code = FAILED;
    if (!test) return NULL;
    test = apply_transforms(test, a->transform);
    *sample = gd_dataset_get(test, 0);
    if (gd_failed()) *code = failed();
    else if (sample->count < 2)
        *code = fail("--data %s: there are no targets to compare with", o.data);
    else return test;
    return NULL;
}

static int evaluate(gd_module *net, const char *path, model_info *a) {
    gd_metric *confusion;
    gd_tensors sample;
    int code = FAILED;
    gd_dataset *test = open_samples(a, path, &sample, &code);
    if (!test) return code;
    if (compile_net(net, sample, a, &confusion) != GD_OK) return failed();
    gd_loader *loader = gd_loader_new(test, .batch = o.batch, .workers = (int)o.workers);
    gd_history *h =
        gd_evaluate(net, loader, .progress = common.quiet ? GD_PROGRESS_NONE : GD_PROGRESS_AUTO);
    if (!h) return failed();
    if (common.json) print_json(h, path, gd_dataset_count(test), a, confusion);
    else print_results(h, gd_dataset_count(test), a, confusion);
    if (o.confusion && !confusion)
        note("--confusion: there is a matrix for one class per sample only");
    return gd_failed() ? failed() : DONE;
}

static int run_eval(int count, const char **words) {
    model_info a;
    if (count != 1)
        return usage_error(&eval_command, "it needs one model; there are %d arguments", count);
    if (!o.data) return usage_error(&eval_command, "--data is missing; for example --data digits");
    gd_module *net = load_model(words[0], &a);
    if (!net) return failed();
    const int code = evaluate(net, words[0], &a);
    free_model_info(&a);
    return code;
}

const command eval_command = {.name = "eval",
                              .usage = "gradus eval MODEL.onnx --data KIND:PATH [options]",
                              .summary = "compute loss and metrics of a saved model",
                              .examples = "  gradus eval m.onnx --data mnist:DIR --confusion\n",
                              .options = options,
                              .run = run_eval};
