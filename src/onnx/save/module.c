/* module.c - saves a module as an ONNX file; see gradus/onnx.h.
 *
 * The module is traced in eval mode with placeholders like the examples, and the graph is saved. If
 * it cannot be traced with an unknown batch size, it is traced again with that of the examples. An
 * unknown length was asked for, so it is not replaced. A trace with an unknown length does not find
 * all that depends on it, such as a linear layer after a flatten: the net is first traced with
 * other lengths.
 */
#include <stdio.h>
#include <string.h>

#include "core/freed.h"
#include "gradus/ops.h"
#include "nn/saved_modes.h"
#include "onnx/save/save.h"

/* Word `index` of a list of names; if the list is shorter, its last word and the index. */
static void indexed_name(const char *names, int64_t index, char *text, size_t size) {
    const char *word = names, *last = names;
    int64_t at = 0;
    for (;; at++) {
        word += strspn(word, " ");
        if (!*word) break;
        last = word;
        if (at == index) break;
        word += strcspn(word, " ");
    }
    const int length = (int)strcspn(last, " ");
    if (at == index && *word) snprintf(text, size, "%.*s", length, last);
    else snprintf(text, size, "%.*s_%lld", length, last, (long long)index);
}

static int64_t count_names(const char *names) {
    int64_t count = 0;
    for (const char *at = names + strspn(names, " "); *at; at += strspn(at, " ")) {
        count++;
        at += strcspn(at, " ");
    }
    return count;
}

typedef struct module_save {
    const char *path;
    gd_module *net;
    gd_tensors examples;
    const gd_onnx_save_module_options *options;
} module_save;

