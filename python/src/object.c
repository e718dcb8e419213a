/* object.c - the types of objects that hold an object of the library, and their constructors. */
#include "object.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *gdpy_types[GDPY_CLASSES];
static PyObject *finders[GDPY_CLASSES]; /* functions that return a class */

static const char *const names[GDPY_CLASSES] = {
    [GDPY_MODULE] = "gradus._core.Module",     [GDPY_OPTIMIZER] = "gradus._core.Optimizer",
    [GDPY_SCHEDULE] = "gradus._core.Schedule", [GDPY_LOSS_SCALE] = "gradus._core.LossScale",
    [GDPY_METRIC] = "gradus._core.Metric",     [GDPY_CALLBACK] = "gradus._core.Callback",
    [GDPY_DATASET] = "gradus._core.Dataset",   [GDPY_TRANSFORM] = "gradus._core.Transform",
    [GDPY_SAMPLER] = "gradus._core.Sampler",   [GDPY_LOADER] = "gradus._core.Loader",
    [GDPY_GRAPH] = "gradus._core.Graph",       [GDPY_SESSION] = "gradus._core.Session",
    [GDPY_HISTORY] = "gradus._core.History",   [GDPY_BOARD] = "gradus._core.Board",
};
enum { PREFIX = sizeof "gradus._core." - 1 };

/* --- handles ---------------------------------------------------------------------------------- */

static PyObject *type_name(PyObject *o) {
    return PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__name__");
}

void *gdpy_handle(PyObject *o, gdpy_class class, const char *what) {
    PyObject *name = NULL;
    if (!gdpy_is(o, class)) {
        if ((name = type_name(o)))
            PyErr_Format(PyExc_TypeError, "%s must be a %s, not %U", what, names[class] + PREFIX,
                         name);
    } else if (gdpy_object_data(o)->handle) {
        return gdpy_object_data(o)->handle;
    } else if ((name = type_name(o))) {
        PyErr_Format(gdpy_exception_of(GD_E_STATE),
                     "the %U has no content yet: its __init__ did not call super().__init__()",
                     name);
    }
    Py_XDECREF(name);
    return NULL;
}

int gdpy_set_handle(PyObject *self, void *handle) {
    gdpy_object *o = gdpy_object_data(self);
    if (!handle) return gdpy_raise(), -1;
    if (o->handle) {
        PyErr_SetString(gdpy_exception_of(GD_E_STATE), "__init__ was called twice");
        return -1;
    }
    o->handle = (gd_retain)(handle);
    return gdpy_make_known(self);
}

PyObject *gdpy_wrap_object(void *handle, gdpy_class class, const char *type) {
    if (!handle) return Py_NewRef(Py_None);
    PyObject *known = gdpy_find_known(handle);
    if (known) return Py_NewRef(known);
    PyObject *found = finders[class] ? PyObject_CallFunction(finders[class], "s", type)
                                     : Py_NewRef((PyObject *)gdpy_types[class]);
    if (!found) return NULL;
    PyObject *o = NULL;
    if (!PyType_Check(found) || !PyType_IsSubtype((PyTypeObject *)found, gdpy_types[class]))
        PyErr_SetString(PyExc_TypeError, "the finder returned no class of this kind");
    else {
        allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)found, Py_tp_alloc);
        o = allocate((PyTypeObject *)found, 0);
    }
    Py_DECREF(found);
    if (o && gdpy_set_handle(o, handle) < 0) Py_CLEAR(o);
    return o;
}

static void object_dealloc(PyObject *self) {
    gdpy_object *o = gdpy_object_data(self);
    PyTypeObject *type = Py_TYPE(self);
    if (o->weak) PyObject_ClearWeakRefs(self);
    if (o->known) gdpy_forget_known(self);
    void *handle = o->handle;
    if (handle && gdpy_is(self, GDPY_MODULE)) gdpy_module_dealloc(o);
    if (handle && gdpy_is(self, GDPY_LOADER)) gdpy_loader_dealloc(o), handle = NULL;
    o->handle = NULL;
    (gd_release)(handle);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_object(self);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(gdpy_object, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* --- the ends of constructors ----------------------------------------------------------------- */

PyObject *gdpy_end_object(gdpy_call *call, PyObject *self, void *handle) {
    gdpy_take_gil(call);
    const int status = gdpy_set_handle(self, handle);
    gdpy_cancel(call);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* --- records ---------------------------------------------------------------------------------- */

static gdpy_class class_of_kind(const char *kind) {
    static const struct {
        const char *kind;
        gdpy_class class;
    } kinds[] = {{"layer", GDPY_MODULE},        {"net", GDPY_MODULE},
                 {"optimizer", GDPY_OPTIMIZER}, {"schedule", GDPY_SCHEDULE},
                 {"metric", GDPY_METRIC},       {"callback", GDPY_CALLBACK},
                 {"dataset", GDPY_DATASET},     {"transform", GDPY_TRANSFORM}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].kind, kind) == 0) return kinds[i].class;
    return GDPY_CLASSES; /* its constructor returns a tensor */
}

/* The records of a kind: {name: (record, constructor, inputs)}. A constructor is __init__ of a class of
 * the kind's type, or for initializers a function. */
static PyObject *core_records(PyObject *module, PyObject *kind) {
    (void)module;
    const char *text = PyUnicode_AsUTF8AndSize(kind, NULL);
    PyObject *dict = text ? PyDict_New() : NULL;
    for (const gdpy_constructor *c = gdpy_constructors; dict && c->kind; c++) {
        if (strcmp(c->kind, text) != 0) continue;
        const gdpy_class class = class_of_kind(c->kind);
        PyMethodDef *def = (PyMethodDef *)&c->def;
        PyObject *function = class == GDPY_CLASSES ? PyCFunction_New(def, NULL)
                                                   : PyDescr_NewMethod(gdpy_types[class], def);
        PyObject *row = function ? Py_BuildValue("(sNs)", c->record, function, c->inputs) : NULL;
        if (!row || PyDict_SetItemString(dict, c->name, row) < 0) Py_CLEAR(dict);
        Py_XDECREF(row);
    }
    return dict;
}

/* Sets the function that finds the class for objects that the library has created. */
static PyObject *core_set_finder(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *type, *finder;
    if (!PyArg_ParseTuple(args, "OO", &type, &finder)) return NULL;
    for (int i = 0; i < GDPY_CLASSES; i++)
        if (type == (PyObject *)gdpy_types[i]) {
            gdpy_set(&finders[i], Py_NewRef(finder));
            return Py_NewRef(Py_None);
        }
    return PyErr_SetString(PyExc_TypeError, "it is no type of gradus._core"), NULL;
}

static PyMethodDef functions[] = {
    {"_records", core_records, METH_O, NULL},
    {"_set_finder", core_set_finder, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int gdpy_objects_init(PyObject *module) {
    for (int i = 0; i < GDPY_CLASSES; i++) {
        PyType_Slot slots[] = {
            {Py_tp_dealloc, object_dealloc},
            {Py_tp_members, members},
            {Py_tp_doc, "An object of the library; programs use its classes in other modules."},
            {i == GDPY_MODULE ? Py_tp_call : 0,
             i == GDPY_MODULE ? (void *)gdpy_module_tp_call : NULL},
            {0, NULL},
        };
        PyType_Spec spec = {names[i], sizeof(gdpy_object), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
        gdpy_types[i] = (PyTypeObject *)PyType_FromSpec(&spec);
        if (!gdpy_types[i] ||
            PyModule_AddObjectRef(module, names[i] + PREFIX, (PyObject *)gdpy_types[i]) < 0)
            return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
