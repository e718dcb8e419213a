/* convnets.c - convolutional networks for images. */
#include <math.h>
#include <stdio.h>

#include "gradus/autograd.h"
#include "gradus/layers.h"
#include "gradus/nn.h"
#include "gradus/ops.h"
#include "gradus/zoo.h"
#include "core/number.h"
#include "zoo/zoo.h"

/* --- LeNet ------------------------------------------------------------------------------------ */

/*net lenet
 * LeCun et al. 1998 in today's form: two convolutions with relu and max pooling, then three linear
 * layers. For x (N, channels, 28, 28), or 32 by 32 without the padding of the first convolution.
 *   channels int = 1
 *   classes int = 10
 *   size int = 28     28 or 32
 *   python (channels, num_classes=classes, size)
 */
typedef struct {
    gd_module *conv1, *conv2, *fc1, *fc2, *fc3;
} lenet;

static gd_tensors lenet_forward(gd_tensors in, void *self) {
    lenet *m = self;
    gd_tensor *x = gd_max_pool2d(gd_relu(gd_module_forward(m->conv1, in.at[0])), .kernel = 2);
    x = gd_max_pool2d(gd_relu(gd_module_forward(m->conv2, x)), .kernel = 2);
    x = gd_relu(gd_module_forward(m->fc1, gd_flatten(x, .start_axis = 1)));
    x = gd_relu(gd_module_forward(m->fc2, x));
    return gd_listed(gd_module_forward(m->fc3, x));
}
static gd_status lenet_check(const void *options) {
    const gd_zoo_lenet_options *o = options;
    GD_TRY(gd_net_at_least("channels", o->channels, 1));
    GD_TRY(gd_net_at_least("classes", o->classes, 1));
    return o->size == 28 || o->size == 32
               ? GD_OK
               : gd_fail(GD_E_ARGUMENT, "size is %lld; it must be 28 or 32", (long long)o->size);
}
static gd_module *lenet_make(const void *options) {
    const gd_zoo_lenet_options *o = options;
    gd_module *net = gd_module_new(lenet_forward, sizeof(lenet), .type = "lenet");
    lenet *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->conv1, gd_nn_conv2d(o->channels, 6, 5, .padding = o->size == 28 ? 2 : 0));
    GD_CHILD(net, m->conv2, gd_nn_conv2d(6, 16, 5));
    GD_CHILD(net, m->fc1, gd_nn_linear(16 * 5 * 5, 120));
    GD_CHILD(net, m->fc2, gd_nn_linear(120, 84));
    GD_CHILD(net, m->fc3, gd_nn_linear(84, o->classes));
    return net;
}

/* --- residual networks ------------------------------------------------------------------------ */

/* y = relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), He et al. 2015. */
typedef struct {
    gd_module *conv1, *bn1, *conv2, *bn2, *downsample;
} basic_block;

static gd_tensors block_forward(gd_tensors in, void *self) {
    basic_block *m = self;
    gd_tensor *x = in.at[0];
    gd_tensor *y = gd_relu(gd_module_forward(m->bn1, gd_module_forward(m->conv1, x)));
    y = gd_module_forward(m->bn2, gd_module_forward(m->conv2, y));
    return gd_listed(gd_relu(gd_add(y, m->downsample ? gd_module_forward(m->downsample, x) : x)));
}

/* The initialization of He et al., by fan out. */
static gd_module *make_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    gd_module *m =
        gd_nn_conv2d(in, out, kernel, .stride = stride, .padding = kernel / 2, .bias = false);
    char init[64];
    gd_snprintf(init, sizeof init, "normal std=%.17g", sqrt(2 / (double)(out * kernel * kernel)));
    if (m) gd_module_init(m, "weight", init);
    return m;
}

static gd_module *make_block(int64_t in, int64_t out, int64_t stride) {
    gd_module *net = gd_module_new(block_forward, sizeof(basic_block), .type = "basic_block");
    basic_block *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->conv1, make_conv(in, out, 3, stride));
    GD_CHILD(net, m->bn1, gd_nn_batch_norm2d(out));
    GD_CHILD(net, m->conv2, make_conv(out, out, 3, 1));
    GD_CHILD(net, m->bn2, gd_nn_batch_norm2d(out));
    if (stride != 1 || in != out)
        GD_CHILD(net, m->downsample,
                 gd_nn_sequential(make_conv(in, out, 1, stride), gd_nn_batch_norm2d(out)));
    return net;
}

/* The block of the deeper networks: a 1x1 convolution to a quarter of the channels, a 3x3 one with
 * the stride, and a 1x1 one to all channels. */
typedef struct {
    gd_module *conv1, *bn1, *conv2, *bn2, *conv3, *bn3, *downsample;
} bottleneck;

