/* csv_table.c - reads a CSV file into an array of floats; see csv_table.h. */
#include "data/csv_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "core/number.h"

enum { MAX_CATEGORIES = 1 << 24 }; /* codes are kept as floats */

typedef struct table_reader {
    gd_csv_table *table;
    const char *path;
    const gd_csv_options *options;
    const gd_csv_table *like;
    int64_t row; /* of the table */
} table_reader;

static gd_status fail_at_field(const table_reader *r, const gd_csv_column *c, const gd_csv_field *f,
                               const char *what) {
    if (!r->table->header)
        return gd_fail(GD_E_FORMAT, "%s: line %lld, column %d (counted from 0): '%.40s' %s",
                       r->path, (long long)f->line, c->field, f->text, what);
    return gd_fail(GD_E_FORMAT, "%s: line %lld, column %d (%s): '%.40s' %s", r->path,
                   (long long)f->line, c->field + 1, c->name, f->text, what);
}

/* --- one pass over the file ------------------------------------------------------------------- */

typedef gd_status (*row_fn)(table_reader *r, const gd_csv_field *fields);

/* Calls `take` with each record after the header. */
static gd_status for_each_record(table_reader *r, gd_csv *csv, row_fn take) {
    gd_csv_table *t = r->table;
    const gd_csv_field *fields;
    int count;
    for (bool first = true;; first = false) {
        GD_TRY(gd_csv_next(csv, &fields, &count));
        if (count == 0) return GD_OK;
        if (!t->columns)
            GD_TRY(r->like ? gd_csv_copy_columns(t, r->path, r->options, r->like, fields, count)
                           : gd_csv_choose_columns(t, r->path, r->options, fields, count));
        if (count != t->n_fields)
            return gd_fail(GD_E_FORMAT, "%s: line %lld has %d fields; the first has %d", r->path,
                           (long long)fields[0].line, count, t->n_fields);
        if (!first || !t->header) GD_TRY(take(r, fields));
    }
}

static gd_status read_pass(table_reader *r, row_fn take) {
    gd_stream *stream;
    gd_csv *csv;
    r->row = 0;
    GD_TRY(gd_stream_open(&stream, r->path));
    gd_status status = gd_csv_open(&csv, stream, r->options->separator);
    if (status == GD_OK) {
        status = for_each_record(r, csv, take);
        gd_csv_close(csv);
    }
    gd_stream_close(stream);
    return status;
}

/* The first pass: a column with a text that is not a number has categories. */
static gd_status count_texts(table_reader *r, const gd_csv_field *fields) {
    double value;
    const char decimal = r->options->decimal;
    for (int i = 0; i < r->table->n_columns; i++) {
        gd_csv_column *c = &r->table->columns[i];
        const gd_csv_field *f = &fields[c->field];
        if (c->kind != GD_CSV_AUTO || gd_csv_is_missing(f)) continue;
        if (gd_csv_number(f, decimal, &value)) {
            c->numbers++;
            continue;
        }
        c->texts++;
        if (!gd_csv_has_other_mark(f, decimal)) {
            if (gd_csv_has_unit(f) && c->units++ == 0)
                gd_snprintf(c->unit_text, sizeof c->unit_text, "%s", f->text);
            continue;
        }
        if (c->marked++ > 0) continue;
        c->marked_line = f->line;
        gd_snprintf(c->marked_text, sizeof c->marked_text, "%s", f->text);
    }
    r->row++;
    return GD_OK;
}

/* Prices such as "1,5" are no categories. */
static gd_status fail_at_mark(const table_reader *r, const gd_csv_column *c) {
    const bool comma = r->options->decimal == ',';
    char place[32];
    snprintf(place, sizeof place, r->table->header ? "%d" : "%d (counted from 0)",
             c->field + r->table->header);
    return gd_fail(GD_E_FORMAT,
                   "%s: line %lld, column %s%s%s%s: '%s' looks like a number with a decimal %s, "
                   "as %lld of the %lld texts of this column do; %s, and types='%s:category' keeps "
                   "them as categories",
                   r->path, (long long)c->marked_line, place, r->table->header ? " (" : "",
                   r->table->header ? c->name : "", r->table->header ? ")" : "", c->marked_text,
                   comma ? "point" : "comma", (long long)c->marked, (long long)c->texts,
                   comma ? "decimal=point reads them as numbers"
                         : "decimal=comma reads them as numbers",
                   c->name);
}

/* They stay categories: what the number would be is not known ("5 m" and "5 km"). */
static void notice_units(const table_reader *r, const gd_csv_column *c) {
    gd_notice(GD_LOG_WARNING,
              "gd_dataset_csv: %s: column %s: %lld of its texts are numbers with units, such as "
              "'%s'; they are read as categories. Without the units they are numbers; "
              "types='%s:category' keeps them and this message away",
              r->path, c->name, (long long)c->units, c->unit_text, c->name);
}

