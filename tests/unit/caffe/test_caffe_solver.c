/* test_caffe_solver.c - trainings by solvers of Caffe.
 *
 * tests/golden/caffe_solver.txt has 20 iterations of Caffe for each solver and rate policy, which
 * tests/caffe/against_solver.py --record writes, and caffe_solver.caffemodel the weights that they start
 * from. tests/caffe/against_solver.py compares 200 iterations, and snapshots in both directions.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clean_test.h"
#include "gradus/gradus.h"
#include "backend/test/device.h"
#include "caffe/net.h"
#include "child.h"
#include "caffe_data.h"
#include "files.h"
#include "fuzz/damage.h"
#include "temp.h"

enum { ITERATIONS = 20, SNAPSHOT = 10, LINE = 1000, TESTS = 3 };

/* --- the golden file -------------------------------------------------------------------------- */

typedef struct test_case {
    char name[80], fields[LINE];
    double losses[ITERATIONS], again[ITERATIONS - SNAPSHOT], tests[TESTS], sum;
} test_case;

static char net_text[8000], common_text[LINE];
static test_case cases[40];
static int n_cases;

static void read_numbers(const char *text, double *values, int count) {
    for (int i = 0; i < count; i++) {
        char *end;
        values[i] = strtod(text, &end);
        CHECK(end > text);
        text = end;
    }
}

static void read_line(const char *line) {
    test_case *c = &cases[n_cases ? n_cases - 1 : 0];
    const char *rest = strchr(line, ' ');
    rest = rest ? rest + 1 : "";
    if (strncmp(line, "net ", 4) == 0) {
        const size_t used = strlen(net_text);
        snprintf(net_text + used, sizeof net_text - used, "%s\n", rest);
    } else if (strncmp(line, "common ", 7) == 0) snprintf(common_text, LINE, "%s", rest);
    else if (strncmp(line, "solver ", 7) == 0)
        snprintf(cases[n_cases++].name, sizeof c->name, "%s", rest);
    else if (strncmp(line, "fields ", 7) == 0) snprintf(c->fields, LINE, "%s", rest);
    else if (strncmp(line, "losses ", 7) == 0) read_numbers(rest, c->losses, ITERATIONS);
    else if (strncmp(line, "again ", 6) == 0) read_numbers(rest, c->again, ITERATIONS - SNAPSHOT);
    else if (strncmp(line, "tests ", 6) == 0) read_numbers(rest, c->tests, TESTS);
    else if (strncmp(line, "sum ", 4) == 0) read_numbers(rest, &c->sum, 1);
}

/* Reads the cases, and writes the net and the data to the temporary folder. False: there is no liblmdb. */
static bool prepare(void) {
    static bool done;
    char line[LINE];
    if (!caffe_has_databases()) return false;
    if (done) return true;
    FILE *f = fopen(GRADUS_GOLDEN "/caffe_solver.txt", "r");
    while (f && fgets(line, LINE, f)) {
        line[strcspn(line, "\n")] = 0;
        read_line(line);
    }
    CHECK(f && n_cases > 20);
    if (f) fclose(f);
    temp_write_text("net.prototxt", net_text);
    CHECK(caffe_write_database(temp_path("train_lmdb"), 53, 53) == GD_OK);
    CHECK(caffe_write_database(temp_path("heldout_lmdb"), 30, 30) == GD_OK);
    return done = true;
}

/* --- a run ------------------------------------------------------------------------------------ */

/* What the log has said. */
typedef struct heard {
    double losses[ITERATIONS + 1], tests[TESTS];
    int n_tests, snapshots;
    char last[300], all[40000];
} heard;

static void listen(const char *line, void *user) {
    heard *h = user;
    const char *at = strstr(line, "] ");
    int number;
    double value;
    at = at ? at + 2 : line;
    snprintf(h->last, sizeof h->last, "%s", at);
    const size_t used = strlen(h->all);
    snprintf(h->all + used, sizeof h->all - used, "%s\n", line);
    if (sscanf(at, "Iteration %d (%*[^)]), loss = %lf", &number, &value) == 2 &&
        number < ITERATIONS)
        h->losses[number] = value;
    if (sscanf(at, "    Test net output #1: loss = %lf", &value) == 1 && h->n_tests < TESTS)
        h->tests[h->n_tests++] = value;
    h->snapshots += strncmp(at, "Snapshotting to ", 16) == 0;
}

