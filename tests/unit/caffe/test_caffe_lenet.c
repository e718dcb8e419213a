/* test_caffe_lenet.c - LeNet by a solver of Caffe, by gd_fit, and by a loop written in C: the same bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clean_test.h"
#include "compare.h"
#include "core/error.h"
#include "files.h"
#include "format/lmdb.h"
#include "gradus/gradus.h"
#include "temp.h"

enum { SIZE = 28 * 28, FULL = 100, CLASSES = 10 };

/* The numbers of images and steps: each image is seen twice. */
static int batch, steps, count;

static void choose_sizes(void) {
    const char *full = getenv("GRADUS_TEST_FULL");
    const bool is_full = full && *full == '1';
    batch = is_full ? 64 : 8;
    steps = is_full ? FULL : 20;
    count = batch * steps / 2;
}

/* --- data: images of noise with a bright row that tells the class ------------------------------ */

static unsigned char *pixels;
static int64_t labels[64 * FULL / 2];

static void put_big(unsigned char *at, int value) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* As the two files of MNIST, which become an LMDB. */
static void write_images(void) {
    gd_random r = gd_random_of(8, 0);
    unsigned char *files = malloc(16 + (size_t)count * SIZE), *bytes = malloc(8 + (size_t)count);
    if (!files || !bytes) abort();
    pixels = files + 16;
    put_big(files, 2051);
    put_big(files + 4, count);
    put_big(files + 8, 28);
    put_big(files + 12, 28);
    put_big(bytes, 2049);
    put_big(bytes + 4, count);
    for (int i = 0; i < count; i++) {
        labels[i] = (int64_t)gd_random_below(&r, CLASSES);
        bytes[8 + i] = (unsigned char)labels[i];
        for (int k = 0; k < SIZE; k++)
            pixels[i * SIZE + k] =
                (unsigned char)(gd_random_below(&r, 60) + (k / 28 / 2 - 2 == labels[i] ? 180 : 0));
    }
    const char *folder = temp_new_folder("mnist");
    temp_write("mnist/train-images-idx3-ubyte", files, 16 + (size_t)count * SIZE);
    temp_write("mnist/train-labels-idx1-ubyte", bytes, 8 + (size_t)count);
    CHECK(gd_caffe_convert_mnist(folder, temp_path("lmdb")) == count);
    free(bytes);
}

static gd_tensor *images(void) {
    gd_tensor *x = gd_from_array(gd_dims(count, 1, 28, 28), GD_U8, pixels);
    return gd_mul(gd_cast(x, GD_F32), gd_scalar(1 / 256.0));
}
static gd_tensor *classes(void) { return gd_from_array(gd_dims(count), GD_I64, labels); }

/* --- by a solver ------------------------------------------------------------------------------ */

#define FILLED "weight_filler { type: 'xavier' } bias_filler { type: 'constant' } } }\n"
#define RATES  "param { lr_mult: 1 } param { lr_mult: 2 }\n"
static const char net_text[] =
    "layer { name: 'mnist' type: 'Data' top: 'data' top: 'label' transform_param { scale: "
    "0.00390625 }\n"
    "  data_param { source: '%s' batch_size: %d backend: LMDB } }\n"
    "layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1' " RATES
    "  convolution_param { num_output: 20 kernel_size: 5 stride: 1 " FILLED
    "layer { name: 'pool1' type: 'Pooling' bottom: 'conv1' top: 'pool1'\n"
    "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
    "layer { name: 'conv2' type: 'Convolution' bottom: 'pool1' top: 'conv2' " RATES
    "  convolution_param { num_output: 50 kernel_size: 5 stride: 1 " FILLED
    "layer { name: 'pool2' type: 'Pooling' bottom: 'conv2' top: 'pool2'\n"
    "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'pool2' top: 'ip1' " RATES
    "  inner_product_param { num_output: 500 " FILLED
    "layer { name: 'relu1' type: 'ReLU' bottom: 'ip1' top: 'ip1' }\n"
    "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2' " RATES
    "  inner_product_param { num_output: 10 " FILLED
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' }\n";

