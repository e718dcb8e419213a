/* index.c - x[...] and x[...] = v with NumPy's places: numbers, slices, ..., None, tensors and lists of integers
 * or bools. */
#include "call.h"

enum { MAX_PLACES = 4 * GD_MAX_RANK };

/* The places of a key. An axis with a negative step is reversed first, and then has a positive one. */
typedef struct places {
    gd_place at[MAX_PLACES];
    int count;
    bool backward[MAX_PLACES];
    bool any_backward, any_tensor;
} places;

static bool slice_place(PyObject *key, gd_place *to) {
    int64_t part[3] = {0, GD_END, 1};
    static const char *const names[] = {"start", "stop", "step"};
    bool given[3];
    for (int i = 0; i < 3; i++) {
        PyObject *value = PyObject_GetAttrString(key, names[i]);
        if (!value) return false;
        given[i] = value != Py_None;
        const bool good = !given[i] || gdpy_int_from(value, names[i], &part[i]);
        Py_DECREF(value);
        if (!good) return false;
    }
    if (part[2] == 0) {
        PyErr_SetString(PyExc_ValueError, "the step of a slice is 0");
        return false;
    }
    if (part[2] < 0) { /* GD_UNSET: from the last index, to the first */
        if (!given[0]) part[0] = GD_UNSET;
        if (!given[1]) part[1] = GD_UNSET;
    }
    if (!given[0] && !given[1] && part[2] == 1) *to = GD_ALL;
    else *to = (gd_place){GD_PLACE_RANGE, NULL, part[0], part[1], part[2]};
    return true;
}

static bool place_from(PyObject *key, gd_place *to) {
    if (PySlice_Check(key)) return slice_place(key, to);
    if (key == Py_None) return *to = GD_NEWAXIS, true;
    if (key == Py_Ellipsis) return *to = GD_ELLIPSIS, true;
    if (PyLong_Check(key) && !PyBool_Check(key)) {
        *to = (gd_place){GD_PLACE_AT, NULL, 0, 0, 1};
        return gdpy_int_from(key, "the index", &to->start);
    }
    if (gdpy_is_tensor(key)) {
        *to = (gd_place){GD_PLACE_TENSOR, gdpy_tensor_of(key), 0, 0, 1};
        return true;
    }
    if (PyFloat_Check(key) || PyUnicode_Check(key)) {
        PyErr_Format(PyExc_IndexError,
                     "%R is no index: use ints, slices, ..., None, and tensors or lists of "
                     "integers or bools",
                     key);
        return false;
    }
    if (!PyBool_Check(key) && !PySequence_Check(key) && PyIndex_Check(key)) { /* numpy.int64 */
        *to = (gd_place){GD_PLACE_AT, NULL, 0, 0, 1};
        return gdpy_int_from(key, "the index", &to->start);
    }
    gd_tensor *t = gdpy_to_tensor(key, GD_DTYPE_NONE, true);
    if (t && gd_tensor_numel(t) == 0 && gd_dtype_is_float(gd_tensor_dtype(t))) /* x[[]] */
        t = gd_cast_at(NULL, t, GD_I64);
    *to = (gd_place){GD_PLACE_TENSOR, t, 0, 0, 1};
    return t != NULL;
}

/* Turns slices with negative steps into slices of a reversed axis, and returns these axes. */
static gd_shape turn_backward(gd_tensor *x, places *p) {
    gd_shape axes = {.form = 1};
    const int rank = gd_tensor_rank(x);
    int used = 0, axis = 0;
    for (int i = 0; i < p->count; i++) { /* axes that an ellipsis does not cover */
        const gd_place *place = &p->at[i];
        if (place->kind == GD_PLACE_TENSOR && gd_tensor_dtype(place->tensor) == GD_BOOL)
            used += gd_tensor_rank(place->tensor);
        else used += place->kind != GD_PLACE_NEWAXIS && place->kind != GD_PLACE_ELLIPSIS;
    }
    for (int i = 0; i < p->count; i++) {
        gd_place *place = &p->at[i];
        switch (place->kind) {
        case GD_PLACE_NEWAXIS: continue;
        case GD_PLACE_ELLIPSIS: axis += rank - used; continue;
        case GD_PLACE_TENSOR:
            axis += gd_tensor_dtype(place->tensor) == GD_BOOL ? gd_tensor_rank(place->tensor) : 1;
            continue;
        default: break;
        }
        if (place->kind == GD_PLACE_RANGE && place->step < 0 && axis < rank) {
            const int64_t n = gd_tensor_dim(x, axis);
            int64_t first = place->start, stop = place->stop; /* as Python clips them */
            if (first == GD_UNSET) first = n - 1;
            else
                first = first < 0 ? (first + n < 0 ? -1 : first + n) : (first >= n ? n - 1 : first);
            if (stop == GD_UNSET) stop = -1;
            else stop = stop < 0 ? (stop + n < 0 ? -1 : stop + n) : (stop >= n ? n - 1 : stop);
            *place = gd_range_by(n - 1 - first, n - 1 - stop, -place->step);
            p->backward[i] = p->any_backward = true;
            if (axes.rank < GD_MAX_RANK) axes.at[axes.rank++] = axis;
        }
        axis++;
    }
    return axes;
}

