/* train.c - gradus train: trains a net on data and saves it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static struct {
    const char *model, *data, *validation, *out, *weights;
    const char *optimizer, *schedule, *loss, *metrics, *precision;
    const char *augment, *transform;
    const char *checkpoints, *log, *tensorboard, *curve;
    int64_t epochs, steps, batch, workers, accumulate, patience, every;
    double lr, split, clip;
    bool resume, eager, profile;
} o = {.optimizer = "adamw",
       .precision = "f32",
       .epochs = 5,
       .batch = 64,
       .workers = 1,
       .accumulate = 1,
       .split = 0.1};

static const option options[] = {
    {"what to train", HEADING, NULL, NULL, NULL},
    {"model", TEXT, &o.model, "NET",
     "a net with options (\"resnet20 classes=10\"; `gradus list nets`), or a saved model.onnx to "
     "train further"},
    {"data", TEXT, &o.data, "KIND:PATH",
     "data, such as mnist:DIR, image_folder:DIR, csv:FILE,target=price, digits (`gradus list "
     "datasets`)"},
    {"validation", TEXT, &o.validation, "KIND:PATH",
     "data to validate on (default: the test part of the data, or --split)"},
    {"split", NUMBER, &o.split, "FRACTION",
     "part of the samples to hold out for validation if the data have no test part (default 0.1)"},
    {"out", TEXT, &o.out, "FILE",
     "file of the saved model: .onnx, or .safetensors for the weights only"},
    {"weights", TEXT, &o.weights, "FILE",
     "a .safetensors file of initial weights; tensors that do not match are skipped and listed"},
    {"how to train it", HEADING, NULL, NULL, NULL},
    {"epochs", INTEGER, &o.epochs, "N", "passes over all samples (default 5)"},
    {"steps", INTEGER, &o.steps, "N", "end after this many batches"},
    {"batch", INTEGER, &o.batch, "N", "samples in a batch (default 64)"},
    {"lr", NUMBER, &o.lr, "RATE", "learning rate (default: the optimizer's)"},
    {"optimizer", TEXT, &o.optimizer, "NAME",
     "optimizer with options: \"sgd momentum=0.9\" (default adamw; `gradus list optimizers`)"},
    {"schedule", TEXT, &o.schedule, "NAME",
     "learning rate schedule: \"cosine warmup=100\"; by default as long as the run (`gradus "
     "list schedules`)"},
    {"loss", TEXT, &o.loss, "NAME",
     "loss with options (default: cross_entropy for classes, mse for numbers)"},
    {"metrics", TEXT, &o.metrics, "LIST",
     "metrics, separated by commas (default: accuracy for classes, mae for numbers; `gradus list "
     "metrics`)"},
    {"augment", TEXT, &o.augment, "LIST",
     "transforms of training samples: \"crop size=28 padding=2, flip\" (`gradus list transforms`)"},
    {"transform", TEXT, &o.transform, "LIST",
     "transforms of all samples, also when the model predicts: \"normalize mean=0.13 std=0.31\""},
    {"accumulate", INTEGER, &o.accumulate, "N",
     "batches whose gradients are accumulated for a step (default 1)"},
    {"clip", NUMBER, &o.clip, "NORM", "clip the norm of the gradients"},
    {"precision", TEXT, &o.precision, "DTYPE",
     "dtype of matrix products and convolutions: f32 (default), bf16, f16"},
    {"patience", INTEGER, &o.patience, "N",
     "stop when validation has not improved for this many epochs, and restore the best weights"},
    {"workers", INTEGER, &o.workers, "N", "threads that prepare batches (default 1)"},
    {"eager", FLAG, &o.eager, NULL, "run op by op, without a compiled plan"},
    {"profile", FLAG, &o.profile, NULL,
     "print a table of all kernels by time to stderr at the end; training is slower"},
    {"what to save", HEADING, NULL, NULL, NULL},
    {"checkpoints", TEXT, &o.checkpoints, "DIR", "save the run in this folder after each epoch"},
    {"every", INTEGER, &o.every, "N", "also save after every N batches"},
    {"resume", FLAG, &o.resume, NULL,
     "continue from the newest checkpoint in --checkpoints, if there is one"},
    {"log", TEXT, &o.log, "FILE", "write a CSV file with a row for each epoch"},
    {"tensorboard", TEXT, &o.tensorboard, "DIR", "write event files for TensorBoard"},
    {"curve", TEXT, &o.curve, "FILE", "draw the training curves as an SVG image"},
    {0}};

/* The loss of sequences: scores (N, T, C) and classes (N, T); each position is a sample. */
static gd_tensor *sequence_loss(gd_tensors outputs, gd_tensors targets, void *user) {
    (void)user;
    gd_tensor *scores = outputs.at[0];
    return gd_cross_entropy(gd_flatten(scores, .start_axis = 0, .end_axis = -2),
                            gd_flatten(targets.at[0]));
}

