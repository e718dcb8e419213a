/* print.c - tensors as text (gradus/print.h), by the rules of NumPy 2.4's array2string. */
#include "gradus/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "core/freed.h"
#include "core/alloc.h"
#include "core/copy.h"
#include "core/decimal.h"
#include "core/tensor.h"

/* --- a growing text --------------------------------------------------------------------------- */

typedef struct text {
    char *at;
    size_t length, capacity;
    bool failed; /* out of memory: the rest is dropped */
} text;

static void put_bytes(text *t, const char *bytes, size_t count) {
    if (t->failed) return;
    if (t->capacity - t->length <= count) {
        size_t capacity = 2 * (t->length + count) + 256;
        char *grown = gd_realloc(t->at, capacity);
        if (!grown) {
            t->failed = true;
            return;
        }
        t->at = grown;
        t->capacity = capacity;
    }
    memcpy(t->at + t->length, bytes, count);
    t->length += count;
    t->at[t->length] = 0;
}

static void put_text(text *t, const char *s) { put_bytes(t, s, strlen(s)); }

static void put_repeated(text *t, char c, int count) {
    for (; count > 0; count--) put_bytes(t, &c, 1);
}

static void strip_spaces(text *t) {
    while (t->length > 0 && t->at[t->length - 1] == ' ') t->length--;
}

/* --- one element ------------------------------------------------------------------------------ */

/* The format of all elements of a tensor, which aligns them in columns. */
typedef struct format {
    gd_dtype dtype;
    int precision;   /* most digits after the decimal point */
    int width;       /* integers and bools */
    bool scientific; /* 1.5e+00 */
    int left, right; /* floats: columns before the point (including the sign) and after it */
    int exponent;    /* scientific: digits of the exponent */
} format;

enum { WORD = 128 }; /* the longest element; numbers with more digits have an exponent */
typedef struct word {
    char at[WORD];
    int length;
} word;

static void add_bytes(word *w, const char *bytes, int count) {
    if (count > WORD - 1 - w->length) count = WORD - 1 - w->length;
    memcpy(w->at + w->length, bytes, (size_t)(count > 0 ? count : 0));
    w->length += count > 0 ? count : 0;
    w->at[w->length] = 0;
}

static void add_repeated(word *w, char c, int count) {
    for (; count > 0; count--) add_bytes(w, &c, 1);
}

/* Adds the digits before the point, or "0". Returns their number. */
static int add_integer_part(word *w, const gd_decimal *d, int point) {
    if (point <= 0) {
        add_bytes(w, "0", 1);
        return 1;
    }
    add_bytes(w, d->digits, d->count < point ? d->count : point);
    add_repeated(w, '0', point - d->count);
    return point;
}

/* Adds the digits after the point. Returns their number. */
static int add_fraction(word *w, const gd_decimal *d, int point) {
    int zeros = point < 0 ? -point : 0, start = point > 0 ? point : 0;
    if (start >= d->count || (d->count == 1 && d->digits[0] == '0')) return 0;
    add_repeated(w, '0', zeros);
    add_bytes(w, d->digits + start, d->count - start);
    return zeros + d->count - start;
}

/* Adds "e+05" with at least `digits` digits. Returns their number. */
static int add_exponent(word *w, int exponent, int digits) {
    char number[16];
    int length = snprintf(number, sizeof number, "%d", exponent < 0 ? -exponent : exponent);
    add_bytes(w, exponent < 0 ? "e-" : "e+", 2);
    add_repeated(w, '0', digits - length);
    add_bytes(w, number, length);
    return digits > length ? digits : length;
}

static const char *nonfinite_text(double value) {
    return isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
}

static void pad_left(word *w, int width) {
    word padded = {.length = 0};
    add_repeated(&padded, ' ', width - w->length);
    add_bytes(&padded, w->at, w->length);
    *w = padded;
}

