/* plot.c - draws the curves of a history as an SVG image (gd_history_plot).
 *
 * The panels are stacked and share the axis of epochs. One panel shows the losses, one all metrics
 * whose values lie between 0 and 1, and every other metric has its own panel, because their scales
 * differ. Training curves are solid; validation curves have the same colour and are dashed. A NaN
 * leaves a gap.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/number.h"
#include "format/file.h"
#include "train/history.h"

/* Sizes in pixels, and limits. */
enum {
    WIDTH = 760,
    LEFT = 64,
    RIGHT = 24,
    TOP = 44,
    PANEL = 220,
    GAP = 60,
    BOTTOM = 46,
    MAX_PANELS = 8,
    MAX_CURVES = 24
};
enum { MARKED_EPOCHS = 25 }; /* with at most this many epochs, each one has a marker */

/* --- SVG text --------------------------------------------------------------------------------- */

typedef struct svg_text {
    char *at;
    size_t used, room;
    bool failed; /* no memory */
} svg_text;

static void svg_printf(svg_text *t, const char *format, ...) GD_PRINTF(2, 3);
static void svg_printf(svg_text *t, const char *format, ...) {
    char piece[512];
    va_list args;
    va_start(args, format);
    int n = gd_vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (n < 0 || t->failed) return;
    if ((size_t)n >= sizeof piece) n = (int)sizeof piece - 1;
    if (t->used + (size_t)n + 1 > t->room) {
        const size_t room = 2 * t->room + 4096;
        char *larger = gd_realloc(t->at, room);
        t->failed = !larger;
        if (!larger) return;
        t->at = larger;
        t->room = room;
    }
    memcpy(t->at + t->used, piece, (size_t)n + 1);
    t->used += (size_t)n;
}

/* The program chooses the names: escapes XML's special characters and drops control characters. */
static void svg_print_escaped(svg_text *t, const char *name) {
    for (; *name; name++) {
        const char *code = *name == '<'   ? "&lt;"
                           : *name == '>' ? "&gt;"
                           : *name == '&' ? "&amp;"
                           : *name == '"' ? "&quot;"
                                          : NULL;
        if (code) svg_printf(t, "%s", code);
        else if ((unsigned char)*name >= 0x20) svg_printf(t, "%c", *name);
    }
}

/* --- scales ----------------------------------------------------------------------------------- */

typedef struct scale {
    double low, high; /* the ends of the axis */
    double step;      /* between ticks; 0: the axis is logarithmic */
} scale;

