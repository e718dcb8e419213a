/* binding.h - what the files of the Python module share.
 *
 * The module is written against CPython's stable ABI from 3.11, so that one binary runs on every later
 * version. The names of its functions begin with gdpy_.
 *
 * Every call of the library happens between gdpy_begin and an end (call.h): the begin opens a scope, and
 * the end takes a reference to each result before the scope closes. So temporary tensors, such as a NumPy
 * array among the arguments, are freed in one place, also in functions of the program that the library
 * calls.
 */
#ifndef GRADUS_PYTHON_BINDING_H
#define GRADUS_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "gradus/gradus.h"

/* Py_SETREF, which the stable ABI lacks. */
static inline void gdpy_set(PyObject **at, PyObject *o) {
    PyObject *old = *at;
    *at = o;
    Py_XDECREF(old);
}

/* --- objects ---------------------------------------------------------------------------------- */

/* gradus.Tensor: holds a reference to a handle. */
typedef struct gdpy_tensor {
    PyObject_HEAD gd_tensor *t;
    PyObject *weak;
    bool known; /* in the table of gdpy_tensor_known */
} gdpy_tensor;

extern PyTypeObject *gdpy_tensor_type, *gdpy_dtype_type, *gdpy_device_type;

static inline bool gdpy_is_tensor(PyObject *o) {
    return Py_TYPE(o) == gdpy_tensor_type || PyType_IsSubtype(Py_TYPE(o), gdpy_tensor_type);
}
/* The only place that reads the object's data. */
static inline gdpy_tensor *gdpy_tensor_data(PyObject *o) { return (gdpy_tensor *)o; }
static inline gd_tensor *gdpy_tensor_of(PyObject *o) { return gdpy_tensor_data(o)->t; }

/* A Tensor with a reference of its own to `t`. An error tensor becomes an exception, and NULL is returned;
 * a NULL tensor becomes None. */
PyObject *gdpy_wrap(gd_tensor *t);

/* The same, but two wraps of one handle give one object while it lives: parameters, gradients. */
PyObject *gdpy_wrap_known(gd_tensor *t);
/* The same for a parameter of a module, whose object is of the class gradus.nn.Parameter. */
PyObject *gdpy_wrap_parameter(gd_tensor *t);
extern PyTypeObject *gdpy_parameter_type; /* NULL: gradus.nn is not there yet */
/* That one object if there is one, otherwise a new Tensor that is not entered. */
PyObject *gdpy_wrap_again(gd_tensor *t);
/* Makes a Tensor or another object the one of its handle. */
int gdpy_make_known(PyObject *o);
void gdpy_forget_known(PyObject *o);           /* when a known object is freed */
PyObject *gdpy_find_known(const void *handle); /* borrowed; NULL: there is none */

/* gradus.dtype objects: one for each dtype. They compare equal to their names. */
PyObject *gdpy_dtype_object(gd_dtype dtype);       /* a new reference */
int gdpy_dtype_from(PyObject *o, gd_dtype *dtype); /* 0 with an exception if it is none */

/* "cuda:0" or a device object. NULL with an exception. */
gd_device *gdpy_device_from(PyObject *o);
PyObject *gdpy_device_object(gd_device *device);

/* --- errors ----------------------------------------------------------------------------------- */

/* Raises the recorded failure of the library as an exception, and clears it. Returns NULL. If there is an
 * exception already (one of a function that the library called), that one stays. */
PyObject *gdpy_raise(void);
/* The exception class of a status. */
PyObject *gdpy_exception_of(gd_status status);
int gdpy_errors_init(PyObject *module);

/* --- conversions (convert.c) ------------------------------------------------------------------ */

/* A tensor of a Python object: a Tensor itself, a scalar, nested sequences, anything with a buffer,
 * __dlpack__ or __array__. New tensors belong to the open scope. Data of arrays is shared if `share` is
 * true and its layout allows it. NULL with an exception. */
gd_tensor *gdpy_to_tensor(PyObject *o, gd_dtype dtype, bool share);

/* The handles of a list of Tensors, for as long as the list lives; None is NULL. The caller frees the array
 * with PyMem_Free. NULL with an exception that names `what`. */
gd_tensor **gdpy_handles_of(PyObject *list, gd_tensors *to, const char *what);

/* A Python number as an operand of an elementwise op. 1: it is one; 0: it is no number; -1: exception. */
int gdpy_to_number(PyObject *o, gd_number *number, gd_dtype *kind);

/* Whether the interpreter can still run Python code, for functions that free objects. */
bool gdpy_alive(void);

/* --- places ----------------------------------------------------------------------------------- */

/* The place of the Python code that runs, "train.py:42", if a trace needs it; otherwise NULL: finding a
 * line takes microseconds. The text lives as long as the process. */
const char *gdpy_site(void);

/* --- tables and types of the other files ------------------------------------------------------- */

extern PyMethodDef gdpy_op_functions[], gdpy_op_methods[]; /* written by the generator */
extern PyMethodDef gdpy_file_functions[];                  /* files.c */
int gdpy_dtype_init(PyObject *module);
int gdpy_device_init(PyObject *module);
int gdpy_tensor_init(PyObject *module);
int gdpy_log_init(PyObject *module);

/* The element of a tensor of one element as a bool, an int or a float. */
PyObject *gdpy_item(PyObject *tensor);

/* Slots of gradus.Tensor. */
extern PyType_Slot gdpy_number_slots[]; /* operators.c; ends with {0, NULL} */
PyObject *gdpy_subscript(PyObject *self, PyObject *key);
int gdpy_assign_subscript(PyObject *self, PyObject *key, PyObject *value);
int gdpy_get_buffer(PyObject *self, Py_buffer *view, int flags);
void gdpy_release_buffer(PyObject *self, Py_buffer *view);

#endif
