/* csv_columns.c - selects the columns of a CSV file by its first record; see csv_table.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/number.h"
#include "data/csv_table.h"

bool gd_csv_is_missing(const gd_csv_field *f) {
    static const char *const words[] = {"", "?", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(f->text, words[i]) == 0) return true;
    return false;
}

bool gd_csv_number(const gd_csv_field *f, double *value) {
    char *end;
    *value = gd_double_parse(f->text, &end);
    return end != f->text && *end == 0;
}

/* Without an option, a first record without numbers is a header. */
static bool is_header(const gd_csv_options *o, const gd_csv_field *fields, int count) {
    double value;
    if (o->header >= 0) return o->header;
    for (int i = 0; i < count; i++)
        if (!gd_csv_is_missing(&fields[i]) && gd_csv_number(&fields[i], &value)) return false;
    return true;
}

/* --- lists of columns ------------------------------------------------------------------------- */

/* An item of a list: "a b:category", or with commas where names have spaces: "sepal length, sepal
 * width". */
typedef struct list_item {
    const char *at;
    size_t length;
    gd_csv_kind kind;
} list_item;

static bool cut_suffix(list_item *item, const char *suffix, gd_csv_kind kind) {
    const size_t n = strlen(suffix);
    if (item->length <= n || memcmp(item->at + item->length - n, suffix, n) != 0) return false;
    item->length -= n;
    item->kind = kind;
    return true;
}

/* Reads the next item of a list and advances *at. False: the list has no more. */
static bool next_item(const char *list, const char **at, list_item *item) {
    const char *separators = strchr(list, ',') ? "," : " ";
    for (;;) {
        *at += strspn(*at, ", ");
        if (!**at) return false;
        size_t n = strcspn(*at, separators);
        *item = (list_item){.at = *at, .length = n};
        *at += n;
        while (item->length > 0 && item->at[item->length - 1] == ' ') item->length--;
        if (item->length == 0) continue;
        if (!cut_suffix(item, ":category", GD_CSV_CATEGORY))
            cut_suffix(item, ":number", GD_CSV_NUMBER);
        return true;
    }
}

/* "a, b, c" for a message. */
static const char *list_names(const gd_csv_field *fields, int count, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < count && used + 1 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", fields[i].text);
    if (used >= size) memcpy(text + size - 4, "...", 4);
    return text;
}

/* Finds the field of a column by its name, or by its number from 0. */
static gd_status find_field(const gd_csv_table *t, const char *path, const gd_csv_field *fields,
                            int count, const list_item *item, int *field) {
    char text[300], *end;
    for (int i = 0; t->header && i < count; i++)
        if (fields[i].length == item->length &&
            memcmp(fields[i].text, item->at, item->length) == 0) {
            *field = i;
            return GD_OK;
        }
    const long number = strtol(item->at, &end, 10);
    if (end == item->at + item->length && end != item->at && number >= 0 && number < count) {
        *field = (int)number;
        return GD_OK;
    }
    if (t->header)
        return gd_fail(GD_E_ARGUMENT, "%s: has no column '%.*s'; it has %s", path,
                       (int)item->length, item->at, list_names(fields, count, text, sizeof text));
    return gd_fail(GD_E_ARGUMENT, "%s: has no header, and columns 0 to %d; '%.*s' is none of them",
                   path, count - 1, (int)item->length, item->at);
}

/* --- selecting -------------------------------------------------------------------------------- */

static gd_status add_column(gd_csv_table *t, const char *path, const gd_csv_field *fields,
                            int field, gd_csv_kind kind) {
    char number[16];
    snprintf(number, sizeof number, "%d", field);
    const char *name = t->header ? fields[field].text : number;
    gd_csv_column *c = &t->columns[t->n_columns];
    *c = (gd_csv_column){.field = field, .kind = kind, .scale = 1};
    c->name = gd_malloc(strlen(name) + 1);
    if (!c->name) return gd_no_memory(path, "for its columns");
    strcpy(c->name, name);
    t->n_columns++;
    return GD_OK;
}

