/* save_nets.c - saves nets as files of Caffe, for saved_against_caffe.py.
 *
 *     save_nets FOLDER [NET.prototxt ...]
 *
 * Writes for each net NAME.prototxt, NAME.caffemodel, its input NAME_in.npy and its outputs NAME_out_I.npy.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradus/gradus.h"

static const char *folder;

static void save(const char *name, gd_module *net, gd_tensor *x) {
    char path[1000];
    gd_module_eval(net);
    const gd_tensors y = gd_module_call(net, gd_list(x));
    snprintf(path, sizeof path, "%s/%s.prototxt", folder, name);
    gd_caffe_save_net(path, net, x);
    snprintf(path, sizeof path, "%s/%s.caffemodel", folder, name);
    gd_caffe_save(path, net);
    snprintf(path, sizeof path, "%s/%s_in.npy", folder, name);
    gd_save_npy(path, gd_cast(x, GD_F32));
    for (int i = 0; i < y.count && !gd_failed(); i++) {
        snprintf(path, sizeof path, "%s/%s_out_%d.npy", folder, name, i);
        gd_save_npy(path, gd_detach(y.at[i]));
    }
    if (gd_failed()) printf("%s: %s\n", name, gd_error_message());
}

/* Statistics and parameters other than those at the beginning. */
static gd_module *mixed(gd_module *net, gd_tensor *x) {
    GD_NO_GRAD;
    gd_module_build(net, x);
    gd_module_train(net);
    for (int i = 0; i < 2; i++) gd_module_call(net, gd_list(x));
    const gd_tensors all = gd_module_parameters(net);
    for (int i = 0; i < all.count; i++)
        gd_assign(all.at[i], gd_add(all.at[i], gd_mul(gd_randn_like(all.at[i]), 0.02)));
    return net;
}

static void save_mixed(const char *name, gd_module *net, gd_tensor *x) {
    save(name, mixed(net, x), x);
}

/* As AlexNet, with fewer channels. */
static gd_module *alexnet(void) {
    return gd_nn_sequential(
        gd_nn_conv2d(3, 12, 11, .stride = 4), gd_nn_relu(), gd_nn_local_response_norm(5),
        gd_nn_max_pool2d(3, .stride = 2), gd_nn_conv2d(12, 16, 5, .padding = 2, .groups = 2),
        gd_nn_relu(), gd_nn_local_response_norm(5), gd_nn_max_pool2d(3, .stride = 2),
        gd_nn_conv2d(16, 16, 3, .padding = 1), gd_nn_relu(), gd_nn_conv2d(16, 8, 3, .padding = 1),
        gd_nn_relu(), gd_nn_max_pool2d(3, .stride = 2), gd_nn_flatten(), gd_nn_linear(8 * 36, 64),
        gd_nn_relu(), gd_nn_dropout(), gd_nn_linear(64, 20), gd_nn_softmax());
}

/* As VGG: a small one, whose adaptive pooling has windows of one size. */
static gd_module *vgg(void) {
    return gd_nn_sequential(
        gd_nn_conv2d(3, 8, 3, .padding = 1), gd_nn_relu(), gd_nn_conv2d(8, 8, 3, .padding = 1),
        gd_nn_relu(), gd_nn_max_pool2d(2), gd_nn_conv2d(8, 16, 3, .padding = 1), gd_nn_relu(),
        gd_nn_max_pool2d(2), gd_nn_adaptive_avg_pool2d(4), gd_nn_flatten(),
        gd_nn_linear(16 * 16, 32), gd_nn_relu(), gd_nn_dropout(), gd_nn_linear(32, 10));
}

/* Functions of the program: branches, constants, a gate for each channel. */
static gd_tensors functions(gd_tensors in, void *self) {
    (void)self;
    gd_tensor *x = in.at[0];
    gd_tensor *a = gd_max_pool2d(gd_leaky_relu(x), .kernel = 3, .stride = 2, .padding = 1);
    gd_tensor *b = gd_avg_pool2d(gd_elu(gd_sub(1, x)), .kernel = 2);
    gd_tensor *y = gd_cat(gd_list(a, b, gd_narrow(a, 1, 1, 2)), .axis = 1);
    y = gd_mul(y, gd_sigmoid(gd_mean(y, .axis = gd_dims(2, 3), .keepdim = true)));
    y = gd_maximum(gd_sub(y, gd_square(y)), gd_tanh(y));
    gd_tensor *scales = gd_reshape(gd_arange(1, 1 + gd_tensor_dim(y, 1), .dtype = GD_F32),
                                   gd_dims(gd_tensor_dim(y, 1), 1, 1));
    y = gd_add(gd_mul(y, scales), gd_neg(gd_mul(scales, 0.1)));
    y = gd_permute(gd_flatten(gd_abs(y), .start_axis = 2), gd_dims(0, 2, 1));
    return gd_listed(gd_exp(gd_mul(gd_log(gd_add(y, 1)), 0.5)), gd_flatten(b, .start_axis = 1));
}

static gd_module *layers(void) {
    return gd_nn_sequential(
        gd_nn_conv2d(4, 6, 3, .stride = {{2, 1}}, .padding = {{1, 0}}, .groups = 2, .bias = false),
        gd_nn_elu(.alpha = 0.5), gd_nn_local_response_norm(3, .alpha = 0.5),
        gd_nn_conv_transpose2d(6, 4, 3, .stride = 2, .padding = 1),
        gd_nn_prelu(.num_parameters = 4), gd_nn_batch_norm2d(4, .affine = false),
        gd_nn_conv2d(4, 4, 3, .dilation = 2), gd_nn_avg_pool2d(3, .stride = 2, .padding = 1),
        gd_nn_adaptive_max_pool2d(1), gd_nn_flatten(), gd_nn_linear(4, 5, .bias = false),
        gd_nn_tanh(), gd_nn_softmax(.axis = 1));
}

static void save_text(const char *path) {
    char name[200];
    const char *slash = strrchr(path, '/');
    gd_caffe_blob input;
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
    name[strcspn(name, ".")] = 0;
    gd_module *net = gd_caffe_net(path);
    if (net && gd_caffe_input(net, 0, &input)) save(name, net, gd_randn(input.shape));
}

#define RUN(name, make, ...)                                    \
    {                                                           \
        GD_SCOPE;                                               \
        save_mixed(name, make, gd_randn(gd_dims(__VA_ARGS__))); \
    }

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    folder = argv[1];
    gd_seed(1);
    for (int i = 2; i < argc; i++) {
        GD_SCOPE;
        save_text(argv[i]);
    }
    RUN("lenet", gd_zoo_lenet(), 2, 1, 28, 28)
    RUN("resnet20", gd_zoo_resnet20(), 2, 3, 32, 32)
    RUN("resnet18", gd_zoo_resnet18(.classes = 20), 1, 3, 96, 96)
    RUN("resnet50", gd_zoo_resnet50(.classes = 20), 1, 3, 65, 65)
    RUN("vgg16", gd_zoo_vgg16(.hidden = 32, .classes = 10), 1, 3, 224, 224)
    RUN("vgg", vgg(), 2, 3, 32, 32)
    RUN("alexnet", alexnet(), 2, 3, 227, 227)
    RUN("layers", layers(), 2, 4, 11, 13)
    RUN("functions", gd_module_new(functions, 0), 2, 3, 8, 8)
    return gd_failed();
}
