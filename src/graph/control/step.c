/* step.c - see control/step.h.
 *
 * The step is a kernel call like any other, with the plans of its functions behind its options.
 * Each run borrows an instance of them; nothing is allocated once there is one. A function reads
 * what it is fed where it lies, and what it gives is copied to where it belongs.
 */
#include "graph/control/step.h"

#include <pthread.h>
#include <string.h>

#include "core/grow.h"
#include "core/copy.h"
#include "graph/build/subgraph.h"
#include "gradus/ops.h"

/* Options of a step; what the op's own are comes first. */
typedef struct prepared {
    union {
        gd_cond_graph_options cond;
        gd_while_graph_options loop;
        gd_scan_graph_options scan;
    } options;
    gd_plan *plan[2]; /* of the subgraphs among the options, in their order */
} prepared;

/* --- one call of a function ------------------------------------------------------------------- */

enum { MOST_INPUTS = 256 };

typedef struct function {
    gd_plan *plan;
    gd_instance *instance;
    int n_in;
    gd_tensor *feeds; /* as the plan wants them: a place and no more */
    gd_storage *storages;
    gd_tensor **list;
} function;

/* Room for the feeds of a function with n inputs, in the step's workspace. */
static size_t room_for(int n) {
    return (size_t)n * (sizeof(gd_tensor) + sizeof(gd_storage) + sizeof(gd_tensor *)) + 64;
}

static gd_status begin(function *f, gd_plan *plan, int n_in, void *room) {
    *f = (function){.plan = plan, .n_in = n_in, .feeds = room};
    f->storages = (gd_storage *)(f->feeds + n_in);
    f->list = (gd_tensor **)(f->storages + n_in);
    memset(room, 0, room_for(n_in) - 64);
    for (int i = 0; i < n_in; i++) {
        f->feeds[i].storage = &f->storages[i];
        f->list[i] = &f->feeds[i];
    }
    return gd_plan_borrow(plan, &f->instance);
}

static void end(function *f) {
    if (f->instance) gd_plan_return(f->plan, f->instance);
}

static void feed(function *f, int i, const gd_view *view, void *data) {
    f->feeds[i].dtype = (uint8_t)view->dtype;
    f->storages[i].data = data;
}

static gd_status call(function *f, gd_rng rng) {
    return gd_plan_run_step(f->plan, f->instance, (gd_tensors){f->list, f->n_in}, NULL, rng.call,
                            rng.seed);
}

/* Copies result k to its place. */
static void fetch(const function *f, int k, const gd_view *like, void *data) {
    gd_view from = gd_plan_result_view(f->plan, f->instance, k), to = from;
    if (!like->data) return; /* nobody wants it */
    to.data = data;
    gd_row_major(to.rank, to.dims, to.strides);
    gd_copy_elements(&to, &from);
}

static size_t bytes_of(const gd_view *v) {
    return (size_t)gd_numel(v->rank, v->dims) * gd_dtype_size(v->dtype);
}

/* --- the steps -------------------------------------------------------------------------------- */

static gd_status run_cond(gd_kernel_call *k, const prepared *p) {
    const bool yes = gd_load_f64(k->in[0].dtype, k->in[0].data) != 0;
    function f;
    gd_status status = begin(&f, p->plan[yes ? 0 : 1], k->n_in - 1, k->workspace);
    for (int i = 1; i < k->n_in; i++) feed(&f, i - 1, &k->in[i], k->in[i].data);
    if (status == GD_OK) status = call(&f, k->rng);
    for (int i = 0; i < k->n_out && status == GD_OK; i++) fetch(&f, i, &k->out[i], k->out[i].data);
    end(&f);
    return status;
}

/* The state lies in the outputs. */
static gd_status run_while(gd_kernel_call *k, const prepared *p) {
    const int n = (int)p->options.loop.state;
    const int64_t most =
        p->options.loop.max_steps == GD_UNSET ? INT64_MAX : p->options.loop.max_steps;
    char *room = k->workspace;
    function condition = {.plan = NULL}, body = {.plan = NULL};
    gd_status status = begin(&condition, p->plan[0], k->n_in, room);
    if (status == GD_OK)
        status = begin(&body, p->plan[1], k->n_in, room + (room_for(k->n_in) + 63) / 64 * 64);
    for (int i = 0; i < k->n_in && status == GD_OK; i++) {
        void *data = i < n ? k->out[i].data : k->in[i].data;
        if (i < n) memcpy(data, k->in[i].data, bytes_of(&k->in[i]));
        feed(&condition, i, &k->in[i], data);
        feed(&body, i, &k->in[i], data);
    }
    for (int64_t step = 0; step < most && status == GD_OK; step++) {
        const gd_rng rng = {.seed = gd_step_hash(k->rng.seed, step), .call = k->rng.call};
        status = call(&condition, rng);
        if (status != GD_OK) break;
        const gd_view truth = gd_plan_result_view(condition.plan, condition.instance, 0);
        if (gd_load_f64(truth.dtype, truth.data) == 0) break;
        status = call(&body, rng);
        for (int i = 0; i < n && status == GD_OK; i++) fetch(&body, i, &k->out[i], k->out[i].data);
    }
    end(&condition);
    end(&body);
    return status;
}