/* Writes a solver whose snapshots begin with `prefix` in the temporary folder. */
static const char *write_solver(const char *fields, const char *prefix) {
    char text[3 * LINE], common[LINE];
    snprintf(common, sizeof common, "%s", common_text);
    char *end = strstr(common, "snapshot_prefix: \"snap\"");
    CHECK(end != NULL);
    if (end) memset(end, ' ', strlen("snapshot_prefix: \"snap\""));
    snprintf(text, sizeof text, "%s %s snapshot_prefix: \"%s\"\n", common, fields,
             temp_path("%s", prefix));
    return temp_write_text("solver.prototxt", text);
}

static gd_caffe_train_options options_for(heard *h) {
    *h = (heard){.n_tests = 0};
    gd_caffe_train_options o = *GD_CAFFE_TRAIN_OPTIONS_();
    o.weights = GRADUS_GOLDEN "/caffe_solver.caffemodel";
    o.line = listen;
    o.line_user = h;
    return o;
}

static double sum_of_weights(gd_module *net) {
    GD_SCOPE;
    double sum = 0;
    const gd_tensors all = gd_module_parameters(net);
    for (int64_t i = 0; i < all.count; i++)
        sum += gd_item(gd_sum(gd_abs(gd_cast(gd_detach(all.at[i]), GD_F64))));
    return sum;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-4 * (1 + fabs(b)); }

/* --- tests ------------------------------------------------------------------------------------ */

CLEAN_TEST(solvers_follow_caffe) {
    static heard h;
    if (!prepare()) return;
    for (int i = 0; i < n_cases; i++) {
        GD_SCOPE;
        const test_case *c = &cases[i];
        gd_module *net = NULL;
        gd_caffe_train_options o = options_for(&h);
        o.net = &net;
        o.jit = i % 2 == 0;
        o.device = i % 3 == 0 ? gd_device_name(gd_test_device()) : NULL;
        const char *path = write_solver(c->fields, c->name);
        gd_history *history = gd_caffe_train_at(NULL, path, &o);
        CHECK_SAYING(history && net, "%s: %s", c->name, gd_error_message());
        if (!history || !net) return;
        for (int k = 0; k < ITERATIONS; k++)
            CHECK_SAYING(near(h.losses[k], c->losses[k]), "%s: loss %d is %g, not %g", c->name, k,
                         h.losses[k], c->losses[k]);
        for (int k = 0; k < TESTS && strcmp(c->name, "two_tests") != 0; k++)
            CHECK_SAYING(near(h.tests[k], c->tests[k]), "%s: test %d is %g, not %g", c->name, k,
                         h.tests[k], c->tests[k]);
        CHECK_SAYING(near(sum_of_weights(net), c->sum), "%s: %g, not %g", c->name,
                     sum_of_weights(net), c->sum);
        CHECK(h.snapshots == 2 && strcmp(h.last, "Optimization Done.") == 0);
        CHECK(gd_history_rows(history) == 2 && gd_history_last(history, "iteration") == 20 &&
              near(gd_history_value(history, "test_loss", 0), c->tests[1]));
    }
}

/* The losses after a restore are Caffe's, which also begins with the first sample then. */
CLEAN_TEST(snapshots_continue) {
    static heard h;
    if (!prepare()) return;
    for (int i = 0; i < n_cases; i++) {
        GD_SCOPE;
        const test_case *c = &cases[i];
        char state[600];
        gd_caffe_train_options o = options_for(&h);
        const char *path = write_solver(c->fields, c->name);
        o.iterations = SNAPSHOT;
        CHECK_SAYING(gd_caffe_train_at(NULL, path, &o), "%s", gd_error_message());
        CHECK(strstr(h.last, "Optimization Done.") == NULL);
        snprintf(state, sizeof state, "%s_iter_10.solverstate%s", temp_path("%s", c->name),
                 strstr(c->fields, "HDF5") ? ".h5" : "");
        o = options_for(&h);
        o.weights = NULL;
        o.snapshot = state;
        const gd_history *history = gd_caffe_train_at(NULL, path, &o);
        CHECK_SAYING(history, "%s: %s", c->name, gd_error_message());
        for (int k = 0; history && k < ITERATIONS - SNAPSHOT; k++)
            CHECK_SAYING(near(h.losses[SNAPSHOT + k], c->again[k]), "%s: loss %d is %g, not %g",
                         c->name, SNAPSHOT + k, h.losses[SNAPSHOT + k], c->again[k]);
    }
}

