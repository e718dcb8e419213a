/* snapshot.c - snapshots in Caffe's layout, with which each of both continues what the other has begun.
 *
 *   PREFIX_iter_N.caffemodel    the layers and their blobs; with .h5 behind it, and so below, as HDF5
 *   PREFIX_iter_N.solverstate   the iteration, the name of the file above, the step of the rate policy, and
 *                               the history: for each blob that Caffe can train, in the order of layers,
 *                               the state of the optimizer; of optimizers that keep two tensors (Adam), first
 *                               all first ones
 *
 * Caffe counts the statistics of batch norms among the blobs that it can train; their history is 0.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "caffe/blob.h"
#include "caffe/hdf5_files.h"
#include "caffe/read.h"
#include "caffe/schema.h"
#include "caffe/solver.h"
#include "caffe/weights.h"
#include "core/alloc.h"
#include "core/grow.h"
#include "core/map.h"
#include "core/thread.h"
#include "format/protobuf_tree.h"
#include "dispatch/call.h"
#include "gradus/ops.h"
#include "nn/module.h"
#include "optim/schedule.h"

/* --- blobs ------------------------------------------------------------------------------------ */

/* A blob that Caffe can train, and its place in the optimizer. */
typedef struct blob {
    gd_tensor *tensor;
    gd_optim_part *part;      /* NULL: the optimizer does not have it */
    int group, number, index; /* of the part in its group, and in the part */
} blob;

typedef struct blob_list {
    blob *at;
    int count, room;
    gd_map numbers; /* of tensors: shared ones are there once */
} blob_list;

static gd_status add_blob(blob_list *list, gd_tensor *t) {
    if (gd_map_find(&list->numbers, t) >= 0) return GD_OK;
    if (!gd_grow(list->at, list->count, list->room) || !gd_map_put(&list->numbers, t, list->count))
        return gd_no_memory(NULL, "for a snapshot");
    list->at[list->count++] = (blob){.tensor = t};
    return GD_OK;
}

static void free_blobs(blob_list *list) {
    gd_free(list->at);
    gd_map_free(&list->numbers);
}

/* All blobs in the order of the layers, with their places. */
static gd_status list_blobs(const gd_caffe_solver *s, blob_list *list) {
    const gd_module *net = s->net->module;
    gd_optimizer *o = s->optimizer;
    for (int i = 0; i < net->count; i++) {
        const gd_module *layer =
            net->entries[i].kind == GD_A_CHILD ? (gd_module *)net->entries[i].object : NULL;
        for (int k = 0; layer && k < layer->count; k++)
            if (layer->entries[k].kind != GD_A_CHILD && layer->entries[k].object)
                GD_TRY(add_blob(list, (gd_tensor *)layer->entries[k].object));
    }
    GD_TRY(gd_optimizer_arrange(o));
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts; k++)
            for (int i = 0; i < o->groups[g].parts[k].count; i++) {
                gd_optim_part *part = &o->groups[g].parts[k];
                const int at = gd_map_find(&list->numbers, part->parameters[i]);
                if (at >= 0) list->at[at] = (blob){part->parameters[i], part, g, k, i};
            }
    return GD_OK;
}

