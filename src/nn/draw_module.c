/* draw_module.c - the picture of a module (gd_module_draw).
 *
 * The module runs on shapes only (graph/build/shapes_only.h). A call of a layer is a box, and so is an op that
 * no layer has called. Nodes are numbered in the order of their creation; the range of numbers of each
 * call tells which call has created an op. Activations, norms and the like join the box whose only
 * reader they are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"
#include "core/alloc.h"
#include "core/freed.h"
#include "core/grow.h"
#include "core/map.h"
#include "graph/build/options.h"
#include "graph/build/shapes_only.h"
#include "gradus/autograd.h"
#include "nn/draw.h"
#include "nn/module.h"
#include "nn/watch.h"

enum { TEXT = 400, MAX_PARTS = 6 /* of a box */ };

/* A call of a module. */
typedef struct call {
    char *path; /* "layer1.0.conv1" */
    const char *type;
    const gd_module *module;
    uint64_t first, end; /* the nodes that it created */
    int outer;           /* the call around it; -1: none */
    bool calls;          /* others */
} call;

/* What becomes a box: a call, or a node alone. Its nodes follow each other. */
typedef struct group {
    int call; /* -1: none */
    int node; /* its first one */
    const char *family;
    int n_sources, source; /* values of other groups that it reads; the last one */
    int n_outputs, box;
} group;

/* An output of a node. */
typedef struct value {
    int group, reader, readers, output; /* reader: the last group that reads it */
    bool result;                        /* of the module */
} value;

typedef struct tracer {
    gd_module_watch watch;
    gd_module *module;
    call *calls;
    int n_calls, calls_room, open;
    gd_node **nodes;
    int n_nodes, nodes_room;
    gd_map at; /* from a node to its number */
    gd_tensor **inputs;
    int64_t n_inputs;
    gd_map input_at; /* from the node of an input, or its tensor, to its number */
    group *groups;
    int n_groups, groups_room;
    int *group_of, *first_value; /* of each node */
    value *values;               /* first those of the inputs */
    gd_drawing *drawing;
    bool failed; /* no memory */
} tracer;

/* --- the calls -------------------------------------------------------------------------------- */

static int begin_call(gd_module_watch *watch, gd_module *module) {
    tracer *t = (tracer *)watch;
    char path[GD_MAX_PATH], *type;
    if (!gd_grow(t->calls, t->n_calls, t->calls_room)) {
        t->failed = true;
        return -1;
    }
    gd_module_call_path(path, sizeof path);
    if ((type = strstr(path, " ("))) *type = 0;
    else *path = 0; /* the outermost one: its path is its type */
    call *c = &t->calls[t->n_calls];
    *c = (call){.module = module, .type = module->type, .outer = t->open};
    c->path = gd_malloc(strlen(path) + 1);
    c->first = c->end = gd_node_next_order();
    if (!c->path) {
        t->failed = true;
        return -1;
    }
    strcpy(c->path, path);
    if (t->open >= 0) t->calls[t->open].calls = true;
    return t->open = t->n_calls++;
}

static void end_call(gd_module_watch *watch, int row, gd_tensors outputs) {
    tracer *t = (tracer *)watch;
    (void)outputs;
    if (row < 0) return;
    t->calls[row].end = gd_node_next_order();
    t->open = t->calls[row].outer;
}

static gd_status run_once(tracer *t, gd_tensors in, bool integers_stay, gd_tensors *out) {
    for (int64_t i = 0; i < in.count; i++) {
        gd_tensor *x = in.at[i];
        if (x && x->kind == GD_FAILED) return gd_failure();
        t->inputs[i] =
            !x || (integers_stay && !gd_is_float(x->dtype))
                ? x
                : gd_symbol(gd_shape_of(x->rank, x->dims), (gd_dtype)x->dtype, x->device);
        if (t->inputs[i] && t->inputs[i]->kind == GD_FAILED) return gd_failure();
    }
    gd_module_watch *before = gd_this_thread.module_watch;
    gd_this_thread.module_watch = &t->watch;
    *out = gd_module_run(t->module, (gd_tensors){t->inputs, in.count});
    gd_this_thread.module_watch = before;
    return out->at[0]->kind == GD_FAILED ? gd_failure() : GD_OK;
}

