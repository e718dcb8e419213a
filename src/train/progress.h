/* progress.h - how gd_fit and gd_evaluate show their progress.
 *
 * The texts are pure functions of numbers and a width (progress_text.c). The writer decides when to
 * write which text (progress.c).
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
    int64_t epoch, epochs;  /* counted from 1, and in total; 0: none, and unknown */
    int64_t batch, batches; /* done so far, and in total; 0: unknown */
    double rate;            /* samples a second; NaN: unknown */
    double left;            /* seconds until the epoch ends; NaN: unknown */
    double seconds;         /* since the epoch began */
    const gd_progress_value *values;
    int n_values;
} gd_progress_numbers;

typedef struct gd_progress_style {
    bool utf8, colour;
} gd_progress_style;

enum { GD_PROGRESS_TEXT = 2048 }; /* bytes of a text */

/* A line with a bar, shorter than `width` columns, for a terminal that redraws it. */
void gd_progress_bar(const gd_progress_numbers *n, int width, gd_progress_style style,
                     char text[GD_PROGRESS_TEXT]);
/* The line that remains after an epoch. If it is longer than `width`, it continues on the next
 * line, indented; 0: no limit. No newline at the end. */
void gd_progress_result(const gd_progress_numbers *n, int width, char text[GD_PROGRESS_TEXT]);
/* A line in the middle of a long epoch, for a log file. */
void gd_progress_middle(const gd_progress_numbers *n, char text[GD_PROGRESS_TEXT]);

/* "0.1234", "12.35", "1.2e-05": at most 9 characters. */
void gd_progress_number(double value, char text[32]);
/* "0:12", "1:02:33", "3d 04:10". */
void gd_progress_time(double seconds, char text[32]);
/* "21.3k/s" */
void gd_progress_rate(double rate, char text[32]);

/* --- the writer ------------------------------------------------------------------------------- */

typedef struct gd_progress_writer {
    gd_progress mode;                     /* BAR, LINES or NONE */
    int fd;                               /* stderr */
    const gd_progress_receiver *receiver; /* gets the text instead, if it is not NULL */
    gd_progress_style style;
    gd_status status; /* the failure of the receiver, which ends the run */
    bool drawn;       /* a bar is on the current line */
    double last;      /* the time of the latest bar or line */
} gd_progress_writer;

/* Fails if a receiver has no function. */
gd_status gd_progress_check(const gd_progress_receiver *receiver, const char *function);
/* AUTO becomes BAR if the receiver, or without one (NULL) stderr, can redraw a line, else LINES. */
void gd_progress_begin(gd_progress_writer *w, gd_progress mode,
                       const gd_progress_receiver *receiver);
/* Whether to call gd_progress_draw now: ten times a second for a bar, else every 30 seconds. */
bool gd_progress_due(const gd_progress_writer *w, double now);
void gd_progress_draw(gd_progress_writer *w, const gd_progress_numbers *n, double now);
/* Writes the line that remains after an epoch. */
void gd_progress_done(gd_progress_writer *w, const gd_progress_numbers *n, double now);
/* Writes a message on a separate line. */
void gd_progress_say(gd_progress_writer *w, const char *text);
/* Ends the line of a bar, if one is drawn: the run has ended in the middle of an epoch. */
void gd_progress_end(gd_progress_writer *w);

/* Seconds of the monotonic clock. */
double gd_progress_clock(void);

#endif