/* Checkpoints also keep the place in the data, so an interrupted run ends with the same bits. */
CLEAN_TEST(checkpoints_resume_with_the_same_bits) {
    static heard h;
    if (!prepare()) return;
    for (int i = 0; i < n_cases; i += 5) {
        GD_SCOPE;
        gd_module *net[2] = {NULL, NULL};
        gd_history *history[2];
        const char *folder = temp_new_folder("run"), *path = write_solver(cases[i].fields, "bits");
        for (int k = 0; k < 2; k++) {
            gd_caffe_train_options o = options_for(&h);
            o.net = &net[k];
            o.checkpoints = k ? folder : NULL;
            o.iterations = k ? 13 : 0;
            history[k] = gd_caffe_train_at(NULL, path, &o);
            o.iterations = 0;
            o.resume = true;
            if (k) history[k] = gd_caffe_train_at(NULL, path, &o);
            CHECK_SAYING(history[k], "%s", gd_error_message());
        }
        if (!net[0] || !net[1]) return;
        CHECK_SAYING(sum_of_weights(net[0]) == sum_of_weights(net[1]), "%s", cases[i].name);
        for (int row = 0; row < 2; row++)
            CHECK(gd_history_value(history[0], "test_loss", row) ==
                      gd_history_value(history[1], "test_loss", row) &&
                  gd_history_value(history[0], "loss", row) ==
                      gd_history_value(history[1], "loss", row));
    }
}

/* --- kills ------------------------------------------------------------------------------------ */

/* A run in a child that kills itself at a line of its log; -1: it completes. */
typedef struct killed {
    const char *path, *folder, *prefix;
    int line;
} killed;

static void count_line(const char *line, void *user) {
    killed *k = user;
    (void)line;
    if (k->line-- == 0) raise(SIGKILL);
}

static int run_killed(void *user) {
    killed *k = user;
    gd_caffe_train_options o = *GD_CAFFE_TRAIN_OPTIONS_();
    o.weights = GRADUS_GOLDEN "/caffe_solver.caffemodel";
    o.line = count_line;
    o.line_user = k;
    o.checkpoints = k->folder;
    o.resume = true;
    gd_history *h = gd_caffe_train_at(NULL, k->path, &o);
    if (!h) return 1;
    char text[4000] = "", path[600];
    for (int64_t c = 0; c < gd_history_columns(h); c++) {
        const char *name = gd_history_name(h, c);
        for (int64_t row = 0; row < gd_history_rows(h) && strcmp(name, "seconds") != 0; row++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s %a\n", name,
                     gd_history_value(h, name, row));
    }
    snprintf(path, sizeof path, "%s.txt", k->folder);
    file_write_text(path, text);
    return 0;
}

static void check_same_file(const char *a, const char *b) {
    size_t n = 0, m = 0;
    char *p = file_read(a, &n), *q = file_read(b, &m);
    CHECK_SAYING(p && q && n == m && memcmp(p, q, n) == 0, "%s and %s differ", a, b);
    free(p);
    free(q);
}

TEST(a_run_that_is_killed_again_and_again_ends_with_the_same_bits) {
    if (!prepare()) return;
    char path[2][600], weights[2][600], folder[2][600], results[2][610];
    killed k[2];
    for (int i = 0; i < 2; i++) {
        char text[3 * LINE], common[LINE];
        snprintf(common, sizeof common, "%s", common_text);
        memcpy(strstr(common, "snapshot: 10"), "snapshot: 3 ", 12);
        char *prefix = strstr(common, "snapshot_prefix: \"snap\"");
        memset(prefix, ' ', strlen("snapshot_prefix: \"snap\""));
        snprintf(text, sizeof text,
                 "%s snapshot_prefix: '%s' type: 'Adam' base_lr: 0.002 momentum: 0.9 "
                 "lr_policy: 'inv' gamma: 0.1 power: 0.5 iter_size: 2\n",
                 common, temp_path("killed%d", i));
        snprintf(path[i], sizeof path[i], "%s",
                 temp_write_text(i ? "killed1.prototxt" : "killed0.prototxt", text));
        snprintf(folder[i], sizeof folder[i], "%s", temp_new_folder(i ? "killed" : "complete"));
        snprintf(weights[i], sizeof weights[i], "%s_iter_20.caffemodel", temp_path("killed%d", i));
        snprintf(results[i], sizeof results[i], "%s.txt", folder[i]);
        k[i] = (killed){.path = path[i], .folder = folder[i], .line = -1};
    }
    CHECK(child_run(run_killed, &k[0]) == 0);
    int kills = 0;
    for (int line = 12; line < 200; line += 5) {
        k[1].line = line;
        const int status = child_run(run_killed, &k[1]);
        if (status == 0) break;
        CHECK(status == -1);
        kills++;
    }
    CHECK_SAYING(kills > 5, "%d kills", kills);
    check_same_file(weights[0], weights[1]);
    check_same_file(results[0], results[1]);
}