static void free_calls(tracer *t) {
    for (int i = 0; i < t->n_calls; i++) gd_free(t->calls[i].path);
    t->n_calls = 0;
    t->open = -1;
}

static gd_status run(tracer *t, gd_tensors in, bool integers_stay, gd_tensors *out) {
    free_calls(t);
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    const gd_status status = gd_attempt_end(&attempt, run_once(t, in, integers_stay, out));
    return t->failed ? GD_E_MEMORY : status;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static bool add_node(tracer *t, gd_node *node) {
    if (!node || gd_map_find(&t->at, node) >= 0) return true;
    if (!gd_grow(t->nodes, t->n_nodes, t->nodes_room) || !gd_map_put(&t->at, node, t->n_nodes))
        return false;
    t->nodes[t->n_nodes++] = node;
    return true;
}

static int by_order(const void *a, const void *b) {
    const gd_node *x = *(gd_node *const *)a, *y = *(gd_node *const *)b;
    return (x->order > y->order) - (x->order < y->order);
}

/* The nodes that the results depend on, without those of the inputs. */
static bool collect_nodes(tracer *t, gd_tensors out) {
    bool good = true;
    for (int64_t i = 0; i < t->n_inputs && good; i++) {
        const gd_tensor *x = t->inputs[i];
        if (x) good = gd_map_put(&t->input_at, x->node ? (const void *)x->node : x, (int)i);
    }
    for (int64_t i = 0; i < out.count && good; i++)
        if (out.at[i] && out.at[i]->kind == GD_SYMBOL &&
            gd_map_find(&t->input_at, out.at[i]->node) < 0)
            good = add_node(t, out.at[i]->node);
    for (int n = 0; n < t->n_nodes && good; n++)
        for (int i = 0; i < t->nodes[n]->n_in && good; i++) {
            gd_node *from = t->nodes[n]->slots[i].node;
            if (!from || gd_map_find(&t->input_at, from) < 0) good = add_node(t, from);
        }
    if (t->n_nodes) qsort(t->nodes, (size_t)t->n_nodes, sizeof *t->nodes, by_order);
    for (int n = 0; n < t->n_nodes && good; n++) good = gd_map_put(&t->at, t->nodes[n], n);
    return good;
}

/* --- groups ----------------------------------------------------------------------------------- */

/* The innermost call that created a node; -1: none. */
static int call_of(const tracer *t, const gd_node *node) {
    int low = 0, high = t->n_calls; /* finds the last call that began before the node */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (t->calls[middle].first <= node->order) low = middle + 1;
        else high = middle;
    }
    int i = low - 1;
    while (i >= 0 && node->order >= t->calls[i].end) i = t->calls[i].outer;
    return i;
}

/* A layer is one box; of a module of the program that is drawn itself, the parts are. */
static bool is_box(const call *c) { return !c->calls && (c->outer >= 0 || c->module->factory); }

/* The family of a layer is that of the op which says most about it. */
static const char *better_family(const char *a, const char *b) {
    static const char *const order[] = {
        "loss",   "recurrent", "attention",   "conv",     "matmul", "norm",
        "pool",   "softmax",   "random",      "distance", "index",  "join",
        "resize", "reduce",    "elementwise", "windows",  "sort",   "cumulative"};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (a && strcmp(a, order[i]) == 0) return a;
        if (b && strcmp(b, order[i]) == 0) return b;
    }
    return a ? a : b;
}

