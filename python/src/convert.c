/* convert.c - tensors from Python objects. */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

#include "interop.h"

int gdpy_to_number(PyObject *o, gd_number *number, gd_dtype *kind) {
    if (PyFloat_Check(o)) { /* numpy.float64 is one, too */
        *kind = GD_F64;
        *number = (gd_number){PyFloat_AsDouble(o), 0};
        return 1;
    }
    if (PyBool_Check(o)) {
        *kind = GD_BOOL;
        *number = (gd_number){o == Py_True, o == Py_True};
        return 1;
    }
    if (!PyLong_Check(o)) return 0;
    *kind = GD_I64;
    const int64_t i = PyLong_AsLongLong(o);
    if (i == -1 && PyErr_Occurred()) return -1;
    *number = (gd_number){(double)i, i};
    return 1;
}

/* --- sequences -------------------------------------------------------------------------------- */

/* Nested sequences of numbers: their shape and dtype, and a row-major array of f64 or i64 elements. */
typedef struct nested {
    gd_shape shape;
    gd_dtype dtype;  /* bool, i64 or f32: of the highest kind so far */
    gd_dtype stored; /* the dtype of `data`: i64 or f64 */
    void *data;
    int64_t count, capacity;
    bool has_tensors; /* an element is an array or a tensor */
} nested;

static bool is_sequence(PyObject *o) {
    return PyList_Check(o) || PyTuple_Check(o) ||
           (PySequence_Check(o) && !PyUnicode_Check(o) && !PyBytes_Check(o) &&
            !PyObject_CheckBuffer(o) && !gdpy_is_tensor(o) &&
            !PyObject_HasAttrString(o, "__array__") && !PyObject_HasAttrString(o, "__dlpack__"));
}

static bool is_array(PyObject *o) {
    return gdpy_is_tensor(o) || PyObject_CheckBuffer(o) ||
           PyObject_HasAttrString(o, "__dlpack__") || PyObject_HasAttrString(o, "__array__");
}

static bool add_number(nested *n, PyObject *o) {
    gd_number number;
    gd_dtype kind;
    const int is = gdpy_to_number(o, &number, &kind);
    if (is < 0) return false;
    if (!is) {
        PyErr_Format(PyExc_TypeError, "cannot make a tensor of %R", (PyObject *)Py_TYPE(o));
        return false;
    }
    const gd_dtype dtype = kind == GD_F64 ? GD_F32 : kind;
    if (n->dtype == GD_DTYPE_NONE || gd_promote(n->dtype, dtype) == dtype) n->dtype = dtype;
    if (n->count == n->capacity) {
        n->capacity = n->capacity ? 2 * n->capacity : 16;
        void *data = PyMem_Realloc(n->data, 8 * (size_t)n->capacity);
        if (!data) return PyErr_NoMemory(), false;
        n->data = data;
    }
    if (kind == GD_F64 && n->stored != GD_F64) { /* the first float: what is there becomes f64 */
        for (int64_t i = 0; i < n->count; i++)
            ((double *)n->data)[i] = (double)((int64_t *)n->data)[i];
        n->stored = GD_F64;
    }
    if (n->stored == GD_F64) ((double *)n->data)[n->count++] = number.value;
    else ((int64_t *)n->data)[n->count++] = number.integer;
    return true;
}

static bool ragged(int depth, Py_ssize_t has, int64_t expected) {
    PyErr_Format(
        gdpy_exception_of(GD_E_SHAPE),
        "the sequences have different lengths: at depth %d one has %zd entries, others have %lld",
        depth, has, (long long)expected);
    return false;
}

/* Collects what a sequence at `depth` holds. `first`: the sizes from here on are not known yet. */
static bool collect(nested *n, PyObject *o, int depth, bool first) {
    if (!is_sequence(o)) {
        if (is_array(o)) return n->has_tensors = true;
        if (first) n->shape.rank = depth;
        if (depth != n->shape.rank) return ragged(depth, 0, n->shape.at[depth]);
        return add_number(n, o);
    }
    if (depth == GD_MAX_RANK) {
        PyErr_Format(gdpy_exception_of(GD_E_SHAPE), "the sequences are nested more than %d deep",
                     GD_MAX_RANK);
        return false;
    }
    PyObject *list = PySequence_Tuple(o);
    if (!list) return false;
    const Py_ssize_t count = PyTuple_Size(list);
    bool good = true;
    if (first) {
        n->shape.at[depth] = count;
        n->shape.rank = depth + 1;
    } else if (depth >= n->shape.rank || count != n->shape.at[depth])
        good = ragged(depth, count, depth < n->shape.rank ? n->shape.at[depth] : 0);
    for (Py_ssize_t i = 0; i < count && good && !n->has_tensors; i++)
        good = collect(n, PyTuple_GetItem(list, i), depth + 1, first && i == 0);
    Py_DECREF(list);
    return good;
}

