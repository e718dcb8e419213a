/* train.c - compile, fit, evaluate and predict of a module, and histories (gradus/_train.py). */
#include "object.h"

#include <string.h>

/* --- compile ---------------------------------------------------------------------------------- */

/* A text, an object of a class, or None. */
static bool text_or_object(PyObject *o, gdpy_class class, const char *what, const char **text,
                           void **object) {
    *text = NULL;
    *object = NULL;
    if (o == Py_None) return true;
    if (PyUnicode_Check(o)) return (*text = PyUnicode_AsUTF8AndSize(o, NULL)) != NULL;
    return (*object = gdpy_handle(o, class, what)) != NULL;
}

/* Handles of the objects of a tuple, which PyMem_Free frees. */
static void **handles_from(PyObject *tuple, gdpy_class class, const char *what) {
    const Py_ssize_t n = PyTuple_Size(tuple);
    void **at = PyMem_Calloc((size_t)n + 1, sizeof *at);
    if (!at) return PyErr_NoMemory(), NULL;
    for (Py_ssize_t i = 0; i < n; i++)
        if (!(at[i] = gdpy_handle(PyTuple_GetItem(tuple, i), class, what))) {
            PyMem_Free(at);
            return NULL;
        }
    return at;
}

/* _compile(net, optimizer, schedule, loss, metrics, precision, accumulate, clip_norm, clip_value) */
static PyObject *core_compile(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *optimizer, *schedule, *loss, *metrics, *done = NULL;
    gd_compile_options o = *GD_COMPILE_OPTIONS_();
    if (!PyArg_ParseTuple(args, "OOOOO!sidd", &self, &optimizer, &schedule, &loss,
                          (PyObject *)&PyTuple_Type, &metrics, &o.precision, &o.accumulate,
                          &o.clip_norm, &o.clip_value))
        return NULL;
    gd_module *net = gdpy_handle(self, GDPY_MODULE, "self");
    void *objects[3], **list = NULL;
    if (!net ||
        !text_or_object(optimizer, GDPY_OPTIMIZER, "optimizer", &o.optimizer, &objects[0]) ||
        !text_or_object(schedule, GDPY_SCHEDULE, "schedule", &o.schedule, &objects[1]) ||
        !text_or_object(loss, GDPY_MODULE, "loss", &o.loss, &objects[2]) ||
        !(list = handles_from(metrics, GDPY_METRIC, "a metric")))
        return NULL;
    o.optimizer_object = objects[0];
    o.schedule_object = objects[1];
    o.loss_module = objects[2];
    o.metric_objects = (gd_metric_list){(gd_metric *const *)list, PyTuple_Size(metrics)};
    gdpy_call c;
    gdpy_open(&c);
    done = gdpy_end_status(&c, gd_compile_at(c.site, net, &o));
    PyMem_Free(list);
    return done;
}

/* _compiled(net): (optimizer, schedule); None where there is none yet. */
static PyObject *core_compiled(PyObject *module, PyObject *self) {
    (void)module;
    gd_module *net = gdpy_handle(self, GDPY_MODULE, "self");
    if (!net) return NULL;
    gd_optimizer *o = gd_compiled_optimizer(net);
    gd_schedule *s = gd_compiled_schedule(net);
    PyObject *optimizer = gdpy_wrap_object(o, GDPY_OPTIMIZER, o ? gd_optimizer_type(o) : "");
    PyObject *schedule =
        optimizer ? gdpy_wrap_object(s, GDPY_SCHEDULE, s ? gd_schedule_type(s) : "") : NULL;
    PyObject *both = schedule ? PyTuple_Pack(2, optimizer, schedule) : NULL;
    Py_XDECREF(optimizer);
    Py_XDECREF(schedule);
    return both;
}

/* --- data ------------------------------------------------------------------------------------- */

/* A tuple of Tensors, in the open scope. */
static bool tensors_from(PyObject *tuple, gd_tensors *to) {
    const Py_ssize_t n = PyTuple_Size(tuple);
    gd_tensor **at = PyMem_Malloc(sizeof *at * (size_t)(n + 1));
    if (!at) return PyErr_NoMemory(), false;
    bool good = true;
    for (Py_ssize_t i = 0; i < n && good; i++) {
        PyObject *o = PyTuple_GetItem(tuple, i);
        good = gdpy_is_tensor(o);
        if (good) at[i] = gdpy_tensor_of(o);
        else PyErr_SetString(PyExc_TypeError, "data must be tensors");
    }
    if (good) *to = gd_list_copy((gd_tensors){at, n});
    PyMem_Free(at);
    return good;
}

