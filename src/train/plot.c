/* plot.c - a history as an SVG picture.
 *
 * One panel under the other, over the same axis of epochs: losses; metrics between 0 and 1; and one
 * panel for each other metric, since their scales have nothing in common. Curves of training are
 * solid, those of validation dashed in the same colour. NaN is a gap.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/number.h"
#include "format/file.h"
#include "train/history.h"

enum {
    WIDTH = 760,
    LEFT = 64,
    RIGHT = 24,
    TOP = 44,
    PANEL = 220,
    GAP = 60,
    BOTTOM = 46,
    MOST_PANELS = 8,
    MOST_CURVES = 24
};
enum { FEW = 25 }; /* epochs whose points are drawn */

/* --- text ------------------------------------------------------------------------------------- */

typedef struct text {
    char *at;
    size_t used, room;
    bool failed;
} text;

static void put(text *t, const char *format, ...) GD_PRINTF(2, 3);
static void put(text *t, const char *format, ...) {
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

/* Names are the program's: what XML gives a meaning is escaped, control characters are left out. */
static void put_escaped(text *t, const char *name) {
    for (; *name; name++) {
        const char *code = *name == '<'   ? "&lt;"
                           : *name == '>' ? "&gt;"
                           : *name == '&' ? "&amp;"
                           : *name == '"' ? "&quot;"
                                          : NULL;
        if (code) put(t, "%s", code);
        else if ((unsigned char)*name >= 0x20) put(t, "%c", *name);
    }
}

/* --- scales ----------------------------------------------------------------------------------- */

typedef struct scale {
    double low, high; /* of the axis */
    double step;      /* between ticks; 0: a logarithmic axis */
} scale;

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

/* Values over several decades have a logarithmic axis. */
static scale scale_of(double low, double high) {
    if (low > 0 && high / low > 100) return (scale){low / 1.1, high * 1.1, 0};
    return linear_scale(low, high);
}

static double place(const scale *s, double value) { /* 0 at the bottom, 1 at the top */
    return s->step > 0 ? (value - s->low) / (s->high - s->low)
                       : log(value / s->low) / log(s->high / s->low);
}

/* --- panels ----------------------------------------------------------------------------------- */

typedef struct panel {
    char title[80];
    int columns[MOST_CURVES], n_columns;
    scale y;
    double top; /* in pixels */
} panel;

typedef struct plot {
    const gd_history *history;
    panel panels[MOST_PANELS];
    int n_panels, height;
    text out;
} plot;

static const char *base_name(const char *name) {
    return strncmp(name, "val_", 4) == 0 ? name + 4 : name;
}
static bool is_validation(const char *name) { return base_name(name) != name; }

static double value_at(const gd_history *h, int column, int64_t row) {
    return h->values[row * h->n_columns + column];
}

/* The finite values of columns of this name, with and without "val_"; false: none. */
static bool range_of(const gd_history *h, int column, double *low, double *high) {
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

static bool is_share(const gd_history *h, const char *base) {
    for (int i = 0; i < h->n_columns; i++) {
        double low = 0, high = 0;
        if (strcmp(base_name(h->names[i]), base) == 0 && range_of(h, i, &low, &high) &&
            (low < 0 || high > 1))
            return false;
    }
    return true;
}

static panel *panel_for(plot *p, const char *base) {
    const char *title = strcmp(base, "loss") == 0    ? "loss"
                        : is_share(p->history, base) ? "metrics"
                                                     : base;
    for (int i = 0; i < p->n_panels; i++)
        if (strcmp(p->panels[i].title, title) == 0) return &p->panels[i];
    if (p->n_panels == MOST_PANELS) return NULL;
    panel *own = &p->panels[p->n_panels++];
    snprintf(own->title, sizeof own->title, "%s", title);
    return own;
}

static void fill_panels(plot *p) {
    const gd_history *h = p->history;
    for (int i = 0; i < h->n_columns; i++) {
        double low, high;
        const char *base = base_name(h->names[i]);
        if (strcmp(base, "lr") == 0 || strcmp(base, "seconds") == 0 || !range_of(h, i, &low, &high))
            continue;
        panel *own = panel_for(p, base);
        if (own && own->n_columns < MOST_CURVES) own->columns[own->n_columns++] = i;
    }
    double top = TOP;
    for (int k = 0; k < p->n_panels; k++) {
        panel *own = &p->panels[k];
        double low = INFINITY, high = -INFINITY;
        for (int i = 0; i < own->n_columns; i++) {
            double a = 0, b = 0;
            range_of(h, own->columns[i], &a, &b);
            if (a < low) low = a;
            if (b > high) high = b;
        }
        const bool shares = strcmp(own->title, "metrics") == 0;
        own->y = shares ? linear_scale(low, high) : scale_of(low, high);
        if (shares && own->y.low < 0) own->y.low = 0;
        if (shares && own->y.high > 1) own->y.high = 1;
        own->top = top;
        top += PANEL + GAP;
    }
    p->height = (int)(top - GAP + BOTTOM);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static double x_of(const gd_history *h, int64_t row) {
    const double room = WIDTH - LEFT - RIGHT;
    return h->n_rows == 1 ? LEFT + room / 2 : LEFT + room * (double)row / (double)(h->n_rows - 1);
}

static double y_of(const panel *p, double value) {
    return p->top + PANEL * (1 - place(&p->y, value));
}

static void draw_tick(plot *p, const panel *own, double value) {
    char number[32];
    const double y = y_of(own, value);
    gd_snprintf(number, sizeof number, "%.6g", fabs(value) < own->y.step * 1e-6 ? 0.0 : value);
    put(&p->out, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n", LEFT, y,
        WIDTH - RIGHT, y);
    put(&p->out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
        LEFT - 8, y + 4, number);
}

/* 1, 2 and 5 times powers of ten; powers alone where there are many. */
static void draw_decades(plot *p, const panel *own) {
    static const double parts[] = {1, 2, 5};
    const bool many = own->y.high / own->y.low > 1e3;
    for (int power = (int)floor(log10(own->y.low)); power <= (int)ceil(log10(own->y.high)); power++)
        for (int i = 0; i < (many ? 1 : 3); i++) {
            const double value = parts[i] * pow(10, power);
            if (value >= own->y.low && value <= own->y.high) draw_tick(p, own, value);
        }
}

static void draw_axes(plot *p, const panel *own, bool last) {
    const gd_history *h = p->history;
    for (int i = 0;
         own->y.step > 0 && own->y.low + i * own->y.step <= own->y.high + own->y.step * 1e-6; i++)
        draw_tick(p, own, own->y.low + i * own->y.step);
    if (own->y.step == 0) draw_decades(p, own);
    const double bottom = own->top + PANEL;
    int64_t step = h->n_rows > 1 ? (int64_t)ceil(nice_step((double)h->n_rows, 10)) : 1;
    for (int64_t epoch = 1; epoch <= h->n_rows; epoch++) {
        if (epoch % step && !(epoch == 1 && h->n_rows < 2 * step)) continue;
        const double x = x_of(h, epoch - 1);
        put(&p->out, "<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x,
            bottom, x, bottom + 4);
        put(&p->out,
            "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%lld</text>\n", x,
            bottom + 18, (long long)epoch);
    }
    put(&p->out, "<path class=\"axis\" d=\"M%d %.1fV%.1fH%d\"/>\n", LEFT, own->top, bottom,
        WIDTH - RIGHT);
    if (last)
        put(&p->out,
            "<text class=\"label\" x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">epoch</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, bottom + 36);
}

/* Curves of one metric have one colour. */
static const char *colour_of(const panel *own, const gd_history *h, int number) {
    static const char *const colours[] = {"#2563eb", "#ea580c", "#16a34a",
                                          "#9333ea", "#dc2626", "#0d9488"};
    int index = 0;
    for (int i = 0; i < number; i++) {
        bool before = false, same = strcmp(base_name(h->names[own->columns[i]]),
                                           base_name(h->names[own->columns[number]])) == 0;
        for (int k = 0; k < i; k++)
            before |= strcmp(base_name(h->names[own->columns[k]]),
                             base_name(h->names[own->columns[i]])) == 0;
        if (same) break;
        index += !before;
    }
    return colours[index % 6];
}

/* Filled for training, hollow for validation. */
static void draw_point(plot *p, int column, double x, double y, const char *colour) {
    const bool hollow = is_validation(p->history->names[column]);
    put(&p->out,
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\" stroke=\"%s\" "
        "stroke-width=\"1.5\"/>\n",
        x, y, hollow ? "#ffffff" : colour, colour);
}

static void draw_curve(plot *p, const panel *own, int number) {
    const gd_history *h = p->history;
    const int column = own->columns[number];
    const char *colour = colour_of(own, h, number);
    bool open = false;
    put(&p->out, "<path class=\"%s\" stroke=\"%s\" d=\"",
        is_validation(h->names[column]) ? "val" : "train", colour);
    for (int64_t row = 0; row < h->n_rows; row++) {
        const double v = value_at(h, column, row);
        if (isfinite(v)) put(&p->out, "%c%.1f %.1f", open ? 'L' : 'M', x_of(h, row), y_of(own, v));
        open = isfinite(v);
    }
    put(&p->out, "\"/>\n");
    /* single points, and those of a few epochs, would not be seen as lines */
    for (int64_t row = 0; row < h->n_rows; row++) {
        const double v = value_at(h, column, row);
        const bool alone = (row == 0 || !isfinite(value_at(h, column, row - 1))) &&
                           (row + 1 == h->n_rows || !isfinite(value_at(h, column, row + 1)));
        if (isfinite(v) && (h->n_rows <= FEW || alone))
            draw_point(p, column, x_of(h, row), y_of(own, v), colour);
    }
}

/* About the width of a name at 12 pixels. */
static double text_width(const char *name) {
    double n = 0;
    for (; *name; name++) n += ((unsigned char)*name & 0xC0) != 0x80;
    return 6.9 * n;
}

/* Above the panel, from the right. */
static void draw_legend(plot *p, const panel *own) {
    const gd_history *h = p->history;
    double x = WIDTH - RIGHT;
    for (int i = own->n_columns; i-- > 0;) {
        const char *name = h->names[own->columns[i]];
        x -= text_width(name) + 40;
        if (x < LEFT + 60) break;
        put(&p->out, "<path class=\"%s\" stroke=\"%s\" d=\"M%.1f %.1fh20\"/>\n",
            is_validation(name) ? "val" : "train", colour_of(own, h, i), x, own->top - 14);
        if (h->n_rows <= FEW)
            draw_point(p, own->columns[i], x + 10, own->top - 14, colour_of(own, h, i));
        put(&p->out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">", x + 26, own->top - 10);
        put_escaped(&p->out, name);
        put(&p->out, "</text>\n");
    }
}

static void draw(plot *p) {
    put(&p->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\" "
        "font-family=\"Helvetica, Arial, sans-serif\">\n",
        WIDTH, p->height, WIDTH, p->height);
    put(&p->out,
        "<style>.grid{stroke:#e5e7eb}.axis{stroke:#6b7280;fill:none}.tick{font-size:11px;fill:#"
        "4b5563}"
        ".label{font-size:12px;fill:#1f2937}.title{font-size:13px;font-weight:bold;fill:#111827}"
        ".train,.val{fill:none;stroke-width:2;stroke-linejoin:round}.val{stroke-dasharray:6 "
        "3}</style>\n");
    put(&p->out, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
    for (int k = 0; k < p->n_panels; k++) {
        const panel *own = &p->panels[k];
        put(&p->out, "<text class=\"title\" x=\"%d\" y=\"%.1f\">", LEFT, own->top - 10);
        put_escaped(&p->out, own->title);
        put(&p->out, "</text>\n");
        draw_axes(p, own, k == p->n_panels - 1);
        for (int i = 0; i < own->n_columns; i++) draw_curve(p, own, i);
        draw_legend(p, own);
    }
    put(&p->out, "</svg>\n");
}

char *gd_history_svg(const gd_history *history) {
    plot *p = gd_calloc(1, sizeof *p);
    if (!p) return NULL;
    p->history = history;
    fill_panels(p);
    draw(p);
    char *svg = p->out.at;
    if (p->out.failed) gd_free(svg), svg = NULL;
    gd_free(p);
    return svg;
}

static gd_status save(const gd_history *history, const char *path) {
    gd_file_writer *writer;
    if (!history || !path)
        return gd_fail(GD_E_ARGUMENT, "the %s is NULL", history ? "path" : "history");
    bool any = false;
    for (int i = 0; i < history->n_columns; i++) {
        double low, high;
        any |= range_of(history, i, &low, &high);
    }
    if (!any) return gd_fail(GD_E_STATE, "the history has no values to plot");
    char *svg = gd_history_svg(history);
    if (!svg) return gd_fail(GD_E_MEMORY, "no memory for a picture");
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
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    const gd_status status = save(history, path);
    if (status != GD_OK) gd_error_prefix("gd_history_plot: ");
    return gd_report(site, status);
}