/* They may stand among words, or "-" is a missing value. */
static void notice_marks(const table_reader *r, const gd_csv_column *c) {
    const bool comma = r->options->decimal == ',';
    gd_notice(
        GD_LOG_WARNING,
        "gd_dataset_csv: %s: column %s: %lld of its %lld texts look like numbers with a decimal "
        "%s, such as '%s'; all are read as categories. decimal=%s reads such numbers, if the "
        "other texts are left empty, as missing values; types='%s:category' keeps the "
        "categories and this message away",
        r->path, c->name, (long long)c->marked, (long long)c->texts, comma ? "point" : "comma",
        c->marked_text, comma ? "point" : "comma", c->name);
}

static gd_status choose_kinds(table_reader *r) {
    for (int i = 0; i < r->table->n_columns; i++) {
        gd_csv_column *c = &r->table->columns[i];
        if (c->kind != GD_CSV_AUTO) continue;
        if (2 * c->marked > c->texts || (c->marked > 0 && c->numbers > 0))
            return fail_at_mark(r, c);
        if (c->marked > 0) notice_marks(r, c);
        else if (2 * c->units > c->texts) notice_units(r, c);
        c->kind = c->texts ? GD_CSV_CATEGORY : GD_CSV_NUMBER;
    }
    return GD_OK;
}

/* --- the second pass: values ------------------------------------------------------------------ */

static gd_status category_code(const table_reader *r, gd_csv_column *c, const gd_csv_field *f,
                               float *value) {
    const char *text = gd_csv_is_missing(f) ? "" : f->text;
    uintptr_t code = (uintptr_t)gd_name_map_find(&c->codes, text);
    if (!code && r->like)
        return fail_at_field(r, c, f, "is a category that the training table does not have");
    if (!code) {
        if (c->n_categories == MAX_CATEGORIES)
            return fail_at_field(r, c, f, "is one category too many");
        GD_TRY(gd_csv_add_category(c, text, strlen(text), r->path));
        code = (uintptr_t)c->n_categories;
    }
    *value = (float)(code - 1);
    return GD_OK;
}

static gd_status field_value(const table_reader *r, gd_csv_column *c, const gd_csv_field *f,
                             float *value) {
    if (c->kind == GD_CSV_CATEGORY) return category_code(r, c, f, value);
    const char decimal = r->options->decimal;
    double number = NAN;
    if (!gd_csv_is_missing(f) && !gd_csv_number(f, decimal, &number))
        return fail_at_field(r, c, f,
                             !gd_csv_has_other_mark(f, decimal) ? "is not a number"
                             : decimal == ','
                                 ? "is not a number with a decimal comma; decimal=point "
                                   "reads points"
                                 : "is not a number with a decimal point; "
                                   "decimal=comma reads commas");
    *value = (float)number;
    return GD_OK;
}

static gd_status fail_missing(const table_reader *r, const gd_csv_column *c, const gd_csv_field *f,
                              bool target) {
    /* a layout says what to do with them, not the options of the file */
    if (r->options->missing == GD_CSV_DROP)
        return fail_at_field(r, c, f,
                             "is a missing value; the training table was read with missing=drop, "
                             "and each row of this one gives a sample: fill it in, or remove the "
                             "row");
    if (r->options->target_is_optional)
        return fail_at_field(r, c, f,
                             target ? "is a missing value of the target; the training table was "
                                      "read without missing=drop"
                                    : "is a missing value; the training table was read without "
                                      "missing=mean, zero or drop");
    if (target)
        return fail_at_field(r, c, f,
                             "is a missing value of the target; missing=drop leaves such rows out");
    return fail_at_field(r, c, f,
                         "is a missing value; missing=mean, zero or drop says what to do with it");
}

static gd_status fill_row(table_reader *r, const gd_csv_field *fields) {
    gd_csv_table *t = r->table;
    const gd_csv_missing missing = r->options->missing;
    if (r->row == t->rows) return gd_fail(GD_E_IO, "%s: has changed while it was read", r->path);
    float *row = t->values + r->row * t->n_columns;
    for (int i = 0; i < t->n_columns; i++) {
        const gd_csv_field *f = &fields[t->columns[i].field];
        if (!gd_csv_is_missing(f)) continue;
        const bool keeps = r->options->target_is_ignored; /* to predict a value for each row */
        if (missing == GD_CSV_DROP && !keeps) return GD_OK;
        const bool target = t->has_target && i == t->n_columns - 1;
        if (target || missing == GD_CSV_ERROR || missing == GD_CSV_DROP)
            return fail_missing(r, &t->columns[i], f, target);
    }
    for (int i = 0; i < t->n_columns; i++)
        GD_TRY(field_value(r, &t->columns[i], &fields[t->columns[i].field], &row[i]));
    r->row++;
    return GD_OK;
}

/* --- categories, means and missing values ----------------------------------------------------- */

typedef struct ranked {
    const char *name;
    double number;
    int old;
} ranked;

