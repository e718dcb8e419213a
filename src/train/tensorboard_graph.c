/* tensorboard_graph.c - exports a net as TensorFlow's GraphDef; see tensorboard.h.
 *
 * The net runs with shapes only (graph/build/shapes_only.h). Its ops are the nodes that the outputs
 * depend on. Nodes are numbered in the order of their creation; the range of numbers of each module
 * call tells which module has called an op.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"
#include "core/alloc.h"
#include "core/grow.h"
#include "core/map.h"
#include "core/name_map.h"
#include "gradus/ops.h"
#include "graph/build/options.h"
#include "graph/build/shapes_only.h"
#include "nn/module.h"
#include "nn/watch.h"
#include "train/tensorboard.h"

enum { MAX_NAME = GD_MAX_PATH + 80 };

/* A call of a module: its path, the range of nodes created in it, and the call around it. */
typedef struct call {
    char path[GD_MAX_PATH];
    uint64_t first, end;
    int outer; /* its index; -1: none */
} call;

typedef struct graph_export {
    gd_module_watch watch;
    gd_module *net;
    call **calls;                  /* in the order in which they began */
    int n_calls, calls_room, open; /* open: the index of the call that runs; -1: none */
    gd_node **nodes;               /* in the order of their creation */
    int n_nodes, nodes_room;
    gd_map at;    /* from a node to its index in `nodes` */
    char **names; /* of all nodes of the GraphDef, owned */
    int n_names, names_room;
    gd_name_map taken; /* the same, with the last numbers that were appended to them */
    char **name_of;    /* the name of each entry of `nodes` */
    gd_map captured;   /* from a captured tensor to the index of its name in `names` */
    gd_map path_of; /* from a parameter or buffer of the net to the index of its path in `paths` */
    char **paths;   /* owned */
    int n_paths, paths_room;
    gd_tensor **inputs; /* of the forward pass: symbols, or the given tensors */
    int64_t n_inputs;
    gd_map input_at; /* from a symbol's node, or a given tensor, to its index in `inputs` */
    gd_pb *graph;
    bool failed; /* no memory */
} graph_export;

/* --- the forward pass ------------------------------------------------------------------------- */

/* The path of the current call: "layer1.0 (conv2d)" gives "layer1/0". The net itself gives "": its
 * path is its type only. */
static void format_call_path(char path[GD_MAX_PATH]) {
    char *type;
    gd_module_call_path(path, GD_MAX_PATH);
    if ((type = strstr(path, " ("))) *type = 0;
    else *path = 0;
    for (char *c = path; *c; c++)
        if (*c == '.') *c = '/';
}

static int begin_call(gd_module_watch *watch, gd_module *module) {
    graph_export *p = (graph_export *)watch;
    call *c = gd_calloc(1, sizeof *c);
    (void)module;
    if (!c || !gd_grow(p->calls, p->n_calls, p->calls_room)) {
        gd_free(c);
        p->failed = true;
        return -1;
    }
    format_call_path(c->path);
    c->first = gd_node_next_order();
    c->outer = p->open;
    p->calls[p->n_calls] = c;
    return p->open = p->n_calls++;
}

static void end_call(gd_module_watch *watch, int row, gd_tensors outputs) {
    graph_export *p = (graph_export *)watch;
    (void)outputs;
    if (row < 0) return;
    p->calls[row]->end = gd_node_next_order();
    p->open = p->calls[row]->outer;
}

/* The input is replaced with a symbol, whose node identifies it. */
static gd_tensor *input_like(gd_tensor *x, bool integers_stay) {
    if (integers_stay && !gd_is_float(x->dtype)) return x;
    return gd_symbol(gd_shape_of(x->rank, x->dims), (gd_dtype)x->dtype, x->device);
}

/* `integers_stay`: integer inputs keep their values. */
static gd_status run_once(graph_export *p, gd_tensors in, bool integers_stay, gd_tensors *out) {
    for (int64_t i = 0; i < in.count; i++) {
        p->inputs[i] = in.at[i] ? input_like(in.at[i], integers_stay) : NULL;
        if (p->inputs[i] && p->inputs[i]->kind == GD_FAILED) return gd_failure();
    }
    gd_module_watch *before = gd_this_thread.module_watch;
    gd_this_thread.module_watch = &p->watch;
    *out = gd_module_run(p->net, (gd_tensors){p->inputs, in.count});
    gd_this_thread.module_watch = before;
    return out->at[0]->kind == GD_FAILED ? gd_failure() : GD_OK;
}

