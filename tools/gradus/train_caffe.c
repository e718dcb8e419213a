/* train_caffe.c - gradus train --solver, and gradus test: solvers and nets of Caffe. */
#include <signal.h>
#include <string.h>

#include "gradus/caffe.h"
#include "tool.h"

static void print_line(const char *line, void *user) {
    (void)user;
    print_safely(stderr, line);
    fputc('\n', stderr);
}

/* Options of gradus train that the solver's file settles. */
static const char *settled_option(void) {
    static const char *const names[] = {
        "model",      "data",      "validation", "split",    "epochs",  "steps",   "batch",
        "lr",         "optimizer", "schedule",   "loss",     "metrics", "augment", "transform",
        "accumulate", "clip",      "precision",  "patience", "every",   "out",     "profile"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_given(names[i])) return names[i];
    return NULL;
}

/* --- signals ---------------------------------------------------------------------------------- */

static void snapshot_on_signal(int number) {
    (void)number;
    gd_caffe_request_snapshot();
}
static void stop_on_signal(int number) {
    (void)number;
    raise(SIGINT);
}

static int set_effect(const char *name, const char *effect, int number, bool *stops) {
    const bool stop = strcmp(effect, "stop") == 0, snapshot = strcmp(effect, "snapshot") == 0;
    struct sigaction action = {.sa_flags = SA_RESTART};
    if (!stop && !snapshot && strcmp(effect, "none") != 0)
        return usage_error(&train_command, "--%s %s: it must be stop, snapshot or none", name,
                           effect);
    *stops = stop;
    if (number == SIGINT && stop) return DONE; /* gd_fit does it */
    action.sa_handler = snapshot ? snapshot_on_signal : stop ? stop_on_signal : SIG_IGN;
    sigaction(number, &action, NULL);
    return DONE;
}

/* --- training --------------------------------------------------------------------------------- */

static void print_json(const char *name, const gd_history *h) {
    json_begin(NULL);
    json_text(strcmp(name, "solver") == 0 ? "solver" : "model", name);
    json_begin_list("rows");
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

int train_caffe(const caffe_train_options *o) {
    bool stops = true, ignored;
    char stages[400];
    const char *settled = settled_option();
    if (settled)
        return usage_error(&train_command, "--%s: the file of --solver settles it", settled);
    if (o->resume && !o->checkpoints)
        return usage_error(&train_command, "--resume needs --checkpoints DIR");
    if (o->weights && o->snapshot)
        return usage_error(&train_command, "--weights and --snapshot are two beginnings; give one");
    int code = set_effect("sigint-effect", o->sigint_effect, SIGINT, &stops);
    if (!code) code = set_effect("sighup-effect", o->sighup_effect, SIGHUP, &ignored);
    if (code) return code;
    const bool lines = !o->bar && !common.quiet;
    gd_history *h = gd_caffe_train(
        o->solver, .weights = o->weights, .snapshot = o->snapshot, .checkpoints = o->checkpoints,
        .resume = o->resume, .iterations = o->iterations, .dummy = o->dummy, .level = (int)o->level,
        .stages = stage_names(o->stage, stages, sizeof stages), .workers = (int)o->workers,
        .device = common.device, .jit = !o->eager, .interrupt = stops,
        .line = lines ? print_line : ignore_line,
        .progress = o->bar && !common.quiet ? GD_PROGRESS_AUTO : GD_PROGRESS_NONE);
    if (!h) return failed();
    if (common.json) print_json(o->solver, h);
    return gd_history_interrupted(h) ? INTERRUPTED : DONE;
}

/* --- testing ---------------------------------------------------------------------------------- */

static struct {
    const char *model, *weights, *stage, *dummy;
    int64_t iterations, level, workers;
} o = {.iterations = 50, .workers = 1};

static const option options[] = {
    {"model", TEXT, &o.model, "FILE", "the net as text: train_test.prototxt"},
    {"weights", TEXT, &o.weights, "FILE", "its weights: .caffemodel; several with commas"},
    {"iterations", INTEGER, &o.iterations, "N", "in [1, inf): batches (default 50)"},
    {"level", INTEGER, &o.level, "N", "level of the net (default 0)"},
    {"stage", TEXT, &o.stage, "NAMES", "stages of the net, with commas between them"},
    {"workers", INTEGER, &o.workers, "N", "in [0, 64]: threads that prepare batches (default 1)"},
    {"dummy", TEXT, &o.dummy, "SHAPES",
     "random data in place of data layers: \"data=3,227,227 label=1000\""},
    {0}};

static int run_test(int count, const char **words) {
    char stages[400];
    if (count) return usage_error(&test_command, "unexpected argument '%s'", words[0]);
    if (!o.model)
        return usage_error(&test_command, "--model is missing; for example --model net.prototxt");
    if (!o.weights) note("--weights is missing: the net has the values of its fillers");
    gd_history *h = gd_caffe_test(
        o.model, .weights = o.weights, .iterations = o.iterations, .level = (int)o.level,
        .dummy = o.dummy, .stages = stage_names(o.stage, stages, sizeof stages),
        .workers = (int)o.workers, .line = common.quiet || common.json ? ignore_line : print_line);
    if (!h) return failed();
    if (common.json) print_json(o.model, h);
    else if (common.quiet)
        for (int64_t c = 0; c < gd_history_columns(h); c++)
            printf("%s = %g\n", gd_history_name(h, c),
                   gd_history_value(h, gd_history_name(h, c), 0));
    return DONE;
}

const command test_command = {
    .name = "test",
    .usage = "gradus test --model NET.prototxt --weights FILE.caffemodel [--iterations N]",
    .summary = "test a net of Caffe on its data",
    .about =
        "Runs the net of the phase TEST on batches of its data layers, and prints the mean of\n"
        "each output, as `caffe test` does. `gradus eval` is for models that gradus has saved.\n",
    .examples =
        "  gradus test --model lenet_train_test.prototxt --weights lenet_iter_10000.caffemodel "
        "\\\n      --iterations 100\n",
    .options = options,
    .run = run_test};

/* --- shared ----------------------------------------------------------------------------------- */

void ignore_line(const char *line, void *user) { (void)line, (void)user; }

const char *stage_names(const char *text, char *names, size_t size) {
    if (!text) return NULL;
    snprintf(names, size, "%s", text);
    for (char *c = names; *c; c++)
        if (*c == ',') *c = ' ';
    return names;
}
