/* jit.c - gradus.jit: functions of the program that run as plans. Its class is in gradus/_jit.py.
 *
 * A call takes the tensors out of its arguments (tree.c). What is left, the description, is looked up in
 * a dict, which compares by value; the number there is the key of the library's call. The function runs
 * only in a trace: it gets the arguments of the call that traces, which the thread has at hand, with
 * symbols in place of the tensors. What it returns has a description, too, which is kept for each trace:
 * other shapes may give another structure. */
#include "object.h"

#include <stdlib.h>
#include <string.h>

typedef struct trace_record {
    int64_t number, key;
    PyObject *result; /* the description of what the function returned */
    bool one;         /* it is one tensor */
} trace_record;

typedef struct py_jit {
    gdpy_object object;        /* its handle is the gd_jit */
    PyObject *function, *keys; /* a dict: descriptions to numbers, from 1 */
    int64_t next_key;
    int plans;
    bool bound;  /* the first argument is the object of a method, and no part of the description */
    int running; /* calls in progress; all fields are protected by the GIL */
    trace_record *records;
    int count, room;
} py_jit;

static PyTypeObject *jit_type;

/* A call in progress. */
typedef struct jit_call {
    py_jit *jit;
    PyObject *args, *names; /* as they were given */
    PyObject *description;  /* of (args, names); NULL: all arguments are tensors */
    PyObject *list;         /* the arguments that are tensors, if there is a description */
    int64_t key;
    bool nested;      /* in a graph or another jit's function: nothing is recorded */
    PyObject *result; /* the description of what the function returned, if it was called */
    struct jit_call *before;
} jit_call;
static _Thread_local jit_call *given;

/* --- records of traces ------------------------------------------------------------------------ */

static trace_record *find_record(py_jit *j, int64_t number) {
    for (int i = j->count; i-- > 0;)
        if (j->records[i].number == number) return &j->records[i];
    return NULL;
}

static bool key_is_used(const py_jit *j, int64_t key) {
    for (int i = 0; i < j->count; i++)
        if (j->records[i].key == key) return true;
    return false;
}

/* Descriptions of arguments whose plans are gone: they hold the objects that were arguments. */
static void drop_keys(py_jit *j) {
    PyObject *rows = PyDict_Items(j->keys); /* hashing may run Python code, which calls the jit */
    for (Py_ssize_t i = 0; rows && i < PyList_Size(rows); i++) {
        PyObject *row = PyList_GetItem(rows, i);
        if (!key_is_used(j, PyLong_AsLongLong(PyTuple_GetItem(row, 1))))
            PyDict_DelItem(j->keys, PyTuple_GetItem(row, 0));
        PyErr_Clear();
    }
    Py_XDECREF(rows);
    PyErr_Clear();
}

/* When no other call is in progress: forgets traces whose plans the library has dropped. */
static void drop_records(py_jit *j) {
    trace_record *dropped = PyMem_Calloc((size_t)j->count + 1, sizeof *dropped);
    int kept = 0, gone = 0;
    if (!dropped) return;
    for (int i = 0; i < j->count; i++)
        if (gd_jit_keeps(j->object.handle, j->records[i].number))
            j->records[kept++] = j->records[i];
        else dropped[gone++] = j->records[i];
    j->count = kept;
    drop_keys(j);
    for (int i = 0; i < gone; i++) Py_XDECREF(dropped[i].result); /* may run Python code */
    PyMem_Free(dropped);
}

/* Keeps what the function has returned in the trace that is being made. */
static bool record_trace(py_jit *j, int64_t number, int64_t key, PyObject *result, bool one) {
    trace_record *r = find_record(j, number); /* of a trace that failed after its function */
    if (!r && j->count == j->room) {
        const int room = j->room ? 2 * j->room : 8;
        trace_record *more = PyMem_Realloc(j->records, (size_t)room * sizeof *more);
        if (!more) return PyErr_NoMemory(), false;
        j->records = more;
        j->room = room;
    }
    if (!r) {
        r = &j->records[j->count++];
        r->result = NULL;
    }
    r->number = number;
    r->key = key;
    r->one = one;
    gdpy_set(&r->result, Py_NewRef(result));
    return true;
}

/* --- the function, called by the library ------------------------------------------------------ */

static PyObject *wrap_all(gd_tensors in) {
    PyObject *list = PyList_New((Py_ssize_t)in.count);
    for (int64_t i = 0; i < in.count && list; i++) {
        PyObject *o = gdpy_wrap_again(in.at[i]);
        if (!o) Py_CLEAR(list);
        else PyList_SetItem(list, (Py_ssize_t)i, o);
    }
    return list;
}

