/* dataset.c - datasets: from records, from functions, and their samples. */
#include "data/dataset.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "dispatch/op.h"

/* --- the object ------------------------------------------------------------------------------- */

static void destroy_dataset(gd_object *object) {
    gd_dataset *d = (gd_dataset *)object;
    if (d->rules->close) d->rules->close(d);
    for (int i = 0; i < d->n_inner; i++) gd_release(d->inner[i]);
    for (int64_t i = 0; i < d->n_classes; i++) gd_free(d->classes[i]);
    gd_free(d->classes);
    gd_index_set_free(&d->class_names);
    gd_free(d->inner);
    gd_free(d->options);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class dataset_class = {.name = "dataset", .destroy = destroy_dataset};
GD_KNOWN_CLASS(dataset_class)

bool gd_is_dataset(const void *object) {
    return ((const gd_object *)object)->class == &dataset_class;
}

gd_dataset *gd_dataset_bare(const char *type, const gd_dataset_rules *rules,
                            gd_dataset *const *inner, int n_inner) {
    gd_dataset *d = gd_calloc(1, sizeof *d);
    gd_dataset **held = n_inner ? gd_calloc((size_t)n_inner, sizeof *held) : NULL;
    if (!d || (n_inner && !held)) {
        gd_free(d);
        gd_free(held);
        gd_no_memory(NULL, "for a dataset");
        return NULL;
    }
    gd_object_init(&d->object, &dataset_class);
    gd_object_count(1);
    d->type = type;
    d->rules = rules;
    d->inner = held;
    for (; d->n_inner < n_inner; d->n_inner++) held[d->n_inner] = gd_retain(inner[d->n_inner]);
    return d;
}

gd_dataset *gd_dataset_finish(const char *site, gd_dataset *d, gd_status status) {
    if (status == GD_OK && !d) status = GD_E_MEMORY;
    if (status == GD_OK) status = gd_scope_reserve(1);
    if (status == GD_OK) {
        gd_scope_adopt(&d->object);
        return d;
    }
    if (d) gd_object_release(&d->object);
    gd_report(site, status);
    return NULL;
}

static uint64_t hash_text(const char *text) {
    uint64_t hash = 0;
    for (; *text; text++) hash = gd_hash_mix(hash, (unsigned char)*text);
    return hash;
}

/* The first class of this name, or -1. */
static int find_class(const gd_dataset *d, const char *name, uint64_t hash) {
    int found;
    for (size_t probe = 0; (found = gd_index_set_next(&d->class_names, hash, &probe)) >= 0;)
        if (strcmp(d->classes[found], name) == 0) break;
    return found;
}

gd_status gd_dataset_set_classes(gd_dataset *d, const char *const *names, int64_t count) {
    char digits[24];
    d->classes = gd_calloc((size_t)count, sizeof *d->classes);
    if (!d->classes) return gd_no_memory(NULL, "for names of classes");
    for (; d->n_classes < count; d->n_classes++) {
        snprintf(digits, sizeof digits, "%lld", (long long)d->n_classes);
        const char *name = names ? names[d->n_classes] : digits;
        char *copy = gd_malloc(strlen(name) + 1);
        if (!copy) return gd_no_memory(NULL, "for names of classes");
        d->classes[d->n_classes] = strcpy(copy, name);
        const uint64_t hash = hash_text(copy);
        if (find_class(d, copy, hash) < 0 &&
            !gd_index_set_add(&d->class_names, hash, (int)d->n_classes)) {
            gd_free(copy);
            return gd_no_memory(NULL, "for names of classes");
        }
    }
    return GD_OK;
}

/* --- from records ----------------------------------------------------------------------------- */

/* Takes ownership of `options`, also on failure. */
static gd_dataset *open_dataset(const char *site, const gd_factory *factory, void *options) {
    GD_CALLED_FROM(site);
    GD_ON_CPU; /* where samples are, whatever the default device */
    const gd_dataset_rules *rules = factory->rules;
    const gd_status ranges = gd_check_ranges(factory, options, "gd_dataset_");
    gd_status status = ranges;
    if (status == GD_OK && rules->check) status = rules->check(options);
    gd_dataset *d = status == GD_OK ? gd_dataset_bare(factory->record.name, rules, NULL, 0) : NULL;
    if (d) {
        d->options = options;
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        gd_scope *scope = gd_scope_open();
        status = rules->open(d);
        gd_scope_close(&scope);
        status = gd_attempt_end(&attempt, status);
    } else {
        gd_free(options);
        if (status == GD_OK) status = GD_E_MEMORY;
    }
    if (status != GD_OK && ranges == GD_OK)
        gd_error_prefix("gd_dataset_%s: ", factory->record.name);
    return gd_dataset_finish(site, d, status);
}

gd_dataset *gd_dataset_make(const char *site, const gd_factory *factory, const void *given) {
    void *options;
    const gd_status status = gd_factory_take_options(factory, given, &options);
    if (status == GD_OK) return open_dataset(site, factory, options);
    gd_error_prefix("gd_dataset_%s: ", factory->record.name);
    gd_report(site, status);
    return NULL;
}

gd_dataset *gd_dataset_new_at(const char *site, const char *name, const char *text) {
    const gd_factory *factory;
    void *options;
    const gd_status status = gd_factory_read("dataset", name, text, &factory, &options);
    if (status == GD_OK) return open_dataset(site, factory, options);
    gd_report(site, status);
    return NULL;
}

/* --- user-defined ----------------------------------------------------------------------------- */

typedef struct functions {
    void *self;
    gd_dataset_functions call;
    char name[80];
} functions;

gd_status gd_sample_take(gd_sample *sample, gd_tensors list, const void *frame) {
    if (list.count > 0 && list.at) {
        GD_TRY(gd_check_returned(list, frame));
        for (int64_t i = 0; i < list.count; i++) {
            if (!list.at[i])
                return gd_fail(GD_E_ARGUMENT, "tensor %lld of the result is NULL", (long long)i);
            if (list.at[i]->kind == GD_FAILED) return gd_failure();
        }
        return gd_sample_from_list(sample, list);
    }
    return gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "the result has no tensors");
}

