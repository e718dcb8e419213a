/* dataset_csv.c - tables in CSV files. */
#include <string.h>

#include "core/alloc.h"
#include "data/csv_table.h"
#include "data/samples.h"
#include "gradus/datasets.h"

/*dataset csv(path:string)
 * A table in a CSV file, gzipped or not, read into memory. A column with a text that is no number
 * has categories. Samples: the inputs, f32 (features), and the target: f32 (1), or where it has
 * categories its class, i64. Empty fields, ?, NA, N/A, NaN, NULL and None are missing values.
 *   target string = none        the target column: its name or number; none: samples have no target
 *   columns string = none       inputs, as 'age income' or 'sepal length, sepal width'; none: all others
 *   types string = none         what columns hold: 'zip:category size:number'; none: found from the data
 *   header {auto, yes, no} = auto   whether the first line has names; auto: it has if no number is in it
 *   separator string = none     one character, or 'tab'; none: a comma
 *   decimal string = none       the mark in numbers such as 1,5: 'comma' (or ','), or 'point'; none: a point
 *   missing {error, mean, zero, drop} = error   for missing numbers: fail, the mean, 0, or no such row
 *   categories {one_hot, index} = one_hot   as inputs: a feature for each, or the number of the category
 *   standardize bool = false    brings numbers of the input to mean 0 and deviation 1
 *   like string = none          a CSV file whose types, categories, mean and deviation are used: for a test set
 *   layout string = none        the same as the text of gd_dataset_layout; the file may lack the target, and target '' ignores it and drops no rows
 *   python CSV(path, target)
 */
typedef struct csv {
    gd_csv_table table;
    char separator;
    gd_csv_missing missing;
    bool one_hot, standardize;
    int n_inputs;     /* columns */
    int64_t features; /* of a sample */
} csv;

static gd_status parse_separator(const char *text, char *separator) {
    *separator = ',';
    if (!text) return GD_OK;
    if (strcmp(text, "tab") == 0) *separator = '\t';
    else if (strlen(text) == 1 && !strchr("\"\r\n", *text)) *separator = *text;
    else
        return gd_fail(GD_E_ARGUMENT, "separator is '%.20s'; it must be one character, or tab",
                       text);
    return GD_OK;
}

static gd_status parse_decimal(const char *text, char *decimal) {
    *decimal = '.';
    if (!text || strcmp(text, "point") == 0 || strcmp(text, ".") == 0) return GD_OK;
    *decimal = ',';
    if (strcmp(text, "comma") == 0 || strcmp(text, ",") == 0) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "decimal is '%.20s'; it must be point or comma", text);
}

static gd_status csv_check(const void *options) {
    const gd_dataset_csv_options *o = options;
    char separator, decimal;
    GD_TRY(gd_check_path(o->path, "path"));
    GD_TRY(parse_separator(o->separator, &separator));
    GD_TRY(parse_decimal(o->decimal, &decimal));
    if (o->like && o->layout)
        return gd_fail(GD_E_ARGUMENT, "there are like and layout; give one of them");
    if (o->layout && (o->columns || o->types))
        return gd_fail(GD_E_ARGUMENT, "columns and types are those of the layout");
    if (separator == decimal && o->decimal)
        return gd_fail(GD_E_ARGUMENT,
                       "separator and decimal are the same character, '%c'; tables with decimal "
                       "commas mostly have separator=;",
                       separator);
    return GD_OK;
}

enum { MAX_FEATURES = 1 << 20 };

static gd_status count_features(csv *c, const char *path) {
    const gd_csv_table *t = &c->table;
    c->n_inputs = t->n_columns - t->has_target;
    for (int i = 0; i < c->n_inputs; i++) {
        const gd_csv_column *column = &t->columns[i];
        c->features += column->kind == GD_CSV_CATEGORY && c->one_hot ? column->n_categories : 1;
        if (c->features > MAX_FEATURES)
            return gd_fail(GD_E_SHAPE,
                           "%s: column %s has %d categories; as one-hot features they are too many",
                           path, column->name, column->n_categories);
    }
    return GD_OK;
}

static gd_status read_options(csv *c, const gd_dataset_csv_options *o, gd_csv_options *options) {
    *options = (gd_csv_options){.columns = o->columns,
                                .target = o->target,
                                .types = o->types,
                                .separator_is_given = o->separator};
    options->header = o->header == GD_YES ? 1 : o->header == GD_NO ? 0 : -1;
    options->missing = o->missing == GD_MEAN   ? GD_CSV_MEAN
                       : o->missing == GD_ZERO ? GD_CSV_ZERO
                       : o->missing == GD_DROP ? GD_CSV_DROP
                                               : GD_CSV_ERROR;
    GD_TRY(parse_decimal(o->decimal, &options->decimal));
    GD_TRY(parse_separator(o->separator, &options->separator));
    c->one_hot = o->categories == GD_ONE_HOT;
    c->standardize = o->standardize;
    return GD_OK;
}

