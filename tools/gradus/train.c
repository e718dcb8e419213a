/* train.c - gradus train: trains a net on data and saves it. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"

static struct {
    const char *model, *data, *validation, *out, *weights;
    const char *optimizer, *schedule, *loss, *metrics, *precision;
    const char *augment, *transform;
    const char *checkpoints, *log, *tensorboard, *curve;
    const char *solver, *snapshot, *dummy, *stage, *sigint_effect, *sighup_effect;
    int64_t iterations, level;
    bool bar;
    int64_t epochs, steps, batch, workers, accumulate, patience, every;
    double lr, split, clip;
    bool resume, eager, profile;
} o = {.optimizer = "adamw",
       .precision = "f32",
       .sigint_effect = "stop",
       .sighup_effect = "snapshot",
       .epochs = 5,
       .batch = 64,
       .workers = 1,
       .accumulate = 1,
       .split = NAN,
       .lr = NAN};

static const option options[] = {
    {"what to train", HEADING, NULL, NULL, NULL},
    {"model", TEXT, &o.model, "NET",
     "a net with options (\"resnet20 classes=10\"; `gradus list nets`), or a saved model.onnx to "
     "train further"},
    {"data", TEXT, &o.data, "KIND:PATH",
     "data, such as mnist:DIR, image_folder:DIR, csv:FILE,target=price, digits (`gradus list "
     "datasets`); a path or value with a comma in quotes: \"csv:'a,b.csv',target=price\""},
    {"validation", TEXT, &o.validation, "KIND:PATH",
     "data to validate on (default: the test part of the data, or --split)"},
    {"split", NUMBER, &o.split, "FRACTION",
     "in [0, 1): part of the samples to hold out for validation if the data have no test part "
     "(default 0.1)"},
    {"out", TEXT, &o.out, "FILE",
     "file of the saved model: .onnx, or .safetensors for the weights only"},
    {"weights", TEXT, &o.weights, "FILE",
     "a .safetensors file of initial weights; tensors that do not match are skipped and listed"},
    {"how to train it", HEADING, NULL, NULL, NULL},
    {"epochs", INTEGER, &o.epochs, "N", "in [1, inf): passes over all samples (default 5)"},
    {"steps", INTEGER, &o.steps, "N", "in [1, inf): end after this many batches"},
    {"batch", INTEGER, &o.batch, "N", "in [1, inf): samples in a batch (default 64)"},
    {"lr", NUMBER, &o.lr, "RATE", "in (0, inf): learning rate (default: the optimizer's)"},
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
     "in [1, 1000000]: batches whose gradients are accumulated for a step (default 1)"},
    {"clip", NUMBER, &o.clip, "NORM", "in (0, inf): clip the norm of the gradients"},
    {"precision", TEXT, &o.precision, "DTYPE",
     "dtype of matrix products and convolutions: f32 (default), bf16, f16"},
    {"patience", INTEGER, &o.patience, "N",
     "in [1, inf): stop when validation has not improved for this many epochs, and restore the "
     "best weights"},
    {"workers", INTEGER, &o.workers, "N", "in [0, 64]: threads that prepare batches (default 1)"},
    {"eager", FLAG, &o.eager, NULL, "run op by op, without a compiled plan"},
    {"profile", FLAG, &o.profile, NULL,
     "print a table of all kernels by time to stderr at the end; training is slower"},
    {"what to save", HEADING, NULL, NULL, NULL},
    {"checkpoints", TEXT, &o.checkpoints, "DIR", "save the run in this folder after each epoch"},
    {"every", INTEGER, &o.every, "N", "in [1, inf): also save after every N batches"},
    {"resume", FLAG, &o.resume, NULL,
     "continue from the newest checkpoint in --checkpoints, if there is one"},
    {"log", TEXT, &o.log, "FILE", "write a CSV file with a row for each epoch"},
    {"tensorboard", TEXT, &o.tensorboard, "DIR", "write event files for TensorBoard"},
    {"curve", TEXT, &o.curve, "FILE", "draw the training curves as an SVG image"},
    {"solvers of Caffe", HEADING, NULL, NULL, NULL},
    {"solver", TEXT, &o.solver, "FILE",
     "trains as a solver.prototxt says, with Caffe's log; --weights takes a .caffemodel"},
    {"snapshot", TEXT, &o.snapshot, "FILE", "continues from a .solverstate, of Caffe or of gradus"},
    {"iterations", INTEGER, &o.iterations, "N", "in [1, inf): end after this many iterations"},
    {"level", INTEGER, &o.level, "N", "level of the net (default: that of the solver)"},
    {"stage", TEXT, &o.stage, "NAMES", "further stages of the net, with commas between them"},
    {"dummy", TEXT, &o.dummy, "SHAPES",
     "random data in place of data layers: \"data=3,227,227 label=1000\""},
    {"bar", FLAG, &o.bar, NULL, "show a bar in place of the log"},
    {"sigint-effect", TEXT, &o.sigint_effect, "EFFECT",
     "of Ctrl-C: stop (default; after a snapshot), snapshot or none"},
    {"sighup-effect", TEXT, &o.sighup_effect, "EFFECT",
     "of the signal HUP: snapshot (default), stop or none"},
    {0}};

static gd_status compile_net(gd_module *net, const data *d, const char **loss_name) {
    char optimizer[300];
    if (isnan(o.lr)) snprintf(optimizer, sizeof optimizer, "%s", o.optimizer);
    else snprintf(optimizer, sizeof optimizer, "%s lr=%.17g", o.optimizer, o.lr);
    gd_compile_options compile = {.optimizer = optimizer,
                                  .schedule = o.schedule,
                                  .precision = o.precision,
                                  .accumulate = (int)o.accumulate,
                                  .clip_norm = o.clip};
    *loss_name = set_task(&compile, d->sample, d->classes, o.loss, o.metrics);
    return gd_compile_at(NULL, net, &compile);
}

static int load_weights(gd_module *net, gd_tensors sample) {
    gd_load_report report;
    if (build_net(net, sample) != GD_OK) return failed();
    if (gd_load_state_with(o.weights, gd_parts(gd_part("", net)), .partial = &report) != GD_OK)
        return failed();
    if (report.loaded == 0)
        return fail("--weights %s: nothing of it fits %s: %s", o.weights, o.model, report.text);
    if (*report.text) fprintf(stderr, "gradus: %s: %s\n", o.weights, report.text);
    return DONE;
}

/* A schedule with an open length has that of the run: "cosine steps=44". */
static const char *whole_schedule(gd_loader *train, char *text, size_t size) {
    char name[64];
    if (!o.schedule) return "";
    snprintf(name, sizeof name, "%.*s", (int)strcspn(o.schedule, " "), o.schedule);
    const gd_op *record = gd_record_get("schedule", name);
    bool open = false;
    for (int i = 0; record && i < gd_op_attr_count(record); i++)
        open |= strcmp(gd_op_attr_at(record, i)->name, "steps") == 0;
    const char *warmup = strstr(o.schedule, " warmup=");
    const int64_t batches = gd_loader_batches(train), group = o.accumulate,
                  of_epoch = (batches + group - 1) / group;
    int64_t steps = o.epochs * of_epoch;
    if (o.steps > 0 && batches > 0) {
        const int64_t limit =
            o.steps / batches * of_epoch + (o.steps % batches + group - 1) / group;
        if (limit < steps) steps = limit;
    }
    if (warmup) steps -= strtoll(warmup + 8, NULL, 10);
    if (!open || strstr(o.schedule, " steps=")) snprintf(text, size, "%s", o.schedule);
    else snprintf(text, size, "%s steps=%lld", o.schedule, (long long)(steps > 1 ? steps : 1));
    return text;
}