/* Adds placeholders like the examples to the graph. */
static gd_status add_placeholders(const module_save *s, bool any_batch, gd_tensor **inputs) {
    char name[200];
    for (int64_t i = 0; i < s->examples.count; i++) {
        const gd_tensor *x = s->examples.at[i];
        gd_shape dims = gd_shape_of(x->rank, x->dims);
        if (any_batch && dims.rank > 0) dims.at[0] = GD_ANY;
        if (s->options->any_length && dims.rank > 1) dims.at[1] = GD_ANY;
        indexed_name(s->options->inputs, i, name, sizeof name);
        inputs[i] = gd_placeholder(dims, .name = name, .dtype = (gd_dtype)x->dtype);
        if (inputs[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

/* Whether result `i` is the value of an earlier one, too. */
static bool is_repeated(gd_tensors results, int64_t i) {
    const gd_tensor *y = results.at[i];
    for (int64_t k = 0; k < i; k++)
        if (results.at[k]->node == y->node && results.at[k]->node_index == y->node_index)
            return true;
    return false;
}

static gd_status trace_outputs(const module_save *s, gd_tensor *const *inputs,
                               gd_tensors *outputs) {
    char name[200];
    gd_tensors results = gd_module_call(s->net, (gd_tensors){inputs, s->examples.count});
    if (results.count < 1 || gd_failed()) return gd_failure();
    const int64_t names = count_names(s->options->outputs);
    if (names > results.count)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_onnx_save_module: .outputs = \"%s\" has %lld names, and the net "
                       "returns %lld tensor%s",
                       s->options->outputs, (long long)names, (long long)results.count,
                       results.count > 1 ? "s" : "");
    gd_tensor **named = gd_list_new(results.count);
    if (!named) return GD_E_MEMORY;
    for (int64_t i = 0; i < results.count; i++) {
        indexed_name(s->options->outputs, i, name, sizeof name);
        gd_tensor *y = results.at[i];
        if (y->kind != GD_SYMBOL || y->node->origin->kind != GD_FROM_OP || is_repeated(results, i))
            y = gd_clone(y); /* an input of the module, or a value that has a name already */
        named[i] = gd_named(y, name);
        if (named[i]->kind == GD_FAILED) return gd_failure();
    }
    *outputs = (gd_tensors){named, results.count};
    return GD_OK;
}

static gd_status save_traced(const module_save *s, bool any_batch) {
    const gd_onnx_save_options options = {.external_above = s->options->external_above,
                                          .own_ops = s->options->own_ops,
                                          .metadata = s->options->metadata};
    gd_graph *graph = gd_graph_new();
    gd_tensor **inputs = gd_list_new(s->examples.count);
    gd_tensors outputs;
    if (!graph || !inputs) return GD_E_MEMORY;
    gd_block block = gd_graph_begin(graph);
    gd_status status = add_placeholders(s, any_batch, inputs);
    if (status == GD_OK) status = trace_outputs(s, inputs, &outputs);
    gd_graph_end(&block);
    GD_TRY(status);
    gd_session *session = gd_session_new(graph);
    if (!session) return gd_failure();
    const char *remedy = s->options->any_length ? "save the net without .any_length"
                                                : "save the net with .any_batch = false";
    return gd_onnx_save_model(s->path, session, (gd_tensors){inputs, s->examples.count}, outputs,
                              &options, s->net, remedy);
}

/* --- other lengths ---------------------------------------------------------------------------- */

/* Which sizes of the examples are changed together with the length. */
typedef enum probe_axes {
    SECOND,       /* the second of each input */
    SECOND_ALIKE, /* only where it is the length of the first input */
    ALL_ALIKE,    /* all sizes that are that length, such as both of a mask (T, T) */
    PROBES,
} probe_axes;

/* The second size of the first input that has one; -1: none has. */
static int64_t find_length(gd_tensors examples) {
    for (int64_t i = 0; i < examples.count; i++)
        if (examples.at[i]->rank > 1) return examples.at[i]->dims[1];
    return -1;
}

static gd_status trace_with_length(const module_save *s, probe_axes axes, int64_t length) {
    const int64_t given = find_length(s->examples);
    gd_graph *graph = gd_graph_new();
    gd_tensor **inputs = gd_list_new(s->examples.count);
    if (!graph || !inputs) return GD_E_MEMORY;
    gd_block block = gd_graph_begin(graph);
    gd_status status = GD_OK;
    for (int64_t i = 0; i < s->examples.count && status == GD_OK; i++) {
        const gd_tensor *x = s->examples.at[i];
        gd_shape dims = gd_shape_of(x->rank, x->dims);
        for (int d = 0; d < dims.rank; d++)
            if (axes == ALL_ALIKE ? dims.at[d] == given
                                  : d == 1 && (axes == SECOND || dims.at[d] == given))
                dims.at[d] = length;
        inputs[i] = gd_placeholder(dims, .dtype = (gd_dtype)x->dtype);
        if (inputs[i]->kind == GD_FAILED) status = gd_failure();
    }
    if (status == GD_OK) gd_module_call(s->net, (gd_tensors){inputs, s->examples.count});
    if (status == GD_OK && gd_failed()) status = gd_failure();
    gd_graph_end(&block);
    return status;
}

static gd_status try_length(const module_save *s, probe_axes axes, int64_t length) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    gd_status status = trace_with_length(s, axes, length);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}

/* Fails if the net takes no other length than that of the examples. A net may have a largest
 * length, or need a multiple of a number. */
static gd_status check_other_lengths(const module_save *s) {
    const int64_t given = find_length(s->examples);
    const int64_t others[] = {given + 1, given - 1, 2 * given, given / 2};
    char why[GD_MESSAGE_MAX];
    gd_status first = GD_OK;
    if (given < 1 || try_length(s, SECOND, given) != GD_OK) return GD_OK; /* saving says why */
    for (int i = 0; i < 4; i++)
        for (probe_axes axes = SECOND; axes < PROBES && others[i] > 0; axes++) {
            const gd_status status = try_length(s, axes, others[i]);
            if (status == GD_OK || status == GD_E_MEMORY) return status;
            if (first != GD_OK) continue;
            first = status;
            snprintf(why, sizeof why, "%s", gd_latest_failure());
        }
    return gd_fail(first,
                   "gd_onnx_save_module: %s: the net takes no other second size than %lld, that of "
                   "the example; save it without .any_length. With %lld: %s",
                   s->path, (long long)given, (long long)given + 1, why);
}

/* --- saving ----------------------------------------------------------------------------------- */

/* Saves within a new scope, and recovers from a failure. */
static gd_status try_save(const module_save *s, bool any_batch) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    gd_status status = save_traced(s, any_batch);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}

/* Saves for any batch if possible, and logs if it is not. */
static gd_status save_for_sizes(const module_save *s) {
    const bool any_batch = s->options->any_batch;
    char why[GD_MESSAGE_MAX];
    gd_status status = try_save(s, any_batch);
    if (status == GD_OK || !any_batch || status == GD_E_MEMORY || status == GD_E_IO) return status;
    /* it may need a known batch size; if the cause is another one, it fails again */
    snprintf(why, sizeof why, "%s", gd_latest_failure());
    const gd_status again = try_save(s, false);
    if (again == GD_OK)
        gd_notice(GD_LOG_WARNING, "%s is only for inputs with a first size of %lld: %s", s->path,
                  (long long)s->examples.at[0]->dims[0], why);
    else if (s->options->any_length) return gd_fail(status, "%s", why); /* has both unknown sizes */
    return again;
}

static gd_status check_arguments(const module_save *s) {
    const char *wrong = !s->path  ? "path is NULL"
                        : !s->net ? "the module is NULL"
                        : s->examples.count < 1 || !s->examples.at
                            ? "there are no examples of inputs"
                        : !s->options->inputs || !*s->options->inputs   ? "inputs have no name"
                        : !s->options->outputs || !*s->options->outputs ? "outputs have no name"
                                                                        : NULL;
    if (wrong) return gd_fail(GD_E_ARGUMENT, "gd_onnx_save_module: %s", wrong);
    const int64_t names = count_names(s->options->inputs), count = s->examples.count;
    if (names > count)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_onnx_save_module: .inputs = \"%s\" has %lld names, and there %s %lld "
                       "example%s",
                       s->options->inputs, (long long)names, count > 1 ? "are" : "is",
                       (long long)count, count > 1 ? "s" : "");
    for (int64_t i = 0; i < s->examples.count; i++)
        if (!s->examples.at[i])
            return gd_fail(GD_E_ARGUMENT, "gd_onnx_save_module: example %lld is NULL",
                           (long long)i);
    return GD_OK;
}

gd_status gd_onnx_save_module_at(const char *site, const char *path, gd_module *net,
                                 gd_tensors examples, const gd_onnx_save_module_options *options) {
    GD_LIVE_AT(site, net);
    options = options ? options : GD_ONNX_SAVE_MODULE_OPTIONS_();
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    const module_save s = {path, net, examples, options};
    gd_status status = check_arguments(&s);
    if (status != GD_OK) return gd_report(site, status);
    gd_saved_modes modes = {.count = 0};
    status = gd_saved_modes_save(&modes, net);
    if (status == GD_OK) {
        gd_saved_modes_set(&modes, 0);
        if (options->any_length) status = check_other_lengths(&s);
        if (status == GD_OK) status = save_for_sizes(&s);
    }
    gd_saved_modes_restore(&modes);
    return gd_report(site, status);
}
