/* trace.c - calls a module with symbols, and notes which module has made each node of the graph. */
#include <stdio.h>
#include <string.h>

#include "caffe/layer_text.h"
#include "caffe/save/save.h"
#include "core/alloc.h"
#include "core/grow.h"
#include "dispatch/intern.h"
#include "graph/build/shapes_only.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "nn/saved_modes.h"

/* --- paths ------------------------------------------------------------------------------------ */

/* The path of the running call: a child of the net has its own name, which may have dots; below it
 * slashes are between the names. */
static const char *path_of_call(const gd_caffe_trace *t, const gd_module *m) {
    const gd_module_frame *before = gd_this_thread.module_frame->before;
    char text[GD_MAX_PATH];
    if (t->n_frames == 0) return "";
    const gd_entry *e =
        before && before->module == t->net ? gd_module_child_entry(t->net, m) : NULL;
    if (e) return e->name;
    gd_module_call_path(text, sizeof text);
    char *type = strrchr(text, ' ');
    if (!type) return ""; /* a module that the net does not contain */
    *type = 0;
    for (char *c = text; *c; c++)
        if (*c == '.') *c = '/';
    return gd_intern(text);
}

static int begin_call(gd_module_watch *watch, gd_module *m) {
    gd_caffe_trace *t = (gd_caffe_trace *)watch;
    const char *path = path_of_call(t, m);
    if (!path || !gd_grow(t->frames, t->n_frames, t->frames_room)) {
        t->status = gd_no_memory(NULL, "to save a net");
        return -1;
    }
    t->frames[t->n_frames] =
        (gd_caffe_frame){path, m->factory != NULL || m->op != NULL, t->graph->count};
    return t->n_frames++;
}

/* New nodes belong to the frame. */
static void end_call(gd_module_watch *watch, int frame, gd_tensors out) {
    gd_caffe_trace *t = (gd_caffe_trace *)watch;
    (void)out;
    if (frame < 0) return;
    while (t->n_owned < t->graph->count) {
        if (!gd_grow(t->frame_of, t->n_owned, t->owned_room)) {
            t->status = gd_no_memory(NULL, "to save a net");
            return;
        }
        t->frame_of[t->n_owned++] = 0;
    }
    for (int i = t->frames[frame].first_node; i < t->graph->count; i++)
        if (t->frame_of[i] == 0) t->frame_of[i] = frame + 1;
}

/* --- layers that have a text ------------------------------------------------------------------ */

/* The shapes of the outputs. */
static gd_status run_on_shapes(gd_module *m, gd_tensors in, gd_shape *shapes, int *count,
                               int room) {
    gd_module_watch *watch = gd_this_thread.module_watch;
    gd_shapes_only only;
    gd_this_thread.module_watch = NULL;
    gd_shapes_only_begin(&only);
    gd_tensor **symbols = gd_list_new((int)in.count);
    gd_status status = symbols ? GD_OK : gd_no_memory(NULL, "to save a net");
    for (int i = 0; i < in.count && status == GD_OK; i++)
        symbols[i] = gd_symbol(gd_tensor_shape(in.at[i]), gd_tensor_dtype(in.at[i]), NULL);
    if (status == GD_OK) {
        const gd_tensors out = gd_module_run(m, (gd_tensors){symbols, in.count});
        if (out.count < 1 || out.at[0]->kind == GD_FAILED) status = gd_failure();
        *count = (int)out.count;
        for (int i = 0; i < out.count && i < room && status == GD_OK; i++)
            shapes[i] = gd_tensor_shape(out.at[i]);
    }
    gd_shapes_only_end(&only);
    gd_this_thread.module_watch = watch;
    return status;
}

static gd_status note_call(gd_caffe_trace *t, gd_module *m, const gd_pb *text, gd_tensors in,
                           gd_caffe_text_call **call) {
    if (!gd_grow(t->calls, t->n_calls, t->calls_room)) return gd_no_memory(NULL, "to save a net");
    gd_caffe_text_call *c = &t->calls[t->n_calls++];
    *c = (gd_caffe_text_call){.module = m,
                              .text = text,
                              .path = t->frames[t->n_frames - 1].path,
                              .first_out = t->graph->count};
    c->in = gd_calloc((size_t)in.count + 1, sizeof *c->in);
    if (!c->in) return gd_no_memory(NULL, "to save a net");
    for (; c->n_in < in.count; c->n_in++) {
        gd_tensor *x = in.at[c->n_in];
        const gd_origin *o = x->kind == GD_SYMBOL && x->node ? x->node->origin : NULL;
        if (o && o->graph == t->graph)
            c->in[c->n_in] = (gd_caffe_read){o->number, x->node_index, NULL};
        else c->in[c->n_in] = (gd_caffe_read){-1, 0, gd_retain(x)};
    }
    *call = c;
    return GD_OK;
}