static bool data_from(PyObject *o, gd_fit_data *to) {
    *to = (gd_fit_data){.loader = NULL};
    if (PyTuple_Check(o)) return tensors_from(o, &to->tensors);
    if (gdpy_is(o, GDPY_DATASET))
        return (to->dataset = gdpy_handle(o, GDPY_DATASET, "data")) != NULL;
    return (to->loader = gdpy_handle(o, GDPY_LOADER, "data")) != NULL;
}

/* _loader_of(tensors, targets, weights, batch, shuffle, workers, seed): a _core.Loader. */
static PyObject *core_loader_of(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *tuple;
    gd_loader_options o = *GD_LOADER_OPTIONS_();
    int shuffle;
    long long batch;
    unsigned long long seed;
    if (!PyArg_ParseTuple(args, "O!iiLpiK", (PyObject *)&PyTuple_Type, &tuple, &o.targets,
                          &o.weights, &batch, &shuffle, &o.workers, &seed))
        return NULL;
    o.batch = batch;
    o.shuffle = shuffle;
    o.seed = seed;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensors list;
    if (!tensors_from(tuple, &list)) return gdpy_cancel(&c);
    gd_dataset *set = gd_dataset_tensors_at(c.site, list);
    gd_loader *loader = set ? gd_loader_new_at(c.site, set, &o) : NULL;
    PyObject *result = loader ? gdpy_wrap_object(loader, GDPY_LOADER, "") : gdpy_raise();
    gdpy_cancel(&c);
    return result;
}

/* --- progress --------------------------------------------------------------------------------- */

typedef struct receiver {
    gd_progress_receiver receiver;
    PyObject *write; /* write(text, final) returns the width of the line */
} receiver;

static gd_status write_progress(const char *text, bool final, void *user) {
    receiver *r = user;
    const PyGILState_STATE state = gdpy_enter();
    PyObject *width = PyObject_CallFunction(r->write, "sO", text, final ? Py_True : Py_False);
    const long columns = width ? PyLong_AsLong(width) : 0;
    gd_status status = GD_OK;
    if (PyErr_Occurred()) status = gdpy_keep_exception();
    else r->receiver.width = (int)columns;
    Py_XDECREF(width);
    gdpy_leave(state);
    return status;
}

/* From (write, redraws, colour, utf8, width). */
static bool receiver_from(PyObject *o, receiver *to) {
    int redraws, colour, utf8;
    memset(to, 0, sizeof *to);
    if (!PyTuple_Check(o)) return PyErr_SetString(PyExc_TypeError, "expected a tuple"), false;
    if (!PyArg_ParseTuple(o, "Opppi", &to->write, &redraws, &colour, &utf8, &to->receiver.width))
        return false;
    to->receiver.write = write_progress;
    to->receiver.user = to;
    to->receiver.redraws = redraws;
    to->receiver.colour = colour;
    to->receiver.utf8 = utf8;
    return true;
}

/* --- fit -------------------------------------------------------------------------------------- */

typedef struct step {
    PyObject *net, *function;
} step;

static gd_tensor *call_step(gd_module *net, gd_tensors batch, void *user) {
    const step *s = user;
    const PyGILState_STATE state = gdpy_enter();
    PyObject *tensors = gdpy_tensor_tuple(batch), *result = NULL;
    gd_tensors loss = {NULL, 0};
    (void)net;
    if (tensors) result = PyObject_CallFunctionObjArgs(s->function, s->net, tensors, NULL);
    if (result == Py_None) PyErr_SetString(PyExc_TypeError, "the step must return the loss");
    else if (result) gdpy_tensors_from_result(result, "the step", &loss);
    if (PyErr_Occurred()) gdpy_keep_exception(), loss.count = 0;
    Py_XDECREF(result);
    Py_XDECREF(tensors);
    gdpy_leave(state);
    return loss.count ? loss.at[0] : NULL;
}

typedef struct fit_arguments {
    gd_module *net;
    gd_fit_data data;
    gd_fit_options o;
    receiver receiver;
    step step;
    void **callbacks;
} fit_arguments;

