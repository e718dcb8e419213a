/* module.c - gd_caffe_net: a net from text in the current scope. */
#include <string.h>

#include "caffe/net.h"
#include "caffe/stages.h"
#include "caffe/weights.h"
#include "core/alloc.h"
#include "core/freed.h"
#include "core/thread.h"
#include "dispatch/intern.h"
#include "gradus/caffe.h"
#include "nn/module.h"

/* The inputs and outputs of a net. Clones of its module share them. */
typedef struct net_info {
    gd_object object;
    gd_caffe_blob *blobs; /* first the inputs */
    int n_inputs, n_outputs;
    const char *name; /* interned */
} net_info;

static void destroy_info(gd_object *object) {
    gd_free(((net_info *)object)->blobs);
    gd_free(object);
    gd_object_count(-1);
}
static const gd_class info_class = {.name = "caffe net", .destroy = destroy_info};

gd_status gd_caffe_describe_module(const gd_caffe_text_net *net) {
    net_info *info = gd_calloc(1, sizeof *info);
    gd_caffe_blob *blobs = gd_calloc((size_t)(net->n_inputs + net->n_outputs + 1), sizeof *blobs);
    if (!info || !blobs) {
        gd_free(info);
        gd_free(blobs);
        return gd_no_memory(net->file, "for a net");
    }
    gd_object_init(&info->object, &info_class);
    gd_object_count(1);
    info->blobs = blobs;
    info->name = net->name;
    for (; info->n_inputs < net->n_inputs; info->n_inputs++)
        *blobs++ =
            (gd_caffe_blob){net->inputs[info->n_inputs].name, net->inputs[info->n_inputs].shape};
    for (int i = 0; i < net->n_outputs; i++)
        if (!net->outputs[i].hidden) {
            *blobs++ = (gd_caffe_blob){net->outputs[i].name, net->outputs[i].shape};
            info->n_outputs++;
        }
    net->module->source = &info->object;
    return GD_OK;
}

static const net_info *info_of(const gd_module *net) {
    return net && net->source && net->source->class == &info_class ? (const net_info *)net->source
                                                                   : NULL;
}

const char *gd_caffe_net_name(const gd_module *net) {
    const net_info *info = info_of(net);
    return info && *info->name ? info->name : NULL;
}

bool gd_caffe_input(const gd_module *net, int index, gd_caffe_blob *blob) {
    const net_info *info = info_of(net);
    if (!info || index < 0 || index >= info->n_inputs) return false;
    *blob = info->blobs[index];
    return true;
}

bool gd_caffe_output(const gd_module *net, int index, gd_caffe_blob *blob) {
    const net_info *info = info_of(net);
    if (!info || index < 0 || index >= info->n_outputs) return false;
    *blob = info->blobs[info->n_inputs + index];
    return true;
}

static gd_status make(const char *path, const gd_caffe_net_options *o, gd_module **module) {
    const char *stages[GD_CAFFE_MAX_STAGES];
    gd_caffe_data_options data = {.dummy = o->dummy};
    gd_caffe_net_settings settings = {.phase = o->train ? GD_CAFFE_TRAIN : GD_CAFFE_TEST,
                                      .level = o->level,
                                      .stages = stages,
                                      .outputs = o->outputs,
                                      .data = &data};
    gd_caffe_text_net *net;
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_caffe_net: the path is NULL");
    GD_TRY(gd_caffe_read_stages(o->stages, stages, &settings.n_stages));
    GD_TRY(gd_caffe_net_read(&net, path, &settings));
    const gd_status status = o->weights ? gd_caffe_load_weights(o->weights, net->module) : GD_OK;
    if (status == GD_OK) *module = gd_hold(net->module);
    gd_caffe_net_free(net);
    return status;
}

gd_module *gd_caffe_net_at(const char *site, const char *path, const gd_caffe_net_options *o) {
    gd_module *module = NULL;
    o = o ? o : GD_CAFFE_NET_OPTIONS_();
    GD_CALLED_FROM(site);
    gd_report(site, make(path, o, &module));
    return module;
}
