/* solver_rule.c - reads the optimizer and the schedule of a solver by the lines `caffe` of records. */
#include "caffe/solver_rule.h"

#include <stdio.h>
#include <string.h>

#include "codegen/operator_text.h"
#include "core/alloc.h"
#include "core/number.h"
#include "optim/schedule.h"

enum { WORD = 64 };

/* A type that is another one with further options. */
static const struct {
    const char *type, *as, *options;
} types[] = {{"Nesterov", "SGD", " nesterov=true"}};
enum { TYPES = sizeof types / sizeof *types };

/* --- fields ----------------------------------------------------------------------------------- */

static const gd_pb_field *find_field(const gd_pb *m, const char *name) {
    for (int i = 0; i < m->schema->count; i++)
        if (strcmp(m->schema->fields[i].name, name) == 0) return &m->schema->fields[i];
    return NULL;
}

static gd_status print_list(const gd_pb *m, const char *name, char *text, size_t size) {
    const gd_pb_list *list = gd_pb_get(m, name);
    size_t used = 0;
    *text = 0;
    for (size_t i = 0; list && i < list->count; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "," : "",
                                 (long long)list->ints[i]);
        if (used + 24 > size)
            return gd_pb_fail(m, "%s has too many values: %zu", name, list->count);
    }
    return GD_OK;
}

/* The word of the record for a word of Caffe: "l1" of ",l1:L1". */
static gd_status rename_word(const gd_pb *m, const gd_operator_attribute *a, char *value) {
    char known[200] = "", wanted[WORD + 2];
    snprintf(wanted, sizeof wanted, ":%.*s", WORD, value);
    for (const char *at = a->renames; *at == ',';) {
        const size_t length = strcspn(at + 1, ","), ours = strcspn(at + 1, ":");
        const char *theirs = at + 1 + ours;
        if (strlen(wanted) == length - ours && memcmp(theirs, wanted, length - ours) == 0) {
            snprintf(value, WORD, "%.*s", (int)ours, at + 1);
            return GD_OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%.*s", *known ? ", " : "",
                 (int)(length - ours - 1), theirs + 1);
        at += 1 + length;
    }
    return gd_pb_fail(m, "%s is '%s'; it can be %s", a->theirs, value, known);
}

/* The value of the field, or its default in Caffe, as text for an option. */
static gd_status print_field(const gd_pb *m, const gd_operator_attribute *a, char *text,
                             size_t size) {
    const gd_pb_field *f = find_field(m, a->theirs);
    if (!f)
        return gd_fail(GD_E_STATE, "a record names the field %s, which no solver has", a->theirs);
    if (f->flags & GD_PB_REPEATED) return print_list(m, a->theirs, text, size);
    if (f->type == GD_PB_FLOAT) {
        gd_snprintf(text, size, "%.17g", gd_pb_float_of(m, a->theirs));
        return GD_OK;
    }
    if (f->type == GD_PB_STRING) {
        snprintf(text, WORD, "%s", gd_pb_string_of(m, a->theirs));
        return *a->renames ? rename_word(m, a, text) : GD_OK;
    }
    snprintf(text, size, "%lld", (long long)gd_pb_int_of(m, a->theirs));
    return GD_OK;
}

/* --- a record --------------------------------------------------------------------------------- */

static const gd_factory *find_rule(const char *kind, const char *name) {
    const gd_factory *f;
    for (int i = 0; (f = gd_factory_at(kind, i)); i++)
        if (f->record.caffe.name && strcmp(f->record.caffe.name, name) == 0) return f;
    return NULL;
}

/* Lists the names that a field can have. */
static gd_status unknown_name(const gd_pb *m, const char *kind, const char *field,
                              const char *name) {
    char known[400] = "";
    size_t used = 0;
    const gd_factory *f;
    for (int i = 0; (f = gd_factory_at(kind, i)) && used < sizeof known; i++)
        if (f->record.caffe.name && *f->record.caffe.name)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     f->record.caffe.name);
    for (int i = 0; i < TYPES && strcmp(kind, "optimizer") == 0 && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, ", %s", types[i].type);
    if (!*name) return gd_pb_fail(m, "the solver has no %s; there are %s", field, known);
    return gd_pb_fail(m, "there is no %s '%s'; there are %s", field, name, known);
}

/* Writes the options of the record. */
static gd_status print_options(const gd_pb *m, const gd_factory *f, char *text) {
    const char *attributes = f->record.caffe.attributes, *when = f->record.caffe.when;
    gd_operator_attribute a;
    gd_operator_condition c;
    size_t used = 0;
    *text = 0;
    while (attributes && gd_operator_next_attribute(&attributes, &a)) {
        char value[GD_CAFFE_RULE_TEXT / 2];
        GD_TRY(print_field(m, &a, value, sizeof value));
        if (!*value) continue; /* an empty list */
        used += (size_t)snprintf(text + used, GD_CAFFE_RULE_TEXT - used, "%s%s=%s", used ? " " : "",
                                 a.ours, value);
    }
    while (when && gd_operator_next_condition(&when, &c))
        if (c.kind == GD_OPERATOR_OPTION && used < GD_CAFFE_RULE_TEXT)
            used += (size_t)snprintf(text + used, GD_CAFFE_RULE_TEXT - used, "%s%s=%s",
                                     used ? " " : "", c.name, c.value);
    return used < GD_CAFFE_RULE_TEXT ? GD_OK : gd_pb_fail(m, "too many values");
}

