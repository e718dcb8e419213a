/* call.c - arguments and results of generated functions. */
#include "object.h"

#include <math.h>
#include <string.h>

enum { LONG = 1 << 14 }; /* elements from which a call may take longer than releasing the GIL */

/* --- single values ---------------------------------------------------------------------------- */

static bool wrong(const char *what, const char *expected, PyObject *o) {
    PyObject *type = (PyObject *)Py_TYPE(o), *name = PyObject_GetAttrString(type, "__name__");
    if (name) PyErr_Format(PyExc_TypeError, "%s must be %s, not %U", what, expected, name);
    Py_XDECREF(name);
    return false;
}

bool gdpy_int_from(PyObject *o, const char *what, int64_t *to) {
    if (PyFloat_Check(o)) return wrong(what, "an int", o);
    PyObject *index = PyNumber_Index(o);
    if (!index) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
        PyErr_Clear();
        return wrong(what, "an int", o);
    }
    *to = PyLong_AsLongLong(index);
    Py_DECREF(index);
    return !(*to == -1 && PyErr_Occurred());
}

bool gdpy_float_from(PyObject *o, const char *what, double *to) {
    if (PyUnicode_Check(o)) return wrong(what, "a number", o);
    *to = PyFloat_AsDouble(o);
    if (*to != -1 || !PyErr_Occurred()) return true;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    PyErr_Clear();
    return wrong(what, "a number", o);
}

/* The elements of a list, a tuple or another sequence as a tuple or list; NULL with an exception. */
static PyObject *as_sequence(PyObject *o, const char *what, const char *expected) {
    if (PyUnicode_Check(o) || PyBytes_Check(o) || (!PySequence_Check(o) && !PyIter_Check(o))) {
        wrong(what, expected, o);
        return NULL;
    }
    return PySequence_Tuple(o);
}

static bool ints_from(PyObject *o, const char *what, const char *expected, int most, int64_t *to,
                      int *count) {
    PyObject *list = as_sequence(o, what, expected);
    if (!list) return false;
    const Py_ssize_t n = PyTuple_Size(list);
    bool good = n <= most;
    if (!good) PyErr_Format(PyExc_ValueError, "%s has %zd entries; at most %d fit", what, n, most);
    for (Py_ssize_t i = 0; i < n && good; i++)
        good = gdpy_int_from(PyTuple_GetItem(list, i), what, &to[i]);
    Py_DECREF(list);
    *count = (int)n;
    return good;
}

static bool is_int(PyObject *o) {
    return PyLong_Check(o) || (!PySequence_Check(o) && PyIndex_Check(o));
}

bool gdpy_shape_from(PyObject *o, const char *what, gd_shape *to) {
    *to = (gd_shape){.form = 1};
    if (is_int(o)) {
        to->rank = 1;
        return gdpy_int_from(o, what, &to->at[0]);
    }
    return ints_from(o, what, "an int or a sequence of ints", GD_MAX_RANK, to->at, &to->rank);
}

static bool fixed_from(PyObject *o, const gdpy_param *p, int64_t *to) {
    int n = 1;
    if (is_int(o)) {
        if (!gdpy_int_from(o, p->name, &to[0])) return false;
    } else if (!ints_from(o, p->name, "an int or a sequence of ints", p->count, to, &n))
        return false;
    if (n != 1 && n != p->count) {
        PyErr_Format(PyExc_ValueError, "%s has %d entries; expected 1 or %d", p->name, n, p->count);
        return false;
    }
    for (int i = n; i < p->count; i++) to[i] = to[0];
    return true;
}

/* One of several words: "mean sum none". */
static bool word_from(PyObject *o, const gdpy_param *p, gd_word *to) {
    if (!PyUnicode_Check(o)) return wrong(p->name, "a str", o);
    const char *text = PyUnicode_AsUTF8AndSize(o, NULL);
    if (!text) return false;
    const size_t length = strlen(text);
    for (const char *w = p->words; *w;) {
        const size_t n = strcspn(w, " ");
        if (n == length && memcmp(w, text, n) == 0) {
            *to = gd_word_of(text);
            return true;
        }
        w += n;
        w += strspn(w, " ");
    }
    PyErr_Format(PyExc_ValueError, "%s is '%s'; it is one of: %s", p->name, text, p->words);
    return false;
}

