/* autograd.c - functions of the program with their own backward, hooks of tensors, segments that are computed
 * again, and checks of gradients; for gradus/_autograd.py. */
#include "object.h"

#include <stdlib.h>
#include <string.h>

/* What the library keeps for the program is a reference, which it gives back on any thread. */
static void release_object(void *user) {
    if (!gdpy_alive()) return;
    const PyGILState_STATE state = gdpy_enter();
    Py_DECREF((PyObject *)user);
    gdpy_leave(state);
}

/* --- lists ------------------------------------------------------------------------------------ */

static PyObject *wrap_list(gd_tensor *const *at, int count) {
    PyObject *list = PyList_New(count);
    for (int i = 0; i < count && list; i++) {
        PyObject *o = gdpy_wrap_again(at[i]);
        if (!o) Py_CLEAR(list);
        else PyList_SetItem(list, i, o);
    }
    return list;
}

/* --- functions (gd_apply) --------------------------------------------------------------------- */

/* The library's struct for each class and number of outputs. They live as long as the process. */
typedef struct py_function {
    struct py_function *next;
    gd_function function;
    char name[];
} py_function;
static py_function *functions; /* the GIL protects it */

/* A class of the program fills the context: `call` is (outputs, saved), which `_forward` returns. */
static bool set_outputs(gd_context *c, PyObject *call) {
    gd_tensors to_return = {NULL, 0}, to_save = {NULL, 0};
    PyObject *outputs = PyTuple_GetItem(call, 0), *saved = PyTuple_GetItem(call, 1);
    gd_tensor **y = gdpy_handles_of(outputs, &to_return, "outputs of forward");
    gd_tensor **s = y ? gdpy_handles_of(saved, &to_save, "saved tensors") : NULL;
    for (int64_t i = 0; s && i < to_return.count && i < c->n_out; i++) c->y[i] = gd_hold(y[i]);
    for (int64_t i = 0; s && i < to_save.count; i++) gd_save(c, gd_hold(s[i]));
    const bool good = s != NULL;
    PyMem_Free(y);
    PyMem_Free(s);
    return good;
}

static void fail_outputs(gd_context *c) {
    const gd_status status = gdpy_keep_exception();
    (void)status;
    for (int i = 0; i < c->n_out; i++) c->y[i] = NULL;
}

/* Eagerly forward has run before: `user` is its context, whose _call is (outputs, saved). */
static void forward_done(gd_context *c) {
    const PyGILState_STATE state = gdpy_enter();
    PyObject *call = PyObject_GetAttrString((PyObject *)c->user, "_call");
    if (!call || !set_outputs(c, call)) fail_outputs(c);
    Py_XDECREF(call);
    gdpy_leave(state);
}

/* In a graph: `user` is a recipe, which calls forward with the values of a run. */
static void forward_in_graph(gd_context *c) {
    const PyGILState_STATE state = gdpy_enter();
    PyObject *in = wrap_list(c->x, c->n_in), *call = NULL;
    if (in) call = PyObject_CallMethod((PyObject *)c->user, "_forward", "O", in);
    if (call && PyList_Size(PyTuple_GetItem(call, 0)) != c->n_out)
        gd_raise_at(NULL, GD_E_STATE, "the number of outputs"); /* the caller tries again */
    else if (!call || !set_outputs(c, call)) fail_outputs(c);
    Py_XDECREF(in);
    Py_XDECREF(call);
    gdpy_leave(state);
}

