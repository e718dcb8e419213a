/* run_net.c - runs a net with trained weights, for plates.py.
 *
 *     run_net MODE NET WEIGHTS INPUT.npy FOLDER [OUTPUTS]
 *
 * Writes output I as FOLDER/MODE_I.npy, and in the mode onnx the net as FOLDER/net.onnx. The other modes are
 * eager, jit, and test, the test device. OUTPUTS are names of blobs.
 */
#include <stdio.h>
#include <string.h>

#include "backend/test/device.h"
#include "gradus/caffe.h"
#include "gradus/gradus.h"

static gd_tensors call_net(gd_tensors in, void *net) { return gd_module_call(net, in); }

int main(int argc, char **argv) {
    GD_SCOPE;
    char path[1000];
    if (argc < 6) return 2;
    const char *mode = argv[1], *folder = argv[5];
    gd_module *net =
        gd_caffe_net(argv[2], .weights = argv[3], .outputs = argc > 6 ? argv[6] : NULL);
    gd_tensor *x = gd_load_npy(argv[4]);
    if (strcmp(mode, "test") == 0) {
        gd_module_to(net, gd_device_name(gd_test_device()), GD_DTYPE_NONE);
        x = gd_to_device(x, gd_test_device());
    }
    if (strcmp(mode, "onnx") == 0) {
        snprintf(path, sizeof path, "%s/net.onnx", folder);
        gd_onnx_save_module(path, net, gd_list(x));
    } else {
        const gd_tensors y = strcmp(mode, "jit") == 0
                                 ? gd_jit_call(gd_jit_new(call_net, net), gd_list(x))
                                 : gd_module_call(net, gd_list(x));
        for (int i = 0; i < y.count && !gd_failed(); i++) {
            snprintf(path, sizeof path, "%s/%s_%d.npy", folder, mode, i);
            gd_save_npy(path, gd_to_device(y.at[i], gd_device_get("cpu")));
        }
    }
    if (gd_failed()) printf("%s\n", gd_error_message());
    return gd_failed();
}
