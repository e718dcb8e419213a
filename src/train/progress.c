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

/* One write() for each line, so that lines of several threads do not mix. */
static void write_line(int fd, const char *before, const char *text, const char *after) {
    char all[GD_PROGRESS_TEXT + 32];
    const int n = snprintf(all, sizeof all, "%s%s%s", before, text, after);
    if (n > 0) write_all(fd, all, (size_t)n < sizeof all ? (size_t)n : sizeof all - 1);
}

/* Read for each line: the user may have resized the terminal. */
static int terminal_width(int fd) {
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
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

void gd_progress_begin(gd_progress_writer *w, gd_progress mode, int fd) {
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    const bool redraws = isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
    *w = (gd_progress_writer){.mode = mode, .fd = fd, .last = gd_progress_clock()};
    if (mode == GD_PROGRESS_AUTO) w->mode = redraws ? GD_PROGRESS_BAR : GD_PROGRESS_LINES;
    w->style.utf8 = is_utf8();
    w->style.colour = redraws && !(no_colour && *no_colour);
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
        gd_progress_bar(n, terminal_width(w->fd), w->style, text);
        write_line(w->fd, "\r", text, "\x1b[K");
        w->drawn = true;
    } else if (w->mode == GD_PROGRESS_LINES) {
        gd_progress_middle(n, text);
        write_line(w->fd, "", text, "\n");
    }
    w->last = now;
}

void gd_progress_done(gd_progress_writer *w, const gd_progress_numbers *n, double now) {
    char text[GD_PROGRESS_TEXT];
    if (w->mode == GD_PROGRESS_NONE) return;
    const bool bar = w->mode == GD_PROGRESS_BAR;
    gd_progress_result(n, bar ? terminal_width(w->fd) : 0, text);
    write_line(w->fd, bar ? clear_line : "", text, "\n");
    w->drawn = false;
    w->last = now;
}

void gd_progress_say(gd_progress_writer *w, const char *text) {
    char line[GD_PROGRESS_TEXT];
    if (w->mode == GD_PROGRESS_NONE) return;
    snprintf(line, sizeof line, "%s", text);
    if (w->drawn) write_all(w->fd, "\n", 1);
    write_line(w->fd, "", line, "\n");
    w->drawn = false;
}

void gd_progress_end(gd_progress_writer *w) {
    if (w->drawn) write_all(w->fd, "\n", 1);
    w->drawn = false;
}