static word float_word(const format *f, double value) {
    word w = {.length = 0};
    if (!isfinite(value)) {
        add_bytes(&w, nonfinite_text(value), (int)strlen(nonfinite_text(value)));
        pad_left(&w, f->left + 1 + f->right);
        return w;
    }
    if (signbit(value)) add_bytes(&w, "-", 1);
    if (f->scientific) {
        gd_decimal d = gd_decimal_of(f->dtype, value, true, f->precision, f->precision);
        add_integer_part(&w, &d, 1);
        pad_left(&w, f->left);
        add_bytes(&w, ".", 1);
        add_repeated(&w, '0', f->precision - add_fraction(&w, &d, 1));
        add_exponent(&w, value == 0 ? 0 : d.point - 1, f->exponent);
        return w;
    }
    gd_decimal d = gd_decimal_of(f->dtype, value, false, -1, f->precision);
    add_integer_part(&w, &d, d.point);
    pad_left(&w, f->left);
    add_bytes(&w, ".", 1);
    add_repeated(&w, ' ', f->right - add_fraction(&w, &d, d.point));
    return w;
}

static word element_word(const format *f, const void *element) {
    word w = {.length = 0};
    if (gd_dtype_is_float(f->dtype)) return float_word(f, gd_load_f64(f->dtype, element));
    int64_t value = gd_load_i64(f->dtype, element);
    if (f->dtype == GD_BOOL) {
        const char *name = value ? "True" : "False";
        add_bytes(&w, name, (int)strlen(name));
    } else {
        char number[32];
        add_bytes(&w, number, snprintf(number, sizeof number, "%" PRId64, value));
    }
    pad_left(&w, f->width);
    return w;
}

/* --- which elements are shown ----------------------------------------------------------------- */

typedef struct printer {
    gd_view view; /* on the host */
    const gd_print_options *options;
    bool summary;
    format format;
    text *text;
} printer;

/* Whether the middle of this dimension is abbreviated by dots. */
static bool is_abbreviated(const printer *p, int axis) {
    return p->summary && p->view.dims[axis] > 2 * (int64_t)p->options->edge_items;
}

/* The index that is shown after i. */
static int64_t next_shown(const printer *p, int axis, int64_t i) {
    bool jump = is_abbreviated(p, axis) && i + 1 == p->options->edge_items;
    return jump ? p->view.dims[axis] - p->options->edge_items : i + 1;
}

static int64_t first_shown(const printer *p, int axis) {
    return is_abbreviated(p, axis) && p->options->edge_items == 0 ? p->view.dims[axis] : 0;
}

typedef void (*visitor)(void *user, const void *element);

static void visit_shown(const printer *p, int axis, const char *at, visitor see, void *user) {
    if (axis == p->view.rank) {
        see(user, at);
        return;
    }
    int64_t step = p->view.strides[axis] * (int64_t)gd_dtype_size(p->view.dtype);
    for (int64_t i = first_shown(p, axis); i < p->view.dims[axis]; i = next_shown(p, axis, i))
        visit_shown(p, axis + 1, at + i * step, see, user);
}

/* --- choosing the format ---------------------------------------------------------------------- */

typedef struct range {
    gd_dtype dtype;
    double least, most; /* absolute values of finite numbers other than 0 */
    bool finite, nonfinite, minus_infinity;
} range;

static void see_range(void *user, const void *element) {
    range *r = user;
    double value = gd_load_f64(r->dtype, element), size = fabs(value);
    if (!isfinite(value)) {
        r->nonfinite = true;
        r->minus_infinity |= isinf(value) && value < 0;
        return;
    }
    r->finite = true;
    if (size == 0) return;
    if (size > r->most) r->most = size;
    if (size < r->least) r->least = size;
}

/* Rounds a number to the dtype: NumPy compares and divides in the dtype of the array. */
static double round_to_dtype(gd_dtype dtype, double value) {
    char bytes[8];
    gd_store_f64(dtype, bytes, value);
    return gd_load_f64(dtype, bytes);
}

/* The limit above which positional notation would show more digits than the dtype has. */
static double largest_positional(gd_dtype dtype, double limit) {
    double own = dtype == GD_F64 ? 1e16 : dtype == GD_F16 ? 1e3 : 1e6;
    return own < limit ? own : limit;
}

static bool needs_exponent(const range *r) {
    if (r->most == 0) return false;
    return r->most >= largest_positional(r->dtype, 1e8) ||
           r->least < round_to_dtype(r->dtype, 1e-4) ||
           round_to_dtype(r->dtype, r->most / r->least) > 1000;
}

