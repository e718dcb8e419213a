/* progress_text.c - formats the lines of progress that progress.h declares. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/number.h"
#include "train/progress.h"

/* --- numbers ---------------------------------------------------------------------------------- */

void gd_progress_number(double v, char text[32]) {
    const double a = fabs(v);
    if (isnan(v)) strcpy(text, "nan");
    else if (isinf(v)) strcpy(text, v < 0 ? "-inf" : "inf");
    else if (a != 0 && (a < 1e-4 || a >= 1e6)) gd_snprintf(text, 32, "%.2e", v);
    else
        gd_snprintf(text, 32, "%.*f", a < 10 ? 4 : a < 100 ? 3 : a < 1000 ? 2 : a < 1e4 ? 1 : 0, v);
}

void gd_progress_time(double seconds, char text[32]) {
    if (!(seconds >= 0) || seconds > 1e9) {
        strcpy(text, "?");
        return;
    }
    const long s = (long)(seconds + 0.5);
    if (s >= 86400) snprintf(text, 32, "%ldd %02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60);
    else if (s >= 3600) snprintf(text, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else snprintf(text, 32, "%ld:%02ld", s / 60, s % 60);
}

void gd_progress_rate(double rate, char text[32]) {
    static const char *const unit[] = {"", "k", "M", "G"};
    int u = 0;
    while (rate >= 999.5 && u < 3) rate /= 1000, u++;
    const int digits = u == 0 ? (rate >= 9.95 ? 0 : rate >= 0.995 ? 1 : 2) : rate >= 99.95 ? 0 : 1;
    gd_snprintf(text, 32, "%.*f%s/s", digits, rate, unit[u]);
}

/* "4.2s"; from a minute on as gd_progress_time. */
static void format_duration(double seconds, char text[32]) {
    if (seconds < 59.95) gd_snprintf(text, 32, "%.1fs", seconds);
    else gd_progress_time(seconds, text);
}

/* --- lines ------------------------------------------------------------------------------------ */

typedef struct line {
    char *text;
    size_t used;
    int columns;
} line;

/* Columns of UTF-8 text: all bytes but continuation bytes. */
static int columns_of(const char *text) {
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* For escape codes, which take no columns. */
static void append_code(line *l, const char *text) {
    const size_t bytes = strlen(text);
    if (l->used + bytes >= GD_PROGRESS_TEXT) return;
    memcpy(l->text + l->used, text, bytes + 1);
    l->used += bytes;
}

static void append_text(line *l, const char *text) {
    append_code(l, text);
    l->columns += columns_of(text);
}

static int digits_of(int64_t number) {
    char text[32];
    return snprintf(text, sizeof text, "%lld", (long long)number);
}

/* "epoch 2/5", or "2/5" if brief. */
static void format_label(const gd_progress_numbers *n, bool brief, char text[80]) {
    if (n->epoch == 0) snprintf(text, 80, "%.40s", n->what);
    else if (n->epochs > 0)
        snprintf(text, 80, "%.40s%s%*lld/%lld", brief ? "" : n->what, brief ? "" : " ",
                 digits_of(n->epochs), (long long)n->epoch, (long long)n->epochs);
    else
        snprintf(text, 80, "%.40s%s%lld", brief ? "" : n->what, brief ? "" : " ",
                 (long long)n->epoch);
}

/* "loss 0.1234" */
static void format_value(const gd_progress_value *v, char text[128]) {
    char number[32];
    gd_progress_number(v->value, number);
    snprintf(text, 128, "%.60s %s", v->name, number);
}

/* The completed fraction of the epoch. */
static double fraction_done(const gd_progress_numbers *n) {
    const double s = n->batches > 0 ? (double)n->batch / (double)n->batches : 0;
    return s < 0 ? 0 : s > 1 ? 1 : s;
}

/* --- the bar ---------------------------------------------------------------------------------- */

/* The parts that a line shows. Parts are dropped until the line fits. */
typedef struct detail {
    bool brief, percent, counts, rate, left;
    int bar, values; /* columns of the bar; number of values */
} detail;

/* In UTF-8 the bar can end in the middle of a cell: "━━━╸  ". */
static void draw_bar(line *l, double done, int width, gd_progress_style style) {
    const int halves = (int)(done * 2 * width + 1e-9), full = halves / 2,
              half = style.utf8 && halves % 2;
    if (style.colour) append_code(l, "\x1b[32m");
    for (int i = 0; i < full; i++)
        append_text(l, style.utf8 ? "━" : i == width - 1 || i < full - 1 ? "=" : ">");
    if (half) append_text(l, "╸");
    if (style.colour) append_code(l, "\x1b[39;2m");
    for (int i = full + half; i < width; i++)
        append_text(l, style.utf8 ? (style.colour ? "━" : "─") : "-");
    if (style.colour) append_code(l, "\x1b[0m");
}

static void add_field(line *l, const char *text) {
    if (l->columns) append_text(l, "  ");
    append_text(l, text);
}

static int format_line(const gd_progress_numbers *n, const detail *d, gd_progress_style style,
                       char text[GD_PROGRESS_TEXT]) {
    line l = {.text = text};
    char part[128];
    text[0] = '\0';
    format_label(n, d->brief, part);
    append_text(&l, part);
    if (d->bar > 0) {
        append_text(&l, " ");
        draw_bar(&l, fraction_done(n), d->bar, style);
    }
    if (d->percent) {
        snprintf(part, sizeof part, " %3d%%", (int)(100 * fraction_done(n) + 1e-9));
        append_text(&l, part);
    }
    if (d->counts) {
        if (n->batches > 0)
            snprintf(part, sizeof part, "%*lld/%lld", digits_of(n->batches), (long long)n->batch,
                     (long long)n->batches);
        else snprintf(part, sizeof part, "%lld", (long long)n->batch);
        add_field(&l, part);
    }
    if (d->rate && n->rate >= 0) {
        char number[32];
        gd_progress_rate(n->rate, number);
        snprintf(part, sizeof part, "%7s", number);
        add_field(&l, part);
    }
    if (d->left && n->left >= 0) {
        gd_progress_time(n->left, part);
        add_field(&l, part);
    }
    for (int i = 0; i < d->values && i < n->n_values; i++) {
        format_value(&n->values[i], part);
        add_field(&l, part);
    }
    return l.columns;
}

enum { LONG_BAR = 30, BAR = 10, SHORT_BAR = 4 };

/* Drops the least important part; false: there is none left. `counted`: the number of batches is
 * known. */
static bool drop_part(detail *d, bool counted) {
    if (d->counts && d->percent) return d->counts = false, true;
    if (d->values > 2) return d->values--, true;
    if (d->rate) return d->rate = false, true;
    if (d->values > 1) return d->values--, true;
    if (d->bar > SHORT_BAR) return d->bar = SHORT_BAR, true;
    if (d->left) return d->left = false, true;
    if (!d->brief) return d->brief = true, true;
    if (d->bar > 0) return d->bar = 0, true;
    if (counted && d->percent && d->values > 0) return d->percent = false, true;
    if (d->values > 0) return d->values--, true;
    return false;
}

/* Truncates to `columns` columns. */
static void truncate_line(char *text, int columns) {
    int n = 0;
    for (; *text; text++) {
        n += ((unsigned char)*text & 0xC0) != 0x80;
        if (n > columns) {
            *text = '\0';
            return;
        }
    }
}

void gd_progress_bar(const gd_progress_numbers *n, int width, gd_progress_style style,
                     char text[GD_PROGRESS_TEXT]) {
    const int room = width > 2 ? width - 1 : 1; /* some terminals wrap after the last column */
    const bool known = n->batches > 0;
    detail d = {.percent = known,
                .counts = true,
                .rate = true,
                .left = true,
                .bar = known ? BAR : 0,
                .values = n->n_values};
    int columns = format_line(n, &d, style, text);
    while (columns > room && drop_part(&d, known)) columns = format_line(n, &d, style, text);
    if (columns > room) {
        truncate_line(text, room);
    } else if (d.bar > 0 && columns < room) {
        d.bar += room - columns < LONG_BAR - d.bar ? room - columns : LONG_BAR - d.bar;
        format_line(n, &d, style, text);
    }
}

/* --- lines that remain ------------------------------------------------------------------------ */

/* Starts a new line if the field does not fit into `width`. */
static void add_wrapped_field(line *l, const char *text, int width) {
    if (width > 0 && l->columns > 0 && l->columns + 2 + columns_of(text) >= width) {
        append_code(l, "\n");
        l->columns = 0;
        append_text(l, "  ");
        append_text(l, text);
        return;
    }
    add_field(l, text);
}

void gd_progress_result(const gd_progress_numbers *n, int width, char text[GD_PROGRESS_TEXT]) {
    line l = {.text = text};
    char part[128];
    text[0] = '\0';
    format_label(n, false, part);
    append_text(&l, part);
    format_duration(n->seconds, part);
    add_wrapped_field(&l, part, width);
    if (n->rate >= 0) {
        gd_progress_rate(n->rate, part);
        add_wrapped_field(&l, part, width);
    }
    for (int i = 0; i < n->n_values; i++) {
        format_value(&n->values[i], part);
        add_wrapped_field(&l, part, width);
    }
}

void gd_progress_middle(const gd_progress_numbers *n, char text[GD_PROGRESS_TEXT]) {
    char left[32];
    const detail d = {.percent = n->batches > 0, .counts = true, .rate = true, .values = 0};
    line l = {.text = text};
    l.columns = format_line(n, &d, (gd_progress_style){false, false}, text);
    l.used = strlen(text);
    if (n->left >= 0) {
        gd_progress_time(n->left, left);
        add_field(&l, left);
        append_text(&l, " left");
    }
    for (int i = 0; i < n->n_values; i++) {
        char part[128];
        format_value(&n->values[i], part);
        add_field(&l, part);
    }
}
