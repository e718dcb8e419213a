/* test_prepared.c - prepared kernels: which calls share an entry of the cache, and what runs if a
 * kernel declines a problem. */
#include <stdlib.h>
#include <string.h>

#include "backend/test/device.h"
#include "clean_test.h"
#include "gradus/extend.h"
#include "gradus/gradus.h"
#include "test.h"

static int prepared;

static gd_status prepare_probe(const gd_kernel_call *call, void **value, size_t *workspace) {
    (void)call;
    prepared++;
    *value = NULL;
    *workspace = 0;
    return GD_OK;
}
static gd_status run_probe(gd_kernel_call *call) {
    (void)call;
    return GD_OK;
}

static const gd_kernel probe_kernel = {.op = "attention_forward",
                                       .variant = "prepared",
                                       .device = "test",
                                       .rank = 10,
                                       .flags = GD_KERNEL_CHECKED,
                                       .run = run_probe,
                                       .prepare = prepare_probe};

/* `padding` fills the bytes between the options. */
static gd_tensor *call_with(gd_tensor *x, int padding, bool causal, double dropout) {
    gd_attention_forward_options o;
    memset(&o, padding, sizeof o);
    o.causal = causal;
    o.scale = 0.5;
    o.grouped = false;
    o.dropout = dropout;
    o.mask = o.key = NULL;
    return gd_attention_forward_at(GD_HERE, x, x, x, &o);
}