/* A step of 1, 2 or 5 times a power of ten that divides `range` into about `ticks` parts. */
static double nice_step(double range, int ticks) {
    const double raw = range / ticks, power = pow(10, floor(log10(raw))), share = raw / power;
    return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static scale linear_scale(double low, double high) {
    if (!(high > low)) {
        const double around = low == 0 ? 1 : fabs(low) * 0.1;
        low -= around;
        high += around;
    }
    const double step = nice_step(high - low, 5);
    return (scale){floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step, step};
}

/* Logarithmic if the values span more than two decades. */
static scale choose_scale(double low, double high) {
    if (low > 0 && high / low > 100) return (scale){low / 1.1, high * 1.1, 0};
    return linear_scale(low, high);
}

/* Where a value lies on the axis: 0 at the bottom, 1 at the top. */
static double axis_fraction(const scale *s, double value) {
    return s->step > 0 ? (value - s->low) / (s->high - s->low)
                       : log(value / s->low) / log(s->high / s->low);
}

/* --- panels ----------------------------------------------------------------------------------- */

typedef struct panel {
    char title[80];
    int columns[MAX_CURVES], n_columns; /* of the history, one for each curve */
    scale y;
    double top; /* in pixels */
} panel;

typedef struct plot {
    const gd_history *history;
    panel panels[MAX_PANELS];
    int n_panels, height;
    svg_text out;
} plot;

/* "val_loss" gives "loss". */
static const char *base_name(const char *name) {
    return strncmp(name, "val_", 4) == 0 ? name + 4 : name;
}
static bool is_validation(const char *name) { return base_name(name) != name; }

static double value_at(const gd_history *h, int column, int64_t row) {
    return h->values[row * h->n_columns + column];
}

/* The range of the finite values of a column; false: it has none. */
static bool column_range(const gd_history *h, int column, double *low, double *high) {
    bool any = false;
    for (int64_t row = 0; row < h->n_rows; row++) {
        const double v = value_at(h, column, row);
        if (!isfinite(v)) continue;
        *low = any && *low < v ? *low : v;
        *high = any && *high > v ? *high : v;
        any = true;
    }
    return any;
}

/* Whether all values of a metric, in training and validation, lie between 0 and 1. */
static bool is_fraction(const gd_history *h, const char *base) {
    for (int i = 0; i < h->n_columns; i++) {
        double low = 0, high = 0;
        if (strcmp(base_name(h->names[i]), base) == 0 && column_range(h, i, &low, &high) &&
            (low < 0 || high > 1))
            return false;
    }
    return true;
}

/* Finds or adds the panel of a metric; NULL: there are too many. */
static panel *panel_for(plot *p, const char *base) {
    const char *title = strcmp(base, "loss") == 0       ? "loss"
                        : is_fraction(p->history, base) ? "metrics"
                                                        : base;
    for (int i = 0; i < p->n_panels; i++)
        if (strcmp(p->panels[i].title, title) == 0) return &p->panels[i];
    if (p->n_panels == MAX_PANELS) return NULL;
    panel *pane = &p->panels[p->n_panels++];
    snprintf(pane->title, sizeof pane->title, "%s", title);
    return pane;
}

/* Chooses the scale of each panel, and stacks the panels. */
static void place_panels(plot *p) {
    const gd_history *h = p->history;
    double top = TOP;
    for (int k = 0; k < p->n_panels; k++) {
        panel *pane = &p->panels[k];
        double low = INFINITY, high = -INFINITY;
        for (int i = 0; i < pane->n_columns; i++) {
            double a = 0, b = 0;
            column_range(h, pane->columns[i], &a, &b);
            if (a < low) low = a;
            if (b > high) high = b;
        }
        const bool fractions = strcmp(pane->title, "metrics") == 0;
        pane->y = fractions ? linear_scale(low, high) : choose_scale(low, high);
        if (fractions && pane->y.low < 0) pane->y.low = 0;
        if (fractions && pane->y.high > 1) pane->y.high = 1;
        pane->top = top;
        top += PANEL + GAP;
    }
    p->height = (int)(top - GAP + BOTTOM);
}

/* Assigns the columns of the history to panels; rates and times are not drawn. */
static void fill_panels(plot *p) {
    const gd_history *h = p->history;
    for (int i = 0; i < h->n_columns; i++) {
        double low, high;
        const char *base = base_name(h->names[i]);
        if (strcmp(base, "lr") == 0 || strcmp(base, "seconds") == 0 ||
            !column_range(h, i, &low, &high))
            continue;
        panel *pane = panel_for(p, base);
        if (pane && pane->n_columns < MAX_CURVES) pane->columns[pane->n_columns++] = i;
    }
    place_panels(p);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static double x_of(const gd_history *h, int64_t row) {
    const double width = WIDTH - LEFT - RIGHT;
    return h->n_rows == 1 ? LEFT + width / 2 : LEFT + width * (double)row / (double)(h->n_rows - 1);
}

static double y_of(const panel *p, double value) {
    return p->top + PANEL * (1 - axis_fraction(&p->y, value));
}

static void draw_tick(plot *p, const panel *pane, double value) {
    char number[32];
    const double y = y_of(pane, value);
    gd_snprintf(number, sizeof number, "%.6g", fabs(value) < pane->y.step * 1e-6 ? 0.0 : value);
    svg_printf(&p->out, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n",
               LEFT, y, WIDTH - RIGHT, y);
    svg_printf(&p->out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
               LEFT - 8, y + 4, number);
}

/* Ticks of a logarithmic axis at 1, 2 and 5 times each power of ten; over more than three decades
 * at the powers only. */
static void draw_log_ticks(plot *p, const panel *pane) {
    static const double parts[] = {1, 2, 5};
    const bool many = pane->y.high / pane->y.low > 1e3;
    for (int power = (int)floor(log10(pane->y.low)); power <= (int)ceil(log10(pane->y.high));
         power++)
        for (int i = 0; i < (many ? 1 : 3); i++) {
            const double value = parts[i] * pow(10, power);
            if (value >= pane->y.low && value <= pane->y.high) draw_tick(p, pane, value);
        }
}

static void draw_axes(plot *p, const panel *pane, bool last) {
    const gd_history *h = p->history;
    const scale *s = &pane->y;
    for (int i = 0; s->step > 0 && s->low + i * s->step <= s->high + s->step * 1e-6; i++)
        draw_tick(p, pane, s->low + i * s->step);
    if (pane->y.step == 0) draw_log_ticks(p, pane);
    const double bottom = pane->top + PANEL;
    int64_t step = h->n_rows > 1 ? (int64_t)ceil(nice_step((double)h->n_rows, 10)) : 1;
    for (int64_t epoch = 1; epoch <= h->n_rows; epoch++) {
        if (epoch % step && !(epoch == 1 && h->n_rows < 2 * step)) continue;
        const double x = x_of(h, epoch - 1);
        svg_printf(&p->out,
                   "<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x,
                   bottom, x, bottom + 4);
        svg_printf(
            &p->out,
            "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%lld</text>\n", x,
            bottom + 18, (long long)epoch);
    }
    svg_printf(&p->out, "<path class=\"axis\" d=\"M%d %.1fV%.1fH%d\"/>\n", LEFT, pane->top, bottom,
               WIDTH - RIGHT);
    if (last)
        svg_printf(
            &p->out,
            "<text class=\"label\" x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">epoch</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, bottom + 36);
}

/* Training and validation curves of a metric have the same colour. */
static const char *colour_of(const panel *pane, const gd_history *h, int number) {
    static const char *const colours[] = {"#2563eb", "#ea580c", "#16a34a",
                                          "#9333ea", "#dc2626", "#0d9488"};
    int index = 0;
    for (int i = 0; i < number; i++) {
        bool before = false, same = strcmp(base_name(h->names[pane->columns[i]]),
                                           base_name(h->names[pane->columns[number]])) == 0;
        for (int k = 0; k < i; k++)
            before |= strcmp(base_name(h->names[pane->columns[k]]),
                             base_name(h->names[pane->columns[i]])) == 0;
        if (same) break;
        index += !before;
    }
    return colours[index % 6];
}

/* A circle: filled for training, hollow for validation. */
static void draw_marker(plot *p, int column, double x, double y, const char *colour) {
    const bool hollow = is_validation(p->history->names[column]);
    svg_printf(&p->out,
               "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\" stroke=\"%s\" "
               "stroke-width=\"1.5\"/>\n",
               x, y, hollow ? "#ffffff" : colour, colour);
}

static void draw_curve(plot *p, const panel *pane, int number) {
    const gd_history *h = p->history;
    const int column = pane->columns[number];
    const char *colour = colour_of(pane, h, number);
    bool drawing = false; /* a NaN ends the line */
    svg_printf(&p->out, "<path class=\"%s\" stroke=\"%s\" d=\"",
               is_validation(h->names[column]) ? "val" : "train", colour);
    for (int64_t row = 0; row < h->n_rows; row++) {
        const double v = value_at(h, column, row);
        if (isfinite(v))
            svg_printf(&p->out, "%c%.1f %.1f", drawing ? 'L' : 'M', x_of(h, row), y_of(pane, v));
        drawing = isfinite(v);
    }
    svg_printf(&p->out, "\"/>\n");
    /* a point without neighbours has no line and needs a marker */
    for (int64_t row = 0; row < h->n_rows; row++) {
        const double v = value_at(h, column, row);
        const bool alone = (row == 0 || !isfinite(value_at(h, column, row - 1))) &&
                           (row + 1 == h->n_rows || !isfinite(value_at(h, column, row + 1)));
        if (isfinite(v) && (h->n_rows <= MARKED_EPOCHS || alone))
            draw_marker(p, column, x_of(h, row), y_of(pane, v), colour);
    }
}

/* The approximate width in pixels of a UTF-8 name in a font of 12 pixels. */
static double text_width(const char *name) {
    double n = 0;
    for (; *name; name++) n += ((unsigned char)*name & 0xC0) != 0x80;
    return 6.9 * n;
}

/* Above the panel, from right to left. */
static void draw_legend(plot *p, const panel *pane) {
    const gd_history *h = p->history;
    double x = WIDTH - RIGHT;
    for (int i = pane->n_columns; i-- > 0;) {
        const char *name = h->names[pane->columns[i]];
        x -= text_width(name) + 40;
        if (x < LEFT + 60) break;
        svg_printf(&p->out, "<path class=\"%s\" stroke=\"%s\" d=\"M%.1f %.1fh20\"/>\n",
                   is_validation(name) ? "val" : "train", colour_of(pane, h, i), x, pane->top - 14);
        if (h->n_rows <= MARKED_EPOCHS)
            draw_marker(p, pane->columns[i], x + 10, pane->top - 14, colour_of(pane, h, i));
        svg_printf(&p->out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">", x + 26, pane->top - 10);
        svg_print_escaped(&p->out, name);
        svg_printf(&p->out, "</text>\n");
    }
}

static void draw_plot(plot *p) {
    svg_printf(
        &p->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\" "
        "font-family=\"Helvetica, Arial, sans-serif\">\n",
        WIDTH, p->height, WIDTH, p->height);
    svg_printf(
        &p->out,
        "<style>.grid{stroke:#e5e7eb}.axis{stroke:#6b7280;fill:none}.tick{font-size:11px;fill:#"
        "4b5563}"
        ".label{font-size:12px;fill:#1f2937}.title{font-size:13px;font-weight:bold;fill:#111827}"
        ".train,.val{fill:none;stroke-width:2;stroke-linejoin:round}.val{stroke-dasharray:6 "
        "3}</style>\n");
    svg_printf(&p->out, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
    for (int k = 0; k < p->n_panels; k++) {
        const panel *pane = &p->panels[k];
        svg_printf(&p->out, "<text class=\"title\" x=\"%d\" y=\"%.1f\">", LEFT, pane->top - 10);
        svg_print_escaped(&p->out, pane->title);
        svg_printf(&p->out, "</text>\n");
        draw_axes(p, pane, k == p->n_panels - 1);
        for (int i = 0; i < pane->n_columns; i++) draw_curve(p, pane, i);
        draw_legend(p, pane);
    }
    svg_printf(&p->out, "</svg>\n");
}

char *gd_history_svg(const gd_history *history) {
    plot *p = gd_calloc(1, sizeof *p);
    if (!p) return NULL;
    p->history = history;
    fill_panels(p);
    draw_plot(p);
    char *svg = p->out.at;
    if (p->out.failed) gd_free(svg), svg = NULL;
    gd_free(p);
    return svg;
}

static gd_status save_plot(const gd_history *history, const char *path) {
    gd_file_writer *writer;
    if (!history || !path)
        return gd_fail(GD_E_ARGUMENT, "the %s is NULL", history ? "path" : "history");
    bool any = false;
    for (int i = 0; i < history->n_columns; i++) {
        double low, high;
        any |= column_range(history, i, &low, &high);
    }
    if (!any) return gd_fail(GD_E_STATE, "the history has no values to plot");
    char *svg = gd_history_svg(history);
    if (!svg) return gd_no_memory(path, "for the image");
    gd_status status = gd_file_writer_begin(&writer, path);
    if (status == GD_OK) {
        status = gd_file_writer_write(writer, svg, strlen(svg));
        if (status == GD_OK) status = gd_file_writer_commit(writer);
        else gd_file_writer_cancel(writer);
    }
    gd_free(svg);
    return status;
}

gd_status gd_history_plot_at(const char *site, const gd_history *history, const char *path) {
    GD_LIVE_AT(site, history);
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    const gd_status status = save_plot(history, path);
    if (status != GD_OK) gd_error_prefix("gd_history_plot: ");
    return gd_report(site, status);
}
