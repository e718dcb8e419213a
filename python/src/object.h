/* object.h - Python objects that hold an object of the library: modules, optimizers, loaders ...
 *
 * gradus._core has a type for each kind, without methods that programs see: _core.Module. The classes of
 * programs are Python classes of these types (gradus.nn.Module). A record, such as that of conv2d, has a
 * constructor that the generator writes (opgen/python_objects.c); gradus/_records.py makes a class of it.
 *
 * An object of Python holds a reference to its handle. An object of the library that calls Python code (a
 * module with a Python function, a callback) holds none to its Python object but knows its address: whoever
 * holds the root of a tree of modules in Python holds the Python objects of all its parts (gradus/nn).
 */
#ifndef GRADUS_PYTHON_OBJECT_H
#define GRADUS_PYTHON_OBJECT_H

#include "call.h"

typedef enum gdpy_class {
    GDPY_MODULE,
    GDPY_OPTIMIZER,
    GDPY_SCHEDULE,
    GDPY_LOSS_SCALE,
    GDPY_METRIC,
    GDPY_CALLBACK,
    GDPY_DATASET,
    GDPY_TRANSFORM,
    GDPY_SAMPLER,
    GDPY_LOADER,
    GDPY_GRAPH,
    GDPY_SESSION,
    GDPY_HISTORY,
    GDPY_BOARD,
    GDPY_CLASSES,
} gdpy_class;

typedef struct gdpy_object {
    PyObject_HEAD void *handle; /* NULL: its __init__ was not called */
    PyObject *weak;
    bool known; /* in the table of gdpy_make_known */
} gdpy_object;

extern PyTypeObject *gdpy_types[GDPY_CLASSES];

static inline gdpy_object *gdpy_object_data(PyObject *o) { return (gdpy_object *)o; }
static inline bool gdpy_is(PyObject *o, gdpy_class class) {
    return PyType_IsSubtype(Py_TYPE(o), gdpy_types[class]);
}

/* The handle of an argument; NULL with a TypeError that names the argument. */
void *gdpy_handle(PyObject *o, gdpy_class class, const char *what);
/* Gives a new object its handle, with a reference of its own, and makes it the known one. A NULL handle
 * is a failed constructor: raises its failure. */
int gdpy_set_handle(PyObject *self, void *handle);
/* The Python object of a handle: the known one, or a new one of the class that the finder of this kind
 * returns for `type` (_core._set_finder). NULL with an exception; None for NULL. */
PyObject *gdpy_wrap_object(void *handle, gdpy_class class, const char *type);

/* Ends a call that has created an object for `self`. Returns None. */
PyObject *gdpy_end_object(gdpy_call *call, PyObject *self, void *handle);

/* --- constructors of records (written by the generator) --------------------------------------- */

typedef struct gdpy_constructor {
    const char *kind;   /* "layer", "optimizer" ... */
    const char *record; /* "conv2d" */
    const char *name;   /* "Conv2d" */
    const char *inputs; /* of a layer: "x target weight? " */
    PyMethodDef def;    /* of __init__; of an initializer: a function that returns a tensor */
    const gdpy_function *function;
    size_t (*fill)(void *frame); /* with the defaults; returns the size of the frame */
} gdpy_constructor;
extern const gdpy_constructor gdpy_constructors[]; /* ends with a NULL */

/* What an optimizer is created for: a list of tensors, a module, or PyTorch's list of groups. */
typedef struct gdpy_parameters {
    gd_tensors list;
    gd_module *module;
    PyObject *groups; /* of parameters and options beside the first; a list of dicts, or NULL */
    const char *options;
} gdpy_parameters;
/* The same end for an optimizer, which also gets its other groups. */
PyObject *gdpy_end_optimizer(gdpy_call *call, PyObject *self, gd_optimizer *optimizer,
                             gdpy_parameters *parameters);
bool gdpy_parameters_from(gdpy_call *call, PyObject *o, gdpy_parameters *to);
/* Ends the constructor of a layer or a net: moves it to the device and dtype of the call. */
PyObject *gdpy_end_module(gdpy_call *call, PyObject *self, gd_module *module);

/* What a call that trains has returned: a _core.History, or the exception. */
PyObject *gdpy_wrap_history(gd_history *h);

/* Functions of _core for training: state.c, train.c, watch.c, onnx.c, caffe.c, record.c. */
extern PyMethodDef gdpy_state_functions[], gdpy_train_functions[], gdpy_watch_functions[],
    gdpy_onnx_functions[], gdpy_caffe_functions[], gdpy_record_functions[];

/* --- functions of programs that the library calls (callback.c) -------------------------------- */

/* Around Python code in a function that the library calls, on any thread. */
PyGILState_STATE gdpy_enter(void);
void gdpy_leave(PyGILState_STATE state);

/* Keeps the exception that is set, so that the call of the library that runs this code raises it when it
 * returns, and records a failure of the library with its text. Returns the failure's status. */
gd_status gdpy_keep_exception(void);
/* The exception that belongs to the recorded failure of the library, or NULL: a new reference, which the
 * library's failure does not hold any more. */
PyObject *gdpy_kept_exception(void);
/* After a call of the library that has succeeded: exceptions that it has dealt with are dropped. */
void gdpy_drop_exceptions(void);
/* Drops a kept exception that someone else raises, or nobody. */
void gdpy_forget_exception(PyObject *exception);

/* The arguments of a function of the library as a tuple of Tensors; None for NULL. NULL with an exception. */
PyObject *gdpy_tensor_tuple(gd_tensors list);
/* The tensors that a Python function returns, one or a sequence, in the open scope. */
bool gdpy_tensors_from_result(PyObject *result, const char *what, gd_tensors *to);

/* --- nested arguments and results (tree.c) ---------------------------------------------------- */

/* Takes the tensors out of nested tuples, lists and dicts, in order: appends them to `list`, a Python
 * list, and returns what is left: a hashable description, in which all else is a static value. Values of
 * different types are different, and so are 0.0 and -0.0. NULL with an exception. */
enum {
    GDPY_ARRAYS = 1,    /* arrays of other libraries count as tensors */
    GDPY_ANY_VALUE = 2, /* static values need not be hashable; then the description is not either */
};
PyObject *gdpy_flatten(PyObject *o, PyObject *list, int how);
/* The reverse: `at` counts the tensors that are used. */
PyObject *gdpy_unflatten(PyObject *description, PyObject *list, Py_ssize_t *at);

int gdpy_objects_init(PyObject *module);
int gdpy_tree_init(PyObject *module);
int gdpy_jit_init(PyObject *module);
int gdpy_autograd_init(PyObject *module);
int gdpy_graph_init(PyObject *module);
/* Functions of _core: nn.c, optim.c. */
extern PyMethodDef gdpy_module_functions[], gdpy_optim_functions[];
/* The value of an option in a frame (options.c). */
PyObject *gdpy_option_object(const gdpy_param *p, const void *frame);
PyObject *gdpy_module_options(PyObject *module, PyObject *self);
PyObject *gdpy_module_set_number(PyObject *module, PyObject *args);
int gdpy_data_init(PyObject *module); /* loader.c, with the functions of data.c and segments.c */
extern PyMethodDef gdpy_data_functions[], gdpy_segment_functions[];
void gdpy_loader_dealloc(gdpy_object *o); /* releases a loader's handle */
PyObject *gdpy_module_tp_call(PyObject *self, PyObject *args, PyObject *names);
void gdpy_module_dealloc(gdpy_object *o); /* before a module's handle is released */

#endif
