/* nn.c - modules: calls, forward functions in Python, and the parts of a module.
 *
 * A module whose class has a function `forward` in Python is a module of the library with a function of
 * the program (gd_module_new, gd_module_override), which calls that function. So it can stand anywhere in a
 * tree, also below modules of the library. Its struct has the address of the Python object. */
#include "object.h"

#include <stdlib.h>
#include <string.h>

typedef struct py_module {
    PyObject *self; /* borrowed, or if `holds` a reference; NULL: the Python object was freed */
    bool holds;     /* a clone that has no Python object above it yet */
} py_module;

/* --- calls ------------------------------------------------------------------------------------ */

/* A call of a module by Python code: its function gets the arguments as they were given, and returns
 * what it likes; the library sees the tensors among them. */
typedef struct given_call {
    gd_module *module;
    PyObject *arguments, *tensors; /* description (tree.c) of (args, names), and the tensors */
    PyObject *result;  /* description of what forward returned, NULL: it was not called */
    PyObject *objects; /* the Tensors that forward returned */
    struct given_call *before;
} given_call;
static _Thread_local given_call *given;

/* The Tensor objects for `in`: those of the call where a hook has not replaced them. */
static PyObject *objects_of(gd_tensors in, PyObject *before) {
    PyObject *list = PyList_New((Py_ssize_t)in.count);
    const Py_ssize_t n = before ? PyList_Size(before) : 0;
    for (Py_ssize_t i = 0; i < (Py_ssize_t)in.count && list; i++) {
        PyObject *old = i < n ? PyList_GetItem(before, i) : NULL;
        PyObject *o =
            old && gdpy_tensor_of(old) == in.at[i] ? Py_NewRef(old) : gdpy_wrap_again(in.at[i]);
        if (!o) Py_CLEAR(list);
        else PyList_SetItem(list, i, o);
    }
    return list;
}

/* Calls forward with the arguments of a Python call. */
static PyObject *call_as_given(PyObject *forward, given_call *call, gd_tensors in) {
    PyObject *list = objects_of(in, call->tensors), *result = NULL;
    Py_ssize_t at = 0;
    PyObject *both = list ? gdpy_unflatten(call->arguments, list, &at) : NULL;
    if (both) {
        PyObject *names = PyTuple_GetItem(both, 1);
        result =
            PyObject_Call(forward, PyTuple_GetItem(both, 0), PyDict_Size(names) ? names : NULL);
    }
    Py_XDECREF(both);
    Py_XDECREF(list);
    return result;
}

/* A call by the library, which has the inputs of the layer, is translated to forward's arguments if the
 * class has a function for that. */
static PyObject *call_forward(PyObject *self, given_call *call, gd_tensors in) {
    PyObject *forward = PyObject_GetAttrString(self, call ? "forward" : "_from_library"),
             *result = NULL;
    if (forward == Py_None) gdpy_set(&forward, PyObject_GetAttrString(self, "forward"));
    if (forward && call) result = call_as_given(forward, call, in);
    else if (forward) {
        PyObject *args = gdpy_tensor_tuple(in);
        result = args ? PyObject_Call(forward, args, NULL) : NULL;
        Py_XDECREF(args);
    }
    Py_XDECREF(forward);
    return result;
}

/* The handles, which the scope holds, too: the list may have their last references. */
static gd_tensors handles_of(PyObject *list) {
    const Py_ssize_t n = PyList_Size(list);
    gd_tensor **at = PyMem_Malloc(sizeof *at * (size_t)(n + 1));
    gd_tensors tensors = {NULL, 0};
    if (!at) return PyErr_NoMemory(), tensors;
    for (Py_ssize_t i = 0; i < n; i++) at[i] = gd_hold(gdpy_tensor_of(PyList_GetItem(list, i)));
    tensors = gd_list_copy((gd_tensors){at, n});
    PyMem_Free(at);
    return tensors;
}

/* The library gets the tensors of the result; a Python caller gets all of it. */
static gd_tensors take_result(given_call *call, PyObject *result) {
    gd_tensors out = {NULL, 0};
    PyObject *list = PyList_New(0),
             *description = list ? gdpy_flatten(result, list, GDPY_ANY_VALUE) : NULL;
    if (description) {
        const bool any = PyList_Size(list) > 0;
        if (any) out = handles_of(list);
        else if (call) out = gd_listed(gd_scalar(0)); /* the library wants a tensor */
        else PyErr_SetString(PyExc_TypeError, "forward must return a tensor, or tensors");
        if (call) {
            gdpy_set(&call->result, Py_NewRef(description));
            gdpy_set(&call->objects, Py_NewRef(list));
        }
    }
    Py_XDECREF(description);
    Py_XDECREF(list);
    return out;
}

