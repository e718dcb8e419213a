/* kernels.c - the table of the test device's kernels, the task that runs one, and elementwise
 * kernels. */
#include "backend/test/kernels.h"

#include <stdlib.h>
#include <time.h>

#include "codegen/ir.h"

/* --- the table -------------------------------------------------------------------------------- */

#define KERNEL(name, flag, function) \
    { .op = name, .variant = "test", .device = "test", .rank = 10, .flags = flag, .run = function }
enum { ANY = GD_KERNEL_CHECKED, DOUBLE = GD_KERNEL_DOUBLE | GD_KERNEL_CHECKED };

/* X(op, flags, body) */
#define KERNELS(X)                                            \
    X("arange", ANY, test_arange)                             \
    X("assign", ANY, test_assign)                             \
    X("check_range", ANY, test_check_range)                   \
    X("clone", ANY, test_copy)                                \
    X("contiguous", ANY, test_reshape)                        \
    X("cumprod", DOUBLE, test_cumprod)                        \
    X("cumsum", DOUBLE, test_cumsum)                          \
    X("elementwise", ANY | GD_KERNEL_MIXED, test_elementwise) \
    X("elementwise_list", ANY, test_elementwise_list)         \
    X("flatten", ANY, test_reshape)                           \
    X("full", ANY, test_full)                                 \
    X("gather", DOUBLE, test_gather)                          \
    X("group", ANY, test_group)                               \
    X("key_multinomial", DOUBLE, test_key_multinomial)        \
    X("key_normals", DOUBLE, test_key_normals)                \
    X("key_words", DOUBLE, test_key_words)                    \
    X("linear_recurrence", DOUBLE, test_linear_recurrence)    \
    X("matmul", DOUBLE, test_matmul)                          \
    X("max", DOUBLE, test_max)                                \
    X("max_with_index", DOUBLE, test_max_with_index)          \
    X("min", DOUBLE, test_min)                                \
    X("min_with_index", DOUBLE, test_min_with_index)          \
    X("prod", DOUBLE, test_prod)                              \
    X("random_key", DOUBLE, test_random_key)                  \
    X("reshape", ANY, test_reshape)                           \
    X("scatter", DOUBLE, test_scatter)                        \
    X("scatter_add", DOUBLE, test_scatter_add)                \
    X("scatter_extreme", DOUBLE, test_scatter_extreme)        \
    X("scatter_mul", DOUBLE, test_scatter_mul)                \
    X("sort", DOUBLE, test_sort)                              \
    X("sum", DOUBLE, test_sum)
/* X(op, run function) */
#define DYNAMIC_KERNELS(X)     \
    X("nonzero", test_nonzero) \
    X("one_hot_found", test_one_hot_found)

#define ENTRY(name, flag, body)       KERNEL(name, flag, test_kernel_run),
#define BODY(name, flag, body)        body,
#define DYNAMIC_ENTRY(name, function) KERNEL(name, DOUBLE, function),
/* The prepare function of fused ops compiles the kernel. */
#define FUSED_ENTRY(name)           \
    {.op = name,                    \
     .variant = "scalar",           \
     .device = "test",              \
     .rank = 20,                    \
     .flags = GD_KERNEL_CHECKED,    \
     .match = test_fused_match,     \
     .run = test_kernel_run,        \
     .prepare = test_fused_prepare, \
     .release = test_fused_release},
const gd_kernel test_kernels[] = {KERNELS(ENTRY) FUSED_ENTRY("elementwise") FUSED_ENTRY(
    "fused_reduction") DYNAMIC_KERNELS(DYNAMIC_ENTRY)};
static const test_body bodies[] = {KERNELS(BODY) test_fused, test_fused};
const int test_kernel_count = (int)(sizeof test_kernels / sizeof *test_kernels);

/* --- queueing --------------------------------------------------------------------------------- */