static gd_tensors bottleneck_forward(gd_tensors in, void *self) {
    bottleneck *m = self;
    gd_tensor *x = in.at[0];
    gd_tensor *y = gd_relu(gd_module_forward(m->bn1, gd_module_forward(m->conv1, x)));
    y = gd_relu(gd_module_forward(m->bn2, gd_module_forward(m->conv2, y)));
    y = gd_module_forward(m->bn3, gd_module_forward(m->conv3, y));
    return gd_listed(gd_relu(gd_add(y, m->downsample ? gd_module_forward(m->downsample, x) : x)));
}

static gd_module *make_bottleneck(int64_t in, int64_t out, int64_t stride) {
    gd_module *net = gd_module_new(bottleneck_forward, sizeof(bottleneck), .type = "bottleneck");
    bottleneck *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->conv1, make_conv(in, out / 4, 1, 1));
    GD_CHILD(net, m->bn1, gd_nn_batch_norm2d(out / 4));
    GD_CHILD(net, m->conv2, make_conv(out / 4, out / 4, 3, stride));
    GD_CHILD(net, m->bn2, gd_nn_batch_norm2d(out / 4));
    GD_CHILD(net, m->conv3, make_conv(out / 4, out, 1, 1));
    GD_CHILD(net, m->bn3, gd_nn_batch_norm2d(out));
    if (stride != 1 || in != out)
        GD_CHILD(net, m->downsample,
                 gd_nn_sequential(make_conv(in, out, 1, stride), gd_nn_batch_norm2d(out)));
    return net;
}

typedef gd_module *make_block_fn(int64_t in, int64_t out, int64_t stride);

static gd_module *make_stage(make_block_fn *make, int64_t in, int64_t out, int blocks,
                             int64_t stride) {
    gd_module *list = gd_nn_sequential();
    for (int i = 0; i < blocks; i++)
        gd_module_append(list, make(i ? out : in, out, i ? 1 : stride));
    return list;
}

typedef struct {
    gd_module *conv1, *bn1, *layer1, *layer2, *layer3, *layer4, *fc;
} resnet;

static gd_tensors resnet_forward(gd_tensors in, void *self) {
    resnet *m = self;
    gd_tensor *x = gd_relu(gd_module_forward(m->bn1, gd_module_forward(m->conv1, in.at[0])));
    if (m->layer4) x = gd_max_pool2d(x, .kernel = 3, .stride = 2, .padding = 1);
    x = gd_module_forward(m->layer3, gd_module_forward(m->layer2, gd_module_forward(m->layer1, x)));
    if (m->layer4) x = gd_module_forward(m->layer4, x);
    return gd_listed(gd_module_forward(m->fc, gd_mean(x, .axis = gd_dims(2, 3))));
}

/* The stages of a network for ImageNet; `width` is the number of channels of the first one. */
static gd_module *make_resnet(const char *type, make_block_fn *make, int64_t width,
                              const int blocks[4], int64_t channels, int64_t classes) {
    gd_module *net = gd_module_new(resnet_forward, sizeof(resnet), .type = type);
    resnet *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->conv1, make_conv(channels, 64, 7, 2));
    GD_CHILD(net, m->bn1, gd_nn_batch_norm2d(64));
    GD_CHILD(net, m->layer1, make_stage(make, 64, width, blocks[0], 1));
    GD_CHILD(net, m->layer2, make_stage(make, width, 2 * width, blocks[1], 2));
    GD_CHILD(net, m->layer3, make_stage(make, 2 * width, 4 * width, blocks[2], 2));
    GD_CHILD(net, m->layer4, make_stage(make, 4 * width, 8 * width, blocks[3], 2));
    GD_CHILD(net, m->fc, gd_nn_linear(8 * width, classes));
    return net;
}

/*net resnet18
 * He et al. 2015, 18 layers, as in torchvision: for x (N, 3, H, W), H and W at least 32.
 *   classes int = 1000
 *   channels int = 3
 *   python (num_classes=classes, channels)
 */
static gd_status resnet18_check(const void *options) {
    const gd_zoo_resnet18_options *o = options;
    GD_TRY(gd_net_at_least("classes", o->classes, 1));
    return gd_net_at_least("channels", o->channels, 1);
}
static gd_module *resnet18_make(const void *options) {
    const gd_zoo_resnet18_options *o = options;
    return make_resnet("resnet18", make_block, 64, (const int[]){2, 2, 2, 2}, o->channels,
                       o->classes);
}

/*net resnet50
 * He et al. 2015, 50 layers of bottleneck blocks, as in torchvision: for x (N, 3, H, W), H and W at
 * least 32.
 *   classes int = 1000
 *   channels int = 3
 *   python (num_classes=classes, channels)
 */
static gd_status resnet50_check(const void *options) {
    const gd_zoo_resnet50_options *o = options;
    GD_TRY(gd_net_at_least("classes", o->classes, 1));
    return gd_net_at_least("channels", o->channels, 1);
}
static gd_module *resnet50_make(const void *options) {
    const gd_zoo_resnet50_options *o = options;
    return make_resnet("resnet50", make_bottleneck, 256, (const int[]){3, 4, 6, 3}, o->channels,
                       o->classes);
}

