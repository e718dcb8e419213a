/* eval.c - gradus eval: computes the loss and metrics of a saved model on data. */
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
    {"batch", INTEGER, &o.batch, "N", "samples in a batch (default 64)"},
    {"workers", INTEGER, &o.workers, "N", "threads that prepare batches (default 1)"},
    {0}};

static void print_results(const gd_history *h, const char *path, int64_t samples) {
    if (common.json) {
        json_begin(NULL);
        json_text("model", path);
        json_integer("samples", samples);
        for (int64_t c = 0; c < gd_history_columns(h); c++)
            json_number(gd_history_name(h, c), gd_history_value(h, gd_history_name(h, c), 0));
        json_end();
        json_line();
        return;
    }
    printf("%lld samples\n", (long long)samples);
    for (int64_t c = 0; c < gd_history_columns(h); c++) {
        const char *name = gd_history_name(h, c);
        if (strcmp(name, "seconds") == 0 || strcmp(name, "lr") == 0) continue;
        printf("%-12s %.5g\n", name, gd_history_value(h, name, 0));
    }
}

static int run_eval(int count, const char **words) {
    model_info a;
    if (count != 1)
        return usage_error(&eval_command, "it needs one model; there are %d arguments", count);
    if (!o.data) return usage_error(&eval_command, "--data is missing; for example --data digits");
    if (o.batch < 1) return usage_error(&eval_command, "--batch must be at least 1");
    gd_module *net = load_model(words[0], &a);
    if (!net) return failed();
    gd_dataset *test = open_test_data(o.data, a.transform);
    if (!test) return gd_failed() ? failed() : USAGE;
    gd_tensors sample = gd_dataset_get(test, 0);
    if (gd_failed()) return failed();
    const bool classes = !gd_dtype_is_float(gd_tensor_dtype(sample.at[sample.count - 1]));
    gd_metric *confusion = o.confusion && classes ? gd_metric_confusion() : NULL;
    const char *loss = o.loss ? o.loss : *a.loss ? a.loss : classes ? "cross_entropy" : "mse";
    gd_compile(net, .optimizer = NULL, .loss = loss,
               .metrics = o.metrics ? o.metrics
                          : classes ? "accuracy"
                                    : "mae",
               .metric_objects = {&confusion, confusion != NULL});
    gd_loader *loader = gd_loader_new(test, .batch = o.batch, .workers = (int)o.workers);
    gd_history *h =
        gd_evaluate(net, loader, .progress = common.quiet ? GD_PROGRESS_NONE : GD_PROGRESS_AUTO);
    if (!h) return failed();
    print_results(h, words[0], gd_dataset_count(test));
    if (confusion && !common.json) {
        putchar('\n');
        show_confusion(gd_metric_value(confusion), a.classes);
    }
    free_model_info(&a);
    return gd_failed() ? failed() : DONE;
}

const command eval_command = {.name = "eval",
                              .usage = "gradus eval MODEL.onnx --data KIND:PATH [options]",
                              .summary = "compute loss and metrics of a saved model",
                              .examples = "  gradus eval m.onnx --data mnist:DIR --confusion\n",
                              .options = options,
                              .run = run_eval};
