/* tensor.c - the type gradus.Tensor: its life, its properties and its data as Python values. Methods that
 * are ops are written by the generator; methods that combine others are in gradus/_methods.py. */
#include "call.h"

#include <stdlib.h>
#include <string.h>

#include "interop.h"

PyTypeObject *gdpy_tensor_type;

/* --- life ------------------------------------------------------------------------------------- */

static PyObject *new_object(PyTypeObject *type, gd_tensor *t) {
    gdpy_tensor *o = PyObject_New(gdpy_tensor, type);
    if (!o) return NULL;
    o->t = gd_retain(t);
    o->weak = NULL;
    o->known = false;
    return (PyObject *)o;
}

PyObject *gdpy_wrap(gd_tensor *t) {
    if (!t) return Py_NewRef(Py_None);
    if (gd_tensor_is_error(t)) return gdpy_raise();
    return new_object(gdpy_tensor_type, t);
}

static void tensor_dealloc(PyObject *self) {
    gdpy_tensor *o = gdpy_tensor_data(self);
    PyTypeObject *type = Py_TYPE(self);
    if (o->weak) PyObject_ClearWeakRefs(self);
    if (o->known) gdpy_forget_known(self);
    gd_release(o->t);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_object(self);
    Py_DECREF(type);
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    PyObject *data, *dtype = Py_None;
    static char *words[] = {"data", "dtype", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|O", words, &data, &dtype)) return NULL;
    gd_dtype wanted = GD_DTYPE_NONE;
    if (dtype != Py_None && !gdpy_dtype_from(dtype, &wanted)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *t = gdpy_to_tensor(data, wanted, false);
    if (!t) return gdpy_cancel(&c);
    PyObject *o = NULL;
    if (type == gdpy_tensor_type) o = gdpy_wrap(t);
    else {
        allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        o = allocate(type, 0);
        if (o) gdpy_tensor_data(o)->t = gd_retain(t);
    }
    gdpy_cancel(&c);
    return o;
}

/* --- shape ------------------------------------------------------------------------------------ */

static PyObject *shape_tuple(const gd_tensor *t) {
    const int rank = gd_tensor_rank(t);
    PyObject *tuple = PyTuple_New(rank);
    for (int i = 0; i < rank && tuple; i++) {
        const int64_t size = gd_tensor_dim(t, i);
        /* an unknown size of a symbol is None, as in the standard */
        PyObject *n = size == GD_ANY ? Py_NewRef(Py_None) : PyLong_FromLongLong(size);
        if (!n) Py_CLEAR(tuple);
        else PyTuple_SetItem(tuple, i, n);
    }
    return tuple;
}

#define GETTER(name, expression)                        \
    static PyObject *name(PyObject *self, void *none) { \
        (void)none;                                     \
        gd_tensor *t = gdpy_tensor_of(self);            \
        return expression;                              \
    }
GETTER(get_shape, shape_tuple(t))
GETTER(get_dtype, gdpy_dtype_object(gd_tensor_dtype(t)))
GETTER(get_device, gdpy_device_object(gd_tensor_device(t)))
GETTER(get_ndim, PyLong_FromLong(gd_tensor_rank(t)))
GETTER(get_itemsize, PyLong_FromSize_t(gd_dtype_size(gd_tensor_dtype(t))))
GETTER(get_nbytes,
       PyLong_FromLongLong(gd_tensor_numel(t) * (int64_t)gd_dtype_size(gd_tensor_dtype(t))))
GETTER(get_is_leaf, PyBool_FromLong(gd_tensor_is_leaf(t)))
GETTER(get_is_symbol, PyBool_FromLong(gd_tensor_is_symbol(t)))
GETTER(get_requires_grad, PyBool_FromLong(gd_tensor_requires_grad(t)))
GETTER(get_grad, gdpy_wrap_known(gd_tensor_grad(t)))
GETTER(get_array_priority, PyLong_FromLong(((void)t, 1000)))

static int set_requires_grad(PyObject *self, PyObject *value, void *none) {
    (void)none;
    const int wanted = value ? PyObject_IsTrue(value) : 0;
    if (wanted < 0) return -1;
    if (gd_set_requires_grad_at(gdpy_site(), gdpy_tensor_of(self), wanted) == GD_OK) return 0;
    gdpy_raise();
    return -1;
}

static int set_grad(PyObject *self, PyObject *value, void *none) {
    (void)none;
    if (!value || value == Py_None) {
        gd_zero_grad_list((gd_tensors){(gd_tensor *[]){gdpy_tensor_of(self)}, 1});
        return 0;
    }
    if (!gdpy_is_tensor(value)) {
        PyErr_SetString(PyExc_TypeError, "grad is a Tensor or None");
        return -1;
    }
    if (gd_set_grad_at(gdpy_site(), gdpy_tensor_of(self), gdpy_tensor_of(value)) == GD_OK) return 0;
    gdpy_raise();
    return -1;
}

/* The axes reversed, as in NumPy; the last two axes transposed. */
static PyObject *get_t(PyObject *self, void *last_two) {
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *x = gdpy_tensor_of(self);
    const int rank = gd_tensor_rank(x);
    gd_shape axes = {.rank = rank, .form = 1};
    if (last_two && rank < 2) {
        PyErr_SetString(gdpy_exception_of(GD_E_SHAPE), "mT needs at least two dimensions");
        return gdpy_cancel(&c);
    }
    for (int i = 0; i < rank; i++) axes.at[i] = last_two ? i : rank - 1 - i;
    if (last_two) axes.at[rank - 2] = rank - 1, axes.at[rank - 1] = rank - 2;
    return gdpy_end(&c, gd_permute_at(c.site, x, axes));
}

/* --- data ------------------------------------------------------------------------------------- */

static PyObject *element(gd_dtype dtype, const void *at) {
    switch (dtype) {
    case GD_BOOL: return PyBool_FromLong(*(const uint8_t *)at != 0);
    case GD_U8: return PyLong_FromLong(*(const uint8_t *)at);
    case GD_I8: return PyLong_FromLong(*(const int8_t *)at);
    case GD_I32: return PyLong_FromLong(*(const int32_t *)at);
    case GD_I64: return PyLong_FromLongLong(*(const int64_t *)at);
    case GD_F32: return PyFloat_FromDouble((double)*(const float *)at);
    default: return PyFloat_FromDouble(*(const double *)at);
    }
}

PyObject *gdpy_item(PyObject *self) {
    gd_tensor *t = gdpy_tensor_of(self);
    const gd_dtype dtype = gd_tensor_dtype(t);
    const int64_t count = gd_tensor_is_symbol(t) ? 1 : gd_tensor_numel(t);
    if (count != 1) {
        PyErr_Format(gdpy_exception_of(GD_E_SHAPE),
                     "only a tensor of one element is a number; this one has %lld",
                     (long long)count);
        return NULL;
    }
    if (gd_tensor_is_symbol(t)) { /* the failure names the op; this is the line that reads */
        const char *site = gdpy_site();
        gd_item_at(site, t);
        return gdpy_raise();
    }
    const bool wait = gd_data(t) == NULL; /* of another device */
    PyThreadState *released = wait ? PyEval_SaveThread() : NULL;
    double value = 0;
    int64_t integer = 0;
    if (gd_dtype_is_float(dtype)) value = gd_item_at(NULL, t);
    else integer = gd_item_int_at(NULL, t);
    if (wait) PyEval_RestoreThread(released);
    if (gd_failed()) return gdpy_raise();
    if (gd_dtype_is_float(dtype)) return PyFloat_FromDouble(value);
    return dtype == GD_BOOL ? PyBool_FromLong(integer != 0) : PyLong_FromLongLong(integer);
}

static PyObject *nested_list(const gd_tensor *t, int axis, const char **at) {
    const gd_dtype dtype = gd_tensor_dtype(t);
    if (axis == gd_tensor_rank(t)) {
        PyObject *o = element(dtype, *at);
        *at += gd_dtype_size(dtype);
        return o;
    }
    const int64_t n = gd_tensor_dim(t, axis);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (int64_t i = 0; i < n && list; i++) {
        PyObject *o = nested_list(t, axis + 1, at);
        if (!o) Py_CLEAR(list);
        else PyList_SetItem(list, (Py_ssize_t)i, o);
    }
    return list;
}

static PyObject *tensor_tolist(PyObject *self, PyObject *none) {
    (void)none;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *t = gdpy_tensor_of(self);
    const gd_dtype dtype = gd_tensor_dtype(t);
    if (dtype == GD_F16 || dtype == GD_BF16) t = gd_cast_at(c.site, t, GD_F32);
    const size_t bytes = (size_t)gd_tensor_numel(t) * gd_dtype_size(gd_tensor_dtype(t));
    char *data = PyMem_Malloc(bytes ? bytes : 1);
    PyObject *list = NULL;
    if (!data) PyErr_NoMemory();
    else {
        gdpy_release_gil(&c);
        const gd_status status = gd_copy_to_at(c.site, t, data, bytes);
        gdpy_take_gil(&c);
        const char *at = data;
        list = status == GD_OK ? nested_list(t, 0, &at) : gdpy_raise();
    }
    PyMem_Free(data);
    gdpy_cancel(&c);
    return list;
}

/* --- text ------------------------------------------------------------------------------------- */

static char *text_of(const gd_tensor *t) {
    const gd_print_options o = {
        .precision = 4, .threshold = 1000, .edge_items = 3, .line_width = 75};
    PyThreadState *released = PyEval_SaveThread();
    const size_t length = gd_to_text_with(t, NULL, 0, &o);
    char *text = malloc(length + 1);
    if (text) gd_to_text_with(t, text, length + 1, &o);
    PyEval_RestoreThread(released);
    if (!text) PyErr_NoMemory();
    return text;
}

static PyObject *tensor_str(PyObject *self) {
    char *text = text_of(gdpy_tensor_of(self));
    PyObject *o = text ? PyUnicode_FromString(text) : NULL;
    free(text);
    return o;
}

/* The digits behind the point of an element's text, -1 if it has no point: of "inf" or "1.5e+20". */
static int digits_behind_point(const char *text, size_t length) {
    if (memchr(text, 'e', length) || text[0] == '.') return -1; /* text[0]: the points of "..." */
    const char *point = memchr(text, '.', length);
    return point ? (int)(text + length - point) - 1 : -1;
}
static size_t element_length(const char *text) { return strcspn(text, "[] \n"); }

/* The text with commas, as NumPy's repr(), and lines indented below "tensor(". Spaces that follow an
 * element because others have more digits are before its comma. */
static char *with_commas(const char *text) {
    char *out = malloc(9 * strlen(text) + 1), *to = out;
    int most = -1;
    for (const char *at = text; *at;
         at +=
         at[0] == '[' || at[0] == ']' || at[0] == ' ' || at[0] == '\n' ? 1 : element_length(at)) {
        const int digits = digits_behind_point(at, element_length(at));
        if (digits > most) most = digits;
    }
    for (const char *at = text; out && *at;) {
        const size_t length = element_length(at);
        if (length) {
            to = (char *)memcpy(to, at, length) + length;
            int pad = digits_behind_point(at, length);
            pad = pad < 0 ? 0 : most - pad;
            for (at += length; pad > 0 && *at == ' '; pad--) *to++ = *at++;
            if (*at == ' ' || *at == '\n') *to++ = ',';
            continue;
        }
        if (*at == ']' && (at[1] == '\n' || at[1] == ' ')) *to++ = *at++, *to++ = ',';
        else *to++ = *at++;
        if (at[-1] == '\n' && *at != '\n') to = (char *)memset(to, ' ', 7) + 7;
    }
    if (out) *to = 0;
    return out;
}

static PyObject *tensor_repr(PyObject *self) {
    gd_tensor *t = gdpy_tensor_of(self);
    if (gd_tensor_is_symbol(t)) {
        PyObject *shape = shape_tuple(t), *dtype = gdpy_dtype_object(gd_tensor_dtype(t));
        PyObject *o = PyUnicode_FromFormat("<symbol of shape %S, dtype %S>", shape, dtype);
        Py_XDECREF(shape);
        Py_XDECREF(dtype);
        return o;
    }
    char *text = text_of(t);
    if (!text) return NULL;
    char *out = with_commas(text);
    free(text);
    if (!out) return PyErr_NoMemory();
    PyObject *o = PyUnicode_FromFormat("tensor(%s", out);
    free(out);
    const gd_dtype dtype = gd_tensor_dtype(t);
    const char *device = gd_device_name(gd_tensor_device(t));
    if (o && dtype != GD_F32 && dtype != GD_I64 && dtype != GD_BOOL) {
        PyObject *name = gdpy_dtype_object(dtype);
        gdpy_set(&o, PyUnicode_FromFormat("%U, dtype=%S", o, name));
        Py_XDECREF(name);
    }
    if (o && strcmp(device, "cpu") != 0)
        gdpy_set(&o, PyUnicode_FromFormat("%U, device='%s'", o, device));
    if (o && gd_tensor_requires_grad(t))
        gdpy_set(&o, PyUnicode_FromFormat("%U, requires_grad=True", o));
    if (o) gdpy_set(&o, PyUnicode_FromFormat("%U)", o));
    return o;
}

/* --- methods ---------------------------------------------------------------------------------- */

static PyObject *tensor_item(PyObject *self, PyObject *none) { return (void)none, gdpy_item(self); }

static PyObject *tensor_backward(PyObject *self, PyObject *args, PyObject *names) {
    PyObject *gradient = Py_None;
    int retain = -1, create = 0;
    static char *words[] = {"gradient", "retain_graph", "create_graph", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, names, "|Opp", words, &gradient, &retain, &create))
        return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_backward_options o = {.retain_graph = retain > 0, .create_graph = create != 0};
    if (gradient != Py_None && !(o.gradient = gdpy_to_tensor(gradient, GD_DTYPE_NONE, true)))
        return gdpy_cancel(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(&c, gd_backward_at(c.site, gdpy_tensor_of(self), &o));
}

static PyObject *tensor_detach(PyObject *self, PyObject *none) {
    (void)none;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end(&c, gd_detach_at(c.site, gdpy_tensor_of(self)));
}

static PyObject *tensor_numel(PyObject *self, PyObject *none) {
    (void)none;
    return PyLong_FromLongLong(gd_tensor_numel(gdpy_tensor_of(self)));
}
static PyObject *tensor_dim(PyObject *self, PyObject *none) {
    return (void)none, get_ndim(self, NULL);
}
static PyObject *tensor_is_contiguous(PyObject *self, PyObject *none) {
    return (void)none, PyBool_FromLong(gd_tensor_is_contiguous(gdpy_tensor_of(self)));
}
static PyObject *tensor_data_ptr(PyObject *self, PyObject *none) {
    (void)none;
    return PyLong_FromVoidPtr(gd_data(gdpy_tensor_of(self)));
}
static PyObject *tensor_stride(PyObject *self, PyObject *args) {
    PyObject *axis = Py_None;
    if (!PyArg_ParseTuple(args, "|O", &axis)) return NULL;
    gd_tensor *t = gdpy_tensor_of(self);
    const int rank = gd_tensor_rank(t);
    int64_t k;
    if (axis != Py_None) {
        if (!gdpy_int_from(axis, "the axis", &k)) return NULL;
        if (k >= -rank && k < rank) return PyLong_FromLongLong(gd_tensor_stride(t, (int)k));
        PyErr_Format(gdpy_exception_of(GD_E_INDEX), "axis %lld of a tensor of %d dimensions",
                     (long long)k, rank);
        return NULL;
    }
    PyObject *tuple = PyTuple_New(rank);
    for (int i = 0; i < rank && tuple; i++)
        PyTuple_SetItem(tuple, i, PyLong_FromLongLong(gd_tensor_stride(t, i)));
    return tuple;
}
/* An object of a subclass for the same handle. */
static PyObject *tensor_as_subclass(PyObject *self, PyObject *type) {
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, gdpy_tensor_type)) {
        PyErr_SetString(PyExc_TypeError, "as_subclass() needs a subclass of Tensor");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    PyObject *o = allocate((PyTypeObject *)type, 0);
    if (o) gdpy_tensor_data(o)->t = gd_retain(gdpy_tensor_of(self));
    return o;
}
static PyObject *tensor_requires_grad_(PyObject *self, PyObject *args) {
    PyObject *wanted = Py_True;
    if (!PyArg_ParseTuple(args, "|O", &wanted) || set_requires_grad(self, wanted, NULL) < 0)
        return NULL;
    return Py_NewRef(self);
}

/* --- as a sequence ---------------------------------------------------------------------------- */

static Py_ssize_t tensor_length(PyObject *self) {
    gd_tensor *t = gdpy_tensor_of(self);
    if (gd_tensor_rank(t) > 0) return (Py_ssize_t)gd_tensor_dim(t, 0);
    PyErr_SetString(PyExc_TypeError, "a tensor of rank 0 has no len()");
    return -1;
}

static PyObject *tensor_iter(PyObject *self) {
    gd_tensor *t = gdpy_tensor_of(self);
    if (gd_tensor_rank(t) == 0) {
        PyErr_SetString(PyExc_TypeError, "a tensor of rank 0 cannot be iterated over");
        return NULL;
    }
    gdpy_call c;
    gdpy_open(&c);
    c.function = NULL;
    PyObject *parts = gd_tensor_dim(t, 0) ? gdpy_end_list(&c, gd_unbind_at(c.site, t, NULL))
                                          : (gdpy_cancel(&c), PyTuple_New(0));
    PyObject *iterator = parts ? PyObject_GetIter(parts) : NULL;
    Py_XDECREF(parts);
    return iterator;
}

static Py_hash_t tensor_hash(PyObject *self) { return (Py_hash_t)((uintptr_t)self >> 4); }

/* --- the type --------------------------------------------------------------------------------- */

static PyGetSetDef properties[] = {
    {"shape", get_shape, NULL, "The sizes of all axes, as a tuple.", NULL},
    {"dtype", get_dtype, NULL, "The type of the elements: gradus.float32.", NULL},
    {"device", get_device, NULL, "Where the tensor is.", NULL},
    {"ndim", get_ndim, NULL, "The number of axes.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of one element.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"T", get_t, NULL, "The axes in reverse order: the transpose of a matrix.", NULL},
    {"mT", get_t, NULL, "The last two axes transposed.", "mT"},
    {"is_leaf", get_is_leaf, NULL, "Whether no op on the tape computed the tensor.", NULL},
    {"is_symbol", get_is_symbol, NULL, "Whether it is a node of a graph, without data.", NULL},
    {"requires_grad", get_requires_grad, set_requires_grad,
     "Whether backward computes a gradient for it.", NULL},
    {"grad", get_grad, set_grad, "The gradient that backward has accumulated, or None.", NULL},
    {"__array_priority__", get_array_priority, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"item", tensor_item, METH_NOARGS,
     "item($self, /)\n--\n\nThe element of a tensor of one element, as a bool, an int or a float."},
    {"tolist", tensor_tolist, METH_NOARGS, "tolist($self, /)\n--\n\nThe elements as nested lists."},
    {"backward", (PyCFunction)(void (*)(void))tensor_backward, METH_VARARGS | METH_KEYWORDS,
     "backward($self, /, gradient=None, retain_graph=False, create_graph=False)\n--\n\n"
     "Adds the gradient of this tensor to every leaf that it depends on."},
    {"detach", tensor_detach, METH_NOARGS,
     "detach($self, /)\n--\n\nThe same values without their history; memory is shared."},
    {"numel", tensor_numel, METH_NOARGS, "numel($self, /)\n--\n\nThe number of elements."},
    {"dim", tensor_dim, METH_NOARGS, "dim($self, /)\n--\n\nThe number of axes."},
    {"is_contiguous", tensor_is_contiguous, METH_NOARGS,
     "is_contiguous($self, /)\n--\n\nWhether the elements are in row-major order without gaps."},
    {"data_ptr", tensor_data_ptr, METH_NOARGS,
     "data_ptr($self, /)\n--\n\nThe address of the first element in the memory of the CPU."},
    {"stride", tensor_stride, METH_VARARGS,
     "stride($self, axis=None, /)\n--\n\nThe steps between elements along each axis, or along "
     "one."},
    {"as_subclass", tensor_as_subclass, METH_O,
     "as_subclass($self, cls, /)\n--\n\nThe same tensor as an object of a subclass of Tensor."},
    {"requires_grad_", tensor_requires_grad_, METH_VARARGS,
     "requires_grad_($self, requires_grad=True, /)\n--\n\nSets requires_grad, and returns the "
     "tensor."},
    {"numpy", (PyCFunction)(void (*)(void))gdpy_numpy, METH_VARARGS | METH_KEYWORDS,
     "numpy($self, /, *, force=False)\n--\n\nThe tensor as a NumPy array, which shares its "
     "memory."},
    {"__dlpack__", (PyCFunction)(void (*)(void))gdpy_dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", gdpy_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(gdpy_tensor, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[64] = {
    {Py_tp_new, tensor_new},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_str, tensor_str},
    {Py_tp_repr, tensor_repr},
    {Py_tp_hash, tensor_hash},
    {Py_tp_iter, tensor_iter},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_mp_length, tensor_length},
    {Py_mp_subscript, gdpy_subscript},
    {Py_mp_ass_subscript, gdpy_assign_subscript},
    {Py_bf_getbuffer, gdpy_get_buffer},
    {Py_bf_releasebuffer, gdpy_release_buffer},
    {Py_tp_doc, "Tensor(data, dtype=None)\n--\n\nAn array of numbers on a device, with gradients."},
};
static PyType_Spec spec = {"gradus.Tensor", sizeof(gdpy_tensor), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

/* Adds the methods of the generator: as descriptors, because the type's own table is static. */
static int add_methods(PyMethodDef *rows) {
    for (; rows->ml_name; rows++) {
        PyObject *method = PyDescr_NewMethod(gdpy_tensor_type, rows);
        const int failed = !method || PyObject_SetAttrString((PyObject *)gdpy_tensor_type,
                                                             rows->ml_name, method) < 0;
        Py_XDECREF(method);
        if (failed) return -1;
    }
    return 0;
}

int gdpy_tensor_init(PyObject *module) {
    int n = 0;
    while (slots[n].slot) n++;
    for (const PyType_Slot *s = gdpy_number_slots; s->slot; s++) slots[n++] = *s;
    gdpy_tensor_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!gdpy_tensor_type || add_methods(gdpy_op_methods) < 0) return -1;
    return PyModule_AddObjectRef(module, "Tensor", (PyObject *)gdpy_tensor_type);
}
