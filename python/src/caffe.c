/* caffe.c - files of Caffe (gradus/caffe.py). */
#include "object.h"

/* _caffe_net(path, weights, outputs, train, level, stages, dummy): a module. */
static PyObject *core_net(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    gd_caffe_net_options o = *GD_CAFFE_NET_OPTIONS_();
    int train;
    if (!PyArg_ParseTuple(args, "szzpizz", &path, &o.weights, &o.outputs, &train, &o.level,
                          &o.stages, &o.dummy))
        return NULL;
    o.train = train;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    gd_module *m = gd_caffe_net_at(c.site, path, &o);
    gdpy_take_gil(&c);
    PyObject *net = m ? gdpy_wrap_object(m, GDPY_MODULE, gd_module_type(m)) : gdpy_raise();
    gdpy_cancel(&c);
    return net;
}

/* (name, (sizes, ...)) */
static PyObject *describe(const gd_caffe_blob *blob) {
    PyObject *shape = PyTuple_New(blob->shape.rank);
    for (int i = 0; shape && i < blob->shape.rank; i++) {
        PyObject *size = PyLong_FromLongLong(blob->shape.at[i]);
        if (!size || PyTuple_SetItem(shape, i, size) < 0) Py_CLEAR(shape);
    }
    return shape ? Py_BuildValue("(sN)", blob->name, shape) : NULL;
}

typedef bool (*blob_getter)(const gd_module *net, int index, gd_caffe_blob *blob);

