/* data.c - opens data by kind and path: "mnist:DIR", "csv:FILE,target=price", "digits". */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static const gd_op_attr *find_option(const gd_op *record, const char *name) {
    for (int i = 0; i < gd_op_attr_count(record); i++)
        if (strcmp(gd_op_attr_at(record, i)->name, name) == 0) return gd_op_attr_at(record, i);
    return NULL;
}

/* The option that takes the path: the first required option of type string; or NULL. */
static const gd_op_attr *path_option(const gd_op *record) {
    for (int i = 0; i < gd_op_attr_count(record); i++) {
        const gd_op_attr *a = gd_op_attr_at(record, i);
        if (a->required && a->type == GD_ATTR_STRING) return a;
    }
    return NULL;
}

/* --- specifications --------------------------------------------------------------------------- */

/* "KIND:PATH,name=value" as it is read. */
typedef struct reader {
    const char *option, *spec, *at; /* option: "data", "validation" */
    char *value;                    /* with room for any value of the specification */
    FILE *text;                     /* the options of the record, "path='a.csv' target='y'" */
} reader;

static bool fail_spec(const reader *r, const char *what) {
    fprintf(stderr, "gradus: --%s %s: %s\n", r->option, r->spec, what);
    return false;
}

/* Reads a value up to the next comma, or in single quotes, in which '' is a quote. */
static bool read_item(reader *r) {
    char *to = r->value;
    if (*r->at != '\'') {
        while (*r->at && *r->at != ',') *to++ = *r->at++;
        *to = '\0';
        return true;
    }
    for (r->at++; *r->at; r->at++) {
        if (*r->at == '\'' && *++r->at != '\'') {
            *to = '\0';
            return !*r->at || *r->at == ',' ||
                   fail_spec(r, "there is text after a quoted value; a quote in it is written ''");
        }
        *to++ = *r->at;
    }
    return fail_spec(r, "a quote is not closed");
}

/* Appends name='value' to the options. */
static void put_option(reader *r, const char *name, const char *value) {
    fprintf(r->text, " %s='", name);
    for (; *value; value++) fprintf(r->text, *value == '\'' ? "''" : "%c", *value);
    fputc('\'', r->text);
}

static bool read_path(reader *r, const gd_op *record) {
    const gd_op_attr *path = path_option(record);
    if (*r->at != ':') return !path || fail_spec(r, "it needs a path, as in KIND:PATH");
    r->at++;
    if (*r->at && *r->at != ',' && !path) return fail_spec(r, "this kind takes no path");
    if (!read_item(r)) return false;
    if (*r->value) put_option(r, path->name, r->value);
    return true;
}

/* What the user may give, and this program gives otherwise. */
typedef struct given {
    bool part, like;
} given;

/* Columns and types of a table with a layout are those of the layout. */
static bool read_options(reader *r, bool layout, given *g) {
    while (*r->at == ',') {
        const char *name = ++r->at;
        const size_t n = strcspn(name, "=,");
        char key[64];
        if (name[n] != '=' || n >= sizeof key)
            return fail_spec(r,
                             "options are written ,name=value; a path or a value with a comma is "
                             "written in quotes: csv:'a,b.csv',target=y");
        snprintf(key, sizeof key, "%.*s", (int)n, name);
        r->at = name + n + 1;
        if (!read_item(r)) return false;
        g->part |= strcmp(key, "part") == 0;
        g->like |= strcmp(key, "like") == 0 || strcmp(key, "layout") == 0;
        if (layout && (strcmp(key, "columns") == 0 || strcmp(key, "types") == 0)) continue;
        put_option(r, key, r->value);
    }
    return true;
}

/* Opens part "train" or "test" if the record has an option for it and the user has not chosen one;
 * *has_parts tells. A table is converted by `layout`, if that is not NULL. */
static gd_dataset *read_dataset(reader *r, const char *kind, const gd_op *record, const char *part,
                                const char *layout, bool *has_parts) {
    given g = {.part = false};
    char *text = NULL;
    size_t size;
    gd_dataset *dataset = NULL;
    if (!find_option(record, "layout")) layout = NULL;
    if (!(r->text = open_memstream(&text, &size))) return NULL;
    const bool fine = read_path(r, record) && read_options(r, layout, &g);
    if (fine && layout && !g.like) put_option(r, "layout", layout);
    *has_parts = find_option(record, "part") && !g.part;
    if (*has_parts) put_option(r, "part", part);
    fclose(r->text);
    if (fine) dataset = gd_dataset_new(kind, text);
    free(text);
    return dataset;
}

