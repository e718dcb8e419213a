/* solver_nets.c - the net that a solver trains, and those that it tests.
 *
 * A solver names one net to train: net, net_param, train_net or train_net_param. It tests the nets of
 * test_net_param, then those of test_net, and then net (or net_param) for each further test_iter. A net is
 * in the phase and the state of the solver. Nets to test share the parameters of the net to train.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "caffe/net_build.h"
#include "caffe/read.h"
#include "caffe/solver.h"
#include "core/alloc.h"
#include "core/grow.h"
#include "core/thread.h"
#include "dispatch/intern.h"

enum { MAX_STAGES = 64 };

/* Where a net is. */
typedef struct source {
    const char *field; /* "net" */
    const gd_pb *message;
    const char *file; /* of the message */
} source;

/* --- sources ---------------------------------------------------------------------------------- */

/* Reads a file of a net once. */
static gd_status read_file(gd_caffe_solver *s, const char *name, source *net) {
    char path[PATH_MAX];
    gd_pb_doc *doc;
    const gd_status status = gd_caffe_find_file(name, s->path, path, sizeof path);
    if (status != GD_OK) {
        char text[GD_MESSAGE_MAX];
        snprintf(text, sizeof text, "%s", gd_latest_failure());
        gd_pb_fail(s->message, "%s: %s", net->field, text);
        snprintf(text, sizeof text, "%s", gd_latest_failure());
        return gd_fail(status, "%s", text);
    }
    for (int i = 0; i < s->n_net_docs; i++)
        if (strcmp(s->net_paths[i], path) == 0) {
            net->message = gd_pb_root(s->net_docs[i]);
            net->file = s->net_paths[i];
            return GD_OK;
        }
    const char *kept = gd_intern(path);
    if (!kept || !gd_grow(s->net_docs, s->n_net_docs, s->net_docs_room) ||
        !gd_grow(s->net_paths, s->n_net_docs, s->net_paths_room))
        return gd_no_memory(s->path, "for a net");
    GD_TRY(gd_caffe_read_net(&doc, path));
    s->net_docs[s->n_net_docs] = doc;
    s->net_paths[s->n_net_docs++] = kept;
    net->message = gd_pb_root(doc);
    net->file = kept;
    return GD_OK;
}

/* The net in a field, a file or a message: value number `i`. */
static gd_status find_net(gd_caffe_solver *s, const char *field, size_t i, source *net) {
    *net = (source){.field = field, .file = s->path};
    const bool inside = strstr(field, "param") != NULL;
    if (!inside) return read_file(s, gd_pb_string_at(s->message, field, i), net);
    net->message = gd_pb_message_at(s->message, field, i);
    return GD_OK;
}

/* --- states ----------------------------------------------------------------------------------- */

static gd_status merge_state(const gd_pb *state, gd_caffe_net_settings *settings,
                             const char *stages[MAX_STAGES]) {
    if (gd_pb_has(state, "level")) settings->level = (int)gd_pb_int_of(state, "level");
    for (size_t i = 0; i < gd_pb_count(state, "stage"); i++) {
        if (settings->n_stages == MAX_STAGES)
            return gd_pb_fail(state, "there are more than %d stages", MAX_STAGES);
        stages[settings->n_stages++] = gd_pb_string_at(state, "stage", i);
    }
    return GD_OK;
}

/* Builds a net in a phase, with its own state and that of the solver; NULL: none. */
static gd_status build_net(gd_caffe_solver *s, const source *from, gd_caffe_phase phase,
                           const gd_pb *state, gd_caffe_text_net **net) {
    const char *stages[MAX_STAGES];
    const gd_caffe_data_options data = {.workers = s->options->workers,
                                        .seed = (uint64_t)s->seed,
                                        .device = s->device,
                                        .dummy = s->options->dummy,
                                        .arrays = s->options->arrays};
    gd_caffe_net_settings settings = {
        .phase = phase, .stages = stages, .data = &data, .share = s->net};
    GD_TRY(merge_state(gd_pb_message_of(from->message, "state"), &settings, stages));
    GD_TRY(merge_state(state, &settings, stages));
    return gd_caffe_net_build(net, from->message, from->file, &settings);
}

/* After all nets are built: they share parameters. */
static gd_status move_nets(const gd_caffe_solver *s) {
    const char *name = gd_device_name(s->device);
    if (s->device == gd_default_device()) return GD_OK;
    GD_TRY(gd_module_to_at(NULL, s->net->module, name, GD_DTYPE_NONE));
    for (int i = 0; i < s->n_tests; i++)
        GD_TRY(gd_module_to_at(NULL, s->tests[i].net->module, name, GD_DTYPE_NONE));
    return GD_OK;
}

/* --- the net to train ------------------------------------------------------------------------- */

static const char *const train_fields[] = {"net", "net_param", "train_net", "train_net_param"};

static void say_source(gd_caffe_solver *s, const source *net) {
    const bool file = net->file != s->path;
    gd_caffe_say(&s->log, "Creating training net from %s%s", file ? "net file: " : net->field,
                 file ? net->file : "");
}