static bool read_callbacks(fit_arguments *f, PyObject *tuple) {
    f->callbacks = handles_from(tuple, GDPY_CALLBACK, "a callback");
    f->o.callbacks = (gd_callback_list){(gd_callback *const *)f->callbacks, PyTuple_Size(tuple)};
    return f->callbacks != NULL;
}

static bool read_validation(fit_arguments *f, PyObject *o) {
    gd_fit_data data;
    if (o == Py_None) return true;
    if (!data_from(o, &data)) return false;
    f->o.validation = data.loader ? (const void *)data.loader : (const void *)data.dataset;
    if (!f->o.validation) f->o.validation_tensors = data.tensors;
    return true;
}

/* The options of _fit by their names. */
static bool read_fit_options(fit_arguments *f, PyObject *names) {
    static char *words[] = {"epochs",
                            "max_steps",
                            "steps_per_epoch",
                            "validation",
                            "validation_split",
                            "class_weights",
                            "callbacks",
                            "resume",
                            "step",
                            "batch",
                            "shuffle",
                            "workers",
                            "seed",
                            "progress",
                            "receiver",
                            "interrupt",
                            "jit",
                            NULL};
    PyObject *validation, *weights, *callbacks, *function, *progress_to;
    long long epochs, max_steps, steps_per_epoch, batch;
    unsigned long long seed;
    int shuffle, progress, interrupt, jit;
    PyObject *none = PyTuple_New(0);
    const bool good =
        none && PyArg_ParseTupleAndKeywords(
                    none, names, "LLLOdOO!zOLpiKiOpp", words, &epochs, &max_steps, &steps_per_epoch,
                    &validation, &f->o.validation_split, &weights, (PyObject *)&PyTuple_Type,
                    &callbacks, &f->o.resume, &function, &batch, &shuffle, &f->o.workers, &seed,
                    &progress, &progress_to, &interrupt, &jit);
    Py_XDECREF(none);
    if (!good) return false;
    f->o.epochs = epochs;
    f->o.max_steps = max_steps;
    f->o.steps_per_epoch = steps_per_epoch;
    f->o.batch = batch;
    f->o.shuffle = shuffle;
    f->o.seed = seed;
    f->o.progress = (gd_progress)progress;
    f->o.interrupt = interrupt;
    f->o.jit = jit;
    if (weights != Py_None && !gdpy_is_tensor(weights))
        return PyErr_SetString(PyExc_TypeError, "class_weights must be a Tensor"), false;
    if (weights != Py_None) f->o.class_weights = gdpy_tensor_of(weights);
    if (function != Py_None) {
        f->step.function = function;
        f->o.step = call_step;
        f->o.step_user = &f->step;
    }
    if (progress_to != Py_None) {
        if (!receiver_from(progress_to, &f->receiver)) return false;
        f->o.progress_receiver = &f->receiver.receiver;
    }
    return read_validation(f, validation) && read_callbacks(f, callbacks);
}

PyObject *gdpy_wrap_history(gd_history *h) {
    if (!h) return gdpy_raise();
    gdpy_drop_exceptions();
    if (PyErr_CheckSignals() < 0) return NULL; /* a second Ctrl-C */
    return gdpy_wrap_object(h, GDPY_HISTORY, "");
}

/* _fit(net, data, **options): a _core.History. */
static PyObject *core_fit(PyObject *module, PyObject *args, PyObject *names) {
    (void)module;
    PyObject *self, *data;
    if (!PyArg_ParseTuple(args, "OO", &self, &data)) return NULL;
    fit_arguments f = {.net = gdpy_handle(self, GDPY_MODULE, "self"),
                       .o = *GD_FIT_OPTIONS_(),
                       .step = {.net = self}};
    if (!f.net) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    PyObject *result = NULL;
    if (data_from(data, &f.data) && read_fit_options(&f, names)) {
        gdpy_release_gil(&c);
        gd_history *h = gd_fit_at(c.site, f.net, f.data, &f.o);
        gdpy_take_gil(&c);
        result = gdpy_wrap_history(h);
    }
    PyMem_Free(f.callbacks);
    gdpy_cancel(&c);
    return result;
}

static PyObject *core_fit_interrupt(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    gd_fit_interrupt();
    return Py_NewRef(Py_None);
}

