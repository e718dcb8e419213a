/* progress.h - what gd_fit shows of a run.
 *
 * Texts are pure functions of numbers and a width; the writer decides when to write which.
 */
#ifndef GRADUS_TRAIN_PROGRESS_H
#define GRADUS_TRAIN_PROGRESS_H

#include "gradus/train.h"

typedef struct gd_progress_value {
    const char *name;
    double value;
} gd_progress_value;

typedef struct gd_progress_numbers {
    const char *what;       /* "epoch", "validate" */
    int64_t epoch, epochs;  /* from 1; 0: none to show; `epochs` 0: not known how many */
    int64_t batch, batches; /* done so far; `batches` 0: not known how many */
    double rate;            /* samples a second; NaN: not known */
    double left;            /* seconds to the end of the epoch; NaN: not known */
    double seconds;         /* since the epoch began */
    const gd_progress_value *values;
    int n_values;
} gd_progress_numbers;

typedef struct gd_progress_style {
    bool utf8, colour;
} gd_progress_style;

enum { GD_PROGRESS_TEXT = 2048 };

/* One line of less than `width` columns, for a terminal that redraws it. */
void gd_progress_bar(const gd_progress_numbers *n, int width, gd_progress_style style,
                     char text[GD_PROGRESS_TEXT]);
/* The line that stays after an epoch. Where it is longer than `width`, it goes on in the next line,
 * indented; 0: any width. No newline at the end. */
void gd_progress_result(const gd_progress_numbers *n, int width, char text[GD_PROGRESS_TEXT]);
/* A line in the middle of a long epoch, for a log file. */
void gd_progress_middle(const gd_progress_numbers *n, char text[GD_PROGRESS_TEXT]);

/* "0.1234", "12.35", "1.2e-05": never more than 9 characters. */
void gd_progress_number(double value, char text[32]);
/* "0:12", "1:02:33", "3d 04:10". */
void gd_progress_time(double seconds, char text[32]);
/* "21.3k/s" */
void gd_progress_rate(double rate, char text[32]);

/* --- the writer ------------------------------------------------------------------------------- */

typedef struct gd_progress_writer {
    gd_progress mode; /* BAR, LINES or NONE */
    int fd;
    gd_progress_style style;
    bool drawn;  /* a bar is on the current line */
    double last; /* when it was drawn, or a line was written */
} gd_progress_writer;

/* AUTO becomes a bar where `fd` is a terminal that can redraw a line, else lines. */
void gd_progress_begin(gd_progress_writer *w, gd_progress mode, int fd);
/* Whether it is time for gd_progress_draw: at most ten times a second; in lines, every 30
 * seconds. */
bool gd_progress_due(const gd_progress_writer *w, double now);
void gd_progress_draw(gd_progress_writer *w, const gd_progress_numbers *n, double now);
/* The line that stays. */
void gd_progress_done(gd_progress_writer *w, const gd_progress_numbers *n, double now);
/* A message on a line of its own. */
void gd_progress_say(gd_progress_writer *w, const char *text);
/* Leaves the line of a bar that is drawn: the run ended in the middle of an epoch. */
void gd_progress_end(gd_progress_writer *w);

/* Seconds of a clock that never goes back. */
double gd_progress_clock(void);

#endif
