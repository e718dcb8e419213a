/* transform.c - transforms, and datasets that apply them. */
#include "data/transform.h"

#include "core/alloc.h"
#include "core/freed.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "data/dataset.h"
#include "dispatch/op.h"

/* --- the object ------------------------------------------------------------------------------- */

static void destroy_transform(gd_object *object) {
    gd_transform *t = (gd_transform *)object;
    gd_free(t->options);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class transform_class = {.name = "transform", .destroy = destroy_transform};
GD_KNOWN_CLASS(transform_class)

/* Takes ownership of `options`, also on failure. */
static gd_status make_transform(const gd_factory *factory, void *options, gd_transform **made) {
    const gd_transform_rules *rules = factory->rules;
    gd_status status = gd_check_ranges(factory, options, "gd_transform_");
    if (status == GD_OK && rules->check) {
        status = rules->check(options);
        if (status != GD_OK) gd_error_prefix("gd_transform_%s: ", factory->record.name);
    }
    if (status == GD_OK) status = gd_scope_reserve(1);
    gd_transform *t = status == GD_OK ? gd_calloc(1, sizeof *t) : NULL;
    if (!t) {
        gd_free(options);
        return status != GD_OK ? status : gd_no_memory(NULL, "for a transform");
    }
    gd_object_init(&t->object, &transform_class);
    gd_object_count(1);
    t->factory = factory;
    t->options = options;
    const int64_t *field = gd_factory_option(factory, options, "field", NULL);
    t->field = field ? *field : 0;
    gd_scope_adopt(&t->object);
    *made = t;
    return GD_OK;
}

gd_transform *gd_transform_make(const char *site, const gd_factory *factory, const void *given) {
    void *options;
    gd_transform *t = NULL;
    gd_status status = gd_factory_take_options(factory, given, &options);
    if (status == GD_OK) status = make_transform(factory, options, &t);
    else gd_error_prefix("gd_transform_%s: ", factory->record.name);
    gd_report(site, status);
    return t;
}

gd_transform *gd_transform_new_at(const char *site, const char *name, const char *text) {
    const gd_factory *factory;
    void *options;
    gd_transform *t = NULL;
    gd_status status = gd_factory_read("transform", name, text, &factory, &options);
    if (status == GD_OK) status = make_transform(factory, options, &t);
    gd_report(site, status);
    return t;
}

gd_status gd_transform_define_at(const char *site, const char *record, gd_transform_fn apply) {
    const gd_transform_rules rules = {.apply = apply};
    gd_status status = apply ? gd_factory_define("transform", record, &rules, sizeof rules)
                             : gd_fail(GD_E_ARGUMENT, "the function is NULL");
    if (status != GD_OK) gd_error_prefix("gd_transform_define: ");
    return gd_report(site, status);
}

/* --- application ------------------------------------------------------------------------------ */

gd_status gd_transform_run(const gd_transform *t, gd_tensor *x, gd_random *random, gd_tensor **y) {
    const gd_transform_rules *rules = t->factory->rules;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    *y = rules->apply(t->options, x, random);
    gd_status status = GD_OK;
    if (!*y || (*y)->kind == GD_FAILED)
        status = gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "it returned no tensor");
    status = gd_attempt_end(&attempt, status);
    if (status != GD_OK) gd_error_prefix("transform %s: ", t->factory->record.name);
    return status;
}

gd_tensor *gd_transform_apply_at(const char *site, gd_transform *t, gd_tensor *x,
                                 gd_random *random) {
    GD_LIVE_AT(site, t);
    GD_CALLED_FROM(site);
    gd_random zero = gd_random_of(0, 0);
    gd_tensor *y = NULL;
    gd_scope *scope = gd_scope_open();
    gd_status status =
        t && x ? GD_OK : gd_fail(GD_E_ARGUMENT, "gd_transform_apply: an argument is NULL");
    if (status == GD_OK && x->kind == GD_FAILED) status = gd_failure();
    if (status == GD_OK) status = gd_transform_run(t, x, random ? random : &zero, &y);
    if (status == GD_OK) gd_keep(y);
    gd_scope_close(&scope);
    return status == GD_OK ? y : gd_tensor_fail(status);
}

/* --- datasets with transforms ----------------------------------------------------------------- */

typedef struct transform_chain {
    int64_t count;
    gd_transform *at[]; /* retained */
} transform_chain;

static gd_status chain_get(const gd_dataset *d, int64_t index, gd_random *random,
                           gd_sample *sample) {
    const transform_chain *c = d->self;
    GD_TRY(gd_dataset_fetch(d->inner[0], index, random, sample));
    gd_status status = GD_OK;
    for (int64_t i = 0; i < c->count && status == GD_OK; i++) {
        const int64_t field = c->at[i]->field;
        if (field < 0 || field >= sample->count)
            status =
                gd_fail(GD_E_INDEX, "transform %s: field is %lld, but the sample has %d tensors",
                        c->at[i]->factory->record.name, (long long)field, sample->count);
        else status = gd_transform_run(c->at[i], sample->at[field], random, &sample->at[field]);
    }
    if (status == GD_OK) return GD_OK;
    char name[300];
    gd_dataset_sample_name((gd_dataset *)d, index, name, sizeof name);
    gd_error_prefix("%s: ", name);
    return status;
}

static void chain_name(const gd_dataset *d, int64_t index, char *text, size_t size) {
    gd_dataset_sample_name(d->inner[0], index, text, size);
}

static void chain_close(gd_dataset *d) {
    transform_chain *c = d->self;
    for (int64_t i = 0; c && i < c->count; i++) gd_release(c->at[i]);
    gd_free(c);
}

static const gd_dataset_rules chain_rules = {
    .get = chain_get, .name = chain_name, .close = chain_close};

gd_dataset *gd_dataset_transform_at(const char *site, gd_dataset *dataset, gd_transform_list list) {
    GD_LIVE_AT(site, dataset);
    GD_CALLED_FROM(site);
    if (!dataset)
        return gd_dataset_finish(
            site, NULL, gd_fail(GD_E_ARGUMENT, "gd_dataset_transform: the dataset is NULL"));
    for (int64_t i = 0; i < list.count; i++)
        if (gd_report_freed(site, list.at[i], "gd_dataset_transform"))
            return gd_dataset_finish(site, NULL, gd_failure());
        else if (!list.at[i])
            return gd_dataset_finish(site, NULL,
                                     gd_fail(GD_E_ARGUMENT,
                                             "gd_dataset_transform: transform %lld is NULL",
                                             (long long)i));
    transform_chain *c = gd_calloc(1, sizeof *c + (size_t)list.count * sizeof *c->at);
    gd_dataset *d = c ? gd_dataset_bare(dataset->type, &chain_rules, &dataset, 1) : NULL;
    if (!d) {
        gd_free(c);
        return gd_dataset_finish(site, NULL, gd_no_memory(NULL, "for a dataset"));
    }
    for (; c->count < list.count; c->count++) c->at[c->count] = gd_retain(list.at[c->count]);
    d->self = c;
    d->count = dataset->count;
    gd_status status = GD_OK;
    if (dataset->n_classes)
        status =
            gd_dataset_set_classes(d, (const char *const *)dataset->classes, dataset->n_classes);
    return gd_dataset_finish(site, d, status);
}