static gd_status compile_net(gd_module *net, const data *d, const char **loss_name) {
    char optimizer[300];
    const bool sequence = d->classes && gd_tensor_rank(d->sample.at[d->sample.count - 1]) == 1;
    if (o.lr > 0) snprintf(optimizer, sizeof optimizer, "%s lr=%.17g", o.optimizer, o.lr);
    else snprintf(optimizer, sizeof optimizer, "%s", o.optimizer);
    const char *loss = o.loss ? o.loss : d->classes ? "cross_entropy" : "mse";
    const char *metrics = o.metrics ? o.metrics : sequence ? NULL : d->classes ? "accuracy" : "mae";
    *loss_name = sequence ? "" : loss;
    return gd_compile(
        net, .optimizer = optimizer, .schedule = o.schedule, .loss = sequence ? NULL : loss,
        .loss_function = sequence ? sequence_loss : NULL, .metrics = metrics,
        .precision = o.precision, .accumulate = (int)o.accumulate, .clip_norm = o.clip);
}

static gd_status load_weights(gd_module *net, gd_tensors sample) {
    gd_tensor *x = gd_unsqueeze(sample.at[0], 0);
    gd_load_report report;
    gd_module_build(net, x);
    const gd_status status =
        gd_load_state_with(o.weights, gd_parts(gd_part("", net)), .partial = &report);
    if (status == GD_OK && *report.text)
        fprintf(stderr, "gradus: %s: %s\n", o.weights, report.text);
    return status;
}

static gd_history *fit_net(gd_module *net, const data *d, gd_loader *train, gd_loader *test) {
    gd_callback *list[8];
    int64_t n = 0;
    list[n++] = gd_stop_on_nan();
    if (o.patience > 0)
        list[n++] = gd_early_stopping(.monitor = d->test ? "val_loss" : "loss",
                                      .patience = o.patience, .restore_best = true);
    if (o.log) list[n++] = gd_csv_log(o.log);
    if (o.tensorboard) list[n++] = gd_tensorboard(o.tensorboard);
    if (o.checkpoints) list[n++] = gd_checkpoint(o.checkpoints, .every_steps = o.every);
    if (gd_failed()) return NULL;
    return gd_fit(net, train, .epochs = o.epochs, .max_steps = o.steps, .validation = test,
                  .callbacks = ((gd_callback_list){list, n}),
                  .resume = o.resume ? o.checkpoints : NULL, .jit = !o.eager,
                  .progress = common.quiet ? GD_PROGRESS_NONE : GD_PROGRESS_AUTO);
}

static void print_json(const gd_history *h, const model_info *a, gd_module *net) {
    json_begin(NULL);
    json_text("model", a->model);
    json_integer("parameters", gd_module_parameter_count(net));
    json_text("out", o.out);
    json_begin_list("epochs");
    for (int64_t row = 0; row < gd_history_rows(h); row++) {
        json_begin(NULL);
        for (int64_t c = 0; c < gd_history_columns(h); c++)
            json_number(gd_history_name(h, c), gd_history_value(h, gd_history_name(h, c), row));
        json_end();
    }
    json_end_list();
    json_end();
    json_line();
}

