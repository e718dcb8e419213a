/* callbacks_tensorboard.c - tensorboard: writes values, histograms and the graph of a net to event
 * files. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/autograd.h"
#include "gradus/callbacks.h"
#include "gradus/ops.h"
#include "nn/module.h"
#include "train/callback.h"
#include "train/checkpoint_files.h"
#include "train/fit.h"
#include "train/tensorboard.h"

/*callback tensorboard(dir:string)
 * Writes event files for TensorBoard (tensorboard --logdir DIR): after each epoch all values
 * against the number of steps, tagged "loss/train", "loss/validation" and so on; histograms of
 * parameters, and of their gradients if the training step keeps them; and the net as a graph. A
 * resumed run adds a file that makes TensorBoard drop events written after the checkpoint. If the
 * disk is full, events are lost with a warning and training continues.
 *   every int = 0        in [0, inf): steps between additional values, tagged "step/loss"; 0: none
 *   histograms int = 0   in [0, inf): epochs between histograms; 0: none
 *   graph bool = true    write the graph of the net after the first batch
 *   python TensorBoard(log_dir=dir)
 */

typedef struct board {
    gd_event_file *file; /* NULL: the run has not begun, or the file cannot be opened */
    int64_t last;        /* the step of the latest event; -1: none */
    bool needs_graph;    /* the graph has not been written yet */
    bool warned;         /* about lost events */
} board;

static gd_status tensorboard_check(const void *options) {
    const gd_tensorboard_options *o = options;
    return o->dir && *o->dir ? GD_OK : gd_fail(GD_E_ARGUMENT, "the folder's name is empty");
}

static gd_status tensorboard_open(gd_callback *c) {
    board *b = gd_calloc(1, sizeof *b);
    if (!b) return gd_no_memory(NULL, "for the log");
    b->last = -1;
    c->self = b;
    return GD_OK;
}

static void tensorboard_close(gd_callback *c) {
    board *b = c->self;
    if (b) gd_event_file_close(b->file);
    gd_free(b);
}

static gd_status tensorboard_save(gd_callback *c, gd_state *state) {
    return gd_state_put_integer(state, "last", ((board *)c->self)->last);
}

static gd_status tensorboard_load(gd_callback *c, gd_loading *in) {
    return gd_loading_integer(in, "last", &((board *)c->self)->last);
}

/* Turns a failure to write into a warning. */
static gd_status warn_lost(board *b, gd_event *event, gd_status status) {
    return gd_event_warn_lost(event, status, "tensorboard: events", &b->warned);
}

/* --- events ----------------------------------------------------------------------------------- */

/* Starts the file of a resumed run: makes TensorBoard drop events of this step and later ones. */
static gd_status write_restart(board *b, int64_t step) {
    gd_pb_doc *event = gd_event_new(step);
    if (event) gd_pb_put_int(gd_pb_put_message(gd_pb_root(event), "session_log"), "status", 1);
    return gd_event_file_write(b->file, event);
}

/* Fails before the run if the folder cannot be written. */
static gd_status begin_log(const gd_tensorboard_options *o, board *b, gd_event *event) {
    gd_event_file_close(b->file);
    b->file = NULL;
    b->warned = false;
    b->needs_graph = o->graph && event->step == 0;
    if (event->step == 0) b->last = -1;
    GD_TRY(gd_checkpoint_make_folder(o->dir));
    GD_TRY(gd_event_file_create(&b->file, o->dir));
    if (event->step == 0) return GD_OK;
    return write_restart(b, b->last >= event->step ? event->step + 1 : event->step);
}

/* "loss" becomes "loss/train", "val_loss" "loss/validation", and "lr" remains; after a step, "loss"
 * becomes "step/loss". */
static void format_tag(char text[160], const char *name, bool of_step) {
    if (of_step) snprintf(text, 160, "step/%.140s", name);
    else if (strncmp(name, "val_", 4) == 0) snprintf(text, 160, "%.140s/validation", name + 4);
    else if (strcmp(name, "lr") == 0 || strcmp(name, "seconds") == 0)
        snprintf(text, 160, "%.140s", name);
    else snprintf(text, 160, "%.140s/train", name);
}