TEST(options_are_compared_by_their_values) {
    GD_SCOPE;
    gd_device *device = gd_test_device(); /* its buffers are aligned */
    CHECK(gd_kernel_register(&probe_kernel) == GD_OK);
    gd_tensor *x = gd_to_device(gd_ones(gd_dims(1, 2, 2)), device);
    call_with(x, 0, true, 0);
    CHECK(prepared == 1);
    call_with(x, 0xaa, true, 0);
    call_with(x, 0x55, true, 0);
    CHECK_SAYING(prepared == 1, "padding between options counts: %d entries", prepared);
    call_with(x, 0, false, 0);
    CHECK(prepared == 2);
    call_with(x, 0, true, 0.25);
    CHECK(prepared == 3);
    call_with(x, 0x55, false, 0);
    CHECK(prepared == 3);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* --- kernels that decline --------------------------------------------------------------------- */

/* twice(x) has three kernels, here from the highest rank to the lowest. Each needs other operands:
 * "even" contiguous ones, "never" f64, and "any" takes them as they are, with a workspace. On the CPU
 * they compute; on the test device, whose buffers all have the same alignment, they only count. */
typedef struct kernel_counts {
    int prepared, ran, released, wrong; /* wrong: released for a problem that was declined */
    bool saw_strides;                   /* in the latest run */
} kernel_counts;
static kernel_counts even, never, any;
enum { ANY_WORKSPACE = 640 };

static gd_status twice_infer(gd_infer *i) {
    i->out[0].rank = 2;
    for (int d = 0; d < 2; d++) i->out[0].dims[d] = gd_tensor_dim(i->in[0], d);
    return GD_OK;
}

/* The value of x, f32 or f64, at (i, j). */
static void *element_of(const gd_view *x, int64_t i, int64_t j) {
    const int64_t at = i * x->strides[0] + j * x->strides[1];
    return (char *)x->data + at * (x->dtype == GD_F64 ? 8 : 4);
}

static void run_twice(const gd_kernel_call *call, kernel_counts *counts) {
    const gd_view *x = &call->in[0], *y = &call->out[0];
    counts->ran++;
    counts->saw_strides = x->strides[1] != 1;
    if (strcmp(gd_device_name(call->device), "cpu") != 0) return; /* the host has no address */
    for (int64_t i = 0; i < x->dims[0]; i++)
        for (int64_t j = 0; j < x->dims[1]; j++)
            if (x->dtype == GD_F64)
                *(double *)element_of(y, i, j) = 2 * *(double *)element_of(x, i, j);
            else *(float *)element_of(y, i, j) = 2 * *(float *)element_of(x, i, j);
}

static gd_status prepare_even(const gd_kernel_call *call, void **value, size_t *workspace) {
    even.prepared++;
    if (call->in[0].dims[0] % 2) return GD_E_UNSUPPORTED;
    *value = &even;
    *workspace = 0;
    return GD_OK;
}
static void release_even(gd_device *device, void *value) {
    (void)device;
    even.released++;
    if (value != &even) even.wrong++;
}
static gd_status run_even(gd_kernel_call *call) {
    CHECK(call->prepared == &even);
    run_twice(call, &even);
    return GD_OK;
}

static gd_status prepare_never(const gd_kernel_call *call, void **value, size_t *workspace) {
    (void)call, (void)value, (void)workspace;
    never.prepared++;
    return GD_E_UNSUPPORTED;
}
static gd_status run_never(gd_kernel_call *call) {
    run_twice(call, &never);
    return GD_OK;
}

static size_t any_workspace(const gd_kernel_call *call) {
    (void)call;
    return ANY_WORKSPACE;
}
static gd_status run_any(gd_kernel_call *call) {
    CHECK(!call->prepared && call->workspace && call->workspace_bytes == ANY_WORKSPACE);
    run_twice(call, &any);
    return GD_OK;
}

/* An op whose only kernel declines, with a message. */
static gd_status prepare_reason(const gd_kernel_call *call, void **value, size_t *workspace) {
    (void)call, (void)value, (void)workspace;
    never.prepared++;
    return gd_op_fail(GD_E_UNSUPPORTED, "no algorithm of the moon");
}

#define TWICE_KERNELS(kind, flag)                                                   \
    {.op = "twice",                                                                 \
     .variant = "even",                                                             \
     .device = kind,                                                                \
     .rank = 30,                                                                    \
     .flags = GD_KERNEL_CONTIGUOUS | (flag),                                        \
     .run = run_even,                                                               \
     .prepare = prepare_even,                                                       \
     .release = release_even},                                                      \
        {.op = "twice",                                                             \
         .variant = "never",                                                        \
         .device = kind,                                                            \
         .rank = 20,                                                                \
         .flags = GD_KERNEL_DOUBLE | (flag),                                        \
         .run = run_never,                                                          \
         .prepare = prepare_never},                                                 \
    {                                                                               \
        .op = "twice", .variant = "any", .device = kind, .rank = 10, .flags = flag, \
        .workspace = any_workspace, .run = run_any                                  \
    }
static const gd_kernel declining[] = {
    TWICE_KERNELS("cpu", 0),
    TWICE_KERNELS("test", GD_KERNEL_CHECKED),
    {.op = "unlucky",
     .variant = "silent",
     .device = "test",
     .rank = 10,
     .run = run_never,
     .prepare = prepare_never},
    {.op = "unlucky_with_reason",
     .variant = "reason",
     .device = "test",
     .rank = 10,
     .run = run_never,
     .prepare = prepare_reason},
};

static void define_ops(void) {
    static const gd_op_rules rules = {.infer = twice_infer};
    static bool defined;
    if (!defined) {
        gd_op_define("twice(x) -> y  nograd\nTwice x.\n", &rules);
        gd_op_define("unlucky(x) -> y  nograd\nNever runs.\n", &rules);
        gd_op_define("unlucky_with_reason(x) -> y  nograd\nNever runs.\n", &rules);
        for (size_t i = 0; i < sizeof declining / sizeof *declining; i++)
            CHECK(gd_kernel_register(&declining[i]) == GD_OK);
    }
    defined = true;
    even = never = any = (kernel_counts){0};
}

/* The transpose of (columns, rows): no kernel that needs contiguous operands takes it as it is. */
static gd_tensor *transposed(int64_t rows, int64_t columns) {
    return gd_transpose(gd_reshape(gd_arange(0, (double)(rows * columns)), gd_dims(columns, rows)),
                        0, 1);
}
static bool is_twice(gd_tensor *y, gd_tensor *x) {
    return gd_item(gd_max(gd_abs(gd_sub(y, gd_add(x, x))))) == 0;
}

CLEAN_TEST(a_call_runs_with_the_next_kernel_if_one_declines) {
    GD_SCOPE;
    define_ops();
    gd_tensor *odd = transposed(3, 5), *fits = transposed(4, 5);
    CHECK(is_twice(gd_call("twice", gd_list(odd), ""), odd));
    CHECK(any.ran == 1 && any.saw_strides && !even.ran && !never.ran);
    CHECK(is_twice(gd_call("twice", gd_list(fits), ""), fits));
    CHECK(even.ran == 1 && !even.saw_strides && any.ran == 1 && never.prepared == 1);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(a_kernel_is_asked_once_for_each_problem) {
    GD_SCOPE;
    define_ops();
    gd_device *device = gd_test_device();
    gd_tensor *x = gd_to_device(gd_ones(gd_dims(5, 3)), device), *odd = gd_transpose(x, 0, 1);
    for (int i = 0; i < 3; i++) {
        gd_call("twice", gd_list(odd), "");
        CHECK(any.ran == i + 1 && any.saw_strides && !even.ran && !never.ran);
        CHECK_SAYING(even.prepared == 1 && never.prepared == 1, "asked %d and %d times",
                     even.prepared, never.prepared);
    }
    gd_call("twice", gd_list(x), ""); /* other strides are another problem */
    CHECK(any.ran == 4 && even.prepared == 2 && never.prepared == 2);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static gd_tensors call_twice(gd_tensors in, void *data) {
    (void)data;
    return gd_listed(gd_call("twice", gd_list(gd_transpose(gd_add(in.at[0], in.at[0]), 0, 1)), ""));
}

/* A feed (columns, rows) is doubled, transposed and doubled by the op: it reads a temporary. */
static int64_t plan_twice(gd_tensor *x) {
    gd_jit *jit = gd_jit_new(call_twice, NULL);
    gd_plan_memory memory = {0};
    CHECK(gd_jit_plan(jit, gd_list(x), &memory) == GD_OK);
    gd_tensor *before = gd_transpose(gd_add(x, x), 0, 1), *y = gd_jit_call(jit, gd_list(x)).at[0];
    CHECK(is_twice(y, before));
    gd_release(jit);
    return memory.peak_bytes;
}

CLEAN_TEST(a_plan_has_the_next_kernel_if_one_declines) {
    GD_SCOPE;
    define_ops();
    enum { COLUMNS = 64 };
    const int64_t bytes = plan_twice(gd_ones(gd_dims(COLUMNS, 7)));
    CHECK(any.ran == 1 && any.saw_strides && !even.ran && !never.ran);
    CHECK(even.prepared == 1 && never.prepared == 1);
    /* the operand and the workspace, but no copies for kernels that declined */
    CHECK_SAYING(bytes >= ANY_WORKSPACE + 7 * COLUMNS * 4 &&
                     bytes < ANY_WORKSPACE + 7 * COLUMNS * 4 + 256,
                 "%lld bytes", (long long)bytes);
    plan_twice(gd_ones(gd_dims(COLUMNS, 8)));
    CHECK(even.ran == 1 && !even.saw_strides && any.ran == 1);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST(a_call_fails_if_all_kernels_decline) {
    GD_SCOPE;
    define_ops();
    gd_tensor *x = gd_to_device(gd_ones(gd_dims(2, 3)), gd_test_device());
    for (int i = 0; i < 2; i++) { /* the second time from the cache */
        gd_call("unlucky", gd_list(x), "");
        CHECK_SAYING(gd_failed() && says("no kernel on test:0"), "%s", gd_error_message());
        gd_clear_error();
        gd_call("unlucky_with_reason", gd_list(x), "");
        CHECK_SAYING(gd_failed() && says("no algorithm of the moon"), "%s", gd_error_message());
        gd_clear_error();
        CHECK(never.prepared == 2 && never.ran == 0);
    }
}

/* More problems than the cache keeps: every second one is declined, and released nothing. */
TEST(declined_problems_leave_the_cache_like_others) {
    GD_SCOPE;
    define_ops();
    enum { PROBLEMS = 1600 };
    gd_device *device = gd_test_device();
    for (int64_t i = 1; i <= PROBLEMS; i++) {
        GD_SCOPE;
        gd_call("twice", gd_list(gd_to_device(gd_ones(gd_dims(i, 1)), device)), "");
    }
    CHECK(any.ran == PROBLEMS / 2 && even.ran == PROBLEMS / 2 && even.prepared == PROBLEMS);
    CHECK_SAYING(even.released > 0 && !even.wrong, "%d released, %d wrong", even.released,
                 even.wrong);
    gd_call("twice", gd_list(gd_to_device(gd_ones(gd_dims(1, 1)), device)), "");
    CHECK(even.prepared == PROBLEMS + 1); /* it was forgotten, and is asked again */
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST_MAIN
