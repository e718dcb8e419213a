/* data.c - datasets, transforms and samplers: what gradus/data calls. loader.c has loaders. */
#include "object.h"

#include <stdlib.h>
#include <string.h>

/* --- lists of arguments ----------------------------------------------------------------------- */

/* The handles of a sequence of objects, to be freed with PyMem_Free. NULL with an exception. */
static void **handles_from(PyObject *sequence, gdpy_class class, const char *what, int64_t *count) {
    PyObject *list = PySequence_Tuple(sequence);
    const Py_ssize_t n = list ? PyTuple_Size(list) : 0;
    void **at = list ? PyMem_Malloc(sizeof *at * (size_t)(n + 1)) : NULL;
    if (list && !at) PyErr_NoMemory();
    for (Py_ssize_t i = 0; at && i < n; i++)
        if (!(at[i] = gdpy_handle(PyTuple_GetItem(list, i), class, what))) {
            PyMem_Free(at);
            at = NULL;
        }
    Py_XDECREF(list); /* the caller's sequence holds the objects */
    *count = n;
    return at;
}

/* --- datasets --------------------------------------------------------------------------------- */

static PyObject *core_dataset_made(PyObject *module, PyObject *o) {
    (void)module;
    return PyBool_FromLong(gdpy_is(o, GDPY_DATASET) && gdpy_object_data(o)->handle != NULL);
}

static PyObject *core_dataset_len(PyObject *module, PyObject *self) {
    (void)module;
    gd_dataset *d = gdpy_handle(self, GDPY_DATASET, "self");
    return d ? PyLong_FromLongLong(gd_dataset_count(d)) : NULL;
}

/* _dataset_get(self, index, key): the tensors of a sample. Its random numbers are those of a loader whose
 * samples have this key (_random_new). */
static PyObject *core_dataset_get(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    long long index;
    unsigned long long key;
    if (!PyArg_ParseTuple(args, "OLK", &self, &index, &key)) return NULL;
    gd_dataset *d = gdpy_handle(self, GDPY_DATASET, "self");
    if (!d) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    /* the library mixes the seed with the epoch; with epoch 0 by this number */
    const gd_sample_options o = {.seed = key ^ 0x9E3779B97F4A7C15u};
    const gd_tensors list = gd_dataset_get_at(c.site, d, index, &o);
    gdpy_take_gil(&c);
    if (gd_failed()) {
        gdpy_raise();
        return gdpy_cancel(&c);
    }
    return gdpy_end_list(&c, list);
}

static PyObject *core_dataset_classes(PyObject *module, PyObject *self) {
    (void)module;
    gd_dataset *d = gdpy_handle(self, GDPY_DATASET, "self");
    const int64_t n = gd_dataset_class_count(d);
    PyObject *list = d ? PyList_New((Py_ssize_t)n) : NULL;
    for (int64_t i = 0; i < n && list; i++) {
        const char *name = gd_dataset_class_name(d, i);
        PyObject *o = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
        if (!o) Py_CLEAR(list);
        else PyList_SetItem(list, (Py_ssize_t)i, o);
    }
    return list;
}