static gd_status run_scan(gd_kernel_call *k, const prepared *p) {
    const gd_scan_graph_options *o = &p->options.scan;
    const int n = (int)o->state, outer = n + (int)o->xs;
    const int64_t steps = k->in[n].dims[0];
    function body;
    gd_status status = begin(&body, p->plan[0], k->n_in, k->workspace);
    for (int i = 0; i < k->n_in && status == GD_OK; i++) {
        void *data = i < n ? k->out[i].data : k->in[i].data;
        if (i < n) memcpy(data, k->in[i].data, bytes_of(&k->in[i]));
        feed(&body, i, &k->in[i], data);
    }
    for (int64_t i = 0; i < steps && status == GD_OK; i++) {
        const int64_t t = o->reverse ? steps - 1 - i : i;
        const gd_rng rng = {.seed = gd_step_hash(k->rng.seed, i), .call = k->rng.call};
        for (int j = n; j < outer; j++)
            feed(&body, j, &k->in[j],
                 (char *)k->in[j].data + (size_t)t * (bytes_of(&k->in[j]) / (size_t)steps));
        status = call(&body, rng);
        for (int j = 0; j < k->n_out && status == GD_OK; j++) {
            const size_t at = j < n ? 0 : (size_t)t * (bytes_of(&k->out[j]) / (size_t)steps);
            fetch(&body, j, &k->out[j], (char *)k->out[j].data + at);
        }
    }
    end(&body);
    return status;
}

static gd_status run(gd_kernel_call *k) {
    const prepared *p = k->attrs;
    GD_TRY(gd_check_stack());
    if (k->op->facts.control == GD_CONTROL_BRANCH) return run_cond(k, p);
    return k->op->facts.control == GD_CONTROL_WHILE ? run_while(k, p) : run_scan(k, p);
}

static size_t workspace(const gd_kernel_call *k) {
    return 2 * ((room_for(k->n_in) + 63) / 64 * 64);
}

static const gd_kernel kernels[] = {
    {.op = "cond_graph",
     .variant = "plan",
     .device = "cpu",
     .flags = GD_KERNEL_CONTIGUOUS,
     .workspace = workspace,
     .run = run},
    {.op = "while_graph",
     .variant = "plan",
     .device = "cpu",
     .flags = GD_KERNEL_CONTIGUOUS,
     .workspace = workspace,
     .run = run},
    {.op = "scan_graph",
     .variant = "plan",
     .device = "cpu",
     .flags = GD_KERNEL_CONTIGUOUS,
     .workspace = workspace,
     .run = run},
};

static gd_status registered = GD_OK;
static void register_kernels(void) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels && registered == GD_OK; i++)
        registered = gd_kernel_register(&kernels[i]);
}

/* --- preparing -------------------------------------------------------------------------------- */

static gd_tensor *symbol_of(gd_node *node, int index) {
    return gd_slot_get(&node->slots[node->n_in + index], node, "a graph");
}

static gd_status plan_of(const gd_subgraph *sub, gd_device *device, int level, gd_plan **plan) {
    gd_tensor **in = gd_list_new(sub->n_in), **out = gd_list_new(sub->n_out);
    if (!in || !out) return GD_E_MEMORY;
    for (int i = 0; i < sub->n_in; i++)
        if (!(in[i] = symbol_of(sub->in[i], 0))) return GD_E_MEMORY;
    for (int k = 0; k < sub->n_out; k++)
        if (!(out[k] = symbol_of(sub->out[k], sub->out_index[k]))) return GD_E_MEMORY;
    gd_program *program;
    const gd_tensors feeds = {in, sub->n_in}; /* they have the shapes of what will be fed */
    GD_TRY(gd_program_make_loops((gd_tensors){out, sub->n_out}, feeds, feeds, &program));
    if (program->dynamic) {
        gd_program_free(program);
        return gd_fail(GD_E_UNSUPPORTED, "a function of a loop cannot be planned");
    }
    return gd_plan_make(program, device, level, 0, plan);
}

static gd_status keep(gd_program *p, gd_plan *plan) {
    if (!gd_grow(p->inner, p->n_inner, p->inner_room)) {
        gd_plan_free(plan);
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    }
    p->inner[p->n_inner++] = plan;
    return GD_OK;
}

static gd_status prepare(gd_program *program, gd_pstep *step, gd_device *device, int level) {
    prepared *p = gd_program_alloc(program, sizeof *p);
    if (!p) return GD_E_MEMORY;
    memcpy(&p->options, step->attrs,
           step->op->attrs_size < sizeof p->options ? step->op->attrs_size : sizeof p->options);
    for (int i = 0, n = 0; i < step->op->n_attrs; i++) {
        const gd_op_attr *a = &step->op->attrs[i];
        if (a->type != GD_ATTR_GRAPH) continue;
        GD_TRY(plan_of(*(gd_subgraph *const *)((const char *)step->attrs + a->offset), device,
                       level, &p->plan[n]));
        GD_TRY(keep(program, p->plan[n++]));
    }
    step->attrs = p;
    return GD_OK;
}

gd_status gd_control_prepare(gd_program *program, gd_device *device, int level) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    gd_status status = GD_OK;
    gd_scope *scope = NULL;
    for (int i = 0; i < program->n_steps && status == GD_OK; i++) {
        gd_pstep *s = &program->steps[i];
        if (s->removed || !(s->op->flags & GD_OP_WHOLE)) continue;
        if (!scope) scope = gd_scope_open();
        pthread_once(&once, register_kernels);
        status = registered == GD_OK ? prepare(program, s, device, level) : registered;
    }
    if (scope) gd_scope_close(&scope);
    return status;
}