/* --- the same by hand ------------------------------------------------------------------------- */

static gd_tensor *first_output(gd_tensors outputs, gd_tensors targets, void *user) {
    (void)targets, (void)user;
    return outputs.at[0];
}

/* A net with its data, before the first batch. */
static gd_caffe_text_net *read_net(void) {
    gd_caffe_text_net *net = NULL;
    const gd_caffe_net_settings settings = {.phase = GD_CAFFE_TRAIN};
    CHECK(gd_caffe_net_read(&net, temp_path("net.prototxt"), &settings) == GD_OK);
    if (net) CHECK(gd_caffe_load(GRADUS_GOLDEN "/caffe_solver.caffemodel", net->module) == GD_OK);
    return net;
}

typedef struct loop {
    gd_module *net;
    gd_optimizer *optimizer;
    gd_schedule *schedule;
} loop;

static gd_tensors take_step(gd_tensors batch, void *user) {
    loop *l = user;
    gd_tensor *loss = gd_module_call(l->net, batch).at[0];
    gd_backward(loss);
    gd_optimizer_step(l->optimizer);
    gd_schedule_step(l->schedule);
    gd_optimizer_zero_grad(l->optimizer);
    return gd_listed(loss);
}

static double train_by_loop(gd_caffe_text_net *net, bool jit) {
    loop l = {.net = net->module};
    gd_module_train(net->module);
    l.optimizer = gd_optim_sgd_of(net->module, .lr = 0.02, .momentum = 0.9, .lr_inside = true,
                                  .weight_decay = 0.005);
    for (int i = 0; i < net->n_parameters; i++)
        gd_optimizer_set_factors(l.optimizer, net->parameters[i].tensor,
                                 .lr = net->parameters[i].lr_mult,
                                 .weight_decay = net->parameters[i].decay_mult);
    l.schedule = gd_lr_inverse(l.optimizer, 0.1, .power = 0.5);
    gd_jit *step = jit ? gd_jit_new(take_step, &l) : NULL;
    for (int i = 0; i < ITERATIONS; i++) {
        GD_SCOPE;
        gd_tensors batch;
        gd_loader_next(gd_caffe_data_loader(net->data), &batch);
        if (jit) gd_jit_call(step, batch);
        else take_step(batch, &l);
    }
    return sum_of_weights(net->module);
}

static double train_by_fit(gd_caffe_text_net *net, bool jit) {
    gd_optimizer *o = gd_optim_sgd_of(net->module, .lr = 0.02, .momentum = 0.9, .lr_inside = true,
                                      .weight_decay = 0.005);
    for (int i = 0; i < net->n_parameters; i++)
        gd_optimizer_set_factors(o, net->parameters[i].tensor, .lr = net->parameters[i].lr_mult,
                                 .weight_decay = net->parameters[i].decay_mult);
    gd_compile(net->module, .optimizer_object = o,
               .schedule_object = gd_lr_inverse(o, 0.1, .power = 0.5),
               .loss_function = first_output);
    gd_fit(net->module, gd_caffe_data_loader(net->data), .max_steps = ITERATIONS, .jit = jit,
           .progress = GD_PROGRESS_NONE);
    return sum_of_weights(net->module);
}

