/* watch.c - metrics and callbacks: those of the library, and those of the program (gradus/metrics.py, callbacks.py). */
#include "object.h"

#include <stdlib.h>
#include <string.h>

/* Events and metrics that a function of the program works on now: their addresses count in it only. */
typedef struct active {
    const void *object;
    struct active *before;
} active;
static active *actives; /* of all threads; the GIL protects it */

static void activate(active *a, const void *object) {
    *a = (active){object, actives};
    actives = a;
}
static void deactivate(const active *a) {
    active **at = &actives;
    while (*at && *at != a) at = &(*at)->before;
    if (*at) *at = a->before;
}

/* The object of an address, or NULL with an exception. */
static void *find_active(PyObject *pointer) {
    const void *object = PyLong_AsVoidPtr(pointer);
    for (const active *a = actives; a && object; a = a->before)
        if (a->object == object) return (void *)(uintptr_t)object;
    if (!PyErr_Occurred())
        PyErr_SetString(gdpy_exception_of(GD_E_STATE),
                        "it counts in the function that got it only");
    return NULL;
}

/* --- metrics ---------------------------------------------------------------------------------- */

/* A metric of the program is one of the record `python`, whose option is the number of its Python object.
 * The functions of gradus/metrics.py find it. */
static PyObject *update_function, *value_function;

typedef struct python_options {
    int64_t number;
    const char *label;
} python_options;

/* update(number, output, target, weight) returns {name: what is added to the sum of that name}. */
static void update_python(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    const python_options *o = gd_metric_options(m);
    const PyGILState_STATE state = gdpy_enter();
    PyObject *in = gdpy_tensor_tuple((gd_tensors){(gd_tensor *[]){output, target}, 2});
    PyObject *w = weight ? gdpy_wrap_again(weight) : Py_NewRef(Py_None), *sums = NULL, *name,
             *value;
    if (in && w)
        sums = PyObject_CallFunction(update_function, "LOOO", (long long)o->number,
                                     PyTuple_GetItem(in, 0), PyTuple_GetItem(in, 1), w);
    for (Py_ssize_t k = 0; sums && PyDict_Next(sums, &k, &name, &value);) {
        const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
        gd_tensor *t = text ? gdpy_to_tensor(value, GD_DTYPE_NONE, true) : NULL;
        if (!t) break;
        gd_metric_add(m, text, t);
    }
    if (PyErr_Occurred()) gdpy_keep_exception();
    Py_XDECREF(sums);
    Py_XDECREF(w);
    Py_XDECREF(in);
    gdpy_leave(state);
}

/* value(number, metric) returns a tensor. */
static gd_tensor *value_python(gd_metric *m) {
    const python_options *o = gd_metric_options(m);
    const PyGILState_STATE state = gdpy_enter();
    active now;
    activate(&now, m);
    PyObject *pointer = PyLong_FromVoidPtr(m);
    PyObject *result =
        pointer ? PyObject_CallFunction(value_function, "LO", (long long)o->number, pointer) : NULL;
    gd_tensors list = {NULL, 0};
    if (result) gdpy_tensors_from_result(result, "the value of a metric", &list);
    deactivate(&now);
    if (PyErr_Occurred()) gdpy_keep_exception(), list.count = 0;
    Py_XDECREF(result);
    Py_XDECREF(pointer);
    gdpy_leave(state);
    gd_tensor *value = list.count ? list.at[0] : NULL;
    return value ? gd_cast(value, GD_F64) : NULL;
}

/* _metric_define(update, value): once. */
static PyObject *core_metric_define(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *update, *value;
    if (!PyArg_ParseTuple(args, "OO", &update, &value)) return NULL;
    gdpy_set(&update_function, Py_NewRef(update));
    gdpy_set(&value_function, Py_NewRef(value));
    if (gd_metric_define_at(gdpy_site(),
                            "python\nA metric of a Python program.\n"
                            "  number int = 0\n  label string = none\n",
                            (gd_metric_rules){.update = update_python, .value = value_python}) !=
        GD_OK)
        return gdpy_raise();
    return Py_NewRef(Py_None);
}

/* _metric_init(self, options): makes it a metric of the record `python`. */
static PyObject *core_metric_init(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    const char *options;
    if (!PyArg_ParseTuple(args, "O!s", (PyObject *)gdpy_types[GDPY_METRIC], &self, &options))
        return NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end_object(&c, self, gd_metric_new_at(c.site, "python", options));
}