/* NULL: *code is the exit code. */
static gd_dataset *open_dataset(const char *source, const char *spec, const char *part,
                                const char *layout, bool *has_parts, int *code) {
    char kind[64];
    bool parts = false;
    gd_dataset *dataset = NULL;
    const size_t length = strcspn(spec, ":,");
    reader r = {
        .option = source, .spec = spec, .at = spec + length, .value = malloc(strlen(spec) + 1)};
    snprintf(kind, sizeof kind, "%.*s", (int)length, spec);
    const gd_op *record = gd_record_get("dataset", kind);
    if (!record) gd_dataset_new(kind, ""); /* records a failure that lists the kinds */
    else if (r.value) dataset = read_dataset(&r, kind, record, part, layout, &parts);
    free(r.value);
    if (has_parts) *has_parts = parts;
    if (!dataset) *code = gd_failed() ? failed() : USAGE;
    return dataset;
}

/* --- transforms ------------------------------------------------------------------------------- */

/* The length of the first item of a list separated by commas. Values may contain commas, too: the
 * next item begins with a letter after a comma. "crop size=28,28 padding=2, flip" has two items. */
static size_t item_length(const char *text) {
    const char *end = text;
    for (;;) {
        end += strcspn(end, ",");
        if (!*end) break;
        const char *next = end + 1 + strspn(end + 1, " ");
        if ((*next >= 'a' && *next <= 'z')) break;
        end++;
    }
    return (size_t)(end - text);
}

gd_dataset *apply_transforms(gd_dataset *dataset, const char *text) {
    while (dataset && text && *(text += strspn(text, ", "))) {
        char item[1024], *options;
        const size_t length = item_length(text);
        if (length >= sizeof item) {
            gd_transform_new("a transform of more than 1000 characters", "");
            return NULL;
        }
        snprintf(item, sizeof item, "%.*s", (int)length, text);
        text += length;
        options = item + strcspn(item, " ");
        if (*options) *options++ = '\0';
        gd_transform *t = gd_transform_new(item, options);
        dataset = t ? gd_dataset_transform(dataset, t) : NULL;
    }
    return dataset;
}

/* --- training and test data ------------------------------------------------------------------- */

/* Reads the first sample, for shapes and the kind of target. */
static int read_sample(data *d, const char *spec) {
    if (gd_dataset_count(d->train) == 0)
        return fail("--data %s: there are no samples to train with", spec);
    d->sample = gd_dataset_get(d->train, 0);
    if (gd_failed()) return failed();
    const gd_tensor *target = d->sample.at[d->sample.count - 1];
    d->classes = d->sample.count > 1 && !gd_dtype_is_float(gd_tensor_dtype(target));
    d->text = d->classes && is_text(d->sample);
    d->n_classes = gd_dataset_class_count(d->train);
    return DONE;
}

/* The layout of a table, to be freed with free(); NULL: there is none. */
char *layout_of(gd_dataset *dataset) {
    const int64_t length = gd_dataset_layout(dataset, NULL, 0);
    char *text = length >= 0 ? malloc((size_t)length + 1) : NULL;
    if (text) gd_dataset_layout(dataset, text, (size_t)length + 1);
    if (gd_failed()) {
        note("gradus predict will not take rows of this table: %s", gd_error_message());
        gd_clear_error();
    }
    return text;
}

/* Splits off samples for validation; none if that would be less than one. */
static gd_dataset *hold_out(const data_options *o, gd_dataset **train) {
    gd_dataset *rest = NULL, *all = *train;
    gd_dataset_random_split(all, 1 - o->split, train, &rest, .seed = o->seed);
    if (!rest || gd_dataset_count(rest) > 0) return rest;
    if (gd_dataset_count(all) > 0)
        note("%lld samples are too few to hold out %g of them: there is no validation",
             (long long)gd_dataset_count(all), o->split);
    return NULL;
}

int open_data(const data_options *o, data *out) {
    bool parts = false;
    int code = FAILED;
    memset(out, 0, sizeof *out);
    gd_dataset *train = open_dataset("data", o->spec, "train", NULL, &parts, &code), *test = NULL;
    if (!train) return code;
    if (o->validation) {
        char *layout = layout_of(train);
        test = open_dataset("validation", o->validation, "test", layout, NULL, &code);
        free(layout);
        if (!test) return code;
        if (gd_dataset_count(test) == 0)
            return fail("--validation %s: there are no samples to validate on", o->validation);
    } else if (parts) {
        test = open_dataset("data", o->spec, "test", NULL, NULL, &code);
        if (!test) return code;
        if (gd_dataset_count(test) == 0) {
            note("the test part of the data has no samples: there is no validation");
            test = NULL;
        }
    } else if (o->split > 0) test = hold_out(o, &train);
    out->train = apply_transforms(apply_transforms(train, o->augment), o->transform);
    out->test = test ? apply_transforms(test, o->transform) : NULL;
    return gd_failed() || !out->train ? failed() : read_sample(out, o->spec);
}

gd_dataset *open_test_data(const char *spec, const char *layout, int *code) {
    return open_dataset("data", spec, "test", layout, NULL, code);
}