/* The forward function of the library's module. */
static gd_tensors forward_python(gd_tensors in, void *struct_) {
    const PyGILState_STATE state = gdpy_enter();
    py_module *m = struct_;
    given_call *call = given;
    gd_tensors out = {NULL, 0};
    if (!m->self) {
        gd_raise_at(NULL, GD_E_STATE, "its Python object was freed; keep the module that holds it");
        gdpy_leave(state);
        return out;
    }
    PyObject *self = Py_NewRef(m->self);
    if (call && (call->module != gdpy_object_data(self)->handle || call->result)) call = NULL;
    given = NULL; /* calls of other modules inside */
    PyObject *result = call_forward(self, call, in);
    if (result) out = take_result(call, result);
    given = call;
    Py_XDECREF(result);
    Py_DECREF(self);
    if (PyErr_Occurred()) gdpy_keep_exception(), out = (gd_tensors){NULL, 0};
    gdpy_leave(state);
    return out;
}

/* What the caller gets: the result of forward, with tensors that hooks have replaced. */
static PyObject *given_result(given_call *call, gd_tensors out) {
    PyObject *none = PyList_Size(call->objects) ? NULL : PyList_New(0);
    PyObject *list = none ? none : objects_of(out, call->objects), *result = NULL;
    Py_ssize_t at = 0;
    if (list && !none &&
        PyList_Size(call->objects) != PyList_Size(list)) { /* a hook changed the count */
        PyObject *tuple = PyList_AsTuple(list);
        result = tuple && PyTuple_Size(tuple) == 1 ? Py_NewRef(PyTuple_GetItem(tuple, 0))
                                                   : Py_XNewRef(tuple);
        Py_XDECREF(tuple);
    } else if (list) result = gdpy_unflatten(call->result, list, &at);
    Py_XDECREF(list);
    return result;
}

static PyObject *call_python_module(PyObject *self, gd_module *m, PyObject *args, PyObject *names) {
    given_call call = {.module = m, .tensors = PyList_New(0)};
    PyObject *empty = names ? NULL : PyDict_New();
    PyObject *both = call.tensors ? PyTuple_Pack(2, args, names ? names : empty) : NULL,
             *result = NULL;
    if (both) call.arguments = gdpy_flatten(both, call.tensors, GDPY_ANY_VALUE);
    if (call.arguments) {
        gdpy_call c;
        gdpy_open(&c);
        const gd_tensors in = handles_of(call.tensors);
        call.before = given;
        given = &call;
        const gd_tensors out = gd_module_call_at(c.site, m, in);
        given = call.before;
        const bool failed = gd_failed() || out.count == 0 || gd_tensor_is_error(out.at[0]);
        if (failed) gdpy_raise();
        else if (call.result) result = given_result(&call, out);
        else PyErr_SetString(gdpy_exception_of(GD_E_STATE), "forward was not called");
        if (!failed) gdpy_drop_exceptions();
        gdpy_cancel(&c);
    }
    (void)self;
    Py_XDECREF(empty);
    Py_XDECREF(both);
    Py_XDECREF(call.arguments);
    Py_XDECREF(call.tensors);
    Py_XDECREF(call.result);
    Py_XDECREF(call.objects);
    return result;
}

enum { MAX_INPUTS = 16, LARGE = 1 << 14 };

/* PyTorch's names: of the first input, or of two of one kind. */
static bool is_other_name(const char *name, int i) {
    static const char *const others[2][4] = {{"input", "x", "input1", "x1"},
                                             {"input2", "x2", "hx", ""}};
    for (int k = 0; i < 2 && k < 4; k++)
        if (strcmp(others[i][k], name) == 0) return true;
    return false;
}