static gd_status give_symbols(gd_caffe_trace *t, gd_module *m, const gd_pb *text, gd_tensors in,
                              gd_tensors *out) {
    enum { ROOM = 256 };
    gd_shape shapes[ROOM];
    int count = 0;
    gd_caffe_text_call *call = NULL;
    GD_TRY(run_on_shapes(m, in, shapes, &count, ROOM));
    if (count > ROOM) return gd_fail(GD_E_UNSUPPORTED, "it has more than %d tops", ROOM);
    GD_TRY(note_call(t, m, text, in, &call));
    gd_tensor **symbols = gd_list_new(count);
    if (!symbols) return gd_no_memory(NULL, "to save a net");
    for (int i = 0; i < count; i++) {
        symbols[i] = gd_placeholder(shapes[i]);
        if (symbols[i]->kind == GD_FAILED) return gd_failure();
    }
    call->n_out = count;
    *out = (gd_tensors){symbols, count};
    return GD_OK;
}

/* The text of a layer; NULL: it runs. */
static const gd_pb *text_of_call(gd_caffe_trace *t, gd_module *m) {
    const gd_pb *text = gd_caffe_text_of(m);
    const char *path = t->frames[t->n_frames - 1].path; /* of this call, the newest */
    return text ? text : gd_caffe_dropout_text(gd_pb_root(t->made), m, path);
}

static bool replace_call(gd_module_watch *watch, gd_module *m, gd_tensors in, gd_tensors *out) {
    gd_caffe_trace *t = (gd_caffe_trace *)watch;
    const gd_pb *text = t->status == GD_OK ? text_of_call(t, m) : NULL;
    if (t->status == GD_OK && !text) return false;
    const gd_status status = text ? give_symbols(t, m, text, in, out) : t->status;
    if (status != GD_OK) {
        gd_report(NULL, status);
        *out = gd_list_of_errors(1);
    }
    return true;
}

/* --- the call --------------------------------------------------------------------------------- */

static gd_status call_net(gd_caffe_trace *t, const gd_caffe_input_shape *inputs, int n_inputs) {
    gd_tensor **in = gd_list_new(n_inputs);
    if (!in) return gd_no_memory(NULL, "to save a net");
    for (int i = 0; i < n_inputs; i++) {
        in[i] = gd_placeholder(inputs[i].shape, .dtype = inputs[i].dtype);
        if (in[i]->kind == GD_FAILED) return gd_failure();
    }
    t->n_inputs = n_inputs;
    gd_module_watch *before = gd_this_thread.module_watch;
    gd_this_thread.module_watch = &t->watch;
    t->outputs = gd_module_run(t->net, (gd_tensors){in, n_inputs});
    gd_this_thread.module_watch = before;
    if (t->outputs.count < 1 || t->outputs.at[0]->kind == GD_FAILED) return gd_failure();
    GD_TRY(gd_pb_check(t->made));
    return t->status;
}

static gd_status trace(gd_caffe_trace *t, const gd_caffe_input_shape *inputs, int n_inputs) {
    t->graph = gd_graph_new();
    if (!t->graph) return gd_failure();
    gd_block block = gd_graph_begin(t->graph);
    const gd_status status = call_net(t, inputs, n_inputs);
    gd_graph_end(&block);
    return status;
}

gd_status gd_caffe_trace_run(gd_caffe_trace *t, gd_module *net, const gd_caffe_input_shape *inputs,
                             int n_inputs) {
    gd_saved_modes modes = {.count = 0};
    gd_pb_doc *made = gd_pb_new(&gd_caffe_net_schema);
    *t = (gd_caffe_trace){.watch = {begin_call, end_call, replace_call}, .net = net, .made = made};
    if (!made) return gd_failure();
    gd_status status = gd_saved_modes_save(&modes, net);
    if (status == GD_OK) {
        gd_saved_modes_set(&modes, 0);
        int grad = gd_no_grad_begin();
        status = trace(t, inputs, n_inputs);
        gd_grad_mode_end(&grad);
    }
    gd_saved_modes_restore(&modes);
    return status;
}

void gd_caffe_trace_free(gd_caffe_trace *t) {
    for (int i = 0; i < t->n_calls; i++) {
        for (int k = 0; k < t->calls[i].n_in; k++)
            gd_object_release((void *)t->calls[i].in[k].value);
        gd_free(t->calls[i].in);
    }
    gd_pb_free(t->made);
    gd_free(t->frames);
    gd_free(t->calls);
    gd_free(t->frame_of);
}