/* _backward(gradients, saved, needs) returns a gradient or None for each input. */
static void backward_python(gd_context *c) {
    const PyGILState_STATE state = gdpy_enter();
    PyObject *call = PyObject_GetAttrString((PyObject *)c->user, "_n_saved"), *result = NULL;
    const long n_saved = call ? PyLong_AsLong(call) : -1;
    PyObject *gy = n_saved >= 0 ? wrap_list(c->gy, c->n_out) : NULL;
    PyObject *saved = PyList_New(0), *needs = PyList_New(0);
    bool good = gy && saved && needs;
    for (int i = 0; i < n_saved && good; i++) {
        gd_tensor *t = gd_saved(c, i);
        PyObject *o = gd_tensor_is_error(t) ? NULL : gdpy_wrap_again(t);
        good = o && PyList_Append(saved, o) == 0;
        Py_XDECREF(o);
    }
    for (int i = 0; i < c->n_in && good; i++)
        good = PyList_Append(needs, c->needs[i] ? Py_True : Py_False) == 0;
    if (good)
        result = PyObject_CallMethod((PyObject *)c->user, "_backward", "OOO", gy, saved, needs);
    gd_tensors list = {NULL, 0};
    gd_tensor **gx = result ? gdpy_handles_of(result, &list, "gradients of backward") : NULL;
    for (int i = 0; gx && i < c->n_in && i < list.count; i++)
        if (gx[i] && c->needs[i]) c->gx[i] = gd_hold(gx[i]);
    if (PyErr_Occurred()) gdpy_keep_exception();
    PyMem_Free(gx);
    Py_XDECREF(result);
    Py_XDECREF(needs);
    Py_XDECREF(saved);
    Py_XDECREF(gy);
    Py_XDECREF(call);
    gdpy_leave(state);
}

static const gd_function *function_of(const char *name, int n_out, bool graph, bool of_ops) {
    for (py_function *f = functions; f; f = f->next)
        if (f->function.n_out == n_out && (f->function.forward == forward_in_graph) == graph &&
            f->function.backward_of_ops == of_ops && strcmp(f->name, name) == 0)
            return &f->function;
    py_function *f = malloc(sizeof *f + strlen(name) + 1);
    if (!f) return PyErr_NoMemory(), NULL;
    strcpy(f->name, name);
    f->function = (gd_function){.name = f->name,
                                .n_out = n_out,
                                .forward = graph ? forward_in_graph : forward_done,
                                .backward = backward_python,
                                .backward_of_ops = of_ops,
                                .release = graph ? NULL : release_object};
    f->next = functions;
    functions = f;
    return &f->function;
}

/* _apply(context, inputs, name, n_out, graph, of_ops): the outputs as a tuple of Tensors. A recipe of a
 * graph is kept as long as the process. */
static PyObject *core_apply(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *context, *inputs;
    const char *name;
    int n_out, graph, of_ops;
    gd_tensors list = {NULL, 0};
    if (!PyArg_ParseTuple(args, "OOsipp", &context, &inputs, &name, &n_out, &graph, &of_ops))
        return NULL;
    const gd_function *f = function_of(name, n_out, graph, of_ops);
    gd_tensor **x = f ? gdpy_handles_of(inputs, &list, "inputs") : NULL;
    if (!x) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    Py_INCREF(context); /* the tape, or the graph, has it */
    gdpy_release_gil(&c);
    const gd_tensors y = gd_apply_at(c.site, f, list, context);
    gdpy_take_gil(&c);
    PyMem_Free(x);
    if (gd_failed()) {
        gdpy_raise();
        return gdpy_cancel(&c);
    }
    gdpy_drop_exceptions();
    return gdpy_end_list(&c, y);
}

/* --- hooks ------------------------------------------------------------------------------------ */

static gd_tensor *result_of(PyObject *result, const char *what) {
    if (!result || result == Py_None) return NULL;
    gd_tensor *t = gdpy_to_tensor(result, GD_DTYPE_NONE, true);
    if (!t && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s must return a tensor, not %R", what,
                     (PyObject *)Py_TYPE(result));
    }
    return t ? gd_hold(t) : NULL;
}

/* `user` is a list that holds the function. */
static gd_tensor *call_hook(gd_tensor *gradient, void *user) {
    const PyGILState_STATE state = gdpy_enter();
    PyObject *holder = Py_NewRef((PyObject *)user), *hook = PySequence_GetItem(holder, 0);
    PyObject *g = gdpy_wrap_again(gradient);
    PyObject *result = g && hook ? PyObject_CallFunctionObjArgs(hook, g, NULL) : NULL;
    gd_tensor *other = result_of(result, "a hook");
    if (PyErr_Occurred()) gdpy_keep_exception(), other = NULL;
    Py_XDECREF(result);
    Py_XDECREF(g);
    Py_XDECREF(hook);
    Py_DECREF(holder);
    gdpy_leave(state);
    return other;
}