/* Widens the columns of the format for an element. */
static void see_float(void *user, const void *element) {
    format *f = user;
    double value = gd_load_f64(f->dtype, element);
    if (!isfinite(value)) return;
    gd_decimal d = gd_decimal_of(f->dtype, value, f->scientific, -1, f->precision);
    int point = f->scientific ? 1 : d.point;
    word scratch = {.length = 0};
    int left = add_integer_part(&scratch, &d, point) + (signbit(value) != 0);
    int right = add_fraction(&scratch, &d, point);
    int exponent = add_exponent(&scratch, value == 0 ? 0 : d.point - 1, 2);
    if (left > f->left) f->left = left;
    if (right > f->right) f->right = right;
    if (exponent > f->exponent) f->exponent = exponent;
}

static void see_integer(void *user, const void *element) {
    format *f = user;
    int width = element_word(f, element).length;
    if (width > f->width) f->width = width;
}

static void choose_format(printer *p) {
    format *f = &p->format;
    *f = (format){.dtype = p->view.dtype, .precision = p->options->precision};
    if (!gd_dtype_is_float(f->dtype)) {
        format plain = *f;
        visit_shown(p, 0, p->view.data, see_integer, &plain);
        f->width = f->dtype == GD_BOOL ? 5 : plain.width;
        return;
    }
    range r = {.dtype = f->dtype, .least = INFINITY};
    visit_shown(p, 0, p->view.data, see_range, &r);
    f->scientific = needs_exponent(&r);
    visit_shown(p, 0, p->view.data, see_float, f);
    if (f->scientific) {
        f->precision = f->right;
        f->right += f->exponent + 2; /* nan and inf are aligned with the exponent */
    }
    if (!r.nonfinite) return;
    int wide = 3 + r.minus_infinity - f->right - 1; /* for "nan" or "-inf" */
    if (wide > f->left) f->left = wide;
}

/* --- brackets and lines ----------------------------------------------------------------------- */

/* Writes one row, wrapped. Lines start after `indent` columns, which include the brackets. */
static void put_row(const printer *p, const char *at) {
    int axis = p->view.rank - 1, indent = axis + 1, column = indent;
    int width = p->options->line_width - axis - 1;
    int64_t size = p->view.dims[axis];
    int64_t step = p->view.strides[axis] * (int64_t)gd_dtype_size(p->view.dtype);
    bool dots = is_abbreviated(p, axis);
    int64_t i = first_shown(p, axis);
    for (;;) {
        word w = {.length = 0};
        bool here = dots && i >= p->options->edge_items;
        if (here) {
            add_bytes(&w, "...", 3);
            dots = false;
        } else if (i < size) w = element_word(&p->format, at + i * step);
        else break;
        if (column + w.length > width && column > indent) {
            strip_spaces(p->text);
            put_text(p->text, "\n");
            put_repeated(p->text, ' ', indent);
            column = indent;
        }
        put_bytes(p->text, w.at, (size_t)w.length);
        if (!here) i = next_shown(p, axis, i);
        if (i >= size && !dots) break;
        put_text(p->text, " ");
        column += w.length + 1;
    }
}

static void put_array(const printer *p, int axis, const char *at) {
    put_text(p->text, "[");
    if (axis == p->view.rank - 1) put_row(p, at);
    else {
        int64_t size = p->view.dims[axis], i = first_shown(p, axis);
        int64_t step = p->view.strides[axis] * (int64_t)gd_dtype_size(p->view.dtype);
        for (bool dots = is_abbreviated(p, axis), first = true; i < size || dots; first = false) {
            if (!first) {
                put_repeated(p->text, '\n', p->view.rank - axis - 1);
                put_repeated(p->text, ' ', axis + 1);
            }
            if (dots && i >= p->options->edge_items) {
                put_text(p->text, "...");
                dots = false;
                continue;
            }
            put_array(p, axis + 1, at + i * step);
            i = next_shown(p, axis, i);
        }
    }
    put_text(p->text, "]");
}

/* Writes a tensor of rank 0: a number with all its digits. */
static void put_number(text *out, gd_dtype dtype, const void *element) {
    word w = {.length = 0};
    double value = gd_dtype_is_float(dtype) ? gd_load_f64(dtype, element) : 0;
    if (!gd_dtype_is_float(dtype)) w = element_word(&(format){.dtype = dtype}, element);
    else if (!isfinite(value))
        add_bytes(&w, nonfinite_text(value), (int)strlen(nonfinite_text(value)));
    else {
        double size = fabs(value);
        bool plain = size == 0 || (size >= 1e-4 && size < largest_positional(dtype, 1e16));
        gd_decimal d = gd_decimal_shortest(dtype, value);
        int point = plain ? d.point : 1;
        if (signbit(value)) add_bytes(&w, "-", 1);
        add_integer_part(&w, &d, point);
        if (plain || d.count > 1) add_bytes(&w, ".", 1);
        if (add_fraction(&w, &d, point) == 0 && plain) add_bytes(&w, "0", 1);
        if (!plain) add_exponent(&w, d.point - 1, 2);
    }
    put_bytes(out, w.at, (size_t)w.length);
}

