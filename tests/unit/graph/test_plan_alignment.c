/* test_plan_alignment.c - kernels of plans are prepared for the alignment that their operands have. */
#include "backend/test/device.h"
#include "gradus/extend.h"
#include "gradus/gradus.h"
#include "test.h"

static uintptr_t promised; /* alignment of the input when the kernel was prepared */
static bool kept;          /* the input of a run has it */

static uintptr_t alignment_of(const void *address) {
    const uintptr_t low = (uintptr_t)address | 256;
    return low & -low;
}
static gd_status probe_infer(gd_infer *i) {
    i->out[0].rank = 1;
    i->out[0].dims[0] = gd_tensor_dim(i->in[0], 0);
    return GD_OK;
}
static gd_status prepare_probe(const gd_kernel_call *call, void **value, size_t *workspace) {
    promised = alignment_of(call->in[0].data);
    *value = NULL;
    *workspace = 0;
    return GD_OK;
}
static gd_status run_probe(gd_kernel_call *call) {
    kept = alignment_of(call->in[0].data) >= promised;
    return GD_OK;
}
static const gd_kernel probe_kernel = {.op = "alignment_probe",
                                       .variant = "prepared",
                                       .device = "test",
                                       .rank = 10,
                                       .flags = GD_KERNEL_CHECKED,
                                       .run = run_probe,
                                       .prepare = prepare_probe};

TEST(kernels_of_plans_are_prepared_for_aligned_buffers) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_op_define("alignment_probe(x) -> y\nx.\n", &(gd_op_rules){.infer = probe_infer});
    CHECK(gd_kernel_register(&probe_kernel) == GD_OK);
    gd_set_default_device(device);
    for (int64_t offset = 0; offset < 3; offset++) {
        gd_graph *graph = gd_graph_new();
        gd_tensor *x, *y;
        {
            GD_GRAPH(graph);
            x = gd_placeholder(gd_dims(8));
            y = gd_call("alignment_probe", gd_list(gd_narrow(x, 0, offset, 4)), "");
        }
        gd_session *s = gd_session_new(graph);
        promised = 0;
        kept = false;
        gd_session_run(s, gd_feed(x, gd_ones(gd_dims(8))), gd_list(y));
        const uintptr_t most = device->api->alignment < 256 ? device->api->alignment : 256;
        CHECK(kept && (offset ? promised == 4u * (uintptr_t)offset : promised >= most));
    }
    gd_set_default_device(NULL);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST_MAIN
