/* tree.c - nested arguments and results: tensors are taken out of tuples, lists and dicts, and put back.
 *
 * What is left is a description, which is hashable, so that calls of a jit with equal descriptions have
 * one plan. It is made of tuples:
 *
 *     TENSOR                              a tensor
 *     (tuple, type, (description, ...))   a tuple; type is None or that of a named tuple
 *     (list, None, (description, ...))
 *     (dict, (key, ...), (description, ...))
 *     (type, value)                       anything else; the value of a float is its exact text
 *
 * A value that is not hashable is a TypeError. */
#include "object.h"

#include <string.h>

static PyObject *leaf; /* TENSOR, a unique object */

/* Whether `o` counts as a tensor, as an array of another library. */
static bool is_array(PyObject *o) {
    if (PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o) ||
        PyType_Check(o))
        return false;
    return PyObject_HasAttrString(o, "__dlpack__") || PyObject_HasAttrString(o, "__array__");
}

static PyObject *flatten_items(PyObject *items, PyObject *list, int how) {
    const Py_ssize_t n = PyTuple_Size(items);
    PyObject *parts = PyTuple_New(n);
    for (Py_ssize_t i = 0; i < n && parts; i++) {
        PyObject *part = gdpy_flatten(PyTuple_GetItem(items, i), list, how);
        if (!part) Py_CLEAR(parts);
        else PyTuple_SetItem(parts, i, part);
    }
    return parts;
}

static PyObject *flatten_container(PyObject *kind, PyObject *detail, PyObject *values,
                                   PyObject *list, int how) {
    PyObject *parts = NULL;
    if (detail && values && Py_EnterRecursiveCall(" in nested arguments") == 0) {
        parts = flatten_items(values, list, how);
        Py_LeaveRecursiveCall();
    }
    PyObject *o = parts ? PyTuple_Pack(3, kind, detail, parts) : NULL;
    Py_XDECREF(parts);
    Py_XDECREF(detail);
    Py_XDECREF(values);
    return o;
}

static PyObject *flatten_dict(PyObject *o, PyObject *list, int how) {
    PyObject *keys = PyDict_Keys(o), *values = PyDict_Values(o);
    PyObject *key_tuple = keys ? PyList_AsTuple(keys) : NULL,
             *value_tuple = values ? PyList_AsTuple(values) : NULL;
    Py_XDECREF(keys);
    Py_XDECREF(values);
    return flatten_container((PyObject *)&PyDict_Type, key_tuple, value_tuple, list, how);
}

/* A value and its type: 1, 1.0 and True are equal in Python, and so are 0.0 and -0.0. */
static PyObject *flatten_static(PyObject *o, int how) {
    PyObject *value = PyFloat_Check(o) ? PyObject_CallMethod(o, "hex", NULL) : Py_NewRef(o);
    PyObject *pair = value ? PyTuple_Pack(2, (PyObject *)Py_TYPE(o), value) : NULL;
    Py_XDECREF(value);
    if (pair && !(how & GDPY_ANY_VALUE) && PyObject_Hash(pair) == -1) {
        PyErr_Clear();
        PyErr_Format(
            PyExc_TypeError,
            "an argument is a %R, which is neither a tensor nor hashable; pass tensors, numbers, "
            "texts, or tuples, lists and dicts of them",
            (PyObject *)Py_TYPE(o));
        Py_CLEAR(pair);
    }
    return pair;
}

PyObject *gdpy_flatten(PyObject *o, PyObject *list, int how) {
    if (gdpy_is_tensor(o) || ((how & GDPY_ARRAYS) && !PyTuple_Check(o) && !PyList_Check(o) &&
                              !PyDict_Check(o) && is_array(o)))
        return PyList_Append(list, o) < 0 ? NULL : Py_NewRef(leaf);
    if (PyTuple_Check(o)) {
        const bool named = !PyTuple_CheckExact(o);
        return flatten_container((PyObject *)&PyTuple_Type,
                                 Py_NewRef(named ? (PyObject *)Py_TYPE(o) : Py_None),
                                 PySequence_Tuple(o), list, how);
    }
    if (PyList_Check(o))
        return flatten_container((PyObject *)&PyList_Type, Py_NewRef(Py_None), PyList_AsTuple(o),
                                 list, how);
    if (PyDict_Check(o)) return flatten_dict(o, list, how);
    return flatten_static(o, how);
}

static PyObject *unflatten_items(PyObject *parts, PyObject *list, Py_ssize_t *at) {
    const Py_ssize_t n = PyTuple_Size(parts);
    PyObject *items = PyTuple_New(n);
    for (Py_ssize_t i = 0; i < n && items; i++) {
        PyObject *item = gdpy_unflatten(PyTuple_GetItem(parts, i), list, at);
        if (!item) Py_CLEAR(items);
        else PyTuple_SetItem(items, i, item);
    }
    return items;
}

static PyObject *as_dict(PyObject *keys, PyObject *items) {
    PyObject *dict = PyDict_New();
    for (Py_ssize_t i = 0; i < PyTuple_Size(keys) && dict; i++)
        if (PyDict_SetItem(dict, PyTuple_GetItem(keys, i), PyTuple_GetItem(items, i)) < 0)
            Py_CLEAR(dict);
    return dict;
}

PyObject *gdpy_unflatten(PyObject *d, PyObject *list, Py_ssize_t *at) {
    if (d == leaf) {
        PyObject *o = PySequence_GetItem(list, *at);
        if (o) ++*at;
        return o;
    }
    PyObject *kind = PyTuple_GetItem(d, 0);
    if (PyTuple_Size(d) == 2) { /* a static value */
        PyObject *value = PyTuple_GetItem(d, 1);
        const bool number = PyType_IsSubtype((PyTypeObject *)kind, &PyFloat_Type);
        return number ? PyObject_CallMethod(kind, "fromhex", "O", value) : Py_NewRef(value);
    }
    PyObject *detail = PyTuple_GetItem(d, 1),
             *items = unflatten_items(PyTuple_GetItem(d, 2), list, at);
    if (!items) return NULL;
    PyObject *o = NULL;
    if (kind == (PyObject *)&PyDict_Type) o = as_dict(detail, items);
    else if (kind == (PyObject *)&PyList_Type) o = PySequence_List(items);
    else if (detail == Py_None) o = Py_NewRef(items);
    else if (PyObject_HasAttrString(detail, "_make"))
        o = PyObject_CallMethod(detail, "_make", "(O)", items);
    else
        o = PyObject_CallFunctionObjArgs(detail, items,
                                         NULL); /* PyStructSequence, subclasses of tuple */
    Py_DECREF(items);
    return o;
}

static PyObject *core_flatten(PyObject *module, PyObject *o) {
    (void)module;
    PyObject *list = PyList_New(0), *d = list ? gdpy_flatten(o, list, GDPY_ANY_VALUE) : NULL;
    if (d) return Py_BuildValue("(NN)", d, list);
    Py_XDECREF(list);
    return NULL;
}
static PyObject *core_unflatten(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *d, *list;
    Py_ssize_t at = 0;
    return PyArg_ParseTuple(args, "OO", &d, &list) ? gdpy_unflatten(d, list, &at) : NULL;
}

static PyMethodDef functions[] = {
    {"_flatten", core_flatten, METH_O, NULL},
    {"_unflatten", core_unflatten, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int gdpy_tree_init(PyObject *module) {
    leaf =
        PyUnicode_FromString("<a tensor>"); /* compared by identity; no description equals a text */
    return leaf ? PyModule_AddFunctions(module, functions) : -1;
}
