/* csv_layout.c - the layout of a table as JSON: columns, categories, mean and deviation, so that
 * another file is converted in the same way; see csv_table.h.
 *
 *     {"header": true, "separator": ";", "decimal": ",", "missing": 0, "one_hot": true,
 *      "standardize": true, "count": 3, "fields": ["size", "city", "price"], "target": 2,
 *      "columns": [{"name": "size", "field": 0, "mean": 80.5, "scale": 12},
 *                  {"name": "city", "field": 1, "categories": ["Bern", "Ulm"]},
 *                  {"name": "price", "field": 2, "mean": 0, "scale": 1}]}
 */
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "data/csv_table.h"
#include "format/json.h"

/* --- writing ---------------------------------------------------------------------------------- */

static void put_text(gd_json_writer *w, const char *key, const char *text) {
    if (key) gd_json_put_key(w, key);
    gd_json_put_string(w, text);
}
static void put_bool(gd_json_writer *w, const char *key, bool value) {
    gd_json_put_key(w, key);
    gd_json_put_bool(w, value);
}
static void put_int(gd_json_writer *w, const char *key, int64_t value) {
    gd_json_put_key(w, key);
    gd_json_put_int(w, value);
}
static void put_character(gd_json_writer *w, const char *key, char c) {
    put_text(w, key, (char[2]){c, 0});
}

static void put_column(gd_json_writer *w, const gd_csv_column *c) {
    gd_json_put_begin_object(w);
    put_text(w, "name", c->name);
    put_int(w, "field", c->field);
    if (c->kind == GD_CSV_CATEGORY) {
        gd_json_put_key(w, "categories");
        gd_json_put_begin_array(w);
        for (int i = 0; i < c->n_categories; i++) put_text(w, NULL, c->categories[i]);
        gd_json_put_end_array(w);
    } else {
        gd_json_put_key(w, "mean");
        gd_json_put_double(w, c->mean);
        gd_json_put_key(w, "scale");
        gd_json_put_double(w, c->scale);
    }
    gd_json_put_end_object(w);
}

