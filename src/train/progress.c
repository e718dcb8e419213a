/* progress.c - the progress writer: when to write a line of progress, and how. */
#include "train/progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"

static const double redraw_seconds = 0.1, line_seconds = 30; /* least time between two */

double gd_progress_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ignores errors: training continues if the terminal is closed or the pipe is full. */
static void write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        const ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        text += n;
        bytes -= (size_t)n;
    }
}

/* A receiver that has failed gets no more text. */
static void hand_over(gd_progress_writer *w, const char *text) {
    const gd_progress_receiver *r = w->receiver;
    gd_attempt attempt;
    if (w->status != GD_OK) return;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    const bool final = text[strlen(text) - 1] == '\n';
    w->status = gd_returned("the progress receiver", r->write(text, final, r->user));
    gd_scope_close(&scope);
    w->status = gd_attempt_end(&attempt, w->status);
}

/* One write() for each line, so that lines of several threads do not mix. */
static void write_line(gd_progress_writer *w, const char *before, const char *text,
                       const char *after) {
    char all[GD_PROGRESS_TEXT + 32];
    const int n = snprintf(all, sizeof all, "%s%s%s", before, text, after);
    if (n <= 0) return;
    if (w->receiver) hand_over(w, all);
    else write_all(w->fd, all, (size_t)n < sizeof all ? (size_t)n : sizeof all - 1);
}

static void end_line(gd_progress_writer *w) {
    if (w->drawn) write_line(w, "", "", "\n");
    w->drawn = false;
}

/* Read for each line: the user may have resized the terminal. */
static int terminal_width(const gd_progress_writer *w) {
    struct winsize size;
    if (w->receiver) return w->receiver->width > 0 ? w->receiver->width : 80;
    if (ioctl(w->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    const char *columns = getenv("COLUMNS");
    const int n = columns ? atoi(columns) : 0;
    return n > 0 ? n : 80;
}

/* Reads the environment, because a program that never calls setlocale() has the C locale. */
static bool is_utf8(void) {
    const char *locale = getenv("LC_ALL");
    if (!locale || !*locale) locale = getenv("LC_CTYPE");
    if (!locale || !*locale) locale = getenv("LANG");
    return locale && (strcasestr(locale, "utf-8") || strcasestr(locale, "utf8"));
}

gd_status gd_progress_check(const gd_progress_receiver *receiver, const char *function) {
    if (!receiver || receiver->write) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: .progress_receiver has no .write", function);
}

void gd_progress_begin(gd_progress_writer *w, gd_progress mode,
                       const gd_progress_receiver *receiver) {
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    const bool redraws = receiver
                             ? receiver->redraws
                             : isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
    *w = (gd_progress_writer){
        .mode = mode, .fd = STDERR_FILENO, .receiver = receiver, .last = gd_progress_clock()};
    if (mode == GD_PROGRESS_AUTO) w->mode = redraws ? GD_PROGRESS_BAR : GD_PROGRESS_LINES;
    w->style.utf8 = receiver ? receiver->utf8 : is_utf8();
    w->style.colour = receiver ? receiver->colour : redraws && !(no_colour && *no_colour);
    if (w->mode == GD_PROGRESS_BAR) w->last = 0; /* draws the first bar without delay */
}

bool gd_progress_due(const gd_progress_writer *w, double now) {
    if (w->mode == GD_PROGRESS_NONE) return false;
    return now - w->last >= (w->mode == GD_PROGRESS_BAR ? redraw_seconds : line_seconds);
}

static const char clear_line[] = "\r\x1b[K";

void gd_progress_draw(gd_progress_writer *w, const gd_progress_numbers *n, double now) {
    char text[GD_PROGRESS_TEXT];
    if (w->mode == GD_PROGRESS_BAR) {
        gd_progress_bar(n, terminal_width(w), w->style, text);
        w->drawn = true;
        write_line(w, "\r", text, "\x1b[K");
    } else if (w->mode == GD_PROGRESS_LINES) {
        gd_progress_middle(n, text);
        write_line(w, "", text, "\n");
    }
    w->last = now;
}

void gd_progress_done(gd_progress_writer *w, const gd_progress_numbers *n, double now) {
    char text[GD_PROGRESS_TEXT];
    if (w->mode == GD_PROGRESS_NONE) return;
    const bool bar = w->mode == GD_PROGRESS_BAR;
    gd_progress_result(n, bar ? terminal_width(w) : 0, text);
    w->drawn = false;
    write_line(w, bar ? clear_line : "", text, "\n");
    w->last = now;
}

void gd_progress_say(gd_progress_writer *w, const char *text) {
    char line[GD_PROGRESS_TEXT];
    if (w->mode == GD_PROGRESS_NONE) return;
    snprintf(line, sizeof line, "%s", text);
    end_line(w);
    write_line(w, "", line, "\n");
}

void gd_progress_end(gd_progress_writer *w) { end_line(w); }
