/* csv_table.h - a CSV file in memory: numbers as they are, categories as codes.
 *
 * A file is read twice: to find out what its columns hold and how many rows there are, and then
 * into one array of floats. A table can take columns, types, categories and statistics from another
 * one, as that of a test set has to.
 */
#ifndef GRADUS_DATA_CSV_TABLE_H
#define GRADUS_DATA_CSV_TABLE_H

#include "core/names.h"
#include "format/csv.h"
#include "gradus/dataset.h"

typedef enum gd_csv_kind { GD_CSV_AUTO, GD_CSV_NUMBER, GD_CSV_CATEGORY } gd_csv_kind;
typedef enum gd_csv_missing { GD_CSV_REFUSE, GD_CSV_MEAN, GD_CSV_ZERO, GD_CSV_DROP } gd_csv_missing;

typedef struct gd_csv_column {
    char *name; /* "3" where the file has no header */
    int field;  /* its place in a record */
    gd_csv_kind kind;
    double mean, scale; /* of a number: of the values that are there; their deviation, or 1 */
    char **
        categories; /* sorted: as numbers if all are numbers, else by their bytes; "" missing, last */
    int n_categories, room;
    gd_names codes; /* of each category: its code plus 1 */
} gd_csv_column;

typedef struct gd_csv_options {
    const char *columns, *target,
        *types; /* lists of names or numbers, "a b:category"; NULL: none */
    int header; /* 1, 0; -1: a first line without numbers is one */
    char separator;
    gd_csv_missing missing;
} gd_csv_options;

typedef struct gd_csv_table {
    gd_csv_column *columns; /* of the input, and then the target if there is one */
    int n_columns;
    bool has_target;
    bool header; /* the first record has names */
    int n_fields;
    float *values; /* (rows, columns); a missing number has become what the options say */
    int64_t rows;
} gd_csv_table;

/* `like`: a table whose columns this one has; or NULL. On failure the table is empty. */
gd_status gd_csv_table_read(gd_csv_table *table, const char *path, const gd_csv_options *options,
                            const gd_csv_table *like);
void gd_csv_table_free(gd_csv_table *table); /* one that is all zero is fine */

/* --- between its files ------------------------------------------------------------------------ */

/* Chooses columns by the first record (csv_columns.c). */
gd_status gd_csv_choose_columns(gd_csv_table *table, const char *path,
                                const gd_csv_options *options, const gd_csv_field *fields,
                                int count);
/* The columns of another table, found by their names, or by their places where there is no
 * header. */
gd_status gd_csv_copy_columns(gd_csv_table *table, const char *path, const gd_csv_table *like,
                              const gd_csv_field *fields, int count);
bool gd_csv_is_missing(const gd_csv_field *field);
bool gd_csv_number(const gd_csv_field *field, double *value);

#endif
