/* model.c - creates nets by name, and loads nets to use them or to train them further. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

gd_module *load_model(const char *path, model_info *a) {
    memset(a, 0, sizeof *a);
    a->background = NAN;
    gd_module *net = gd_onnx_module(path);
    if (net) read_model_info(path, a);
    if (net) gd_module_eval(net);
    return net;
}

/* --- classes ---------------------------------------------------------------------------------- */

const char *class_name(const model_info *a, int64_t i, char *text, size_t size) {
    if (i < a->n_classes) return a->classes[i];
    snprintf(text, size, "class %lld", (long long)i);
    return text;
}

/* The first classes, for a message: "0, 1, 2, ...". */
static const char *list_classes(const model_info *a, char *text, size_t size) {
    size_t used = 0;
    for (int64_t i = 0; i < a->n_classes && used + 40 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%.30s", i ? ", " : "", a->classes[i]);
    if (used + 40 >= size) snprintf(text + used, size - used, ", ...");
    return text;
}

/* A table from the classes of the data to those of the model; it lives until the program ends. */
typedef struct renumbering {
    gd_tensor *table;
    bool text;
} renumbering;

static gd_tensors renumber(gd_tensors sample, gd_random *random, void *user) {
    const renumbering *r = user;
    gd_tensor *list[16];
    const int64_t count = sample.count < 16 ? sample.count : 16;
    (void)random;
    for (int64_t i = 0; i < count; i++) {
        list[i] = sample.at[i];
        if (!r->text && i + 1 < count) continue; /* an input */
        list[i] =
            gd_reshape(gd_index_select(r->table, 0, gd_flatten(list[i])), gd_tensor_shape(list[i]));
    }
    return gd_list_copy((gd_tensors){list, count});
}

gd_dataset *match_classes(gd_dataset *d, const model_info *a, const char *path) {
    const int64_t n = gd_dataset_class_count(d);
    char list[300];
    bool same = true;
    if (!a->n_classes || !n) return d;
    int64_t *table = malloc(sizeof *table * (size_t)n);
    for (int64_t i = 0; table && i < n; i++) {
        const char *name = gd_dataset_class_name(d, i);
        int64_t at = 0;
        while (at < a->n_classes && strcmp(a->classes[at], name) != 0) at++;
        if (at == a->n_classes) {
            fail("the data have the class '%s', which %s does not know; it knows %s", name, path,
                 list_classes(a, list, sizeof list));
            free(table);
            return NULL;
        }
        same &= at == i;
        table[i] = at;
    }
    if (!same && table) {
        static renumbering r;
        r.text = is_text(gd_dataset_get(d, 0));
        r.table = gd_to_device(gd_from_array(gd_dims(n), GD_I64, table), gd_device_get("cpu"));
        d = gd_dataset_map(d, renumber, &r);
    }
    free(table);
    return d;
}

/* --- creating nets ---------------------------------------------------------------------------- */

static bool has_option(const gd_op *record, const char *name) {
    for (int i = 0; i < gd_op_attr_count(record); i++)
        if (strcmp(gd_op_attr_at(record, i)->name, name) == 0) return true;
    return false;
}

/* Adds name=value if the record has this option and the text does not set it. */
static void add_default(char *text, size_t size, const gd_op *record, const char *name,
                        int64_t value) {
    char given[80];
    snprintf(given, sizeof given, "%s=", name);
    if (value <= 0 || !has_option(record, name) || strstr(text, given)) return;
    const size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s%lld", n ? " " : "", given, (long long)value);
}

/* Replaces the value of an option. False: the text does not have it. */
static bool replace_option(char *text, size_t size, const char *name, int64_t value) {
    char before[256], given[80];
    snprintf(given, sizeof given, " %s=", name);
    snprintf(before, sizeof before, "%s", text);
    const char *at = strstr(before, given);
    if (!at) return false;
    at += strlen(given);
    snprintf(text, size, "%.*s%lld%s", (int)(at - before), before, (long long)value,
             at + strcspn(at, " "));
    return true;
}

static bool same_shape(const gd_tensor *a, const gd_tensor *b) {
    bool same = gd_tensor_rank(a) == gd_tensor_rank(b);
    for (int i = 0; same && i < gd_tensor_rank(a); i++)
        same = gd_tensor_dim(a, i) == gd_tensor_dim(b, i);
    return same;
}

/* Whether tensor i has two names, as a tied weight, and the first comes earlier. */
static bool is_repeated(const gd_state *state, int64_t i) {
    const gd_tensor *t = gd_state_tensor_at(state, i);
    int64_t first = 0;
    while (gd_state_tensor_at(state, first) != t) first++;
    return first < i;
}

/* A net that is created again from the text that a file has about it. */
typedef struct remade {
    gd_module *net;  /* NULL: it could not be created */
    char fresh[300]; /* the tensors that have another shape in the file */
    char why[700];
} remade;

/* Copies weights of `file` to the net. Tensors of another shape are left as they are. False: the file
 * lacks some. Integers, the batch counts of batch norms, may be missing. */
static bool copy_weights(remade *r, gd_module *file) {
    GD_SCOPE;
    GD_NO_GRAD;
    gd_state *to = gd_state_of(r->net), *from = gd_state_of(file);
    for (int64_t i = 0; i < gd_state_count(to) && !gd_failed(); i++) {
        const char *name = gd_state_name(to, i);
        gd_tensor *t = gd_state_tensor_at(to, i), *value = gd_state_find(from, name);
        const size_t used = strlen(r->fresh);
        if (!value && (is_repeated(to, i) || !gd_dtype_is_float(gd_tensor_dtype(t)))) continue;
        if (!value) {
            snprintf(r->why, sizeof r->why, "the file has no %.200s", name);
            return false;
        }
        if (same_shape(t, value)) gd_assign(t, value);
        else snprintf(r->fresh + used, sizeof r->fresh - used, "%s%s", used ? ", " : "", name);
    }
    return !gd_failed();
}

/* The inputs of a sample as a batch of one, on the device of the net. */
static gd_tensors batch_of(gd_tensors sample, gd_tensor *inputs[8]) {
    const int64_t count = sample.count > 1 ? sample.count - 1 : 1;
    for (int64_t i = 0; i < count && i < 8; i++)
        inputs[i] = gd_to_device(gd_unsqueeze(sample.at[i], 0), gd_default_device());
    return (gd_tensors){inputs, count < 8 ? count : 8};
}

gd_status build_net(gd_module *net, gd_tensors sample) {
    gd_tensor *inputs[8];
    const bool trains = gd_module_is_training(net);
    gd_module_eval(net);
    const gd_status status = gd_module_build_at(NULL, net, batch_of(sample, inputs));
    if (trains) gd_module_train(net);
    return status;
}

/* The classes, or numbers, that the net computes; -1: the failure is recorded. Integers, such as the
 * characters of a text, may be more than the net knows: it computes with zeros in their place. */
static int64_t count_outputs(gd_module *net, const data *d) {
    GD_NO_GRAD;
    gd_tensor *inputs[8];
    const gd_tensors x = batch_of(d->sample, inputs);
    for (int64_t i = 0; i < x.count; i++)
        if (!gd_dtype_is_float(gd_tensor_dtype(inputs[i]))) inputs[i] = gd_zeros_like(inputs[i]);
    const gd_tensors y = gd_module_call(net, x);
    if (gd_failed() || y.count < 1) return -1;
    const int rank = gd_tensor_rank(y.at[0]);
    return rank > 1 ? gd_tensor_dim(y.at[0], rank - 1) : 1;
}

/* The classes, or numbers, of the data; 0: unknown. */
static int64_t count_targets(const data *d) {
    const gd_tensor *target = d->sample.at[d->sample.count - 1];
    if (d->sample.count < 2) return 0;
    if (d->classes) return d->n_classes;
    return gd_tensor_rank(target) == 1 ? gd_tensor_dim(target, 0) : 0;
}

static bool same_classes(const model_info *a, const data *d) {
    bool same = a->n_classes == d->n_classes;
    for (int64_t i = 0; same && i < a->n_classes; i++)
        same = strcmp(a->classes[i], gd_dataset_class_name(d->train, i)) == 0;
    return same;
}

/* A saved net of the zoo is created again with the weights of the file, so that its batch norms and
 * dropouts train as before. */
static remade make_again(const char *model, gd_module *file, const data *d) {
    remade r = {.net = NULL};
    char name[64];
    const size_t length = strcspn(model, " ");
    snprintf(name, sizeof name, "%.*s", (int)length, model);
    r.net = gd_net_new(name, model + length);
    if (r.net && build_net(r.net, d->sample) == GD_OK && copy_weights(&r, file)) return r;
    if (gd_failed()) snprintf(r.why, sizeof r.why, "%s", gd_error_message());
    gd_clear_error();
    r.net = NULL;
    return r;
}

/* A net like that of the file with another number of outputs: the tensors of another shape, those
 * of its last layer, are new. */
static gd_module *make_with_new_head(const char *path, gd_module *file, const data *d,
                                     model_info *a, int64_t outputs, int64_t targets) {
    char model[256];
    bool replaced = false;
    remade r = {.net = NULL};
    snprintf(model, sizeof model, "%s", a->model);
    for (int i = 0; i < 3; i++)
        replaced |= replace_option(
            model, sizeof model, (const char *[]){"classes", "outputs", "vocabulary"}[i], targets);
    const char *what = d->classes ? "classes" : "targets";
    if (replaced) r = make_again(model, file, d);
    if (!r.net && replaced)
        fail("%s has %lld outputs, and the data have %lld %s; the net '%s' cannot be made from it: "
             "%s",
             path, (long long)outputs, (long long)targets, what, model, r.why);
    else if (!r.net)
        fail("%s has %lld outputs, and the data have %lld %s; a new last layer needs a file that "
             "names its net (gradus.model), as gradus train writes it",
             path, (long long)outputs, (long long)targets, what);
    if (!r.net) return NULL;
    snprintf(a->model, sizeof a->model, "%s", model);
    fprintf(stderr, "gradus: %s has %lld outputs, and the data have %lld %s: %s %s new\n", path,
            (long long)outputs, (long long)targets, what, r.fresh,
            strchr(r.fresh, ',') ? "are" : "is");
    return r.net;
}

/* Files that name no net of the zoo are trained as graphs. */
static gd_module *load_to_train(const char *path, const data *d, model_info *a) {
    gd_module *file = load_model(path, a);
    if (!file || !d) return file;
    const int64_t outputs = count_outputs(file, d), targets = count_targets(d);
    if (outputs < 0) return NULL;
    const bool spare = d->classes && outputs > targets && same_classes(a, d);
    if (targets && outputs != targets && !spare)
        return make_with_new_head(path, file, d, a, outputs, targets);
    if (d->classes && a->n_classes && !same_classes(a, d))
        note("%s was trained with other classes; its last layer learns the new ones", path);
    if (!*a->model) return file;
    remade r = make_again(a->model, file, d);
    if (r.net && !*r.fresh) return r.net;
    if (*r.fresh) snprintf(r.why, sizeof r.why, "it has other shapes of %s", r.fresh);
    fprintf(stderr,
            "gradus: the net '%s' cannot be made from %s: %s; it trains as it computes in the "
            "file, with fixed statistics of batch norms and without dropout\n",
            a->model, path, r.why);
    return file;
}

gd_module *make_model(const char *spec, const data *d, model_info *a) {
    if (ends_with(spec, ".onnx")) {
        gd_module *file = load_to_train(spec, d, a);
        if (!file && gd_failed()) failed();
        return file;
    }
    char name[64], text[180];
    memset(a, 0, sizeof *a);
    a->background = NAN;
    const size_t length = strcspn(spec, " ");
    snprintf(name, sizeof name, "%.*s", (int)length, spec);
    snprintf(text, sizeof text, "%s", spec + length + strspn(spec + length, " "));
    const gd_op *record = gd_record_get("net", name);
    if (record && d) {
        const gd_tensor *x = d->sample.at[0];
        const bool image = gd_tensor_rank(x) == 3;
        add_default(text, sizeof text, record, "classes", d->n_classes);
        add_default(text, sizeof text, record, "vocabulary", d->n_classes);
        add_default(text, sizeof text, record, "channels", image ? gd_tensor_dim(x, 0) : 0);
        add_default(text, sizeof text, record, "size", image ? gd_tensor_dim(x, 1) : 0);
        add_default(text, sizeof text, record, "context",
                    gd_tensor_rank(x) == 1 ? gd_tensor_dim(x, 0) : 0);
        add_default(text, sizeof text, record, "features",
                    gd_tensor_rank(x) == 1 ? gd_tensor_dim(x, 0) : 0);
        add_default(text, sizeof text, record, "outputs", d->classes ? d->n_classes : 1);
    }
    gd_module *net = gd_net_new(name, text);
    if (net) snprintf(a->model, sizeof a->model, "%s%s%s", name, *text ? " " : "", text);
    else failed();
    return net;
}