static bool form_groups(tracer *t) {
    for (int n = 0; n < t->n_nodes; n++) {
        const gd_node *node = t->nodes[n];
        const int c = call_of(t, node);
        group *last = t->n_groups > 0 ? &t->groups[t->n_groups - 1] : NULL;
        const char *family = node->op ? node->op->family : NULL;
        if (c < 0 || !is_box(&t->calls[c]) || !last || last->call != c) {
            if (!gd_grow(t->groups, t->n_groups, t->groups_room)) return false;
            last = &t->groups[t->n_groups++];
            *last = (group){.call = c, .node = n, .source = -1, .box = -1};
        }
        last->family = better_family(last->family, family);
        t->group_of[n] = t->n_groups - 1;
    }
    return true;
}

/* The number of the value that an input slot reads; -1: a parameter or a constant. */
static int value_of(const tracer *t, const gd_slot *slot) {
    const void *key = slot->node ? (const void *)slot->node : slot->captured;
    if (!key) return -1;
    const int input = gd_map_find(&t->input_at, key);
    if (input >= 0) return input;
    const int node = slot->node ? gd_map_find(&t->at, slot->node) : -1;
    return node >= 0 ? t->first_value[node] + slot->index : -1;
}

static void read_value(tracer *t, int v, int reader) {
    value *x = &t->values[v];
    if (x->group == reader || x->reader == reader) return;
    x->reader = reader;
    x->readers++;
    t->groups[reader].n_sources++;
    t->groups[reader].source = v;
}

static bool find_values(tracer *t, gd_tensors out) {
    int count = (int)t->n_inputs;
    for (int n = 0; n < t->n_nodes; n++) {
        t->first_value[n] = count;
        count += t->nodes[n]->n_out;
    }
    if (!(t->values = gd_malloc(((size_t)count + 1) * sizeof *t->values))) return false;
    for (int v = 0; v < count; v++) t->values[v] = (value){.group = -1, .reader = -1, .output = -1};
    for (int n = 0; n < t->n_nodes; n++) {
        for (int i = 0; i < t->nodes[n]->n_out; i++)
            t->values[t->first_value[n] + i].group = t->group_of[n];
        for (int i = 0; i < t->nodes[n]->n_in; i++) {
            const int v = value_of(t, &t->nodes[n]->slots[i]);
            if (v >= 0) read_value(t, v, t->group_of[n]);
        }
    }
    for (int64_t i = 0; i < out.count; i++) {
        const gd_tensor *y = out.at[i];
        const int node = y && y->kind == GD_SYMBOL ? gd_map_find(&t->at, y->node) : -1;
        if (node >= 0) t->values[t->first_value[node] + y->node_index].result = true;
    }
    return true;
}

/* --- boxes ------------------------------------------------------------------------------------ */

/* Whether an option, "in_channels=3", is a size of an input of the layer. */
static bool is_found(const gd_factory *factory, const char *text) {
    const size_t n = strcspn(text, "=");
    for (int i = 0; factory && i < factory->n_finds; i++)
        if (strlen(factory->finds[i].option) == n &&
            strncmp(factory->finds[i].option, text, n) == 0)
            return true;
    return false;
}

/* The options of a layer or an op that differ from their defaults, but not the sizes of its inputs. */
static void format_options(const gd_op *op, const gd_factory *factory, const void *attrs,
                           char text[TEXT]) {
    char *all = NULL;
    size_t bytes = 0, used = 0;
    FILE *out = op && attrs ? open_memstream(&all, &bytes) : NULL;
    *text = 0;
    if (!out) return;
    gd_fprint_options(out, op, attrs);
    if (fclose(out) != 0 || !all) return;
    for (const char *s = all; *(s += strspn(s, " "));) {
        const size_t n = strcspn(s, " ");
        if (!is_found(factory, s) && used + n + 2 < TEXT)
            used +=
                (size_t)snprintf(text + used, TEXT - used, "%s%.*s", used ? " " : "", (int)n, s);
        s += n;
    }
    free(all);
}

/* An op that no layer has called, as in a net from a file, has the name of its parameters: "conv1" if it reads
 * "conv1.weight". "": it has none. */