/* The position of a named input: of the record's inputs, "x target weight? ". */
static int input_named(PyObject *self, PyObject *name) {
    PyObject *inputs = PyObject_GetAttrString(self, "_inputs");
    const char *list = inputs ? PyUnicode_AsUTF8AndSize(inputs, NULL) : NULL;
    const char *wanted = PyUnicode_AsUTF8AndSize(name, NULL);
    int found = -1;
    if (!list) PyErr_Clear();
    for (int i = 0; list && wanted && *list; i++) {
        const size_t n = strcspn(list, "? ");
        if ((strlen(wanted) == n && memcmp(list, wanted, n) == 0) || is_other_name(wanted, i))
            found = i;
        list += n + strspn(list + n, "? ");
    }
    if (found < 0 && wanted) PyErr_Format(PyExc_TypeError, "the layer has no input '%s'", wanted);
    Py_XDECREF(inputs);
    return found;
}

static bool collect_inputs(PyObject *self, PyObject *args, PyObject *names, gd_tensor **at,
                           int *count, int64_t *elements) {
    const Py_ssize_t n = PyTuple_Size(args);
    if (n > MAX_INPUTS) return PyErr_SetString(PyExc_TypeError, "too many inputs"), false;
    *count = (int)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(args, i);
        at[i] = o == Py_None ? NULL : gdpy_to_tensor(o, GD_DTYPE_NONE, true);
        if (!at[i] && o != Py_None) return false;
        if (at[i]) *elements += gd_tensor_is_symbol(at[i]) ? 0 : gd_tensor_numel(at[i]);
    }
    PyObject *key, *value;
    for (Py_ssize_t k = 0; names && PyDict_Next(names, &k, &key, &value);) {
        const int i = input_named(self, key);
        if (i < 0 || i >= MAX_INPUTS) return false;
        while (*count <= i) at[(*count)++] = NULL;
        if (value != Py_None && !(at[i] = gdpy_to_tensor(value, GD_DTYPE_NONE, true))) return false;
    }
    return true;
}

/* One output, or a tuple of those that are there. */
static PyObject *wrap_outputs(gd_tensors out) {
    int64_t n = out.count;
    while (n > 1 && !out.at[n - 1]) n--;
    if (n == 1) return gdpy_wrap(out.at[0]);
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (int64_t i = 0; i < n && tuple; i++) {
        PyObject *o = gdpy_wrap(out.at[i]);
        if (!o) Py_CLEAR(tuple);
        else PyTuple_SetItem(tuple, (Py_ssize_t)i, o);
    }
    return tuple;
}

/* `base`: the layer's own forward, without hooks. */
static PyObject *call_layer(PyObject *self, gd_module *m, PyObject *args, PyObject *names,
                            bool base) {
    gd_tensor *at[MAX_INPUTS];
    int count;
    gdpy_call c;
    gdpy_open(&c);
    if (!collect_inputs(self, args, names, at, &count, &c.elements)) return gdpy_cancel(&c);
    if (c.elements >= LARGE || gd_module_count(m) > 0) gdpy_release_gil(&c);
    const gd_tensors in = {at, count};
    const gd_tensors out =
        base ? gd_module_base_forward_at(c.site, m, in) : gd_module_call_at(c.site, m, in);
    gdpy_take_gil(&c);
    const bool failed = gd_failed() || out.count == 0;
    PyObject *result = failed ? gdpy_raise() : wrap_outputs(out);
    if (!failed) gdpy_drop_exceptions();
    gdpy_cancel(&c);
    return result;
}

static bool has_python_forward(gd_module *m) {
    PyObject *o = gdpy_find_known(m);
    py_module *p = o ? gd_module_self(m) : NULL;
    return p && p->self == o;
}

PyObject *gdpy_module_tp_call(PyObject *self, PyObject *args, PyObject *names) {
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    return has_python_forward(m) ? call_python_module(self, m, args, names)
                                 : call_layer(self, m, args, names, false);
}

/* --- modules with a Python object ------------------------------------------------------------- */

static void destroy_python(void *struct_) {
    py_module *p = struct_;
    if (!p->holds || !p->self || !gdpy_alive()) return;
    const PyGILState_STATE state = gdpy_enter();
    gdpy_object_data(p->self)->handle = NULL; /* the handle is being freed */
    gdpy_object_data(p->self)->known = false;
    Py_CLEAR(p->self);
    gdpy_leave(state);
}

/* Completes a clone: gradus.nn makes its Python object from that of the original. The clone holds it
 * until a Python object holds the clone. */