gd_status gd_csv_layout_write(const gd_csv_layout *layout, char **text) {
    const gd_csv_table *t = &layout->table;
    gd_json_writer w;
    size_t bytes;
    gd_json_writer_begin(&w, 0);
    gd_json_put_begin_object(&w);
    put_bool(&w, "header", t->header);
    put_character(&w, "separator", layout->separator);
    put_character(&w, "decimal", t->decimal);
    put_int(&w, "missing", layout->missing);
    put_bool(&w, "one_hot", layout->one_hot);
    put_bool(&w, "standardize", layout->standardize);
    put_int(&w, "count", t->n_fields);
    gd_json_put_key(&w, "fields");
    gd_json_put_begin_array(&w);
    for (int i = 0; t->field_names && i < t->n_fields; i++) put_text(&w, NULL, t->field_names[i]);
    gd_json_put_end_array(&w);
    put_int(&w, "target", t->has_target ? t->target_field : -1);
    gd_json_put_key(&w, "columns");
    gd_json_put_begin_array(&w);
    for (int i = 0; i < t->n_columns; i++) put_column(&w, &t->columns[i]);
    gd_json_put_end_array(&w);
    gd_json_put_end_object(&w);
    return gd_json_writer_end(&w, text, &bytes);
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool get_bool(const gd_json *object, const char *key) {
    const gd_json *v = gd_json_get(object, key);
    return v && v->type == GD_JSON_BOOL && v->boolean;
}
static int64_t get_int(const gd_json *object, const char *key) {
    const gd_json *v = gd_json_get(object, key);
    return v && v->type == GD_JSON_NUMBER && v->is_integer ? v->integer : INT64_MIN;
}
static double get_number(const gd_json *object, const char *key, double otherwise) {
    const gd_json *v = gd_json_get(object, key);
    return v && v->type == GD_JSON_NUMBER ? v->number : otherwise;
}
/* A text without zero bytes; NULL: there is none. */
static const char *get_text(const gd_json *v) {
    return v && v->type == GD_JSON_STRING && strlen(v->text) == v->length ? v->text : NULL;
}
static const gd_json *get_list(const gd_json *object, const char *key) {
    const gd_json *v = gd_json_get(object, key);
    return v && v->type == GD_JSON_ARRAY && v->count < (size_t)GD_CSV_MAX_FIELDS ? v : NULL;
}

static gd_status fail_layout(const char *what) {
    return gd_fail(GD_E_FORMAT, "the layout %s; it must be a text of gd_dataset_layout", what);
}

static char *copy_text(const char *text) {
    char *copy = gd_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

static gd_status read_column(gd_csv_table *t, const gd_json *from) {
    const char *name = get_text(gd_json_get(from, "name"));
    const gd_json *categories = get_list(from, "categories");
    const int64_t field = get_int(from, "field");
    if (!name || field < 0 || field >= t->n_fields) return fail_layout("has a wrong column");
    gd_csv_column *c = &t->columns[t->n_columns];
    *c = (gd_csv_column){.field = (int)field,
                         .kind = categories ? GD_CSV_CATEGORY : GD_CSV_NUMBER,
                         .mean = get_number(from, "mean", 0),
                         .scale = get_number(from, "scale", 1)};
    if (!(c->name = copy_text(name))) return gd_no_memory(NULL, "for a layout");
    t->n_columns++;
    for (size_t i = 0; categories && i < categories->count; i++) {
        const char *text = get_text(gd_json_at(categories, i));
        if (!text) return fail_layout("has a wrong category");
        GD_TRY(gd_csv_add_category(c, text, strlen(text), NULL));
    }
    return GD_OK;
}

static gd_status read_fields(gd_csv_table *t, const gd_json *names) {
    if (!t->header) return GD_OK;
    if (!names || names->count != (size_t)t->n_fields) return fail_layout("has no names of fields");
    t->field_names = gd_calloc(names->count, sizeof *t->field_names);
    if (!t->field_names) return gd_no_memory(NULL, "for a layout");
    for (size_t i = 0; i < names->count; i++) {
        const char *text = get_text(gd_json_at(names, i));
        if (!text) return fail_layout("has a wrong name");
        if (!(t->field_names[i] = copy_text(text))) return gd_no_memory(NULL, "for a layout");
    }
    return GD_OK;
}

static gd_status read_layout(gd_csv_layout *layout, const gd_json *root) {
    gd_csv_table *t = &layout->table;
    const gd_json *columns = get_list(root, "columns");
    const char *separator = get_text(gd_json_get(root, "separator")),
               *decimal = get_text(gd_json_get(root, "decimal"));
    const int64_t count = get_int(root, "count"), target = get_int(root, "target"),
                  missing = get_int(root, "missing");
    if (!columns || columns->count == 0 || !separator || strlen(separator) != 1 || !decimal ||
        count < 1 || count > GD_CSV_MAX_FIELDS || target < -1 || target >= count ||
        missing < GD_CSV_ERROR || missing > GD_CSV_DROP)
        return fail_layout("is not complete");
    layout->separator = *separator;
    layout->missing = (gd_csv_missing)missing;
    layout->one_hot = get_bool(root, "one_hot");
    layout->standardize = get_bool(root, "standardize");
    t->decimal = *decimal == ',' ? ',' : '.';
    t->header = get_bool(root, "header");
    t->n_fields = (int)count;
    t->target_field = (int)target;
    t->has_target = target >= 0;
    GD_TRY(read_fields(t, get_list(root, "fields")));
    t->columns = gd_calloc(columns->count + 1, sizeof *t->columns);
    if (!t->columns) return gd_no_memory(NULL, "for a layout");
    for (size_t i = 0; i < columns->count; i++) GD_TRY(read_column(t, gd_json_at(columns, i)));
    return t->n_columns > t->has_target ? GD_OK : fail_layout("has no input");
}

gd_status gd_csv_layout_read(gd_csv_layout *layout, const char *text) {
    gd_json_doc *doc;
    *layout = (gd_csv_layout){.table = {.target_field = -1}};
    GD_TRY(gd_json_parse(&doc, "the layout", text, strlen(text)));
    const gd_status status = read_layout(layout, gd_json_root(doc));
    gd_json_free(doc);
    if (status != GD_OK) gd_csv_table_free(&layout->table);
    return status;
}
