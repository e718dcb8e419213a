/* graph.c - graphs and sessions, branches and loops, and ops that the program defines; for
 * gradus/_graphs.py. */
#include "object.h"

#include <stdlib.h>
#include <string.h>

/* --- graphs ----------------------------------------------------------------------------------- */

static PyObject *core_graph_init(PyObject *module, PyObject *self) {
    (void)module;
    if (!gdpy_is(self, GDPY_GRAPH))
        return PyErr_SetString(PyExc_TypeError, "expected a Graph"), NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end_object(&c, self, gd_graph_new());
}

/* Blocks are opened and closed in pairs by context managers; what was open before is a number. */
static PyObject *block(gd_block b) { return PyLong_FromVoidPtr(b.before); }

static PyObject *core_graph_begin(PyObject *module, PyObject *self) {
    (void)module;
    gd_graph *g = gdpy_handle(self, GDPY_GRAPH, "self");
    return g ? block(gd_graph_begin(g)) : NULL;
}
static PyObject *core_name_scope_begin(PyObject *module, PyObject *name) {
    (void)module;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!text) return NULL;
    const gd_block b = gd_name_scope_begin(text);
    return gd_failed() ? gdpy_raise() : block(b);
}
static PyObject *core_after_begin(PyObject *module, PyObject *list) {
    (void)module;
    gd_tensors symbols;
    gd_tensor **at = gdpy_handles_of(list, &symbols, "symbols");
    if (!at) return NULL;
    const gd_block b = gd_after_begin(symbols);
    PyMem_Free(at);
    return gd_failed() ? gdpy_raise() : block(b);
}
static PyObject *core_block_end(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    PyObject *before;
    if (!PyArg_ParseTuple(args, "sO", &kind, &before)) return NULL;
    gd_block b = {PyLong_AsVoidPtr(before)};
    if (PyErr_Occurred()) return NULL;
    if (*kind == 'g') gd_graph_end(&b);
    else if (*kind == 'n') gd_name_scope_end(&b);
    else gd_after_end(&b);
    return Py_NewRef(Py_None);
}

static PyObject *core_placeholder(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *shape, *dtype, *list;
    const char *name;
    gd_placeholder_options o = *GD_PLACEHOLDER_OPTIONS_();
    gd_shape dims;
    if (!PyArg_ParseTuple(args, "OOz", &shape, &dtype, &name)) return NULL;
    if (dtype != Py_None && !gdpy_dtype_from(dtype, &o.dtype)) return NULL;
    if (!(list = PySequence_List(shape))) return NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) /* None is an unknown size */
        if (PyList_GetItem(list, i) == Py_None)
            PyList_SetItem(list, i, PyLong_FromLongLong(GD_ANY));
    const bool good = gdpy_shape_from(list, "shape", &dims);
    Py_DECREF(list);
    if (!good) return NULL;
    o.name = name;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end(&c, gd_placeholder_at(c.site, dims, &o));
}

static PyObject *core_variable(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *initial;
    gd_variable_options o = *GD_VARIABLE_OPTIONS_();
    int trainable;
    if (!PyArg_ParseTuple(args, "Ozp", &initial, &o.name, &trainable)) return NULL;
    o.trainable = trainable;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *value = gdpy_to_tensor(initial, GD_DTYPE_NONE, true);
    return value ? gdpy_end(&c, gd_variable_at(c.site, value, &o)) : gdpy_cancel(&c);
}