static void add_settings(const data *d, gd_loader *train, const char *model) {
    char text[400];
    add_setting("--model", model);
    add_setting("--validation", o.validation);
    add_setting_number("--split", o.split);
    add_setting("--augment", o.augment);
    add_setting("--transform", o.transform);
    add_setting_number("--seed", (double)common.seed);
    add_setting("--data", o.data);
    add_data_setting(d);
    add_setting_number("--batch", (double)o.batch);
    add_setting_number("--accumulate", (double)o.accumulate);
    add_setting("--optimizer", o.optimizer);
    add_setting("--schedule", whole_schedule(train, text, sizeof text));
    add_setting("--loss", o.loss);
    add_setting("--metrics", o.metrics);
    add_setting("--weights", o.weights);
    add_setting_number("--clip", o.clip);
    add_setting("--precision", o.precision);
    add_setting("--eager", o.eager ? "given" : "");
    if (isnan(o.lr)) *text = '\0';
    else snprintf(text, sizeof text, "%g", o.lr);
    add_kept_setting("--lr", text, "the rate of its checkpoint");
    const char *device = gd_device_name(gd_default_device());
    snprintf(text, sizeof text, "%.*s", (int)strcspn(device, ":"), device);
    add_open_setting("--device", text,
                     "the new one, and its result has other bits than that of one device");
}

