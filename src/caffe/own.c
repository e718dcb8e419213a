/* own.c - see own.h. */
#include "caffe/own.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/fork.h"
#include "core/number.h"
#include "dispatch/intern.h"

enum { MAX_NAME = 100 };

const gd_op *gd_caffe_own_op(const char *name, size_t length) {
    char text[MAX_NAME];
    snprintf(text, sizeof text, "%.*s", (int)(length < MAX_NAME ? length : 0), name);
    const gd_op *op = gd_op_find(text);
    return op && gd_op_flags(op) & GD_OP_USER ? op : NULL;
}

/* --- the message of an op --------------------------------------------------------------------- */

/* Fields, schema and words of an op, in one block that is never freed before the library. */
typedef struct own_message {
    struct own_message *next;
    const gd_op *op;
    gd_pb_field field; /* of the layer */
    gd_pb_schema schema;
    gd_pb_field options[]; /* one for each option */
} own_message;

static own_message *messages;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_INNER_MUTEX_AT_FORK(lock)

/* An option with words: each is a number in the order of the record. */
static const gd_pb_enum *make_words(const char *words) {
    int count = 1;
    for (const char *s = words; *s; s++) count += *s == ' ';
    gd_pb_enum *values = gd_calloc_until_exit((size_t)(count + 1) * sizeof *values);
    for (int i = 0; values && *words; i++) {
        char word[MAX_NAME];
        const size_t length = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        values[i] = (gd_pb_enum){gd_intern(word), i};
        if (values[i].name == NULL) return NULL;
        words += length + (words[length] == ' ');
    }
    return values;
}

static bool make_option(gd_pb_field *field, const gd_op_attr *a) {
    *field = (gd_pb_field){.name = a->name};
    switch (a->type) {
    case GD_ATTR_INT: field->type = GD_PB_INT64; break;
    case GD_ATTR_FLOAT:
    case GD_ATTR_NUMBER: field->type = GD_PB_DOUBLE; break;
    case GD_ATTR_FLOATS: field->type = GD_PB_DOUBLE, field->flags = GD_PB_REPEATED; break;
    case GD_ATTR_BOOL: field->type = GD_PB_BOOL; break;
    case GD_ATTR_INTS:
    case GD_ATTR_SHAPE: field->type = GD_PB_INT64, field->flags = GD_PB_REPEATED; break;
    case GD_ATTR_WORD: field->type = GD_PB_ENUM, field->values = make_words(a->words); break;
    default: field->type = GD_PB_STRING;
    }
    return field->type != GD_PB_ENUM || field->values;
}

static own_message *make_message(const gd_op *op) {
    char name[MAX_NAME + 10];
    const size_t options = (size_t)op->n_attrs * sizeof(gd_pb_field);
    own_message *m = gd_calloc_until_exit(sizeof *m + options);
    if (m == NULL) return NULL;
    snprintf(name, sizeof name, "%s_param", op->name);
    m->op = op;
    m->schema = (gd_pb_schema){.name = gd_intern(name), .fields = m->options};
    m->field = (gd_pb_field){.name = m->schema.name, .type = GD_PB_MESSAGE, .message = &m->schema};
    for (int i = 0; i < op->n_attrs; i++)
        if (op->attrs[i].type != GD_ATTR_GRAPH &&
            !make_option(&m->options[m->schema.count++], &op->attrs[i]))
            return NULL;
    return m->schema.name ? m : NULL;
}

const gd_pb_field *gd_caffe_own_field(const char *name, size_t length) {
    static const char end[] = "_param";
    const size_t tail = sizeof end - 1;
    if (length <= tail || memcmp(name + length - tail, end, tail) != 0) return NULL;
    const gd_op *op = gd_caffe_own_op(name, length - tail);
    if (op == NULL) return NULL;
    pthread_mutex_lock(&lock);
    own_message *m = messages;
    while (m && m->op != op) m = m->next;
    if (m == NULL && (m = make_message(op))) {
        m->next = messages;
        messages = m;
    }
    pthread_mutex_unlock(&lock);
    return m ? &m->field : NULL;
}

/* --- options ---------------------------------------------------------------------------------- */

typedef struct printer {
    char *text;
    size_t size, used;
} printer;

static void put(printer *p, const char *text) {
    if (p->used >= p->size) return;
    p->used += (size_t)snprintf(p->text + p->used, p->size - p->used, "%s", text);
}

static void put_value(printer *p, const gd_pb_list *list, size_t i) {
    char number[GD_DOUBLE_TEXT] = "";
    const gd_pb_field *field = list->field;
    if (field->type == GD_PB_STRING) put(p, list->bytes[i].data);
    else if (field->type == GD_PB_DOUBLE) gd_double_print(number, gd_pb_float_at(list, i));
    else if (field->type == GD_PB_BOOL) put(p, list->ints[i] ? "true" : "false");
    else if (field->type == GD_PB_INT64)
        snprintf(number, sizeof number, "%lld", (long long)list->ints[i]);
    else
        for (const gd_pb_enum *e = field->values; e->name; e++)
            if (e->number == list->ints[i]) put(p, e->name);
    put(p, number);
}

gd_status gd_caffe_own_options(const gd_pb *layer, const gd_op *op, char *text, size_t size) {
    char name[MAX_NAME + 10];
    printer p = {text, size, 0};
    text[0] = '\0';
    snprintf(name, sizeof name, "%s_param", op->name);
    const gd_pb *message = gd_pb_message(layer, name);
    for (int k = 0; message && k < message->count; k++) {
        const gd_pb_list *list = &message->lists[k];
        if (list->count == 0) continue;
        if (list->field->type == GD_PB_STRING && strpbrk(list->bytes[0].data, " \t\n"))
            return gd_pb_fail(message, "%s.%s: options of ops have no spaces", name,
                              list->field->name);
        put(&p, p.used ? " " : "");
        put(&p, list->field->name);
        put(&p, "=");
        for (size_t i = 0; i < list->count; i++) {
            put(&p, i ? "," : "");
            put_value(&p, list, i);
        }
    }
    if (p.used >= size) return gd_pb_fail(message, "%s has too many values", name);
    return GD_OK;
}
