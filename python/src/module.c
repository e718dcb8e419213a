/* module.c - the module gradus._core: its functions, and its start. */
#include "object.h"

#include <string.h>

#include "interop.h"

/* --- places ----------------------------------------------------------------------------------- */

/* Nodes of a graph keep the address of their place, so each text is kept, once. */
static PyObject *site_texts; /* a dict: text to a bytes object */

/* The file of a frame's code; a new reference. */
static PyObject *file_of(PyObject *frame) {
    PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
    PyObject *file = PyObject_GetAttrString((PyObject *)code, "co_filename");
    Py_DECREF((PyObject *)code);
    return file;
}

/* Whether it is a file of this package, whose name ends in /gradus/... */
static bool is_own(PyObject *file) {
    static char folder[1024]; /* "": not known yet */
    if (!*folder) {
        PyObject *core = PyImport_ImportModule("gradus._core"),
                 *path = core ? PyObject_GetAttrString(core, "__file__") : NULL;
        const char *text = path ? PyUnicode_AsUTF8AndSize(path, NULL) : NULL;
        const char *end = text ? strrchr(text, '/') : NULL;
        snprintf(folder, sizeof folder, "%.*s", end ? (int)(end - text) + 1 : 1, end ? text : "-");
        Py_XDECREF(path);
        Py_XDECREF(core);
    }
    const char *name = file ? PyUnicode_AsUTF8AndSize(file, NULL) : NULL;
    return name && strncmp(name, folder, strlen(folder)) == 0;
}

/* The frame of the program that has called the package; a new reference. */
static PyObject *calling_frame(PyObject **file) {
    PyObject *frame = Py_XNewRef((PyObject *)PyEval_GetFrame());
    *file = frame ? file_of(frame) : NULL;
    while (frame && is_own(*file)) {
        PyObject *back = PyObject_GetAttrString(frame, "f_back");
        if (!back || back == Py_None) {
            Py_XDECREF(back);
            break;
        }
        gdpy_set(&frame, back);
        gdpy_set(file, file_of(frame));
    }
    return frame;
}

const char *gdpy_site(void) {
    if (!gd_is_tracing() || !site_texts) return NULL;
    PyObject *file, *frame = calling_frame(&file), *text = NULL, *kept = NULL;
    if (!frame) return NULL;
    if (file)
        text = PyUnicode_FromFormat("%U:%d", file, PyFrame_GetLineNumber((PyFrameObject *)frame));
    if (text) kept = PyDict_GetItemWithError(site_texts, text);
    if (text && !kept) {
        PyObject *bytes = PyUnicode_AsUTF8String(text);
        if (bytes && PyDict_SetItem(site_texts, text, bytes) == 0) kept = bytes;
        Py_XDECREF(bytes); /* the dict holds it */
    }
    const char *site = kept ? PyBytes_AsString(kept) : NULL;
    Py_DECREF(frame);
    Py_XDECREF(file);
    Py_XDECREF(text);
    PyErr_Clear();
    return site;
}

static bool running;
bool gdpy_alive(void) { return running && Py_IsInitialized(); }

/* --- creating tensors ------------------------------------------------------------------------- */

static PyObject *convert(PyObject *args, PyObject *names, bool share) {
    PyObject *data, *dtype = Py_None, *device = Py_None, *copy = Py_None;
    int requires_grad = 0;
    static char *words[] = {"data", "dtype", "device", "requires_grad", "copy", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|OOpO", words, &data, &dtype, &device,
                                     &requires_grad, &copy))
        return NULL;
    gd_dtype wanted = GD_DTYPE_NONE;
    if (dtype != Py_None && !gdpy_dtype_from(dtype, &wanted)) return NULL;
    gd_device *to = device == Py_None ? NULL : gdpy_device_from(device);
    if (device != Py_None && !to) return NULL;
    const int copies = copy == Py_None ? !share : PyObject_IsTrue(copy);
    if (copies < 0) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    c.requires_grad = requires_grad;
    gd_tensor *t = gdpy_to_tensor(data, wanted, !copies);
    if (!t) return gdpy_cancel(&c);
    if (!to && !gdpy_is_tensor(data)) to = gd_default_device();
    if (copy == Py_False && ((to && to != gd_tensor_device(t)) ||
                             (gdpy_is_tensor(data) && t != gdpy_tensor_of(data)))) {
        PyErr_SetString(PyExc_ValueError, "the call would have to copy, and copy is False");
        return gdpy_cancel(&c);
    }
    if (to && to != gd_tensor_device(t)) t = gd_to_device_at(c.site, t, to);
    if (gdpy_is_tensor(data) && t == gdpy_tensor_of(data) && !requires_grad) {
        gdpy_cancel(&c);
        return Py_NewRef(data);
    }
    if (!share && gd_tensor_requires_grad(t)) t = gd_detach_at(c.site, t); /* a new leaf */
    return gdpy_end(&c, t);
}

