/* csv_columns.c - selects the columns of a CSV file by its first record; see csv_table.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/grow.h"
#include "core/number.h"
#include "data/csv_table.h"

bool gd_csv_is_missing(const gd_csv_field *f) {
    static const char *const words[] = {"", "?", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(f->text, words[i]) == 0) return true;
    return false;
}

static const char digits[] = "0123456789";

#define MINUS "\xE2\x88\x92" /* the sign U+2212 */

/* The length of a mark between thousands; 0: there is none. Spaces (two of them do not break lines)
 * are marks only besides a decimal comma: elsewhere "100 200" may be two things. */
static size_t thousands_mark(const char *at, char decimal) {
    static const char *const marks[] = {"'", " ", "\xC2\xA0", "\xE2\x80\xAF"};
    if (*at == (decimal == ',' ? '.' : ',')) return 1;
    for (size_t i = 0; i < (decimal == ',' ? 4 : 1); i++)
        if (strncmp(at, marks[i], strlen(marks[i])) == 0) return strlen(marks[i]);
    return 0;
}

/* Copies the digits of a number, without the marks between its thousands, and moves *at behind them:
 * "1.234" of "1.234,5" becomes "1234". */
static bool copy_digits(const char **at, char decimal, char *number, size_t *length) {
    const size_t n = strspn(*at, digits);
    memcpy(number + *length, *at, n);
    *length += n;
    *at += n;
    const char *const mark = *at;
    const size_t bytes = n >= 1 && n <= 3 ? thousands_mark(mark, decimal) : 0;
    if (bytes == 0) return true;
    while (strncmp(*at, mark, bytes) == 0 && strspn(*at + bytes, digits) == 3) {
        memcpy(number + *length, *at + bytes, 3);
        *length += 3;
        *at += bytes + 3;
    }
    /* "1.234" may be a number with a decimal point */
    return *at == mark || (*mark != '.' && *mark != ',') || **at == decimal;
}

/* Copies a number as C writes it: with a decimal comma "-1.234,5" becomes "-1234.5". False: a mark
 * is elsewhere, or the text is too long. */
static bool plain_number(const char *text, char decimal, char number[64]) {
    const char *at = text;
    size_t length = 0;
    if (strlen(text) >= 64) return false;
    if (strncmp(at, MINUS, strlen(MINUS)) == 0) {
        number[length++] = '-';
        at += strlen(MINUS);
    } else if (*at == '-' || *at == '+') number[length++] = *at++;
    if (!copy_digits(&at, decimal, number, &length)) return false;
    for (; *at; at++) {
        if (*at == (decimal == ',' ? '.' : ',')) return false;
        number[length++] = *at == decimal ? '.' : *at;
    }
    number[length] = 0;
    return true;
}

static bool is_whole_number(const char *text, double *value) {
    char *end;
    *value = gd_double_parse(text, &end);
    return end != text && *end == 0;
}

bool gd_csv_number(const gd_csv_field *f, char decimal, double *value) {
    char number[64];
    const bool is_plain =
        !strpbrk(f->text, ",' \xC2\xE2") && !(decimal == ',' && strchr(f->text, '.'));
    if (is_plain) return is_whole_number(f->text, value);
    return plain_number(f->text, decimal, number) && is_whole_number(number, value);
}

bool gd_csv_has_other_mark(const gd_csv_field *f, char decimal) {
    const char other = decimal == ',' ? '.' : ',';
    const char *mark = strrchr(f->text, other);
    double value;
    return mark && mark[1] >= '0' && mark[1] <= '9' && gd_csv_number(f, other, &value);
}

/* The bytes of a space at the start of `at`, also of one that does not break lines. */
static size_t space_at(const char *at) {
    return *at == ' ' ? 1 : strncmp(at, "\xC2\xA0", 2) == 0 ? 2 : 0;
}