/*net resnet20
 * He et al. 2015 for CIFAR, 20 layers: three stages of three blocks, 16, 32 and 64 channels. For x
 * (N, 3, 32, 32).
 *   classes int = 10
 *   channels int = 3
 *   python (num_classes=classes, channels)
 */
static gd_status resnet20_check(const void *options) {
    const gd_zoo_resnet20_options *o = options;
    GD_TRY(gd_net_at_least("classes", o->classes, 1));
    return gd_net_at_least("channels", o->channels, 1);
}
static gd_module *resnet20_make(const void *options) {
    const gd_zoo_resnet20_options *o = options;
    gd_module *net = gd_module_new(resnet_forward, sizeof(resnet), .type = "resnet20");
    resnet *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->conv1, make_conv(o->channels, 16, 3, 1));
    GD_CHILD(net, m->bn1, gd_nn_batch_norm2d(16));
    GD_CHILD(net, m->layer1, make_stage(make_block, 16, 16, 3, 1));
    GD_CHILD(net, m->layer2, make_stage(make_block, 16, 32, 3, 2));
    GD_CHILD(net, m->layer3, make_stage(make_block, 32, 64, 3, 2));
    GD_CHILD(net, m->fc, gd_nn_linear(64, o->classes));
    return net;
}

/* --- VGG -------------------------------------------------------------------------------------- */

/*net vgg16
 * Simonyan and Zisserman 2014, 16 layers, as in torchvision: for x (N, 3, H, W), H and W at least
 * 32. An adaptive pooling to 7 by 7 precedes the three linear layers.
 *   classes int = 1000
 *   channels int = 3
 *   hidden int = 4096     outputs of the first two linear layers
 *   dropout float = 0.5   after each of them
 *   python (num_classes=classes, channels, hidden, dropout)
 */
typedef struct {
    gd_module *features, *avgpool, *classifier;
} vgg;

static gd_tensors vgg_forward(gd_tensors in, void *self) {
    vgg *m = self;
    gd_tensor *x = gd_module_forward(m->avgpool, gd_module_forward(m->features, in.at[0]));
    return gd_listed(gd_module_forward(m->classifier, gd_flatten(x, .start_axis = 1)));
}
static gd_module *make_vgg_features(int64_t channels) {
    static const int64_t widths[] = {64, 64,  0,   128, 128, 0,   256, 256, 256,
                                     0,  512, 512, 512, 0,   512, 512, 512, 0}; /* 0: pooling */
    gd_module *list = gd_nn_sequential();
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        if (widths[i] == 0) {
            gd_module_append(list, gd_nn_max_pool2d(2));
            continue;
        }
        gd_module *conv = gd_nn_conv2d(channels, widths[i], 3, .padding = 1);
        char init[64];
        gd_snprintf(init, sizeof init, "normal std=%.17g", sqrt(2 / (double)(widths[i] * 9)));
        if (conv) gd_module_init(conv, "weight", init);
        if (conv) gd_module_init(conv, "bias", "zeros");
        gd_module_append(list, conv);
        gd_module_append(list, gd_nn_relu());
        channels = widths[i];
    }
    return list;
}
static gd_module *make_vgg_linear(int64_t in, int64_t out) {
    gd_module *m = gd_nn_linear(in, out);
    if (m) gd_module_init(m, "weight", "normal std=0.01");
    if (m) gd_module_init(m, "bias", "zeros");
    return m;
}
static gd_status vgg16_check(const void *options) {
    const gd_zoo_vgg16_options *o = options;
    GD_TRY(gd_net_at_least("classes", o->classes, 1));
    GD_TRY(gd_net_at_least("channels", o->channels, 1));
    GD_TRY(gd_net_at_least("hidden", o->hidden, 1));
    return o->dropout >= 0 && o->dropout <= 1
               ? GD_OK
               : gd_fail(GD_E_ARGUMENT, "dropout is %g; it must be in [0, 1]", o->dropout);
}
static gd_module *vgg16_make(const void *options) {
    const gd_zoo_vgg16_options *o = options;
    gd_module *net = gd_module_new(vgg_forward, sizeof(vgg), .type = "vgg16");
    vgg *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->features, make_vgg_features(o->channels));
    GD_CHILD(net, m->avgpool, gd_nn_adaptive_avg_pool2d(7));
    GD_CHILD(net, m->classifier,
             gd_nn_sequential(make_vgg_linear(512 * 7 * 7, o->hidden), gd_nn_relu(),
                              gd_nn_dropout(.p = o->dropout), make_vgg_linear(o->hidden, o->hidden),
                              gd_nn_relu(), gd_nn_dropout(.p = o->dropout),
                              make_vgg_linear(o->hidden, o->classes)));
    return net;
}

#include "zoo/convnets.gen.h"