static void add_scalar(gd_pb_doc *doc, gd_event *event, const char *name, bool of_step) {
    char tag[160];
    format_tag(tag, name, of_step);
    gd_pb_put_float(gd_event_add_value(doc, tag), "simple_value", gd_event_value(event, name));
}

static gd_status write_values(board *b, gd_event *event, bool of_step) {
    gd_pb_doc *doc = gd_event_new(event->step);
    const char *name;
    bool lr = false;
    for (int i = 0; doc && (name = gd_event_name_at(event, i)); i++) {
        if (of_step && strncmp(name, "val_", 4) == 0) continue;
        add_scalar(doc, event, name, of_step);
        lr |= strcmp(name, "lr") == 0;
    }
    if (doc && !lr && !isnan(gd_event_value(event, "lr"))) add_scalar(doc, event, "lr", of_step);
    return gd_event_file_write(b->file, doc);
}

static gd_status add_histograms(gd_pb_doc *doc, gd_module *net) {
    gd_tensors all = gd_module_parameters_so_far(net);
    for (int64_t i = 0; i < all.count; i++) {
        char name[300], tag[340];
        if (all.at[i]->kind == GD_FAILED) return gd_failure();
        if (!gd_module_name_of(net, all.at[i], name, sizeof name)) continue;
        snprintf(tag, sizeof tag, "weights/%s", name);
        GD_TRY(gd_tensorboard_histogram(doc, tag, all.at[i]));
        gd_tensor *gradient = gd_tensor_grad(all.at[i]);
        if (!gradient) continue;
        snprintf(tag, sizeof tag, "gradients/%s", name);
        GD_TRY(gd_tensorboard_histogram(doc, tag, gradient));
    }
    return GD_OK;
}

static gd_status write_histograms(board *b, gd_event *event) {
    GD_NO_GRAD;
    gd_pb_doc *doc = gd_event_new(event->step);
    const gd_status status = doc ? add_histograms(doc, event->net) : GD_OK;
    if (status == GD_OK) return gd_event_file_write(b->file, doc);
    gd_pb_free(doc);
    return status;
}

/* The log has no graph of a net that cannot run with shapes only; the run continues. */
static gd_status write_graph(board *b, gd_event *event) {
    const gd_tensors inputs = gd_event_inputs(event);
    if (inputs.count == 0) return GD_OK;
    b->needs_graph = false;
    char *data = NULL;
    size_t bytes;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status =
        gd_attempt_end(&attempt, gd_tensorboard_graph(event->net, inputs, &data, &bytes));
    if (status != GD_OK) gd_free(data);
    if (status == GD_E_MEMORY) return status;
    if (status != GD_OK) {
        gd_notice(GD_LOG_INFO, "tensorboard: the log has no graph of the net: %s",
                  gd_latest_failure());
        return GD_OK;
    }
    gd_pb_doc *doc = gd_event_new(0);
    if (doc) gd_pb_put_bytes(gd_pb_root(doc), "graph_def", data, bytes);
    status = gd_event_file_write(b->file, doc);
    gd_free(data);
    return status;
}

static gd_status after_batch(const gd_tensorboard_options *o, board *b, gd_event *event) {
    if (b->needs_graph) GD_TRY(write_graph(b, event));
    if (o->every == 0 || event->step % o->every != 0) return GD_OK;
    GD_TRY(write_values(b, event, true));
    b->last = event->step;
    return GD_OK;
}

static gd_status after_epoch(const gd_tensorboard_options *o, board *b, gd_event *event) {
    GD_TRY(write_values(b, event, false));
    b->last = event->step;
    if (o->histograms == 0 || (event->epoch + 1) % o->histograms != 0) return GD_OK;
    return write_histograms(b, event);
}

static gd_status tensorboard_on(gd_callback *c, gd_event *event) {
    const gd_tensorboard_options *o = c->options;
    board *b = c->self;
    if (event->kind == GD_ON_FIT_BEGIN) return begin_log(o, b, event);
    if (event->kind == GD_ON_BATCH_END && b->file)
        return warn_lost(b, event, after_batch(o, b, event));
    if (event->kind == GD_ON_EPOCH_END && b->file)
        return warn_lost(b, event, after_epoch(o, b, event));
    if (event->kind == GD_ON_FIT_END) {
        gd_event_file_close(b->file);
        b->file = NULL;
    }
    return GD_OK;
}

#include "train/callbacks_tensorboard.gen.h"