/* _metric_of(self, text): the metric that a text describes, "top_k k=5". */
static PyObject *core_metric_of(PyObject *module, PyObject *args) {
    (void)module;
    const char *name, *options;
    if (!PyArg_ParseTuple(args, "ss", &name, &options)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_metric *m = gd_metric_new_at(c.site, name, options);
    PyObject *o = m ? gdpy_wrap_object(m, GDPY_METRIC, name) : gdpy_raise();
    gdpy_cancel(&c);
    return o;
}

/* _metric_sum(metric, name): in value. */
static PyObject *core_metric_sum(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pointer;
    const char *name;
    if (!PyArg_ParseTuple(args, "Os", &pointer, &name)) return NULL;
    gd_metric *m = find_active(pointer);
    return m ? gdpy_wrap(gd_metric_sum(m, name)) : NULL;
}

static PyObject *core_metric_update(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *output, *target, *weight;
    if (!PyArg_ParseTuple(args, "OOOO", &self, &output, &target, &weight)) return NULL;
    gd_metric *m = gdpy_handle(self, GDPY_METRIC, "self");
    if (!m) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *y = gdpy_to_tensor(output, GD_DTYPE_NONE, true),
              *t = y ? gdpy_to_tensor(target, GD_DTYPE_NONE, true) : NULL,
              *w = t && weight != Py_None ? gdpy_to_tensor(weight, GD_DTYPE_NONE, true) : NULL;
    if (!t || (weight != Py_None && !w)) return gdpy_cancel(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(
        &c, gd_metric_update_at(c.site, m, y, t, &(gd_metric_update_options){.weight = w}));
}

static PyObject *core_metric_value(PyObject *module, PyObject *self) {
    (void)module;
    gd_metric *m = gdpy_handle(self, GDPY_METRIC, "self");
    if (!m) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    return gdpy_end(&c, gd_metric_value_at(c.site, m));
}

static PyObject *core_metric_reset(PyObject *module, PyObject *self) {
    (void)module;
    gd_metric *m = gdpy_handle(self, GDPY_METRIC, "self");
    if (!m) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end_status(&c, gd_metric_reset_at(c.site, m));
}

static PyObject *core_metric_name(PyObject *module, PyObject *self) {
    (void)module;
    gd_metric *m = gdpy_handle(self, GDPY_METRIC, "self");
    return m ? PyUnicode_FromString(gd_metric_name(m)) : NULL;
}

/* --- callbacks -------------------------------------------------------------------------------- */

typedef struct py_callback {
    PyObject *self; /* borrowed: who runs a gd_fit holds its callbacks */
} py_callback;

static const char *const kinds[] = {
    [GD_ON_FIT_BEGIN] = "fit_begin", [GD_ON_EPOCH_BEGIN] = "epoch_begin",
    [GD_ON_BATCH_END] = "batch_end", [GD_ON_EPOCH_END] = "epoch_end",
    [GD_ON_FIT_END] = "fit_end",
};

/* self._event(kind, event, epoch, epochs, batch, batches, step, stopping). The event is an address, which
 * counts until this returns. */
static gd_status on_event(gd_event *e, void *self) {
    py_callback *p = self;
    const PyGILState_STATE state = gdpy_enter();
    gd_status status = GD_OK;
    active now;
    activate(&now, e);
    PyObject *pointer = PyLong_FromVoidPtr(e);
    PyObject *done =
        pointer
            ? PyObject_CallMethod(p->self, "_event", "sOLLLLLi", kinds[e->kind], pointer,
                                  (long long)e->epoch, (long long)e->epochs, (long long)e->batch,
                                  (long long)e->batches, (long long)e->step, (int)e->stopping)
            : NULL;
    deactivate(&now);
    if (!done) status = gdpy_keep_exception();
    Py_XDECREF(done);
    Py_XDECREF(pointer);
    gdpy_leave(state);
    return status;
}

/* self._save() returns bytes, or None. */
static gd_tensor *save_python(void *self) {
    const PyGILState_STATE state = gdpy_enter();
    PyObject *bytes = PyObject_CallMethod(((py_callback *)self)->self, "_save", NULL);
    gd_tensor *t = NULL;
    char *data;
    Py_ssize_t size;
    if (bytes && bytes != Py_None && PyBytes_AsStringAndSize(bytes, &data, &size) == 0)
        t = gd_from_array(gd_dims(size), GD_U8, data);
    if (PyErr_Occurred()) gdpy_keep_exception();
    Py_XDECREF(bytes);
    gdpy_leave(state);
    return t;
}

/* self._load(bytes) keeps an exception in the object, which its next event raises. */
static void load_python(const gd_tensor *bytes, void *self) {
    const PyGILState_STATE state = gdpy_enter();
    PyObject *done = PyObject_CallMethod(((py_callback *)self)->self, "_load", "y#",
                                         (const char *)gd_data((gd_tensor *)(uintptr_t)bytes),
                                         (Py_ssize_t)gd_tensor_numel(bytes));
    if (!done) PyErr_WriteUnraisable(((py_callback *)self)->self); /* no memory */
    Py_XDECREF(done);
    gdpy_leave(state);
}

/* _callback_init(self, batches, state): whether it wants the ends of batches, and has state. */
static PyObject *core_callback_init(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    int batches, has_state;
    if (!PyArg_ParseTuple(args, "O!pp", (PyObject *)gdpy_types[GDPY_CALLBACK], &self, &batches,
                          &has_state))
        return NULL;
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(self), "__name__");
    const char *utf8 = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    py_callback *p = utf8 ? calloc(1, sizeof *p) : NULL;
    PyObject *done = NULL;
    if (p) {
        p->self = self;
        const gd_callback_functions functions = {.fit_begin = on_event,
                                                 .epoch_begin = on_event,
                                                 .batch_end = batches ? on_event : NULL,
                                                 .epoch_end = on_event,
                                                 .fit_end = on_event,
                                                 .destroy = free,
                                                 .save = has_state ? save_python : NULL,
                                                 .load = has_state ? load_python : NULL,
                                                 .name = utf8};
        gdpy_call c;
        gdpy_open(&c);
        gd_callback *callback = gd_callback_from_at(c.site, p, &functions);
        if (!callback) free(p);
        done = gdpy_end_object(&c, self, callback);
    } else if (utf8) PyErr_NoMemory();
    Py_XDECREF(name);
    return done;
}

/* Whether an object of any class has its content. */
static PyObject *core_is_made(PyObject *module, PyObject *o) {
    (void)module;
    for (int i = 0; i < GDPY_CLASSES; i++)
        if (gdpy_is(o, (gdpy_class)i)) return PyBool_FromLong(gdpy_object_data(o)->handle != NULL);
    return Py_NewRef(Py_False);
}

/* _event_values(event): {name: number}. */
static PyObject *core_event_values(PyObject *module, PyObject *pointer) {
    (void)module;
    gd_event *e = find_active(pointer);
    PyObject *dict = e ? PyDict_New() : NULL;
    const char *name;
    for (int i = 0; dict && (name = gd_event_name_at(e, i)); i++) {
        PyObject *value = PyFloat_FromDouble(gd_event_value(e, name));
        if (!value || PyDict_SetItemString(dict, name, value) < 0) Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *core_event_stop(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pointer;
    const char *reason;
    if (!PyArg_ParseTuple(args, "Os", &pointer, &reason)) return NULL;
    gd_event *e = find_active(pointer);
    if (!e) return NULL;
    gd_event_stop(e, reason);
    return Py_NewRef(Py_None);
}

PyMethodDef gdpy_watch_functions[] = {
    {"_metric_define", core_metric_define, METH_VARARGS, NULL},
    {"_metric_init", core_metric_init, METH_VARARGS, NULL},
    {"_metric_of", core_metric_of, METH_VARARGS, NULL},
    {"_metric_sum", core_metric_sum, METH_VARARGS, NULL},
    {"_metric_update", core_metric_update, METH_VARARGS, NULL},
    {"_metric_value", core_metric_value, METH_O, NULL},
    {"_metric_reset", core_metric_reset, METH_O, NULL},
    {"_metric_name", core_metric_name, METH_O, NULL},
    {"_callback_init", core_callback_init, METH_VARARGS, NULL},
    {"_is_made", core_is_made, METH_O, NULL},
    {"_event_values", core_event_values, METH_O, NULL},
    {"_event_stop", core_event_stop, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