static PyObject *core_named(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *t;
    const char *name;
    if (!PyArg_ParseTuple(args, "O!s", (PyObject *)gdpy_tensor_type, &t, &name)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end_written(&c, gd_named_at(c.site, gdpy_tensor_of(t), name), t);
}

static PyObject *core_graph_variables(PyObject *module, PyObject *self) {
    (void)module;
    gd_graph *g = gdpy_handle(self, GDPY_GRAPH, "self");
    if (!g) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end_list(&c, gd_graph_variables(g));
}
static PyObject *core_graph_find(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    const char *name;
    if (!PyArg_ParseTuple(args, "Os", &self, &name)) return NULL;
    gd_graph *g = gdpy_handle(self, GDPY_GRAPH, "self");
    if (!g) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *found = gd_graph_find(g, name);
    PyObject *o = found ? gdpy_wrap(found) : Py_NewRef(Py_None);
    gdpy_cancel(&c);
    return o;
}
static PyObject *text_of(char *text) {
    PyObject *o = text ? PyUnicode_FromString(text) : gdpy_raise();
    free(text);
    return o;
}
static PyObject *core_graph_text(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    int dot;
    if (!PyArg_ParseTuple(args, "Op", &self, &dot)) return NULL;
    gd_graph *g = gdpy_handle(self, GDPY_GRAPH, "self");
    return g ? text_of(dot ? gd_graph_dot(g) : gd_graph_text(g)) : NULL;
}

static PyObject *core_minimize(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *optimizer, *loss, *schedule, *scale;
    gd_minimize_options o = *GD_MINIMIZE_OPTIONS_();
    if (!PyArg_ParseTuple(args, "OO!ddOO", &optimizer, (PyObject *)gdpy_tensor_type, &loss,
                          &o.clip_norm, &o.clip_value, &schedule, &scale))
        return NULL;
    gd_optimizer *of = gdpy_handle(optimizer, GDPY_OPTIMIZER, "optimizer");
    if (!of) return NULL;
    if (schedule != Py_None && !(o.schedule = gdpy_handle(schedule, GDPY_SCHEDULE, "schedule")))
        return NULL;
    if (scale != Py_None && !(o.loss_scale = gdpy_handle(scale, GDPY_LOSS_SCALE, "loss_scale")))
        return NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end(&c, gd_minimize_at(c.site, of, gdpy_tensor_of(loss), &o));
}

/* --- sessions --------------------------------------------------------------------------------- */

static PyObject *core_session_init(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *graph, *device;
    gd_session_options o = *GD_SESSION_OPTIONS_();
    if (!PyArg_ParseTuple(args, "OOOiiLi", &self, &graph, &device, &o.level, &o.plans,
                          &o.memory_limit, &o.tf32))
        return NULL;
    gd_graph *g = gdpy_handle(graph, GDPY_GRAPH, "graph");
    if (!g || (device != Py_None && !(o.device = gdpy_device_from(device)))) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end_object(&c, self, gd_session_new_at(c.site, g, &o));
}

/* _session_run(self, what, feeds, fetches): "run" a tuple of values, "plan" the text, "memory" a tuple.
 * Feeds are symbols and values, alternating. */
static PyObject *core_session_run(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *feeds, *fetches, *result = NULL;
    const char *what;
    if (!PyArg_ParseTuple(args, "OsOO", &self, &what, &feeds, &fetches)) return NULL;
    gd_session *s = gdpy_handle(self, GDPY_SESSION, "self");
    gd_tensors from, to;
    gd_tensor **in = s ? gdpy_handles_of(feeds, &from, "feeds") : NULL,
              **out = in ? gdpy_handles_of(fetches, &to, "fetches") : NULL;
    if (!out) return PyMem_Free(in), NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    if (*what == 'r') {
        const gd_tensors r = gd_session_run_at(c.site, s, from, to, GD_RUN_OPTIONS_());
        gdpy_take_gil(&c);
        if (!gd_failed()) gdpy_drop_exceptions();
        result = gd_failed() ? gdpy_raise() : PyTuple_New((Py_ssize_t)r.count);
        for (int64_t i = 0; i < r.count && result; i++) {
            PyObject *o = gdpy_wrap(r.at[i]);
            if (!o) Py_CLEAR(result);
            else PyTuple_SetItem(result, (Py_ssize_t)i, o);
        }
    } else if (*what == 'p') {
        char *text = gd_session_plan_text_at(c.site, s, from, to);
        gdpy_take_gil(&c);
        result = text_of(text);
    } else {
        gd_plan_memory m;
        const gd_status status = gd_session_plan_at(c.site, s, from, to, &m);
        gdpy_take_gil(&c);
        result =
            status != GD_OK
                ? gdpy_raise()
                : Py_BuildValue("(LLLLLLiN)", (long long)m.peak_bytes, (long long)m.variable_bytes,
                                (long long)m.fetch_bytes, (long long)m.constant_bytes,
                                (long long)m.scratch_bytes, (long long)m.live_bytes,
                                m.recomputed_steps, PyBool_FromLong(m.at_least));
    }
    gdpy_cancel(&c);
    PyMem_Free(in);
    PyMem_Free(out);
    return result;
}

static PyObject *core_session_get(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *variable;
    if (!PyArg_ParseTuple(args, "OO!", &self, (PyObject *)gdpy_tensor_type, &variable)) return NULL;
    gd_session *s = gdpy_handle(self, GDPY_SESSION, "self");
    if (!s) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    return gdpy_end(&c, gd_session_get_at(c.site, s, gdpy_tensor_of(variable)));
}
static PyObject *core_session_set(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *variable, *value;
    if (!PyArg_ParseTuple(args, "OO!O", &self, (PyObject *)gdpy_tensor_type, &variable, &value))
        return NULL;
    gd_session *s = gdpy_handle(self, GDPY_SESSION, "self");
    if (!s) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *t = gdpy_to_tensor(value, GD_DTYPE_NONE, true);
    if (!t) return gdpy_cancel(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(&c, gd_session_set_at(c.site, s, gdpy_tensor_of(variable), t));
}

/* --- branches and loops ----------------------------------------------------------------------- */

/* Functions of a list of Tensors that return a list of Tensors; `user` is a tuple of them. */
static gd_tensors call_body(gd_tensors in, void *user, int which) {
    const PyGILState_STATE state = gdpy_enter();
    gd_tensors out = {NULL, 0};
    PyObject *function = Py_NewRef(PyTuple_GetItem((PyObject *)user, which));
    PyObject *list = PyList_New(0), *result = NULL;
    bool good = list != NULL;
    for (int64_t i = 0; i < in.count && good; i++) {
        PyObject *o = gdpy_wrap_again(in.at[i]);
        good = o && PyList_Append(list, o) == 0;
        Py_XDECREF(o);
    }
    if (good) result = PyObject_CallFunctionObjArgs(function, list, NULL);
    gd_tensors found;
    gd_tensor **at = result ? gdpy_handles_of(result, &found, "results") : NULL;
    if (at) {
        for (int64_t i = 0; i < found.count; i++) gd_hold(at[i]);
        out = gd_list_copy(found);
    }
    if (PyErr_Occurred()) gdpy_keep_exception();
    PyMem_Free(at);
    Py_XDECREF(result);
    Py_XDECREF(list);
    Py_DECREF(function);
    gdpy_leave(state);
    return out;
}
static gd_tensors first_body(gd_tensors in, void *user) { return call_body(in, user, 0); }
static gd_tensors second_body(gd_tensors in, void *user) { return call_body(in, user, 1); }

/* _control(kind, functions, a, b, number): the results as a tuple.
 *   "cond"   functions (yes, no); a: [predicate], b: inputs
 *   "while"  functions (condition, body); a: state; number: max_steps or -1
 *   "scan"   functions (body,); a: state, b: xs; number: reverse */
static PyObject *core_control(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    PyObject *functions, *a, *b, *result = NULL;
    long long number;
    gd_tensors x, y;
    if (!PyArg_ParseTuple(args, "sO!OOL", &kind, (PyObject *)&PyTuple_Type, &functions, &a, &b,
                          &number))
        return NULL;
    gd_tensor **first = gdpy_handles_of(a, &x, "inputs"),
              **second = first ? gdpy_handles_of(b, &y, "inputs") : NULL;
    if (!second) return PyMem_Free(first), NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    gd_tensors r = {NULL, 0}, ys = {NULL, 0};
    if (*kind == 'c') r = gd_cond_at(c.site, x.at[0], first_body, second_body, y, functions);
    else if (*kind == 'w') {
        gd_while_loop_options o = *GD_WHILE_LOOP_OPTIONS_();
        if (number >= 0) o.max_steps = number;
        r = gd_while_loop_at(c.site, first_body, second_body, x, functions, &o);
    } else {
        const gd_scan_options o = {.reverse = number != 0};
        const gd_scanned s = gd_scan_at(c.site, first_body, x, y, functions, &o);
        r = s.state, ys = s.ys;
    }
    gdpy_take_gil(&c);
    if (!gd_failed()) gdpy_drop_exceptions();
    result = gd_failed() ? gdpy_raise() : PyTuple_New((Py_ssize_t)(r.count + ys.count));
    for (int64_t i = 0; i < r.count + ys.count && result; i++) {
        PyObject *o = gdpy_wrap(i < r.count ? r.at[i] : ys.at[i - r.count]);
        if (!o) Py_CLEAR(result);
        else PyTuple_SetItem(result, (Py_ssize_t)i, o);
    }
    gdpy_cancel(&c);
    PyMem_Free(first);
    PyMem_Free(second);
    return result;
}

/* --- ops by name ------------------------------------------------------------------------------ */

static const gd_op *op_named(const char *name) {
    const gd_op *op = gd_op_find(name);
    if (!op) PyErr_Format(gdpy_exception_of(GD_E_ARGUMENT), "there is no op '%s'", name);
    return op;
}

static PyObject *core_op_define(PyObject *module, PyObject *record) {
    (void)module;
    const char *text = PyUnicode_AsUTF8AndSize(record, NULL);
    if (!text) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c); /* it compiles the expression */
    return gdpy_end_status(&c, gd_op_define_at(c.site, text, NULL));
}

/* _op_info(name): (inputs, attributes, outputs, doc); an input is (name, optional, variadic), an attribute
 * (name, text of its default or None). */
static PyObject *core_op_info(PyObject *module, PyObject *name) {
    (void)module;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    const gd_op *op = text ? op_named(text) : NULL;
    if (!op) return NULL;
    PyObject *inputs = PyList_New(0), *attrs = PyList_New(0);
    bool good = inputs && attrs;
    for (int i = 0; i < gd_op_input_count(op) && good; i++) {
        const gd_op_param *p = gd_op_input(op, i);
        PyObject *row = Py_BuildValue("(sNN)", p->name, PyBool_FromLong(p->optional),
                                      PyBool_FromLong(p->variadic));
        good = row && PyList_Append(inputs, row) == 0;
        Py_XDECREF(row);
    }
    for (int i = 0; i < gd_op_attr_count(op) && good; i++) {
        const gd_op_attr *a = gd_op_attr_at(op, i);
        PyObject *row = Py_BuildValue("(sz)", a->name, a->required ? NULL : a->default_text);
        good = row && PyList_Append(attrs, row) == 0;
        Py_XDECREF(row);
    }
    int outputs = 0;
    for (int i = 0; i < gd_op_output_count(op); i++) outputs += !gd_op_output(op, i)->hidden;
    PyObject *result = good ? Py_BuildValue("(OOis)", inputs, attrs, outputs, gd_op_doc(op)) : NULL;
    Py_XDECREF(inputs);
    Py_XDECREF(attrs);
    return result;
}

/* An option as the text that the library reads. */
static PyObject *option_text(PyObject *o) {
    if (PyBool_Check(o)) return PyUnicode_FromString(o == Py_True ? "true" : "false");
    if (PyUnicode_Check(o)) return Py_NewRef(o);
    if (PyLong_Check(o) || PyFloat_Check(o)) return PyObject_Repr(o);
    if (Py_TYPE(o) == gdpy_dtype_type) {
        gd_dtype dtype;
        return gdpy_dtype_from(o, &dtype) ? PyUnicode_FromString(gd_dtype_name(dtype)) : NULL;
    }
    PyObject *parts = PySequence_Tuple(o), *text = parts ? PyUnicode_FromString("") : NULL;
    for (Py_ssize_t i = 0; text && i < PyTuple_Size(parts); i++) {
        PyObject *part = option_text(PyTuple_GetItem(parts, i));
        gdpy_set(&text, part ? PyUnicode_FromFormat("%U%s%U", text, i ? "," : "", part) : NULL);
        Py_XDECREF(part);
    }
    Py_XDECREF(parts);
    return text;
}

static bool set_options(gd_attrs *attrs, PyObject *options) {
    PyObject *name, *value;
    for (Py_ssize_t k = 0; PyDict_Next(options, &k, &name, &value);) {
        PyObject *text = option_text(value);
        const char *utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL,
                   *word = utf8 ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
        const bool good = word && gd_attrs_set_text(attrs, word, utf8) == GD_OK;
        if (!good) gdpy_raise();
        Py_XDECREF(text);
        if (!good) return false;
    }
    return true;
}

/* _op_call(name, inputs, options): the outputs as a tuple. Inputs are whatever becomes a tensor, or None. */
static PyObject *core_op_call(PyObject *module, PyObject *args) {
    (void)module;
    const char *name;
    PyObject *inputs, *options;
    if (!PyArg_ParseTuple(args, "sO!O!", &name, (PyObject *)&PyList_Type, &inputs,
                          (PyObject *)&PyDict_Type, &options))
        return NULL;
    const gd_op *op = op_named(name);
    if (!op) return NULL;
    const Py_ssize_t n = PyList_Size(inputs);
    gd_tensor **x = PyMem_Malloc(sizeof *x * (size_t)(n + 1));
    if (!x) return PyErr_NoMemory();
    gdpy_call c;
    gdpy_open(&c);
    bool good = true;
    for (Py_ssize_t i = 0; i < n && good; i++) {
        PyObject *o = PyList_GetItem(inputs, i);
        x[i] = o == Py_None ? NULL : gdpy_to_tensor(o, GD_DTYPE_NONE, true);
        good = o == Py_None || x[i];
    }
    gd_attrs *attrs = good ? gd_attrs_new(op) : NULL;
    if (good && !attrs) gdpy_raise();
    if (!attrs || !set_options(attrs, options)) {
        PyMem_Free(x);
        return gdpy_cancel(&c);
    }
    gdpy_release_gil(&c);
    const gd_tensors y = gd_op_call_at(c.site, op, (gd_tensors){x, n}, attrs);
    gdpy_take_gil(&c);
    PyMem_Free(x);
    if (gd_failed()) {
        gdpy_raise();
        return gdpy_cancel(&c);
    }
    return gdpy_end_list(&c, y);
}

static PyMethodDef table[] = {
    {"_graph_init", core_graph_init, METH_O, NULL},
    {"_graph_begin", core_graph_begin, METH_O, NULL},
    {"_name_scope_begin", core_name_scope_begin, METH_O, NULL},
    {"_after_begin", core_after_begin, METH_O, NULL},
    {"_block_end", core_block_end, METH_VARARGS, NULL},
    {"_placeholder", core_placeholder, METH_VARARGS, NULL},
    {"_variable", core_variable, METH_VARARGS, NULL},
    {"_named", core_named, METH_VARARGS, NULL},
    {"_graph_variables", core_graph_variables, METH_O, NULL},
    {"_graph_find", core_graph_find, METH_VARARGS, NULL},
    {"_graph_text", core_graph_text, METH_VARARGS, NULL},
    {"_minimize", core_minimize, METH_VARARGS, NULL},
    {"_session_init", core_session_init, METH_VARARGS, NULL},
    {"_session_run", core_session_run, METH_VARARGS, NULL},
    {"_session_get", core_session_get, METH_VARARGS, NULL},
    {"_session_set", core_session_set, METH_VARARGS, NULL},
    {"_control", core_control, METH_VARARGS, NULL},
    {"_op_define", core_op_define, METH_O, NULL},
    {"_op_info", core_op_info, METH_O, NULL},
    {"_op_call", core_op_call, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int gdpy_graph_init(PyObject *module) { return PyModule_AddFunctions(module, table); }
