/* net.c - a net of named layers that read and write named tensors (gd_nn_net).
 *
 * The names become numbers when a layer is added, so a call looks up nothing.
 */
#include "nn/net.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/grow.h"
#include "dispatch/intern.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"

/* The number of a tensor that is absent. Smaller numbers are those of tensors that are read detached. */
enum { ABSENT = -1 };
static int detached(int number) { return number > ABSENT ? ABSENT - 1 - number : number; }
static int attached(int number) { return number < ABSENT ? ABSENT - 1 - number : number; }

/* A tensor of the net. Several layers may give it, one after the other. */
typedef struct net_tensor {
    const char *name; /* interned */
    bool given;       /* by an input of the net, or by a layer so far */
} net_tensor;

/* A layer. Its tensors are numbers in `numbers`, first those that it reads, then those it gives. */
typedef struct net_row {
    int entry; /* index of the layer among the entries of the net */
    int first, n_reads, n_gives;
} net_row;

struct gd_net_rows {
    net_tensor *tensors;
    int n_tensors, tensors_room;
    gd_name_map by_name; /* the numbers of the tensors */
    int *numbers;        /* of the inputs of the net, of its outputs, and those of the rows */
    int n_numbers, numbers_room;
    int n_inputs, n_outputs;
    net_row *rows;
    int n_rows, rows_room;
};

/* --- lists of names --------------------------------------------------------------------------- */

/* A list that is read from a text, with the memory of its names. */
typedef struct name_list {
    const char **at;
    int count, room;
    char *text;
} name_list;

static void free_list(name_list *list) {
    gd_free(list->at);
    gd_free(list->text);
}

/* Reads names that are separated by spaces. A backslash before a space makes it a part of the name. */
static gd_status read_list(const char *text, name_list *list) {
    list->text = gd_malloc(strlen(text) + 1);
    char *to = list->text;
    if (!to) return gd_no_memory(NULL, "for a net");
    for (const char *s = text; *(s += strspn(s, " "));) {
        if (!gd_grow(list->at, list->count, list->room)) return gd_no_memory(NULL, "for a net");
        const bool absent = s[0] == '-' && (s[1] == ' ' || !s[1]);
        list->at[list->count++] = absent ? NULL : to;
        for (; *s && *s != ' '; s++) *to++ = *s == '\\' && s[1] ? *++s : *s;
        *to++ = 0;
    }
    return GD_OK;
}

static gd_status take_list(const char *text, const char *what, name_list *list) {
    if (text) GD_TRY(read_list(text, list));
    if (list->count == 0) return gd_fail(GD_E_ARGUMENT, "%s: the list has no names", what);
    for (int i = 0; i < list->count; i++)
        if (list->at[i] && strlen(list->at[i]) > GD_MAX_NAME)
            return gd_fail(GD_E_ARGUMENT, "%s: the name '%.40s...' is longer than %d characters",
                           what, list->at[i], GD_MAX_NAME);
    return GD_OK;
}

/* "image, label" */
static const char *input_names(const gd_net_rows *net, char text[200]) {
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < net->n_inputs && used < 190; i++)
        used += (size_t)snprintf(text + used, 200 - used, "%s%s", i ? ", " : "",
                                 net->tensors[net->numbers[i]].name);
    return text;
}

/* --- forward ---------------------------------------------------------------------------------- */

static gd_status read_tensors(const gd_net_rows *net, const int *numbers, int n,
                              gd_tensor **tensors, const char *reader, gd_tensor **in) {
    for (int i = 0; i < n; i++) {
        const int number = attached(numbers[i]);
        in[i] = number == ABSENT ? NULL : tensors[number];
        if (!in[i] && number != ABSENT)
            return gd_fail(GD_E_STATE, "%s reads '%s', which no earlier layer writes", reader,
                           net->tensors[number].name);
        if (number != numbers[i]) in[i] = gd_detach(in[i]);
    }
    return GD_OK;
}

static gd_status run_row(const gd_module *m, const net_row *row, gd_tensor **tensors) {
    const gd_net_rows *net = m->net;
    const gd_entry *e = &m->entries[row->entry];
    const int *reads = net->numbers + row->first, *gives = reads + row->n_reads;
    gd_tensor *few[16], **in = row->n_reads <= 16 ? few : gd_list_new(row->n_reads);
    if (!in) return GD_E_MEMORY;
    GD_TRY(read_tensors(net, reads, row->n_reads, tensors, e->name, in));
    const gd_tensors out = gd_module_run((gd_module *)e->object, (gd_tensors){in, row->n_reads});
    if (out.count > 0 && out.at[0]->kind == GD_FAILED) return gd_failure();
    if (row->n_gives > out.count)
        return gd_fail(GD_E_STATE, "%s has %lld output%s, but %d names for them", e->name,
                       (long long)out.count, out.count == 1 ? "" : "s", row->n_gives);
    for (int i = 0; i < row->n_gives; i++)
        if (gives[i] != ABSENT) tensors[gives[i]] = out.at[i];
    return GD_OK;
}