static gd_history *fit_net(gd_module *net, gd_loader *train, gd_loader *test) {
    gd_callback *list[8];
    int64_t n = 0;
    list[n++] = gd_stop_on_nan();
    if (o.patience > 0)
        list[n++] =
            gd_early_stopping(.monitor = "val_loss", .patience = o.patience, .restore_best = true);
    if (o.log) list[n++] = gd_csv_log(o.log);
    if (o.tensorboard) list[n++] = gd_tensorboard(o.tensorboard);
    if (o.checkpoints) list[n++] = settings_callback();
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

/* A file is written beside its final name, NAME.tmp-16, and then renamed. */
static int check_name(const char *name, const char *path, const char *folder) {
    const char *slash = strrchr(path, '/');
    const size_t length = strlen(slash ? slash + 1 : path), more = strlen(".tmp-16");
    const long most = pathconf(folder, _PC_NAME_MAX);
    if (most < 0 || length + more <= (size_t)most) return DONE;
    return fail("--%s %s: the name has %zu characters; at most %ld fit, as the file has %zu more "
                "while it is written",
                name, path, length, most - (long)more, more);
}

/* Whether the file can be replaced by a new one: in a sticky folder, such as /tmp, only the owner of
 * one of them may. */
static int check_replaceable(const char *name, const char *path, const char *folder,
                             const struct stat *above) {
    struct stat file;
    if (stat(path, &file) != 0) return DONE;
    if (S_ISDIR(file.st_mode)) return fail("--%s %s: it is a folder", name, path);
    if (!S_ISREG(file.st_mode))
        return fail("--%s %s: it exists and is no regular file; give the name of a new file", name,
                    path);
    const uid_t user = geteuid();
    if (user == 0 || file.st_uid == user || above->st_uid == user || !(above->st_mode & S_ISVTX))
        return DONE;
    return fail(
        "--%s %s: it belongs to another user, and in the sticky folder %s only that one can "
        "replace it; give another name",
        name, path, folder);
}

/* The path of the file that is written: a link is followed, if there is a file. */
static bool find_target(const char *path, char target[PATH_MAX]) {
    struct stat info;
    const bool link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    char *real = link ? realpath(path, NULL) : NULL;
    const int length = snprintf(target, PATH_MAX, "%s", real ? real : path);
    free(real);
    return length < PATH_MAX;
}

/* Whether a file can be written; said before the training. */
static int check_writable(const char *name, const char *path) {
    char target[PATH_MAX], folder[PATH_MAX], probe[PATH_MAX + 32];
    struct stat above;
    if (!path) return DONE;
    if (!find_target(path, target)) return fail("--%s %s: the path is too long", name, path);
    strcpy(folder, target);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    else strcpy(folder, ".");
    if (stat(folder, &above) != 0 || !S_ISDIR(above.st_mode))
        return fail("--%s %s: there is no folder %s", name, path, folder);
    int code = check_replaceable(name, path, folder, &above);
    if (code == DONE) code = check_name(name, target, folder);
    if (code != DONE) return code;
    /* permissions do not tell for root, and for file systems that make no files */
    snprintf(probe, sizeof probe, "%s/.gradus-XXXXXX", folder);
    const int file = mkstemp(probe);
    if (file < 0)
        return fail("--%s %s: no file can be written in the folder %s: %s", name, path, folder,
                    strerror(errno));
    close(file);
    unlink(probe);
    return DONE;
}

static int check_outputs(void) {
    int code = check_writable("out", o.out);
    if (!code) code = check_writable("curve", o.curve);
    if (!code) code = check_writable("log", o.log);
    return code;
}

static int check_options(void) {
    static const char *const of_solvers[] = {"snapshot", "iterations", "level",
                                             "stage",    "dummy",      "bar"};
    const command *c = &train_command;
    for (size_t i = 0; i < sizeof of_solvers / sizeof *of_solvers; i++)
        if (is_given(of_solvers[i]))
            return usage_error(c, "--%s is for solvers of Caffe: it needs --solver", of_solvers[i]);
    if (!o.model) return usage_error(c, "--model is missing; for example --model lenet");
    if (!o.data) return usage_error(c, "--data is missing; for example --data digits");
    if (o.resume && !o.checkpoints) return usage_error(c, "--resume needs --checkpoints DIR");
    if (o.every && !o.checkpoints)
        return usage_error(c, "--every needs --checkpoints DIR, where it saves");
    if (o.validation && !isnan(o.split))
        return usage_error(c, "--validation and --split are two sources of validation; give one");
    if (isnan(o.split)) o.split = 0.1;
    if (o.out && !ends_with(o.out, ".onnx") && !ends_with(o.out, ".safetensors"))
        return usage_error(c, "--out %s: the name must end in .onnx or .safetensors", o.out);
    if (o.curve && !ends_with(o.curve, ".svg"))
        return usage_error(c, "--curve %s: the name must end in .svg; curves are SVG images",
                           o.curve);
    if (!isnan(o.lr) && strstr(o.optimizer, " lr="))
        return usage_error(c, "--lr %g and --optimizer \"%s\" are two learning rates", o.lr,
                           o.optimizer);
    if (o.transform && strlen(o.transform) >= sizeof((model_info *)0)->transform)
        return usage_error(c, "--transform is longer than a saved model can hold");
    if (!o.out && !o.checkpoints) note("nothing will be saved; --out FILE.onnx saves the model");
    else if (!o.out) note("only checkpoints will be saved; --out FILE.onnx saves the model");
    return check_outputs();
}

/* "lenet: 900 samples, validated on 100, batches of 64" */
static void print_plan(const char *model, const data *d) {
    if (common.quiet) return;
    fprintf(stderr, "%s: %lld samples", model, (long long)gd_dataset_count(d->train));
    if (d->test) fprintf(stderr, ", validated on %lld", (long long)gd_dataset_count(d->test));
    fprintf(stderr, ", batches of %lld\n", (long long)o.batch);
}

/* If the net cannot be saved as ONNX, its weights are saved. */
static int save_out(gd_module *net, const data *d, const model_info *a) {
    if (!o.out || save_model(o.out, net, d->sample, 1, a) == GD_OK) return DONE;
    const int code = failed();
    char weights[4096];
    snprintf(weights, sizeof weights, "%.4000s.safetensors", o.out);
    gd_clear_error();
    if (!ends_with(o.out, ".onnx") || gd_save_state(weights, gd_part("", net)) != GD_OK)
        return code;
    fprintf(stderr, "gradus: the weights are saved in %s\n", weights);
    return code;
}

static void print_saved(const model_info *a) {
    if (!o.out || common.quiet || common.json) return;
    printf("Saved %s.\n", o.out);
    if (!ends_with(o.out, ".onnx")) return;
    if (a->channels) printf("Try: %s predict %s IMAGE\n", program, o.out);
    if (a->layout) printf("Try: %s predict %s ROWS.csv\n", program, o.out);
    if (a->length) printf("Try: %s predict %s --text TEXT\n", program, o.out);
}

/* Trains and saves. */
static int train_net(gd_module *net, const data *d, model_info *a) {
    const char *loss = NULL;
    gd_loader *train = gd_loader_new(d->train, .batch = o.batch, .shuffle = true,
                                     .seed = (uint64_t)common.seed, .workers = (int)o.workers);
    gd_loader *test =
        d->test ? gd_loader_new(d->test, .batch = o.batch, .workers = (int)o.workers) : NULL;
    if (gd_failed() || compile_net(net, d, &loss) != GD_OK) return failed();
    describe_data(a, d, o.transform, loss);
    const char *model = a->model[0] ? a->model : o.model;
    print_plan(model, d);
    if (o.checkpoints) add_settings(d, train, model);
    if (gd_failed()) return failed();
    int code = o.resume ? check_settings(o.checkpoints) : DONE;
    if (code != DONE) return code;
    if (o.profile) gd_profiler_start();
    gd_history *h = fit_net(net, train, test);
    if (!h) return failed();
    if (o.resume && !has_trained() && gd_history_rows(h) > 0)
        note("--resume: the run in %s has already ended: it has %lld epochs; a greater --epochs "
             "continues it",
             o.checkpoints, (long long)gd_history_rows(h));
    if (o.profile) {
        gd_profiler_stop();
        if (gd_profiler_table(stderr) != GD_OK) return failed();
    }
    code = save_out(net, d, a);
    if (code != DONE) return code;
    if (o.curve && gd_history_plot(h, o.curve) != GD_OK) return failed();
    if (common.json) print_json(h, a, net);
    print_saved(a);
    return gd_history_interrupted(h) ? INTERRUPTED : DONE;
}

static int run_train(int count, const char **words) {
    data d;
    model_info a;
    if (count)
        return usage_error(&train_command, "unexpected argument '%s'; all settings are options",
                           words[0]);
    if (o.solver)
        return train_caffe(&(caffe_train_options){.solver = o.solver,
                                                  .weights = o.weights,
                                                  .snapshot = o.snapshot,
                                                  .checkpoints = o.checkpoints,
                                                  .dummy = o.dummy,
                                                  .stage = o.stage,
                                                  .level = o.level,
                                                  .sigint_effect = o.sigint_effect,
                                                  .sighup_effect = o.sighup_effect,
                                                  .iterations = o.iterations,
                                                  .workers = o.workers,
                                                  .resume = o.resume,
                                                  .bar = o.bar,
                                                  .eager = o.eager});
    int code = check_options();
    if (code != DONE) return code;
    const data_options from = {.spec = o.data,
                               .validation = o.validation,
                               .split = o.split,
                               .augment = o.augment,
                               .transform = o.transform,
                               .seed = (uint64_t)common.seed};
    code = open_data(&from, &d);
    if (code != DONE) return code;
    if (o.patience && !d.test)
        return usage_error(&train_command, "--patience needs samples to validate on (--validation "
                                           "or --split), and there are none");
    gd_module *net = make_model(o.model, &d, &a);
    if (!net) return FAILED;
    code = o.weights ? load_weights(net, d.sample) : DONE;
    if (code == DONE) code = train_net(net, &d, &a);
    free_model_info(&a);
    return code;
}

const command train_command = {
    .name = "train",
    .usage = "gradus train --model NET --data KIND:PATH [--out FILE] [options]\n"
             "       gradus train --solver SOLVER.prototxt [options]",
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
        "  gradus train --model mlp --data csv:houses.csv,target=price --out price.onnx\n"
        "  gradus train --model gpt --data text:book.txt,length=128 --out gpt.onnx\n"
        "  gradus train --solver lenet_solver.prototxt --device cuda\n",
    .options = options,
    .run = run_train};