/* --- public ----------------------------------------------------------------------------------- */

/* The elements in host memory; free *copy. */
static gd_status host_view(const gd_tensor *t, gd_view *view, void **copy) {
    *view = gd_view_of(t);
    *copy = NULL;
    if (t->device->api->host_reads) return GD_OK;
    size_t bytes = (size_t)gd_numel(t->rank, t->dims) * gd_dtype_bytes(t->dtype);
    if (bytes == 0) return GD_OK;
    *copy = gd_malloc(bytes);
    if (!*copy) return gd_fail(GD_E_MEMORY, "no memory to print %zu bytes", bytes);
    view->data = *copy;
    gd_row_major(view->rank, view->dims, view->strides);
    return gd_copy_out(t, *copy, bytes);
}

static void put_value(text *out, const gd_tensor *t, const gd_print_options *options) {
    gd_print_options o = *options;
    if (o.precision < 0) o.precision = 0;
    if (o.precision > 20) o.precision = 20;
    if (o.edge_items < 0) o.edge_items = 0;
    int64_t numel = gd_numel(t->rank, t->dims);
    printer p = {.options = &o, .text = out, .summary = numel > o.threshold};
    void *copy;
    if (host_view(t, &p.view, &copy) != GD_OK) {
        put_text(out, "<");
        put_text(out, gd_this_thread.latest_text);
        put_text(out, ">");
    } else if (numel == 0) {
        put_text(out, "[]");
    } else if (t->rank == 0) {
        put_number(out, p.view.dtype, p.view.data);
    } else {
        choose_format(&p);
        put_array(&p, 0, p.view.data);
    }
    gd_free(copy);
}

static void put_tensor(text *out, const gd_tensor *t, const gd_print_options *options) {
    char shape[160];
    if (t && t->kind == GD_VALUE) {
        put_value(out, t, options);
        if (!options->describe) return;
        put_text(out, "\n");
        put_text(out, gd_describe(t, shape, sizeof shape));
        return;
    }
    put_text(out, "<");
    if (!t) put_text(out, "NULL");
    else if (gd_is_freed(t)) {
        gd_report(NULL, gd_check_freed(t, "gd_print"));
        put_text(out, gd_latest_failure());
    } else if (t->kind == GD_FAILED) put_text(out, gd_failed() ? gd_error_message() : "failed");
    else {
        put_text(out, "symbol ");
        put_text(out, gd_describe(t, shape, sizeof shape));
    }
    put_text(out, ">");
}

gd_status gd_fprint_with(FILE *stream, const gd_tensor *t, const gd_print_options *options) {
    text out = {.at = NULL};
    if (!stream) return gd_report(NULL, gd_fail(GD_E_ARGUMENT, "gd_fprint: the stream is NULL"));
    put_tensor(&out, t, options ? options : GD_PRINT_OPTIONS_());
    put_text(&out, "\n");
    gd_status status = GD_OK;
    if (out.failed) status = gd_no_memory(NULL, "for the text of a tensor");
    else if (fwrite(out.at, 1, out.length, stream) != out.length)
        status = gd_fail(GD_E_IO, "gd_fprint: the stream could not be written");
    gd_free(out.at);
    return gd_report(NULL, status);
}

size_t gd_to_text_with(const gd_tensor *t, char *buffer, size_t size,
                       const gd_print_options *options) {
    text out = {.at = NULL};
    if (!buffer) size = 0;
    put_tensor(&out, t, options ? options : GD_PRINT_OPTIONS_());
    size_t fits = out.length < size ? out.length : size > 0 ? size - 1 : 0;
    if (size > 0) {
        if (fits > 0) memcpy(buffer, out.at, fits);
        buffer[fits] = 0;
    }
    size_t length = out.length;
    gd_free(out.at);
    return length;
}