/* Whether `at`, behind a number, is a unit: "%", " kg". Letters without a space are none ("3rd"). */
static bool is_unit(const char *at) {
    enum { LONGEST = 8 };
    const size_t space = space_at(at);
    if (space == 0 && *at != '%' && !(*at & 0x80)) return false;
    const size_t length = strlen(at += space);
    return length > 0 && length <= LONGEST && !strchr(at, ' ');
}

/* "5,00 EUR", "5 %", "$5": a number, and a sign of money in front of it or a unit behind it. */
bool gd_csv_has_unit(const gd_csv_field *f) {
    char number[64];
    const char *from = f->text;
    if (strncmp(from, MINUS, strlen(MINUS)) != 0)
        while (*from == '$' || *from == ' ' || (*from & 0x80)) from++;
    const char *last = from + strlen(from);
    while (last > from && !strchr(digits, last[-1])) last--; /* after the last digit */
    const size_t length = (size_t)(last - from);
    double value;
    if (length == 0 || length >= sizeof number) return false;
    if (*last ? !is_unit(last) : from == f->text) return false;
    memcpy(number, from, length);
    number[length] = 0;
    const gd_csv_field bare = {.text = number};
    return gd_csv_number(&bare, '.', &value) || gd_csv_number(&bare, ',', &value);
}

/* Without an option, a first record without numbers is a header. */
static bool is_header(const gd_csv_options *o, const gd_csv_field *fields, int count) {
    double value;
    if (o->header >= 0) return o->header;
    for (int i = 0; i < count; i++)
        if (!gd_csv_is_missing(&fields[i]) && gd_csv_number(&fields[i], o->decimal, &value))
            return false;
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
    t->target_field = target;
    return target >= 0 ? add_column(t, path, fields, target, kinds[target]) : GD_OK;
}

/* Keeps the names of all fields, to tell unknown columns of another file. */
static gd_status keep_names(gd_csv_table *t, const char *path, const gd_csv_field *fields,
                            int count) {
    if (!t->header) return GD_OK;
    t->field_names = gd_calloc((size_t)count, sizeof *t->field_names);
    for (int i = 0; t->field_names && i < count; i++) {
        t->field_names[i] = gd_malloc(fields[i].length + 1);
        if (!t->field_names[i]) return gd_no_memory(path, "for its columns");
        strcpy(t->field_names[i], fields[i].text);
    }
    return t->field_names ? GD_OK : gd_no_memory(path, "for its columns");
}

/* A file without commas has one column. If its first line has another separator, that is meant. */
static gd_status check_separator(const char *path, const gd_csv_options *o,
                                 const gd_csv_field *first, int count) {
    if (count > 1 || o->separator_is_given || first->quoted) return GD_OK;
    const char *other = strpbrk(first->text, ";\t|");
    int columns = 1;
    if (!other) return GD_OK;
    for (const char *c = first->text; *c; c++) columns += *c == *other;
    return gd_fail(GD_E_FORMAT,
                   "%s: has one column, '%.60s'; with separator=%.*s it has %d (separator=, reads "
                   "it as one)",
                   path, first->text, *other == '\t' ? 3 : 1, *other == '\t' ? "tab" : other,
                   columns);
}

gd_status gd_csv_choose_columns(gd_csv_table *t, const char *path, const gd_csv_options *o,
                                const gd_csv_field *fields, int count) {
    GD_TRY(check_separator(path, o, fields, count));
    t->header = is_header(o, fields, count);
    t->n_fields = count;
    GD_TRY(keep_names(t, path, fields, count));
    t->columns = gd_calloc((size_t)count + 1, sizeof *t->columns);
    gd_csv_kind *kinds = gd_calloc((size_t)count, sizeof *kinds);
    const gd_status status = t->columns && kinds ? select_columns(t, path, o, fields, count, kinds)
                                                 : gd_no_memory(path, "for its columns");
    gd_free(kinds);
    return status;
}

/* --- the columns of another table ------------------------------------------------------------- */