/* --- evaluate and predict --------------------------------------------------------------------- */

typedef struct evaluation {
    gd_module *net;
    gd_fit_data data;
    gd_evaluate_options o;
    receiver receiver;
} evaluation;

/* (net, data, batch, workers, jit, progress, receiver) */
static bool read_evaluation(evaluation *e, PyObject *args) {
    PyObject *self, *data, *progress_to;
    long long batch;
    int jit, progress;
    *e = (evaluation){.o = *GD_EVALUATE_OPTIONS_()};
    if (!PyArg_ParseTuple(args, "OOLipiO", &self, &data, &batch, &e->o.workers, &jit, &progress,
                          &progress_to))
        return false;
    e->o.batch = batch;
    e->o.jit = jit;
    e->o.progress = (gd_progress)progress;
    if (progress_to != Py_None) {
        if (!receiver_from(progress_to, &e->receiver)) return false;
        e->o.progress_receiver = &e->receiver.receiver;
    }
    e->net = gdpy_handle(self, GDPY_MODULE, "self");
    return e->net && data_from(data, &e->data);
}

static PyObject *core_evaluate(PyObject *module, PyObject *args) {
    (void)module;
    evaluation e;
    gdpy_call c;
    gdpy_open(&c);
    if (!read_evaluation(&e, args)) return gdpy_cancel(&c);
    gdpy_release_gil(&c);
    gd_history *h = gd_evaluate_at(c.site, e.net, e.data, &e.o);
    gdpy_take_gil(&c);
    PyObject *result = gdpy_wrap_history(h);
    gdpy_cancel(&c);
    return result;
}

static PyObject *core_predict(PyObject *module, PyObject *args) {
    (void)module;
    evaluation e;
    gdpy_call c;
    gdpy_open(&c);
    if (!read_evaluation(&e, args)) return gdpy_cancel(&c);
    gdpy_release_gil(&c);
    PyObject *result = gdpy_end(&c, gd_predict_at(c.site, e.net, e.data, &e.o));
    if (result) gdpy_drop_exceptions();
    return result;
}

/* --- histories -------------------------------------------------------------------------------- */

/* _history_read(history): ({name: [values]}, why it stopped, whether it was interrupted). */
static PyObject *core_history_read(PyObject *module, PyObject *self) {
    (void)module;
    gd_history *h = gdpy_handle(self, GDPY_HISTORY, "self");
    PyObject *dict = h ? PyDict_New() : NULL;
    for (int64_t k = 0; dict && k < gd_history_columns(h); k++) {
        const char *name = gd_history_name(h, k);
        const Py_ssize_t rows = (Py_ssize_t)gd_history_rows(h);
        PyObject *list = PyList_New(rows);
        for (Py_ssize_t i = 0; list && i < rows; i++) {
            PyObject *value = PyFloat_FromDouble(gd_history_value(h, name, i));
            if (!value) Py_CLEAR(list);
            else PyList_SetItem(list, i, value);
        }
        if (!list || PyDict_SetItemString(dict, name, list) < 0) Py_CLEAR(dict);
        Py_XDECREF(list);
    }
    if (!dict) return NULL;
    return Py_BuildValue("(Nzi)", dict, gd_history_stopped(h), (int)gd_history_interrupted(h));
}

static PyObject *core_history_plot(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    const char *path;
    if (!PyArg_ParseTuple(args, "Os", &self, &path)) return NULL;
    gd_history *h = gdpy_handle(self, GDPY_HISTORY, "self");
    if (!h) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end_status(&c, gd_history_plot_at(c.site, h, path));
}

PyMethodDef gdpy_train_functions[] = {
    {"_compile", core_compile, METH_VARARGS, NULL},
    {"_compiled", core_compiled, METH_O, NULL},
    {"_loader_of", core_loader_of, METH_VARARGS, NULL},
    {"_fit", (PyCFunction)(void (*)(void))core_fit, METH_VARARGS | METH_KEYWORDS, NULL},
    {"_fit_interrupt", core_fit_interrupt, METH_NOARGS, NULL},
    {"_evaluate", core_evaluate, METH_VARARGS, NULL},
    {"_predict", core_predict, METH_VARARGS, NULL},
    {"_history_read", core_history_read, METH_O, NULL},
    {"_history_plot", core_history_plot, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