static bool fit_places(const gd_tensor *x, places *p) {
    int used = 0, ellipses = 0;
    for (int i = 0; i < p->count; i++) {
        const gd_place *place = &p->at[i];
        if (place->kind == GD_PLACE_ELLIPSIS) ellipses++;
        else if (place->kind == GD_PLACE_TENSOR && gd_tensor_dtype(place->tensor) == GD_BOOL)
            used += gd_tensor_rank(place->tensor);
        else used += place->kind != GD_PLACE_NEWAXIS;
    }
    if (ellipses > 1)
        PyErr_SetString(gdpy_exception_of(GD_E_INDEX),
                        "an index has more than one ellipsis ('...')");
    else if (used > gd_tensor_rank(x))
        PyErr_Format(gdpy_exception_of(GD_E_INDEX), "%d indices for a tensor of %d dimensions",
                     used, gd_tensor_rank(x));
    return ellipses <= 1 && used <= gd_tensor_rank(x);
}

static bool places_from(const gd_tensor *x, PyObject *key, places *p) {
    *p = (places){.count = 1};
    if (!PyTuple_Check(key)) {
        if (!place_from(key, &p->at[0])) return false;
    } else {
        const Py_ssize_t n = PyTuple_Size(key);
        if (n > MAX_PLACES) {
            PyErr_Format(PyExc_IndexError, "an index has at most %d entries, not %zd", MAX_PLACES,
                         n);
            return false;
        }
        for (p->count = 0; p->count < n; p->count++)
            if (!place_from(PyTuple_GetItem(key, p->count), &p->at[p->count])) return false;
    }
    for (int i = 0; i < p->count; i++) {
        p->any_backward |= p->at[i].kind == GD_PLACE_RANGE && p->at[i].step < 0;
        p->any_tensor |= p->at[i].kind == GD_PLACE_TENSOR;
    }
    return fit_places(x, p);
}

PyObject *gdpy_subscript(PyObject *self, PyObject *key) {
    gdpy_call c;
    gdpy_open(&c);
    places p;
    gd_tensor *x = gdpy_tensor_of(self);
    if (!places_from(x, key, &p)) return gdpy_cancel(&c);
    if (p.any_backward) {
        const gd_shape axes = turn_backward(x, &p);
        if (axes.rank) x = gd_flip_at(c.site, x, axes);
    }
    return gdpy_end(&c, gd_index_at(c.site, x, (gd_place_list){p.at, p.count}));
}

/* x[places] = v with slices that run backward: x[places the other way] = v reversed there. */
static gd_tensor *reverse_value(gdpy_call *c, gd_tensor *x, places *p, gd_tensor *v) {
    turn_backward(
        x, p); /* to slices of the reversed axis, and from these to slices of the axis itself */
    gd_shape axes = {.form = 1};
    int axis = 0, result = 0, used = 0;
    for (int i = 0; i < p->count; i++)
        used += p->at[i].kind != GD_PLACE_NEWAXIS && p->at[i].kind != GD_PLACE_ELLIPSIS;
    for (int i = 0; i < p->count; i++) {
        gd_place *place = &p->at[i];
        if (place->kind == GD_PLACE_ELLIPSIS) {
            axis += gd_tensor_rank(x) - used;
            result += gd_tensor_rank(x) - used;
            continue;
        }
        if (p->backward[i]) {
            const int64_t n = gd_tensor_dim(x, axis), first = place->start, step = place->step;
            const int64_t stop = place->stop < n ? place->stop : n;
            const int64_t count = stop > first ? (stop - first + step - 1) / step : 0;
            const int64_t last = first + (count - 1) * step; /* of the reversed axis */
            *place = count ? gd_range_by(n - 1 - last, n - first, step) : gd_range(0, 0);
            axes.at[axes.rank++] = result;
        }
        axis += place->kind != GD_PLACE_NEWAXIS;
        result += place->kind != GD_PLACE_AT;
    }
    gd_tensor *part = gd_index_at(c->site, x, (gd_place_list){p->at, p->count});
    return gd_flip_at(c->site, gd_expand_at(c->site, v, gd_tensor_shape(part)), axes);
}

/* The same beside tensors, whose axes may move: all of x with the value written into it. */
static gd_tensor *write_reversed(gdpy_call *c, gd_tensor *x, places *p, gd_tensor *v) {
    const gd_shape axes = turn_backward(x, p);
    gd_tensor *y = gd_index_put_at(c->site, gd_flip_at(c->site, x, axes),
                                   (gd_place_list){p->at, p->count}, v, NULL);
    p->at[0] = GD_ELLIPSIS;
    p->count = 1;
    return gd_flip_at(c->site, y, axes);
}

int gdpy_assign_subscript(PyObject *self, PyObject *key, PyObject *value) {
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
        return -1;
    }
    gdpy_call c;
    gdpy_open(&c);
    places p;
    gd_tensor *x = gdpy_tensor_of(self), *v = NULL;
    gd_number number;
    gd_dtype kind;
    const int is = places_from(x, key, &p) ? gdpy_to_number(value, &number, &kind) : -1;
    if (is > 0) v = gd_scalar_of_at(c.site, number, kind);
    else if (is == 0) v = gdpy_to_tensor(value, GD_DTYPE_NONE, true);
    if (v && p.any_backward)
        v = p.any_tensor ? write_reversed(&c, x, &p, v) : reverse_value(&c, x, &p, v);
    if (!v) {
        gdpy_cancel(&c);
        return -1;
    }
    PyObject *done = gdpy_end_written(
        &c, gd_index_put__at(c.site, x, (gd_place_list){p.at, p.count}, v, NULL), self);
    Py_XDECREF(done);
    return done ? 0 : -1;
}