/* "nesterov=false" among the options becomes "nesterov=true". */
static void add_options(char *text, const char *options) {
    const size_t name = strcspn(options, "=") + 1;
    char start[WORD];
    snprintf(start, sizeof start, "%.*s", (int)name, options);
    char *at = strstr(text, start);
    if (at) {
        const size_t length = strlen(start) + strcspn(at + strlen(start), " ");
        memmove(at, at + length, strlen(at + length) + 1);
    }
    snprintf(text + strlen(text), GD_CAFFE_RULE_TEXT - strlen(text), "%s", options);
}

/* Caffe refuses a momentum that its formula does not have. */
static gd_status check_momentum(const gd_pb *m, const gd_factory *f, const char *type) {
    const char *attributes = f->record.caffe.attributes;
    gd_operator_attribute a;
    while (attributes && gd_operator_next_attribute(&attributes, &a))
        if (strcmp(a.theirs, "momentum") == 0) return GD_OK;
    if (gd_pb_float_of(m, "momentum") == 0) return GD_OK;
    return gd_pb_fail(m, "the solver %s has no momentum, but momentum is %g", type,
                      gd_pb_float_of(m, "momentum"));
}

gd_status gd_caffe_print_optimizer(const gd_pb *m, const gd_factory **f, char *text) {
    const char *type = gd_pb_string_of(m, "type"), *name = type, *options = NULL;
    for (int i = 0; i < TYPES; i++)
        if (strcmp(types[i].type, type) == 0) {
            name = types[i].as;
            options = types[i].options;
        }
    if (!(*f = find_rule("optimizer", name))) return unknown_name(m, "optimizer", "type", type);
    GD_TRY(check_momentum(m, *f, type));
    GD_TRY(print_options(m, *f, text));
    /* without momentum Nesterov's formula is that of SGD */
    if (options && gd_pb_float_of(m, "momentum") != 0) add_options(text, options);
    return GD_OK;
}

gd_status gd_caffe_print_schedule(const gd_pb *m, const gd_factory **f, char *text) {
    const char *policy = gd_pb_string_of(m, "lr_policy");
    if (!(*f = find_rule("schedule", policy)))
        return unknown_name(m, "schedule", "lr_policy", policy);
    return print_options(m, *f, text);
}

/* --- with checks ------------------------------------------------------------------------------ */

static gd_status check_optimizer(const gd_caffe_rule *r) {
    const gd_optimizer_rules *rules = r->factory->rules;
    GD_TRY(gd_check_ranges(r->factory, r->options, "gd_optim_"));
    return rules->check ? rules->check(r->options) : GD_OK;
}

static gd_status check_schedule(const gd_caffe_rule *r) {
    const gd_schedule_rules *rules = r->factory->rules;
    GD_TRY(gd_check_ranges(r->factory, r->options, "gd_lr_"));
    return rules->check ? rules->check(r->options) : GD_OK;
}

/* Adds the place in the file, and what the solver has said, to the message of the record. */
static gd_status finish(const gd_pb *m, const char *what, const char *name, gd_caffe_rule *r,
                        gd_status status) {
    char text[GD_MESSAGE_MAX];
    if (status == GD_OK) return GD_OK;
    snprintf(text, sizeof text, "%s", gd_latest_failure());
    gd_caffe_rule_free(r);
    return gd_pb_fail(m, "%s '%s': %s", what, name, text);
}

gd_status gd_caffe_read_optimizer(const gd_pb *m, gd_caffe_rule *r) {
    char text[GD_CAFFE_RULE_TEXT];
    *r = (gd_caffe_rule){NULL, NULL};
    GD_TRY(gd_caffe_print_optimizer(m, &r->factory, text));
    gd_status status = gd_factory_parse_options(r->factory, text, &r->options);
    if (status == GD_OK) status = check_optimizer(r);
    return finish(m, "type", gd_pb_string_of(m, "type"), r, status);
}

gd_status gd_caffe_read_schedule(const gd_pb *m, gd_caffe_rule *r) {
    char text[GD_CAFFE_RULE_TEXT];
    *r = (gd_caffe_rule){NULL, NULL};
    GD_TRY(gd_caffe_print_schedule(m, &r->factory, text));
    gd_status status = gd_factory_parse_options(r->factory, text, &r->options);
    if (status == GD_OK) status = check_schedule(r);
    return finish(m, "lr_policy", gd_pb_string_of(m, "lr_policy"), r, status);
}

void gd_caffe_rule_free(gd_caffe_rule *r) {
    gd_free(r->options);
    *r = (gd_caffe_rule){NULL, NULL};
}
