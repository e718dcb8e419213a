/* walk.c - the layers of a traced module: those that the outputs need, in the order of the trace. */
#include <stdio.h>

#include "caffe/save/save.h"
#include "core/alloc.h"
#include "core/error.h"
#include "gradus/ops.h"

enum { ROOM = 1200 }; /* of a name */

/* The path of the module that has made a node, or the op's name, or both. */
static const char *name_of(const gd_caffe_trace *t, const gd_node *node, char text[ROOM]) {
    const int number = node->origin->number,
              frame = number < t->n_owned ? t->frame_of[number] - 1 : -1;
    const gd_caffe_frame *f = frame >= 0 ? &t->frames[frame] : NULL;
    if (f && *f->path && f->is_layer) return f->path;
    snprintf(text, ROOM, "%s%s%s", f ? f->path : "", f && *f->path ? "/" : "", node->op->name);
    return text;
}

static gd_status save_node(gd_caffe_saver *s, const gd_node *node) {
    char name[ROOM];
    bool found = false;
    gd_caffe_call c = {.saver = s,
                       .node = node,
                       .op = node->op,
                       .attrs = node->attrs ? node->attrs : node->op->defaults,
                       .in = node->slots,
                       .out = node->slots + node->n_in,
                       .n_in = node->n_in,
                       .n_out = node->n_out,
                       .name = name_of(s->trace, node, name)};
    gd_caffe_save_fn save = gd_caffe_find_save(node->op);
    if (save) gd_caffe_keep(s, save(&c));
    else gd_caffe_keep(s, gd_caffe_save_row(&c, &found));
    if (gd_failed()) gd_caffe_keep(s, gd_failure()); /* of an op on constants */
    if (!save && !found && s->status == GD_OK)
        return gd_caffe_cannot(&c, "Caffe has no layer for %s", node->op->name);
    return s->status;
}

static gd_status save_text(gd_caffe_saver *s, const gd_caffe_text_call *call) {
    gd_caffe_out_layer *l = gd_caffe_new_layer(s, NULL, call->path);
    GD_TRY(s->status);
    l->from_text = true;
    gd_pb_copy(l->message, call->text);
    for (int i = 0; i < call->n_in; i++) {
        const gd_caffe_read *in = &call->in[i];
        if (in->value || s->constant[in->node])
            return gd_fail(
                GD_E_UNSUPPORTED,
                "layer '%.200s' (%s): its bottom %d does not depend on the inputs of the "
                "net",
                call->path, gd_pb_string(call->text, "type"), i);
        gd_caffe_put_bottom(s, gd_caffe_value_of(s, s->trace->graph->nodes[in->node], in->index));
    }
    for (int i = 0; i < call->n_out; i++)
        gd_caffe_put_top(s, gd_caffe_value_of(s, s->trace->graph->nodes[call->first_out + i], 0));
    const gd_module *m = call->module;
    for (int i = 0; i < m->count; i++)
        if (m->entries[i].kind != GD_A_CHILD && m->entries[i].object)
            gd_caffe_add_weight(s, (gd_tensor *)m->entries[i].object);
    return s->status;
}

/* Whether a node depends on no input: then its value is computed here. */
static bool depends_on_nothing(const gd_caffe_saver *s, const gd_node *node) {
    if (node->origin->kind != GD_FROM_OP || !node->op || node->op->flags & GD_OP_RANDOM)
        return false;
    for (int i = 0; i < node->n_in; i++)
        if (node->slots[i].present && node->slots[i].symbol &&
            !s->constant[node->slots[i].node->origin->number])
            return false;
    return true;
}

/* The call that gives a placeholder; NULL: it is an input of the net. Calls are in the order of their
 * nodes, and *at is the number of one that is not behind it. */
static const gd_caffe_text_call *call_of(const gd_caffe_trace *t, int node) {
    int low = 0, high = t->n_calls;
    while (low < high) {
        const int middle = (low + high) / 2;
        const gd_caffe_text_call *c = &t->calls[middle];
        if (node < c->first_out) high = middle;
        else if (node >= c->first_out + c->n_out) low = middle + 1;
        else return c;
    }
    return NULL;
}

