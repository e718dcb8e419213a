/* trial.c - runs random nets eagerly, as jits and in sessions, and collects the results. */
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>

#include "compare.h"

const char *net_device;

void free_run(net_run *r) {
    for (int i = 0; i < r->count; i++) {
        free(r->results[i].at);
        free(r->results[i].before);
    }
    free(r->plan);
    *r = (net_run){.count = 0};
}

static void add_result(net_run *r, result_kind kind, int step, int number, gd_tensor *t,
                       gd_tensor *before) {
    if (r->count == MAX_RESULTS) return;
    net_result *at = &r->results[r->count++];
    *at = (net_result){kind,
                       step,
                       number,
                       tensor_numbers(t),
                       before ? tensor_numbers(before) : NULL,
                       gd_tensor_numel(t)};
}

/* --- running ---------------------------------------------------------------------------------- */

const net_mode net_modes[MODES] = {
    [CPU_EXACT] = {"eagerly in f32", .level = -1, .exact = true},
    [CPU_EAGER] = {"eagerly on the CPU", .level = -1},
    [CPU_PLAN] = {"as a plan of the CPU", .level = 2},
    [DEVICE_EAGER] = {"eagerly on the device", true, .level = -1},
    [DEVICE_LEVEL_0] = {"as a plan of level 0 on the device", true, .level = 0},
    [DEVICE_LEVEL_2] = {"as a plan of level 2 on the device", true, .level = 2},
    [DEVICE_TAPED] = {"as a plan that the tape records", true, .level = 2, .taped = true},
    [SESSION_EXACT] = {"in a session in f32", .session = true, .exact = true},
    [SESSION_LEVEL_0] = {"in a session of level 0", true, .session = true},
    [SESSION_LIMITED] = {"in a session with little memory", true, 2, .session = true,
                         .limited = true},
};

static gd_tensors inputs_on(const net *n, int step, gd_device *device) {
    const gd_tensors here = net_inputs(n, step);
    gd_tensor *there[MAX_TENSORS];
    for (int i = 0; i < here.count; i++) there[i] = gd_to_device(here.at[i], device);
    return gd_list_copy((gd_tensors){there, here.count});
}

static void take_steps(net *n, gd_device *device, const net_mode *mode, net_run *r) {
    const gd_body body = mode->taped ? net_values : net_step;
    gd_jit *jit = mode->level >= 0 ? gd_jit_new(body, n, .level = mode->level) : NULL;
    for (int step = 0; step < STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_set_default_device(gd_device_get("cpu"));
        const gd_tensors in = inputs_on(n, step, device);
        gd_set_default_device(device);
        gd_seed(n->seed + (uint64_t)step);
        const gd_tensors out = jit && !mode->taped ? gd_jit_call(jit, in) : step_with(n, in, jit);
        for (int i = 0; i < out.count && !gd_failed(); i++)
            add_result(r, OUTPUT, step, i, out.at[i], NULL);
        if (jit && step == 0 && !gd_failed()) r->plan = gd_jit_plan_text(jit, in);
    }
}

/* The step as a graph. Returns the number of fetches: the loss, values of layers, the update. */
static int build_graph(net *n, gd_tensors inputs, gd_tensor **places, gd_tensor **fetches) {
    const step_options o = draw_step(n);
    for (int i = 0; i < inputs.count; i++)
        places[i] =
            gd_placeholder(gd_tensor_shape(inputs.at[i]), .dtype = gd_tensor_dtype(inputs.at[i]));
    fetches[0] = net_loss(n, (gd_tensors){places, inputs.count}, 0);
    for (int i = 0; i < n->n_fetches; i++) fetches[1 + i] = n->fetches[i];
    fetches[1 + n->n_fetches] =
        gd_minimize(n->optimizer, fetches[0], .clip_norm = o.clips_norm ? 0.5 : 0,
                    .clip_value = o.clips_value ? CLIP_VALUE(n) : 0, .loss_scale = n->loss_scale);
    return 2 + n->n_fetches;
}

/* A session with as much of the memory of a plan without a limit as it needs at least. */
static gd_session *limit_session(gd_graph *graph, gd_device *device, gd_tensors feeds,
                                 gd_tensors fetches) {
    static const double parts[] = {0.5, 0.7, 0.85, 1.5};
    gd_session *s = gd_session_new(graph, .device = device);
    gd_plan_memory memory = {0};
    gd_session_plan(s, feeds, fetches, &memory);
    for (int i = 0; i < 4 && !gd_failed(); i++) {
        const int64_t limit = (int64_t)(parts[i] * (double)memory.peak_bytes) + 1;
        s = gd_session_new(graph, .device = device, .memory_limit = limit);
        if (gd_session_plan(s, feeds, fetches, NULL) == GD_OK || i == 3) break;
        gd_clear_error();
    }
    return s;
}

static void run_session(net *n, gd_device *device, const net_mode *mode, net_run *r) {
    gd_graph *graph = gd_graph_new();
    gd_tensor *places[MAX_TENSORS], *fetches[MAX_FETCHES + 2], *feeds[2 * MAX_TENSORS];
    gd_session *session = NULL;
    const gd_tensors first = net_inputs(n, 0);
    int count;
    gd_set_default_device(device);
    {
        GD_GRAPH(graph);
        count = build_graph(n, first, places, fetches);
    }
    for (int step = 0; step < STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_set_default_device(gd_device_get("cpu"));
        const gd_tensors in = inputs_on(n, step, device);
        gd_set_default_device(device);
        gd_seed(n->seed);
        for (int i = 0; i < in.count; i++) feeds[2 * i] = places[i], feeds[2 * i + 1] = in.at[i];
        const gd_tensors fed = {feeds, 2 * in.count}, fetched = {fetches, count};
        if (!session)
            session = gd_retain(
                mode->limited ? limit_session(graph, device, fed, fetched)
                              : gd_session_new(graph, .device = device, .level = mode->level));
        if (step == 0 && !gd_failed()) r->plan = gd_session_plan_text(session, fed, fetched);
        const gd_tensors out = gd_session_run(session, fed, fetched);
        for (int i = 0; i < count - 1 && !gd_failed(); i++)
            add_result(r, OUTPUT, step, i, out.at[i], NULL);
    }
    gd_release(session);
}

void run_net(const net *built, int mode, net_run *r) {
    GD_SCOPE;
    const net_mode *m = &net_modes[mode];
    gd_device *device = gd_device_get(m->elsewhere ? net_device : "cpu");
    r->count = 0;
    r->error[0] = 0;
    gd_set_default_device(device);
    net n = copy_net(built, device);
    n.exact = m->exact;
    n.in_graph = m->session;
    make_optimizer(&n);
    if (m->session) run_session(&n, device, m, r);
    else take_steps(&n, device, m, r);
    for (int i = 0; i < n.n_tensors && !gd_failed(); i++) {
        if (n.roles[i] == NET_PARAMETER || n.roles[i] == NET_FROZEN)
            add_result(r, CHANGE, 0, i, n.tensors[i], built->tensors[i]);
        if (n.roles[i] == NET_BUFFER) add_result(r, BUFFER, 0, i, n.tensors[i], NULL);
    }
    for (int i = 0; i < n.n_tensors && !gd_failed(); i++)
        if (n.roles[i] == NET_PARAMETER && gd_tensor_grad(n.tensors[i]))
            add_result(r, GRADIENT, 0, i, gd_tensor_grad(n.tensors[i]), NULL);
    if (gd_failed()) snprintf(r->error, sizeof r->error, "%s", gd_error_message());
    gd_clear_error();
    gd_set_default_device(NULL);
}
