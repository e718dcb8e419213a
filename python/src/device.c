/* device.c - gradus.device: "cpu", "cuda:0". */
#include "binding.h"

#include <string.h>

PyTypeObject *gdpy_device_type;

typedef struct {
    PyObject_HEAD gd_device *device;
} device_object;

PyObject *gdpy_device_object(gd_device *device) {
    device_object *o = PyObject_New(device_object, gdpy_device_type);
    if (o) o->device = device;
    return (PyObject *)o;
}

/* Before the first CUDA device: the libraries of NVIDIA that are in this Python environment
 * (gradus/_cuda.py) are searched before those of the system. */
static bool add_cuda_folders(void) {
    static bool added;
    if (added) return true;
    PyObject *cuda = PyImport_ImportModule("gradus._cuda");
    PyObject *folders = cuda ? PyObject_CallMethod(cuda, "library_folders", NULL) : NULL;
    const Py_ssize_t n = folders ? PyList_Size(folders) : -1;
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
        PyObject *bytes = NULL;
        if (PyUnicode_FSConverter(PyList_GetItem(folders, i), &bytes) &&
            gd_add_library_folder(PyBytes_AsString(bytes)) != GD_OK)
            gdpy_raise();
        Py_XDECREF(bytes);
    }
    Py_XDECREF(folders);
    Py_XDECREF(cuda);
    return added = !PyErr_Occurred();
}

gd_device *gdpy_device_from(PyObject *o) {
    if (Py_TYPE(o) == gdpy_device_type) return ((device_object *)o)->device;
    if (!PyUnicode_Check(o)) {
        PyErr_Format(PyExc_TypeError,
                     "a device is a str such as 'cpu' or 'cuda:0', or a gradus.device");
        return NULL;
    }
    const char *name = PyUnicode_AsUTF8AndSize(o, NULL);
    if (!name || (strncmp(name, "cuda", 4) == 0 && !add_cuda_folders())) return NULL;
    gd_device *device;
    Py_BEGIN_ALLOW_THREADS /* it may load a backend */
        device = gd_device_get(name);
    Py_END_ALLOW_THREADS if (!device) gdpy_raise();
    return device;
}

static const char *name_of(PyObject *self) {
    return gd_device_name(((device_object *)self)->device);
}

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    (void)type;
    PyObject *name;
    long index = -1;
    static char *words[] = {"type", "index", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|l", words, &name, &index)) return NULL;
    PyObject *full = index >= 0 ? PyUnicode_FromFormat("%S:%ld", name, index) : Py_NewRef(name);
    gd_device *device = full ? gdpy_device_from(full) : NULL;
    Py_XDECREF(full);
    return device ? gdpy_device_object(device) : NULL;
}

static PyObject *device_repr(PyObject *self) {
    return PyUnicode_FromFormat("device('%s')", name_of(self));
}
static PyObject *device_str(PyObject *self) { return PyUnicode_FromString(name_of(self)); }
static Py_hash_t device_hash(PyObject *self) {
    return (Py_hash_t)((uintptr_t)((device_object *)self)->device >> 4);
}
static PyObject *device_compare(PyObject *self, PyObject *other, int op) {
    if (op != Py_EQ && op != Py_NE) return Py_NewRef(Py_NotImplemented);
    gd_device *device = NULL;
    if (Py_TYPE(other) == gdpy_device_type || PyUnicode_Check(other))
        device = gdpy_device_from(other);
    PyErr_Clear();
    return PyBool_FromLong((device == ((device_object *)self)->device) == (op == Py_EQ));
}
static PyObject *device_reduce(PyObject *self, PyObject *none) {
    (void)none;
    return Py_BuildValue("O(s)", (PyObject *)gdpy_device_type, name_of(self));
}
static PyObject *get_type(PyObject *self, void *none) {
    (void)none;
    const char *name = name_of(self);
    return PyUnicode_FromStringAndSize(name, (Py_ssize_t)strcspn(name, ":"));
}
static PyObject *get_index(PyObject *self, void *none) {
    (void)none;
    const char *colon = strchr(name_of(self), ':');
    if (!colon) return Py_NewRef(Py_None);
    return PyLong_FromString(colon + 1, NULL, 10);
}

static PyGetSetDef properties[] = {
    {"type", get_type, NULL, "The kind of device: 'cuda'.", NULL},
    {"index", get_index, NULL, "The number of the device, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef methods[] = {
    {"__reduce__", device_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_new, device_new},
    {Py_tp_repr, device_repr},
    {Py_tp_str, device_str},
    {Py_tp_hash, device_hash},
    {Py_tp_richcompare, device_compare},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "device(type, index=None)\n--\n\nWhere a tensor is: device('cpu'), device('cuda:0')."},
    {0, NULL},
};
static PyType_Spec spec = {"gradus.device", sizeof(device_object), 0, Py_TPFLAGS_DEFAULT, slots};

int gdpy_device_init(PyObject *module) {
    gdpy_device_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!gdpy_device_type) return -1;
    return PyModule_AddObjectRef(module, "device", (PyObject *)gdpy_device_type);
}