static bool string_from(PyObject *o, const char *what, const char **to) {
    if (PyUnicode_Check(o)) {
        *to = PyUnicode_AsUTF8AndSize(o, NULL); /* lives as long as the argument */
        return *to != NULL;
    }
    return wrong(what, "a str", o);
}

static bool floats_from(PyObject *o, const char *what, gd_floats *to) {
    *to = (gd_floats){.form = 1};
    if (PyFloat_Check(o) || is_int(o)) {
        to->count = 1;
        return gdpy_float_from(o, what, &to->at[0]);
    }
    PyObject *list = as_sequence(o, what, "a number or a sequence of numbers");
    if (!list) return false;
    const Py_ssize_t n = PyTuple_Size(list);
    bool good = n <= GD_MAX_FLOATS;
    if (!good)
        PyErr_Format(PyExc_ValueError, "%s has %zd entries; at most %d fit", what, n,
                     GD_MAX_FLOATS);
    for (Py_ssize_t i = 0; i < n && good; i++)
        good = gdpy_float_from(PyTuple_GetItem(list, i), what, &to->at[i]);
    Py_DECREF(list);
    to->count = (int)n;
    return good;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static gd_tensor *count_tensor(gdpy_call *c, gd_tensor *t) {
    static gd_device *cpu; /* set under the GIL */
    if (!cpu) cpu = gd_device_get("cpu");
    c->elements += gd_tensor_numel(t);
    c->other_device |= gd_tensor_device(t) != cpu;
    return t;
}

static bool tensor_from(gdpy_call *c, PyObject *o, const gdpy_param *p, gd_tensor **to) {
    if (gdpy_is_tensor(o)) *to = gdpy_tensor_of(o);
    else if (p->kind == GDPY_WRITTEN) return wrong(p->name, "a Tensor, because it is written", o);
    else *to = gdpy_to_tensor(o, GD_DTYPE_NONE, true);
    if (*to) count_tensor(c, *to);
    return *to != NULL;
}

static bool operand_from(gdpy_call *c, PyObject *o, const gdpy_param *p, gd_operand *to) {
    if (gdpy_is_tensor(o)) {
        to->tensor = count_tensor(c, gdpy_tensor_of(o));
        return true;
    }
    const int number = gdpy_to_number(o, &to->number, &to->kind);
    c->numbers |= number > 0;
    if (number) return number > 0;
    return tensor_from(c, o, p, &to->tensor);
}

static bool tensors_from(gdpy_call *c, PyObject *o, const gdpy_param *p, gd_tensors *to) {
    if (gdpy_is_tensor(o)) return wrong(p->name, "a sequence of tensors", o);
    PyObject *list = as_sequence(o, p->name, "a sequence of tensors");
    if (!list) return false;
    const Py_ssize_t n = PyTuple_Size(list);
    gd_tensor **at = PyMem_Malloc(sizeof *at * (size_t)(n ? n : 1));
    if (!at) PyErr_NoMemory();
    bool good = at != NULL;
    for (Py_ssize_t i = 0; i < n && good; i++)
        good = tensor_from(c, PyTuple_GetItem(list, i), p, &at[i]);
    if (good) { /* the scope frees the copy, and holds the tensors */
        *to = gd_list_copy((gd_tensors){at, n});
        good = to->count == n || (gdpy_raise(), false);
    }
    PyMem_Free(at);
    Py_DECREF(list);
    return good;
}

/* --- arguments -------------------------------------------------------------------------------- */

/* An argument that PyTorch has and for which only its default fits here. */
static bool constant_from(const gdpy_call *c, const gdpy_param *p, PyObject *o) {
    PyObject *text = PyUnicode_Check(o) ? Py_NewRef(o) : PyObject_Repr(o);
    const char *utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    const bool same = utf8 && strcmp(utf8, p->words) == 0;
    if (utf8 && !same)
        PyErr_Format(gdpy_exception_of(GD_E_UNSUPPORTED), "%s() takes only %s for '%s', not %U",
                     c->function->name, p->words, p->name, text);
    Py_XDECREF(text);
    return same;
}

static bool store(gdpy_call *c, const gdpy_param *p, char *frame, PyObject *o) {
    void *to = frame + p->offset;
    if (p == c->function->params) c->first = o;
    if (o == Py_None) {
        if (p->kind == GDPY_CONSTANT && strcmp(p->words, "None")) return constant_from(c, p, o);
        if (p->flags & GDPY_INFERRED) return *(int64_t *)to = GD_ANY, true;
        if (p->flags & GDPY_NONE_IS_NAN) return *(double *)to = (double)NAN, true;
        if (!(p->flags & GDPY_REQUIRED)) return true;
        PyErr_Format(PyExc_TypeError, "%s() needs the argument '%s', not None", c->function->name,
                     p->name);
        return false;
    }
    switch ((gdpy_kind)p->kind) {
    case GDPY_TENSOR:
    case GDPY_WRITTEN: return tensor_from(c, o, p, to);
    case GDPY_OPERAND: return operand_from(c, o, p, to);
    case GDPY_TENSORS: return tensors_from(c, o, p, to);
    case GDPY_INT: return gdpy_int_from(o, p->name, to);
    case GDPY_FLOAT: return gdpy_float_from(o, p->name, to);
    case GDPY_BOOL: {
        const int truth = PyObject_IsTrue(o);
        *(bool *)to = truth > 0;
        return truth >= 0;
    }
    case GDPY_INTS:
        if (*p->words && PyUnicode_Check(o))
            return word_from(o, p, (gd_word *)(frame + p->word_offset));
        return fixed_from(o, p, to);
    case GDPY_SHAPE: return gdpy_shape_from(o, p->name, to);
    case GDPY_WORD: return word_from(o, p, to);
    case GDPY_DTYPE: return gdpy_dtype_from(o, to);
    case GDPY_STRING: return string_from(o, p->name, to);
    case GDPY_NUMBER: {
        gd_dtype kind;
        const int number = gdpy_to_number(o, to, &kind);
        return number > 0 || (number == 0 && wrong(p->name, "a number", o));
    }
    case GDPY_FLOATS: return floats_from(o, p->name, to);
    case GDPY_REQUIRES_GRAD: {
        const int truth = PyObject_IsTrue(o);
        c->requires_grad = truth > 0;
        return truth >= 0;
    }
    case GDPY_DEVICE: {
        gd_device *device = gdpy_device_from(o);
        if (!device) return false;
        c->device_before = gd_default_device();
        c->has_device = true;
        return gd_set_default_device(device) == GD_OK || (gdpy_raise(), false);
    }
    case GDPY_NEW_DTYPE: return gdpy_dtype_from(o, &c->dtype);
    case GDPY_PARAMETERS: return gdpy_parameters_from(c, o, to);
    case GDPY_IGNORED: return true;
    case GDPY_CONSTANT: return constant_from(c, p, o);
    case GDPY_OPTIMIZER_OF: return (*(void **)to = gdpy_handle(o, GDPY_OPTIMIZER, p->name)) != NULL;
    }
    return false;
}

/* Whether `name` is among names that are each followed by a space. */
static bool among(const char *names, const char *name, size_t length) {
    for (; *names; names += strcspn(names, " ") + 1)
        if (strncmp(names, name, length) == 0 && names[length] == ' ') return true;
    return false;
}

static int search_param(const gdpy_function *f, PyObject *text) {
    const char *name = PyUnicode_AsUTF8AndSize(text, NULL);
    if (!name) return -1;
    const size_t length = strlen(name);
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->params[i].name, name) == 0 || among(f->params[i].also, name, length))
            return i;
    return -1;
}