gd_status gd_csv_add_category(gd_csv_column *c, const char *text, size_t length, const char *path) {
    char *name = gd_malloc(length + 1);
    if (!name || !gd_grow(c->categories, c->n_categories, c->room)) {
        gd_free(name);
        return gd_no_memory(path, "for its table");
    }
    c->categories[c->n_categories++] = strcpy(name, text);
    if (!gd_name_map_add(&c->codes, name, (void *)(uintptr_t)c->n_categories))
        return gd_no_memory(path, "for its table");
    return GD_OK;
}

static gd_status copy_column(gd_csv_table *t, const char *path, const gd_csv_field *fields,
                             const gd_csv_column *from, int field) {
    GD_TRY(add_column(t, path, fields, field, from->kind));
    gd_csv_column *c = &t->columns[t->n_columns - 1];
    c->mean = from->mean;
    c->scale = from->scale;
    for (int i = 0; i < from->n_categories; i++)
        GD_TRY(gd_csv_add_category(c, from->categories[i], strlen(from->categories[i]), path));
    return GD_OK;
}

/* Appends 'name' to a list for a message. */
static void append_name(char *list, size_t size, const char *name) {
    const size_t used = strlen(list);
    if (used + 8 < size) snprintf(list + used, size - used, "%s'%.60s'", used ? ", " : "", name);
}

/* The names of the columns of two tables. */
typedef struct field_names {
    gd_name_map known; /* of `like`: how many columns have the name */
    gd_name_map first; /* of the file: the first field of the name */
    gd_name_map count; /* how many fields have it */
} field_names;

static bool count_name(gd_name_map *names, const char *name) {
    const int before = gd_entry_number(names, name);
    return gd_set_entry_number(names, name, before < 0 ? 1 : before + 1);
}

static bool index_names(field_names *names, const gd_csv_table *like, const gd_csv_field *fields,
                        int count) {
    bool room = true;
    for (int i = 0; i < like->n_fields && room; i++)
        room = count_name(&names->known, like->field_names[i]);
    for (int i = count; i-- > 0 && room;)
        room = gd_set_entry_number(&names->first, fields[i].text, i) &&
               count_name(&names->count, fields[i].text);
    return room;
}

static void free_names(field_names *names) {
    gd_name_map_free(&names->known);
    gd_name_map_free(&names->first);
    gd_name_map_free(&names->count);
}

/* The field of a column of `like`, or -1. Names may occur twice: the same place comes first. */
static int find_by_name(const gd_csv_column *from, const field_names *names,
                        const gd_csv_field *fields, int count) {
    if (from->field < count && strcmp(fields[from->field].text, from->name) == 0)
        return from->field;
    return gd_entry_number(&names->first, from->name);
}

/* The names of the file that `like` does not have. */
static int list_unknown(const field_names *names, const gd_csv_field *fields, int count, char *list,
                        size_t size) {
    int unknown = 0;
    for (int i = 0; i < count; i++) {
        if (gd_entry_number(&names->known, fields[i].text) >= 0) continue;
        append_name(list, size, fields[i].text);
        unknown++;
    }
    return unknown;
}

/* Says which columns have a name more often than `like`, but for those that are used. */
static void show_repeated(const char *path, const field_names *names, const gd_csv_field *fields,
                          int count, const bool *used) {
    for (int i = 0; i < count; i++) {
        const char *name = fields[i].text;
        const int known = gd_entry_number(&names->known, name);
        if (used[i] || known <= 0 || gd_entry_number(&names->count, name) <= known) continue;
        gd_notice(GD_LOG_WARNING,
                  "%s: column %d (%.60s) is not used: the training table has only %d column%s of "
                  "this name",
                  path, i + 1, name, known, known > 1 ? "s" : "");
    }
}

/* Finds the columns of `like` in the header of a file; at[i] is the field of column i, -1 for a
 * target that may be absent. */
