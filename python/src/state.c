/* state.c - the state of objects: as tensors by name, and in files (gradus.save_state, load_state). */
#include "object.h"

#include <string.h>

/* The object of the library behind any of our objects. */
static void *any_handle(PyObject *o, const char *what) {
    if (gdpy_is_tensor(o)) return gdpy_tensor_of(o);
    for (int i = 0; i < GDPY_CLASSES; i++)
        if (gdpy_is(o, (gdpy_class)i)) return gdpy_handle(o, (gdpy_class)i, what);
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__name__");
    if (name)
        PyErr_Format(PyExc_TypeError,
                     "'%s' is no object with state (a module, optimizer, schedule, metric, loader "
                     "or tensor), but %U",
                     what, name);
    Py_XDECREF(name);
    return NULL;
}

/* The parts of [(name, object)], which PyMem_Free frees. */
static bool parts_from(PyObject *list, gd_state_parts *to) {
    const Py_ssize_t n = PyList_Size(list);
    gd_state_part *parts = PyMem_Calloc((size_t)n + 1, sizeof *parts);
    *to = (gd_state_parts){parts, n};
    if (!parts) return PyErr_NoMemory(), false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sO", &parts[i].name, &o)) return false;
        parts[i].object = any_handle(o, *parts[i].name ? parts[i].name : "the object");
        if (!parts[i].object) return false;
    }
    return true;
}

/* _state_of(object): {name: tensor}, the object's own tensors. */
static PyObject *core_state_of(PyObject *module, PyObject *o) {
    (void)module;
    void *handle = any_handle(o, "object");
    if (!handle) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_state *state = gd_state_of_at(c.site, handle);
    PyObject *dict = state ? PyDict_New() : gdpy_raise();
    for (int64_t i = 0; dict && i < gd_state_count(state); i++) {
        PyObject *t = gdpy_wrap_again(gd_state_tensor_at(state, i));
        if (!t || PyDict_SetItemString(dict, gd_state_name(state, i), t) < 0) Py_CLEAR(dict);
        Py_XDECREF(t);
    }
    gdpy_cancel(&c);
    return dict;
}

/* _set_state(object, [(name, tensor)]) */
static PyObject *core_set_state(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o, *list, *done = NULL;
    if (!PyArg_ParseTuple(args, "OO!", &o, (PyObject *)&PyList_Type, &list)) return NULL;
    void *handle = any_handle(o, "object");
    gd_state_parts parts = {NULL, 0};
    if (handle && parts_from(list, &parts)) {
        gdpy_call c;
        gdpy_open(&c);
        gdpy_release_gil(&c);
        gd_state *state = gd_state_of_parts_at(c.site, parts);
        done =
            gdpy_end_status(&c, state ? gd_set_state_at(c.site, handle, state) : gd_error_status());
    }
    PyMem_Free((void *)(uintptr_t)parts.at);
    return done;
}

/* --- files ------------------------------------------------------------------------------------ */

/* _save_state(path, [(name, object)], checksum, shard_bytes) */
static PyObject *core_save_state(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    PyObject *list, *done = NULL;
    int checksum;
    long long shard;
    if (!PyArg_ParseTuple(args, "sO!pL", &path, (PyObject *)&PyList_Type, &list, &checksum, &shard))
        return NULL;
    gd_state_parts parts;
    if (parts_from(list, &parts)) {
        const gd_save_state_options o = {.checksum = checksum, .shard_bytes = shard};
        gdpy_call c;
        gdpy_open(&c);
        gdpy_release_gil(&c);
        done = gdpy_end_status(&c, gd_save_state_at(c.site, path, parts, &o));
    }
    PyMem_Free((void *)(uintptr_t)parts.at);
    return done;
}

/* The Python function of a load that renames, and its latest result. */
typedef struct renaming {
    PyObject *function, *name;
    bool failed;
} renaming;

static const char *rename_by(const char *name, void *user) {
    renaming *r = user;
    const PyGILState_STATE state = gdpy_enter();
    const char *text = NULL;
    PyObject *result = r->failed ? NULL : PyObject_CallFunction(r->function, "s", name);
    if (result && result != Py_None) text = PyUnicode_AsUTF8AndSize(result, NULL);
    if (PyErr_Occurred()) {
        gdpy_keep_exception();
        r->failed = true;
    }
    gdpy_set(&r->name, result); /* holds the text until the next call */
    gdpy_leave(state);
    return text;
}

/* _load_state(path, [(name, object)], partial, prefix, rename): what was loaded, for a partial load. rename is a
 * function, rules as a str, or None. */
static PyObject *core_load_state(PyObject *module, PyObject *args) {
    (void)module;
    const char *path, *prefix, *names = NULL;
    PyObject *list, *function, *done = NULL;
    int partial;
    if (!PyArg_ParseTuple(args, "sO!pzO", &path, (PyObject *)&PyList_Type, &list, &partial, &prefix,
                          &function))
        return NULL;
    if (PyUnicode_Check(function) && !(names = PyUnicode_AsUTF8AndSize(function, NULL)))
        return NULL;
    gd_state_parts parts;
    gd_load_report report;
    memset(&report, 0, sizeof report);
    renaming by = {.function = function};
    if (parts_from(list, &parts)) {
        const gd_load_state_options o = {.partial = partial ? &report : NULL,
                                         .prefix = prefix,
                                         .rename = function == Py_None || names ? NULL : rename_by,
                                         .user = &by,
                                         .names = names};
        gdpy_call c;
        gdpy_open(&c);
        gdpy_release_gil(&c);
        gd_status status = gd_load_state_at(c.site, path, parts, &o);
        if (status == GD_OK && gd_failed()) status = gd_error_status(); /* of the renaming */
        done = gdpy_end_status(&c, status);
    }
    Py_XDECREF(by.name);
    PyMem_Free((void *)(uintptr_t)parts.at);
    if (!done || !partial) return done;
    Py_DECREF(done);
    return Py_BuildValue("(LLLLs)", (long long)report.loaded, (long long)report.missing,
                         (long long)report.unexpected, (long long)report.unfit, report.text);
}

PyMethodDef gdpy_state_functions[] = {
    {"_state_of", core_state_of, METH_O, NULL},
    {"_set_state", core_set_state, METH_VARARGS, NULL},
    {"_save_state", core_save_state, METH_VARARGS, NULL},
    {"_load_state", core_load_state, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