static gd_status functions_get(const gd_dataset *d, int64_t index, gd_random *random,
                               gd_sample *sample) {
    const functions *f = d->self;
    return gd_sample_take(sample, f->call.get(index, random, f->self), __builtin_frame_address(0));
}

static void functions_close(gd_dataset *d) {
    functions *f = d->self;
    if (f && f->call.destroy) f->call.destroy(f->self);
    gd_free(f);
}

static const gd_dataset_rules functions_rules = {.get = functions_get, .close = functions_close};

gd_dataset *gd_dataset_from_at(const char *site, void *self, const gd_dataset_functions *call) {
    call = call ? call : GD_DATASET_FUNCTIONS_();
    GD_CALLED_FROM(site);
    if (!call->count || !call->get)
        return gd_dataset_finish(site, NULL,
                                 gd_fail(GD_E_ARGUMENT, "gd_dataset_from needs .count and .get"));
    functions *f = gd_calloc(1, sizeof *f);
    gd_dataset *d = f ? gd_dataset_bare("dataset", &functions_rules, NULL, 0) : NULL;
    if (!d) {
        gd_free(f);
        return gd_dataset_finish(site, NULL, gd_no_memory(NULL, "for a dataset"));
    }
    *f = (functions){.self = self, .call = *call};
    snprintf(f->name, sizeof f->name, "%.79s", call->name ? call->name : "dataset");
    d->self = f;
    d->type = f->name;
    d->count = call->count(self);
    if (d->count >= 0) return gd_dataset_finish(site, d, GD_OK);
    f->call.destroy = NULL; /* the program still owns it */
    return gd_dataset_finish(
        site, d, gd_fail(GD_E_ARGUMENT, "gd_dataset_from: count is %lld", (long long)d->count));
}

static const gd_dataset_type *user_type(const gd_dataset *d) { return &d->rules->defined; }

static gd_status defined_open(gd_dataset *d) {
    d->self = user_type(d)->open(d->options);
    if (!d->self)
        return gd_failed() ? gd_failure()
                           : gd_fail(GD_E_ARGUMENT, "the function open returned NULL");
    d->count = user_type(d)->count(d->self);
    if (d->count < 0) return gd_fail(GD_E_ARGUMENT, "count is %lld", (long long)d->count);
    return GD_OK;
}

static gd_status defined_get(const gd_dataset *d, int64_t index, gd_random *random,
                             gd_sample *sample) {
    return gd_sample_take(sample, user_type(d)->get(index, random, d->self),
                          __builtin_frame_address(0));
}

static void defined_close(gd_dataset *d) {
    if (d->self && user_type(d)->destroy) user_type(d)->destroy(d->self);
}

gd_status gd_dataset_define_at(const char *site, const char *record, gd_dataset_type type) {
    const gd_dataset_rules rules = {
        .open = defined_open, .get = defined_get, .close = defined_close, .defined = type};
    gd_status status = type.open && type.count && type.get
                           ? gd_factory_define("dataset", record, &rules, sizeof rules)
                           : gd_fail(GD_E_ARGUMENT, "a dataset needs open, count and get");
    if (status != GD_OK) gd_error_prefix("gd_dataset_define: ");
    return gd_report(site, status);
}

/* --- samples ---------------------------------------------------------------------------------- */

int64_t gd_dataset_count(const gd_dataset *d) {
    GD_LIVE(d);
    return d ? d->count : 0;
}

int64_t gd_dataset_class_count(const gd_dataset *d) {
    GD_LIVE(d);
    return d ? d->n_classes : 0;
}

/* Fails, and lists the first classes: "'cat', 'dog', ...". */
static gd_status fail_no_class(const gd_dataset *d, const char *name) {
    char list[160] = "";
    size_t length = 0;
    int64_t i = 0;
    for (; i < d->n_classes && length + strlen(d->classes[i]) + 5 < sizeof list; i++)
        length += (size_t)snprintf(list + length, sizeof list - length, "%s'%s'", i ? ", " : "",
                                   d->classes[i]);
    return gd_fail(GD_E_ARGUMENT,
                   "gd_dataset_class_index: %s has no class '%.80s'; its %lld are %s%s", d->type,
                   name, (long long)d->n_classes, list, i < d->n_classes ? ", ..." : "");
}

