/* modes_device.c - the mode that runs a case on the test device and copies its results back. It is
 * compared with the CPU: two devices may round halves differently.
 */
#include "backend/test/device.h"
#include "modes.h"
#include "report.h"

static gd_tensor *to_host(gd_tensor *t) { return t ? gd_to_device(t, gd_device_get("cpu")) : NULL; }

static bool is_on_cpu(const test_case *c, const char **why) {
    (void)c;
    *why = "the test device is compared with the CPU";
    return !test_on_device();
}

static void run_device(const run_setup *s, run_result *r) {
    const gd_op *op = s->c->block->op;
    gd_tensor *in[MAX_TENSORS], *on_device[MAX_TENSORS] = {NULL};
    gd_device *device = gd_test_device(), *before = gd_default_device();
    *r = (run_result){.status = GD_OK};
    gd_clear_error();
    gd_seed(7);
    r->n_in = build_inputs(s, in);
    for (int i = 0; i < r->n_in; i++) {
        if (!in[i]) continue;
        on_device[i] = gd_to_device(gd_detach(in[i]), device);
        if (gd_tensor_requires_grad(in[i])) gd_requires_grad(on_device[i]);
    }
    gd_set_default_device(device);
    gd_tensors y = gd_op_call(op, (gd_tensors){on_device, r->n_in}, build_attrs(s->c));
    if (!gd_failed() && s->gradients) differentiate(s, on_device, y.at, (int)y.count, r);
    gd_set_default_device(before);
    for (int64_t k = 0; k < y.count; k++) r->out[r->n_out++] = to_host(gd_detach(y.at[k]));
    for (int i = 0; i < r->n_in; i++) {
        r->grad[i] = to_host(r->grad[i]);
        r->grad2[i] = to_host(r->grad2[i]);
        if (on_device[i] && input_is_mutated(op, i)) r->out[r->n_out++] = to_host(on_device[i]);
    }
    gd_status sync_status = gd_synchronize(device);
    r->status = gd_error_status();
    if (r->status == GD_OK) r->status = sync_status;
}

const run_mode device_mode = {"on the test device", false, is_on_cpu, run_device, false};