/* The number of a named argument, -1: none. Names in programs are interned texts, so the same objects come
 * again and again; the GIL protects the table of those that were found. */
static int find_param(const gdpy_function *f, PyObject *name) {
#ifdef Py_GIL_DISABLED
    return search_param(f, name);
#else
    enum { SLOTS = 512 };
    static struct {
        const gdpy_function *function;
        PyObject *name; /* a reference, so that no other text gets its address */
        int at;
    } found[SLOTS];
    const size_t i = (((uintptr_t)f >> 4) + ((uintptr_t)name >> 4) * 31) % SLOTS;
    if (found[i].function == f && found[i].name == name) return found[i].at;
    const int at = search_param(f, name);
    if (at < 0) return at;
    found[i].function = f;
    found[i].at = at;
    gdpy_set(&found[i].name, Py_NewRef(name));
    return at;
#endif
}

static bool unknown_name(const gdpy_function *f, const char *name) {
    char list[600] = "";
    size_t used = 0;
    for (int i = 0; i < f->count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 f->params[i].name);
    PyErr_Format(PyExc_TypeError, "%s() has no argument '%s'; it has: %s", f->name, name, list);
    return false;
}

static bool too_many(const gdpy_function *f, Py_ssize_t given, int most) {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional argument%s, not %zd", f->name,
                 most, most == 1 ? "" : "s", given);
    return false;
}

