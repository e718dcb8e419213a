/* operators.c - the operators of gradus.Tensor: a + b, a @ b, a < b, a += b, -a.
 *
 * A Python number takes its dtype from the tensor beside it. Another object converts if it is an array or a
 * sequence; otherwise Python tries the other object's operator. */
#include "call.h"

typedef gd_tensor *(*of_tensors)(const char *site, gd_tensor *a, gd_tensor *b);
typedef gd_tensor *(*of_numbers)(const char *site, gd_operand a, gd_operand b);
typedef gd_tensor *(*in_place)(const char *site, gd_tensor *a, gd_tensor *b);
typedef gd_tensor *(*in_place_number)(const char *site, gd_tensor *a, gd_operand b);

enum { LONG = 1 << 14 }; /* as in call.c */

/* 1: `o` is an operand; 0: it is none; -1: an exception. */
static int take(gdpy_call *c, PyObject *o, gd_operand *to) {
    if (gdpy_is_tensor(o)) {
        to->tensor = gdpy_tensor_of(o);
        c->elements += gd_tensor_numel(to->tensor);
        return 1;
    }
    const int number = gdpy_to_number(o, &to->number, &to->kind);
    if (number) {
        c->numbers |= number > 0;
        return number;
    }
    if (o == Py_None || PyUnicode_Check(o) || PyBytes_Check(o)) return 0;
    if (!PySequence_Check(o) && !PyObject_HasAttrString(o, "__dlpack__") &&
        !PyObject_HasAttrString(o, "__array__"))
        return 0;
    to->tensor = gdpy_to_tensor(o, GD_DTYPE_NONE, true);
    return to->tensor ? 1 : -1;
}

static PyObject *not_implemented(gdpy_call *c) {
    gdpy_cancel(c);
    return Py_NewRef(Py_NotImplemented);
}

static PyObject *binary(PyObject *a, PyObject *b, of_tensors tensors, of_numbers numbers) {
    gdpy_call c;
    gdpy_open(&c);
    gd_operand at[2] = {{.tensor = NULL}, {.tensor = NULL}};
    int taken = take(&c, a, &at[0]);
    if (taken > 0) taken = take(&c, b, &at[1]);
    if (taken <= 0) return taken ? gdpy_cancel(&c) : not_implemented(&c);
    gd_tensor *y;
    if (c.numbers && !numbers) { /* matmul takes no numbers */
        return not_implemented(&c);
    } else if (c.numbers) {
        if (c.elements >= LONG) gdpy_release_gil(&c);
        y = numbers(c.site, at[0], at[1]);
    } else {
        if (numbers) gdpy_promote(&c, at, 2, 3);
        if (c.elements >= LONG) gdpy_release_gil(&c);
        y = tensors(c.site, at[0].tensor, at[1].tensor);
    }
    return gdpy_end(&c, y);
}

static PyObject *written(PyObject *a, PyObject *b, in_place tensors, in_place_number number) {
    gdpy_call c;
    gdpy_open(&c);
    gd_operand other = {.tensor = NULL};
    const int taken = take(&c, b, &other);
    if (taken <= 0) return taken ? gdpy_cancel(&c) : not_implemented(&c);
    gd_tensor *self = gdpy_tensor_of(a);
    c.elements += gd_tensor_numel(self);
    if (c.elements >= LONG) gdpy_release_gil(&c);
    gd_tensor *y = c.numbers ? number(c.site, self, other) : tensors(c.site, self, other.tensor);
    return gdpy_end_written(&c, y, a);
}

static PyObject *unary(PyObject *a, gd_tensor *(*op)(const char *, gd_tensor *)) {
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *x = gdpy_tensor_of(a);
    if (gd_tensor_numel(x) >= LONG) gdpy_release_gil(&c);
    return gdpy_end(&c, op(c.site, x));
}

