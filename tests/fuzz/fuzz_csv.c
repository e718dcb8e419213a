/* fuzz_csv.c - reads any bytes as a CSV file. Its records must survive writing and reading. Reads
 * it also as a table, with options that depend on its size. */
#include "data/csv_table.h"
#include "format/csv.h"
#include "temp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_buffer {
    char *at;
    size_t used, room;
} text_buffer;

static void put_byte(text_buffer *w, char byte) {
    if (w->used == w->room) w->at = realloc(w->at, w->room = 2 * w->room + 64);
    w->at[w->used++] = byte;
}

/* Writes all records, each field in quotes. */
static gd_status write_records(const void *data, size_t size, text_buffer *out) {
    gd_stream *s;
    gd_csv *csv;
    const gd_csv_field *fields;
    int count = 1;
    gd_status status = gd_stream_open_memory(&s, "fuzz", data, size);
    if (status != GD_OK) return status;
    if (gd_csv_open(&csv, s, ',') != GD_OK) abort();
    while ((status = gd_csv_next(csv, &fields, &count)) == GD_OK && count > 0)
        for (int i = 0; i < count; i++) {
            if (strlen(fields[i].text) != fields[i].length || fields[i].line < 1 ||
                fields[i].column < 1)
                abort();
            put_byte(out, '"');
            for (const char *p = fields[i].text; *p; p++) {
                if (*p == '"') put_byte(out, '"');
                put_byte(out, *p);
            }
            put_byte(out, '"');
            put_byte(out, i + 1 < count ? ',' : '\n');
        }
    gd_csv_close(csv);
    gd_stream_close(s);
    return status;
}

static void read_table(const uint8_t *data, size_t size) {
    const char *path = temp_write("fuzz.csv", data, size);
    gd_csv_table table, again;
    const gd_csv_options options = {.separator = ',',
                                    .header = -1,
                                    .target = size % 3 ? "0" : NULL,
                                    .types = size % 5 ? NULL : "0:category",
                                    .missing = (gd_csv_missing)(size % 4)};
    if (gd_csv_table_read(&table, path, &options, NULL) == GD_OK) {
        /* reading the file again with the table's categories and statistics gives the same table */
        if (gd_csv_table_read(&again, path, &options, &table) == GD_OK) {
            if (again.rows != table.rows ||
                memcmp(again.values, table.values,
                       sizeof(float) * (size_t)(table.rows * table.n_columns)) != 0)
                abort();
            gd_csv_table_free(&again);
        }
        gd_csv_table_free(&table);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    text_buffer first = {NULL, 0, 0}, second = {NULL, 0, 0};
    if (write_records(data, size, &first) == GD_OK) {
        if (write_records(first.at, first.used, &second) != GD_OK) abort();
        if (first.used != second.used ||
            (first.used && memcmp(first.at, second.at, first.used) != 0))
            abort();
    }
    free(first.at);
    free(second.at);
    read_table(data, size);
    return 0;
}