/* Takes everything from a layout but what the options say about the file itself. */
static gd_status apply_layout(csv *c, const gd_dataset_csv_options *o, gd_csv_options *options,
                              gd_csv_layout *layout) {
    GD_TRY(gd_csv_layout_read(layout, o->layout));
    gd_csv_table *like = &layout->table;
    const gd_csv_column *target = &like->columns[like->n_columns - 1];
    if (o->target && *o->target && !(like->has_target && strcmp(o->target, target->name) == 0))
        return gd_fail(GD_E_ARGUMENT, "%s: the target is '%s', and that of the layout is %s%s%s",
                       o->path, o->target, like->has_target ? "'" : "none",
                       like->has_target ? target->name : "", like->has_target ? "'" : "");
    options->target_is_ignored = o->target && !*o->target;
    if (!o->separator) options->separator = layout->separator;
    if (!o->decimal) options->decimal = like->decimal;
    options->target_is_optional = true;
    options->missing = layout->missing;
    c->one_hot = layout->one_hot;
    c->standardize = layout->standardize;
    return GD_OK;
}

/* Reads the table of `like`, or the layout, first. */
static gd_status read_tables(csv *c, const gd_dataset_csv_options *o, gd_csv_options *options) {
    gd_csv_layout layout = {.one_hot = false};
    gd_csv_table *like = &layout.table;
    gd_status status = GD_OK;
    if (o->layout) status = apply_layout(c, o, options, &layout);
    else if (o->like) status = gd_csv_table_read(like, o->like, options, NULL);
    if (status == GD_OK)
        status = gd_csv_table_read(&c->table, o->path, options, like->columns ? like : NULL);
    gd_csv_table_free(like);
    return status;
}

static gd_status csv_open(gd_dataset *d) {
    const gd_dataset_csv_options *o = d->options;
    csv *c = d->self = gd_calloc(1, sizeof *c);
    gd_csv_options options;
    if (!c) return gd_no_memory(NULL, "for a dataset");
    GD_TRY(read_options(c, o, &options));
    GD_TRY(read_tables(c, o, &options));
    GD_TRY(count_features(c, o->path));
    c->separator = options.separator;
    c->missing = options.missing;
    d->count = c->table.rows;
    const gd_csv_column *target = &c->table.columns[c->table.n_columns - 1];
    if (!c->table.has_target || target->kind != GD_CSV_CATEGORY) return GD_OK;
    return gd_dataset_set_classes(d, (const char *const *)target->categories, target->n_categories);
}

static gd_status csv_layout(const gd_dataset *d, char **text) {
    const csv *c = d->self;
    const gd_csv_layout layout = {.table = c->table,
                                  .separator = c->separator,
                                  .missing = c->missing,
                                  .one_hot = c->one_hot,
                                  .standardize = c->standardize};
    return gd_csv_layout_write(&layout, text);
}

static void put_features(const csv *c, int64_t row, float *to) {
    const gd_csv_table *t = &c->table;
    const float *from = t->values + row * t->n_columns;
    for (int i = 0; i < c->n_inputs; i++) {
        const gd_csv_column *column = &t->columns[i];
        if (column->kind == GD_CSV_NUMBER) {
            *to++ = c->standardize ? (float)((from[i] - column->mean) / column->scale) : from[i];
        } else if (c->one_hot) {
            for (int k = 0; k < column->n_categories; k++) *to++ = (float)(k == (int)from[i]);
        } else {
            *to++ = from[i];
        }
    }
}

/* Adds rows `indices` of the table: as one sample, or as a batch with an axis in front. */
static gd_status add_rows(const csv *c, const int64_t *indices, int64_t count, bool batch,
                          gd_sample *sample) {
    const gd_csv_table *t = &c->table;
    const int64_t dims[2] = {count, c->features}, single[2] = {count, 1};
    void *x = NULL, *y = NULL;
    GD_TRY(gd_sample_add(sample, GD_F32, batch ? 2 : 1, batch ? dims : dims + 1, &x));
    for (int64_t i = 0; i < count; i++) put_features(c, indices[i], (float *)x + i * c->features);
    if (!t->has_target) return GD_OK;
    const bool class = t->columns[t->n_columns - 1].kind == GD_CSV_CATEGORY;
    GD_TRY(class ? gd_sample_add(sample, GD_I64, batch, &count, &y)
                 : gd_sample_add(sample, GD_F32, batch ? 2 : 1, batch ? single : single + 1, &y));
    for (int64_t i = 0; i < count; i++) {
        const float value = t->values[indices[i] * t->n_columns + t->n_columns - 1];
        if (class) ((int64_t *)y)[i] = (int64_t)value;
        else ((float *)y)[i] = value;
    }
    return GD_OK;
}

static gd_status csv_get(const gd_dataset *d, int64_t index, gd_random *random, gd_sample *sample) {
    (void)random;
    return add_rows(d->self, &index, 1, false, sample);
}
static gd_status csv_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                            gd_sample *batch) {
    return add_rows(d->self, indices, count, true, batch);
}

static void csv_close(gd_dataset *d) {
    csv *c = d->self;
    if (!c) return;
    gd_csv_table_free(&c->table);
    gd_free(c);
}

#include "data/dataset_csv.gen.h"
