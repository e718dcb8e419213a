/* factory.c - records of objects that are created by name: finds and defines them, reads their
 * options. */
#include "dispatch/factory.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "dispatch/call.h"
#include "dispatch/intern.h"

/* --- finding ---------------------------------------------------------------------------------- */

/* A record that the program has defined. */
typedef struct defined_factory {
    gd_factory factory;
    gd_record record;
    struct defined_factory *next;
    _Alignas(16) char defaults[1024]; /* the options struct with all defaults */
} defined_factory;

static pthread_mutex_t defined_lock = PTHREAD_MUTEX_INITIALIZER;
static defined_factory *first_defined, **defined_end = &first_defined;

const gd_factory *gd_factory_at(const char *kind, int index) {
    for (int i = 0; i < gd_factory_total; i++)
        if (strcmp(gd_factories[i]->kind, kind) == 0 && index-- == 0) return gd_factories[i];
    pthread_mutex_lock(&defined_lock);
    const defined_factory *d = first_defined;
    while (d && (strcmp(d->factory.kind, kind) != 0 || index-- != 0)) d = d->next;
    pthread_mutex_unlock(&defined_lock);
    return d ? &d->factory : NULL;
}

const gd_factory *gd_factory_find(const char *kind, const char *name) {
    const gd_factory *m;
    for (int i = 0; name && (m = gd_factory_at(kind, i)); i++)
        if (strcmp(m->record.name, name) == 0) return m;
    return NULL;
}

const gd_op *gd_record_at(const char *kind, int index) {
    const gd_factory *m = kind && index >= 0 ? gd_factory_at(kind, index) : NULL;
    return m ? &m->record : NULL;
}

const gd_op *gd_record_get(const char *kind, const char *name) {
    const gd_factory *m = kind ? gd_factory_find(kind, name) : NULL;
    return m ? &m->record : NULL;
}

gd_status gd_factory_lookup(const char *kind, const char *name, const gd_factory **factory) {
    if ((*factory = gd_factory_find(kind, name))) return GD_OK;
    char known[300] = "";
    const gd_factory *m;
    for (int i = 0; (m = gd_factory_at(kind, i)); i++) {
        if (strlen(known) + strlen(m->record.name) + 8 > sizeof known) {
            strcat(known, " ...");
            break;
        }
        if (i) strcat(known, ", ");
        strcat(known, m->record.name);
    }
    return gd_fail(GD_E_ARGUMENT, "there is no %s '%.60s'; there are %s", kind,
                   name ? name : "NULL", known);
}

/* --- defining --------------------------------------------------------------------------------- */

/* Fills d->factory from the parsed d->record. */
static gd_status fill_factory(defined_factory *d, const char *kind, const void *rules) {
    gd_record *r = &d->record;
    const gd_op *op = r->options_of ? gd_op_find(r->options_of) : NULL;
    if (r->options_of && !op) return gd_fail(GD_E_ARGUMENT, "there is no op '%s'", r->options_of);
    if (r->of && !gd_op_find(r->of)) return gd_fail(GD_E_ARGUMENT, "there is no op '%s'", r->of);
    if (op && !gd_record_add_options(r, op->attrs, op->n_attrs))
        return gd_fail(GD_E_ARGUMENT, "%s", r->error);
    if (gd_factory_find(kind, r->name))
        return gd_fail(GD_E_STATE, "there is a %s '%s' already", kind, r->name);
    d->factory = (gd_factory){
        .kind = kind, .of = r->of, .finds = r->finds, .n_finds = r->n_finds, .rules = rules};
    gd_op *record = &d->factory.record;
    *record = (gd_op){.name = r->name,
                      .doc = r->doc,
                      .onnx = r->onnx,
                      .caffe = r->caffe,
                      .inputs = r->inputs,
                      .n_inputs = r->n_inputs,
                      .outputs = r->outputs,
                      .n_outputs = r->n_outputs,
                      .attrs = r->attrs,
                      .n_attrs = r->n_attrs,
                      .defaults = d->defaults};
    while (record->n_required < r->n_inputs && !r->inputs[record->n_required].optional &&
           !r->inputs[record->n_required].variadic)
        record->n_required++;
    record->attrs_size = gd_attrs_lay_out(r->attrs, r->n_attrs);
    if (record->attrs_size > sizeof d->defaults)
        return gd_fail(GD_E_ARGUMENT, "%s has too many options", r->name);
    return gd_attrs_fill_defaults(record, d->defaults);
}