/* Whether all positional arguments from `i` on are numbers of one list. */
static bool takes_rest(const gdpy_param *p, PyObject *const *args, Py_ssize_t i, Py_ssize_t n) {
    return (p->flags & GDPY_STAR) && (i == n || is_int(args[i]));
}

static bool store_rest(gdpy_call *c, const gdpy_param *p, char *frame, PyObject *const *args,
                       Py_ssize_t n) {
    PyObject *rest = PyTuple_New(n);
    if (!rest) return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(rest, i, args[i]);
    }
    const bool good = store(c, p, frame, rest);
    Py_DECREF(rest);
    return good;
}

/* Stores all arguments. `given` gets a bit for each parameter. */
static bool parse(gdpy_call *c, char *frame, PyObject *self, PyObject *const *args, Py_ssize_t n,
                  PyObject *names, uint32_t *given) {
    const gdpy_function *f = c->function;
    int at = 0; /* the parameter of the next positional argument */
    if (self) {
        *given |= 1u << at;
        if (!store(c, &f->params[at++], frame, self)) return false;
    }
    for (Py_ssize_t i = 0; i < n; i++, at++) {
        if (at == f->count || (f->params[at].flags & GDPY_KEYWORD))
            return too_many(f, n + (self != NULL), at);
        *given |= 1u << at;
        if (takes_rest(&f->params[at], args, i, n)) {
            if (!store_rest(c, &f->params[at], frame, args + i, n - i)) return false;
            break;
        }
        if (!store(c, &f->params[at], frame, args[i])) return false;
    }
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        const int p = find_param(f, name);
        if (p < 0) {
            const char *text = PyErr_Occurred() ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
            return text && unknown_name(f, text);
        }
        if (*given >> p & 1) {
            PyErr_Format(PyExc_TypeError, "%s() got the argument '%U' twice", f->name, name);
            return false;
        }
        *given |= 1u << p;
        if (!store(c, &f->params[p], frame, args[n + i])) return false;
    }
    return true;
}

static bool all_given(const gdpy_function *f, char *frame, gdpy_call *c, uint32_t given) {
    for (int i = 0; i < f->count; i++) {
        const gdpy_param *p = &f->params[i];
        if ((given >> i & 1) || !(p->flags & GDPY_REQUIRED)) continue;
        if (p->flags & GDPY_STAR) { /* reshape(x): the shape () */
            if (!store_rest(c, p, frame, NULL, 0)) return false;
            continue;
        }
        PyErr_Format(PyExc_TypeError, "%s() needs the argument '%s'", f->name, p->name);
        return false;
    }
    return true;
}

static unsigned deciding_of(const gdpy_function *f) {
    unsigned mask = 0;
    for (int i = 0; i < f->operands; i++) mask |= (f->params[i].flags & GDPY_DECIDES) ? 1u << i : 0;
    return mask;
}

