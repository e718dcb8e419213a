/* control_step.c - kernels that run branches and loops as steps of a plan.
 *
 * The step is a kernel call like any other, with the plans of its subgraphs after its options
 * (plan/bodies.h). Each run borrows an instance of them; nothing is allocated once there is one. A
 * subgraph reads its feeds in place, and its results are copied to the outputs.
 */
#include "graph/run/control_step.h"

#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "graph/control/nodes.h"
#include "graph/plan/bodies.h"
#include "graph/run/plan_run.h"
#include "dispatch/launch.h"

/* --- one call of a subgraph ------------------------------------------------------------------- */

enum { MAX_INPUTS = 256 };

typedef struct planned_body {
    gd_plan *plan;
    gd_instance *instance;
    gd_device *device;
    int n_in;
    gd_tensor *feeds; /* with a dtype and an address only */
    gd_storage *storages;
    gd_tensor **list;
} planned_body;

/* Bytes for the feeds of a subgraph with n inputs, in the step's workspace. */
static size_t feed_bytes(int n) {
    return (size_t)n * (sizeof(gd_tensor) + sizeof(gd_storage) + sizeof(gd_tensor *)) + 64;
}

static gd_status begin_body(planned_body *f, const gd_kernel_call *k, gd_plan *plan, int n_in,
                            void *room) {
    *f = (planned_body){.plan = plan, .device = k->device, .n_in = n_in, .feeds = room};
    f->storages = (gd_storage *)(f->feeds + n_in);
    f->list = (gd_tensor **)(f->storages + n_in);
    memset(room, 0, feed_bytes(n_in) - 64);
    for (int i = 0; i < n_in; i++) {
        f->feeds[i].storage = &f->storages[i];
        f->list[i] = &f->feeds[i];
    }
    return gd_plan_borrow(plan, &f->instance);
}

static void end_body(planned_body *f) {
    if (f->instance) gd_plan_return(f->plan, f->instance);
}

static void feed_body(planned_body *f, int i, const gd_view *view, void *data) {
    f->feeds[i].dtype = (uint8_t)view->dtype;
    f->storages[i].data = data;
}

static gd_status call_body(planned_body *f, gd_rng rng) {
    return gd_plan_run_step(f->plan, f->instance, (gd_tensors){f->list, f->n_in}, NULL, rng.call,
                            rng.seed);
}

/* Copies result k to `data`. */
static gd_status copy_result(const planned_body *f, int k, const gd_view *like, void *data) {
    gd_view from = gd_plan_result_view(f->plan, f->instance, k), to = from;
    if (!like->data) return GD_OK; /* the output is unused */
    to.data = data;
    gd_row_major(to.rank, to.dims, to.strides);
    return gd_copy_view(f->device, &to, &from);
}

/* The value of a condition. On an asynchronous device the host waits for it. */
static gd_status read_condition(gd_device *device, const gd_view *v, bool *holds) {
    char element[8];
    GD_TRY(gd_device_download(device, element, v->data, gd_dtype_size(v->dtype)));
    *holds = gd_load_f64(v->dtype, element) != 0;
    return GD_OK;
}

static size_t view_bytes(const gd_view *v) {
    return (size_t)gd_numel(v->rank, v->dims) * gd_dtype_size(v->dtype);
}

/* Copies input i to output i, the initial state of a loop. Both are row-major. */
static gd_status copy_state(const gd_kernel_call *k, int i) {
    const gd_view *from = &k->in[i], *to = &k->out[i];
    if (!k->device->api->host_reads) return gd_copy_view(k->device, to, from);
    memcpy(to->data, from->data, view_bytes(from));
    return GD_OK;
}

/* --- the steps -------------------------------------------------------------------------------- */

static gd_status run_cond(gd_kernel_call *k, const gd_control_options *p, void *room) {
    bool yes;
    GD_TRY(read_condition(k->device, &k->in[0], &yes));
    planned_body f;
    gd_status status = begin_body(&f, k, p->plan[yes ? 0 : 1], k->n_in - 1, room);
    for (int i = 1; i < k->n_in; i++) feed_body(&f, i - 1, &k->in[i], k->in[i].data);
    if (status == GD_OK) status = call_body(&f, k->rng);
    for (int i = 0; i < k->n_out && status == GD_OK; i++)
        status = copy_result(&f, i, &k->out[i], k->out[i].data);
    end_body(&f);
    return status;
}