static int check_options(void) {
    if (!o.model)
        return usage_error(&train_command, "--model is missing; for example --model lenet");
    if (!o.data) return usage_error(&train_command, "--data is missing; for example --data digits");
    if (o.epochs < 1) return usage_error(&train_command, "--epochs must be at least 1");
    if (o.batch < 1) return usage_error(&train_command, "--batch must be at least 1");
    if (o.workers < 0 || o.workers > 64)
        return usage_error(&train_command, "--workers must be from 0 to 64");
    if (o.split < 0 || o.split >= 1)
        return usage_error(&train_command, "--split must be in [0, 1)");
    if (o.resume && !o.checkpoints)
        return usage_error(&train_command, "--resume needs --checkpoints DIR");
    if (o.out && !ends_with(o.out, ".onnx") && !ends_with(o.out, ".safetensors"))
        return usage_error(&train_command, "--out %s: the name must end in .onnx or .safetensors",
                           o.out);
    return DONE;
}

static int run_train(int count, const char **words) {
    if (count)
        return usage_error(&train_command, "unexpected argument '%s'; all settings are options",
                           words[0]);
    const int wrong = check_options();
    if (wrong) return wrong;
    data d;
    model_info a;
    const uint64_t seed = (uint64_t)common.seed;
    if (open_data(o.data, o.validation, o.split, o.augment, o.transform, seed, &d) != GD_OK ||
        !d.train)
        return gd_failed() ? failed() : USAGE;
    gd_module *net = make_model(o.model, &d, &a);
    if (!net) return failed();
    if (o.weights && load_weights(net, d.sample) != GD_OK) return failed();
    gd_loader *train = gd_loader_new(d.train, .batch = o.batch, .shuffle = true, .seed = seed,
                                     .workers = (int)o.workers);
    gd_loader *test =
        d.test ? gd_loader_new(d.test, .batch = o.batch, .workers = (int)o.workers) : NULL;
    if (gd_failed()) return failed();
    const char *loss = NULL;
    if (compile_net(net, &d, &loss) != GD_OK) return failed();
    describe_data(&a, &d, o.transform, loss);
    if (!common.quiet)
        fprintf(stderr, "%s: %lld samples%s%.0lld, batches of %lld\n",
                a.model[0] ? a.model : o.model, (long long)gd_dataset_count(d.train),
                d.test ? ", validated on " : "", (long long)(d.test ? gd_dataset_count(d.test) : 0),
                (long long)o.batch);
    if (o.profile) gd_profiler_start();
    gd_history *h = fit_net(net, &d, train, test);
    if (!h) return failed();
    if (o.profile) {
        gd_profiler_stop();
        if (gd_profiler_table(stderr) != GD_OK) return failed();
    }
    if (o.out && save_model(o.out, net, d.sample, 1, &a) != GD_OK) return failed();
    if (o.curve && gd_history_plot(h, o.curve) != GD_OK) return failed();
    if (common.json) print_json(h, &a, net);
    if (o.out && !common.quiet && !common.json) {
        printf("Saved %s.\n", o.out);
        if (ends_with(o.out, ".onnx") && a.channels)
            printf("Try: %s predict %s IMAGE\n", program, o.out);
    }
    free_model_info(&a);
    return gd_history_interrupted(h) ? INTERRUPTED : DONE;
}

const command train_command = {
    .name = "train",
    .usage = "gradus train --model NET --data KIND:PATH [--out FILE] [options]",
    .summary = "train a net on data",
    .about =
        "Data are given by kind and path. The sizes and the number of classes of the net are "
        "taken\n"
        "from the data. Ctrl-C ends the run after the current batch and saves the model. With\n"
        "--checkpoints and --resume, a run that was stopped or killed continues, and its result "
        "is\n"
        "the same as without the interruption.\n",
    .examples =
        "  gradus train --model lenet --data mnist:DIR --epochs 3 --out m.onnx\n"
        "  gradus train --model resnet20 --data cifar10:DIR --augment \"crop size=32 padding=4, "
        "flip\" \\\n"
        "      --optimizer \"sgd momentum=0.9\" --lr 0.1 --schedule cosine --epochs 100 \\\n"
        "      --checkpoints run --resume --out cifar.onnx --curve cifar.svg\n"
        "  gradus train --model m.onnx --data image_folder:photos,size=28,channels=1 --out "
        "tuned.onnx\n"
        "  gradus train --model mlp --data csv:houses.csv,target=price --out price.onnx\n",
    .options = options,
    .run = run_train};