static PyObject *core_tensor(PyObject *module, PyObject *args, PyObject *names) {
    return (void)module, convert(args, names, false);
}
static PyObject *core_as_tensor(PyObject *module, PyObject *args, PyObject *names) {
    return (void)module, convert(args, names, true);
}

/* The shape may also be several numbers: empty(2, 3). */
static PyObject *core_empty(PyObject *module, PyObject *args, PyObject *names) {
    const Py_ssize_t n = PyTuple_Size(args);
    bool numbers = n > 1;
    for (Py_ssize_t i = 0; i < n && numbers; i++) numbers = PyLong_Check(PyTuple_GetItem(args, i));
    if (numbers) {
        PyObject *one = PyTuple_Pack(1, args);
        PyObject *made = one ? core_empty(module, one, names) : NULL;
        Py_XDECREF(one);
        return made;
    }
    PyObject *shape, *dtype = Py_None, *device = Py_None;
    int requires_grad = 0;
    static char *words[] = {"shape", "dtype", "device", "requires_grad", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|OOp", words, &shape, &dtype, &device,
                                     &requires_grad))
        return NULL;
    gd_shape dims;
    gd_dtype wanted = GD_F32;
    if (!gdpy_shape_from(shape, "shape", &dims)) return NULL;
    if (dtype != Py_None && !gdpy_dtype_from(dtype, &wanted)) return NULL;
    gd_device *to = device == Py_None ? gd_default_device() : gdpy_device_from(device);
    if (!to) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    c.requires_grad = requires_grad;
    c.device_before = gd_default_device();
    c.has_device = true;
    gd_set_default_device(to);
    return gdpy_end(&c, gd_empty_at(c.site, dims, wanted));
}

static PyObject *core_to_device(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *tensor, *device;
    if (!PyArg_ParseTuple(args, "O!O", (PyObject *)gdpy_tensor_type, &tensor, &device)) return NULL;
    gd_device *to = gdpy_device_from(device);
    if (!to) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    gd_tensor *t = gd_to_device_at(c.site, gdpy_tensor_of(tensor), to);
    if (t != gdpy_tensor_of(tensor)) return gdpy_end(&c, t);
    gdpy_cancel(&c);
    return Py_NewRef(tensor);
}

/* The elements in row-major order as bytes, and back: for pickles. */
static PyObject *core_to_bytes(PyObject *module, PyObject *tensor) {
    (void)module;
    if (!gdpy_is_tensor(tensor)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    gd_tensor *t = gdpy_tensor_of(tensor);
    const size_t size = (size_t)gd_tensor_numel(t) * gd_dtype_size(gd_tensor_dtype(t));
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!bytes) return NULL;
    if (gd_copy_to_at(gdpy_site(), t, PyBytes_AsString(bytes), size) == GD_OK) return bytes;
    Py_DECREF(bytes);
    return gdpy_raise();
}
static PyObject *core_from_bytes(PyObject *module, PyObject *args) {
    (void)module;
    const char *data;
    Py_ssize_t size;
    PyObject *dtype, *shape;
    gd_dtype wanted;
    gd_shape dims;
    if (!PyArg_ParseTuple(args, "y#OO", &data, &size, &dtype, &shape) ||
        !gdpy_dtype_from(dtype, &wanted) || !gdpy_shape_from(shape, "shape", &dims))
        return NULL;
    gdpy_call c;
    gdpy_open(&c);
    c.device_before = gd_default_device();
    c.has_device = true;
    gd_set_default_device(NULL);
    gd_tensor *t = gd_empty_at(c.site, dims, wanted);
    if (!gd_tensor_is_error(t) && gd_copy_from_at(c.site, t, data, (size_t)size) != GD_OK) {
        gdpy_raise();
        return gdpy_cancel(&c);
    }
    return gdpy_end(&c, t);
}