static PyObject *describe_all(const gd_module *net, blob_getter get) {
    PyObject *list = PyList_New(0);
    gd_caffe_blob blob;
    for (int i = 0; list && get(net, i, &blob); i++) {
        PyObject *one = describe(&blob);
        if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

/* _caffe_blobs(net): lists of the inputs and of the outputs. */
static PyObject *core_blobs(PyObject *module, PyObject *self) {
    (void)module;
    const gd_module *net = gdpy_handle(self, GDPY_MODULE, "the module");
    PyObject *in = net ? describe_all(net, gd_caffe_input) : NULL,
             *out = in ? describe_all(net, gd_caffe_output) : NULL;
    if (in && out) return Py_BuildValue("(NN)", in, out);
    Py_XDECREF(in);
    return NULL;
}

/* --- training and testing --------------------------------------------------------------------- */

/* Passes a line of the log to a function of the program. */
static void pass_line(const char *line, void *function) {
    const PyGILState_STATE state = gdpy_enter();
    PyObject *done = PyObject_CallFunction(function, "s", line);
    if (!done) gdpy_keep_exception();
    Py_XDECREF(done);
    gdpy_leave(state);
}

/* _caffe_train(path, device, weights, snapshot, checkpoints, resume, iterations, level, stages, dummy, workers,
 * line, jit, interrupt): (history, net). */
static PyObject *core_train(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    gd_caffe_train_options o = *GD_CAFFE_TRAIN_OPTIONS_();
    int resume, jit, interrupt;
    long long iterations;
    PyObject *line;
    gd_module *net = NULL;
    if (!PyArg_ParseTuple(args, "szzzzpLizziOpp", &path, &o.device, &o.weights, &o.snapshot,
                          &o.checkpoints, &resume, &iterations, &o.level, &o.stages, &o.dummy,
                          &o.workers, &line, &jit, &interrupt))
        return NULL;
    o.resume = resume;
    o.iterations = iterations;
    o.jit = jit;
    o.interrupt = interrupt;
    o.line = line == Py_None ? NULL : pass_line;
    o.line_user = line;
    o.net = &net;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    gd_history *h = gd_caffe_train_at(c.site, path, &o);
    gdpy_take_gil(&c);
    PyObject *history = gdpy_wrap_history(h),
             *trained = history ? gdpy_wrap_object(net, GDPY_MODULE, gd_module_type(net)) : NULL;
    gdpy_cancel(&c);
    if (trained) return Py_BuildValue("(NN)", history, trained);
    Py_XDECREF(history);
    return NULL;
}

/* _caffe_test(path, weights, iterations, level, stages, dummy, workers, line): a history. */
static PyObject *core_test(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    gd_caffe_test_options o = *GD_CAFFE_TEST_OPTIONS_();
    long long iterations;
    PyObject *line;
    if (!PyArg_ParseTuple(args, "szLizziO", &path, &o.weights, &iterations, &o.level, &o.stages,
                          &o.dummy, &o.workers, &line))
        return NULL;
    o.iterations = iterations;
    o.line = line == Py_None ? NULL : pass_line;
    o.line_user = line;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    gd_history *h = gd_caffe_test_at(c.site, path, &o);
    gdpy_take_gil(&c);
    PyObject *history = gdpy_wrap_history(h);
    gdpy_cancel(&c);
    return history;
}

/* --- files ------------------------------------------------------------------------------------ */

typedef gd_status (*file_call)(const char *site, const char *path, gd_module *net);

static PyObject *call_with_file(PyObject *args, file_call call) {
    const char *path;
    PyObject *self;
    if (!PyArg_ParseTuple(args, "sO", &path, &self)) return NULL;
    gd_module *net = gdpy_handle(self, GDPY_MODULE, "the module");
    if (!net) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(&c, call(c.site, path, net));
}

/* _caffe_load(paths, net), _caffe_save(path, net) */
static PyObject *core_load(PyObject *module, PyObject *args) {
    (void)module;
    return call_with_file(args, gd_caffe_load_at);
}
static PyObject *core_save(PyObject *module, PyObject *args) {
    (void)module;
    return call_with_file(args, gd_caffe_save_at);
}

/* _caffe_save_net(path, net, examples) */
static PyObject *core_save_net(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    PyObject *self, *examples, *done = NULL;
    if (!PyArg_ParseTuple(args, "sOO", &path, &self, &examples)) return NULL;
    gd_module *net = gdpy_handle(self, GDPY_MODULE, "the module");
    if (!net) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensors in;
    if (gdpy_tensors_from_result(examples, "inputs", &in)) {
        gdpy_release_gil(&c);
        done = gdpy_end_status(&c, gd_caffe_save_net_at(c.site, path, net, in));
    } else gdpy_cancel(&c);
    return done;
}

/* _caffe_read_blob(path): a tensor. */
static PyObject *core_read_blob(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    return gdpy_end(&c, gd_caffe_read_blob_at(c.site, path));
}

/* _caffe_write_blob(path, tensor) */
static PyObject *core_write_blob(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    PyObject *tensor;
    if (!PyArg_ParseTuple(args, "sO!", &path, gdpy_tensor_type, &tensor)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(&c, gd_caffe_write_blob_at(c.site, path, gdpy_tensor_of(tensor)));
}

/* --- new files -------------------------------------------------------------------------------- */

/* _caffe_draw(path, file, train, level, stages, dummy, left_to_right) */
static PyObject *core_draw(PyObject *module, PyObject *args) {
    (void)module;
    const char *path, *file;
    gd_caffe_draw_net_options o = *GD_CAFFE_DRAW_NET_OPTIONS_();
    int train, right;
    if (!PyArg_ParseTuple(args, "sspizzp", &path, &file, &train, &o.level, &o.stages, &o.dummy,
                          &right))
        return NULL;
    o.train = train;
    o.left_to_right = right;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(&c, gd_caffe_draw_net_at(c.site, path, file, &o));
}

/* _caffe_extract(path, blobs, file, weights, iterations, level, stages, dummy, workers) */
static PyObject *core_extract(PyObject *module, PyObject *args) {
    (void)module;
    const char *path, *blobs, *file;
    gd_caffe_extract_options o = *GD_CAFFE_EXTRACT_OPTIONS_();
    long long iterations;
    if (!PyArg_ParseTuple(args, "ssszLizzi", &path, &blobs, &file, &o.weights, &iterations,
                          &o.level, &o.stages, &o.dummy, &o.workers))
        return NULL;
    o.iterations = iterations;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(&c, gd_caffe_extract_at(c.site, path, blobs, file, &o));
}

PyMethodDef gdpy_caffe_functions[] = {
    {"_caffe_net", core_net, METH_VARARGS, NULL},
    {"_caffe_blobs", core_blobs, METH_O, NULL},
    {"_caffe_train", core_train, METH_VARARGS, NULL},
    {"_caffe_test", core_test, METH_VARARGS, NULL},
    {"_caffe_draw", core_draw, METH_VARARGS, NULL},
    {"_caffe_extract", core_extract, METH_VARARGS, NULL},
    {"_caffe_load", core_load, METH_VARARGS, NULL},
    {"_caffe_save", core_save, METH_VARARGS, NULL},
    {"_caffe_save_net", core_save_net, METH_VARARGS, NULL},
    {"_caffe_read_blob", core_read_blob, METH_VARARGS, NULL},
    {"_caffe_write_blob", core_write_blob, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