static gd_status open_train(gd_caffe_solver *s) {
    const char *field = NULL;
    source net;
    for (size_t i = 0; i < sizeof train_fields / sizeof *train_fields; i++) {
        if (!gd_pb_has(s->message, train_fields[i])) continue;
        if (field)
            return gd_pb_fail(s->message, "the solver has both %s and %s; it trains one net", field,
                              train_fields[i]);
        field = train_fields[i];
    }
    if (!field)
        return gd_pb_fail(s->message, "the solver names no net to train: it needs net, net_param, "
                                      "train_net or train_net_param");
    GD_TRY(find_net(s, field, 0, &net));
    say_source(s, &net);
    return build_net(s, &net, GD_CAFFE_TRAIN, gd_pb_message_of(s->message, "train_state"), &s->net);
}

/* --- nets to test ----------------------------------------------------------------------------- */

static void say_test_source(gd_caffe_solver *s, const source *net, int number) {
    const bool file = net->file != s->path;
    gd_caffe_say(&s->log, "Creating test net (#%d) specified by %s%s", number,
                 file ? (strcmp(net->field, "net") == 0 ? "net file: " : "test_net file: ")
                      : net->field,
                 file ? net->file : "");
}

/* The net for test number `i`. */
static gd_status find_test(gd_caffe_solver *s, size_t i, source *net) {
    const gd_pb *m = s->message;
    const size_t params = gd_pb_count(m, "test_net_param"), files = gd_pb_count(m, "test_net");
    if (i < params) return find_net(s, "test_net_param", i, net);
    if (i < params + files) return find_net(s, "test_net", i - params, net);
    return find_net(s, gd_pb_has(m, "net") ? "net" : "net_param", 0, net);
}

static gd_status count_tests(gd_caffe_solver *s, size_t *count) {
    const gd_pb *m = s->message;
    const size_t own = gd_pb_count(m, "test_net_param") + gd_pb_count(m, "test_net"),
                 iters = gd_pb_count(m, "test_iter"), states = gd_pb_count(m, "test_state");
    const bool more = gd_pb_has(m, "net") || gd_pb_has(m, "net_param");
    *count = iters;
    if (iters < own || (iters > own && !more))
        return gd_pb_fail(m, "there are %zu nets to test, but %zu test_iter: each net needs one%s",
                          own, iters, more ? "" : ", and a further one needs net or net_param");
    if (states > 0 && states != iters)
        return gd_pb_fail(m, "there are %zu test_state, but %zu nets to test (test_iter)", states,
                          iters);
    if (iters > 0 && gd_pb_int_of(m, "test_interval") < 1)
        return gd_pb_fail(m,
                          "test_interval is %lld, but there are nets to test; it must be at "
                          "least 1",
                          (long long)gd_pb_int_of(m, "test_interval"));
    for (size_t i = 0; i < iters; i++)
        if (gd_pb_get(m, "test_iter")->ints[i] < 1)
            return gd_pb_fail(m, "test_iter is %lld; it must be at least 1",
                              (long long)gd_pb_get(m, "test_iter")->ints[i]);
    return GD_OK;
}

static gd_status open_test(gd_caffe_solver *s, size_t i) {
    source net;
    gd_caffe_tested *t = &s->tests[s->n_tests];
    const gd_pb *state = i < gd_pb_count(s->message, "test_state")
                             ? gd_pb_message_at(s->message, "test_state", i)
                             : NULL;
    GD_TRY(find_test(s, i, &net));
    say_test_source(s, &net, (int)i);
    GD_TRY(build_net(s, &net, GD_CAFFE_TEST, state, &t->net));
    s->n_tests++;
    t->iterations = gd_pb_get(s->message, "test_iter")->ints[i];
    if (t->net->data) return GD_OK;
    return gd_pb_fail(net.message, "the net to test (#%zu) has no data layers", i);
}

gd_status gd_caffe_solver_open_nets(gd_caffe_solver *s) {
    size_t count;
    GD_TRY(count_tests(s, &count));
    GD_TRY(open_train(s));
    if (!s->net->data)
        return gd_pb_fail(s->message, "the net to train, %s, has no data layers in this phase",
                          s->net->file);
    if (!(s->tests = gd_calloc(count + 1, sizeof *s->tests)))
        return gd_no_memory(s->path, "for a solver");
    for (size_t i = 0; i < count; i++) GD_TRY(open_test(s, i));
    /* sharing a parameter with a net to test has thawed it */
    GD_TRY(gd_caffe_freeze_parameters(s->net));
    return move_nets(s);
}

void gd_caffe_solver_close_nets(gd_caffe_solver *s) {
    for (int i = 0; i < s->n_tests; i++) gd_caffe_test_close(&s->tests[i]);
    gd_free(s->tests);
    gd_caffe_net_free(s->net);
    for (int i = 0; i < s->n_net_docs; i++) gd_pb_free(s->net_docs[i]);
    gd_free(s->net_docs);
    gd_free(s->net_paths);
}