/* --- modes and settings ----------------------------------------------------------------------- */

/* Modes are switched on and off again in pairs, by context managers of gradus/_modes.py. */
static PyObject *core_grad_mode(PyObject *module, PyObject *on) {
    (void)module;
    const int wanted = PyObject_IsTrue(on);
    if (wanted < 0) return NULL;
    return PyLong_FromLong(wanted ? gd_enable_grad_begin() : gd_no_grad_begin());
}
static PyObject *core_grad_mode_end(PyObject *module, PyObject *before) {
    (void)module;
    int mode = (int)PyLong_AsLong(before);
    if (mode == -1 && PyErr_Occurred()) return NULL;
    gd_grad_mode_end(&mode);
    return Py_NewRef(Py_None);
}
static PyObject *core_is_tracing(PyObject *module, PyObject *none) {
    return (void)module, (void)none, PyBool_FromLong(gd_is_tracing());
}
static PyObject *core_is_grad_enabled(PyObject *module, PyObject *none) {
    return (void)module, (void)none, PyBool_FromLong(gd_grad_enabled());
}

static PyObject *core_set_default_device(PyObject *module, PyObject *device) {
    (void)module;
    gd_device *to = device == Py_None ? NULL : gdpy_device_from(device);
    if (!to && device != Py_None) return NULL;
    if (gd_set_default_device(to) != GD_OK) return gdpy_raise();
    return Py_NewRef(Py_None);
}
static PyObject *core_default_device(PyObject *module, PyObject *none) {
    return (void)module, (void)none, gdpy_device_object(gd_default_device());
}
static PyObject *core_synchronize(PyObject *module, PyObject *device) {
    (void)module;
    gd_device *d = gdpy_device_from(device);
    if (!d) return NULL;
    gd_status status;
    Py_BEGIN_ALLOW_THREADS status = gd_synchronize(d);
    Py_END_ALLOW_THREADS if (status != GD_OK) return gdpy_raise();
    return Py_NewRef(Py_None);
}

static PyObject *core_manual_seed(PyObject *module, PyObject *seed) {
    (void)module;
    const unsigned long long value = PyLong_AsUnsignedLongLongMask(seed);
    if (PyErr_Occurred()) return NULL;
    gd_seed(value);
    if (gd_failed()) return gdpy_raise();
    return Py_NewRef(Py_None);
}
static PyObject *core_rng_state(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    const gd_rng state = gd_rng_state();
    return Py_BuildValue("(KK)", (unsigned long long)state.seed, (unsigned long long)state.call);
}
static PyObject *core_set_rng_state(PyObject *module, PyObject *args) {
    (void)module;
    unsigned long long seed, call;
    if (!PyArg_ParseTuple(args, "(KK)", &seed, &call)) return NULL;
    gd_rng_set_state((gd_rng){seed, call});
    if (gd_failed()) return gdpy_raise();
    return Py_NewRef(Py_None);
}