#define BINARY(name, op)                                         \
    static PyObject *name(PyObject *a, PyObject *b) {            \
        return binary(a, b, gd_##op##_at, gd_##op##_numbers_at); \
    }
#define WRITTEN(name, op)                                           \
    static PyObject *name(PyObject *a, PyObject *b) {               \
        return written(a, b, gd_##op##__at, gd_##op##__numbers_at); \
    }
BINARY(add, add)
BINARY(subtract, sub)
BINARY(multiply, mul)
BINARY(divide, div)
BINARY(floor_divide, floor_divide)
BINARY(remain, remainder)
BINARY(and_, bitwise_and)
BINARY(or_, bitwise_or)
BINARY(xor_, bitwise_xor)
BINARY(shift_left, bitwise_left_shift)
BINARY(shift_right, bitwise_right_shift)
WRITTEN(add_to, add)
WRITTEN(subtract_from, sub)
WRITTEN(multiply_by, mul)
WRITTEN(divide_by, div)

static PyObject *matmul(PyObject *a, PyObject *b) { return binary(a, b, gd_matmul_at, NULL); }

static PyObject *power(PyObject *a, PyObject *b, PyObject *modulo) {
    if (modulo != Py_None) {
        PyErr_SetString(PyExc_TypeError, "pow() of tensors takes no modulus");
        return NULL;
    }
    return binary(a, b, gd_pow_at, gd_pow_numbers_at);
}
static PyObject *power_to(PyObject *a, PyObject *b, PyObject *modulo) {
    (void)modulo;
    return written(a, b, gd_pow__at, gd_pow__numbers_at);
}

/* a // b and a % b. */
static PyObject *both(PyObject *a, PyObject *b) {
    PyObject *quotient = floor_divide(a, b);
    if (!quotient || quotient == Py_NotImplemented) return quotient;
    PyObject *rest = remain(a, b);
    PyObject *pair = rest ? PyTuple_Pack(2, quotient, rest) : NULL;
    Py_DECREF(quotient);
    Py_XDECREF(rest);
    return pair;
}

static PyObject *negative(PyObject *a) { return unary(a, gd_neg_at); }
static PyObject *absolute(PyObject *a) { return unary(a, gd_abs_at); }
static PyObject *invert(PyObject *a) { return unary(a, gd_bitwise_not_at); }
static PyObject *positive(PyObject *a) { return Py_NewRef(a); }

static PyObject *compare(PyObject *a, PyObject *b, int op) {
    if (b == Py_None && (op == Py_EQ || op == Py_NE)) return PyBool_FromLong(op == Py_NE);
    switch (op) {
    case Py_EQ: return binary(a, b, gd_eq_at, gd_eq_numbers_at);
    case Py_NE: return binary(a, b, gd_ne_at, gd_ne_numbers_at);
    case Py_LT: return binary(a, b, gd_lt_at, gd_lt_numbers_at);
    case Py_LE: return binary(a, b, gd_le_at, gd_le_numbers_at);
    case Py_GT: return binary(a, b, gd_gt_at, gd_gt_numbers_at);
    default: return binary(a, b, gd_ge_at, gd_ge_numbers_at);
    }
}

/* --- as one number ---------------------------------------------------------------------------- */

static PyObject *item(PyObject *a) { return gdpy_item(a); }

static int truth(PyObject *a) {
    gd_tensor *t = gdpy_tensor_of(a);
    if (!gd_tensor_is_symbol(t) && gd_tensor_numel(t) != 1) {
        PyErr_Format(gdpy_exception_of(GD_E_SHAPE),
                     "only a tensor of one element is true or false; this one has %lld: use "
                     "x.any() or x.all()",
                     (long long)gd_tensor_numel(t));
        return -1;
    }
    PyObject *value = item(a);
    const int is = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return is;
}
static PyObject *as_float(PyObject *a) {
    PyObject *value = item(a), *number = value ? PyNumber_Float(value) : NULL;
    Py_XDECREF(value);
    return number;
}
static PyObject *as_int(PyObject *a) {
    PyObject *value = item(a), *number = value ? PyNumber_Long(value) : NULL;
    Py_XDECREF(value);
    return number;
}
/* For range(n), list[i] and so on: only integers of one element. */
static PyObject *as_index(PyObject *a) {
    const gd_dtype dtype = gd_tensor_dtype(gdpy_tensor_of(a));
    if (gd_dtype_is_float(dtype)) {
        PyErr_SetString(PyExc_TypeError,
                        "only integer tensors of one element can be used as an index");
        return NULL;
    }
    return as_int(a);
}

PyType_Slot gdpy_number_slots[] = {
    {Py_nb_add, add},
    {Py_nb_subtract, subtract},
    {Py_nb_multiply, multiply},
    {Py_nb_true_divide, divide},
    {Py_nb_floor_divide, floor_divide},
    {Py_nb_remainder, remain},
    {Py_nb_divmod, both},
    {Py_nb_power, power},
    {Py_nb_matrix_multiply, matmul},
    {Py_nb_and, and_},
    {Py_nb_or, or_},
    {Py_nb_xor, xor_},
    {Py_nb_lshift, shift_left},
    {Py_nb_rshift, shift_right},
    {Py_nb_inplace_add, add_to},
    {Py_nb_inplace_subtract, subtract_from},
    {Py_nb_inplace_multiply, multiply_by},
    {Py_nb_inplace_true_divide, divide_by},
    {Py_nb_inplace_power, power_to},
    {Py_nb_negative, negative},
    {Py_nb_positive, positive},
    {Py_nb_absolute, absolute},
    {Py_nb_invert, invert},
    {Py_nb_bool, truth},
    {Py_nb_float, as_float},
    {Py_nb_int, as_int},
    {Py_nb_index, as_index},
    {Py_tp_richcompare, compare},
    {0, NULL},
};