static gd_status run_forward(graph_export *p, gd_tensors in, bool integers_stay, gd_tensors *out) {
    for (int i = 0; i < p->n_calls; i++) gd_free(p->calls[i]);
    p->n_calls = 0;
    p->open = -1;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    const gd_status status = gd_attempt_end(&attempt, run_once(p, in, integers_stay, out));
    return p->failed ? gd_no_memory(NULL, "for the graph of the net") : status;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static bool add_node(graph_export *p, gd_node *node) {
    if (!node || gd_map_find(&p->at, node) >= 0) return true;
    if (!gd_grow(p->nodes, p->n_nodes, p->nodes_room) || !gd_map_put(&p->at, node, p->n_nodes))
        return false;
    p->nodes[p->n_nodes++] = node;
    return true;
}

static int by_order(const void *a, const void *b) {
    const gd_node *x = *(gd_node *const *)a, *y = *(gd_node *const *)b;
    return (x->order > y->order) - (x->order < y->order);
}

/* Collects all nodes that the outputs depend on. */
static gd_status collect_nodes(graph_export *p, gd_tensors out) {
    bool good = true;
    for (int64_t i = 0; i < out.count && good; i++)
        if (out.at[i] && out.at[i]->kind == GD_SYMBOL) good = add_node(p, out.at[i]->node);
    for (int n = 0; n < p->n_nodes && good; n++)
        for (int i = 0; i < p->nodes[n]->n_in && good; i++)
            good = add_node(p, p->nodes[n]->slots[i].node);
    if (!good) return gd_no_memory(NULL, "for the graph of the net");
    if (p->n_nodes) qsort(p->nodes, (size_t)p->n_nodes, sizeof *p->nodes, by_order);
    for (int n = 0; n < p->n_nodes && good; n++) good = gd_map_put(&p->at, p->nodes[n], n);
    p->name_of = gd_calloc((size_t)p->n_nodes + 1, sizeof *p->name_of);
    return good && p->name_of ? GD_OK : gd_no_memory(NULL, "for the graph of the net");
}

/* The path of the innermost module whose call created the node. */
static const char *path_of(const graph_export *p, const gd_node *node) {
    int low = 0, high = p->n_calls; /* finds the last call that began before the node */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (p->calls[middle]->first <= node->order) low = middle + 1;
        else high = middle;
    }
    int i = low - 1;
    while (i >= 0 && node->order >= p->calls[i]->end) i = p->calls[i]->outer;
    return i < 0 ? "" : p->calls[i]->path;
}

static gd_status index_inputs(graph_export *p) {
    for (int i = 0; i < p->n_inputs; i++) {
        const gd_tensor *x = p->inputs[i];
        if (x && !gd_map_put(&p->input_at, x->node ? (const void *)x->node : x, i))
            return gd_no_memory(NULL, "for the graph of the net");
    }
    return GD_OK;
}

static bool is_input(const graph_export *p, const void *node_or_tensor) {
    return gd_map_find(&p->input_at, node_or_tensor) >= 0;
}