/* The arguments of the call with symbols in place of its tensors: (args, names or NULL). */
static bool symbolic_arguments(jit_call *call, gd_tensors in, PyObject **args, PyObject **names) {
    PyObject *list = wrap_all(in), *both = NULL;
    Py_ssize_t at = 0;
    *args = *names = NULL;
    if (list && call->description) {
        both = gdpy_unflatten(call->description, list, &at);
        if (both) {
            *args = Py_NewRef(PyTuple_GetItem(both, 0));
            if (PyDict_Size(PyTuple_GetItem(both, 1)) > 0)
                *names = Py_NewRef(PyTuple_GetItem(both, 1));
        }
    } else if (list) *args = PyList_AsTuple(list);
    if (*args && call->jit->bound) {
        PyObject *first = PyTuple_GetSlice(call->args, 0, 1);
        if (first) gdpy_set(args, PySequence_Concat(first, *args));
        Py_XDECREF(first);
    }
    Py_XDECREF(both);
    Py_XDECREF(list);
    return *args != NULL;
}

/* Tells the Python class about a trace, for explain(). */
static void note_trace(jit_call *call, gd_tensors in, PyObject *args, PyObject *names) {
    const gd_jit_call_options o = {.key = call->key};
    char *text = gd_jit_difference_at(call->jit->object.handle, in, &o);
    PyObject *none = Py_None, *done = PyObject_CallMethod((PyObject *)call->jit, "_note", "OOz",
                                                          args, names ? names : none, text);
    free(text);
    Py_XDECREF(done);
}

static gd_tensors take_result(jit_call *call, PyObject *result) {
    gd_tensors out = {NULL, 0};
    PyObject *list = PyList_New(0),
             *description = list ? gdpy_flatten(result, list, GDPY_ANY_VALUE) : NULL;
    const Py_ssize_t n = list ? PyList_Size(list) : 0;
    gd_tensor **at = description ? PyMem_Malloc(sizeof *at * (size_t)(n + 1)) : NULL;
    if (description && !at) PyErr_NoMemory();
    if (at) {
        for (Py_ssize_t i = 0; i < n; i++) at[i] = gd_hold(gdpy_tensor_of(PyList_GetItem(list, i)));
        out = gd_list_copy((gd_tensors){at, n});
        gdpy_set(&call->result, Py_NewRef(description));
        if (!call->nested)
            record_trace(call->jit, gd_jit_traces(call->jit->object.handle), call->key, description,
                         gdpy_is_tensor(result));
    }
    PyMem_Free(at);
    Py_XDECREF(description);
    Py_XDECREF(list);
    return out;
}

static gd_tensors call_function(gd_tensors in, void *user) {
    const PyGILState_STATE state = gdpy_enter();
    jit_call *call = given;
    gd_tensors out = {NULL, 0};
    (void)user;
    given = NULL; /* calls of other jits inside have their own */
    PyObject *args, *names, *result = NULL;
    if (symbolic_arguments(call, in, &args, &names)) {
        if (!call->nested) note_trace(call, in, args, names);
        if (!PyErr_Occurred()) result = PyObject_Call(call->jit->function, args, names);
    }
    if (result) out = take_result(call, result);
    Py_XDECREF(result);
    Py_XDECREF(args);
    Py_XDECREF(names);
    given = call;
    if (PyErr_Occurred()) gdpy_keep_exception(), out = (gd_tensors){NULL, 0};
    gdpy_leave(state);
    return out;
}

/* --- calls ------------------------------------------------------------------------------------ */

enum { FEW = 16 };

typedef struct inputs {
    gd_tensor *few[FEW], **at;
    Py_ssize_t count;
} inputs;

/* Calls with tensors alone, the usual ones, need no description. */
static bool only_tensors(PyObject *args, PyObject *names, Py_ssize_t first, inputs *in) {
    const Py_ssize_t n = PyTuple_Size(args) - first;
    if (n > FEW || n < 0 || (names && PyDict_Size(names) > 0)) return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(args, first + i);
        if (!gdpy_is_tensor(o)) return false;
        in->few[i] = gdpy_tensor_of(o);
    }
    in->at = in->few;
    in->count = n;
    return true;
}

