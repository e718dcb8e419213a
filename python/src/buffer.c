/* buffer.c - the buffer protocol, both ways: NumPy's arrays, array.array, bytes, memoryview, PIL's images.
 *
 * Order: formats; from buffers; arrays through NumPy; tensors as buffers.
 */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

#include "interop.h"

/* --- formats ---------------------------------------------------------------------------------- */

static bool machine_is_little(void) { return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__; }

/* The dtype of the elements of a buffer, and whether their bytes are in the other order. The size decides
 * about integers: exporters disagree about what "l" is. */
static bool read_format(const Py_buffer *view, gd_dtype *dtype, bool *swapped) {
    const char *format = view->format ? view->format : "B", *whole = format;
    *swapped = false;
    if (*format && strchr("@=<>!", *format)) {
        *swapped = *format == '<' ? !machine_is_little()
                                  : (*format == '>' || *format == '!') && machine_is_little();
        format++;
    }
    const int bits = (int)view->itemsize * 8;
    const bool single = *format && !format[1];
    const bool is_int = single && strchr("bhilqn", *format),
               is_uint = single && strchr("BHILQN", *format);
    *dtype = GD_DTYPE_NONE;
    if (single && *format == '?') *dtype = GD_BOOL;
    else if (is_int) *dtype = bits == 8 ? GD_I8 : bits == 32 ? GD_I32 : bits == 64 ? GD_I64 : 0;
    else if (is_uint) *dtype = bits == 8 ? GD_U8 : 0;
    else if (single && *format == 'e') *dtype = GD_F16;
    else if (single && *format == 'f') *dtype = GD_F32;
    else if (single && *format == 'd') *dtype = GD_F64;
    if (*dtype != GD_DTYPE_NONE && (Py_ssize_t)gd_dtype_size(*dtype) == view->itemsize) return true;
    PyObject *error = gdpy_exception_of(GD_E_DTYPE);
    if (is_int || is_uint)
        PyErr_Format(error,
                     "there is no dtype %sint%d; convert the array to int%d first, as "
                     "x.astype('int%d') in NumPy",
                     is_uint ? "u" : "", bits, bits < 32 ? 32 : 64, bits < 32 ? 32 : 64);
    else if (*format == 'Z' && format[1] && !format[2])
        PyErr_Format(error,
                     "there is no dtype complex%d; make tensors of the real and the imaginary part",
                     bits);
    else if (single && *format == 'g')
        PyErr_Format(error, "there is no dtype float%d; convert the array to float64 first", bits);
    else
        PyErr_Format(error, "elements of the format '%s' (PEP 3118) are no numbers of a dtype",
                     whole);
    return false;
}

/* --- from buffers ----------------------------------------------------------------------------- */

/* A buffer of another object, held until the last tensor of it is freed. */
typedef struct held_buffer {
    Py_buffer view; /* never moves: exporters point into it */
    gd_dl_managed managed;
    int64_t dims[GD_MAX_RANK], strides[GD_MAX_RANK]; /* strides in elements */
} held_buffer;

/* Any thread frees tensors, and also a program that goes on after Python's end, when its objects are gone. */
static void drop_buffer(held_buffer *held) {
    if (!gdpy_alive()) return;
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyBuffer_Release(&held->view);
    PyMem_Free(held);
    PyGILState_Release(gil);
}
static void drop_memory(void *data, void *user) {
    (void)data;
    drop_buffer(user);
}
static void drop_managed(gd_dl_managed *m) { drop_buffer(m->context); }
static void free_copy(void *data, void *user) {
    (void)user;
    free(data);
}