static gd_status clone_python(gd_module *copy, void *to, const void *from) {
    const py_module *old = from;
    py_module *p = to;
    *p = (py_module){NULL, false};
    if (!old->self) return gd_raise_at(NULL, GD_E_STATE, "its Python object was freed");
    const PyGILState_STATE state = gdpy_enter();
    allocfunc allocate = (allocfunc)PyType_GetSlot(Py_TYPE(old->self), Py_tp_alloc);
    PyObject *o = allocate(Py_TYPE(old->self), 0);
    if (o) gdpy_object_data(o)->handle = copy; /* not a reference: the clone holds the object */
    PyObject *done = o ? PyObject_CallMethod(old->self, "_copy_attributes", "O", o) : NULL;
    gd_status status = GD_OK;
    if (!done || gdpy_make_known(o) < 0) {
        status = gdpy_keep_exception();
        if (o) gdpy_object_data(o)->handle = NULL;
        Py_XDECREF(o);
    } else *p = (py_module){o, true};
    Py_XDECREF(done);
    gdpy_leave(state);
    return status;
}

/* The Python object takes over: it holds the clone, which only knows it. Returns a new reference. */
static PyObject *adopt(gd_module *m, PyObject *known) {
    py_module *p = gd_module_self(m);
    if (!p || p->self != known || !p->holds) return Py_NewRef(known);
    p->holds = false;
    gd_retain(m);
    return known;
}

void gdpy_module_dealloc(gdpy_object *o) {
    py_module *p = gd_module_self(o->handle);
    if (p && p->self == (PyObject *)o) p->self = NULL;
}

static const gd_module_options *options_for(PyObject *self, gd_module_options *o) {
    static char type[100];
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(self), "__name__");
    const char *utf8 = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    snprintf(type, sizeof type, "%s", utf8 ? utf8 : "module"); /* the library keeps a copy */
    Py_XDECREF(name);
    *o = (gd_module_options){.type = type, .destroy = destroy_python, .clone = clone_python};
    return o;
}

/* A layer or container whose class, or object, has a function `forward` of its own calls that one. */
static gd_status override_if_needed(PyObject *self, gd_module *m) {
    PyObject *has = PyObject_GetAttrString(self, "_overrides");
    const int overrides = has ? PyObject_IsTrue(has) : 0;
    Py_XDECREF(has);
    PyErr_Clear();
    if (overrides <= 0) return GD_OK;
    gd_module_options o;
    const gd_status status =
        gd_module_override_at(NULL, m, forward_python, sizeof(py_module), options_for(self, &o));
    if (status == GD_OK) ((py_module *)gd_module_self(m))->self = self;
    return status;
}

/* _module_override(self): an object that has got a forward of its own. */
static PyObject *core_module_override(PyObject *module, PyObject *self) {
    (void)module;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    if (override_if_needed(self, m) != GD_OK) return gdpy_raise();
    return Py_NewRef(Py_None);
}

PyObject *gdpy_end_module(gdpy_call *call, PyObject *self, gd_module *m) {
    gdpy_take_gil(call);
    const char *device = call->has_device ? gd_device_name(gd_default_device()) : NULL;
    if (m && (device || call->dtype != GD_DTYPE_NONE) &&
        gd_module_to_at(call->site, m, device, call->dtype) != GD_OK)
        m = NULL;
    if (m && override_if_needed(self, m) != GD_OK) m = NULL;
    return gdpy_end_object(call, self, m);
}

/* _module_init(self, kind): the content of a Module that is no record: "python", with the forward function
 * of its class; "list", a container; "sequential". */
static PyObject *core_module_init(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    const char *kind;
    if (!PyArg_ParseTuple(args, "O!s", (PyObject *)gdpy_types[GDPY_MODULE], &self, &kind))
        return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_module_options o;
    gd_module *m;
    if (strcmp(kind, "sequential") == 0) m = gd_nn_sequential_at(c.site, (gd_modules){NULL, 0});
    else if (strcmp(kind, "list") == 0) m = gd_nn_list_at(c.site, (gd_modules){NULL, 0});
    else {
        m = gd_module_new_at(c.site, forward_python, sizeof(py_module), options_for(self, &o));
        if (m) ((py_module *)gd_module_self(m))->self = self;
        return gdpy_end_object(&c, self, m);
    }
    return gdpy_end_module(&c, self, m);
}

