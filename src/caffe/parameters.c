/* parameters.c - the parameters of a net: their rates, and which layers share them.
 *
 *     param { name: "w" lr_mult: 2 decay_mult: 0 share_mode: PERMISSIVE }
 *
 * is about the blob of its number. Blobs with one name are one tensor.
 */
#include <stdio.h>
#include <string.h>

#include "caffe/net_build.h"
#include "core/grow.h"
#include "dispatch/intern.h"
#include "gradus/autograd.h"
#include "nn/module.h"

static const gd_pb *param_of(const gd_caffe_layer *l, int blob) {
    return (size_t)blob < gd_pb_count(l->message, "param")
               ? gd_pb_message_at(l->message, "param", (size_t)blob)
               : NULL;
}

static const char *shape_text(const gd_tensor *t, char text[200]) {
    size_t used = (size_t)snprintf(text, 200, "[");
    for (int i = 0; i < t->rank; i++)
        used += (size_t)snprintf(text + used, 200 - used, "%s%lld", i ? "," : "",
                                 (long long)t->dims[i]);
    snprintf(text + used, 200 - used, "]");
    return text;
}

static bool same_shape(const gd_tensor *a, const gd_tensor *b) {
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* Puts a tensor of another layer in the place of a blob. */
static gd_status share(const gd_caffe_layer *l, const gd_entry *e, gd_tensor *with,
                       const char *owner, bool permissive) {
    const gd_tensor *own = (const gd_tensor *)e->object;
    char ours[200], theirs[200];
    if (!same_shape(own, with) &&
        !(permissive && gd_numel(own->rank, own->dims) == gd_numel(with->rank, with->dims)))
        return gd_caffe_fail(l,
                             "its blob '%s' is %s, but layer '%s', with which it shares it, has "
                             "%s%s",
                             e->name, shape_text(own, ours), owner, shape_text(with, theirs),
                             permissive ? "" : "; share_mode: PERMISSIVE needs only equal counts");
    return gd_module_set_tensor_at(NULL, l->module, e->name, with);
}

static gd_status set_rate(const gd_caffe_layer *l, const gd_pb *param, const char *field,
                          const char *name, const char *owner, double *rate, bool *has_rate) {
    if (!gd_pb_has(param, field)) return GD_OK;
    const double given = gd_pb_float_of(param, field);
    if (*has_rate && given != *rate)
        return gd_caffe_fail(l, "the shared parameter '%s' has %s %g, but layer '%s' gives it %g",
                             name, field, given, owner, *rate);
    *rate = given;
    *has_rate = true;
    return GD_OK;
}

static gd_status add_parameter(net_builder *b, const gd_caffe_layer *l, gd_tensor *t, int blob,
                               const gd_pb *param) {
    gd_caffe_text_net *net = b->net;
    if (!gd_grow(net->parameters, net->n_parameters, b->parameters_room))
        return gd_no_memory(net->file, "for a net");
    const double lr = param ? gd_pb_float_of(param, "lr_mult") : 1,
                 decay = param ? gd_pb_float_of(param, "decay_mult") : 1;
    net->parameters[net->n_parameters++] =
        (gd_caffe_parameter){t, gd_intern(l->name), blob, lr, decay};
    return GD_OK;
}

static gd_status add_owner(net_builder *b, const gd_caffe_layer *l, gd_tensor *t, const char *name,
                           const gd_pb *param) {
    const char *kept = gd_intern(name);
    if (!kept || !gd_grow(b->owners, b->n_owners, b->owners_room) ||
        !gd_set_entry_number(&b->owner_numbers, kept, b->n_owners))
        return gd_no_memory(b->net->file, "for a net");
    b->owners[b->n_owners++] =
        (net_owner){t, gd_intern(l->name), b->net->n_parameters - 1, gd_pb_has(param, "lr_mult"),
                    gd_pb_has(param, "decay_mult")};
    return GD_OK;
}

/* A blob whose name another layer has, too. */
static gd_status share_owner(net_builder *b, const gd_caffe_layer *l, const gd_entry *e,
                             net_owner *owner, const gd_pb *param) {
    gd_caffe_parameter *p = owner->parameter >= 0 ? &b->net->parameters[owner->parameter] : NULL;
    const char *name = gd_pb_string(param, "name");
    const bool permissive = strcmp(gd_pb_word_of(param, "share_mode"), "PERMISSIVE") == 0;
    GD_TRY(share(l, e, owner->tensor, owner->layer, permissive));
    if (!p) return GD_OK;
    GD_TRY(set_rate(l, param, "lr_mult", name, owner->layer, &p->lr_mult, &owner->has_lr_mult));
    return set_rate(l, param, "decay_mult", name, owner->layer, &p->decay_mult,
                    &owner->has_decay_mult);
}

static gd_status take_blob(net_builder *b, const gd_caffe_layer *l, gd_entry *e, int blob) {
    const gd_pb *param = param_of(l, blob);
    const char *name = param ? gd_pb_string(param, "name") : "";
    const int owner = *name ? gd_entry_number(&b->owner_numbers, name) : -1;
    if (owner >= 0) return share_owner(b, l, e, &b->owners[owner], param);
    gd_tensor *t = (gd_tensor *)e->object;
    if (e->kind == GD_A_PARAMETER) GD_TRY(add_parameter(b, l, t, blob, param));
    return *name ? add_owner(b, l, t, name, param) : GD_OK;
}

/* The blobs of the layer of this name in a net whose parameters are shared. */
static gd_status share_with_net(net_builder *b, const gd_caffe_layer *l) {
    const gd_caffe_text_net *other = b->settings->share;
    const gd_entry *layer = other ? gd_module_entry(other->module, l->name) : NULL;
    const gd_module *theirs = layer ? (const gd_module *)layer->object : NULL;
    for (int i = 0; theirs && i < l->module->count && i < theirs->count; i++) {
        const gd_entry *e = &l->module->entries[i], *from = &theirs->entries[i];
        if (e->kind != GD_A_CHILD && e->object && from->object)
            GD_TRY(share(l, e, (gd_tensor *)from->object, l->name, false));
    }
    return GD_OK;
}

gd_status gd_caffe_freeze_parameters(const gd_caffe_text_net *net) {
    for (int i = 0; i < net->n_parameters; i++)
        if (net->parameters[i].lr_mult == 0)
            GD_TRY(gd_set_requires_grad_at(NULL, net->parameters[i].tensor, false));
    return GD_OK;
}

gd_status gd_caffe_take_parameters(net_builder *b, const gd_caffe_layer *l) {
    const size_t given = gd_pb_count(l->message, "param");
    int blob = 0;
    GD_TRY(share_with_net(b, l));
    for (int i = 0; i < l->module->count; i++)
        if (l->module->entries[i].kind != GD_A_CHILD && l->module->entries[i].object)
            GD_TRY(take_blob(b, l, &l->module->entries[i], blob++));
    if (given > (size_t)blob)
        return gd_caffe_fail(l, "it has %zu fields param, but %d blob%s", given, blob,
                             blob == 1 ? "" : "s");
    return GD_OK;
}