static gd_status match_names(const char *path, const gd_csv_options *o, const gd_csv_table *like,
                             const gd_csv_field *fields, int count, const field_names *by_name,
                             bool *used, int *at) {
    char missing[300] = "", unknown[300] = "", names[300];
    int n_missing = 0;
    for (int i = 0; i < like->n_columns; i++) {
        const bool target = like->has_target && i == like->n_columns - 1;
        at[i] = target && o->target_is_ignored
                    ? -1
                    : find_by_name(&like->columns[i], by_name, fields, count);
        if (at[i] >= 0) used[at[i]] = true;
        if (at[i] >= 0 || (target && o->target_is_optional)) continue;
        append_name(missing, sizeof missing, like->columns[i].name);
        n_missing++;
    }
    const int n_unknown = list_unknown(by_name, fields, count, unknown, sizeof unknown);
    if (n_missing)
        return gd_fail(GD_E_FORMAT, "%s: has no column%s %s; it has %s%s%s%s", path,
                       n_missing > 1 ? "s" : "", missing,
                       list_names(fields, count, names, sizeof names),
                       n_unknown ? " (unknown: " : "", unknown, n_unknown ? ")" : "");
    if (n_unknown)
        gd_notice(GD_LOG_WARNING,
                  "%s: column%s %s %s not used: the training table does not have %s", path,
                  n_unknown > 1 ? "s" : "", unknown, n_unknown > 1 ? "are" : "is",
                  n_unknown > 1 ? "them" : "it");
    show_repeated(path, by_name, fields, count, used);
    return GD_OK;
}

static gd_status match_header(const char *path, const gd_csv_options *o, const gd_csv_table *like,
                              const gd_csv_field *fields, int count, int *at) {
    field_names names = {0};
    bool *used = gd_calloc((size_t)count + 1, sizeof *used);
    const gd_status status = used && index_names(&names, like, fields, count)
                                 ? match_names(path, o, like, fields, count, &names, used, at)
                                 : gd_no_memory(path, "for the names of its columns");
    free_names(&names);
    gd_free(used);
    return status;
}

/* Without a header, fields have the same places, except that the target may be absent. */
static gd_status match_places(const char *path, const gd_csv_options *o, const gd_csv_table *like,
                              int count, int *at) {
    const int target = like->target_field;
    const bool absent = target >= 0 && count == like->n_fields - 1 && o->target_is_optional;
    if (count != like->n_fields && !absent)
        return gd_fail(GD_E_FORMAT, "%s: has %d columns; the training table has %d%s", path, count,
                       like->n_fields,
                       target >= 0 && o->target_is_optional ? ", with the target" : "");
    for (int i = 0; i < like->n_columns; i++) {
        const int field = like->columns[i].field;
        at[i] = absent ? field - (field > target) : field;
        if (field == target && (absent || o->target_is_ignored)) at[i] = -1;
    }
    return GD_OK;
}

static gd_status copy_columns(gd_csv_table *t, const char *path, const gd_csv_options *o,
                              const gd_csv_table *like, const gd_csv_field *fields, int count,
                              int *at) {
    GD_TRY(t->header ? match_header(path, o, like, fields, count, at)
                     : match_places(path, o, like, count, at));
    for (int i = 0; i < like->n_columns; i++)
        if (at[i] >= 0) GD_TRY(copy_column(t, path, fields, &like->columns[i], at[i]));
    t->has_target = like->has_target && at[like->n_columns - 1] >= 0;
    t->target_field = t->has_target ? at[like->n_columns - 1] : -1;
    return GD_OK;
}

gd_status gd_csv_copy_columns(gd_csv_table *t, const char *path, const gd_csv_options *o,
                              const gd_csv_table *like, const gd_csv_field *fields, int count) {
    t->header = like->header;
    t->n_fields = count;
    GD_TRY(keep_names(t, path, fields, count));
    t->columns = gd_calloc((size_t)like->n_columns + 1, sizeof *t->columns);
    int *at = gd_calloc((size_t)like->n_columns + 1, sizeof *at);
    const gd_status status = t->columns && at ? copy_columns(t, path, o, like, fields, count, at)
                                              : gd_no_memory(path, "for its columns");
    gd_free(at);
    return status;
}