CLEAN_TEST(a_solver_fit_and_a_loop_give_the_same_bits) {
    static heard h;
    if (!prepare()) return;
    for (int jit = 0; jit < 2; jit++) {
        GD_SCOPE;
        gd_module *module = NULL;
        gd_caffe_train_options o = options_for(&h);
        o.net = &module;
        o.jit = jit;
        CHECK(
            gd_caffe_train_at(NULL,
                              write_solver("type: 'SGD' base_lr: 0.02 momentum: 0.9 weight_decay: "
                                           "0.005 lr_policy: 'inv' gamma: 0.1 power: 0.5",
                                           "bits"),
                              &o));
        gd_caffe_text_net *a = read_net(), *b = read_net();
        if (!a || !b || !module) return;
        const double by_solver = sum_of_weights(module), by_fit = train_by_fit(a, jit),
                     by_loop = train_by_loop(b, jit);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        CHECK_SAYING(by_solver == by_fit && by_fit == by_loop, "jit %d: %.17g, %.17g, %.17g", jit,
                     by_solver, by_fit, by_loop);
        gd_caffe_net_free(a);
        gd_caffe_net_free(b);
    }
}

CLEAN_TEST(lines_have_glogs_prefix_and_caffes_text) {
    static heard h;
    if (!prepare()) return;
    GD_SCOPE;
    gd_caffe_train_options o = options_for(&h);
    CHECK(gd_caffe_train_at(NULL, write_solver(cases[0].fields, "lines"), &o));
    static const char *const parts[] = {"Initializing solver from parameters: \n",
                                        "Creating training net from net file: ",
                                        "Creating test net (#0) specified by net file: ",
                                        "Solving small\n",
                                        "Learning Rate Policy: fixed\n",
                                        "Iteration 0, Testing net (#0)\n",
                                        "    Test net output #0: accuracy = ",
                                        "    Train net output #0: loss = ",
                                        "Iteration 7, lr = 0.02\n",
                                        "Snapshotting to binary proto file ",
                                        "Snapshotting solver state to binary proto file ",
                                        "Iteration 20, loss = "};
    const char *at = h.all;
    for (size_t i = 0; at && i < sizeof parts / sizeof *parts; i++) {
        at = strstr(h.all, parts[i]);
        CHECK_SAYING(at, "no '%s'", parts[i]);
    }
    char date[20], time[20], place[60];
    int thread;
    CHECK(sscanf(h.all, "I%19s %19s %d %59[^]]] ", date, time, &thread, place) == 4);
    CHECK(strlen(date) == 4 && strlen(time) == 15 && strchr(time, '.') && strstr(place, ".c:"));
}

/* --- requests --------------------------------------------------------------------------------- */

/* Asks for a snapshot at one line, and for the end at another. */
typedef struct asking {
    heard *heard;
    bool asked, ended;
} asking;

static void ask(const char *line, void *user) {
    asking *a = user;
    listen(line, a->heard);
    if (!a->asked && strstr(line, "Iteration 4, lr")) {
        a->asked = true;
        gd_caffe_request_snapshot();
    }
    if (!a->ended && strstr(line, "Iteration 7, lr")) {
        a->ended = true;
        gd_fit_interrupt();
    }
}

CLEAN_TEST(a_run_writes_snapshots_and_stops_when_it_is_asked) {
    static heard h;
    if (!prepare()) return;
    GD_SCOPE;
    asking a = {&h, false, false};
    gd_caffe_train_options o = options_for(&h);
    o.line = ask;
    o.line_user = &a;
    gd_history *history = gd_caffe_train_at(NULL, write_solver(cases[0].fields, "asked"), &o);
    CHECK_SAYING(history && gd_history_interrupted(history), "%s", gd_error_message());
    CHECK(strcmp(h.last, "Optimization stopped early.") == 0 && h.snapshots == 2);
    CHECK(file_exists(temp_path("asked_iter_5.solverstate")) &&
          file_exists(temp_path("asked_iter_8.solverstate")) &&
          !file_exists(temp_path("asked_iter_10.solverstate")));
}

CLEAN_TEST(debug_info_has_lines_for_layers_and_gradients) {
    static heard h;
    if (!prepare()) return;
    GD_SCOPE;
    char fields[LINE];
    snprintf(fields, sizeof fields, "%.900s debug_info: true", cases[0].fields);
    gd_caffe_train_options o = options_for(&h);
    o.iterations = 2;
    CHECK_SAYING(gd_caffe_train_at(NULL, write_solver(fields, "debug"), &o), "%s",
                 gd_error_message());
    static const char *const parts[] = {"[Forward] Layer data, top blob label data: ",
                                        "[Forward] Layer conv1, top blob conv1 data: ",
                                        "[Forward] Layer conv1, param blob 1 data: ",
                                        "[Backward] Layer loss, bottom blob ip2 diff: ",
                                        "[Backward] Layer ip1, bottom blob conv1 diff: ",
                                        "[Backward] Layer ip1, param blob 0 diff: ",
                                        "[Backward] All net params (data, diff): L1 norm = ("};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CHECK_SAYING(strstr(h.all, parts[i]), "no '%s'", parts[i]);
    CHECK(!strstr(h.all, "[Backward] Layer conv1, bottom blob data"));
}