/* _module_forward(self, *inputs, **names): the layer's own function, for super().forward(x). */
static PyObject *core_module_forward(PyObject *module, PyObject *args, PyObject *names) {
    (void)module;
    PyObject *self = PyTuple_Size(args) ? PyTuple_GetItem(args, 0) : Py_None;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    PyObject *inputs = m ? PyTuple_GetSlice(args, 1, PyTuple_Size(args)) : NULL;
    PyObject *result = inputs ? call_layer(self, m, inputs, names, true) : NULL;
    Py_XDECREF(inputs);
    return result;
}

/* --- parts ------------------------------------------------------------------------------------ */

/* The object of a part: a Tensor that is always the same, or a module. */
static PyObject *part_object(const gd_module_part *part) {
    if (part->kind == GD_PART_PARAMETER) return gdpy_wrap_parameter(part->object);
    if (part->kind == GD_PART_BUFFER) return gdpy_wrap_known(part->object);
    PyObject *known = gdpy_find_known(part->object);
    return known ? adopt(part->object, known)
                 : gdpy_wrap_object(part->object, GDPY_MODULE, gd_module_type(part->object));
}

/* _module_parts(self): [(kind, name, object)], kind is "parameter", "buffer" or "child". */
static PyObject *core_module_parts(PyObject *module, PyObject *self) {
    (void)module;
    static const char *const kinds[] = {
        [GD_PART_PARAMETER] = "parameter", [GD_PART_BUFFER] = "buffer", [GD_PART_CHILD] = "child"};
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    PyObject *list = m ? PyList_New(0) : NULL;
    gd_module_part part;
    for (int i = 0; list && gd_module_part_at(m, i, &part); i++) {
        PyObject *o = part_object(&part),
                 *row = o ? Py_BuildValue("(ssN)", kinds[part.kind], part.name, o) : NULL;
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *core_module_changes(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return PyLong_FromUnsignedLong(gd_module_changes());
}

/* _module_set(self, kind, name, object): adds or replaces a part; kind "remove" removes it. */
static PyObject *core_module_set(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *o;
    const char *kind, *name;
    if (!PyArg_ParseTuple(args, "OssO", &self, &kind, &name, &o)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self"), *child = NULL;
    if (!m) return NULL;
    gd_module_part part;
    bool there = gd_module_part_named(m, name, &part);
    gd_status status;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *t = gdpy_is_tensor(o) ? gdpy_tensor_of(o) : NULL;
    const bool is_frozen = t && *kind == 'p' && !gd_tensor_requires_grad(t); /* it stays so */
    if (*kind == 'c' && !(child = gdpy_handle(o, GDPY_MODULE, name))) return gdpy_cancel(&c);
    const bool same_kind =
        there && (part.kind == GD_PART_CHILD) == (*kind == 'c') &&
        (part.kind == GD_PART_CHILD || (part.kind == GD_PART_PARAMETER) == (*kind == 'p'));
    if (there && !same_kind) {
        status = gd_module_remove_at(c.site, m, name);
        there = false;
        if (*kind == 'r') return gdpy_end_status(&c, status);
        if (status != GD_OK) return gdpy_end_status(&c, status);
    }
    if (*kind == 'c')
        status = there ? gd_module_replace_at(c.site, m, name, child)
                       : gd_module_add_at(c.site, m, name, child, NULL);
    else if (there) status = gd_module_set_tensor_at(c.site, m, name, t);
    else if (*kind == 'p') status = gd_module_add_parameter_at(c.site, m, name, t, NULL);
    else status = gd_module_add_buffer_at(c.site, m, name, t, NULL);
    if (status == GD_OK && is_frozen) status = gd_set_requires_grad_at(c.site, t, false);
    if (status == GD_OK && t && gdpy_make_known(o) < 0) return gdpy_cancel(&c);
    return gdpy_end_status(&c, status);
}

static PyObject *core_module_append(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *o;
    if (!PyArg_ParseTuple(args, "OO", &self, &o)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self"),
              *child = m ? gdpy_handle(o, GDPY_MODULE, "a module of the list") : NULL;
    if (!child) return NULL;
    if (gd_module_append_at(gdpy_site(), m, child) != GD_OK) return gdpy_raise();
    return PyLong_FromLong(gd_module_count(m) - 1);
}

static PyObject *core_module_train(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    int training;
    if (!PyArg_ParseTuple(args, "Op", &self, &training)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    if (training) gd_module_train(m);
    else gd_module_eval(m);
    return Py_NewRef(Py_None);
}
static PyObject *core_module_train_alone(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    int training;
    if (!PyArg_ParseTuple(args, "Op", &self, &training)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    gd_module_set_training(m, training);
    return Py_NewRef(Py_None);
}
static PyObject *core_module_is_training(PyObject *module, PyObject *self) {
    (void)module;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    return m ? PyBool_FromLong(gd_module_is_training(m)) : NULL;
}
static PyObject *core_module_type(PyObject *module, PyObject *self) {
    (void)module;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    return m ? PyUnicode_FromString(gd_module_type(m)) : NULL;
}
static PyObject *core_module_freeze(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    int frozen;
    if (!PyArg_ParseTuple(args, "Op", &self, &frozen)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    if ((frozen ? gd_module_freeze_at(gdpy_site(), m) : gd_module_unfreeze_at(gdpy_site(), m)) !=
        GD_OK)
        return gdpy_raise();
    return Py_NewRef(Py_None);
}
static PyObject *core_module_to(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *device, *dtype;
    if (!PyArg_ParseTuple(args, "OOO", &self, &device, &dtype)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    gd_device *to = m && device != Py_None ? gdpy_device_from(device) : NULL;
    gd_dtype wanted = GD_DTYPE_NONE;
    if (!m || (device != Py_None && !to) || (dtype != Py_None && !gdpy_dtype_from(dtype, &wanted)))
        return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    return gdpy_end_status(&c, gd_module_to_at(c.site, m, to ? gd_device_name(to) : NULL, wanted));
}
static PyObject *core_module_zero_grad(PyObject *module, PyObject *self) {
    (void)module;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    gd_module_zero_grad(m);
    return Py_NewRef(Py_None);
}
static PyObject *core_module_clone(PyObject *module, PyObject *self) {
    (void)module;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_module *copy = gd_module_clone_at(c.site, m);
    const gd_module_part whole = {GD_PART_CHILD, "", copy};
    PyObject *o = copy ? part_object(&whole) : gdpy_raise();
    gdpy_cancel(&c);
    return o;
}
static PyObject *core_module_summary(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *inputs;
    gd_tensors in;
    if (!PyArg_ParseTuple(args, "OO", &self, &inputs)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    PyObject *o = NULL;
    if (gdpy_tensors_from_result(inputs, "inputs", &in)) {
        char *text = gd_module_summary_at(c.site, m, in);
        o = text ? PyUnicode_FromString(text) : gdpy_raise();
        free(text);
    }
    gdpy_cancel(&c);
    return o;
}

/* _module_draw(self, path, inputs, left_to_right, title) */
static PyObject *core_module_draw(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *inputs;
    const char *path;
    gd_module_draw_options o = *GD_MODULE_DRAW_OPTIONS_();
    int right;
    gd_tensors in;
    if (!PyArg_ParseTuple(args, "OsOpz", &self, &path, &inputs, &right, &o.title)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    o.left_to_right = right;
    gdpy_call c;
    gdpy_open(&c);
    if (!gdpy_tensors_from_result(inputs, "inputs", &in)) {
        gdpy_cancel(&c);
        return NULL;
    }
    return gdpy_end_status(&c, gd_module_draw_at(c.site, m, path, in, &o));
}

/* Whether the module exists, and whether it has a forward function in Python. */
static PyObject *core_module_has_content(PyObject *module, PyObject *self) {
    (void)module;
    return PyBool_FromLong(gdpy_is(self, GDPY_MODULE) && gdpy_object_data(self)->handle != NULL);
}
static PyObject *core_module_is_python(PyObject *module, PyObject *self) {
    (void)module;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    return m ? PyBool_FromLong(has_python_forward(m)) : NULL;
}

/* Fails while layers have no parameters yet, and names them. */
static PyObject *core_module_check_built(PyObject *module, PyObject *self) {
    (void)module;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_module_parameters_at(c.site, m, NULL);
    return gdpy_end_status(&c, gd_error_status());
}

/* --- hooks ------------------------------------------------------------------------------------ */

/* A hook of PyTorch's form: hook(module, inputs) or hook(module, inputs, output). `user` is the function,
 * which the Python module holds. */
static gd_tensors call_hook(gd_module *m, gd_tensors in, gd_tensors out, void *user, bool before) {
    const PyGILState_STATE state = gdpy_enter();
    gd_tensors changed = {NULL, 0};
    PyObject *hook = Py_NewRef((PyObject *)user), *known = gdpy_find_known(m);
    PyObject *self = known ? Py_NewRef(known) : Py_NewRef(Py_None);
    PyObject *inputs = gdpy_tensor_tuple(in), *output = NULL, *result = NULL;
    if (!before) output = out.count == 1 ? gdpy_wrap_again(out.at[0]) : gdpy_tensor_tuple(out);
    if (inputs && (before || output))
        result = before ? PyObject_CallFunctionObjArgs(hook, self, inputs, NULL)
                        : PyObject_CallFunctionObjArgs(hook, self, inputs, output, NULL);
    if (result && result != Py_None) gdpy_tensors_from_result(result, "a hook", &changed);
    if (PyErr_Occurred()) gdpy_keep_exception(), changed = (gd_tensors){NULL, 0};
    Py_XDECREF(result);
    Py_XDECREF(output);
    Py_XDECREF(inputs);
    Py_DECREF(self);
    Py_DECREF(hook);
    gdpy_leave(state);
    return changed;
}
static gd_tensors hook_before(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    return call_hook(m, in, out, user, true);
}
static gd_tensors hook_after(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    return call_hook(m, in, out, user, false);
}

static PyObject *core_module_hook(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *hook;
    int before;
    if (!PyArg_ParseTuple(args, "OOp", &self, &hook, &before)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    if (!PyCallable_Check(hook))
        return PyErr_SetString(PyExc_TypeError, "a hook must be a function"), NULL;
    const gd_hook_options o = {.before = before, .builds_ops = true};
    const int64_t number =
        gd_module_on_forward_at(gdpy_site(), m, before ? hook_before : hook_after, hook, &o);
    return number ? PyLong_FromLongLong(number) : gdpy_raise();
}
static PyObject *core_module_unhook(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    long long number;
    if (!PyArg_ParseTuple(args, "OL", &self, &number)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    if (!m) return NULL;
    gd_module_unhook(m, number);
    return Py_NewRef(Py_None);
}

static PyObject *core_set_parameter_class(PyObject *module, PyObject *type) {
    (void)module;
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, gdpy_tensor_type))
        return PyErr_SetString(PyExc_TypeError, "expected a subclass of Tensor"), NULL;
    Py_XDECREF((PyObject *)gdpy_parameter_type);
    gdpy_parameter_type = (PyTypeObject *)Py_NewRef(type);
    return Py_NewRef(Py_None);
}

#define WITH_NAMES(f) (PyCFunction)(void (*)(void))(f), METH_VARARGS | METH_KEYWORDS

PyMethodDef gdpy_module_functions[] = {
    {"_module_init", core_module_init, METH_VARARGS, NULL},
    {"_module_options", gdpy_module_options, METH_O, NULL},
    {"_module_set_number", gdpy_module_set_number, METH_VARARGS, NULL},
    {"_module_override", core_module_override, METH_O, NULL},
    {"_module_forward", WITH_NAMES(core_module_forward), NULL},
    {"_module_parts", core_module_parts, METH_O, NULL},
    {"_module_changes", core_module_changes, METH_NOARGS, NULL},
    {"_module_set", core_module_set, METH_VARARGS, NULL},
    {"_module_append", core_module_append, METH_VARARGS, NULL},
    {"_module_train", core_module_train, METH_VARARGS, NULL},
    {"_module_train_alone", core_module_train_alone, METH_VARARGS, NULL},
    {"_module_has_content", core_module_has_content, METH_O, NULL},
    {"_module_is_python", core_module_is_python, METH_O, NULL},
    {"_module_check_built", core_module_check_built, METH_O, NULL},
    {"_module_hook", core_module_hook, METH_VARARGS, NULL},
    {"_module_unhook", core_module_unhook, METH_VARARGS, NULL},
    {"_set_parameter_class", core_set_parameter_class, METH_O, NULL},
    {"_module_is_training", core_module_is_training, METH_O, NULL},
    {"_module_type", core_module_type, METH_O, NULL},
    {"_module_freeze", core_module_freeze, METH_VARARGS, NULL},
    {"_module_to", core_module_to, METH_VARARGS, NULL},
    {"_module_zero_grad", core_module_zero_grad, METH_O, NULL},
    {"_module_clone", core_module_clone, METH_O, NULL},
    {"_module_summary", core_module_summary, METH_VARARGS, NULL},
    {"_module_draw", core_module_draw, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