/* kinds[i] becomes the kind that the options give to field i. */
static gd_status select_columns(gd_csv_table *t, const char *path, const gd_csv_options *o,
                                const gd_csv_field *fields, int count, gd_csv_kind *kinds) {
    list_item item;
    int field, target = -1;
    for (const char *at = o->types; at && next_item(o->types, &at, &item);) {
        GD_TRY(find_field(t, path, fields, count, &item, &field));
        if (item.kind == GD_CSV_AUTO)
            return gd_fail(GD_E_ARGUMENT,
                           "types: '%.*s' is followed by neither :number nor :category",
                           (int)item.length, item.at);
        kinds[field] = item.kind;
    }
    if (o->target) { /* all of it is one name, which may have spaces */
        item = (list_item){.at = o->target, .length = strlen(o->target)};
        if (!cut_suffix(&item, ":category", GD_CSV_CATEGORY))
            cut_suffix(&item, ":number", GD_CSV_NUMBER);
        GD_TRY(find_field(t, path, fields, count, &item, &target));
        if (item.kind) kinds[target] = item.kind;
    }
    for (const char *at = o->columns; at && next_item(o->columns, &at, &item);) {
        GD_TRY(find_field(t, path, fields, count, &item, &field));
        if (t->n_columns == count)
            return gd_fail(GD_E_ARGUMENT, "columns names more columns than %s has", path);
        GD_TRY(add_column(t, path, fields, field, item.kind ? item.kind : kinds[field]));
    }
    for (field = 0; !o->columns && field < count; field++)
        if (field != target) GD_TRY(add_column(t, path, fields, field, kinds[field]));
    if (t->n_columns == 0)
        return gd_fail(GD_E_ARGUMENT, "%s: there is no column left for the input", path);
    t->has_target = target >= 0;
    return target >= 0 ? add_column(t, path, fields, target, kinds[target]) : GD_OK;
}

gd_status gd_csv_choose_columns(gd_csv_table *t, const char *path, const gd_csv_options *o,
                                const gd_csv_field *fields, int count) {
    t->header = is_header(o, fields, count);
    t->n_fields = count;
    t->columns = gd_calloc((size_t)count + 1, sizeof *t->columns);
    gd_csv_kind *kinds = gd_calloc((size_t)count, sizeof *kinds);
    const gd_status status = t->columns && kinds ? select_columns(t, path, o, fields, count, kinds)
                                                 : gd_no_memory(path, "for its columns");
    gd_free(kinds);
    return status;
}

/* --- the columns of another table ------------------------------------------------------------- */

static gd_status copy_categories(gd_csv_column *c, const gd_csv_column *from, const char *path) {
    c->categories = gd_calloc((size_t)from->n_categories + 1, sizeof *c->categories);
    if (!c->categories) return gd_no_memory(path, "for its columns");
    c->room = from->n_categories;
    for (int i = 0; i < from->n_categories; i++) {
        char *name = gd_malloc(strlen(from->categories[i]) + 1);
        if (!name) return gd_no_memory(path, "for its columns");
        c->categories[c->n_categories++] = strcpy(name, from->categories[i]);
        if (!gd_name_map_add(&c->codes, name, (void *)(uintptr_t)c->n_categories))
            return gd_no_memory(path, "for its columns");
    }
    return GD_OK;
}

gd_status gd_csv_copy_columns(gd_csv_table *t, const char *path, const gd_csv_table *like,
                              const gd_csv_field *fields, int count) {
    t->header = like->header;
    t->n_fields = count;
    t->has_target = like->has_target;
    t->columns = gd_calloc((size_t)like->n_columns, sizeof *t->columns);
    if (!t->columns) return gd_no_memory(path, "for its columns");
    for (int i = 0; i < like->n_columns; i++) {
        const gd_csv_column *from = &like->columns[i];
        const list_item item = {.at = from->name, .length = strlen(from->name)};
        int field = from->field; /* names may occur twice */
        if (field >= count || strcmp(fields[field].text, from->name) != 0)
            GD_TRY(find_field(t, path, fields, count, &item, &field));
        GD_TRY(add_column(t, path, fields, field, from->kind));
        gd_csv_column *c = &t->columns[i];
        c->mean = from->mean;
        c->scale = from->scale;
        GD_TRY(copy_categories(c, from, path));
    }
    return GD_OK;
}