int64_t gd_dataset_class_index_at(const char *site, const gd_dataset *d, const char *name) {
    GD_LIVE_AT(site, d);
    const char *wrong = !d              ? "the dataset is NULL"
                        : !name         ? "the name is NULL"
                        : !d->n_classes ? "the dataset has no names of classes"
                                        : NULL;
    if (wrong) {
        gd_report(site, gd_fail(GD_E_ARGUMENT, "gd_dataset_class_index: %s", wrong));
        return -1;
    }
    const int found = find_class(d, name, hash_text(name));
    if (found >= 0) return found;
    gd_report(site, fail_no_class(d, name));
    return -1;
}

const char *gd_dataset_class_name(const gd_dataset *d, int64_t index) {
    GD_LIVE(d);
    return d && index >= 0 && index < d->n_classes ? d->classes[index] : NULL;
}

/* The table that a dataset is made from, or NULL. */
static const gd_dataset *find_table(const gd_dataset *d) {
    while (d && !d->rules->layout) d = d->n_inner ? d->inner[0] : NULL;
    return d;
}

int64_t gd_dataset_layout_at(const char *site, gd_dataset *d, char *text, size_t size) {
    GD_LIVE_AT(site, d);
    GD_CALLED_FROM(site);
    const gd_dataset *table = find_table(d);
    char *layout = NULL;
    if (text && size) *text = 0;
    if (!table) return -1;
    const gd_status status = table->rules->layout(table, &layout);
    if (status != GD_OK) {
        gd_error_prefix("gd_dataset_layout: ");
        gd_report(site, status);
        return -1;
    }
    const int64_t length = (int64_t)strlen(layout);
    if (text && size) snprintf(text, size, "%s", layout);
    gd_free(layout);
    return length;
}

const char *gd_dataset_sample_name(gd_dataset *d, int64_t index, char *text, size_t size) {
    GD_LIVE(d);
    if (!text || size == 0) return "";
    if (d && d->rules->name && index >= 0 && index < d->count) d->rules->name(d, index, text, size);
    else snprintf(text, size, "sample %lld", (long long)index);
    return text;
}

/* The factor makes keys of two epochs unrelated. */
static uint64_t epoch_key(uint64_t epoch) { return (epoch + 1) * 0x9E3779B97F4A7C15u; }

gd_random gd_sample_random(uint64_t seed, uint64_t epoch, int64_t index) {
    return gd_random_of(seed ^ epoch_key(epoch), (uint64_t)index);
}
uint64_t gd_sample_seed(const gd_random *random, uint64_t epoch) {
    return random->rng.seed ^ epoch_key(epoch);
}

void gd_sample_release(gd_sample *s) {
    for (int i = 0; i < s->count; i++) gd_release(s->at[i]);
    s->count = 0;
}

gd_status gd_sample_from_list(gd_sample *s, gd_tensors list) {
    if (list.count > GD_SAMPLE_MAX)
        return gd_fail(GD_E_ARGUMENT, "the result has %lld tensors; at most %d are allowed",
                       (long long)list.count, GD_SAMPLE_MAX);
    s->count = 0;
    while (s->count < list.count) {
        s->at[s->count] = list.at[s->count];
        s->count++;
    }
    return GD_OK;
}

gd_status gd_dataset_fetch(const gd_dataset *d, int64_t index, gd_random *random,
                           gd_sample *sample) {
    sample->count = 0;
    if (index < 0 || index >= d->count)
        return gd_fail(GD_E_INDEX, "sample %lld does not exist; %s has %lld samples",
                       (long long)index, d->type, (long long)d->count);
    GD_ON_CPU;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    const gd_status status = gd_attempt_end(&attempt, d->rules->get(d, index, random, sample));
    if (status == GD_OK || d->n_inner)
        return status; /* the message of the inner dataset names the sample */
    char name[300];
    gd_dataset_sample_name((gd_dataset *)d, index, name, sizeof name);
    gd_error_prefix("%s: %s: ", d->type, name);
    return status;
}

gd_tensors gd_dataset_get_at(const char *site, gd_dataset *d, int64_t index,
                             const gd_sample_options *options) {
    GD_LIVE_AT(site, d);
    options = options ? options : GD_SAMPLE_OPTIONS_();
    GD_CALLED_FROM(site);
    gd_sample sample = {.count = 0};
    gd_random random = gd_sample_random(options->seed, options->epoch, index);
    gd_scope *scope = gd_scope_open();
    gd_status status = d ? gd_dataset_fetch(d, index, &random, &sample)
                         : gd_fail(GD_E_ARGUMENT, "gd_dataset_get: the dataset is NULL");
    gd_tensors list = {sample.at, sample.count};
    if (status == GD_OK) {
        list = gd_keep_list(gd_list_copy(list));
        gd_scope_close(&scope);
        return list;
    }
    gd_scope_close(&scope);
    gd_report(site, status);
    return gd_list_of_errors(0);
}
