/* optim.c - optimizers: their parameters and groups, and what gradus/optim.py calls. */
#include "object.h"

#include <stdlib.h>
#include <string.h>

/* --- parameters ------------------------------------------------------------------------------- */

/* A list of tensors in the open scope. Entries of named_parameters() are pairs. */
static bool list_from(PyObject *sequence, gd_tensors *to) {
    const Py_ssize_t n = PyTuple_Size(sequence);
    gd_tensor **at = PyMem_Malloc(sizeof *at * (size_t)(n + 1));
    bool good = at != NULL || (PyErr_NoMemory(), false);
    for (Py_ssize_t i = 0; i < n && good; i++) {
        PyObject *o = PyTuple_GetItem(sequence, i);
        if (PyTuple_Check(o) && PyTuple_Size(o) == 2) o = PyTuple_GetItem(o, 1);
        good = gdpy_is_tensor(o);
        if (good) at[i] = gdpy_tensor_of(o);
        else
            PyErr_Format(PyExc_TypeError, "params must be tensors, a module or dicts, not %R",
                         (PyObject *)Py_TYPE(o));
    }
    if (good) *to = gd_list_copy((gd_tensors){at, n});
    PyMem_Free(at);
    return good;
}

static bool params_of_group(PyObject *group, gd_tensors *to) {
    PyObject *params = PyDict_GetItemString(group, "params"), *list = NULL;
    if (!params) PyErr_SetString(PyExc_ValueError, "a group of parameters needs 'params'");
    else list = gdpy_is_tensor(params) ? PyTuple_Pack(1, params) : PySequence_Tuple(params);
    const bool good = list && list_from(list, to);
    Py_XDECREF(list);
    return good;
}

bool gdpy_parameters_from(gdpy_call *call, PyObject *o, gdpy_parameters *to) {
    (void)call;
    if (gdpy_is(o, GDPY_MODULE))
        return (to->module = gdpy_handle(o, GDPY_MODULE, "params")) != NULL;
    if (gdpy_is_tensor(o)) {
        PyErr_SetString(PyExc_TypeError,
                        "params must be a sequence of tensors or a module, not one Tensor");
        return false;
    }
    PyObject *list = PySequence_Tuple(o);
    if (!list) return false;
    bool good;
    if (PyTuple_Size(list) > 0 && PyDict_Check(PyTuple_GetItem(list, 0))) {
        good = params_of_group(PyTuple_GetItem(list, 0), &to->list);
        to->groups = Py_NewRef(list); /* the end of the call releases it */
    } else good = list_from(list, &to->list);
    Py_DECREF(list);
    return good;
}

/* Options of a group as text: "lr=0.1 weight_decay=0.01". */
static PyObject *group_text(PyObject *group) {
    PyObject *text = PyUnicode_FromString(""), *key, *value;
    for (Py_ssize_t k = 0; text && PyDict_Next(group, &k, &key, &value);) {
        const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, NULL) : NULL;
        if (!name || strcmp(name, "params") == 0 || strcmp(name, "name") == 0) continue;
        PyObject *number = PyBool_Check(value) ? PyUnicode_FromString(value == Py_True ? "1" : "0")
                                               : PyObject_Repr(value);
        if (!number) Py_CLEAR(text);
        else
            gdpy_set(&text,
                     PyUnicode_FromFormat("%U%s%U=%U", text, PyUnicode_GetLength(text) ? " " : "",
                                          key, number));
        Py_XDECREF(number);
    }
    return text;
}

/* The first group's options are set by a group of its own, too: those of the call are for all. */
static bool add_groups(gdpy_call *c, gd_optimizer *o, PyObject *groups) {
    bool good = true;
    for (Py_ssize_t i = 1; i < PyTuple_Size(groups) && good; i++) {
        PyObject *group = PyTuple_GetItem(groups, i),
                 *text = PyDict_Check(group) ? group_text(group) : NULL;
        gd_tensors list;
        const char *utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
        if (!PyDict_Check(group))
            PyErr_SetString(PyExc_TypeError, "all groups of parameters must be dicts");
        good = utf8 && params_of_group(group, &list);
        if (good && gd_optimizer_add_text_at(c->site, o, list, utf8) != GD_OK)
            good = (gdpy_raise(), false);
        Py_XDECREF(text);
    }
    return good;
}

