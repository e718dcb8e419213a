/* solver.c - gd_caffe_train: opens a solver, runs gd_fit, and what Caffe does after the last iteration. */
#include "caffe/solver.h"

#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "caffe/read.h"
#include "caffe/solver_rule.h"
#include "caffe/stages.h"
#include "caffe/weights.h"
#include "core/alloc.h"
#include "core/device.h"
#include "core/freed.h"
#include "core/random.h"
#include "core/thread.h"
#include "dispatch/call.h"
#include "gradus/callbacks.h"
#include "nn/module.h"
#include "optim/schedule.h"

enum { MOST_LOSSES = 1000000 }; /* that are kept */

/* --- fields ----------------------------------------------------------------------------------- */

static gd_status read_number(const gd_caffe_solver *s, const char *field, int64_t least,
                             int64_t *value) {
    *value = gd_pb_int_of(s->message, field);
    if (*value >= least) return GD_OK;
    return gd_pb_fail(s->message, "%s is %lld; it must be at least %lld", field, (long long)*value,
                      (long long)least);
}

/* Without snapshot_prefix snapshots get the name of the solver without its ending; in a folder, they go there
 * with that name. */
static gd_status find_prefix(gd_caffe_solver *s) {
    const char *given = gd_pb_string_of(s->message, "snapshot_prefix");
    const char *slash = strrchr(s->path, '/'), *name = slash ? slash + 1 : s->path,
               *dot = strrchr(name, '.');
    const int stem = dot && dot > name ? (int)(dot - name) : (int)strlen(name);
    const size_t length = strlen(given), room = length + strlen(s->path) + 2;
    if (!(s->prefix = gd_malloc(room))) return gd_no_memory(s->path, "for a solver");
    if (length == 0) snprintf(s->prefix, room, "%.*s", (int)(name - s->path) + stem, s->path);
    else if (given[length - 1] == '/') snprintf(s->prefix, room, "%s%.*s", given, stem, name);
    else snprintf(s->prefix, room, "%s", given);
    if (strlen(s->prefix) + 60 < PATH_MAX) return GD_OK;
    return gd_pb_fail(s->message, "snapshot_prefix is too long");
}

static gd_status read_fields(gd_caffe_solver *s) {
    GD_TRY(read_number(s, "max_iter", 0, &s->max_iter));
    GD_TRY(read_number(s, "iter_size", 1, &s->iter_size));
    GD_TRY(read_number(s, "display", 0, &s->display));
    GD_TRY(read_number(s, "average_loss", 1, &s->average_loss));
    if (s->average_loss > MOST_LOSSES)
        return gd_pb_fail(s->message, "average_loss is %lld; it must be at most %d",
                          (long long)s->average_loss, MOST_LOSSES);
    GD_TRY(read_number(s, "test_interval", 0, &s->test_interval));
    GD_TRY(read_number(s, "snapshot", 0, &s->snapshot));
    const int64_t seed = gd_pb_int_of(s->message, "random_seed");
    s->seed = seed < 0 ? 0 : seed > 0 ? seed : INT64_MAX; /* 0 is a seed, too */
    s->test_compute_loss = gd_pb_int_of(s->message, "test_compute_loss") != 0;
    s->debug_info = gd_pb_int_of(s->message, "debug_info") != 0;
    return find_prefix(s);
}

/* The device that the program names, or that of the solver. A file that says GPU also runs where there is
 * none. */
static gd_status find_device(gd_caffe_solver *s) {
    char name[40], known[300];
    const char *mode = gd_pb_word_of(s->message, "solver_mode");
    if (s->options->device) {
        s->device = gd_device_get(s->options->device);
        return s->device ? GD_OK : gd_failure();
    }
    s->device = gd_default_device();
    if (!gd_pb_has(s->message, "solver_mode")) return GD_OK;
    if (strcmp(mode, "CPU") == 0) return s->device = gd_cpu(), GD_OK;
    snprintf(name, sizeof name, "cuda:%lld", (long long)gd_pb_int_of(s->message, "device_id"));
    gd_device *found = gd_device_find(name, known, sizeof known);
    if (found) s->device = found;
    else
        gd_caffe_warn(&s->log, "solver_mode is GPU, but there is no %s: training on %s", name,
                      gd_device_name(s->device));
    return GD_OK;
}

