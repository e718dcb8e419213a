/* solver_reach.c - parameters that no loss reaches. Caffe's solvers let them decay, as if their gradients were 0;
 * an optimizer leaves out parameters without a gradient. So they get gradients of 0. */
#include <string.h>

#include "caffe/solver.h"
#include "core/alloc.h"
#include "core/name_map.h"

/* Blobs on which a loss depends, by their names. */
typedef struct reached {
    gd_name_map blobs;
    int count;
} reached;

static gd_status mark(reached *r, const char *blob) {
    if (gd_entry_number(&r->blobs, blob) >= 0) return GD_OK;
    return gd_set_entry_number(&r->blobs, blob, r->count++) ? GD_OK
                                                            : gd_no_memory(NULL, "for a solver");
}

/* Whether a loss depends on a top of the layer; then it depends on its bottoms, too. */
static gd_status reach_layer(reached *r, const gd_pb *layer, bool *found) {
    const gd_pb_list *down = gd_pb_get(layer, "propagate_down");
    *found = gd_pb_count(layer, "top") == 0; /* a loss without a top */
    for (size_t i = 0; i < gd_pb_count(layer, "top"); i++)
        *found |= gd_entry_number(&r->blobs, gd_pb_string_at(layer, "top", i)) >= 0;
    for (size_t i = 0; *found && i < gd_pb_count(layer, "bottom"); i++)
        if (!down || i >= down->count || down->ints[i])
            GD_TRY(mark(r, gd_pb_string_at(layer, "bottom", i)));
    return GD_OK;
}

static gd_status find_reached(gd_caffe_solver *s, reached *r) {
    const gd_caffe_text_net *net = s->net;
    int parameter = net->n_parameters - 1;
    for (int i = 0; i < net->n_outputs; i++)
        if (net->outputs[i].loss_weight != 0) GD_TRY(mark(r, net->outputs[i].name));
    for (int i = net->n_layers - 1; i >= 0; i--) {
        const char *type = gd_pb_string(net->layers[i], "type");
        const char *name = gd_pb_string(net->layers[i], "name");
        bool found = false;
        if (strcmp(type, "Silence") != 0) GD_TRY(reach_layer(r, net->layers[i], &found));
        /* parameters are in the order of the layers */
        for (; parameter >= 0 && strcmp(net->parameters[parameter].layer, name) == 0; parameter--)
            s->unreached[parameter] = !found && net->parameters[parameter].lr_mult != 0;
    }
    return GD_OK;
}

gd_status gd_caffe_find_unreached(gd_caffe_solver *s) {
    reached r = {.count = 0};
    if (gd_pb_float_of(s->message, "weight_decay") == 0) return GD_OK;
    s->unreached = gd_calloc((size_t)s->net->n_parameters + 1, sizeof *s->unreached);
    if (!s->unreached) return gd_no_memory(s->path, "for a solver");
    const gd_status status = find_reached(s, &r);
    gd_name_map_free(&r.blobs);
    return status;
}

gd_tensor *gd_caffe_reach_all(const gd_caffe_solver *s, gd_tensor *loss) {
    for (int i = 0; s->unreached && i < s->net->n_parameters; i++)
        if (s->unreached[i])
            loss = gd_add(loss, gd_mul(gd_sum(s->net->parameters[i].tensor), gd_scalar(0)));
    return loss;
}
