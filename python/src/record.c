/* record.c - what a program records of its run: TensorBoard's logs and the profiler (gradus/tensorboard.py, profiler.py). */
#include "object.h"

#include <stdlib.h>
#include <string.h>

/* --- TensorBoard ------------------------------------------------------------------------------ */

static PyObject *core_board_init(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    const char *folder;
    if (!PyArg_ParseTuple(args, "O!s", (PyObject *)gdpy_types[GDPY_BOARD], &self, &folder))
        return NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end_object(&c, self, gd_board_new_at(c.site, folder));
}

/* Closes the file: the object has no content any more. */
static PyObject *core_board_close(PyObject *module, PyObject *self) {
    (void)module;
    if (!gdpy_is(self, GDPY_BOARD))
        return PyErr_SetString(PyExc_TypeError, "expected a Board"), NULL;
    gdpy_object *o = gdpy_object_data(self);
    if (o->known) gdpy_forget_known(self);
    o->known = false;
    (gd_release)(o->handle);
    o->handle = NULL;
    return Py_NewRef(Py_None);
}

/* _board_add(board, kind, tag, value, step): kind is "scalar", "image", "histogram" or "text". */
static PyObject *core_board_add(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *value;
    const char *kind, *tag, *text = NULL;
    long long step;
    double number;
    if (!PyArg_ParseTuple(args, "OssOL", &self, &kind, &tag, &value, &step)) return NULL;
    gd_board *board = gdpy_handle(self, GDPY_BOARD, "self");
    if (!board) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *t = NULL;
    if (*kind == 's' && !gdpy_float_from(value, "the value", &number)) return gdpy_cancel(&c);
    if (*kind == 't' && !(text = PyUnicode_AsUTF8AndSize(value, NULL))) return gdpy_cancel(&c);
    if ((*kind == 'i' || *kind == 'h') && !(t = gdpy_to_tensor(value, GD_DTYPE_NONE, true)))
        return gdpy_cancel(&c);
    gdpy_release_gil(&c);
    gd_status status;
    if (*kind == 's') status = gd_board_scalar_at(c.site, board, tag, number, step);
    else if (*kind == 't') status = gd_board_text_at(c.site, board, tag, text, step);
    else if (*kind == 'i') status = gd_board_image_at(c.site, board, tag, t, step);
    else status = gd_board_histogram_at(c.site, board, tag, t, step);
    return gdpy_end_status(&c, status);
}

/* --- the profiler ----------------------------------------------------------------------------- */

static PyObject *core_profiler_start(PyObject *module, PyObject *plans) {
    (void)module;
    const int whole = PyObject_IsTrue(plans);
    if (whole < 0) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end_status(&c, whole ? gd_profiler_start_plans() : gd_profiler_start());
}
static PyObject *core_profiler_stop(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c); /* waits for devices */
    gd_profiler_stop();
    return gdpy_end_status(&c, GD_OK);
}

/* _profiler_rows(): [(op, kernel, device, calls, ms, bytes, live bytes)]. */
static PyObject *core_profiler_rows(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    PyObject *list = PyList_New(0);
    gd_profile_row row;
    for (int64_t i = 0; list && gd_profiler_row(i, &row); i++) {
        PyObject *o =
            Py_BuildValue("(sssLdLL)", row.op, row.kernel, row.device, (long long)row.calls,
                          row.total_ms, (long long)row.bytes, (long long)row.live_bytes);
        if (!o || PyList_Append(list, o) < 0) Py_CLEAR(list);
        Py_XDECREF(o);
    }
    return list;
}

static PyObject *core_profiler_save(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(&c, gd_profiler_save_trace(path));
}

/* Spans of the trace. The library keeps the pointer to a name, so names are kept for good. */
static PyObject *span_names;

/* _profiler_span(name): (name, when it began), for _profiler_span_end. */
static PyObject *core_profiler_span(PyObject *module, PyObject *name) {
    (void)module;
    if (!PyUnicode_Check(name)) return PyErr_SetString(PyExc_TypeError, "a name is a str"), NULL;
    if (!span_names && !(span_names = PyDict_New())) return NULL;
    PyObject *own = PyDict_GetItemWithError(span_names, name);
    if (!own && (PyErr_Occurred() || PyDict_SetItem(span_names, name, name) < 0)) return NULL;
    own = own ? own : name;
    const char *text = PyUnicode_AsUTF8AndSize(own, NULL);
    if (!text) return NULL;
    const gd_profile_span span = gd_profile_span_begin(text);
    return Py_BuildValue("(OL)", own, (long long)span.started);
}
static PyObject *core_profiler_span_end(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *name;
    long long started;
    if (!PyArg_ParseTuple(args, "UL", &name, &started)) return NULL;
    gd_profile_span span = {PyUnicode_AsUTF8AndSize(name, NULL), started};
    gd_profile_span_end(&span);
    return Py_NewRef(Py_None);
}

PyMethodDef gdpy_record_functions[] = {
    {"_board_init", core_board_init, METH_VARARGS, NULL},
    {"_board_close", core_board_close, METH_O, NULL},
    {"_board_add", core_board_add, METH_VARARGS, NULL},
    {"_profiler_start", core_profiler_start, METH_O, NULL},
    {"_profiler_stop", core_profiler_stop, METH_NOARGS, NULL},
    {"_profiler_rows", core_profiler_rows, METH_NOARGS, NULL},
    {"_profiler_save", core_profiler_save, METH_VARARGS, NULL},
    {"_profiler_span", core_profiler_span, METH_O, NULL},
    {"_profiler_span_end", core_profiler_span_end, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
