/* history.h - the internals of a history: a table of numbers, one row an epoch. */
#ifndef GRADUS_TRAIN_HISTORY_H
#define GRADUS_TRAIN_HISTORY_H

#include "core/error.h"
#include "core/state.h"
#include "gradus/train.h"

struct gd_history {
    gd_object object;
    char **names;
    int n_columns, columns_room;
    double *values; /* (rows, n_columns), row-major */
    int64_t n_rows, rows_room;
    bool interrupted;  /* by Ctrl-C, SIGTERM or gd_fit_interrupt */
    char stopped[200]; /* the reason if the run ended early; or "" */
};

/* An empty table, owned by the caller. NULL: no memory. */
gd_history *gd_history_bare(void);

/* Passes a history to the scope of the program, or frees it after a failure, which it records. */
gd_history *gd_history_finish(const char *site, gd_history *history, gd_status status);

/* The index of a column, which is added if necessary, with NaN in all rows. -1: no memory. */
int gd_history_column(gd_history *history, const char *name);
/* Column `name`, or -1. */
int gd_history_find(const gd_history *history, const char *name);

/* Adds a row of NaN. */
gd_status gd_history_add_row(gd_history *history);
/* Sets a value of the last row; the column must exist. */
void gd_history_set(gd_history *history, int column, double value);

/* The SVG text of the curves, from gd_malloc; NULL: no memory (plot.c). */
char *gd_history_svg(const gd_history *history);

#endif
