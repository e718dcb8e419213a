/* callback.c - Python functions that the library calls: modules, callbacks, datasets, functions of jits.
 *
 * An exception in such a function becomes a failure of the library, so that whatever it interrupts ends
 * as after any failure, and is raised where the outermost call returns. Meanwhile it waits here, found by
 * the text of the failure; the failure may end on another thread than it began. */
#include "object.h"

#include <string.h>

enum { MOST = 64, TEXT = 400 };
static struct {
    PyObject *exception;
    char text[TEXT]; /* that the failure has, too */
    unsigned long thread, order;
} kept[MOST];       /* the GIL protects it */
static int waiting; /* how many exceptions are there */
static unsigned long next;

/* A free place, or that of the oldest. */
static int free_place(void) {
    int oldest = 0;
    for (int i = 0; i < MOST; i++) {
        if (!kept[i].exception) return i;
        if (kept[i].order < kept[oldest].order) oldest = i;
    }
    return oldest;
}

static PyObject *take_place(int i, PyObject *exception) {
    PyObject *before = kept[i].exception;
    kept[i].exception = exception;
    waiting += (exception != NULL) - (before != NULL);
    return before;
}

PyGILState_STATE gdpy_enter(void) { return PyGILState_Ensure(); }
void gdpy_leave(PyGILState_STATE state) { PyGILState_Release(state); }

gd_status gdpy_keep_exception(void) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (!value) return gd_raise_at(NULL, GD_E_STATE, "a function of the program has failed");
    if (trace) PyException_SetTraceback(value, trace);
    PyObject *name = PyObject_GetAttrString(type, "__name__"), *text = PyObject_Str(value);
    PyErr_Clear();
    PyObject *both = name && text ? PyUnicode_FromFormat("%U: %U", name, text) : NULL;
    const char *utf8 = both ? PyUnicode_AsUTF8AndSize(both, NULL) : NULL;
    PyErr_Clear();
    const int i = free_place();
    kept[i].order = next++;
    snprintf(kept[i].text, TEXT, "%s", utf8 ? utf8 : "an exception");
    kept[i].thread = PyThread_get_thread_ident();
    gd_status status = GD_E_STATE;
    for (gd_status s = GD_OK + 1; s <= GD_E_FORMAT;
         s++) /* an exception of the library keeps its status */
        if (PyErr_GivenExceptionMatches(value, gdpy_exception_of(s)) == 1 &&
            gdpy_exception_of(s) != gdpy_exception_of(GD_OK))
            status = s;
    if (PyErr_GivenExceptionMatches(value, PyExc_MemoryError)) status = GD_E_MEMORY;
    status = gd_raise_at(NULL, status, "%s", kept[i].text);
    PyObject *old = take_place(i, value);
    Py_XDECREF(old); /* may run Python code, so it is last */
    Py_XDECREF(type);
    Py_XDECREF(trace);
    Py_XDECREF(name);
    Py_XDECREF(text);
    Py_XDECREF(both);
    return status;
}

PyObject *gdpy_kept_exception(void) {
    const char *message = gd_error_message();
    const unsigned long thread = PyThread_get_thread_ident();
    int best = -1;
    size_t most = 0;
    for (int i = 0; i < MOST && waiting > 0; i++) {
        if (!kept[i].exception || !strstr(message, kept[i].text)) continue;
        /* this thread's first, then the longest text, then the latest */
        const size_t fit = strlen(kept[i].text) + 1 + (kept[i].thread == thread ? TEXT : 0);
        const bool later = best >= 0 && fit == most && kept[i].order > kept[best].order;
        if (fit > most || later) most = fit, best = i;
    }
    return best < 0 ? NULL : take_place(best, NULL);
}

void gdpy_drop_exceptions(void) {
    if (waiting == 0) return;
    const unsigned long thread = PyThread_get_thread_ident();
    for (int i = 0; i < MOST; i++)
        if (kept[i].exception && kept[i].thread == thread) {
            PyObject *old = take_place(i, NULL);
            Py_XDECREF(old);
        }
}

void gdpy_forget_exception(PyObject *exception) {
    for (int i = 0; i < MOST; i++)
        if (kept[i].exception == exception) gdpy_set(&kept[i].exception, NULL);
}

PyObject *gdpy_tensor_tuple(gd_tensors list) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)list.count);
    for (int64_t i = 0; i < list.count && tuple; i++) {
        PyObject *o = gdpy_wrap_again(list.at[i]);
        if (!o) Py_CLEAR(tuple);
        else PyTuple_SetItem(tuple, (Py_ssize_t)i, o);
    }
    return tuple;
}

bool gdpy_tensors_from_result(PyObject *result, const char *what, gd_tensors *to) {
    PyObject *list = PyTuple_Check(result) || PyList_Check(result) ? PySequence_Tuple(result)
                                                                   : PyTuple_Pack(1, result);
    if (!list) return false;
    const Py_ssize_t n = PyTuple_Size(list);
    gd_tensor **at = PyMem_Malloc(sizeof *at * (size_t)(n + 1));
    bool good = at != NULL || (PyErr_NoMemory(), false);
    for (Py_ssize_t i = 0; i < n && good; i++) {
        PyObject *o = PyTuple_GetItem(list, i);
        at[i] = o == Py_None ? NULL : gdpy_to_tensor(o, GD_DTYPE_NONE, true);
        good = o == Py_None || (at[i] && gd_hold(at[i])); /* `result` may have the last reference */
        if (!good && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "%s must return tensors, not %R", what,
                         (PyObject *)Py_TYPE(o));
        }
    }
    if (good) {
        *to = gd_list_copy((gd_tensors){at, n});
        good = to->count == n || (gdpy_raise(), false);
    }
    PyMem_Free(at);
    Py_DECREF(list);
    return good;
}