static PyObject *core_set_num_threads(PyObject *module, PyObject *count) {
    (void)module;
    const long n = PyLong_AsLong(count);
    if (n == -1 && PyErr_Occurred()) return NULL;
    if (gd_set_num_threads(n > INT_MAX ? INT_MAX : (int)n) != GD_OK) return gdpy_raise();
    return Py_NewRef(Py_None);
}
static PyObject *core_get_num_threads(PyObject *module, PyObject *none) {
    return (void)module, (void)none, PyLong_FromLong(gd_num_threads());
}
static PyObject *core_live_objects(PyObject *module, PyObject *none) {
    return (void)module, (void)none, PyLong_FromLongLong(gd_live_objects());
}
static PyObject *core_promote(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *a, *b;
    gd_dtype x, y;
    if (!PyArg_ParseTuple(args, "OO", &a, &b) || !gdpy_dtype_from(a, &x) || !gdpy_dtype_from(b, &y))
        return NULL;
    return gdpy_dtype_object(gd_promote(x, y));
}
static PyObject *core_as_dtype(PyObject *module, PyObject *o) {
    (void)module;
    gd_dtype dtype;
    return gdpy_dtype_from(o, &dtype) ? gdpy_dtype_object(dtype) : NULL;
}

/* --- autograd --------------------------------------------------------------------------------- */

/* The handles of a sequence of tensors, in the open scope. */
static bool handles(PyObject *list, const char *what, gd_tensors *to) {
    const Py_ssize_t n = PySequence_Size(list);
    if (n < 0) return false;
    gd_tensor **at = PyMem_Malloc(sizeof *at * (size_t)(n + 1));
    bool good = at != NULL || (PyErr_NoMemory(), false);
    for (Py_ssize_t i = 0; i < n && good; i++) {
        PyObject *o = PySequence_GetItem(list, i);
        good = o && (o == Py_None || gdpy_is_tensor(o));
        if (o && !good) PyErr_Format(PyExc_TypeError, "%s must be tensors", what);
        if (good) at[i] = o == Py_None ? NULL : gdpy_tensor_of(o);
        Py_XDECREF(o); /* the sequence holds it */
    }
    if (good) *to = gd_list_copy((gd_tensors){at, n});
    PyMem_Free(at);
    return good;
}

static PyObject *core_grad(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *outputs, *inputs, *gradients;
    int retain, create, unused;
    if (!PyArg_ParseTuple(args, "OOOppp", &outputs, &inputs, &gradients, &retain, &create, &unused))
        return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensors y, x;
    gd_grad_options o = {.retain_graph = retain, .create_graph = create, .allow_unused = unused};
    if (!handles(outputs, "outputs", &y) || !handles(inputs, "inputs", &x) ||
        !handles(gradients, "grad_outputs", &o.gradients))
        return gdpy_cancel(&c);
    gdpy_release_gil(&c);
    return gdpy_end_list(&c, gd_grad_at(c.site, y, x, &o));
}

/* --- the module ------------------------------------------------------------------------------- */

#define WITH_NAMES(f) (PyCFunction)(void (*)(void))(f), METH_VARARGS | METH_KEYWORDS

