/* call.h - arguments and results of the functions that the generator writes.
 *
 * A generated function has a frame, a struct with the inputs and options of its op, and a table that says
 * which argument goes to which field:
 *
 *     typedef struct { gd_tensor *x; gd_sum_options o; } sum_frame;
 *     static const gdpy_param sum_params[] = {{"x", ...}, {"axis", "dim", ...}, ...};
 *
 *     static PyObject *sum_call(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) {
 *         sum_frame f = {.o = gd_sum_defaults()};
 *         gdpy_call c;
 *         if (!gdpy_begin(&c, &sum_function, &f, self, args, n, names)) return NULL;
 *         gd_tensor *y = gd_sum_at(c.site, f.x, &f.o);
 *         return gdpy_end(&c, y);
 *     }
 */
#ifndef GRADUS_PYTHON_CALL_H
#define GRADUS_PYTHON_CALL_H

#include "binding.h"

typedef enum gdpy_kind {
    GDPY_TENSOR,  /* gd_tensor *: anything that converts */
    GDPY_WRITTEN, /* gd_tensor *: a Tensor that the op writes */
    GDPY_OPERAND, /* gd_operand: a tensor or a number */
    GDPY_TENSORS, /* gd_tensors: a sequence */
    GDPY_INT,
    GDPY_FLOAT,
    GDPY_BOOL,
    GDPY_INTS,  /* gd_int1, 2, 3: one number for all, or as many as param.count */
    GDPY_SHAPE, /* gd_shape: a number or a sequence */
    GDPY_WORD,  /* gd_word: a str among param.words */
    GDPY_DTYPE,
    GDPY_STRING,
    GDPY_NUMBER,
    GDPY_FLOATS,
    GDPY_DEVICE,        /* where a new tensor goes */
    GDPY_REQUIRES_GRAD, /* a new tensor is a leaf that requires a gradient */
    GDPY_NEW_DTYPE,     /* dtype of the parameters of a new layer */
    GDPY_PARAMETERS,    /* gdpy_parameters (object.h) */
    GDPY_OPTIMIZER_OF,  /* gd_optimizer *: of a schedule */
    GDPY_IGNORED,       /* an argument of PyTorch that changes nothing here */
    GDPY_CONSTANT,      /* one that has only one value here, param.words */
} gdpy_kind;

enum {
    GDPY_REQUIRED = 1,  /* without it the call fails; others may be None, which is their default */
    GDPY_STAR = 2,      /* takes all positional numbers that are left: reshape(x, 2, 3) */
    GDPY_KEYWORD = 4,   /* is given by name only */
    GDPY_DECIDES = 8,   /* an operand whose dtype counts for the result */
    GDPY_INFERRED = 16, /* None is GD_ANY: a size that the first call tells */
    GDPY_NONE_IS_NAN = 32,
};

typedef struct gdpy_param {
    const char *name;
    const char *also; /* other names, each followed by a space: "dim "; "": none */
    const char *words;
    uint16_t offset; /* in the frame */
    uint8_t kind, count, flags;
    uint16_t word_offset; /* of GDPY_INTS with words: where a str goes */
} gdpy_param;

enum { GDPY_MAX_PARAMS = 32 };

typedef struct gdpy_function {
    const char *name;
    const gdpy_param *params;
    uint8_t count;
    uint8_t operands;     /* the first so many params are GDPY_OPERAND */
    bool long_running;    /* the GIL is released for any size */
    PyTypeObject **names; /* a named tuple for several results */
} gdpy_function;

typedef struct gdpy_call {
    const char *site;
    gd_scope *scope;
    PyObject *first;          /* the first argument, borrowed */
    PyThreadState *released;  /* the GIL is released */
    gd_device *device_before; /* the default device, if the call has another */
    const gdpy_function *function;
    gd_dtype dtype;   /* of GDPY_NEW_DTYPE */
    int64_t elements; /* of all tensors among the arguments */
    bool numbers;     /* a number is among the operands: the call is gd_NAME_numbers_at */
    bool other_device, has_device;
    bool requires_grad;
} gdpy_call;

/* Parses the arguments into the frame. `self` is the first argument of a method, NULL for a function.
 * False: an exception is set, and the call has ended. */
bool gdpy_begin(gdpy_call *call, const gdpy_function *function, void *frame, PyObject *self,
                PyObject *const *args, Py_ssize_t n, PyObject *names);

/* The same for functions of one tensor or two operands without options, which need no table. */
static inline void gdpy_open(gdpy_call *call) {
    *call = (gdpy_call){.site = gdpy_site(), .scope = gd_scope_open_at(NULL)};
}

/* Ends a call: one tensor, several in a named tuple, or a list in a tuple. */
PyObject *gdpy_end(gdpy_call *call, gd_tensor *result);
PyObject *gdpy_end_several(gdpy_call *call, gd_tensor *const *results, int count);
PyObject *gdpy_end_list(gdpy_call *call, gd_tensors results);
/* Ends a call that writes its first argument: returns `self`. */
PyObject *gdpy_end_written(gdpy_call *call, gd_tensor *result, PyObject *self);
PyObject *gdpy_end_status(gdpy_call *call, gd_status status);
PyObject *gdpy_cancel(gdpy_call *call); /* an exception is set; returns NULL */

/* The GIL, around calls that may take long. */
void gdpy_release_gil(gdpy_call *call);
void gdpy_take_gil(gdpy_call *call);

/* Casts operands of rank 0 and above to one dtype where the library would let an operand of rank 0 count
 * as a number. `deciding`: bit i: operand i counts. */
void gdpy_promote(gdpy_call *call, gd_operand *operands, int count, unsigned deciding);

/* --- single values ---------------------------------------------------------------------------- */

bool gdpy_int_from(PyObject *o, const char *what, int64_t *to);
bool gdpy_float_from(PyObject *o, const char *what, double *to);
bool gdpy_shape_from(PyObject *o, const char *what, gd_shape *to);

#endif
