/* csv.h - tables as text (RFC 4180), read record by record.
 *
 * Fields in quotes may hold separators, line ends and doubled quotes. Lines end with LF, CRLF or
 * CR; a byte order mark and blank lines are skipped. Space around a field without quotes, and
 * before a quote, is not part of the field. Messages have line and column, both counted from 1.
 */
#ifndef GRADUS_FORMAT_CSV_H
#define GRADUS_FORMAT_CSV_H

#include "format/stream.h"

enum {
    GD_CSV_MAX_FIELDS = 1 << 20,
    GD_CSV_MAX_RECORD = 1 << 26, /* bytes: limits the memory for a quote that is never closed */
};

typedef struct gd_csv_field {
    const char *text; /* ends with a zero byte, and contains no other */
    size_t length;
    bool quoted;
    int64_t line, column; /* where it begins */
} gd_csv_field;

typedef struct gd_csv gd_csv;

/* The stream is borrowed. */
gd_status gd_csv_open(gd_csv **out, gd_stream *stream, char separator);
void gd_csv_close(gd_csv *csv); /* NULL is fine */

/* Reads the next record; *fields is valid until the next call. *count is 0 at the end. */
gd_status gd_csv_next(gd_csv *csv, const gd_csv_field **fields, int *count);

#endif
