/* upgrade_layers.c - layers of version 1, `layers { type: CONVOLUTION }`, become those of today.
 *
 * Messages of options and most other fields have the same names and types in both. A layer of
 * version 1 has its learning rates, decays, names and share modes in four lists; today's has a
 * message `param` for each parameter.
 */
#include <string.h>

#include "caffe/upgrade.h"
#include "core/error.h"

/* The types by their numbers in V1LayerParameter. */
/* clang-format off */
static const char *const types[] = {
    NULL, "Accuracy", "BNLL", "Concat", "Convolution", "Data", "Dropout", "EuclideanLoss", "Flatten",
    "HDF5Data", "HDF5Output", "Im2col", "ImageData", "InfogainLoss", "InnerProduct", "LRN",
    "MultinomialLogisticLoss", "Pooling", "ReLU", "Sigmoid", "Softmax", "SoftmaxWithLoss", "Split",
    "TanH", "WindowData", "Eltwise", "Power", "SigmoidCrossEntropyLoss", "HingeLoss", "MemoryData",
    "ArgMax", "Threshold", "DummyData", "Slice", "MVN", "AbsVal", "Silence", "ContrastiveLoss", "Exp",
    "Deconvolution",
};
/* clang-format on */

/* --- fields ----------------------------------------------------------------------------------- */

/* Fields of transform_param that once were options of data layers. */
static const char *const transform_fields[] = {"scale", "mean_file", "crop_size", "mirror"};

static gd_pb *data_options(const gd_pb *layer, const char **name) {
    static const char *const options[][2] = {{"Data", "data_param"},
                                             {"ImageData", "image_data_param"},
                                             {"WindowData", "window_data_param"}};
    const char *type = gd_pb_string_of(layer, "type");
    for (int i = 0; i < 3; i++) {
        const gd_pb_list *list =
            strcmp(type, options[i][0]) == 0 ? gd_pb_get(layer, options[i][1]) : NULL;
        *name = options[i][1];
        if (list) return list->messages[0];
    }
    return NULL;
}

static void upgrade_transform(gd_pb *layer, unsigned *upgraded) {
    const char *name;
    gd_pb *options = data_options(layer, &name);
    for (int i = 0; options && i < 4; i++) {
        if (!gd_pb_has(options, transform_fields[i])) continue;
        gd_pb *transform = gd_pb_put_message(layer, "transform_param");
        gd_pb_move(transform, transform_fields[i], options, transform_fields[i]);
        *upgraded |= GD_CAFFE_OLD_TRANSFORMS;
    }
}

void gd_caffe_warn_of_transform(const gd_pb *layer, const char *file) {
    const char *name;
    const gd_pb *options = data_options(layer, &name);
    for (int i = 0; options && i < 4; i++)
        if (gd_pb_has(options, transform_fields[i]))
            gd_notice(GD_LOG_WARNING,
                      "%s: layer '%.100s' (%s): %s.%s has no effect, as in Caffe; write "
                      "transform_param { %s: ... }",
                      file, gd_pb_string_of(layer, "name"), gd_pb_string_of(layer, "type"), name,
                      transform_fields[i], transform_fields[i]);
}

static size_t longest(const gd_pb_list *const *lists, int count) {
    size_t most = 0;
    for (int i = 0; i < count; i++)
        if (lists[i] && lists[i]->count > most) most = lists[i]->count;
    return most;
}

/* A message for each parameter that one of the lists describes. */
static void put_params(gd_pb *layer, const gd_pb_list *const lists[4]) {
    const gd_pb_list *names = lists[0], *modes = lists[1], *rates = lists[2], *decays = lists[3];
    const size_t count = longest(lists, 4);
    for (size_t i = 0; i < count; i++) {
        gd_pb *param = gd_pb_put_message(layer, "param");
        if (names && i < names->count) gd_pb_put_string(param, "name", names->bytes[i].data);
        if (modes && i < modes->count) gd_pb_put_int(param, "share_mode", modes->ints[i]);
        if (rates && i < rates->count) gd_pb_put_float(param, "lr_mult", (double)rates->floats[i]);
        if (decays && i < decays->count)
            gd_pb_put_float(param, "decay_mult", (double)decays->floats[i]);
    }
}

/* --- layers ----------------------------------------------------------------------------------- */

static gd_status upgrade_layer(gd_pb *layer, unsigned *upgraded) {
    static const char *const param_fields[4] = {"param", "blob_share_mode", "blobs_lr",
                                                "weight_decay"};
    const char *name = gd_pb_string_of(layer, "name");
    const gd_pb *v0 = gd_pb_message_of(layer, "layer");
    if (v0)
        return gd_pb_fail(layer,
                          "layer '%.100s' is of version 0 (V0LayerParameter), which is not "
                          "supported; Caffe's upgrade_net_proto_text converts it",
                          gd_pb_string_of(v0, "name"));
    const int64_t number = gd_pb_int_of(layer, "type");
    if (number < 0 || number >= (int64_t)(sizeof types / sizeof *types))
        return gd_pb_fail(layer, "layer '%.100s': a layer of version 1 has no type %lld", name,
                          (long long)number);
    const char *type = types[number];

    gd_pb_list copies[4];
    const gd_pb_list *lists[4];
    for (int i = 0; i < 4; i++) {
        lists[i] = gd_pb_get(layer, param_fields[i]);
        if (lists[i]) copies[i] = *lists[i]; /* the values stay when the fields are removed */
        if (lists[i]) lists[i] = &copies[i];
    }
    gd_pb_convert(layer, &gd_caffe_layer_schema);
    if (type) gd_pb_put_string(layer, "type", type);
    put_params(layer, lists);
    upgrade_transform(layer, upgraded);
    return gd_pb_check(layer->doc);
}

gd_status gd_caffe_upgrade_layers(gd_pb *net, unsigned *upgraded) {
    const gd_pb_list *layers = gd_pb_get(net, "layers");
    if (layers == NULL) return GD_OK;
    if (gd_pb_has(net, "layer"))
        return gd_pb_fail(layers->messages[0],
                          "a net has either 'layers', of version 1, or 'layer', not both");
    for (size_t i = 0; i < layers->count; i++) GD_TRY(upgrade_layer(layers->messages[i], upgraded));
    gd_pb_move(net, "layer", net, "layers");
    *upgraded |= GD_CAFFE_OLD_LAYERS;
    return gd_pb_check(net->doc);
}
