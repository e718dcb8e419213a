/* test_prepared.c - the cache of prepared kernels: which calls share an entry. */
#include <string.h>

#include "backend/test/device.h"
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

TEST_MAIN