static PyMethodDef functions[] = {
    {"tensor", WITH_NAMES(core_tensor),
     "tensor(data, dtype=None, device=None, requires_grad=False, copy=True)\n--\n\n"
     "A new tensor with a copy of the data: numbers, nested sequences, arrays."},
    {"as_tensor", WITH_NAMES(core_as_tensor),
     "as_tensor(data, dtype=None, device=None, requires_grad=False, copy=None)\n--\n\n"
     "The data as a tensor. The memory of arrays is shared if the dtype and the layout allow it."},
    {"empty", WITH_NAMES(core_empty),
     "empty(shape, dtype=None, device=None, requires_grad=False)\n--\n\n"
     "A tensor whose elements are not set."},
    {"_to_device", core_to_device, METH_VARARGS, NULL},
    {"_to_bytes", core_to_bytes, METH_O, NULL},
    {"_from_bytes", core_from_bytes, METH_VARARGS, NULL},
    {"_grad_mode", core_grad_mode, METH_O, NULL},
    {"_grad_mode_end", core_grad_mode_end, METH_O, NULL},
    {"_grad", core_grad, METH_VARARGS, NULL},
    {"_is_tracing", core_is_tracing, METH_NOARGS, NULL},
    {"is_grad_enabled", core_is_grad_enabled, METH_NOARGS,
     "is_grad_enabled()\n--\n\nWhether the tape records ops on this thread."},
    {"set_default_device", core_set_default_device, METH_O,
     "set_default_device(device, /)\n--\n\nWhere this thread creates tensors: 'cuda'; None is "
     "'cpu'."},
    {"get_default_device", core_default_device, METH_NOARGS,
     "get_default_device()\n--\n\nWhere this thread creates tensors."},
    {"synchronize", core_synchronize, METH_O,
     "synchronize(device, /)\n--\n\nWaits until the device has done all its work."},
    {"manual_seed", core_manual_seed, METH_O,
     "manual_seed(seed, /)\n--\n\nSets the seed of all random functions."},
    {"get_rng_state", core_rng_state, METH_NOARGS,
     "get_rng_state()\n--\n\nThe seed, and the number of the next random call."},
    {"set_rng_state", core_set_rng_state, METH_VARARGS,
     "set_rng_state(state, /)\n--\n\nReturns to a state of get_rng_state()."},
    {"set_num_threads", core_set_num_threads, METH_O,
     "set_num_threads(n, /)\n--\n\nHow many threads the CPU's kernels use; 0: one for each core."},
    {"get_num_threads", core_get_num_threads, METH_NOARGS,
     "get_num_threads()\n--\n\nHow many threads the CPU's kernels use."},
    {"_live_objects", core_live_objects, METH_NOARGS, NULL},
    {"_promote", core_promote, METH_VARARGS, NULL},
    {"_as_dtype", core_as_dtype, METH_O, NULL},
    {"_half_bits", gdpy_half_bits, METH_O, NULL},
    {"from_dlpack", WITH_NAMES(gdpy_function_from_dlpack),
     "from_dlpack(x, /, *, device=None, copy=None)\n--\n\n"
     "A tensor that shares the memory of an object with __dlpack__."},
    {NULL, NULL, 0, NULL},
};

/* Gradus keeps state of the process; a second interpreter would share it without a lock. */
static int check_interpreter(void) {
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return 0;
    PyErr_SetString(PyExc_ImportError,
                    "gradus runs in the main interpreter only, not in subinterpreters");
    return -1;
}

static int start(PyObject *module) {
    static bool started;
    if (check_interpreter() < 0) return -1;
    if (started) { /* tensors of the first copy would have another type */
        PyErr_SetString(PyExc_ImportError, "gradus cannot be loaded twice in a process");
        return -1;
    }
    started = true;
    if (!site_texts && !(site_texts = PyDict_New())) return -1;
    running = true;
    if (gdpy_errors_init(module) < 0 || gdpy_dtype_init(module) < 0 ||
        gdpy_device_init(module) < 0 || gdpy_tensor_init(module) < 0 ||
        gdpy_dlpack_init(module) < 0 || gdpy_log_init(module) < 0 ||
        gdpy_objects_init(module) < 0 || gdpy_tree_init(module) < 0 || gdpy_jit_init(module) < 0 ||
        gdpy_autograd_init(module) < 0 || gdpy_graph_init(module) < 0 ||
        gdpy_data_init(module) < 0 || PyModule_AddFunctions(module, gdpy_module_functions) < 0 ||
        PyModule_AddFunctions(module, gdpy_optim_functions) < 0 ||
        PyModule_AddFunctions(module, gdpy_state_functions) < 0 ||
        PyModule_AddFunctions(module, gdpy_train_functions) < 0 ||
        PyModule_AddFunctions(module, gdpy_watch_functions) < 0 ||
        PyModule_AddFunctions(module, gdpy_onnx_functions) < 0 ||
        PyModule_AddFunctions(module, gdpy_caffe_functions) < 0 ||
        PyModule_AddFunctions(module, gdpy_record_functions) < 0)
        return -1;
    if (PyModule_AddStringConstant(module, "__version__", gd_version()) < 0) return -1;
    if (PyModule_AddFunctions(module, gdpy_file_functions) < 0) return -1;
    return PyModule_AddFunctions(module, gdpy_op_functions);
}

static void stop(void *module) {
    (void)module;
    running = false;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, start}, {0, NULL}};
static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "gradus._core",
    .m_doc = "The library behind gradus.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = module_slots,
    .m_free = stop,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
