/* data.c - data by a kind and a place: "mnist:DIR", "csv:FILE,target=price", "digits". */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

enum { MOST_OPTIONS = 6000 };

static const gd_op_attr *find_option(const gd_op *record, const char *name) {
    for (int i = 0; i < gd_op_attr_count(record); i++)
        if (strcmp(gd_op_attr_at(record, i)->name, name) == 0) return gd_op_attr_at(record, i);
    return NULL;
}

/* The option that the place is: the first that must be given and is text. */
static const gd_op_attr *place_of(const gd_op *record) {
    for (int i = 0; i < gd_op_attr_count(record); i++) {
        const gd_op_attr *a = gd_op_attr_at(record, i);
        if (a->required && a->type == GD_ATTR_STRING) return a;
    }
    return NULL;
}

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

static gd_dataset *refuse(const char *what, const char *spec) {
    fprintf(stderr, "gradus: --data %s: %s\n", spec, what);
    return NULL;
}

/* Part "train" or "test", where the record has an option for it. *has_parts: whether it has. */
static gd_dataset *open_one(const char *spec, const char *part, bool *has_parts) {
    char kind[64], text[MOST_OPTIONS] = "";
    const size_t length = strcspn(spec, ":,");
    if (length >= sizeof kind) return refuse("the name of the kind is too long", spec);
    snprintf(kind, sizeof kind, "%.*s", (int)length, spec);
    const gd_op *record = gd_record_get("dataset", kind);
    if (!record) { /* the library knows which there are */
        gd_dataset_new(kind, "");
        return NULL;
    }
    const char *at = spec + length;
    const gd_op_attr *place = place_of(record);
    if (*at == ':') {
        const size_t n = strcspn(++at, ",");
        if (n && !place) return refuse("this kind has no place", spec);
        if (n) add_option(text, sizeof text, place->name, at, n);
        at += n;
    } else if (place) return refuse("it needs a place, as in KIND:PLACE", spec);
    bool said_part = false;
    while (*at == ',') {
        const char *name = at + 1;
        const size_t n = strcspn(name, "=,"), v = name[n] == '=' ? strcspn(name + n + 1, ",") : 0;
        char key[64];
        if (name[n] != '=' || n >= sizeof key)
            return refuse("options are written ,name=value", spec);
        snprintf(key, sizeof key, "%.*s", (int)n, name);
        said_part |= strcmp(key, "part") == 0;
        add_option(text, sizeof text, key, name + n + 1, v);
        at = name + n + 1 + v;
    }
    const bool parts = find_option(record, "part") && !said_part;
    if (parts) add_option(text, sizeof text, "part", part, strlen(part));
    if (has_parts) *has_parts = parts;
    return gd_dataset_new(kind, text);
}

/* --- transforms ------------------------------------------------------------------------------- */

/* Items of a list with commas between, in which commas may also stand in values: an item begins where a
 * word without "=" follows a comma. "crop size=28,28 padding=2, flip" has two. */
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

/* --- all of it -------------------------------------------------------------------------------- */

static gd_status look_at(data *d) {
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
    gd_dataset *train = open_one(spec, "train", &parts), *test = NULL;
    if (!train) return gd_error_status();
    if (validation) test = open_one(validation, "test", NULL);
    else if (parts) test = open_one(spec, "test", NULL);
    else if (split > 0) {
        gd_dataset *rest = NULL;
        gd_dataset_random_split(train, 1 - split, &train, &rest, .seed = seed);
        test = rest;
    }
    if (gd_failed() || (validation && !test)) return gd_error_status();
    out->train = apply_transforms(apply_transforms(train, augment), transform);
    out->test = test ? apply_transforms(test, transform) : NULL;
    if (!out->train || gd_failed()) return gd_error_status();
    return look_at(out);
}

gd_dataset *open_test_data(const char *spec, const char *transform) {
    gd_dataset *test = open_one(spec, "test", NULL);
    return test ? apply_transforms(test, transform) : NULL;
}
