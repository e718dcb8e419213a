/* pytorch_numpy.c - NumPy's arrays and scalars in pickles.
 *
 * An array is _reconstruct(ndarray, (0,), b'b') with the state (1, shape, dtype, is column-major,
 * bytes), or since protocol 5 _frombuffer(bytes, dtype, shape, order); a scalar is
 * scalar(dtype, bytes). A dtype is dtype("f4", ...) with the state (3, byte order, ...).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/copy.h"
#include "core/number.h"
#include "format/npy.h"
#include "io/pytorch.h"

static bool same(gd_pickle_text a, const char *b) {
    return a.length == strlen(b) && memcmp(a.at, b, a.length) == 0;
}

/* Whether this is NumPy's function; its modules have had several names. */
static bool is_numpy(const gd_pickle_value *of, const char *name) {
    return of && of->type == GD_PICKLE_GLOBAL && of->module.length > 6 &&
           memcmp(of->module.at, "numpy.", 6) == 0 && same(of->name, name);
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* The bytes whose code points the text has: protocol 2 stores them so. */
static bool decode_latin1(gd_torch *t, gd_pickle_text from, gd_pickle_text *to) {
    char *out = gd_pickle_allocate(&t->pickle, from.length + 1);
    size_t n = 0;
    if (!out) return false;
    for (size_t i = 0; i < from.length; i++) {
        const uint8_t c = (uint8_t)from.at[i];
        if (c < 0x80) out[n++] = (char)c;
        else if ((c == 0xc2 || c == 0xc3) && i + 1 < from.length)
            out[n++] = (char)((c & 3) << 6 | ((uint8_t)from.at[++i] & 0x3f));
        else return false;
    }
    *to = (gd_pickle_text){out, n};
    return true;
}

/* Bytes as bytes, as a bytearray, or as text; false: it is none of them. */
static bool bytes_of(gd_torch *t, const gd_pickle_value *v, gd_pickle_text *out) {
    const gd_pickle_value *with, *of = gd_torch_call(v, &with), *text;
    if (!v) return false;
    *out = v->text;
    if (v->type == GD_PICKLE_BYTES || v->type == GD_PICKLE_TEXT) return true;
    text = gd_torch_argument(with, 0);
    if (gd_pickle_is_global(of, "_codecs", "encode"))
        return text && text->type == GD_PICKLE_TEXT && decode_latin1(t, text->text, out);
    if (gd_pickle_is_global(of, "builtins", "bytes") ||
        gd_pickle_is_global(of, "__builtin__", "bytes") ||
        gd_pickle_is_global(of, "builtins", "bytearray") ||
        gd_pickle_is_global(of, "__builtin__", "bytearray")) {
        *out = text && text->type == GD_PICKLE_BYTES ? text->text : (gd_pickle_text){"", 0};
        return !text || text->type == GD_PICKLE_BYTES;
    }
    return false;
}

/* --- dtypes ----------------------------------------------------------------------------------- */

/* "f4" and its like; false: it is no dtype. */
static bool dtype_of(const gd_pickle_value *v, gd_torch_tensor *x) {
    static const struct {
        const char *code;
        int size;
        gd_dtype dtype;
    } known[] = {{"f4", 4, GD_F32}, {"f8", 8, GD_F64}, {"f2", 2, GD_F16}, {"i8", 8, GD_I64},
                 {"i4", 4, GD_I32}, {"i1", 1, GD_I8},  {"u1", 1, GD_U8},  {"b1", 1, GD_BOOL}};
    const gd_pickle_value *with, *of = gd_torch_call(v, &with), *code = gd_torch_argument(with, 0);
    if (!gd_pickle_is_global(of, "numpy", "dtype") || !code ||
        (code->type != GD_PICKLE_TEXT && code->type != GD_PICKLE_BYTES))
        return false;
    x->dtype = GD_DTYPE_NONE;
    x->dtype_name = "a NumPy array of a dtype that no tensor has";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (same(code->text, known[i].code)) {
            x->dtype = known[i].dtype;
            x->dtype_name = gd_dtype_name(x->dtype);
            x->size = known[i].size;
        }
    x->is_swapped = gd_pickle_is_text(gd_torch_argument(v->state, 1), ">") && x->size > 1;
    return true;
}

/* --- arrays and scalars ----------------------------------------------------------------------- */

static gd_status wrong(const gd_torch *t, const char *name) {
    return gd_fail(GD_E_FORMAT, "%s: the NumPy array '%s' is wrong", t->list->path, name);
}

gd_status gd_torch_array_of(gd_torch *t, const gd_pickle_value *v, const char *name,
                            gd_torch_tensor **out) {
    const gd_pickle_value *with, *of = gd_torch_call(v, &with), *dims, *dtype, *data, *order;
    *out = NULL;
    if (is_numpy(of, "_reconstruct") && v->state) {
        dims = gd_torch_argument(v->state, 1);
        dtype = gd_torch_argument(v->state, 2);
        order = gd_torch_argument(v->state, 3);
        data = gd_torch_argument(v->state, 4);
    } else if (is_numpy(of, "_frombuffer")) {
        data = gd_torch_argument(with, 0);
        dtype = gd_torch_argument(with, 1);
        dims = gd_torch_argument(with, 2);
        order = gd_torch_argument(with, 3);
    } else {
        return GD_OK;
    }
    gd_torch_tensor *x = gd_pickle_allocate(&t->pickle, sizeof *x);
    if (!x) return gd_torch_no_memory(t);
    *x = (gd_torch_tensor){.of = t, .rank = -1};
    if (!dtype_of(dtype, x)) return wrong(t, name);
    *out = x;
    if (x->dtype == GD_DTYPE_NONE) return GD_OK;
    gd_pickle_text bytes;
    if (!bytes_of(t, data, &bytes)) return wrong(t, name);
    const bool is_fortran =
        gd_pickle_is_text(order, "F") || (order && order->type == GD_PICKLE_BOOL && order->integer);
    x->bytes = (const uint8_t *)bytes.at;
    return gd_torch_set_shape(x, name, dims, NULL, is_fortran, 0, bytes.length);
}

gd_status gd_torch_scalar_of(gd_torch *t, const gd_pickle_value *v, const char **out) {
    const gd_pickle_value *with, *of = gd_torch_call(v, &with);
    gd_torch_tensor x = {.of = t};
    gd_pickle_text bytes;
    uint8_t item[8];
    *out = NULL;
    if (!is_numpy(of, "scalar") || !dtype_of(gd_torch_argument(with, 0), &x) ||
        x.dtype == GD_DTYPE_NONE || !bytes_of(t, gd_torch_argument(with, 1), &bytes) ||
        bytes.length != (size_t)x.size)
        return GD_OK;
    memcpy(item, bytes.at, bytes.length);
    if (x.is_swapped) gd_npy_swap(item, 1, x.size);
    char *text = gd_pickle_allocate(&t->pickle, GD_DOUBLE_TEXT);
    if (!text) return gd_torch_no_memory(t);
    *out = text;
    if (!gd_dtype_is_float(x.dtype)) {
        snprintf(text, GD_DOUBLE_TEXT, "%" PRId64, gd_load_i64(x.dtype, item));
        return GD_OK;
    }
    const double number = gd_load_f64(x.dtype, item);
    if (isfinite(number))
        gd_double_print(text, x.dtype == GD_F32 ? gd_float_shortest((float)number) : number);
    else strcpy(text, isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
    return GD_OK;
}