/* The number of a description. */
static int64_t key_of(py_jit *j, PyObject *description) {
    PyObject *number = PyDict_GetItemWithError(j->keys, description);
    if (number) return PyLong_AsLongLong(number);
    if (PyErr_Occurred()) return -1;
    const int64_t key = j->next_key++; /* now: hashing may run Python code, and other threads */
    number = PyLong_FromLongLong(key);
    const bool good = number && PyDict_SetItem(j->keys, description, number) == 0;
    Py_XDECREF(number);
    return good ? key : -1;
}

/* Takes the tensors out of the arguments; in the open scope. */
static bool flatten_arguments(jit_call *call, Py_ssize_t first, inputs *in) {
    PyObject *args = first ? PyTuple_GetSlice(call->args, first, PyTuple_Size(call->args))
                           : Py_NewRef(call->args);
    PyObject *names = call->names ? Py_NewRef(call->names) : PyDict_New();
    PyObject *both = args && names ? PyTuple_Pack(2, args, names) : NULL;
    call->list = PyList_New(0);
    if (both && call->list) call->description = gdpy_flatten(both, call->list, GDPY_ARRAYS);
    Py_XDECREF(args);
    Py_XDECREF(names);
    Py_XDECREF(both);
    if (!call->description || (call->key = key_of(call->jit, call->description)) < 0) return false;
    in->count = PyList_Size(call->list);
    in->at = in->count <= FEW ? in->few : PyMem_Malloc(sizeof *in->at * (size_t)in->count);
    if (!in->at) return PyErr_NoMemory(), false;
    for (Py_ssize_t i = 0; i < in->count; i++)
        if (!(in->at[i] = gdpy_to_tensor(PyList_GetItem(call->list, i), GD_DTYPE_NONE, true)))
            return false;
    return true;
}

/* The results in the structure that the function has returned. */
static PyObject *wrap_results(py_jit *j, jit_call *call, int64_t trace, gd_tensors out) {
    const trace_record *r = trace >= 0 ? find_record(j, trace) : NULL;
    if (r && r->one) return gdpy_wrap(out.at[0]);
    PyObject *description = r ? r->result : call->result;
    if (!description) {
        PyErr_SetString(gdpy_exception_of(GD_E_STATE), "the structure of the results is not known");
        return NULL;
    }
    Py_INCREF(description); /* another thread may replace the record */
    PyObject *list = PyList_New((Py_ssize_t)out.count), *result = NULL;
    Py_ssize_t at = 0;
    for (int64_t i = 0; i < out.count && list; i++) {
        PyObject *o = gdpy_wrap(out.at[i]);
        if (!o) Py_CLEAR(list);
        else PyList_SetItem(list, (Py_ssize_t)i, o);
    }
    if (list) result = gdpy_unflatten(description, list, &at);
    Py_XDECREF(list);
    Py_DECREF(description);
    return result;
}

static PyObject *call_or_plan(py_jit *j, jit_call *call, inputs *in, gdpy_call *c, bool plan) {
    const gd_tensors x = {in->at, in->count};
    int64_t trace = -1;
    const gd_jit_call_options o = {.key = call->key, .trace = &trace};
    PyObject *result = NULL;
    call->nested = gd_is_tracing();
    for (Py_ssize_t i = 0; i < in->count && !call->nested; i++)
        call->nested = gd_tensor_is_symbol(in->at[i]);
    call->before = given;
    given = call;
    gdpy_release_gil(c);
    char *text = NULL;
    gd_tensors out = {NULL, 0};
    if (plan) text = gd_jit_plan_text_at(c->site, j->object.handle, x, &o);
    else out = gd_jit_call_at(c->site, j->object.handle, x, &o);
    gdpy_take_gil(c);
    given = call->before;
    if (gd_failed()) gdpy_raise();
    else if (plan) result = PyUnicode_FromString(text);
    else {
        result = wrap_results(j, call, trace, out);
        gdpy_drop_exceptions();
    }
    free(text);
    return result;
}

static PyObject *run_call(PyObject *self, PyObject *args, PyObject *names, bool plan) {
    py_jit *j = (py_jit *)self;
    if (!j->object.handle)
        return PyErr_SetString(gdpy_exception_of(GD_E_STATE), "the jit has no function yet"), NULL;
    jit_call call = {.jit = j, .args = args, .names = names};
    inputs in = {.count = 0};
    gdpy_call c;
    PyObject *result = NULL;
    Py_INCREF(self);
    j->running++;
    gdpy_open(&c);
    if (only_tensors(args, names, j->bound, &in) || flatten_arguments(&call, j->bound, &in))
        result = call_or_plan(j, &call, &in, &c, plan);
    gdpy_cancel(&c);
    if (result && j->running == 1 && j->count > 2 * j->plans + 8) drop_records(j);
    j->running--;
    if (in.at != in.few) PyMem_Free(in.at);
    Py_XDECREF(call.description);
    Py_XDECREF(call.list);
    Py_XDECREF(call.result);
    Py_DECREF(self);
    return result;
}