static void name_by_parameter(const tracer *t, const gd_node *node, char name[GD_MAX_PATH]) {
    *name = 0;
    for (int i = 0; i < node->n_in; i++) {
        const gd_tensor *p = node->slots[i].captured;
        if (!p || !gd_module_name_of(t->module, p, name, GD_MAX_PATH)) continue;
        char *dot = strrchr(name, '.');
        if (dot) *dot = 0;
        return;
    }
    *name = 0;
}

static void add_part(tracer *t, group *g) {
    char detail[TEXT];
    const gd_node *node = t->nodes[g->node];
    const call *c = g->call >= 0 ? &t->calls[g->call] : NULL;
    if (c && is_box(c)) {
        const gd_module *m = c->module;
        const bool any_op = m->factory && strcmp(m->factory->record.name, "op") == 0;
        if (any_op) format_options(m->op, NULL, m->op_options, detail);
        else
            format_options(m->factory ? &m->factory->record : NULL, m->factory, m->options, detail);
        gd_draw_part(t->drawing, g->box, c->path,
                     any_op && strcmp(c->type, "op") == 0 ? m->op->name : c->type, detail,
                     g->family);
        return;
    }
    const char *name = node->op ? node->op->name : node->function ? node->function->name : "op";
    format_options(node->op, NULL, node->attrs, detail);
    char path[GD_MAX_PATH] = "";
    if (!c || !*c->path) name_by_parameter(t, node, path);
    gd_draw_part(t->drawing, g->box, *path || !c ? path : c->path, name, detail, g->family);
}

/* The values that other boxes read, or that are results. */
static void add_outputs(tracer *t, int number, int end) {
    group *g = &t->groups[number];
    for (int n = g->node; n < end; n++)
        for (int i = 0; i < t->nodes[n]->n_out; i++) {
            value *v = &t->values[t->first_value[n] + i];
            const gd_slot *slot = &t->nodes[n]->slots[t->nodes[n]->n_in + i];
            char shape[TEXT];
            if (!v->readers && !v->result) continue;
            gd_shape_text(slot->rank, slot->dims, shape, sizeof shape);
            v->output = gd_draw_output(t->drawing, g->box, "", shape);
            g->n_outputs++;
        }
}

/* Whether a group belongs into the box of what it reads: nobody else reads that. */
static bool is_joined(const tracer *t, const group *g) {
    static const char *const families[] = {"elementwise", "norm",  "softmax",
                                           "random",      "shape", "pad"};
    const value *v = g->n_sources == 1 ? &t->values[g->source] : NULL;
    if (!v || v->group < 0 || v->readers != 1 || v->result || g->n_outputs != 1 || !g->family)
        return false;
    const group *from = &t->groups[v->group];
    int box = from->box;
    while (t->drawing->boxes[box].folded >= 0) box = t->drawing->boxes[box].folded;
    if (from->n_outputs != 1 || t->drawing->boxes[box].n_parts >= MAX_PARTS) return false;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(g->family, families[i]) == 0) return true;
    return false;
}

static void add_input_boxes(tracer *t) {
    for (int64_t i = 0; i < t->n_inputs; i++) {
        char name[32] = "input", shape[TEXT];
        const gd_tensor *x = t->inputs[i];
        if (!x || t->values[i].readers == 0) continue;
        if (t->n_inputs > 1) snprintf(name, sizeof name, "input %lld", (long long)i);
        gd_shape_text(x->rank, x->dims, shape, sizeof shape);
        const int box = gd_draw_box(t->drawing);
        gd_draw_part(t->drawing, box, name, "", "", "data");
        t->values[i].output = gd_draw_output(t->drawing, box, "", shape);
        t->values[i].group = -2 - box; /* of an input: its box */
    }
}