/* --- the optimizer ---------------------------------------------------------------------------- */

static gd_status set_factors(gd_caffe_solver *s) {
    for (int i = 0; i < s->net->n_parameters; i++) {
        const gd_caffe_parameter *p = &s->net->parameters[i];
        if (p->lr_mult == 1 && p->decay_mult == 1) continue;
        const gd_factors factors = {.lr = p->lr_mult, .weight_decay = p->decay_mult};
        GD_TRY(gd_optimizer_set_factors_at(NULL, s->optimizer, p->tensor, &factors));
    }
    return GD_OK;
}

static gd_status make_optimizer(gd_caffe_solver *s) {
    gd_caffe_rule rule;
    GD_TRY(gd_caffe_read_optimizer(s->message, &rule));
    s->optimizer = gd_optimizer_make_of(NULL, rule.factory, s->net->module, rule.options);
    gd_caffe_rule_free(&rule);
    if (!s->optimizer) return gd_failure();
    GD_TRY(set_factors(s));
    GD_TRY(gd_caffe_read_schedule(s->message, &rule));
    s->schedule = gd_schedule_make(NULL, rule.factory, s->optimizer, rule.options);
    gd_caffe_rule_free(&rule);
    return s->schedule ? GD_OK : gd_failure();
}

/* Caffe clips the sum of the gradients of an iteration, and gd_fit their mean. */
static gd_status compile_net(gd_caffe_solver *s) {
    const double clip = gd_pb_float_of(s->message, "clip_gradients");
    gd_compile_options o = *GD_COMPILE_OPTIONS_();
    o.optimizer = NULL;
    o.optimizer_object = s->optimizer;
    o.schedule_object = s->schedule;
    o.loss_function = gd_caffe_run_loss;
    o.loss_user = s;
    o.accumulate = (int)s->iter_size;
    o.clip_norm = clip < 0 ? 0 : clip > 0 ? clip / (double)s->iter_size : DBL_MIN;
    o.clip_eps = 0;
    return gd_compile_at(NULL, s->net->module, &o);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Loads files that the solver names, with commas between them. */
static gd_status load_files(gd_caffe_solver *s, const char *paths) {
    char path[PATH_MAX], found[PATH_MAX];
    for (const char *at = paths; *at;) {
        const size_t n = strcspn(at, ",");
        snprintf(path, sizeof path, "%.*s", (int)n, at);
        GD_TRY(gd_caffe_find_file(path, s->path, found, sizeof found));
        gd_caffe_say(&s->log, "Finetuning from %s", found);
        GD_TRY(gd_caffe_load_weights(found, s->net->module));
        at += n + (at[n] == ',');
    }
    return GD_OK;
}

static gd_status load_weights(gd_caffe_solver *s) {
    const char *weights = s->options->weights;
    if (weights && s->options->snapshot)
        return gd_fail(GD_E_ARGUMENT, "there are weights and a snapshot; give the weights to train "
                                      "from, or the snapshot to continue from");
    if (s->options->snapshot) return gd_caffe_snapshot_restore(s, s->options->snapshot);
    if (weights) {
        gd_caffe_say(&s->log, "Finetuning from %s", weights);
        return gd_caffe_load_weights(weights, s->net->module);
    }
    for (size_t i = 0; i < gd_pb_count(s->message, "weights"); i++)
        GD_TRY(load_files(s, gd_pb_string_at(s->message, "weights", i)));
    return GD_OK;
}

static void say_solver(const gd_caffe_solver *s) {
    char *text;
    size_t bytes;
    if (gd_pb_print_text(s->doc, &text, &bytes) != GD_OK) return;
    gd_caffe_say(&s->log, "Initializing solver from parameters: \n%s", text);
    gd_free(text);
}

/* The level and the stages of the options become those of train_state. */
static gd_status add_state(const gd_caffe_solver *s, gd_pb *message) {
    const char *stages[GD_CAFFE_MAX_STAGES];
    int count;
    GD_TRY(gd_caffe_read_stages(s->options->stages, stages, &count));
    if (count == 0 && s->options->level == 0) return GD_OK;
    const gd_pb_list *given = gd_pb_get(message, "train_state");
    gd_pb *state = given ? given->messages[0] : gd_pb_put_message(message, "train_state");
    if (s->options->level != 0) gd_pb_put_int(state, "level", s->options->level);
    for (int i = 0; i < count; i++) gd_pb_put_string(state, "stage", stages[i]);
    return gd_pb_check(message->doc);
}

static gd_status open_solver(gd_caffe_solver *s) {
    GD_TRY(gd_caffe_read_solver(&s->doc, s->path));
    GD_TRY(add_state(s, gd_pb_root(s->doc)));
    s->message = gd_pb_root(s->doc);
    GD_TRY(read_fields(s));
    GD_TRY(gd_caffe_snapshot_check(s));
    say_solver(s);
    GD_TRY(find_device(s));
    gd_own_rng rng;
    gd_own_rng_begin(&rng, (uint64_t)s->seed);
    /* fillers draw what initializers draw after gd_seed(random_seed) */
    if (s->seed != 0)
        gd_rng_restore((gd_rng){(uint64_t)gd_pb_int_of(s->message, "random_seed"), 0});
    gd_status status = gd_caffe_solver_open_nets(s);
    if (status == GD_OK) status = make_optimizer(s);
    gd_own_rng_end(&rng);
    GD_TRY(status);
    GD_TRY(load_weights(s));
    if (s->max_iter == 0)
        return gd_pb_fail(s->message, "max_iter, the number of iterations, is %s",
                          gd_pb_has(s->message, "max_iter") ? "0" : "missing");
    s->end = s->max_iter;
    if (s->options->iterations > 0 && s->start + s->options->iterations < s->end)
        s->end = s->start + s->options->iterations;
    GD_TRY(gd_caffe_run_open(s));
    GD_TRY(compile_net(s));
    gd_caffe_say(&s->log, "Solver scaffolding done.");
    return GD_OK;
}

static void close_solver(gd_caffe_solver *s) {
    if (s->net) gd_caffe_run_close(s);
    gd_caffe_solver_close_nets(s);
    gd_pb_free(s->doc);
    gd_free(s->prefix);
}

/* --- training --------------------------------------------------------------------------------- */

/* Runs gd_fit. An epoch is a test_interval. */
static gd_status fit(gd_caffe_solver *s, gd_history **history) {
    const gd_caffe_train_options *o = s->options;
    gd_callback *callbacks[2] = {gd_caffe_run_callback(s)};
    int count = 1;
    if (o->checkpoints)
        callbacks[count++] =
            gd_checkpoint(o->checkpoints, .every_steps = s->snapshot * s->iter_size,
                          .every_minutes = s->snapshot > 0 ? 0 : 10, .every_epochs = 0);
    if (gd_failed()) return gd_failure();
    const int64_t interval = s->n_tests > 0 ? s->test_interval : s->end > 0 ? s->end : 1;
    gd_fit_options f = *GD_FIT_OPTIONS_();
    f.max_steps = s->end * s->iter_size;
    f.steps_per_epoch = interval * s->iter_size;
    f.callbacks = (gd_callback_list){callbacks, count};
    f.resume = o->resume ? o->checkpoints : NULL;
    f.seed = (uint64_t)s->seed;
    f.progress = o->progress;
    f.progress_receiver = o->progress_receiver;
    f.interrupt = o->interrupt;
    f.jit = o->jit && !s->debug_info;
    const gd_fit_data data = {.loader = gd_caffe_data_loader(s->net->data)};
    *history = gd_fit_at(NULL, s->net->module, data, &f);
    return *history ? GD_OK : gd_failure();
}

/* The loss of one more batch, as Caffe shows it at the end. It changes no statistics of batch norms, and the
 * batch comes again in a run that continues. */
static gd_status show_last_loss(gd_caffe_solver *s) {
    GD_SCOPE;
    GD_NO_GRAD;
    gd_tensors batch;
    gd_loader *loader = gd_caffe_data_loader(s->net->data);
    const gd_loader_position at = gd_loader_tell(loader);
    if (!gd_loader_next_at(NULL, loader, &batch)) return gd_failed() ? gd_failure() : GD_OK;
    gd_module *net = s->net->module;
    if (gd_module_buffers_so_far(net).count > 0) net = gd_module_clone_at(NULL, net);
    const gd_tensors out = gd_failed() ? (gd_tensors){NULL, 0} : gd_module_run(net, batch);
    if (gd_failed()) return gd_failure();
    gd_caffe_note_loss(s, s->iter, gd_item(gd_caffe_net_loss(s->net, out)));
    gd_loader_stop(loader);
    GD_TRY(gd_loader_seek_at(NULL, loader, at));
    gd_caffe_say(&s->log, "Iteration %lld, loss = %g", (long long)s->iter, gd_caffe_mean_loss(s));
    return gd_failed() ? gd_failure() : GD_OK;
}

/* As Caffe's Solve does after its last iteration; a run of some iterations ends without that. */
static gd_status finish(gd_caffe_solver *s, gd_history *h) {
    const bool early = gd_history_stopped(h) != NULL;
    const bool ends = s->end == s->max_iter || early;
    const int column = gd_history_column(h, "iteration");
    if (column >= 0 && gd_history_rows(h) > 0) gd_history_set(h, column, (double)s->iter);
    if (ends && gd_pb_int_of(s->message, "snapshot_after_train") &&
        (s->snapshot == 0 || s->iter % s->snapshot != 0))
        GD_TRY(gd_caffe_snapshot_write(s));
    if (early) gd_caffe_say(&s->log, "Optimization stopped early.");
    if (early || !ends) return GD_OK;
    if (s->display > 0 && s->iter % s->display == 0) GD_TRY(show_last_loss(s));
    if (s->n_tests > 0 && s->iter % s->test_interval == 0) GD_TRY(gd_caffe_test_all(s, h));
    gd_caffe_say(&s->log, "Optimization Done.");
    return GD_OK;
}

static gd_status train(gd_caffe_solver *s, gd_history **history) {
    GD_TRY(open_solver(s));
    gd_caffe_say(&s->log, "Starting Optimization");
    gd_caffe_say(&s->log, "Solving %s", s->net->name);
    gd_caffe_say(&s->log, "Learning Rate Policy: %s", gd_pb_string_of(s->message, "lr_policy"));
    GD_TRY(fit(s, history));
    return finish(s, *history);
}

/* The net that the program gets is compiled without the loss of the solver, which ends. */
static gd_status release_net(gd_module *net) {
    gd_compile_options o = *GD_COMPILE_OPTIONS_();
    o.optimizer = NULL;
    return gd_compile_at(NULL, net, &o);
}

static gd_status check_options(const char *path, const gd_caffe_train_options *o) {
    if (!path) return gd_fail(GD_E_ARGUMENT, "the path is NULL");
    if (o->iterations < 0)
        return gd_fail(GD_E_ARGUMENT, "iterations is %lld; it must not be negative",
                       (long long)o->iterations);
    if (o->resume && !o->checkpoints)
        return gd_fail(GD_E_ARGUMENT, ".resume needs .checkpoints, the folder to continue from");
    if (o->workers < 0)
        return gd_fail(GD_E_ARGUMENT, "workers is %d; it must not be negative", o->workers);
    return GD_OK;
}

gd_history *gd_caffe_train_at(const char *site, const char *path,
                              const gd_caffe_train_options *options) {
    options = options ? options : GD_CAFFE_TRAIN_OPTIONS_();
    if (gd_failed()) return NULL;
    GD_CALLED_FROM(site);
    gd_history *h = NULL;
    gd_caffe_solver s = {.path = path, .options = options};
    s.log = (gd_caffe_log){options->line, options->line_user};
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = check_options(path, options);
    if (status == GD_OK) status = train(&s, &h);
    if (status == GD_OK) gd_keep(h);
    gd_module *net = status == GD_OK && options->net ? gd_retain(s.net->module) : NULL;
    if (net) status = release_net(net);
    close_solver(&s);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (net) {
        *options->net = gd_hold(net);
        gd_release(net);
    }
    if (status != GD_OK && !strstr(gd_latest_failure(), "gd_caffe_train"))
        gd_error_prefix("gd_caffe_train: ");
    gd_report(site, status);
    return status == GD_OK ? h : NULL;
}