/* The number of tensors that Caffe keeps for each blob. Without momentum SGD keeps none here, but one there. */
static int slots_of(const gd_caffe_solver *s) {
    const int count = s->optimizer->groups[0].needs.count;
    return count > 0 ? count : 1;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The state of a blob in a slot; zeros if it has none. The document refers to the values. */
static gd_status put_history(const gd_caffe_solver *s, gd_pb *state, const blob *b, int slot) {
    GD_NO_GRAD;
    const int count = s->optimizer->groups[0].needs.count;
    gd_tensor *t = b->part && slot < count ? b->part->slots[b->index * count + slot] : NULL;
    if (!t) t = gd_zeros(gd_shape_of(b->tensor->rank, b->tensor->dims), .dtype = GD_F32);
    if (t->kind == GD_FAILED) return gd_failure();
    return gd_caffe_put_blob(gd_pb_put_message(state, "history"), t);
}

/* How often the policy has changed the rate: Caffe keeps it for step and multistep. */
static int64_t current_step(const gd_caffe_solver *s) {
    const char *policy = gd_pb_string_of(s->message, "lr_policy");
    const gd_pb_list *values = gd_pb_get(s->message, "stepvalue");
    const int64_t size = gd_pb_int_of(s->message, "stepsize"), last = s->iter - 1;
    int64_t passed = 0;
    if (strcmp(policy, "step") == 0) return last >= 0 && size > 0 ? last / size : 0;
    for (size_t i = 0; values && i < values->count; i++) passed += last >= values->ints[i];
    return strcmp(policy, "multistep") == 0 ? passed : 0;
}

static gd_status fill_state(const gd_caffe_solver *s, gd_pb *state, const char *weights) {
    blob_list list = {.count = 0};
    gd_pb_put_int(state, "iter", s->iter);
    gd_pb_put_string(state, "learned_net", weights);
    gd_status status = list_blobs(s, &list);
    for (int k = 0; k < slots_of(s) && status == GD_OK; k++)
        for (int i = 0; i < list.count && status == GD_OK; i++)
            status = put_history(s, state, &list.at[i], k);
    gd_pb_put_int(state, "current_step", current_step(s));
    free_blobs(&list);
    return status;
}

static gd_status write_state(const gd_caffe_solver *s, const char *path, const char *weights) {
    GD_SCOPE;
    gd_pb_doc *doc = gd_pb_new(&gd_caffe_solver_state_schema);
    if (!doc) return gd_failure();
    gd_status status = fill_state(s, gd_pb_root(doc), weights);
    if (status == GD_OK)
        status = gd_caffe_is_hdf5(path) ? gd_caffe_state_save_hdf5(gd_pb_root(doc), path)
                                        : gd_pb_save(doc, path);
    gd_pb_free(doc);
    return status;
}

/* Adds the latest change of each parameter, as Caffe does with snapshot_diff. */
static gd_status put_diffs(const gd_caffe_solver *s, const gd_pb *net) {
    GD_NO_GRAD;
    const gd_pb_list *layers = gd_pb_get(net, "layer");
    size_t at = 0;
    for (int i = 0; i < s->net->n_parameters; i++) {
        const gd_caffe_parameter *p = &s->net->parameters[i];
        while (at < layers->count &&
               strcmp(gd_pb_string(layers->messages[at], "name"), p->layer) != 0)
            at++;
        if (at == layers->count)
            return gd_fail(GD_E_STATE, "layer '%s' is not in the net", p->layer);
        gd_pb *to = gd_pb_get(layers->messages[at], "blobs")->messages[p->blob];
        const size_t count = (size_t)gd_tensor_numel(p->tensor), bytes = count * sizeof(float);
        float *values = gd_pb_alloc(to->doc, bytes);
        if (!values) return gd_no_memory(s->path, "for a snapshot");
        GD_TRY(gd_copy_out(gd_sub(s->before[i], gd_detach(p->tensor)), values, bytes));
        gd_pb_put_numbers(to, "diff", values, count);
    }
    return GD_OK;
}

static gd_status write_weights(const gd_caffe_solver *s, const char *path) {
    GD_SCOPE;
    if (!s->before) return gd_caffe_save_weights(path, s->net->module);
    gd_pb_doc *doc = gd_pb_new(&gd_caffe_net_schema);
    if (!doc) return gd_failure();
    gd_status status = gd_caffe_put_layers(gd_pb_root(doc), s->net->module);
    if (status == GD_OK) status = put_diffs(s, gd_pb_root(doc));
    if (status == GD_OK)
        status = gd_caffe_is_hdf5(path) ? gd_caffe_net_save_hdf5(gd_pb_root(doc), path)
                                        : gd_pb_save(doc, path);
    gd_pb_free(doc);
    return status;
}

static bool writes_hdf5(const gd_caffe_solver *s) {
    return strcmp(gd_pb_word_of(s->message, "snapshot_format"), "HDF5") == 0;
}

/* "lenet_iter_100.solverstate", with ".h5" behind it for HDF5 */
static void snapshot_path(const gd_caffe_solver *s, const char *ending, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s_iter_%lld.%s%s", s->prefix, (long long)s->iter, ending,
             writes_hdf5(s) ? ".h5" : "");
}

gd_status gd_caffe_snapshot_write(gd_caffe_solver *s) {
    char weights[PATH_MAX], state[PATH_MAX];
    snapshot_path(s, "caffemodel", weights);
    snapshot_path(s, "solverstate", state);
    const char *kind = writes_hdf5(s) ? "HDF5" : "binary proto";
    gd_caffe_say(&s->log, "Snapshotting to %s file %s", kind, weights);
    GD_TRY(write_weights(s, weights));
    gd_caffe_say(&s->log, "Snapshotting solver state to %s file %s", kind, state);
    return write_state(s, state, weights);
}

gd_status gd_caffe_snapshot_check(const gd_caffe_solver *s) {
    const bool writes = s->snapshot > 0 || gd_pb_int_of(s->message, "snapshot_after_train");
    char folder[PATH_MAX];
    const char *slash = strrchr(s->prefix, '/');
    if (!writes) return GD_OK;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - s->prefix) + 1 : 1,
             slash ? s->prefix : ".");
    if (access(folder, W_OK | X_OK) == 0) return GD_OK;
    return gd_pb_fail(s->message,
                      "snapshots cannot be written as '%s_iter_N.caffemodel': there is no folder "
                      "'%s' that can be written; see snapshot_prefix",
                      s->prefix, folder);
}