static void connect(tracer *t, int number, int end) {
    group *g = &t->groups[number];
    for (int n = g->node; n < end; n++)
        for (int i = 0; i < t->nodes[n]->n_in; i++) {
            const int at = value_of(t, &t->nodes[n]->slots[i]);
            const value *v = at >= 0 ? &t->values[at] : NULL;
            if (!v || v->group == number || v->group == -1) continue;
            gd_draw_connect(t->drawing, v->group < 0 ? -2 - v->group : t->groups[v->group].box,
                            v->output, g->box);
        }
}

static void add_boxes(tracer *t) {
    add_input_boxes(t);
    for (int i = 0; i < t->n_groups && !t->drawing->failed; i++) {
        group *g = &t->groups[i];
        const int end = i + 1 < t->n_groups ? t->groups[i + 1].node : t->n_nodes;
        if (g->n_sources > 1 && g->family && strcmp(g->family, "elementwise") == 0)
            g->family = "join";
        g->box = gd_draw_box(t->drawing);
        if (g->box < 0) return;
        add_part(t, g);
        add_outputs(t, i, end);
        if (t->drawing->failed) return;
        if (is_joined(t, g))
            gd_draw_fold(t->drawing, t->groups[t->values[g->source].group].box, g->box);
        else connect(t, i, end);
    }
}

/* --- the drawing ------------------------------------------------------------------------------ */

static gd_status trace(tracer *t, gd_tensors in) {
    gd_tensors out;
    if (in.count < 0 || (in.count > 0 && !in.at))
        return gd_fail(GD_E_ARGUMENT, "gd_module_draw: the list of inputs is NULL");
    t->n_inputs = in.count;
    if (!(t->inputs = gd_list_new(in.count))) return gd_no_memory(NULL, "for a picture");
    gd_status status = run(t, in, false, &out);
    if (status != GD_OK && status != GD_E_MEMORY)
        status = run(t, in, true, &out); /* the net may read integers on the host */
    if (t->failed) return gd_no_memory(NULL, "for a picture");
    GD_TRY(status);
    bool good = collect_nodes(t, out);
    const size_t n = (size_t)t->n_nodes + 1;
    good = good && (t->group_of = gd_malloc(n * sizeof *t->group_of)) &&
           (t->first_value = gd_malloc(n * sizeof *t->first_value)) && form_groups(t) &&
           find_values(t, out);
    if (good) add_boxes(t);
    return good && !t->drawing->failed ? GD_OK : gd_no_memory(NULL, "for a picture");
}

static void clear_tracer(tracer *t) {
    free_calls(t);
    gd_free(t->calls);
    gd_free(t->nodes);
    gd_free(t->groups);
    gd_free(t->group_of);
    gd_free(t->first_value);
    gd_free(t->values);
    gd_map_free(&t->at);
    gd_map_free(&t->input_at);
    gd_drawing_free(t->drawing);
}

static gd_status draw(gd_module *m, const char *path, gd_tensors in,
                      const gd_module_draw_options *o) {
    tracer t = {.watch = {begin_call, end_call}, .module = m, .open = -1};
    gd_shapes_only only;
    if (!m)
        return gd_failed() ? gd_failure()
                           : gd_fail(GD_E_ARGUMENT, "gd_module_draw: the module is NULL");
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_module_draw: the path is NULL");
    if (!(t.drawing = gd_drawing_new(o->title ? o->title : m->type)))
        return gd_no_memory(NULL, "for a picture");
    int grad = gd_no_grad_begin();
    gd_shapes_only_begin(&only);
    gd_status status = trace(&t, in);
    gd_shapes_only_end(&only);
    gd_grad_mode_end(&grad);
    if (status == GD_OK) status = gd_drawing_save(t.drawing, path, o->left_to_right);
    clear_tracer(&t);
    return status;
}

gd_status gd_module_draw_at(const char *site, gd_module *m, const char *path, gd_tensors in,
                            const gd_module_draw_options *o) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    const gd_status status = draw(m, path, in, o ? o : GD_MODULE_DRAW_OPTIONS_());
    return gd_report(site, gd_attempt_end(&attempt, status));
}