static gd_status run_rows(const gd_module *m, gd_tensors in, gd_tensor **tensors, gd_tensors *out) {
    const gd_net_rows *net = m->net;
    char names[200];
    if (in.count != net->n_inputs)
        return gd_fail(GD_E_ARGUMENT, "it takes %d input%s (%s), not %lld", net->n_inputs,
                       net->n_inputs == 1 ? "" : "s", input_names(net, names), (long long)in.count);
    for (int i = 0; i < net->n_inputs; i++) tensors[net->numbers[i]] = in.at[i];
    for (int i = 0; i < net->n_rows; i++) GD_TRY(run_row(m, &net->rows[i], tensors));
    gd_tensor **results = gd_list_new(net->n_outputs);
    if (!results) return GD_E_MEMORY;
    *out = (gd_tensors){results, net->n_outputs};
    return read_tensors(net, net->numbers + net->n_inputs, net->n_outputs, tensors, "the net",
                        results);
}

static gd_tensors run_net(gd_module *m, gd_tensors in) {
    gd_tensor **tensors = gd_calloc((size_t)m->net->n_tensors + 1, sizeof *tensors);
    gd_tensors out = {NULL, 0};
    const gd_status status =
        tensors ? run_rows(m, in, tensors, &out) : gd_no_memory(NULL, "for a net");
    gd_free(tensors);
    if (status == GD_OK) return out;
    gd_report(NULL, status);
    return gd_list_of_errors(1);
}

/* --- building --------------------------------------------------------------------------------- */

/* The number of a tensor; a new one if the name is new. */
static gd_status number_of(gd_net_rows *net, const char *name, int *number) {
    *number = name ? gd_entry_number(&net->by_name, name) : ABSENT;
    if (!name || *number >= 0) return GD_OK;
    const char *kept = gd_intern(name);
    if (!kept || !gd_grow(net->tensors, net->n_tensors, net->tensors_room) ||
        !gd_set_entry_number(&net->by_name, kept, net->n_tensors))
        return gd_no_memory(NULL, "for a net");
    *number = net->n_tensors;
    net->tensors[net->n_tensors++] = (net_tensor){.name = kept};
    return GD_OK;
}

static gd_status add_numbers(gd_net_rows *net, gd_name_list names) {
    for (int i = 0; i < names.count; i++) {
        int number;
        GD_TRY(number_of(net, names.at[i], &number));
        if (!gd_grow(net->numbers, net->n_numbers, net->numbers_room))
            return gd_no_memory(NULL, "for a net");
        net->numbers[net->n_numbers++] = number;
    }
    return GD_OK;
}

static gd_status fill_net(gd_net_rows *net, gd_name_list inputs, gd_name_list outputs) {
    for (int i = 0; i < inputs.count + outputs.count; i++)
        if (!(i < inputs.count ? inputs.at[i] : outputs.at[i - inputs.count]))
            return gd_fail(GD_E_ARGUMENT,
                           "gd_nn_net: an input or output of a net has a name, not '-'");
    GD_TRY(add_numbers(net, inputs));
    GD_TRY(add_numbers(net, outputs));
    net->n_inputs = inputs.count;
    net->n_outputs = outputs.count;
    for (int i = 0; i < inputs.count; i++) net->tensors[net->numbers[i]].given = true;
    return GD_OK;
}

gd_module *gd_net_new_with(gd_name_list inputs, gd_name_list outputs) {
    gd_module *m = gd_module_bare("net");
    if (!m) return NULL;
    m->contained = run_net;
    m->net = gd_calloc(1, sizeof *m->net);
    const gd_status status =
        m->net ? fill_net(m->net, inputs, outputs) : gd_no_memory(NULL, "for a net");
    if (status == GD_OK) return m;
    gd_report(NULL, status);
    return NULL;
}

gd_module *gd_nn_net_at(const char *site, const char *inputs, const char *outputs) {
    name_list in = {NULL}, out = {NULL};
    gd_status status = take_list(inputs, "gd_nn_net: inputs", &in);
    if (status == GD_OK) status = take_list(outputs, "gd_nn_net: outputs", &out);
    GD_CALLED_FROM(site);
    gd_module *m = status == GD_OK ? gd_net_new_with((gd_name_list){in.at, in.count},
                                                     (gd_name_list){out.at, out.count})
                                   : NULL;
    free_list(&in);
    free_list(&out);
    gd_report(site, status);
    return m;
}

static gd_status check_reads(const gd_net_rows *net, const char *name, gd_name_list reads) {
    char names[200];
    for (int i = 0; i < reads.count; i++) {
        const int number = reads.at[i] ? gd_entry_number(&net->by_name, reads.at[i]) : ABSENT;
        if (reads.at[i] && (number < 0 || !net->tensors[number].given))
            return gd_fail(GD_E_ARGUMENT,
                           "gd_net_add: '%s' reads '%s', which is neither an input of the net (%s) "
                           "nor an output of an earlier layer",
                           name, reads.at[i], input_names(net, names));
    }
    return GD_OK;
}

