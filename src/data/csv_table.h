/* csv_table.h - a CSV file in memory, as one array of floats: numbers, and codes of categories.
 *
 * A file is read twice: first to find the kinds of its columns and the number of its rows, then to
 * fill the array. A table can take columns, kinds, categories and statistics from another one, as a
 * test set takes those of the training set. They can also be kept as text, the layout of a table
 * (csv_layout.c).
 */
#ifndef GRADUS_DATA_CSV_TABLE_H
#define GRADUS_DATA_CSV_TABLE_H

#include "core/name_map.h"
#include "format/csv.h"
#include "gradus/dataset.h"

typedef enum gd_csv_kind { GD_CSV_AUTO, GD_CSV_NUMBER, GD_CSV_CATEGORY } gd_csv_kind;
typedef enum gd_csv_missing { GD_CSV_ERROR, GD_CSV_MEAN, GD_CSV_ZERO, GD_CSV_DROP } gd_csv_missing;

typedef struct gd_csv_column {
    char *name; /* "3" where the file has no header */
    int field;  /* its index in a record */
    gd_csv_kind kind;
    /* Of the first pass: fields that are numbers, and those that are not; among these, numbers with
     * the other decimal mark and with units, and the first of each. */
    int64_t numbers, texts, marked, marked_line, units;
    char marked_text[24], unit_text[24];
    double mean,
        scale; /* of numbers, without missing ones; scale: their deviation, or 1 if that is 0 */
    /* Sorted: as numbers if all are numbers, otherwise by bytes. "" (missing) is the last. */
    char **categories;
    int n_categories, room;
    gd_name_map codes; /* from the name of a category to its code plus 1 */
} gd_csv_column;

typedef struct gd_csv_options {
    /* Lists of names or numbers of columns, "a b:category"; NULL: not given. */
    const char *columns, *target, *types;
    int header; /* 1: the first line is one; 0: it is not; -1: it is if it has no numbers */
    char separator, decimal;
    bool separator_is_given;
    bool target_is_optional, target_is_ignored; /* in a table like another one */
    gd_csv_missing missing;
} gd_csv_options;

typedef struct gd_csv_table {
    gd_csv_column *columns; /* those of the input, then the target if there is one */
    int n_columns;
    bool has_target;
    bool header; /* the first record holds names */
    char decimal;
    int n_fields, target_field; /* in a record; target_field -1: none */
    char **field_names;         /* of all fields; NULL: there is no header */
    float *values; /* (rows, columns); missing numbers are replaced as the options say */
    int64_t rows;
} gd_csv_table;

/* `like`: a table to take columns, kinds, categories and statistics from; or NULL. On failure the
 * table is empty. */
gd_status gd_csv_table_read(gd_csv_table *table, const char *path, const gd_csv_options *options,
                            const gd_csv_table *like);
void gd_csv_table_free(gd_csv_table *table); /* a table of zero bytes is fine */

/* --- shared by csv_table.c and csv_columns.c -------------------------------------------------- */

/* Selects columns by the first record. */
gd_status gd_csv_choose_columns(gd_csv_table *table, const char *path,
                                const gd_csv_options *options, const gd_csv_field *fields,
                                int count);
/* Selects the columns of another table, by their names, or by their indices without a header. */
gd_status gd_csv_copy_columns(gd_csv_table *table, const char *path, const gd_csv_options *options,
                              const gd_csv_table *like, const gd_csv_field *fields, int count);
gd_status gd_csv_add_category(gd_csv_column *column, const char *text, size_t length,
                              const char *path);
bool gd_csv_is_missing(const gd_csv_field *field);
/* Reads a number with this decimal mark, '.' or ','. */
bool gd_csv_number(const gd_csv_field *field, char decimal, double *value);
/* Whether it is a number with a comma instead of a decimal point, or the reverse: "1,5", "1.234,5". */
bool gd_csv_has_other_mark(const gd_csv_field *field, char decimal);
/* Whether it is a number with a unit: "5 %", "$1.50". */
bool gd_csv_has_unit(const gd_csv_field *field);

/* --- layouts as text (csv_layout.c) ----------------------------------------------------------- */

/* How the records of a file become samples. */
typedef struct gd_csv_layout {
    gd_csv_table table; /* without values */
    char separator;
    gd_csv_missing missing;
    bool one_hot, standardize;
} gd_csv_layout;

/* The text is JSON, from gd_malloc. It fails if a name or a category is not UTF-8. */
gd_status gd_csv_layout_write(const gd_csv_layout *layout, char **text);
gd_status gd_csv_layout_read(gd_csv_layout *layout, const char *text);

#endif