/* _tensor_hook(t, holder), _tensor_unhook(t, holder): `holder` is a list of one function. */
static PyObject *core_tensor_hook(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *t, *holder;
    if (!PyArg_ParseTuple(args, "O!O!", (PyObject *)gdpy_tensor_type, &t, (PyObject *)&PyList_Type,
                          &holder))
        return NULL;
    const gd_tensor_hook_options o = {.release = release_object};
    Py_INCREF(holder);
    if (gd_tensor_hook_at(gdpy_site(), gdpy_tensor_of(t), call_hook, holder, &o) != GD_OK) {
        Py_DECREF(holder);
        return gdpy_raise();
    }
    return Py_NewRef(Py_None);
}
static PyObject *core_tensor_unhook(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *t, *holder;
    if (!PyArg_ParseTuple(args, "O!O", (PyObject *)gdpy_tensor_type, &t, &holder)) return NULL;
    gd_tensor_unhook(gdpy_tensor_of(t), call_hook, holder);
    return Py_NewRef(Py_None);
}

/* --- functions of a list of tensors ----------------------------------------------------------- */

static gd_tensor *call_fn(gd_tensors in, void *user) {
    const PyGILState_STATE state = gdpy_enter();
    PyObject *function = Py_NewRef((PyObject *)user), *args = gdpy_tensor_tuple(in);
    PyObject *result = args ? PyObject_Call(function, args, NULL) : NULL;
    gd_tensor *y = result_of(result, "the function");
    if (result == Py_None)
        PyErr_SetString(PyExc_TypeError, "the function must return a tensor, not None");
    const bool failed = PyErr_Occurred() != NULL;
    if (failed) gdpy_keep_exception();
    Py_XDECREF(result);
    Py_XDECREF(args);
    Py_DECREF(function);
    gdpy_leave(state);
    return failed ? NULL : y;
}

static PyObject *core_recompute(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *inputs;
    gd_tensors list;
    if (!PyArg_ParseTuple(args, "OO", &function, &inputs)) return NULL;
    gd_tensor **x = gdpy_handles_of(inputs, &list, "inputs");
    if (!x) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    const gd_recompute_options o = {.release = release_object};
    Py_INCREF(function);
    gdpy_release_gil(&c);
    gd_tensor *y = gd_recompute_at(c.site, call_fn, list, function, &o);
    gdpy_take_gil(&c);
    PyMem_Free(x);
    if (!gd_failed()) gdpy_drop_exceptions();
    return gdpy_end(&c, y);
}

static PyObject *core_gradcheck(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *inputs;
    gd_gradcheck_options o = *GD_GRADCHECK_OPTIONS_();
    gd_tensors list;
    int second;
    if (!PyArg_ParseTuple(args, "OOdddp", &function, &inputs, &o.step, &o.tolerance_relative,
                          &o.tolerance_absolute, &second))
        return NULL;
    o.second_order = second;
    gd_tensor **x = gdpy_handles_of(inputs, &list, "inputs");
    if (!x) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    const gd_status status = gd_gradcheck_at(c.site, call_fn, list, function, &o);
    gdpy_take_gil(&c);
    PyMem_Free(x);
    if (status == GD_OK) gdpy_drop_exceptions();
    return gdpy_end_status(&c, status);
}

static PyMethodDef table[] = {
    {"_apply", core_apply, METH_VARARGS, NULL},
    {"_tensor_hook", core_tensor_hook, METH_VARARGS, NULL},
    {"_tensor_unhook", core_tensor_unhook, METH_VARARGS, NULL},
    {"_recompute", core_recompute, METH_VARARGS, NULL},
    {"_gradcheck", core_gradcheck, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int gdpy_autograd_init(PyObject *module) { return PyModule_AddFunctions(module, table); }
