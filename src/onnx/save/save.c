/* save.c - saves a part of a session's graph as an ONNX file; see gradus/onnx.h.
 *
 * Order: inputs, outputs and metadata of the file; the save.
 */
#include "onnx/save/save.h"

#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "gradus/ops.h"

/* --- inputs and outputs ----------------------------------------------------------------------- */

static gd_status check_symbol(const gd_onnx_part *p, const gd_tensor *t, const char *what,
                              int64_t i) {
    const gd_origin *o = t && t->kind == GD_SYMBOL ? t->node->origin : NULL;
    if (!o || o->graph != p->graph)
        return gd_fail(GD_E_ARGUMENT, "%s %lld is not a symbol of the session's graph", what,
                       (long long)i);
    return GD_OK;
}

static gd_status add_inputs(gd_onnx_saver *s, gd_onnx_part *p, gd_tensors inputs) {
    for (int64_t i = 0; i < inputs.count; i++) {
        const gd_tensor *t = inputs.at[i];
        GD_TRY(check_symbol(p, t, "input", i));
        const gd_origin *o = t->node->origin;
        if (p->names[o->number] && p->names[o->number][t->node_index])
            return gd_fail(GD_E_ARGUMENT, "'%s' is listed twice among the inputs", o->name);
        const char *name = gd_onnx_unique_name(s, o->name, "");
        if (!name) return GD_E_MEMORY;
        GD_TRY(gd_onnx_part_input(p, t->node, t->node_index, name));
        gd_onnx_put_value_info(s->file_graph, "input", name, (gd_dtype)t->dtype, t->rank, t->dims);
    }
    return GD_OK;
}

/* An output of the file must be an output of a node, and have a name that no other output has. Any
 * other value gets an Identity. */
static gd_status add_outputs(gd_onnx_saver *s, const gd_onnx_part *p, gd_tensors outputs) {
    gd_name_map added = {0};
    gd_status status = GD_OK;
    for (int64_t i = 0; i < outputs.count && status == GD_OK; i++) {
        const gd_tensor *t = outputs.at[i];
        const gd_origin *o = t->node->origin;
        const char *name = p->names[o->number][t->node_index];
        if (!p->needed[o->number] || o->kind != GD_FROM_OP || gd_name_map_find(&added, name)) {
            const char *copy = gd_onnx_unique_name(s, name, "/output");
            if (!copy) status = GD_E_MEMORY;
            if (!copy) break;
            gd_onnx_put_unary(s, "Identity", name, copy);
            name = copy;
        }
        if (!gd_name_map_add(&added, name, (void *)name))
            status = gd_no_memory(NULL, "to save a graph");
        gd_onnx_put_value_info(s->file_graph, "output", name, (gd_dtype)t->dtype, t->rank, t->dims);
    }
    gd_name_map_free(&added);
    return status;
}

static void put_metadata(gd_pb *model, const char *key, const char *value) {
    gd_pb *pair = gd_pb_put_message(model, "metadata_props");
    gd_pb_put_string(pair, "key", key);
    gd_pb_put_string(pair, "value", value);
}

static void put_model_fields(gd_onnx_saver *s) {
    gd_pb *model = gd_pb_root(s->doc);
    gd_pb_put_int(model, "ir_version", GD_ONNX_IR_VERSION);
    gd_pb_put_string(model, "producer_name", "gradus");
    gd_pb *opset = gd_pb_put_message(model, "opset_import");
    gd_pb_put_string(opset, "domain", "");
    gd_pb_put_int(opset, "version", GD_ONNX_OPSET);
    if (s->has_own_nodes) {
        opset = gd_pb_put_message(model, "opset_import");
        gd_pb_put_string(opset, "domain", "gradus");
        gd_pb_put_int(opset, "version", 1);
    }
    put_metadata(model, "gradus.variables", s->variables ? s->variables : "");
    for (const char *const *m = s->metadata; m && m[0] && m[1]; m += 2)
        put_metadata(model, m[0], m[1]);
}

static gd_status fill_file(gd_onnx_saver *s, gd_onnx_part *p, gd_tensors inputs,
                           gd_tensors outputs) {
    GD_TRY(add_inputs(s, p, inputs));
    for (int64_t i = 0; i < outputs.count; i++) {
        GD_TRY(check_symbol(p, outputs.at[i], "output", i));
        GD_TRY(gd_onnx_need_output(p, outputs.at[i]->node, outputs.at[i]->node_index, "the file"));
    }
    GD_TRY(gd_onnx_need_inputs(p));
    /* outputs get their names first, so that those stay unchanged */
    for (int64_t i = 0; i < outputs.count; i++)
        if (p->needed[outputs.at[i]->node->origin->number])
            GD_TRY(gd_onnx_name_outputs(s, p, outputs.at[i]->node));
    GD_TRY(gd_onnx_save_part(s, p));
    GD_TRY(add_outputs(s, p, outputs));
    put_model_fields(s);
    return GD_OK;
}