gd_status gd_factory_define(const char *kind, const char *record, const void *rules, size_t size) {
    if (!record) return gd_fail(GD_E_ARGUMENT, "the record is NULL");
    defined_factory *d = gd_calloc_until_exit(sizeof *d);
    char *text = gd_calloc_until_exit(strlen(record) + 1);
    void *own = gd_calloc_until_exit(size);
    gd_status status = d && text && own ? GD_OK : gd_fail(GD_E_MEMORY, "no memory for a record");
    if (status == GD_OK) {
        strcpy(text, record);
        memcpy(own, rules, size);
        if (!gd_record_parse_factory(&d->record, text))
            status = gd_fail(GD_E_ARGUMENT, "line %d: %s", d->record.error_line, d->record.error);
    }
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    if (status == GD_OK) status = fill_factory(d, kind, own);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status != GD_OK) {
        gd_free_early(d);
        gd_free_early(text);
        gd_free_early(own);
        return status;
    }
    pthread_mutex_lock(&defined_lock);
    *defined_end = d;
    defined_end = &d->next;
    pthread_mutex_unlock(&defined_lock);
    return GD_OK;
}

/* --- options ---------------------------------------------------------------------------------- */

/* Replaces strings of the caller by copies that live until the program ends. */
static gd_status keep_strings(const gd_op *record, void *options) {
    for (int i = 0; i < record->n_attrs; i++) {
        const char **field = (const char **)((char *)options + record->attrs[i].offset);
        if (record->attrs[i].type != GD_ATTR_STRING || !*field) continue;
        if (!(*field = gd_intern(*field))) return gd_fail(GD_E_MEMORY, "no memory for an option");
    }
    return GD_OK;
}

gd_status gd_factory_take_options(const gd_factory *factory, const void *given, void **options) {
    const gd_op *record = &factory->record;
    *options = NULL;
    if (record->attrs_size == 0) return GD_OK;
    void *own = gd_calloc(1, record->attrs_size);
    if (!own) return gd_fail(GD_E_MEMORY, "no memory for a %s", factory->kind);
    memcpy(own, given ? given : record->defaults, record->attrs_size);
    gd_attrs_normalize(record, own);
    gd_status status = gd_attrs_check(record, own);
    if (status == GD_OK) status = keep_strings(record, own);
    if (status == GD_OK) *options = own;
    else gd_free(own);
    return status;
}

gd_status gd_factory_parse_options(const gd_factory *factory, const char *text, void **options) {
    const gd_op *record = &factory->record;
    gd_scope *scope = gd_scope_open();
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_attrs *attrs = gd_attrs_new(record);
    for (int i = 0; i < factory->n_finds; i++) gd_attrs_allow_any(attrs, factory->finds[i].option);
    gd_status status = attrs ? gd_attrs_parse(attrs, text) : gd_failure();
    if (status == GD_OK) status = gd_attrs_check_given(record, attrs);
    status = gd_attempt_end(&attempt, status);
    *options = NULL;
    if (status == GD_OK) status = gd_factory_take_options(factory, gd_attrs_data(attrs), options);
    gd_scope_close(&scope);
    return status;
}

gd_status gd_factory_read(const char *kind, const char *name, const char *text,
                          const gd_factory **factory, void **options) {
    *options = NULL;
    GD_TRY(gd_factory_lookup(kind, name, factory));
    return gd_factory_parse_options(*factory, text, options);
}

void *gd_factory_option(const gd_factory *factory, void *options, const char *name,
                        const gd_op_attr **attr) {
    for (int i = 0; i < factory->record.n_attrs; i++) {
        const gd_op_attr *a = &factory->record.attrs[i];
        if (strcmp(a->name, name) != 0) continue;
        if (attr) *attr = a;
        return (char *)options + a->offset;
    }
    return NULL;
}