/* Fills the sizes and strides. `fits`: the memory can be shared. */
static bool read_layout(held_buffer *held, gd_dtype dtype, gd_shape *shape, bool *fits) {
    const Py_buffer *view = &held->view;
    const Py_ssize_t size = (Py_ssize_t)gd_dtype_size(dtype);
    if (view->ndim > GD_MAX_RANK) {
        PyErr_Format(gdpy_exception_of(GD_E_SHAPE),
                     "the array has %d dimensions; a tensor has at most %d", view->ndim,
                     GD_MAX_RANK);
        return false;
    }
    *fits = (uintptr_t)view->buf % (uintptr_t)size == 0;
    Py_ssize_t packed = size;
    for (int i = view->ndim; i-- > 0; packed *= view->shape[i]) {
        const Py_ssize_t stride = view->strides ? view->strides[i] : packed;
        held->dims[i] = view->shape[i];
        held->strides[i] = stride / size;
        if (view->shape[i] > 1 && (stride < 0 || stride % size != 0)) *fits = false;
        if (view->shape[i] <= 1)
            held->strides[i] = packed / size; /* exporters write anything there */
    }
    *shape = gd_shape_of(view->ndim, held->dims);
    return true;
}

static void swap_bytes(char *data, Py_ssize_t bytes, Py_ssize_t size) {
    for (char *at = data; at < data + bytes; at += size)
        for (Py_ssize_t i = 0; i < size / 2; i++) {
            const char first = at[i];
            at[i] = at[size - 1 - i];
            at[size - 1 - i] = first;
        }
}

static gd_tensor *copy_buffer(held_buffer *held, gd_shape shape, gd_dtype dtype, bool swapped) {
    Py_buffer *view = &held->view;
    char *data = malloc((size_t)view->len + 1);
    if (!data) return PyErr_NoMemory(), NULL;
    if (view->len > 0 && PyBuffer_ToContiguous(data, view, view->len, 'C') < 0) {
        free(data);
        return NULL;
    }
    if (swapped) swap_bytes(data, view->len, view->itemsize);
    if (dtype == GD_BOOL) /* any byte that is not 0 means true */
        for (Py_ssize_t i = 0; i < view->len; i++) data[i] = data[i] != 0;
    gd_tensor *t = gd_from_memory_at(NULL, shape, NULL, dtype, data, free_copy, NULL);
    if (!gd_tensor_is_error(t)) return t;
    free(data);
    gdpy_raise();
    return NULL;
}

/* Takes over the buffer if it returns a tensor. */
static gd_tensor *share_buffer(held_buffer *held, gd_shape shape, gd_dtype dtype) {
    gd_tensor *t;
    if (!held->view.readonly)
        t = gd_from_memory_at(NULL, shape, held->strides, dtype, held->view.buf, drop_memory, held);
    else {
        static const gd_from_dlpack_options options = {.stream = GD_NO_STREAM};
        static const gd_dl_tensor codes[GD_DTYPE_COUNT] = {
            [GD_BOOL].dtype = {GD_DL_BOOL, 8, 1},  [GD_U8].dtype = {GD_DL_UINT, 8, 1},
            [GD_I8].dtype = {GD_DL_INT, 8, 1},     [GD_I32].dtype = {GD_DL_INT, 32, 1},
            [GD_I64].dtype = {GD_DL_INT, 64, 1},   [GD_F16].dtype = {GD_DL_FLOAT, 16, 1},
            [GD_F32].dtype = {GD_DL_FLOAT, 32, 1}, [GD_F64].dtype = {GD_DL_FLOAT, 64, 1}};
        held->managed = (gd_dl_managed){.major = GD_DL_MAJOR,
                                        .minor = GD_DL_MINOR,
                                        .context = held,
                                        .deleter = drop_managed,
                                        .flags = GD_DL_READ_ONLY,
                                        .tensor = codes[dtype]};
        held->managed.tensor.data = held->view.buf;
        held->managed.tensor.device = (gd_dl_device){GD_DL_CPU, 0};
        held->managed.tensor.rank = shape.rank;
        held->managed.tensor.dims = held->dims;
        held->managed.tensor.strides = held->strides;
        t = gd_from_dlpack_at(NULL, (struct DLManagedTensorVersioned *)&held->managed, &options);
    }
    if (!gd_tensor_is_error(t)) return t;
    gdpy_raise();
    return NULL;
}

