/* data.c - opens data by kind and path: "mnist:DIR", "csv:FILE,target=price", "digits". */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

enum { MAX_OPTIONS = 6000 }; /* bytes */

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

/* Appends name='value' to the options. */
static void add_option(char *text, size_t size, const char *name, const char *value,
                       size_t length) {
    size_t n = strlen(text);
    n += (size_t)snprintf(text + n, size - n, "%s%s='", n ? " " : "", name);
    for (size_t i = 0; i < length && n + 4 < size; i++) {
        if (value[i] == '\'') text[n++] = '\'';
        text[n++] = value[i];
    }
    if (n + 2 < size) text[n++] = '\'';
    text[n < size ? n : size - 1] = '\0';
}

static gd_dataset *fail_data(const char *what, const char *spec) {
    fprintf(stderr, "gradus: --data %s: %s\n", spec, what);
    return NULL;
}

/* Opens part "train" or "test" if the record has an option for it and the user has not chosen one;
 * *has_parts tells. */
static gd_dataset *open_dataset(const char *spec, const char *part, bool *has_parts) {
    char kind[64], text[MAX_OPTIONS] = "";
    const size_t length = strcspn(spec, ":,");
    if (length >= sizeof kind) return fail_data("the name of the kind is too long", spec);
    snprintf(kind, sizeof kind, "%.*s", (int)length, spec);
    const gd_op *record = gd_record_get("dataset", kind);
    if (!record) { /* records a failure that lists the kinds */
        gd_dataset_new(kind, "");
        return NULL;
    }
    const char *at = spec + length;
    const gd_op_attr *path = path_option(record);
    if (*at == ':') {
        const size_t n = strcspn(++at, ",");
        if (n && !path) return fail_data("this kind takes no path", spec);
        if (n) add_option(text, sizeof text, path->name, at, n);
        at += n;
    } else if (path) return fail_data("it needs a path, as in KIND:PATH", spec);
    bool part_given = false;
    while (*at == ',') {
        const char *name = at + 1;
        const size_t n = strcspn(name, "=,"), v = name[n] == '=' ? strcspn(name + n + 1, ",") : 0;
        char key[64];
        if (name[n] != '=' || n >= sizeof key)
            return fail_data("options are written ,name=value", spec);
        snprintf(key, sizeof key, "%.*s", (int)n, name);
        part_given |= strcmp(key, "part") == 0;
        add_option(text, sizeof text, key, name + n + 1, v);
        at = name + n + 1 + v;
    }
    const bool parts = find_option(record, "part") && !part_given;
    if (parts) add_option(text, sizeof text, "part", part, strlen(part));
    if (has_parts) *has_parts = parts;
    return gd_dataset_new(kind, text);
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
        if (length >= sizeof item) return NULL;
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
static gd_status read_sample(data *d) {
    d->sample = gd_dataset_get(d->train, 0);
    if (gd_failed()) return gd_error_status();
    const gd_tensor *target = d->sample.at[d->sample.count - 1];
    d->classes = d->sample.count > 1 && !gd_dtype_is_float(gd_tensor_dtype(target));
    d->n_classes = gd_dataset_class_count(d->train);
    return GD_OK;
}

gd_status open_data(const char *spec, const char *validation, double split, const char *augment,
                    const char *transform, uint64_t seed, data *out) {
    bool parts = false;
    memset(out, 0, sizeof *out);
    gd_dataset *train = open_dataset(spec, "train", &parts), *test = NULL;
    if (!train) return gd_error_status();
    if (validation) test = open_dataset(validation, "test", NULL);
    else if (parts) test = open_dataset(spec, "test", NULL);
    else if (split > 0) {
        gd_dataset *rest = NULL;
        gd_dataset_random_split(train, 1 - split, &train, &rest, .seed = seed);
        test = rest;
    }
    if (gd_failed() || (validation && !test)) return gd_error_status();
    out->train = apply_transforms(apply_transforms(train, augment), transform);
    out->test = test ? apply_transforms(test, transform) : NULL;
    if (!out->train || gd_failed()) return gd_error_status();
    return read_sample(out);
}

gd_dataset *open_test_data(const char *spec, const char *transform) {
    gd_dataset *test = open_dataset(spec, "test", NULL);
    return test ? apply_transforms(test, transform) : NULL;
}