PyObject *gdpy_end_optimizer(gdpy_call *call, PyObject *self, gd_optimizer *o, gdpy_parameters *p) {
    const bool good = !o || !p->groups || add_groups(call, o, p->groups);
    Py_XDECREF(p->groups);
    return good ? gdpy_end_object(call, self, o) : gdpy_cancel(call);
}

/* --- functions -------------------------------------------------------------------------------- */

static PyObject *core_optimizer_step(PyObject *module, PyObject *self) {
    (void)module;
    gd_optimizer *o = gdpy_handle(self, GDPY_OPTIMIZER, "self");
    if (!o) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(&c, gd_optimizer_step_at(c.site, o));
}
static PyObject *core_optimizer_zero_grad(PyObject *module, PyObject *self) {
    (void)module;
    gd_optimizer *o = gdpy_handle(self, GDPY_OPTIMIZER, "self");
    if (!o) return NULL;
    gd_optimizer_zero_grad(o);
    return Py_NewRef(Py_None);
}
static PyObject *core_optimizer_groups(PyObject *module, PyObject *self) {
    (void)module;
    gd_optimizer *o = gdpy_handle(self, GDPY_OPTIMIZER, "self");
    return o ? PyLong_FromLong(gd_optimizer_group_count(o)) : NULL;
}
static PyObject *core_optimizer_lr(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    int group = 0;
    if (!PyArg_ParseTuple(args, "O|i", &self, &group)) return NULL;
    gd_optimizer *o = gdpy_handle(self, GDPY_OPTIMIZER, "self");
    if (!o) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *lr = gd_optimizer_lr_at(c.site, o, &(gd_group_number){.group = group});
    PyObject *t = gdpy_wrap_again(lr);
    gdpy_cancel(&c);
    return t;
}
static PyObject *core_optimizer_set_lr(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    double lr;
    int group = 0;
    if (!PyArg_ParseTuple(args, "Od|i", &self, &lr, &group)) return NULL;
    gd_optimizer *o = gdpy_handle(self, GDPY_OPTIMIZER, "self");
    if (!o) return NULL;
    if (gd_optimizer_set_lr_at(gdpy_site(), o, lr, &(gd_group_number){.group = group}) != GD_OK)
        return gdpy_raise();
    return Py_NewRef(Py_None);
}
static PyObject *core_optimizer_add(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *group;
    if (!PyArg_ParseTuple(args, "OO!", &self, (PyObject *)&PyDict_Type, &group)) return NULL;
    gd_optimizer *o = gdpy_handle(self, GDPY_OPTIMIZER, "self");
    PyObject *both = o ? Py_BuildValue("(OO)", Py_None, group) : NULL;
    if (!both) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    const bool good = add_groups(&c, o, both);
    Py_DECREF(both);
    gdpy_cancel(&c);
    return good ? Py_NewRef(Py_None) : NULL;
}
/* _optimizer_params(self, group): its parameters as a list. */
static PyObject *core_optimizer_params(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    int group;
    if (!PyArg_ParseTuple(args, "Oi", &self, &group)) return NULL;
    gd_optimizer *o = gdpy_handle(self, GDPY_OPTIMIZER, "self");
    if (!o) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    const gd_tensors list =
        gd_optimizer_parameters_at(c.site, o, &(gd_group_number){.group = group});
    PyObject *params = gd_failed() ? gdpy_raise() : PyList_New((Py_ssize_t)list.count);
    for (int64_t i = 0; params && i < list.count; i++) {
        PyObject *p = gdpy_wrap_known(list.at[i]);
        if (!p) Py_CLEAR(params);
        else PyList_SetItem(params, (Py_ssize_t)i, p);
    }
    gdpy_cancel(&c);
    return params;
}