/* An array whose dtype has no buffer (bfloat16) fails with BufferError, so that the caller goes on with
 * NumPy's protocol. */
static bool open_buffer(PyObject *o, Py_buffer *view) {
    if (PyObject_GetBuffer(o, view, PyBUF_RECORDS_RO) == 0) return true;
    if (PyErr_ExceptionMatches(PyExc_BufferError) ||
        !PyObject_HasAttrString(o, "__array_interface__"))
        return false;
    PyErr_Clear();
    PyErr_SetString(PyExc_BufferError, "elements of this dtype cannot be in a buffer");
    return false;
}

gd_tensor *gdpy_from_buffer(PyObject *o, bool share) {
    held_buffer *held = PyMem_Malloc(sizeof *held);
    if (!held) return PyErr_NoMemory(), NULL;
    if (!open_buffer(o, &held->view)) {
        PyMem_Free(held);
        return NULL;
    }
    gd_dtype dtype;
    gd_shape shape;
    bool swapped, fits;
    gd_tensor *t = NULL;
    if (read_format(&held->view, &dtype, &swapped) && read_layout(held, dtype, &shape, &fits)) {
        if (share && fits && !swapped && held->view.len > 0 &&
            (t = share_buffer(held, shape, dtype)) != NULL)
            return t;
        if (!PyErr_Occurred()) t = copy_buffer(held, shape, dtype, swapped);
    }
    PyBuffer_Release(&held->view);
    PyMem_Free(held);
    return t;
}

/* --- arrays through NumPy --------------------------------------------------------------------- */

/* A tensor of the same bits: bfloat16 as float16, or back. */
static gd_tensor *with_bits_as(gd_tensor *t, gd_dtype dtype) {
    static const gd_to_dlpack_options to = {.stream = GD_NO_STREAM};
    static const gd_from_dlpack_options from = {.stream = GD_NO_STREAM};
    struct DLManagedTensorVersioned *m = gd_to_dlpack_at(NULL, t, &to);
    gd_dl_managed *managed = (gd_dl_managed *)m;
    if (managed) managed->tensor.dtype.code = dtype == GD_BF16 ? GD_DL_BFLOAT : GD_DL_FLOAT;
    gd_tensor *y = managed ? gd_from_dlpack_at(NULL, m, &from) : NULL;
    if (y && !gd_tensor_is_error(y)) return y;
    if (managed) managed->deleter(managed);
    gdpy_raise();
    return NULL;
}

PyObject *gdpy_half_bits(PyObject *module, PyObject *tensor) {
    (void)module;
    if (!gdpy_is_tensor(tensor) || gd_tensor_dtype(gdpy_tensor_of(tensor)) != GD_BF16) {
        PyErr_SetString(PyExc_TypeError, "expected a Tensor of bfloat16");
        return NULL;
    }
    gd_scope *scope = gd_scope_open_at(NULL);
    gd_tensor *t = with_bits_as(gdpy_tensor_of(tensor), GD_F16);
    PyObject *result = t ? gdpy_wrap(t) : NULL;
    gd_scope_close(&scope);
    return result;
}

/* A str attribute of an array's dtype: "name", "kind". NULL with an exception. */
static PyObject *dtype_text(PyObject *array, const char *name) {
    PyObject *dtype = PyObject_GetAttrString(array, "dtype");
    PyObject *text = dtype ? PyObject_GetAttrString(dtype, name) : NULL;
    Py_XDECREF(dtype);
    return text;
}