static gd_module *by_solver(bool jit, double *last_loss) {
    char text[sizeof net_text + 400], solver[1000];
    gd_module *net = NULL;
    snprintf(text, sizeof text, net_text, temp_path("lmdb"), batch);
    temp_write_text("lenet.prototxt", text);
    snprintf(
        solver, sizeof solver,
        "net: '%s' base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'inv' gamma: 0.0001 "
        "power: 0.75 max_iter: %d random_seed: 7 snapshot_prefix: '%s'",
        temp_path("lenet.prototxt"), steps, temp_path("lenet"));
    const gd_history *h =
        gd_caffe_train(temp_write_text("solver.prototxt", solver), .net = &net, .jit = jit);
    CHECK_SAYING(h && net, "%s", gd_error_message());
    if (h) *last_loss = gd_history_last(h, "loss");
    return net;
}

/* --- in C ------------------------------------------------------------------------------------- */

static gd_module *lenet(void) {
    gd_module *net = gd_nn_sequential(gd_nn_conv2d(1, 20, 5), gd_nn_max_pool2d(2),
                                      gd_nn_conv2d(20, 50, 5), gd_nn_max_pool2d(2), gd_nn_flatten(),
                                      gd_nn_linear(800, 500), gd_nn_relu(), gd_nn_linear(500, 10));
    const gd_tensors all = gd_module_parameters(net);
    gd_seed(7);
    GD_NO_GRAD;
    for (int i = 0; i < all.count; i++) {
        const gd_shape shape = gd_tensor_shape(all.at[i]);
        gd_assign(all.at[i], i % 2 ? gd_zeros(shape) : gd_init_lecun_uniform(shape));
    }
    return net;
}

static gd_optimizer *caffe_sgd(gd_module *net) {
    gd_optimizer *sgd = gd_optim_sgd_of(net, .lr = 0.01, .momentum = 0.9, .weight_decay = 0.0005,
                                        .lr_inside = true);
    const gd_tensors all = gd_module_parameters(net);
    for (int i = 1; i < all.count; i += 2) gd_optimizer_set_factors(sgd, all.at[i], .lr = 2);
    return sgd;
}

static gd_module *by_fit(double *last_loss) {
    gd_module *net = lenet();
    gd_optimizer *sgd = caffe_sgd(net);
    gd_compile(net, .optimizer = NULL, .optimizer_object = sgd,
               .schedule_object = gd_lr_inverse(sgd, 0.0001, .power = 0.75),
               .loss = "cross_entropy");
    const gd_history *h = gd_fit(net, gd_list(images(), classes()), .batch = batch,
                                 .shuffle = false, .epochs = 2, .progress = GD_PROGRESS_NONE);
    CHECK_SAYING(h, "%s", gd_error_message());
    *last_loss = h ? gd_history_last(h, "loss") : 0;
    return net;
}

static gd_module *by_hand(void) {
    gd_module *net = lenet();
    gd_optimizer *sgd = caffe_sgd(net);
    gd_schedule *inverse = gd_lr_inverse(sgd, 0.0001, .power = 0.75);
    gd_tensor *all_x = images(), *all_y = classes();
    for (int step = 0; step < steps && !gd_failed(); step++) {
        GD_SCOPE;
        const int64_t first = (int64_t)step * batch % count;
        gd_tensor *x = gd_narrow(all_x, 0, first, batch);
        gd_tensor *y = gd_narrow(all_y, 0, first, batch);
        gd_optimizer_zero_grad(sgd);
        gd_backward(gd_cross_entropy(gd_module_forward(net, x), y));
        gd_optimizer_step(sgd);
        gd_schedule_step(inverse);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    return net;
}

/* --- comparison ------------------------------------------------------------------------------- */

static void check_same(gd_module *a, gd_module *b, const char *what) {
    const gd_tensors p = gd_module_parameters(a), q = gd_module_parameters(b);
    CHECK(p.count == 8 && q.count == 8);
    for (int i = 0; i < p.count && i < q.count; i++)
        CHECK_SAYING(tensors_same_bits(gd_detach(p.at[i]), gd_detach(q.at[i])), "%s: parameter %d",
                     what, i);
}

TEST(lenet_by_solver_by_fit_and_by_hand_ends_with_the_same_bits) {
    double solver_loss = 0, eager_loss = 0, fit_loss = 0;
    if (!gd_lmdb_is_built()) return;
    GD_SCOPE;
    choose_sizes();
    write_images();
    gd_module *solver = by_solver(true, &solver_loss);
    if (!solver) return;
    check_same(solver, by_hand(), "by hand");
    check_same(solver, by_fit(&fit_loss), "gd_fit");
    check_same(solver, by_solver(false, &eager_loss), "eagerly");
    free(pixels - 16);
}

TEST_MAIN