/* _optimizer_options(self, group): {name of the record: number}. */
static PyObject *core_optimizer_options(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    int group;
    if (!PyArg_ParseTuple(args, "Oi", &self, &group)) return NULL;
    gd_optimizer *o = gdpy_handle(self, GDPY_OPTIMIZER, "self");
    PyObject *dict = o ? PyDict_New() : NULL;
    const char *name;
    for (int i = 0; dict && (name = gd_optimizer_option_name(o, i)); i++) {
        PyObject *value = PyFloat_FromDouble(gd_optimizer_option(o, name, group));
        if (!value || PyDict_SetItemString(dict, name, value) < 0) Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* _optimizer_set(self, options, group): options as a dict of the record's names. */
static PyObject *core_optimizer_set(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *options;
    int group;
    if (!PyArg_ParseTuple(args, "OO!i", &self, (PyObject *)&PyDict_Type, &options, &group))
        return NULL;
    gd_optimizer *o = gdpy_handle(self, GDPY_OPTIMIZER, "self");
    PyObject *text = o ? group_text(options) : NULL;
    const char *utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    PyObject *done = NULL;
    if (utf8) {
        gdpy_call c;
        gdpy_open(&c);
        done = gdpy_end_status(
            &c, gd_optimizer_set_options_at(c.site, o, utf8, &(gd_group_number){.group = group}));
    }
    Py_XDECREF(text);
    return done;
}

/* _optimizer_slots(self, group): the names of what is kept for each parameter. */
static PyObject *core_optimizer_slots(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    int group;
    if (!PyArg_ParseTuple(args, "Oi", &self, &group)) return NULL;
    gd_optimizer *o = gdpy_handle(self, GDPY_OPTIMIZER, "self");
    PyObject *list = o ? PyList_New(0) : NULL;
    const char *name;
    for (int i = 0; list && (name = gd_optimizer_slot_name(o, group, i)); i++) {
        PyObject *text = PyUnicode_FromString(name);
        if (!text || PyList_Append(list, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

/* --- clipping --------------------------------------------------------------------------------- */

static PyObject *core_clip_grad_norm(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *params;
    double max_norm;
    gd_clip_options o = *GD_CLIP_OPTIONS_();
    int fails;
    if (!PyArg_ParseTuple(args, "O!ddp", (PyObject *)&PyTuple_Type, &params, &max_norm,
                          &o.norm_type, &fails))
        return NULL;
    o.error_if_nonfinite = fails;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensors list;
    if (!list_from(params, &list)) return gdpy_cancel(&c);
    gdpy_release_gil(&c);
    return gdpy_end(&c, gd_clip_grad_norm_at(c.site, list, max_norm, &o));
}

static PyObject *core_clip_grad_value(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *params;
    double value;
    if (!PyArg_ParseTuple(args, "O!d", (PyObject *)&PyTuple_Type, &params, &value)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensors list;
    if (!list_from(params, &list)) return gdpy_cancel(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(&c, gd_clip_grad_value_at(c.site, list, value));
}

static PyObject *core_is_tracing(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return PyBool_FromLong(gd_is_tracing());
}

static PyObject *core_schedule_step(PyObject *module, PyObject *self) {
    (void)module;
    gd_schedule *s = gdpy_handle(self, GDPY_SCHEDULE, "self");
    if (!s) return NULL;
    if (gd_schedule_step_at(gdpy_site(), s) != GD_OK) return gdpy_raise();
    return Py_NewRef(Py_None);
}

PyMethodDef gdpy_optim_functions[] = {
    {"_optimizer_step", core_optimizer_step, METH_O, NULL},
    {"_optimizer_zero_grad", core_optimizer_zero_grad, METH_O, NULL},
    {"_optimizer_groups", core_optimizer_groups, METH_O, NULL},
    {"_optimizer_lr", core_optimizer_lr, METH_VARARGS, NULL},
    {"_optimizer_set_lr", core_optimizer_set_lr, METH_VARARGS, NULL},
    {"_optimizer_add", core_optimizer_add, METH_VARARGS, NULL},
    {"_optimizer_params", core_optimizer_params, METH_VARARGS, NULL},
    {"_optimizer_options", core_optimizer_options, METH_VARARGS, NULL},
    {"_optimizer_set", core_optimizer_set, METH_VARARGS, NULL},
    {"_optimizer_slots", core_optimizer_slots, METH_VARARGS, NULL},
    {"_clip_grad_norm", core_clip_grad_norm, METH_VARARGS, NULL},
    {"_clip_grad_value", core_clip_grad_value, METH_VARARGS, NULL},
    {"_is_tracing", core_is_tracing, METH_NOARGS, NULL},
    {"_schedule_step", core_schedule_step, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