static PyObject *core_dataset_name(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    long long index;
    char text[300];
    if (!PyArg_ParseTuple(args, "OL", &self, &index)) return NULL;
    gd_dataset *d = gdpy_handle(self, GDPY_DATASET, "self");
    if (!d) return NULL;
    gd_dataset_sample_name(d, index, text, sizeof text);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *core_dataset_layout(PyObject *module, PyObject *self) {
    (void)module;
    gd_dataset *d = gdpy_handle(self, GDPY_DATASET, "self");
    if (!d) return NULL;
    const int64_t n = gd_dataset_layout_at(NULL, d, NULL, 0);
    if (n < 0) return gd_failed() ? gdpy_raise() : Py_NewRef(Py_None);
    char *text = malloc((size_t)n + 1);
    if (!text) return PyErr_NoMemory();
    gd_dataset_layout_at(NULL, d, text, (size_t)n + 1);
    PyObject *o = PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace");
    free(text);
    return o;
}

/* _dataset_tensors(new, tensors), _dataset_concat(new, datasets), _dataset_zip(new, datasets) */
static PyObject *core_dataset_tensors(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *list;
    gd_tensors tensors;
    if (!PyArg_ParseTuple(args, "OO", &self, &list)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    if (!gdpy_tensors_from_result(list, "a TensorDataset", &tensors)) return gdpy_cancel(&c);
    return gdpy_end_object(&c, self, gd_dataset_tensors_at(c.site, tensors));
}
static PyObject *combine(PyObject *args, gd_dataset *(*function)(const char *, gd_dataset_list)) {
    PyObject *self, *list;
    int64_t count;
    if (!PyArg_ParseTuple(args, "OO", &self, &list)) return NULL;
    void **at = handles_from(list, GDPY_DATASET, "each dataset", &count);
    if (!at) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_dataset *d = function(c.site, (gd_dataset_list){(gd_dataset **)at, count});
    PyMem_Free(at);
    return gdpy_end_object(&c, self, d);
}
static PyObject *core_dataset_concat(PyObject *module, PyObject *args) {
    (void)module;
    return combine(args, gd_dataset_concat_at);
}
static PyObject *core_dataset_zip(PyObject *module, PyObject *args) {
    (void)module;
    return combine(args, gd_dataset_zip_at);
}

/* _dataset_subset(new, dataset, indices), _dataset_range(new, dataset, first, count) */
static PyObject *core_dataset_subset(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *inner, *indices;
    if (!PyArg_ParseTuple(args, "OOO", &self, &inner, &indices)) return NULL;
    gd_dataset *d = gdpy_handle(inner, GDPY_DATASET, "dataset");
    if (!d) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *t = gdpy_to_tensor(indices, GD_I64, true);
    if (!t) return gdpy_cancel(&c);
    return gdpy_end_object(&c, self, gd_dataset_subset_at(c.site, d, t));
}
static PyObject *core_dataset_range(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *inner;
    long long first, count;
    if (!PyArg_ParseTuple(args, "OOLL", &self, &inner, &first, &count)) return NULL;
    gd_dataset *d = gdpy_handle(inner, GDPY_DATASET, "dataset");
    if (!d) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    return gdpy_end_object(&c, self, gd_dataset_range_at(c.site, d, first, count));
}
/* _dataset_transform(new, dataset, transforms) */
static PyObject *core_dataset_transform(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *inner, *list;
    int64_t count;
    if (!PyArg_ParseTuple(args, "OOO", &self, &inner, &list)) return NULL;
    gd_dataset *d = gdpy_handle(inner, GDPY_DATASET, "dataset");
    void **at = d ? handles_from(list, GDPY_TRANSFORM, "each transform", &count) : NULL;
    if (!at) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_dataset *made =
        gd_dataset_transform_at(c.site, d, (gd_transform_list){(gd_transform **)at, count});
    PyMem_Free(at);
    return gdpy_end_object(&c, self, made);
}

/* --- random numbers of samples ---------------------------------------------------------------- */

/* A sequence of random numbers is a bytearray with the library's struct. */
static PyObject *core_random_new(PyObject *module, PyObject *args) {
    (void)module;
    unsigned long long key, stream;
    if (!PyArg_ParseTuple(args, "KK", &key, &stream)) return NULL;
    const gd_random r = gd_random_of(key, stream);
    return PyByteArray_FromStringAndSize((const char *)&r, sizeof r);
}
static bool random_from(PyObject *o, gd_random *r) {
    if (PyByteArray_Check(o) && PyByteArray_Size(o) == (Py_ssize_t)sizeof *r)
        return memcpy(r, PyByteArray_AsString(o), sizeof *r), true;
    return PyErr_SetString(PyExc_TypeError, "expected the random numbers of a sample"), false;
}
static void random_store(PyObject *o, const gd_random *r) {
    memcpy(PyByteArray_AsString(o), r, sizeof *r);
}
static PyObject *core_random_uniform(PyObject *module, PyObject *o) {
    (void)module;
    gd_random r;
    if (!random_from(o, &r)) return NULL;
    const double x = gd_random_uniform(&r);
    random_store(o, &r);
    return PyFloat_FromDouble(x);
}
static PyObject *core_random_word(PyObject *module, PyObject *o) {
    (void)module;
    gd_random r;
    if (!random_from(o, &r)) return NULL;
    const uint32_t x = gd_random_word(&r);
    random_store(o, &r);
    return PyLong_FromUnsignedLong(x);
}

/* --- transforms ------------------------------------------------------------------------------- */

/* _transform_apply(self, x, random) */
static PyObject *core_transform_apply(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *x, *random;
    gd_random r;
    if (!PyArg_ParseTuple(args, "OOO", &self, &x, &random)) return NULL;
    gd_transform *t = gdpy_handle(self, GDPY_TRANSFORM, "self");
    if (!t || !random_from(random, &r)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *in = gdpy_to_tensor(x, GD_DTYPE_NONE, true);
    if (!in) return gdpy_cancel(&c);
    gdpy_release_gil(&c);
    gd_tensor *y = gd_transform_apply_at(c.site, t, in, &r);
    gdpy_take_gil(&c);
    random_store(random, &r);
    return y == in && gdpy_is_tensor(x) ? (gdpy_cancel(&c), Py_NewRef(x)) : gdpy_end(&c, y);
}

/* --- samplers --------------------------------------------------------------------------------- */

static PyObject *core_sampler_weighted(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *weights;
    long long count;
    int replacement;
    if (!PyArg_ParseTuple(args, "OOLp", &self, &weights, &count, &replacement)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *t = gdpy_to_tensor(weights, GD_F64, false); /* held, and must not change */
    const gd_sampler_options o = {.count = count, .replacement = replacement};
    return t ? gdpy_end_object(&c, self, gd_sampler_weighted_at(c.site, t, &o)) : gdpy_cancel(&c);
}
static PyObject *core_sampler_stratified(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *classes;
    if (!PyArg_ParseTuple(args, "OO", &self, &classes)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *t = gdpy_to_tensor(classes, GD_DTYPE_NONE, false);
    return t ? gdpy_end_object(&c, self, gd_sampler_stratified_at(c.site, t)) : gdpy_cancel(&c);
}
static PyObject *core_sampler_bucketed(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *lengths;
    long long pool;
    if (!PyArg_ParseTuple(args, "OOL", &self, &lengths, &pool)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *t = gdpy_to_tensor(lengths, GD_DTYPE_NONE, false);
    const gd_sampler_bucketed_options o = {.pool = pool};
    return t ? gdpy_end_object(&c, self, gd_sampler_bucketed_at(c.site, t, &o)) : gdpy_cancel(&c);
}
static PyObject *core_sampler_distributed(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    int rank, world, shuffle, drop_last;
    if (!PyArg_ParseTuple(args, "Oiipp", &self, &rank, &world, &shuffle, &drop_last)) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    const gd_sampler_distributed_options o = {.shuffle = shuffle, .drop_last = drop_last};
    return gdpy_end_object(&c, self, gd_sampler_distributed_at(c.site, rank, world, &o));
}

/* _sampler_order(sampler, samples, shuffle, seed, epoch): the samples of an epoch, int64; an empty list if
 * there are none. */
static PyObject *core_sampler_order(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *sampler;
    long long samples, epoch;
    unsigned long long seed;
    int shuffle;
    if (!PyArg_ParseTuple(args, "OLpKL", &sampler, &samples, &shuffle, &seed, &epoch)) return NULL;
    gd_sampler *s = sampler == Py_None ? NULL : gdpy_handle(sampler, GDPY_SAMPLER, "sampler");
    if (!s && sampler != Py_None) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensor *numbers =
        gd_arange_at(c.site, gd_number_of(0), gd_number_of(samples),
                     &(gd_arange_options){.step = gd_number_of(1), .dtype = GD_I64});
    gd_loader_options o = *GD_LOADER_OPTIONS_();
    o.batch = INT64_MAX;
    o.sampler = s;
    o.shuffle = shuffle;
    o.seed = seed;
    o.targets = 0;
    gd_tensors batch = {NULL, 0};
    gd_dataset *d = gd_dataset_tensors_at(c.site, gd_listed(numbers));
    gd_loader *l = gd_loader_new_at(c.site, d, &o);
    if (l && gd_loader_seek_at(c.site, l, (gd_loader_position){epoch, 0}) == GD_OK &&
        gd_loader_next_at(c.site, l, &batch))
        return gdpy_end(&c, batch.at[0]);
    const bool failed = gd_failed();
    if (failed) gdpy_raise();
    gdpy_cancel(&c);
    return failed ? NULL : PyList_New(0);
}

PyMethodDef gdpy_data_functions[] = {
    {"_dataset_made", core_dataset_made, METH_O, NULL},
    {"_dataset_len", core_dataset_len, METH_O, NULL},
    {"_dataset_get", core_dataset_get, METH_VARARGS, NULL},
    {"_dataset_classes", core_dataset_classes, METH_O, NULL},
    {"_dataset_name", core_dataset_name, METH_VARARGS, NULL},
    {"_dataset_layout", core_dataset_layout, METH_O, NULL},
    {"_dataset_tensors", core_dataset_tensors, METH_VARARGS, NULL},
    {"_dataset_concat", core_dataset_concat, METH_VARARGS, NULL},
    {"_dataset_zip", core_dataset_zip, METH_VARARGS, NULL},
    {"_dataset_subset", core_dataset_subset, METH_VARARGS, NULL},
    {"_dataset_range", core_dataset_range, METH_VARARGS, NULL},
    {"_dataset_transform", core_dataset_transform, METH_VARARGS, NULL},
    {"_random_new", core_random_new, METH_VARARGS, NULL},
    {"_random_uniform", core_random_uniform, METH_O, NULL},
    {"_random_word", core_random_word, METH_O, NULL},
    {"_transform_apply", core_transform_apply, METH_VARARGS, NULL},
    {"_sampler_weighted", core_sampler_weighted, METH_VARARGS, NULL},
    {"_sampler_stratified", core_sampler_stratified, METH_VARARGS, NULL},
    {"_sampler_bucketed", core_sampler_bucketed, METH_VARARGS, NULL},
    {"_sampler_distributed", core_sampler_distributed, METH_VARARGS, NULL},
    {"_sampler_order", core_sampler_order, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