/* Takes back the numbers of a row that could not be added; its new names stay, which changes nothing. */
static gd_status add_row(gd_module *m, const char *name, gd_module *layer, gd_name_list reads,
                         gd_name_list gives) {
    gd_net_rows *net = m->net;
    const int first = net->n_numbers;
    GD_TRY(check_reads(net, name, reads));
    gd_status status = add_numbers(net, reads);
    if (status == GD_OK) status = add_numbers(net, gives);
    if (status == GD_OK && !gd_grow(net->rows, net->n_rows, net->rows_room))
        status = gd_no_memory(NULL, "for a net");
    if (status == GD_OK) status = gd_module_put_layer(m, name, layer);
    if (status != GD_OK) {
        net->n_numbers = first;
        return status;
    }
    net->rows[net->n_rows++] = (net_row){m->count - 1, first, reads.count, gives.count};
    const int *given = net->numbers + first + reads.count;
    for (int i = 0; i < gives.count; i++)
        if (given[i] != ABSENT) net->tensors[given[i]].given = true;
    return GD_OK;
}

gd_status gd_net_add_with(gd_module *m, const char *name, gd_module *layer, gd_name_list reads,
                          gd_name_list gives) {
    if (!m || !m->net)
        return !m && gd_failed() ? gd_failure()
                                 : gd_fail(GD_E_ARGUMENT, "gd_net_add: the module is %s",
                                           m ? "not a gd_nn_net" : "NULL");
    if (!layer)
        return gd_failed()
                   ? gd_failure()
                   : gd_fail(GD_E_ARGUMENT, "gd_net_add: the layer '%s' is NULL", name ? name : "");
    return add_row(m, name, layer, reads, gives);
}

gd_status gd_net_add_at(const char *site, gd_module *m, const char *name, gd_module *layer,
                        const char *reads, const char *gives) {
    GD_LIVE_AT(site, m);
    GD_LIVE_AT(site, layer);
    name_list in = {NULL}, out = {NULL};
    char what[200];
    snprintf(what, sizeof what, "gd_net_add: the inputs of '%.80s'", name ? name : "");
    gd_status status = m && layer ? take_list(reads, what, &in) : GD_OK;
    snprintf(what, sizeof what, "gd_net_add: the outputs of '%.80s'", name ? name : "");
    if (status == GD_OK && m && layer) status = take_list(gives, what, &out);
    if (status == GD_OK)
        status = gd_net_add_with(m, name, layer, (gd_name_list){in.at, in.count},
                                 (gd_name_list){out.at, out.count});
    free_list(&in);
    free_list(&out);
    return gd_report(site, status);
}

void gd_net_detach_input(gd_module *m, int i) {
    const net_row *last = &m->net->rows[m->net->n_rows - 1];
    int *number = &m->net->numbers[last->first + i];
    *number = detached(*number);
}

/* --- copying ---------------------------------------------------------------------------------- */

void gd_net_rows_free(gd_module *m) {
    gd_net_rows *net = m->net;
    if (!net) return;
    gd_free(net->tensors);
    gd_free(net->numbers);
    gd_free(net->rows);
    gd_name_map_free(&net->by_name);
    gd_free(net);
}

/* A copy of an array; *room is that of the copy. NULL: no memory, or the array is empty. */
static void *copy_array(const void *from, int count, size_t size, int *room) {
    void *copy = count > 0 ? gd_malloc((size_t)count * size) : NULL;
    if (copy) memcpy(copy, from, (size_t)count * size);
    *room = copy ? count : 0;
    return copy;
}

gd_status gd_net_rows_copy(gd_module *copy, const gd_module *m) {
    const gd_net_rows *from = m->net;
    if (!from) return GD_OK;
    gd_net_rows *net = copy->net = gd_calloc(1, sizeof *net);
    if (!net) return gd_no_memory(NULL, "to copy a net");
    net->n_inputs = from->n_inputs;
    net->n_outputs = from->n_outputs;
    net->tensors = copy_array(from->tensors, net->n_tensors = from->n_tensors, sizeof *net->tensors,
                              &net->tensors_room);
    net->numbers = copy_array(from->numbers, net->n_numbers = from->n_numbers, sizeof *net->numbers,
                              &net->numbers_room);
    net->rows =
        copy_array(from->rows, net->n_rows = from->n_rows, sizeof *net->rows, &net->rows_room);
    bool complete = (net->tensors || net->n_tensors == 0) &&
                    (net->numbers || net->n_numbers == 0) && (net->rows || net->n_rows == 0);
    for (int i = 0; complete && i < net->n_tensors; i++)
        complete = gd_set_entry_number(&net->by_name, net->tensors[i].name, i);
    return complete ? GD_OK : gd_no_memory(NULL, "to copy a net");
}