static void need_inputs(gd_caffe_saver *s, const gd_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (node->slots[i].present && node->slots[i].symbol && gd_caffe_reads(node->op, i))
            s->needed[node->slots[i].node->origin->number] = true;
    const gd_caffe_text_call *call =
        node->origin->kind == GD_FROM_PLACEHOLDER ? call_of(s->trace, node->origin->number) : NULL;
    for (int i = 0; call && i < call->n_in; i++)
        if (call->in[i].node >= 0) s->needed[call->in[i].node] = true;
}

static gd_status mark(gd_caffe_saver *s) {
    const gd_graph *g = s->trace->graph;
    const gd_tensors out = s->trace->outputs;
    for (int i = 0; i < g->count; i++) s->constant[i] = depends_on_nothing(s, g->nodes[i]);
    for (int64_t i = 0; i < out.count; i++) {
        const gd_tensor *y = out.at[i];
        const gd_origin *o = y && y->kind == GD_SYMBOL ? y->node->origin : NULL;
        if (!o || o->graph != g || s->constant[o->number])
            return gd_fail(GD_E_UNSUPPORTED, "output %lld does not depend on the inputs of the net",
                           (long long)i);
        s->needed[o->number] = true;
    }
    for (int i = g->count; i-- > 0;)
        if (s->needed[i] && !s->constant[i]) need_inputs(s, g->nodes[i]);
    return GD_OK;
}

static gd_status save_nodes(gd_caffe_saver *s) {
    const gd_graph *g = s->trace->graph;
    const gd_caffe_text_call *last = NULL;
    for (int i = 0; i < g->count && s->status == GD_OK; i++) {
        const gd_node *node = g->nodes[i];
        if (i < s->trace->n_inputs) gd_caffe_value_of(s, node, 0);
        if (!s->needed[i] || s->constant[i] || i < s->trace->n_inputs) continue;
        const gd_caffe_text_call *call = node->op ? NULL : call_of(s->trace, i);
        if (node->op) gd_caffe_keep(s, save_node(s, node));
        else if (!call)
            gd_caffe_keep(
                s, gd_fail(GD_E_UNSUPPORTED, "'%s' is no op of the library", node->origin->name));
        else if (call != last) gd_caffe_keep(s, save_text(s, call));
        if (call) last = call;
    }
    return s->status;
}

gd_status gd_caffe_saver_walk(gd_caffe_saver *s) {
    const size_t count = (size_t)s->trace->graph->count + 1;
    const gd_tensors out = s->trace->outputs;
    s->doc = gd_pb_new(&gd_caffe_net_schema);
    s->value_of = gd_calloc(count, sizeof *s->value_of);
    s->constants = gd_calloc(count, sizeof *s->constants);
    s->needed = gd_calloc(count, sizeof *s->needed);
    s->constant = gd_calloc(count, sizeof *s->constant);
    s->outputs = gd_calloc((size_t)out.count + 1, sizeof *s->outputs);
    if (!s->doc || !s->value_of || !s->constants || !s->needed || !s->constant || !s->outputs)
        return gd_no_memory(NULL, "to save a net");
    GD_TRY(mark(s));
    GD_TRY(save_nodes(s));
    for (; s->n_outputs < out.count; s->n_outputs++) {
        const gd_tensor *y = out.at[s->n_outputs];
        const int value = gd_caffe_value_of(s, y->node, y->node_index);
        if (value < 0) return s->status;
        s->outputs[s->n_outputs] = value;
        s->values[value].is_output = true;
    }
    return gd_pb_check(s->doc);
}

void gd_caffe_saver_free(gd_caffe_saver *s) {
    for (int i = 0; i < s->n_layers; i++) {
        gd_caffe_out_layer *l = &s->layers[i];
        for (int k = 0; k < l->n_weights; k++) gd_release(l->weights[k]);
        gd_free(l->bottoms);
        gd_free(l->tops);
        gd_free(l->weights);
    }
    for (int i = 0; s->trace && i < s->trace->graph->count; i++) {
        if (s->value_of) gd_free(s->value_of[i]);
        if (s->constants) gd_free(s->constants[i]);
    }
    gd_pb_free(s->doc);
    gd_free(s->values);
    gd_free(s->layers);
    gd_free(s->value_of);
    gd_free(s->constants);
    gd_free(s->needed);
    gd_free(s->constant);
    gd_free(s->outputs);
    gd_name_map_free(&s->layer_names);
    gd_name_map_free(&s->blob_names);
}
