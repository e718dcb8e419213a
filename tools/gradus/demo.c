/* demo.c - gradus demo: trains a net to read digits in about a minute, without any files. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tool.h"

static struct {
    const char *dir;
    int64_t samples, epochs;
} o = {.dir = "digits-demo", .samples = 30000, .epochs = 5};

static const option options[] = {
    {"dir", TEXT, &o.dir, "DIR", "folder for the model and the curves (default digits-demo)"},
    {"samples", INTEGER, &o.samples, "N",
     "in [100, inf): number of training digits (default 30000)"},
    {"epochs", INTEGER, &o.epochs, "N", "in [1, inf): passes over them (default 5)"},
    {0}};

enum { TEST_SAMPLES = 2000, SHOWN = 9 };

static char *in_dir(const char *name, char *path, size_t size) {
    snprintf(path, size, "%s/%s", o.dir, name);
    return path;
}

/* Prints some test digits with their predictions, wrong ones first. */
static void show_predictions(gd_module *net, gd_dataset *test) {
    gd_tensor *images[SHOWN];
    char text[SHOWN][40];
    const char *captions[SHOWN];
    int n = 0;
    for (int wrong = 1; wrong >= 0; wrong--)
        for (int64_t i = 0; i < gd_dataset_count(test) && n < (wrong ? 2 : SHOWN) && !gd_failed();
             i++) {
            gd_tensors sample = gd_dataset_get(test, i);
            gd_tensor *x = gd_to_device(gd_unsqueeze(sample.at[0], 0), gd_default_device());
            gd_tensor *p = gd_softmax(gd_module_forward(net, x), .axis = 1);
            const int64_t predicted = gd_item_int(gd_argmax(gd_flatten(p), .axis = 0)),
                          actual = gd_item_int(sample.at[1]);
            if ((predicted != actual) != (wrong == 1)) continue;
            const double probability = gd_item(gd_max(p));
            if (predicted == actual)
                snprintf(text[n], sizeof text[n], "%lld (%.0f %%)", (long long)predicted,
                         100 * probability);
            else
                snprintf(text[n], sizeof text[n], "%lld, but is %lld", (long long)predicted,
                         (long long)actual);
            images[n] = sample.at[0];
            captions[n] = text[n];
            n++;
        }
    if (n) puts("Its predictions for some unseen digits:\n");
    show_images(images, captions, n);
}

static gd_status save_digit(gd_dataset *test, const char *path) {
    gd_tensor *x = gd_dataset_get(test, 7).at[0];
    return gd_save_png(path, gd_cast(gd_round(gd_mul(x, gd_scalar(255))), GD_U8));
}

static int save_results(gd_module *net, gd_history *h, const data *d, model_info *a,
                        double seconds) {
    char model[600], curve[600], digit[600];
    in_dir("digits.onnx", model, sizeof model);
    in_dir("curve.svg", curve, sizeof curve);
    in_dir("digit.png", digit, sizeof digit);
    if (save_model(model, net, d->sample, 1, a) != GD_OK || gd_history_plot(h, curve) != GD_OK)
        return failed();
    const bool image = save_digit(d->test, digit) == GD_OK;
    if (!image) gd_clear_error(); /* a build without libpng */
    printf("%.2f %% of %d unseen digits are right, after %.0f seconds.\n\n",
           100 * gd_history_last(h, "val_accuracy"), TEST_SAMPLES, seconds);
    printf("Saved:\n  %-28s the model\n  %-28s the training curves\n", model, curve);
    if (image) printf("  %-28s a digit\n", digit);
    puts("\nWhat to try next:");
    if (image) printf("  %s predict %s %s\n", program, model, digit);
    printf("  %s summary %s\n", program, model);
    printf("  %s train --model lenet --data mnist:DIR --out mnist.onnx    # the files of MNIST in "
           "DIR\n",
           program);
    printf("  %s train --help\n", program);
    return DONE;
}

static int run_demo(int count, const char **words) {
    (void)words;
    if (count) return usage_error(&demo_command, "it takes no arguments");
    if (mkdir(o.dir, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "gradus: cannot create the folder %s\n", o.dir);
        return FAILED;
    }
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    char text[80];
    data d = {.n_classes = 10, .classes = true};
    snprintf(text, sizeof text, "count=%lld seed=%lld", (long long)o.samples,
             (long long)common.seed + 1);
    d.train = gd_dataset_new("digits", text);
    snprintf(text, sizeof text, "count=%d seed=%lld", TEST_SAMPLES,
             (long long)common.seed + 1000003);
    d.test = gd_dataset_new("digits", text);
    d.sample = gd_dataset_get(d.train, 0);
    model_info a;
    gd_module *net = make_model("convnet", &d, &a);
    if (!net) return FAILED;
    gd_metric *confusion = gd_metric_confusion();
    if (gd_failed()) return failed();
    printf(
        "A small convolutional net learns to read digits: %lld of them, drawn by this program.\n\n",
        (long long)o.samples);
    fflush(stdout);
    gd_loader *train = gd_loader_new(d.train, .batch = 64, .shuffle = true, .workers = 1,
                                     .seed = (uint64_t)common.seed);
    gd_loader *test = gd_loader_new(d.test, .batch = 100);
    gd_compile(net, .optimizer = "adamw lr=0.003", .schedule = "cosine warmup=50",
               .loss = "cross_entropy",
               .metric_objects = gd_metrics(gd_metric_accuracy(), confusion));
    gd_history *h = gd_fit(net, train, .epochs = o.epochs, .validation = test,
                           .progress = common.quiet ? GD_PROGRESS_NONE : GD_PROGRESS_AUTO);
    if (!h) return failed();
    clock_gettime(CLOCK_MONOTONIC, &end);
    putchar('\n');
    gd_evaluate(net, test);
    show_confusion(gd_metric_value(confusion), NULL, 0);
    gd_module_eval(net);
    show_predictions(net, d.test);
    describe_data(&a, &d, NULL, "cross_entropy");
    if (gd_failed()) return failed();
    const int code = save_results(net, h, &d, &a,
                                  (double)(end.tv_sec - begin.tv_sec) +
                                      1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
    free_model_info(&a);
    return code == DONE && gd_history_interrupted(h) ? INTERRUPTED : code;
}

const command demo_command = {.name = "demo",
                              .usage = "gradus demo [options]",
                              .summary =
                                  "train a net that reads digits, in a minute and without files",
                              .options = options,
                              .run = run_demo};