/* --- restoring -------------------------------------------------------------------------------- */

/* Copies a blob of the history to a slot of the optimizer, which it creates. */
static gd_status take_history(gd_caffe_solver *s, const gd_pb *message, const blob *b, int slot) {
    GD_SCOPE;
    GD_NO_GRAD;
    gd_tensor *from;
    gd_shape shape;
    const int count = s->optimizer->groups[0].needs.count;
    const gd_tensor *p = b->tensor;
    GD_TRY(gd_caffe_blob_shape(message, &shape));
    if (gd_numel(shape.rank, shape.at) != gd_numel(p->rank, p->dims))
        return gd_pb_fail(message,
                          "a tensor of the history has %lld values, but the blob of the "
                          "net %lld; the snapshot is of another net",
                          (long long)gd_numel(shape.rank, shape.at),
                          (long long)gd_numel(p->rank, p->dims));
    if (!b->part || slot >= count) return GD_OK;
    GD_TRY(gd_caffe_blob_tensor(message, &from));
    GD_TRY(gd_optimizer_make_parameter(s->optimizer, b->group, b->number, b->index));
    gd_tensor *to = b->part->slots[b->index * count + slot];
    return gd_copy_tensor(to, gd_reshape(from, gd_shape_of(p->rank, p->dims)));
}

/* Sets the number of steps of each parameter, which Adam's correction depends on. */
static gd_status set_steps(gd_caffe_solver *s) {
    GD_SCOPE;
    GD_NO_GRAD;
    gd_optimizer *o = s->optimizer;
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts && o->groups[g].needs.counts; k++) {
            gd_optim_part *part = &o->groups[g].parts[k];
            for (int i = 0; i < part->count; i++) GD_TRY(gd_optimizer_make_parameter(o, g, k, i));
            gd_tensor *count = gd_full(gd_dims(part->count), (double)s->iter, .dtype = GD_F64);
            GD_TRY(gd_copy_tensor(part->steps, count));
        }
    return GD_OK;
}

static gd_status take_state(gd_caffe_solver *s, const gd_pb *state) {
    blob_list list = {.count = 0};
    gd_status status = list_blobs(s, &list);
    const size_t given = gd_pb_count(state, "history");
    const int slots = slots_of(s);
    if (status == GD_OK && given != (size_t)(slots * list.count))
        status = gd_pb_fail(state,
                            "the history has %zu tensors, but a solver %s of this net has %d; the "
                            "snapshot is of another solver or net",
                            given, gd_pb_string_of(s->message, "type"), slots * list.count);
    for (int k = 0; k < slots && status == GD_OK; k++)
        for (int i = 0; i < list.count && status == GD_OK; i++)
            status =
                take_history(s, gd_pb_message_at(state, "history", (size_t)(k * list.count + i)),
                             &list.at[i], k);
    free_blobs(&list);
    return status == GD_OK ? set_steps(s) : status;
}

/* The rate of the next iteration. */
static gd_status set_rate(gd_caffe_solver *s) {
    GD_SCOPE;
    if (s->iter == 0) return GD_OK;
    GD_TRY(gd_copy_tensor(s->schedule->step, gd_scalar_of((double)(s->iter - 1), GD_F64)));
    return gd_schedule_step_at(NULL, s->schedule);
}

static gd_status take_doc(gd_caffe_solver *s, const gd_pb *state, const char *path) {
    char weights[PATH_MAX];
    const char *learned = gd_pb_string_of(state, "learned_net");
    if (!gd_pb_has(state, "iter") || gd_pb_int_of(state, "iter") < 0)
        return gd_pb_fail(state, "it has no number of iterations");
    if (*learned) {
        GD_TRY(gd_caffe_find_file(learned, path, weights, sizeof weights));
        GD_TRY(gd_caffe_load_weights(weights, s->net->module));
    }
    s->iter = s->start = gd_pb_int_of(state, "iter");
    GD_TRY(take_state(s, state));
    return set_rate(s);
}

gd_status gd_caffe_snapshot_restore(gd_caffe_solver *s, const char *path) {
    gd_pb_doc *doc;
    gd_caffe_say(&s->log, "Restoring previous solver status from %s", path);
    if (gd_caffe_is_hdf5(path)) GD_TRY(gd_caffe_state_load_hdf5(&doc, path));
    else GD_TRY(gd_pb_load(&doc, &gd_caffe_solver_state_schema, path));
    const gd_status status = take_doc(s, gd_pb_root(doc), path);
    gd_pb_free(doc);
    return status;
}