bool gdpy_begin(gdpy_call *c, const gdpy_function *f, void *frame, PyObject *self,
                PyObject *const *args, Py_ssize_t n, PyObject *names) {
    *c = (gdpy_call){.site = gdpy_site(), .scope = gd_scope_open_at(NULL), .function = f};
    uint32_t given = 0;
    if (!parse(c, frame, self, args, n, names, &given) || !all_given(f, frame, c, given)) {
        gdpy_cancel(c);
        return false;
    }
    if (f->operands) gdpy_promote(c, frame, f->operands, deciding_of(f));
    if (c->elements >= LONG || c->other_device || f->long_running) gdpy_release_gil(c);
    return true;
}

void gdpy_promote(gdpy_call *c, gd_operand *operands, int count, unsigned deciding) {
    gd_dtype dtype = GD_DTYPE_NONE;
    bool scalar = false, same = true;
    for (int i = 0; i < count; i++) {
        gd_tensor *t = deciding >> i & 1 ? operands[i].tensor : NULL;
        if (!t) continue;
        const gd_dtype own = gd_tensor_dtype(t);
        scalar |= gd_tensor_rank(t) == 0;
        same &= dtype == GD_DTYPE_NONE || own == dtype;
        dtype = dtype == GD_DTYPE_NONE ? own : gd_promote(dtype, own);
    }
    if (!scalar || same) return;
    for (int i = 0; i < count; i++) {
        gd_tensor *t = deciding >> i & 1 ? operands[i].tensor : NULL;
        if (t && gd_tensor_dtype(t) != dtype) operands[i].tensor = gd_cast_at(c->site, t, dtype);
    }
}

/* --- the GIL ---------------------------------------------------------------------------------- */

void gdpy_release_gil(gdpy_call *c) {
    if (!c->released) c->released = PyEval_SaveThread();
}

void gdpy_take_gil(gdpy_call *c) {
    if (c->released) PyEval_RestoreThread(c->released);
    c->released = NULL;
}

/* --- results ---------------------------------------------------------------------------------- */

static void close_call(gdpy_call *c) {
    gdpy_take_gil(c);
    if (c->has_device) gd_set_default_device(c->device_before);
    gd_scope_close(&c->scope);
}

PyObject *gdpy_cancel(gdpy_call *c) {
    close_call(c);
    return NULL;
}

/* A result with what the call asks for. */
static PyObject *wrap_result(const gdpy_call *c, gd_tensor *t) {
    if (c->requires_grad && gd_set_requires_grad_at(c->site, t, true) != GD_OK) return gdpy_raise();
    return gdpy_wrap(t);
}

PyObject *gdpy_end(gdpy_call *c, gd_tensor *result) {
    gdpy_take_gil(c);
    PyObject *o = wrap_result(c, result);
    close_call(c);
    return o;
}

PyObject *gdpy_end_several(gdpy_call *c, gd_tensor *const *results, int count) {
    gdpy_take_gil(c);
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; i < count && tuple; i++) {
        PyObject *o = wrap_result(c, results[i]);
        if (!o) Py_CLEAR(tuple);
        else PyTuple_SetItem(tuple, i, o);
    }
    close_call(c);
    if (!tuple || !c->function || !c->function->names || !*c->function->names) return tuple;
    PyObject *named = PyObject_CallFunctionObjArgs((PyObject *)*c->function->names, tuple, NULL);
    Py_DECREF(tuple);
    return named;
}

PyObject *gdpy_end_list(gdpy_call *c, gd_tensors results) {
    c->function = NULL;
    return gdpy_end_several(c, results.at, (int)results.count);
}

PyObject *gdpy_end_written(gdpy_call *c, gd_tensor *result, PyObject *self) {
    gdpy_take_gil(c);
    if (gd_tensor_is_error(result)) self = gdpy_raise();
    else Py_INCREF(self);
    close_call(c);
    return self;
}

PyObject *gdpy_end_status(gdpy_call *c, gd_status status) {
    gdpy_take_gil(c);
    if (status != GD_OK || PyErr_Occurred()) {
        gdpy_raise();
        return gdpy_cancel(c);
    }
    close_call(c);
    return Py_NewRef(Py_None);
}
