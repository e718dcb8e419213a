/* pytorch_tensor.c - calls that make tensors: torch._utils._rebuild_tensor_v2(storage, offset, size,
 * strides, ...) and its relatives.
 *
 * Order: dtypes; storages; calls; shapes; tensors.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "io/pytorch.h"

/* --- dtypes ----------------------------------------------------------------------------------- */

static const gd_torch_dtype dtypes[] = {
    {"float32", "FloatStorage", 4, GD_F32},
    {"float64", "DoubleStorage", 8, GD_F64},
    {"float16", "HalfStorage", 2, GD_F16},
    {"bfloat16", "BFloat16Storage", 2, GD_BF16},
    {"int64", "LongStorage", 8, GD_I64},
    {"int32", "IntStorage", 4, GD_I32},
    {"int16", "ShortStorage", 2, GD_DTYPE_NONE},
    {"int8", "CharStorage", 1, GD_I8},
    {"uint8", "ByteStorage", 1, GD_U8},
    {"bool", "BoolStorage", 1, GD_BOOL},
    {"complex64", "ComplexFloatStorage", 8, GD_DTYPE_NONE},
    {"complex128", "ComplexDoubleStorage", 16, GD_DTYPE_NONE},
    {"qint8", "QInt8Storage", 1, GD_DTYPE_NONE},
    {"quint8", "QUInt8Storage", 1, GD_DTYPE_NONE},
    {"qint32", "QInt32Storage", 4, GD_DTYPE_NONE},
    {"quint4x2", "QUInt4x2Storage", 1, GD_DTYPE_NONE},
    {"quint2x4", "QUInt2x4Storage", 1, GD_DTYPE_NONE},
    {"complex32", "ComplexHalfStorage", 4, GD_DTYPE_NONE},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static bool same(gd_pickle_text a, const char *b) {
    return a.length == strlen(b) && memcmp(a.at, b, a.length) == 0;
}

const gd_torch_dtype *gd_torch_dtype_named(gd_pickle_text name) {
    for (int i = 0; i < DTYPES; i++)
        if (same(name, dtypes[i].name)) return &dtypes[i];
    return NULL;
}

const gd_torch_dtype *gd_torch_dtype_of_storage(gd_pickle_text name) {
    for (int i = 0; i < DTYPES; i++)
        if (same(name, dtypes[i].storage)) return &dtypes[i];
    return NULL;
}

static char *copy_text(gd_torch *t, gd_pickle_text text) {
    char *copy = gd_pickle_allocate(&t->pickle, text.length + 1);
    if (!copy) return NULL;
    memcpy(copy, text.at, text.length);
    copy[text.length] = 0;
    return copy;
}

/* --- storages --------------------------------------------------------------------------------- */

gd_pickle_value *gd_torch_argument(const gd_pickle_value *arguments, size_t i) {
    const bool has =
        arguments && (arguments->type == GD_PICKLE_TUPLE || arguments->type == GD_PICKLE_LIST);
    return has && i < arguments->count ? arguments->items[i] : NULL;
}

bool gd_torch_integer(const gd_pickle_value *v, int64_t *integer) {
    if (!v || v->type != GD_PICKLE_INT) return false;
    *integer = v->integer;
    return true;
}

/* An id is ("storage", class, key, location, number of elements, view of another storage or None). */
gd_status gd_torch_storage_of(gd_torch *t, const gd_pickle_value *v, gd_torch_storage **out) {
    const gd_pickle_value *id = v && v->type == GD_PICKLE_PERSISTENT ? v->of : NULL;
    const gd_pickle_value *class = gd_torch_argument(id, 1), *key = gd_torch_argument(id, 2);
    *out = NULL;
    if (!gd_pickle_is_text(gd_torch_argument(id, 0), "storage") || !class || !key ||
        class->type != GD_PICKLE_GLOBAL || key->type != GD_PICKLE_TEXT ||
        memchr(key->text.at, 0, key->text.length))
        return GD_OK;
    char *name = copy_text(t, key->text);
    if (!name) return gd_torch_no_memory(t);
    if ((*out = gd_name_map_find(&t->storages, name))) return GD_OK;
    gd_torch_storage *s = gd_pickle_allocate(&t->pickle, sizeof *s);
    if (!s) return gd_torch_no_memory(t);
    *s = (gd_torch_storage){.dtype = gd_torch_dtype_of_storage(class->name), .key = name};
    if (!gd_name_map_add(&t->storages, name, s)) return gd_torch_no_memory(t);
    *out = s;
    return GD_OK;
}

/* --- calls ------------------------------------------------------------------------------------ */

const gd_pickle_value *gd_torch_call(const gd_pickle_value *v, const gd_pickle_value **arguments) {
    *arguments = NULL;
    if (!v || v->type != GD_PICKLE_OBJECT) return NULL;
    const gd_pickle_value *of = v->of, *with = v->arguments;
    /* (function, class, arguments, state): an object of a subclass of Tensor */
    if (gd_pickle_is_global(of, "torch._tensor", "_rebuild_from_type_v2") ||
        gd_pickle_is_global(of, "torch._tensor", "_rebuild_from_type") ||
        gd_pickle_is_global(of, "torch.tensor", "_rebuild_from_type")) {
        of = gd_torch_argument(v->arguments, 0);
        with = gd_torch_argument(v->arguments, 2);
    }
    if (!of || of->type != GD_PICKLE_GLOBAL || !with || with->type != GD_PICKLE_TUPLE) return NULL;
    *arguments = with;
    return of;
}

gd_pickle_value *gd_torch_unwrap(gd_pickle_value *v) {
    for (int i = 0; i < 16 && v; i++) { /* wrappers may contain themselves */
        const gd_pickle_value *with, *of = gd_torch_call(v, &with);
        if (!gd_pickle_is_global(of, "torch._utils", "_rebuild_parameter") &&
            !gd_pickle_is_global(of, "torch._utils", "_rebuild_parameter_with_state") &&
            !gd_pickle_is_global(of, "torch.jit._pickle", "restore_type_tag"))
            return v;
        v = gd_torch_argument(with, 0);
    }
    return v;
}

/* --- shapes ----------------------------------------------------------------------------------- */

/* The items of a tuple, of a list, or of torch.Size. */
static const gd_pickle_value *list_of(const gd_pickle_value *v) {
    const gd_pickle_value *with, *of = gd_torch_call(v, &with);
    if (gd_pickle_is_global(of, "torch", "Size")) v = gd_torch_argument(with, 0);
    return v && (v->type == GD_PICKLE_TUPLE || v->type == GD_PICKLE_LIST) ? v : NULL;
}

static gd_status wrong(const gd_torch_tensor *x, const char *name, const char *what) {
    return gd_fail(GD_E_FORMAT, "%s: the tensor '%s' is wrong: %s", x->of->list->path, name, what);
}

static bool take_sizes(const gd_pickle_value *from, int64_t *to) {
    for (size_t i = 0; i < from->count; i++)
        if (!gd_torch_integer(from->items[i], &to[i]) || to[i] < 0) return false;
    return true;
}

/* Strides without gaps; false if they overflow. */
static bool dense_strides(gd_torch_tensor *x, bool is_fortran) {
    int64_t step = 1;
    for (int i = 0; i < x->rank; i++) {
        const int k = is_fortran ? i : x->rank - 1 - i;
        x->strides[k] = step;
        if (!gd_mul_i64(step, x->dims[k] ? x->dims[k] : 1, &step)) return false;
    }
    return true;
}

/* The position of the last element from the first one; false if it overflows. */
static bool last_position(const gd_torch_tensor *x, int64_t *last) {
    int64_t step;
    *last = 0;
    for (int k = 0; k < x->rank; k++)
        if (!gd_mul_i64(x->dims[k] - 1, x->strides[k], &step) || !gd_add_i64(*last, step, last))
            return false;
    return true;
}

static bool is_row_major(const gd_torch_tensor *x) {
    int64_t step = 1;
    for (int k = x->rank; k-- > 0; step *= x->dims[k])
        if (x->dims[k] != 1 && x->strides[k] != step) return false;
    return true;
}

gd_status gd_torch_set_shape(gd_torch_tensor *x, const char *name, const gd_pickle_value *dims,
                             const gd_pickle_value *strides, bool is_fortran, int64_t offset,
                             uint64_t bytes) {
    uint64_t elements, begin;
    int64_t last, count = 1;
    dims = list_of(dims);
    if (!dims || dims->count > 1000) return wrong(x, name, "its sizes are no list of integers");
    x->rank = (int)dims->count;
    x->dims = gd_pickle_allocate(&x->of->pickle, 2 * dims->count * sizeof *x->dims);
    if (!x->dims) return gd_torch_no_memory(x->of);
    x->strides = x->dims + x->rank;
    if (!take_sizes(dims, x->dims)) return wrong(x, name, "its sizes are no list of integers");
    if (strides) {
        strides = list_of(strides);
        if (!strides || strides->count != dims->count || !take_sizes(strides, x->strides))
            return wrong(x, name, "its strides do not belong to its sizes, or are negative");
    } else if (!dense_strides(x, is_fortran)) {
        return wrong(x, name, "it is too large");
    }
    for (int k = 0; k < x->rank; k++)
        if (x->dims[k] == 0) count = 0;
    for (int k = 0; k < x->rank && count; k++)
        if (!gd_mul_i64(count, x->dims[k], &count)) return wrong(x, name, "it is too large");
    if (x->dtype == GD_DTYPE_NONE || count == 0) return GD_OK;
    if (offset < 0 || !last_position(x, &last) ||
        !gd_mul_u64((uint64_t)last + 1, (uint64_t)x->size, &elements) ||
        !gd_mul_u64((uint64_t)offset, (uint64_t)x->size, &begin) || begin > bytes ||
        elements > bytes - begin)
        return wrong(x, name, "its offset, sizes and strides leave its storage (truncated?)");
    x->is_row_major = is_row_major(x);
    x->extent = elements;
    x->begin += begin;
    return GD_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static gd_torch_tensor *new_tensor(gd_torch *t, const gd_torch_dtype *dtype) {
    gd_torch_tensor *x = gd_pickle_allocate(&t->pickle, sizeof *x);
    if (!x) return NULL;
    *x = (gd_torch_tensor){.of = t, .rank = -1};
    if (dtype) {
        x->dtype = dtype->dtype;
        x->dtype_name = dtype->name;
        x->size = dtype->size;
    }
    return x;
}

static gd_status refuse(gd_torch *t, const char *what, gd_torch_tensor **out) {
    *out = new_tensor(t, NULL);
    if (!*out) return gd_torch_no_memory(t);
    (*out)->dtype_name = what;
    return GD_OK;
}

/* What a function of torch._utils makes that is not read; NULL: it is no such function. */
static const char *refused(const gd_pickle_value *of) {
    static const char *const known[][2] = {
        {"_rebuild_sparse_tensor", "a sparse tensor"},
        {"_rebuild_sparse_csr_tensor", "a sparse tensor"},
        {"_rebuild_qtensor", "a quantized tensor"},
        {"_rebuild_nested_tensor", "a nested tensor"},
        {"_rebuild_meta_tensor_no_storage", "a meta tensor, which has no values"},
        {"_rebuild_device_tensor_from_numpy", "a tensor of another device"},
        {"_rebuild_device_tensor_from_cpu_tensor", "a tensor of another device"},
        {"_rebuild_wrapper_subclass", "a tensor of a subclass without storage"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (same(of->name, known[i][0])) return known[i][1];
    if (of->name.length > 9 && memcmp(of->name.at, "_rebuild_", 9) == 0)
        return "a tensor of a kind that is not known";
    return NULL;
}

/* The dtype of an argument such as torch.uint16; one that is not in the table has only a name. */
static gd_status untyped_dtype(gd_torch *t, const gd_pickle_value *v, gd_torch_tensor *x) {
    if (!v || v->type != GD_PICKLE_GLOBAL) return GD_OK;
    const gd_torch_dtype *d = gd_torch_dtype_named(v->name);
    x->dtype = d ? d->dtype : GD_DTYPE_NONE;
    x->size = d ? d->size : 1;
    x->dtype_name = d ? d->name : copy_text(t, v->name);
    if (x->dtype_name && !*x->dtype_name) x->dtype_name = "without a name";
    return x->dtype_name ? GD_OK : gd_torch_no_memory(t);
}

/* Whether the metadata of a tensor says that its values are those of the storage negated. */
static bool is_negated(const gd_pickle_value *metadata) {
    const gd_pickle_value *neg = gd_pickle_get(metadata, "neg");
    return neg && neg->type == GD_PICKLE_BOOL && neg->integer;
}

/* (storage, offset, size, strides, requires_grad, hooks, metadata); _v3 has the dtype before the
 * metadata. */
static gd_status rebuild(gd_torch *t, const gd_pickle_value *with, bool has_dtype, const char *name,
                         gd_torch_tensor **out) {
    gd_torch_storage *s;
    const gd_pickle_value *storage = gd_torch_argument(with, 0),
                          *view = storage && storage->type == GD_PICKLE_PERSISTENT
                                      ? gd_torch_argument(storage->of, 5)
                                      : NULL;
    int64_t offset, more = 0;
    GD_TRY(gd_torch_storage_of(t, storage, &s));
    if (!s) return refuse(t, "a tensor that was not written by torch.save", out);
    if (is_negated(gd_torch_argument(with, has_dtype ? 7 : 6)))
        return refuse(t, "a tensor with the negative bit", out);
    gd_torch_tensor *x = *out = new_tensor(t, s->dtype);
    if (!x) return gd_torch_no_memory(t);
    if (has_dtype) GD_TRY(untyped_dtype(t, gd_torch_argument(with, 6), x));
    if (!x->dtype_name) return refuse(t, "a tensor of an untyped storage", out);
    if (!gd_torch_integer(gd_torch_argument(with, 1), &offset))
        return wrong(x, name, "its offset is no integer");
    /* (key, offset, size): a storage inside another one, in very old files */
    if (view && view->type == GD_PICKLE_TUPLE &&
        (!gd_torch_integer(gd_torch_argument(view, 1), &more) || more < 0 || offset < 0 ||
         !gd_add_i64(offset, more, &offset)))
        return wrong(x, name, "its storage is no view");
    if (x->dtype != GD_DTYPE_NONE) GD_TRY(gd_torch_find_storage(t, s));
    x->begin = s->begin;
    x->is_swapped = t->is_big_endian && x->size > 1;
    return gd_torch_set_shape(x, name, gd_torch_argument(with, 2), gd_torch_argument(with, 3),
                              false, offset, s->bytes);
}

gd_status gd_torch_tensor_of(gd_torch *t, const gd_pickle_value *v, const char *name,
                             gd_torch_tensor **out) {
    const gd_pickle_value *with, *of = gd_torch_call(v, &with);
    *out = NULL;
    if (!of) return GD_OK;
    if (same(of->module, "torch._utils")) {
        if (same(of->name, "_rebuild_tensor") || same(of->name, "_rebuild_tensor_v2"))
            return rebuild(t, with, false, name, out);
        if (same(of->name, "_rebuild_tensor_v3")) return rebuild(t, with, true, name, out);
        const char *what = refused(of);
        return what ? refuse(t, what, out) : GD_OK;
    }
    return gd_torch_array_of(t, v, name, out);
}