/* Arrays of objects, text and dates. */
static bool check_kind(PyObject *array) {
    PyObject *kind = dtype_text(array, "kind"), *name = kind ? dtype_text(array, "name") : NULL;
    bool good = name != NULL;
    if (good && PyUnicode_GetLength(kind) == 1 &&
        strchr("OSUmMT", (int)PyUnicode_ReadChar(kind, 0))) {
        PyErr_Format(gdpy_exception_of(GD_E_DTYPE),
                     "a tensor has numbers, but the array's dtype is %U; convert it first, as "
                     "x.astype(float) "
                     "in NumPy",
                     name);
        good = false;
    }
    Py_XDECREF(kind);
    Py_XDECREF(name);
    return good;
}

gd_tensor *gdpy_from_array_protocol(PyObject *o) {
    if (!PyObject_HasAttrString(o, "__array__") &&
        !PyObject_HasAttrString(o, "__array_interface__")) {
        PyErr_Format(PyExc_TypeError, "cannot make a tensor of %R", (PyObject *)Py_TYPE(o));
        return NULL;
    }
    PyObject *numpy = PyImport_ImportModule("numpy"), *array = NULL, *name = NULL;
    gd_tensor *t = NULL;
    if (numpy) array = PyObject_CallMethod(numpy, "asarray", "O", o);
    if (array && check_kind(array)) name = dtype_text(array, "name");
    if (name && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0) {
        PyObject *halves = PyObject_CallMethod(array, "view", "s", "float16");
        if (halves && (t = gdpy_from_buffer(halves, true)) != NULL) t = with_bits_as(t, GD_BF16);
        Py_XDECREF(halves);
    } else if (name) {
        t = gdpy_from_buffer(array, true);
    }
    Py_XDECREF(name);
    Py_XDECREF(array);
    Py_XDECREF(numpy);
    return t;
}

/* --- tensors as buffers ----------------------------------------------------------------------- */

/* What a consumer's buffer points to. It holds the memory itself, because a parameter can move to other
 * memory while the buffer is in use. */
typedef struct lent_buffer {
    gd_dl_managed *managed;
    Py_ssize_t dims[GD_MAX_RANK], strides[GD_MAX_RANK]; /* strides in bytes */
} lent_buffer;

/* Why a tensor has no buffer, and what to call instead; false with BufferError. */
static bool check_lent(gd_tensor *t) {
    const char *why = NULL;
    if (gd_tensor_is_symbol(t))
        why = "the tensor is a symbol of a function that is being traced, so it has no values yet; "
              "return it and read the result of the call, or choose between tensors with gd.where "
              "or gd.cond";
    else if (gd_tensor_requires_grad(t))
        why = "the tensor requires a gradient, which other libraries do not know; call .detach() "
              "first";
    else if (gd_tensor_numel(t) > 0 && !gd_data(t))
        why = "the tensor is not in the memory of the CPU; call .cpu() first";
    else if (gd_tensor_dtype(t) == GD_BF16)
        why = "buffers have no bfloat16; call .numpy(), which uses ml_dtypes, or .to(float32)";
    const char *site = why ? gdpy_site() : NULL; /* while a function is traced */
    if (why && site) PyErr_Format(PyExc_BufferError, "%s (%s)", why, site);
    else if (why) PyErr_SetString(PyExc_BufferError, why);
    return !why;
}

/* Whether numpy.asarray can take the buffer. */
static bool lends_to_numpy(gd_tensor *t) {
    return !gd_tensor_requires_grad(t) && !gd_tensor_is_symbol(t) && gd_data(t) &&
           gd_tensor_dtype(t) != GD_BF16;
}