/* --- mistakes --------------------------------------------------------------------------------- */

static void check_message(const char *fields, const char *message) {
    GD_SCOPE;
    gd_clear_error();
    const char *path = temp_write_text("wrong.prototxt", fields);
    CHECK_SAYING(!gd_caffe_train(path) && says(message), "%s: %s", fields, gd_error_message());
    gd_clear_error();
}

#define NET  "net: 'net.prototxt' "
#define RATE "base_lr: 0.1 lr_policy: 'fixed' "

CLEAN_TEST(messages_say_what_would_fit) {
    if (!prepare()) return;
    check_message(RATE "max_iter: 5", "the solver names no net to train");
    check_message("net: 'nowhere.prototxt' " RATE, "nowhere.prototxt");
    check_message(NET "train_net: 'net.prototxt' " RATE, "the solver has both net and train_net");
    check_message(NET RATE "type: 'Sgd'", "there is no type 'Sgd'; there are");
    check_message(NET "base_lr: 0.1 lr_policy: 'stepped'",
                  "there is no lr_policy 'stepped'; there are");
    check_message(NET "base_lr: 0.1", "the solver has no lr_policy");
    check_message(NET RATE "regularization_type: 'L3'",
                  "regularization_type is 'L3'; it can be L2, L1");
    check_message(NET RATE "type: 'AdaGrad' momentum: 0.9", "AdaGrad has no momentum");
    check_message(NET "base_lr: 0.1 lr_policy: 'step' gamma: 0.1",
                  "lr_policy 'step': gd_lr_step: size is 0");
    check_message(NET RATE "test_iter: 5", "test_interval is 0");
    check_message(NET RATE "test_net: 'net.prototxt'", "but 0 test_iter");
    check_message(NET RATE "average_loss: 2000000000", "it must be at most 1000000");
    check_message(NET RATE "iter_size: 0", "iter_size is 0; it must be at least 1");
    check_message(NET RATE "max_itr: 5", "max_itr");
    check_message(NET RATE, "max_iter, the number of iterations, is missing");
    check_message(NET RATE "max_iter: 0", "max_iter, the number of iterations, is 0");
    check_message(NET RATE "snapshot: 5 snapshot_prefix: 'no/such/folder/a'",
                  "there is no folder 'no/such/folder/'");
}

CLEAN_TEST(damaged_snapshots_fail) {
    static heard h;
    if (!prepare()) return;
    GD_SCOPE;
    gd_caffe_train_options o = options_for(&h);
    const char *path = write_solver(cases[0].fields, "damaged");
    CHECK(gd_caffe_train_at(NULL, path, &o));
    size_t bytes;
    char *state = file_read(temp_path("damaged_iter_10.solverstate"), &bytes);
    CHECK(state != NULL);
    o.weights = NULL;
    o.snapshot = temp_path("cut.solverstate");
    for (size_t n = 0; state && n < bytes; n += 1 + bytes / 40) {
        file_write(o.snapshot, state, n);
        CHECK_SAYING(!gd_caffe_train_at(NULL, path, &o) && gd_failed(), "%zu bytes", n);
        gd_clear_error();
    }
    for (int i = 0; state && i < 100;
         i++) { /* some are read: a number of the history has changed */
        size_t size;
        uint8_t *data = damaged_copy(state, bytes, &size);
        file_write(o.snapshot, data, size);
        free(data);
        CHECK(gd_caffe_train_at(NULL, path, &o) || *gd_error_message());
        gd_clear_error();
    }
    free(state);
    /* of another solver */
    o.snapshot = temp_path("damaged_iter_10.solverstate");
    path = write_solver("type: 'Adam' base_lr: 0.1 momentum: 0.9 lr_policy: 'fixed'", "damaged");
    CHECK(!gd_caffe_train_at(NULL, path, &o) && says("the snapshot is of another solver or net"));
    gd_clear_error();
}

TEST_MAIN
