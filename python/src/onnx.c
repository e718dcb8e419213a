/* onnx.c - ONNX files (gradus/onnx.py). */
#include "object.h"

#include <string.h>

/* Keys and values, alternating, from a tuple of strs; PyMem_Free frees the array. */
static const char **texts_from(PyObject *tuple) {
    const Py_ssize_t n = PyTuple_Size(tuple);
    const char **at = PyMem_Calloc((size_t)n + 1, sizeof *at);
    if (!at) return PyErr_NoMemory(), NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(tuple, i);
        if (!PyUnicode_Check(o)) PyErr_SetString(PyExc_TypeError, "metadata are strs");
        else at[i] = PyUnicode_AsUTF8AndSize(o, NULL);
        if (at[i]) continue;
        PyMem_Free(at);
        return NULL;
    }
    return at;
}

/* _onnx_save_module(net, path, examples, inputs, outputs, metadata, any_batch, any_length, own_ops,
 * external_above) */
static PyObject *core_save_module(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *examples, *metadata, *done = NULL;
    const char *path;
    gd_onnx_save_module_options o = *GD_ONNX_SAVE_MODULE_OPTIONS_();
    int any_batch, any_length, own_ops;
    long long external;
    if (!PyArg_ParseTuple(args, "OsOssO!pppL", &self, &path, &examples, &o.inputs, &o.outputs,
                          (PyObject *)&PyTuple_Type, &metadata, &any_batch, &any_length, &own_ops,
                          &external))
        return NULL;
    gd_module *net = gdpy_handle(self, GDPY_MODULE, "the module");
    const char **texts = net ? texts_from(metadata) : NULL;
    if (!texts) return NULL;
    o.metadata = texts;
    o.any_batch = any_batch;
    o.any_length = any_length;
    o.own_ops = own_ops;
    o.external_above = external;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensors in;
    if (gdpy_tensors_from_result(examples, "inputs", &in)) {
        gdpy_release_gil(&c);
        done = gdpy_end_status(&c, gd_onnx_save_module_at(c.site, path, net, in, &o));
    } else gdpy_cancel(&c);
    PyMem_Free(texts);
    return done;
}

/* _onnx_save(session, path, inputs, outputs, metadata, own_ops, external_above) */
static PyObject *core_save(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *inputs, *outputs, *metadata, *done = NULL;
    const char *path;
    gd_onnx_save_options o = *GD_ONNX_SAVE_OPTIONS_();
    int own_ops;
    long long external;
    if (!PyArg_ParseTuple(args, "OsOOO!pL", &self, &path, &inputs, &outputs,
                          (PyObject *)&PyTuple_Type, &metadata, &own_ops, &external))
        return NULL;
    gd_session *session = gdpy_handle(self, GDPY_SESSION, "the session");
    const char **texts = session ? texts_from(metadata) : NULL;
    if (!texts) return NULL;
    o.metadata = texts;
    o.own_ops = own_ops;
    o.external_above = external;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensors in, out;
    if (gdpy_tensors_from_result(inputs, "inputs", &in) &&
        gdpy_tensors_from_result(outputs, "outputs", &out)) {
        gdpy_release_gil(&c);
        done = gdpy_end_status(&c, gd_onnx_save_at(c.site, path, session, in, out, &o));
    } else gdpy_cancel(&c);
    PyMem_Free(texts);
    return done;
}

/* _onnx_module(path): a module. */
static PyObject *core_load_module(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    gd_module *m = gd_onnx_module_at(c.site, path);
    gdpy_take_gil(&c);
    PyObject *o = m ? gdpy_wrap_object(m, GDPY_MODULE, gd_module_type(m)) : gdpy_raise();
    gdpy_cancel(&c);
    return o;
}

/* _onnx_metadata(path, key): a str, or None. */
static PyObject *core_metadata(PyObject *module, PyObject *args) {
    (void)module;
    const char *path, *key;
    if (!PyArg_ParseTuple(args, "ss", &path, &key)) return NULL;
    char few[1];
    const int64_t length = gd_onnx_metadata_at(gdpy_site(), path, key, few, sizeof few);
    if (gd_failed()) return gdpy_raise();
    if (length < 0) return Py_NewRef(Py_None);
    char *text = PyMem_Malloc((size_t)length + 1);
    if (!text) return PyErr_NoMemory();
    gd_onnx_metadata_at(gdpy_site(), path, key, text, (size_t)length + 1);
    PyObject *o = gd_failed() ? gdpy_raise() : PyUnicode_FromString(text);
    PyMem_Free(text);
    return o;
}

PyMethodDef gdpy_onnx_functions[] = {
    {"_onnx_save_module", core_save_module, METH_VARARGS, NULL},
    {"_onnx_save", core_save, METH_VARARGS, NULL},
    {"_onnx_module", core_load_module, METH_VARARGS, NULL},
    {"_onnx_metadata", core_metadata, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
