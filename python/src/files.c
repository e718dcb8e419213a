/* files.c - tensors by name in files: gradus.save and gradus.load; and autocast. */
#include "call.h"

#include <string.h>

/* A path as text: a str, or an object with __fspath__. */
static PyObject *path_text(PyObject *path) {
    PyObject *text = PyOS_FSPath(path);
    if (text && PyUnicode_Check(text)) return text;
    if (text) PyErr_SetString(PyExc_TypeError, "a path is a str or an os.PathLike, not bytes");
    Py_XDECREF(text);
    return NULL;
}

static PyObject *files_save(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *path, *items; /* a list of pairs: a name and a tensor */
    int checksum;
    if (!PyArg_ParseTuple(args, "OO!p", &path, (PyObject *)&PyList_Type, &items, &checksum))
        return NULL;
    PyObject *text = path_text(path);
    if (!text) return NULL;
    const Py_ssize_t n = PyList_Size(items);
    gd_state_part *parts = PyMem_Calloc((size_t)n + 1, sizeof *parts);
    bool good = parts != NULL || (PyErr_NoMemory(), false);
    for (Py_ssize_t i = 0; i < n && good; i++) {
        PyObject *tensor;
        good = PyArg_ParseTuple(PyList_GetItem(items, i), "sO!", &parts[i].name,
                                (PyObject *)gdpy_tensor_type, &tensor);
        if (good) parts[i].object = gdpy_tensor_of(tensor);
    }
    PyObject *done = NULL;
    const char *utf8 = good ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    if (utf8) {
        gdpy_call c;
        gdpy_open(&c);
        gdpy_release_gil(&c);
        const gd_save_state_options o = {.checksum = checksum};
        done = gdpy_end_status(&c, gd_save_state_at(c.site, utf8, (gd_state_parts){parts, n}, &o));
    }
    PyMem_Free(parts);
    Py_DECREF(text);
    return done;
}

static PyObject *files_load(PyObject *module, PyObject *path) {
    (void)module;
    PyObject *text = path_text(path), *dict = NULL;
    const char *utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    if (utf8) {
        gdpy_call c;
        gdpy_open(&c);
        gdpy_release_gil(&c);
        gd_state *state = gd_read_state_at(c.site, utf8);
        gdpy_take_gil(&c);
        dict = state ? PyDict_New() : gdpy_raise();
        for (int64_t i = 0; dict && i < gd_state_count(state); i++) {
            PyObject *t = gdpy_wrap(gd_state_tensor_at(state, i));
            if (!t || PyDict_SetItemString(dict, gd_state_name(state, i), t) < 0) Py_CLEAR(dict);
            Py_XDECREF(t);
        }
        gdpy_cancel(&c);
    }
    Py_XDECREF(text);
    return dict;
}

/* --- autocast --------------------------------------------------------------------------------- */

static PyObject *autocast_begin(PyObject *module, PyObject *o) {
    (void)module;
    gd_dtype dtype = GD_DTYPE_NONE;
    if (o != Py_None && !gdpy_dtype_from(o, &dtype)) return NULL;
    const gd_dtype before = gd_autocast_begin_at(gdpy_site(), dtype);
    if (gd_failed()) return gdpy_raise();
    return PyLong_FromLong(before);
}
static PyObject *autocast_end(PyObject *module, PyObject *before) {
    (void)module;
    gd_dtype dtype = (gd_dtype)PyLong_AsLong(before);
    if (PyErr_Occurred()) return NULL;
    gd_autocast_end(&dtype);
    return Py_NewRef(Py_None);
}
static PyObject *allow_tf32(PyObject *module, PyObject *allow) {
    (void)module;
    const int is = PyObject_IsTrue(allow);
    return is < 0 ? NULL : PyBool_FromLong(gd_allow_tf32(is));
}

PyMethodDef gdpy_file_functions[] = {
    {"_save", files_save, METH_VARARGS, NULL},
    {"_load", files_load, METH_O, NULL},
    {"_autocast_begin", autocast_begin, METH_O, NULL},
    {"_autocast_end", autocast_end, METH_O, NULL},
    {"allow_tf32", allow_tf32, METH_O,
     "allow_tf32(allow, /)\n--\n\nWhether products of f32 may round their operands to tf32 on "
     "NVIDIA's tensor cores. "
     "Returns the setting before."},
    {NULL, NULL, 0, NULL},
};
