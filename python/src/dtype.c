/* dtype.c - gradus.dtype: float32, int64, ...
 *
 * One object for each dtype. It compares equal to the library's name ("f32"), to NumPy's ("float32") and to
 * NumPy's dtype objects, and every function that takes a dtype takes all of these, and bool, int and float.
 */
#include "binding.h"

#include <string.h>

PyTypeObject *gdpy_dtype_type;

typedef struct {
    PyObject_HEAD gd_dtype dtype;
} dtype_object;

/* The names in Python; those of PyTorch that differ are aliases. */
static const struct {
    gd_dtype dtype;
    const char *name, *also;
} names[] = {
    {GD_BOOL, "bool", "bool_"}, {GD_U8, "uint8", ""},         {GD_I8, "int8", ""},
    {GD_I32, "int32", "int"},   {GD_I64, "int64", "long"},    {GD_F16, "float16", "half"},
    {GD_BF16, "bfloat16", ""},  {GD_F32, "float32", "float"}, {GD_F64, "float64", "double"},
};
enum { NAMES = sizeof names / sizeof *names };
static PyObject *objects[GD_DTYPE_COUNT];

static const char *name_of(gd_dtype dtype) {
    for (int i = 0; i < NAMES; i++)
        if (names[i].dtype == dtype) return names[i].name;
    return "?";
}

PyObject *gdpy_dtype_object(gd_dtype dtype) { return Py_NewRef(objects[dtype]); }

static gd_dtype from_text(const char *text) {
    for (int i = 0; i < NAMES; i++)
        if (strcmp(text, names[i].name) == 0 || (*text && strcmp(text, names[i].also) == 0))
            return names[i].dtype;
    return gd_dtype_from_name(text);
}

/* The dtype of an object of another library with a `name`, such as NumPy's dtypes; or of a str. */
static gd_dtype from_object(PyObject *o) {
    if (Py_TYPE(o) == gdpy_dtype_type) return ((dtype_object *)o)->dtype;
    if (o == (PyObject *)&PyBool_Type) return GD_BOOL;
    if (o == (PyObject *)&PyLong_Type) return GD_I64;
    if (o == (PyObject *)&PyFloat_Type) return GD_F32;
    PyObject *text = NULL;
    if (PyUnicode_Check(o)) text = Py_NewRef(o);
    else if (PyObject_HasAttrString(o, "name")) text = PyObject_GetAttrString(o, "name");
    else if (PyType_Check(o)) text = PyObject_GetAttrString(o, "__name__"); /* numpy.float32 */
    else if ((text = PyObject_Str(o)) &&
             PyUnicode_Tailmatch(text, PyUnicode_InternFromString("torch."), 0, PY_SSIZE_T_MAX,
                                 -1) > 0) {
        gdpy_set(&text, PyUnicode_Substring(text, 6, PY_SSIZE_T_MAX));
    }
    gd_dtype dtype = GD_DTYPE_NONE;
    if (text && PyUnicode_Check(text)) {
        const char *utf8 = PyUnicode_AsUTF8AndSize(text, NULL);
        if (utf8) dtype = from_text(utf8);
    }
    Py_XDECREF(text);
    PyErr_Clear();
    return dtype;
}

int gdpy_dtype_from(PyObject *o, gd_dtype *dtype) {
    *dtype = from_object(o);
    if (*dtype == GD_DTYPE_NONE)
        PyErr_Format(
            gdpy_exception_of(GD_E_DTYPE),
            "%R is no dtype of Gradus: these are bool, uint8, int8, int32, int64, float16, "
            "bfloat16, float32 and float64",
            o);
    return *dtype != GD_DTYPE_NONE;
}

static gd_dtype of(PyObject *self) { return ((dtype_object *)self)->dtype; }

static PyObject *dtype_repr(PyObject *self) {
    return PyUnicode_FromFormat("gradus.%s", name_of(of(self)));
}
static PyObject *dtype_str(PyObject *self) { return PyUnicode_FromString(name_of(of(self))); }
static Py_hash_t dtype_hash(PyObject *self) {
    PyObject *name = dtype_str(self);
    const Py_hash_t hash = name ? PyObject_Hash(name) : -1;
    Py_XDECREF(name);
    return hash;
}
static PyObject *dtype_compare(PyObject *self, PyObject *other, int op) {
    if (op != Py_EQ && op != Py_NE) return Py_NewRef(Py_NotImplemented);
    const bool equal = self == other || from_object(other) == of(self);
    return PyBool_FromLong(equal == (op == Py_EQ));
}
static PyObject *dtype_reduce(PyObject *self, PyObject *none) {
    (void)none;
    return PyUnicode_FromString(
        name_of(of(self))); /* pickles find the object by its name in gradus */
}

static PyObject *get_itemsize(PyObject *self, void *none) {
    (void)none;
    return PyLong_FromSize_t(gd_dtype_size(of(self)));
}
static PyObject *get_name(PyObject *self, void *none) { return (void)none, dtype_str(self); }
static PyObject *get_is_float(PyObject *self, void *none) {
    return (void)none, PyBool_FromLong(gd_dtype_is_float(of(self)));
}

static PyGetSetDef properties[] = {
    {"itemsize", get_itemsize, NULL, "Bytes of one element.", NULL},
    {"name", get_name, NULL, "The name: 'float32'.", NULL},
    {"is_floating_point", get_is_float, NULL, "Whether it is a float dtype.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef methods[] = {
    {"__reduce__", dtype_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_repr, dtype_repr},
    {Py_tp_str, dtype_str},
    {Py_tp_hash, dtype_hash},
    {Py_tp_richcompare, dtype_compare},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_tp_doc, "The type of a tensor's elements: gradus.float32, gradus.int64, ..."},
    {0, NULL},
};
static PyType_Spec spec = {"gradus.dtype", sizeof(dtype_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int gdpy_dtype_init(PyObject *module) {
    gdpy_dtype_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!gdpy_dtype_type || PyModule_AddObjectRef(module, "dtype", (PyObject *)gdpy_dtype_type) < 0)
        return -1;
    for (int i = 0; i < NAMES; i++) {
        dtype_object *o = PyObject_New(dtype_object, gdpy_dtype_type);
        if (!o) return -1;
        o->dtype = names[i].dtype;
        objects[o->dtype] = (PyObject *)o;
        if (PyModule_AddObjectRef(module, names[i].name, (PyObject *)o) < 0) return -1;
    }
    return 0;
}