/* --- the save --------------------------------------------------------------------------------- */

static void free_keys(gd_name_map *names) {
    for (size_t i = 0; i < names->size; i++) gd_free((void *)names->slots[i].name);
    gd_name_map_free(names);
}

static void saver_free(gd_onnx_saver *s) {
    gd_free(s->initializers);
    gd_free(s->variables);
    free_keys(&s->constants);
    free_keys(&s->captured);
    for (size_t i = 0; i < s->parameters.size; i++) gd_free(s->parameters.slots[i].value);
    free_keys(&s->parameters);
    free_keys(&s->used_names);
    gd_pb_free(s->doc);
}

static gd_status save_graph(const char *path, gd_session *session, gd_graph *graph,
                            gd_tensors inputs, gd_tensors outputs, const gd_onnx_save_options *o,
                            gd_module *module, const char *remedy) {
    gd_onnx_saver s = {.session = session,
                       .own_ops = o->own_ops,
                       .module = module,
                       .metadata = o->metadata,
                       .remedy = remedy};
    gd_onnx_part part;
    gd_status status = gd_onnx_part_begin(&part, graph);
    if (status == GD_OK && !(s.doc = gd_pb_new(&gd_onnx_model_schema)))
        status = gd_no_memory(NULL, "to save a graph");
    if (status == GD_OK) status = gd_onnx_name_parameters(&s);
    if (status == GD_OK) {
        s.current_graph = s.file_graph = gd_pb_put_message(gd_pb_root(s.doc), "graph");
        gd_pb_put_string(s.file_graph, "name", "graph");
        status = fill_file(&s, &part, inputs, outputs);
    }
    if (status == GD_OK) status = gd_onnx_write_files(&s, path, o->external_above);
    gd_onnx_part_end(&part);
    saver_free(&s);
    return status;
}

gd_status gd_onnx_save_model(const char *path, gd_session *session, gd_tensors inputs,
                             gd_tensors outputs, const gd_onnx_save_options *o, gd_module *module,
                             const char *remedy) {
    if (!path || !session || outputs.count < 1)
        return gd_fail(GD_E_ARGUMENT, "gd_onnx_save: %s",
                       !path      ? "path is NULL"
                       : !session ? "the session is NULL"
                                  : "there are no outputs");
    if (o->external_above < 0)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_onnx_save: external_above is %lld; it must not be negative",
                       (long long)o->external_above);
    const gd_tensor *first = outputs.at[0];
    gd_graph *graph = first && first->kind == GD_SYMBOL && first->node->origin
                          ? first->node->origin->graph
                          : NULL;
    if (!graph) return gd_fail(GD_E_ARGUMENT, "gd_onnx_save: output 0 is not a symbol of a graph");
    gd_scope *scope = gd_scope_open(); /* tensors live until they are written */
    gd_block device = gd_device_begin(gd_device_get("cpu"));
    const gd_tracing tracing = gd_tracing_off();
    int grad = gd_no_grad_begin();
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status = gd_graph_refresh(graph);
    if (status == GD_OK)
        status = save_graph(path, session, graph, inputs, outputs, o, module, remedy);
    status = gd_attempt_end(&attempt, status);
    gd_grad_mode_end(&grad);
    gd_tracing_on(tracing);
    gd_device_end(&device);
    gd_scope_close(&scope);
    if (status != GD_OK) gd_error_prefix("gd_onnx_save%s: %s: ", module ? "_module" : "", path);
    return status;
}

gd_status gd_onnx_save_at(const char *site, const char *path, gd_session *session,
                          gd_tensors inputs, gd_tensors outputs, const gd_onnx_save_options *o) {
    GD_LIVE_AT(site, session);
    o = o ? o : GD_ONNX_SAVE_OPTIONS_();
    if (gd_failed()) return gd_error_status(); /* results after a failure are not saved */
    GD_CALLED_FROM(site);
    return gd_report(site, gd_onnx_save_model(path, session, inputs, outputs, o, NULL,
                                              "give the placeholders known sizes"));
}