/* The outputs hold the state. */
static gd_status run_while(gd_kernel_call *k, const gd_control_options *p, char *room) {
    const int n = (int)p->options.loop.state;
    const int64_t most =
        p->options.loop.max_steps == GD_UNSET ? INT64_MAX : p->options.loop.max_steps;
    planned_body condition = {.plan = NULL}, body = {.plan = NULL};
    gd_status status = begin_body(&condition, k, p->plan[0], k->n_in, room);
    if (status == GD_OK)
        status =
            begin_body(&body, k, p->plan[1], k->n_in, room + (feed_bytes(k->n_in) + 63) / 64 * 64);
    for (int i = 0; i < k->n_in && status == GD_OK; i++) {
        void *data = i < n ? k->out[i].data : k->in[i].data;
        if (i < n) status = copy_state(k, i);
        feed_body(&condition, i, &k->in[i], data);
        feed_body(&body, i, &k->in[i], data);
    }
    for (int64_t step = 0; step < most && status == GD_OK; step++) {
        const gd_rng rng = {.seed = gd_step_hash(k->rng.seed, step), .call = k->rng.call};
        status = call_body(&condition, rng);
        if (status != GD_OK) break;
        const gd_view holds = gd_plan_result_view(condition.plan, condition.instance, 0);
        bool more;
        status = read_condition(k->device, &holds, &more);
        if (status != GD_OK || !more) break;
        status = call_body(&body, rng);
        for (int i = 0; i < n && status == GD_OK; i++)
            status = copy_result(&body, i, &k->out[i], k->out[i].data);
    }
    end_body(&condition);
    end_body(&body);
    return status;
}

static gd_status run_scan(gd_kernel_call *k, const gd_control_options *p, void *room) {
    const gd_scan_graph_options *o = &p->options.scan;
    const int n = (int)o->state, outer = n + (int)o->xs;
    const int64_t steps = k->in[n].dims[0];
    planned_body body;
    gd_status status = begin_body(&body, k, p->plan[0], k->n_in, room);
    for (int i = 0; i < k->n_in && status == GD_OK; i++) {
        void *data = i < n ? k->out[i].data : k->in[i].data;
        if (i < n) status = copy_state(k, i);
        feed_body(&body, i, &k->in[i], data);
    }
    for (int64_t i = 0; i < steps && status == GD_OK; i++) {
        const int64_t t = o->reverse ? steps - 1 - i : i;
        const gd_rng rng = {.seed = gd_step_hash(k->rng.seed, i), .call = k->rng.call};
        for (int j = n; j < outer; j++)
            feed_body(&body, j, &k->in[j],
                      (char *)k->in[j].data + (size_t)t * (view_bytes(&k->in[j]) / (size_t)steps));
        status = call_body(&body, rng);
        for (int j = 0; j < k->n_out && status == GD_OK; j++) {
            const size_t at = j < n ? 0 : (size_t)t * (view_bytes(&k->out[j]) / (size_t)steps);
            status = copy_result(&body, j, &k->out[j], (char *)k->out[j].data + at);
        }
    }
    end_body(&body);
    return status;
}

static size_t control_bytes(const gd_kernel_call *k) {
    return 2 * ((feed_bytes(k->n_in) + 63) / 64 * 64);
}

static gd_status run_control(gd_kernel_call *k) {
    const gd_control_options *p = k->attrs;
    const bool on_host = k->device->api->host_reads;
    GD_TRY(gd_check_stack());
    void *room = on_host ? k->workspace : gd_malloc(control_bytes(k));
    if (!room) return gd_no_memory(NULL, "for a run");
    gd_status status = k->op->facts.control == GD_CONTROL_BRANCH  ? run_cond(k, p, room)
                       : k->op->facts.control == GD_CONTROL_WHILE ? run_while(k, p, room)
                                                                  : run_scan(k, p, room);
    if (!on_host) gd_free(room);
    return status;
}

/* The structs for feeds are in the workspace if that is host memory. */
static size_t control_workspace(const gd_kernel_call *k) {
    return k->device->api->host_reads ? control_bytes(k) : 0;
}

/* Once for each kind. */
static gd_status add_kernels(const char *kind) {
    static const char *const ops[] = {"cond_graph", "while_graph", "scan_graph"};
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const char *kinds[GD_DEVICE_KINDS];
    static gd_kernel kernels[GD_DEVICE_KINDS][3];
    gd_status status = GD_OK;
    int at = 0;
    pthread_mutex_lock(&lock);
    while (at < GD_DEVICE_KINDS && kinds[at] && strcmp(kinds[at], kind) != 0) at++;
    if (at < GD_DEVICE_KINDS && !kinds[at]) {
        for (int i = 0; i < 3 && status == GD_OK; i++) {
            kernels[at][i] = (gd_kernel){.op = ops[i],
                                         .variant = "plan",
                                         .device = kind,
                                         .flags = GD_KERNEL_CONTIGUOUS,
                                         .workspace = control_workspace,
                                         .run = run_control};
            status = gd_kernel_add(&kernels[at][i]);
        }
        if (status == GD_OK) kinds[at] = kind;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

gd_status gd_control_add_kernels(const gd_program *program, const char *kind) {
    for (int i = 0; i < program->n_steps; i++)
        if (program->steps[i].op->flags & GD_OP_OPAQUE) return add_kernels(kind);
    return GD_OK;
}