static PyObject *jit_tp_call(PyObject *self, PyObject *args, PyObject *names) {
    return run_call(self, args, names, false);
}
static PyObject *jit_plan(PyObject *self, PyObject *args, PyObject *names) {
    return run_call(self, args, names, true);
}

/* --- the type --------------------------------------------------------------------------------- */

/* Jit(function, level, plans, bound) */
static int jit_init(PyObject *self, PyObject *args, PyObject *names) {
    py_jit *j = (py_jit *)self;
    PyObject *function;
    int level, plans, bound;
    (void)names;
    if (!PyArg_ParseTuple(args, "Oiip", &function, &level, &plans, &bound)) return -1;
    if (!PyCallable_Check(function)) {
        PyErr_Format(PyExc_TypeError, "jit() takes a function, not %R",
                     (PyObject *)Py_TYPE(function));
        return -1;
    }
    const gd_jit_options o = {.level = level, .plans = plans};
    gdpy_call c;
    gdpy_open(&c);
    const int status = gdpy_set_handle(self, gd_jit_new_at(c.site, call_function, j, &o));
    gdpy_cancel(&c);
    if (status < 0) return -1;
    gdpy_set(&j->keys, PyDict_New());
    gdpy_set(&j->function, Py_NewRef(function));
    j->plans = plans;
    j->bound = bound;
    j->next_key = 1;
    return j->keys ? 0 : -1;
}

static int jit_traverse(PyObject *self, visitproc visit, void *arg) {
    py_jit *j = (py_jit *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(j->function);
    Py_VISIT(j->keys);
    for (int i = 0; i < j->count; i++) Py_VISIT(j->records[i].result);
    return 0;
}
static int jit_clear(PyObject *self) {
    py_jit *j = (py_jit *)self;
    Py_CLEAR(j->function);
    Py_CLEAR(j->keys);
    for (int i = 0; i < j->count; i++) Py_CLEAR(j->records[i].result);
    return 0;
}
static void jit_dealloc(PyObject *self) {
    py_jit *j = (py_jit *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (j->object.weak) PyObject_ClearWeakRefs(self);
    if (j->object.known) gdpy_forget_known(self);
    jit_clear(self);
    PyMem_Free(j->records);
    (gd_release)(j->object.handle);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_object(self);
    Py_DECREF(type);
}

static PyObject *get_traces(PyObject *self, void *none) {
    (void)none;
    gd_jit *jit = ((py_jit *)self)->object.handle;
    return PyLong_FromLong(jit ? gd_jit_traces(jit) : 0);
}

/* _records(): how many traces and descriptions it knows, for tests of leaks. */
static PyObject *jit_records(PyObject *self, PyObject *none) {
    py_jit *j = (py_jit *)self;
    (void)none;
    return Py_BuildValue("(in)", j->count, PyDict_Size(j->keys));
}

static PyObject *jit_keeps(PyObject *self, PyObject *number) {
    const long long trace = PyLong_AsLongLong(number);
    if (trace == -1 && PyErr_Occurred()) return NULL;
    return PyBool_FromLong(gd_jit_keeps(((py_jit *)self)->object.handle, trace));
}

static PyGetSetDef properties[] = {
    {"traces", get_traces, NULL, "How many times the function was traced so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(gdpy_object, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef methods[] = {
    {"_plan", (PyCFunction)(void (*)(void))jit_plan, METH_VARARGS | METH_KEYWORDS, NULL},
    {"_records", jit_records, METH_NOARGS, NULL},
    {"_keeps", jit_keeps, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_init, jit_init},
    {Py_tp_call, jit_tp_call},
    {Py_tp_traverse, jit_traverse},
    {Py_tp_clear, jit_clear},
    {Py_tp_dealloc, jit_dealloc},
    {Py_tp_getset, properties},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A function that runs as a plan; programs use gradus.jit."},
    {0, NULL},
};
static PyType_Spec spec = {"gradus._core.Jit", sizeof(py_jit), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

int gdpy_jit_init(PyObject *module) {
    jit_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!jit_type) return -1;
    return PyModule_AddObjectRef(module, "Jit", (PyObject *)jit_type);
}