static gd_status add_path(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    graph_export *p = w->user;
    char *path = gd_malloc(strlen(w->path) + 1);
    (void)holder;
    if (!path || !gd_grow(p->paths, p->n_paths, p->paths_room) ||
        !gd_map_put(&p->path_of, e->object, p->n_paths)) {
        gd_free(path);
        return gd_no_memory(NULL, "for the graph of the net");
    }
    p->paths[p->n_paths++] = strcpy(path, w->path);
    return GD_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

/* A unique name of characters that TensorFlow accepts; NULL: no memory. */
static char *unique_name(graph_export *p, const char *wanted) {
    char *name = gd_calloc(1, MAX_NAME + 24);
    if (!name || !gd_grow(p->names, p->n_names, p->names_room)) {
        gd_free(name);
        p->failed = true;
        return NULL;
    }
    snprintf(name, MAX_NAME, "%s", wanted);
    for (char *c = name; *c; c++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-", *c))
            *c = '_';
    gd_number_name(&p->taken, name, strlen(name), MAX_NAME + 24);
    p->names[p->n_names++] = name;
    if (!gd_set_entry_number(&p->taken, name, 0)) p->failed = true;
    return name;
}

static gd_pb *add_def(graph_export *p, const char *name, const char *op) {
    gd_pb *def = gd_pb_put_message(p->graph, "node");
    gd_pb_put_string(def, "name", name ? name : "");
    gd_pb_put_string(def, "op", op);
    return def;
}

static gd_pb *add_attr(gd_pb *def, const char *key) {
    gd_pb *entry = gd_pb_put_message(def, "attr");
    gd_pb_put_string(entry, "key", key);
    return gd_pb_put_message(entry, "value");
}

static void put_shape(gd_pb *shape, const gd_slot *slot) {
    for (int i = 0; i < slot->rank; i++)
        gd_pb_put_int(gd_pb_put_message(shape, "dim"), "size", slot->dims[i]);
}

/* The dtype in TensorFlow's enum. */
static int tensorflow_dtype(unsigned dtype) {
    static const uint8_t types[16] = {
        [GD_F32] = 1, [GD_F64] = 2,   [GD_I32] = 3,   [GD_U8] = 4,  [GD_I8] = 6,
        [GD_I64] = 9, [GD_BOOL] = 10, [GD_BF16] = 14, [GD_F16] = 19};
    return types[dtype & 15u];
}

/* --- edges ------------------------------------------------------------------------------------ */

/* The name of a captured tensor: a parameter or buffer of the net, an input that is not a symbol,
 * or another constant. The first call adds its node. */
static const char *captured_name(graph_export *p, const gd_slot *slot) {
    const int known = gd_map_find(&p->captured, slot->captured);
    char wanted[MAX_NAME];
    if (known >= 0) return p->names[known];
    const char *op = slot->captured->requires_grad ? "Parameter" : "Buffer";
    const bool fed = is_input(p, slot->captured);
    const int path = gd_map_find(&p->path_of, slot->captured);
    if (fed) snprintf(wanted, sizeof wanted, "%s", op = "input");
    else if (path >= 0) snprintf(wanted, sizeof wanted, "%s", p->paths[path]);
    else snprintf(wanted, sizeof wanted, "%s", op = "constant");
    for (char *c = wanted; *c && !fed; c++)
        if (*c == '.') *c = '/';
    const int number = p->n_names;
    char *name = unique_name(p, wanted);
    if (!name || !gd_map_put(&p->captured, slot->captured, number)) {
        p->failed = true;
        return "";
    }
    gd_pb *def = add_def(p, name, fed ? "Placeholder" : strcmp(op, "constant") == 0 ? "Const" : op);
    gd_pb_put_int(add_attr(def, "dtype"), "type", tensorflow_dtype(slot->dtype));
    put_shape(
        gd_pb_put_message(gd_pb_put_message(add_attr(def, "_output_shapes"), "list"), "shape"),
        slot);
    return name;
}

/* "layer1/0/conv1/conv2d", with ":1" for the second output. */
static void format_edge(graph_export *p, const gd_node *from, int index, char *text, size_t size) {
    const int at = gd_map_find(&p->at, from);
    const char *name = at >= 0 && p->name_of[at] ? p->name_of[at] : "";
    if (index) snprintf(text, size, "%s:%d", name, index);
    else snprintf(text, size, "%s", name);
}

/* Adds the options of an op that differ from their defaults, as text. */
static void put_options(gd_pb *def, const gd_node *node) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = node->op && node->attrs ? open_memstream(&text, &bytes) : NULL;
    if (!out) return;
    gd_fprint_options(out, node->op, node->attrs);
    fclose(out);
    if (text && *text) gd_pb_put_string(add_attr(def, "options"), "s", text + (*text == ' '));
    free(text);
}

static void put_node(graph_export *p, int n) {
    const gd_node *node = p->nodes[n];
    const bool fed = is_input(p, node);
    const char *op = node->op ? node->op->name : node->function ? node->function->name : "op";
    char wanted[MAX_NAME];
    const char *path = path_of(p, node);
    if (fed) snprintf(wanted, sizeof wanted, "input");
    else snprintf(wanted, sizeof wanted, "%s%s%s", path, *path ? "/" : "", op);
    p->name_of[n] = unique_name(p, wanted);
    for (int i = 0; i < node->n_in && !fed; i++) /* their nodes come first */
        if (node->slots[i].captured) captured_name(p, &node->slots[i]);
    gd_pb *def = add_def(p, p->name_of[n], fed ? "Placeholder" : op);
    for (int i = 0; i < node->n_in && !fed; i++) {
        char edge[MAX_NAME + 40];
        const gd_slot *slot = &node->slots[i];
        if (slot->captured) {
            gd_pb_put_string(def, "input", captured_name(p, slot));
        } else if (slot->node) {
            format_edge(p, slot->node, slot->index, edge, sizeof edge);
            gd_pb_put_string(def, "input", edge);
        }
    }
    if (node->n_out)
        gd_pb_put_int(add_attr(def, "dtype"), "type",
                      tensorflow_dtype(node->slots[node->n_in].dtype));
    gd_pb *shapes = gd_pb_put_message(add_attr(def, "_output_shapes"), "list");
    for (int i = 0; i < node->n_out; i++)
        put_shape(gd_pb_put_message(shapes, "shape"), &node->slots[node->n_in + i]);
    if (!fed) put_options(def, node);
}

static void put_outputs(graph_export *p, gd_tensors out) {
    for (int64_t i = 0; i < out.count; i++) {
        char edge[MAX_NAME + 40];
        if (!out.at[i] || out.at[i]->kind != GD_SYMBOL || !out.at[i]->node) continue;
        gd_pb *def = add_def(p, unique_name(p, "output"), "Identity");
        format_edge(p, out.at[i]->node, out.at[i]->node_index, edge, sizeof edge);
        gd_pb_put_string(def, "input", edge);
    }
}

/* --- the graph -------------------------------------------------------------------------------- */

static gd_status build_graph(graph_export *p, gd_tensors in, gd_pb_doc *doc) {
    gd_tensors out;
    p->n_inputs = in.count;
    if (!(p->inputs = gd_list_new(in.count))) return gd_no_memory(NULL, "for the graph of the net");
    gd_status status = run_forward(p, in, false, &out);
    if (status != GD_OK && status != GD_E_MEMORY)
        status = run_forward(p, in, true, &out); /* the net may read integers on the host */
    GD_TRY(status);
    GD_TRY(index_inputs(p));
    GD_TRY(gd_module_walk(p->net, &(gd_tree_walk){.tensor = add_path, .user = p}));
    GD_TRY(collect_nodes(p, out));
    p->graph = gd_pb_root(doc);
    for (int n = 0; n < p->n_nodes; n++) put_node(p, n);
    put_outputs(p, out);
    gd_pb_put_int(gd_pb_put_message(p->graph, "versions"), "producer", 22);
    return p->failed ? gd_no_memory(NULL, "for the graph of the net") : GD_OK;
}

static void clear_export(graph_export *p) {
    for (int i = 0; i < p->n_calls; i++) gd_free(p->calls[i]);
    for (int i = 0; i < p->n_names; i++) gd_free(p->names[i]);
    for (int i = 0; i < p->n_paths; i++) gd_free(p->paths[i]);
    gd_free(p->calls);
    gd_free(p->names);
    gd_free(p->paths);
    gd_free(p->nodes);
    gd_free(p->name_of);
    gd_map_free(&p->at);
    gd_map_free(&p->captured);
    gd_map_free(&p->path_of);
    gd_map_free(&p->input_at);
    gd_name_map_free(&p->taken);
}

gd_status gd_tensorboard_graph(gd_module *net, gd_tensors inputs, char **data, size_t *bytes) {
    graph_export p = {.watch = {begin_call, end_call}, .net = net};
    gd_shapes_only only;
    *data = NULL;
    gd_pb_doc *doc = gd_pb_new(&gd_graph_def_schema);
    if (!doc) return GD_E_MEMORY;
    int grad = gd_no_grad_begin();
    gd_shapes_only_begin(&only);
    gd_status status = build_graph(&p, inputs, doc);
    if (status == GD_OK) status = gd_pb_print(doc, data, bytes);
    gd_shapes_only_end(&only);
    gd_grad_mode_end(&grad);
    clear_export(&p);
    gd_pb_free(doc);
    return status;
}