/* x.numpy(). Python code (gradus/_methods.py) makes the array of other tensors, or the message. */
PyObject *gdpy_numpy(PyObject *self, PyObject *args, PyObject *names) {
    static PyObject *asarray, *other;
    const bool lends = PyTuple_Size(args) == 0 && !names && lends_to_numpy(gdpy_tensor_of(self));
    PyObject **function = lends ? &asarray : &other;
    if (!*function) {
        PyObject *module = PyImport_ImportModule(lends ? "numpy" : "gradus._methods");
        *function = module ? PyObject_GetAttrString(module, lends ? "asarray" : "_numpy") : NULL;
        Py_XDECREF(module);
        if (!*function) return NULL;
    }
    if (lends) return PyObject_CallFunctionObjArgs(asarray, self, NULL);
    PyObject *all = PyTuple_Pack(1, self), *both = all ? PySequence_Concat(all, args) : NULL;
    PyObject *array = both ? PyObject_Call(other, both, names) : NULL;
    Py_XDECREF(all);
    Py_XDECREF(both);
    return array;
}

static const char *format_of(gd_dtype dtype) {
    switch (dtype) {
    case GD_BOOL: return "?";
    case GD_U8: return "B";
    case GD_I8: return "b";
    case GD_I32: return "i";
    case GD_I64: return sizeof(long) == 8 ? "l" : "q";
    case GD_F16: return "e";
    case GD_F32: return "f";
    default: return "d";
    }
}

/* Whether the consumer can use the layout; false with BufferError. */
static bool check_request(const Py_buffer *view, int flags) {
    const char *why = NULL;
    const bool rows = PyBuffer_IsContiguous(view, 'C');
    if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE && view->readonly)
        why = "the tensor's memory belongs to another library, which allows only reading";
    else if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !rows)
        why = "the tensor is not contiguous; call .contiguous() first";
    else if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS &&
             !PyBuffer_IsContiguous(view, 'F'))
        why = "the tensor is not contiguous in Fortran's order";
    else if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS &&
             !PyBuffer_IsContiguous(view, 'A'))
        why = "the tensor is not contiguous; call .contiguous() first";
    else if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !rows)
        why = "the tensor is not contiguous, and the receiver takes no strides; call .contiguous() "
              "first";
    if (why) PyErr_SetString(PyExc_BufferError, why);
    return !why;
}

static void give_back(lent_buffer *lent) {
    lent->managed->deleter(lent->managed);
    PyMem_Free(lent);
}

int gdpy_get_buffer(PyObject *self, Py_buffer *view, int flags) {
    static const gd_to_dlpack_options options = {.stream = GD_NO_STREAM};
    gd_tensor *t = gdpy_tensor_of(self);
    view->obj = NULL;
    if (!check_lent(t)) return -1;
    lent_buffer *lent = PyMem_Malloc(sizeof *lent);
    if (!lent) return PyErr_NoMemory(), -1;
    lent->managed = (gd_dl_managed *)gd_to_dlpack_at(NULL, t, &options);
    if (!lent->managed) {
        PyMem_Free(lent);
        gdpy_raise();
        return -1;
    }
    const gd_dl_tensor *d = &lent->managed->tensor;
    const Py_ssize_t size = (Py_ssize_t)gd_dtype_size(gd_tensor_dtype(t));
    Py_ssize_t bytes = size;
    for (int i = 0; i < d->rank; i++) {
        bytes *= lent->dims[i] = (Py_ssize_t)d->dims[i];
        lent->strides[i] = (Py_ssize_t)d->strides[i] * size;
    }
    *view = (Py_buffer){.buf = d->data,
                        .len = bytes,
                        .itemsize = size,
                        .readonly = gd_tensor_is_read_only(t),
                        .ndim = d->rank,
                        .format = (char *)(uintptr_t)format_of(gd_tensor_dtype(t)),
                        .shape = lent->dims,
                        .strides = lent->strides,
                        .internal = lent};
    if (!check_request(view, flags)) {
        give_back(lent);
        return -1;
    }
    if (!(flags & PyBUF_FORMAT)) view->format = NULL;
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) view->strides = NULL;
    if (!(flags & PyBUF_ND)) view->shape = NULL;
    view->obj = Py_NewRef(self);
    return 0;
}

void gdpy_release_buffer(PyObject *self, Py_buffer *view) {
    (void)self;
    give_back(view->internal);
}