/* A missing value ("") comes last. */
static int by_number(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (!*x->name != !*y->name) return !*x->name ? 1 : -1;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return strcmp(x->name, y->name);
}
static int by_name(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (!*x->name != !*y->name) return !*x->name ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* Codes were assigned in the order of occurrence. Renumbers them in sorted order. */
static gd_status sort_categories(gd_csv_table *t, gd_csv_column *c, int column, const char *path) {
    const int n = c->n_categories;
    ranked *order = gd_calloc((size_t)n + 1, sizeof *order);
    float *codes = gd_calloc((size_t)n + 1, sizeof *codes);
    char **names = gd_calloc((size_t)n + 1, sizeof *names);
    bool numbers = true, enough = order && codes && names;
    for (int i = 0; enough && i < n; i++) {
        const gd_csv_field f = {.text = c->categories[i]};
        order[i] = (ranked){c->categories[i], 0, i};
        if (*f.text && !gd_csv_number(&f, t->decimal, &order[i].number)) numbers = false;
    }
    if (enough) qsort(order, (size_t)n, sizeof *order, numbers ? by_number : by_name);
    gd_name_map_free(&c->codes);
    c->codes = (gd_name_map){0};
    for (int i = 0; enough && i < n; i++) {
        codes[order[i].old] = (float)i;
        names[i] = c->categories[order[i].old];
        enough = gd_name_map_add(&c->codes, names[i], (void *)(uintptr_t)(i + 1));
    }
    for (int64_t row = 0; enough && row < t->rows; row++) {
        float *value = &t->values[row * t->n_columns + column];
        *value = codes[(int)*value];
    }
    if (enough) memcpy(c->categories, names, (size_t)n * sizeof *names);
    gd_free(order);
    gd_free(codes);
    gd_free(names);
    return enough ? GD_OK : gd_no_memory(path, "for its table");
}

/* Computes mean and standard deviation of the numbers that are not missing. */
static void measure_column(const gd_csv_table *t, gd_csv_column *c, int column) {
    int64_t count = 0;
    double sum = 0, squares = 0;
    for (int64_t row = 0; row < t->rows; row++) {
        const double v = t->values[row * t->n_columns + column];
        if (!isnan(v)) sum += v, count++;
    }
    c->mean = count ? sum / (double)count : 0;
    for (int64_t row = 0; row < t->rows; row++) {
        const double v = t->values[row * t->n_columns + column] - c->mean;
        if (!isnan(v)) squares += v * v;
    }
    const double deviation = count ? sqrt(squares / (double)count) : 0;
    c->scale = deviation > 0 && isfinite(deviation) ? deviation : 1;
}

static gd_status finish_table(table_reader *r) {
    gd_csv_table *t = r->table;
    t->rows = r->row;
    if (t->rows == 0) return gd_fail(GD_E_FORMAT, "%s: no row is left", r->path);
    for (int i = 0; i < t->n_columns; i++) {
        gd_csv_column *c = &t->columns[i];
        if (c->kind == GD_CSV_CATEGORY) {
            if (!r->like) GD_TRY(sort_categories(t, c, i, r->path));
            continue;
        }
        if (!r->like) measure_column(t, c, i);
        const float instead = r->options->missing == GD_CSV_MEAN ? (float)c->mean : 0;
        for (int64_t row = 0; row < t->rows; row++) {
            float *value = &t->values[row * t->n_columns + i];
            if (isnan(*value)) *value = instead;
        }
    }
    return GD_OK;
}

static gd_status read_table(table_reader *r) {
    gd_csv_table *t = r->table;
    size_t bytes;
    GD_TRY(read_pass(r, count_texts));
    if (!t->columns) return gd_fail(GD_E_FORMAT, "%s: is empty", r->path);
    if (r->row == 0) return gd_fail(GD_E_FORMAT, "%s: has a header, and no rows", r->path);
    GD_TRY(choose_kinds(r));
    t->rows = r->row;
    if (!gd_mul_size((size_t)t->rows, (size_t)t->n_columns * sizeof *t->values, &bytes) ||
        !(t->values = gd_malloc(bytes)))
        return gd_no_memory(r->path, "for its table");
    GD_TRY(read_pass(r, fill_row));
    return finish_table(r);
}

gd_status gd_csv_table_read(gd_csv_table *t, const char *path, const gd_csv_options *options,
                            const gd_csv_table *like) {
    *t = (gd_csv_table){.target_field = -1, .decimal = options->decimal};
    table_reader r = {.table = t, .path = path, .options = options, .like = like};
    const gd_status status = read_table(&r);
    if (status != GD_OK) gd_csv_table_free(t);
    return status;
}

void gd_csv_table_free(gd_csv_table *t) {
    for (int i = 0; i < t->n_columns; i++) {
        gd_csv_column *c = &t->columns[i];
        for (int k = 0; k < c->n_categories; k++) gd_free(c->categories[k]);
        gd_free(c->categories);
        gd_name_map_free(&c->codes);
        gd_free(c->name);
    }
    for (int i = 0; t->field_names && i < t->n_fields; i++) gd_free(t->field_names[i]);
    gd_free(t->field_names);
    gd_free(t->columns);
    gd_free(t->values);
    *t = (gd_csv_table){.rows = 0};
}