/* Sequences with arrays among their elements: each is converted, and they are stacked. */
static gd_tensor *stack(PyObject *o, gd_dtype dtype) {
    PyObject *list = PySequence_Tuple(o);
    if (!list) return NULL;
    const Py_ssize_t count = PyTuple_Size(list);
    gd_tensor **at = PyMem_Malloc(sizeof *at * (size_t)(count ? count : 1)), *y = NULL;
    bool good = at != NULL || (PyErr_NoMemory(), false);
    gd_dtype common = dtype;
    for (Py_ssize_t i = 0; i < count && good; i++) {
        good = (at[i] = gdpy_to_tensor(PyTuple_GetItem(list, i), dtype, true)) != NULL;
        if (good && !dtype)
            common = i ? gd_promote(common, gd_tensor_dtype(at[i])) : gd_tensor_dtype(at[i]);
    }
    for (Py_ssize_t i = 0; i < count && good; i++)
        if (gd_tensor_dtype(at[i]) != common) at[i] = gd_cast_at(NULL, at[i], common);
    if (good) {
        y = gd_stack_at(NULL, (gd_tensors){at, count}, NULL);
        if (gd_tensor_is_error(y)) gdpy_raise(), y = NULL;
    }
    PyMem_Free(at);
    Py_DECREF(list);
    return y;
}

static gd_tensor *checked(gd_tensor *t) {
    if (!gd_tensor_is_error(t)) return t;
    gdpy_raise();
    return NULL;
}

static gd_tensor *from_sequence(PyObject *o, gd_dtype dtype) {
    nested n = {.shape.form = 1, .stored = GD_I64};
    gd_tensor *t = NULL;
    if (Py_EnterRecursiveCall(" in a sequence of numbers")) return NULL;
    if (collect(&n, o, 0, true)) {
        if (n.has_tensors) t = stack(o, dtype);
        else {
            if (n.dtype == GD_DTYPE_NONE) n.dtype = GD_F32; /* no element */
            const gd_dtype wanted = dtype ? dtype : n.dtype;
            static const char empty[8];
            gd_tensor *all =
                gd_from_array_at(NULL, n.shape, n.stored, n.data ? n.data : (const void *)empty);
            if (gd_tensor_dtype(all) != wanted) all = gd_cast_at(NULL, all, wanted);
            t = checked(all);
        }
    }
    Py_LeaveRecursiveCall();
    PyMem_Free(n.data);
    return t;
}

/* --- any object ------------------------------------------------------------------------------- */

static gd_tensor *with_dtype(gd_tensor *t, gd_dtype dtype) {
    if (!t || dtype == GD_DTYPE_NONE || gd_tensor_dtype(t) == dtype) return t;
    return checked(gd_cast_at(NULL, t, dtype));
}

/* A copy, if the caller wants one and `t` is not new. */
static gd_tensor *own(gd_tensor *t, bool share) {
    return !t || share ? t : checked(gd_clone_at(NULL, t));
}

gd_tensor *gdpy_to_tensor(PyObject *o, gd_dtype dtype, bool share) {
    if (gdpy_is_tensor(o)) return own(with_dtype(gdpy_tensor_of(o), dtype), share);
    gd_number number;
    gd_dtype kind;
    const int is = gdpy_to_number(o, &number, &kind);
    if (is < 0) return NULL;
    if (is) {
        if (!dtype) dtype = kind == GD_F64 ? GD_F32 : kind;
        return checked(gd_scalar_of_at(NULL, number, dtype));
    }
    if (PyObject_CheckBuffer(o)) {
        gd_tensor *t = gdpy_from_buffer(o, share && (!dtype || dtype == GD_DTYPE_NONE));
        if (t || !PyErr_ExceptionMatches(PyExc_BufferError)) return with_dtype(t, dtype);
        PyErr_Clear(); /* bfloat16 has no buffer, but is an array */
    }
    if (is_sequence(o)) return from_sequence(o, dtype);
    if (PyObject_HasAttrString(o, "__dlpack__")) {
        const bool has_array = PyObject_HasAttrString(o, "__array__"); /* it clears exceptions */
        gd_tensor *t = gdpy_from_dlpack(o);
        if (t || !has_array) return own(with_dtype(t, dtype), share);
        PyErr_Clear();
    }
    return own(with_dtype(gdpy_from_array_protocol(o), dtype), share);
}

gd_tensor **gdpy_handles_of(PyObject *list, gd_tensors *to, const char *what) {
    const Py_ssize_t n = PyList_Check(list) ? PyList_Size(list) : -1;
    if (n < 0) return PyErr_Format(PyExc_TypeError, "%s must be a list", what), NULL;
    gd_tensor **at = PyMem_Malloc(sizeof *at * (size_t)(n + 1));
    if (!at) return PyErr_NoMemory(), NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyList_GetItem(list, i);
        if (o != Py_None && !gdpy_is_tensor(o)) {
            PyErr_Format(PyExc_TypeError, "%s must be tensors, not %R", what,
                         (PyObject *)Py_TYPE(o));
            PyMem_Free(at);
            return NULL;
        }
        at[i] = o == Py_None ? NULL : gdpy_tensor_of(o);
    }
    *to = (gd_tensors){at, n};
    return at;
}