typedef struct kernel_task {
    test_task task;
    gd_kernel_call call; /* its views and options follow the task in memory */
    test_body body;
} kernel_task;

/* Replaces the handle of a view by the address. False: the view is not inside one buffer. */
static bool resolve_view(gd_view *v) {
    int64_t first = 0, last = 0;
    if (!v->data) return true;
    for (int i = 0; i < v->rank; i++) {
        if (v->dims[i] == 0) return true;
        const int64_t reach = (v->dims[i] - 1) * v->strides[i];
        if (reach < 0) first += reach;
        else last += reach;
    }
    const int64_t size = element_size(v->dtype);
    char *base = test_resolve((char *)v->data + first * size, (size_t)((last - first + 1) * size));
    v->data = base ? base - first * size : NULL;
    return base != NULL;
}

static void sleep_us(int us) {
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* Runs a kernel on a copy of its call: a captured task runs more than once. */
static void run_kernel(test_task *task) {
    const kernel_task *t = (const kernel_task *)task;
    const gd_test_controls *controls = gd_test_device_controls(&test_device);
    gd_kernel_call call = t->call;
    const int n = call.n_in + call.n_out;
    if (controls->delay_us) sleep_us(controls->delay_us);
    if (test_error.number) return; /* all kernels check the error word */
    gd_view *views = malloc(((size_t)n + 1) * sizeof *views);
    bool resolved = views != NULL;
    for (int i = 0; i < n && resolved; i++) {
        views[i] = i < call.n_in ? call.in[i] : call.out[i - call.n_in];
        resolved = resolve_view(&views[i]);
    }
    call.in = views;
    call.out = views + call.n_in;
    if (call.workspace_bytes) call.workspace = test_resolve(call.workspace, call.workspace_bytes);
    if (call.rng_offset) {
        const gd_rng *rng_offset = test_resolve(call.rng_offset, sizeof *rng_offset);
        if (rng_offset)
            call.rng = (gd_rng){call.rng.seed ^ rng_offset->seed, call.rng.call + rng_offset->call};
    }
    if (resolved) t->body(&call);
    else test_device.lost = true;
    free(views);
}

gd_status test_kernel_run(gd_kernel_call *call) {
    const size_t n = (size_t)(call->n_in + call->n_out), views = n * sizeof(gd_view);
    const size_t options = call->attrs ? test_host->op_attrs_size(call->op) : 0;
    kernel_task *t = test_task_new(sizeof *t + views + options, run_kernel, NULL);
    if (!t) return GD_E_MEMORY;
    gd_view *copies = (gd_view *)(t + 1);
    t->call = *call;
    t->body = bodies[call->kernel - test_kernels];
    if (call->n_in) memcpy(copies, call->in, (size_t)call->n_in * sizeof *copies);
    if (call->n_out) memcpy(copies + call->n_in, call->out, (size_t)call->n_out * sizeof *copies);
    t->call.in = copies;
    t->call.out = copies + call->n_in;
    if (options) t->call.attrs = memcpy((char *)copies + views, call->attrs, options);
    gd_test_device_controls(call->device)->counts.kernels++;
    return test_enqueue(GD_QUEUE_COMPUTE, &t->task);
}

/* --- elementwise ------------------------------------------------------------------------------ */

void test_copy(gd_kernel_call *call) {
    const gd_view *from = &call->in[0], *to = &call->out[0];
    const bool real = element_is_float(from->dtype);
    const int64_t count = count_elements(to);
    for (int64_t e = 0; e < count; e++) {
        const char *p = element_at(from, to->rank, to->dims, e);
        char *q = element_at(to, to->rank, to->dims, e);
        if (real) store_real(to->dtype, q, load_real(from->dtype, p));
        else if (element_is_float(to->dtype))
            store_real(to->dtype, q, (double)load_integer(from->dtype, p));
        else store_integer(to->dtype, q, load_integer(from->dtype, p));
    }
}

/* A reshape whose result cannot be a view: copies the elements in row-major order. */
void test_reshape(gd_kernel_call *call) {
    const gd_view *from = &call->in[0], *to = &call->out[0];
    const int64_t count = count_elements(to), size = element_size(to->dtype);
    for (int64_t e = 0; e < count; e++)
        memcpy(element_at(to, to->rank, to->dims, e), element_at(from, from->rank, from->dims, e),
               (size_t)size);
}

enum { MAX_VARS = 32, MAX_OUTPUTS = 16, MAX_PARAMS = 64 };

/* Whether the expression is computed in floats, by the rules of the CPU's kernels. */
static bool computes_reals(const gd_kernel_call *call) {
    const unsigned flags = test_host->op_flags(call->op);
    bool real = (flags & GD_OP_FLOAT) ||
                !(test_host->expression_types(test_host->op_expression(call->op)) & 2);
    if (!(flags & GD_OP_PREDICATE) && element_is_float(call->out[0].dtype)) real = true;
    for (int i = 0; i < call->n_in; i++)
        real |= call->in[i].data && element_is_float(call->in[i].dtype);
    return real;
}

void test_elementwise(gd_kernel_call *call) {
    const struct gd_ir *ir = test_host->op_expression(call->op);
    double reals[MAX_PARAMS] = {0};
    int64_t integers[MAX_PARAMS] = {0};
    test_host->op_params(call->op, call->attrs, reals, integers);
    const bool real = computes_reals(call);
    bool wide = real && call->out[0].dtype == GD_F64; /* else floats are computed in f32 */
    for (int i = 0; i < call->n_in; i++) wide |= real && call->in[i].dtype == GD_F64;
    const gd_view *shape = &call->out[0];
    const int64_t count = count_elements(shape);
    for (int64_t e = 0; e < count; e++) {
        double x[MAX_VARS], y[MAX_OUTPUTS];
        int64_t a[MAX_VARS], b[MAX_OUTPUTS];
        for (int i = 0; i < call->n_in; i++) {
            const char *p = element_at(&call->in[i], shape->rank, shape->dims, e);
            if (real) x[i] = load_real(call->in[i].dtype, p);
            else a[i] = load_integer(call->in[i].dtype, p);
        }
        if (wide) test_host->evaluate_f64(ir, x, reals, y);
        else if (real) test_host->evaluate_f32(ir, x, reals, y);
        else test_host->evaluate_integer(ir, a, integers, b);
        for (int i = 0; i < call->n_out; i++) {
            if (!call->out[i].data) continue;
            char *p = element_at(&call->out[i], shape->rank, shape->dims, e);
            if (real) store_real(call->out[i].dtype, p, y[i]);
            else if (element_is_float(call->out[i].dtype))
                store_real(call->out[i].dtype, p, (double)b[i]);
            else store_integer(call->out[i].dtype, p, b[i]);
        }
    }
}

/* An elementwise op for each entry of a list: the inputs of entry 0, those of entry 1, ..., and then
 * scalars of rank 0, or of rank 1 with an element for each entry (gd_each in dispatch/call.h). */
void test_elementwise_list(gd_kernel_call *call) {
    const int n_inputs = test_host->op_expression(call->op)->n_vars, count = call->each,
              width = (call->n_in - n_inputs) / (count - 1), written = call->n_out / count;
    gd_view in[MAX_VARS];
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < n_inputs; k++) {
            in[k] = call->in[k < width ? i * width + k : (count - 1) * width + k];
            if (k < width || in[k].rank == 0) continue;
            in[k].data = (char *)in[k].data + i * in[k].strides[0] * element_size(in[k].dtype);
            in[k].rank = 0;
        }
        gd_kernel_call entry = *call;
        entry.in = in;
        entry.n_in = n_inputs;
        entry.out = call->out + i * written;
        entry.n_out = written;
        entry.each = 0;
        test_elementwise(&entry);
    }
}
