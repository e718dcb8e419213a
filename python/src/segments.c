/* segments.c - memory that worker processes share with the program that trains.
 *
 * A worker makes a segment (memfd_create), writes the tensors of a batch into it, and passes its file
 * descriptor on once. Both sides close the descriptor when they have mapped the segment, so that a program
 * may keep any number of batches. A segment is free for another batch when the last tensor in it is. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "object.h"

typedef struct segment {
    char *at;
    size_t size;
    _Atomic int tensors, owners; /* tensors in it; these and the capsule */
} segment;

static const char NAME[] = "gradus.segment";

static void drop(segment *s) {
    if (atomic_fetch_sub(&s->owners, 1) != 1) return;
    munmap(s->at, s->size);
    free(s);
}
static void drop_capsule(PyObject *capsule) { drop(PyCapsule_GetPointer(capsule, NAME)); }
static void drop_tensor(void *data, void *user) {
    (void)data;
    segment *s = user;
    atomic_fetch_sub(&s->tensors, 1);
    drop(s);
}

static PyObject *map_segment(int fd, size_t size) {
    segment *s = calloc(1, sizeof *s);
    if (!s) return PyErr_NoMemory();
    s->size = size;
    s->at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s->at == MAP_FAILED) {
        free(s);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    atomic_store(&s->owners, 1);
    PyObject *capsule = PyCapsule_New(s, NAME, drop_capsule);
    if (!capsule) drop(s);
    return capsule;
}

/* _segment_new(size): (segment, file descriptor) */
static PyObject *core_segment_new(PyObject *module, PyObject *args) {
    (void)module;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "n", &size)) return NULL;
    if (size < 1) return PyErr_SetString(PyExc_ValueError, "a segment has at least a byte"), NULL;
    const int fd = memfd_create("gradus-batch", MFD_CLOEXEC);
    if (fd < 0) return PyErr_SetFromErrno(PyExc_OSError);
    PyObject *capsule = ftruncate(fd, size) == 0 ? map_segment(fd, (size_t)size)
                                                 : PyErr_SetFromErrno(PyExc_OSError);
    if (capsule) return Py_BuildValue("(Ni)", capsule, fd);
    close(fd);
    return NULL;
}

/* _segment_open(fd, size): the segment; closes the descriptor. */
static PyObject *core_segment_open(PyObject *module, PyObject *args) {
    (void)module;
    int fd;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "in", &fd, &size)) return NULL;
    PyObject *capsule = NULL;
    if (size < 1 || lseek(fd, 0, SEEK_END) < size) /* memory beyond the end would be a bus error */
        PyErr_SetString(PyExc_ValueError, "the segment is shorter than it should be");
    else capsule = map_segment(fd, (size_t)size);
    close(fd);
    return capsule;
}

static segment *part_of(PyObject *capsule, Py_ssize_t offset, size_t bytes) {
    segment *s = PyCapsule_GetPointer(capsule, NAME);
    if (!s || (offset >= 0 && (size_t)offset <= s->size && bytes <= s->size - (size_t)offset))
        return s;
    PyErr_SetString(PyExc_ValueError, "the tensor is not in the segment");
    return NULL;
}

/* _segment_write(segment, offset, tensor): the bytes that were written. */
static PyObject *core_segment_write(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule, *o;
    Py_ssize_t offset;
    if (!PyArg_ParseTuple(args, "OnO!", &capsule, &offset, (PyObject *)gdpy_tensor_type, &o))
        return NULL;
    gd_tensor *t = gdpy_tensor_of(o);
    const size_t bytes = (size_t)gd_tensor_numel(t) * gd_dtype_size(gd_tensor_dtype(t));
    segment *s = part_of(capsule, offset, bytes);
    if (!s) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c);
    const gd_status status = bytes ? gd_copy_to_at(c.site, t, s->at + offset, bytes) : GD_OK;
    gdpy_take_gil(&c);
    if (status != GD_OK) gdpy_raise();
    gdpy_cancel(&c);
    return status == GD_OK ? PyLong_FromSize_t(bytes) : NULL;
}

/* _segment_tensor(segment, offset, dtype, shape) */
static PyObject *core_segment_tensor(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule, *dtype_object, *shape_object;
    Py_ssize_t offset;
    gd_dtype dtype;
    gd_shape shape;
    if (!PyArg_ParseTuple(args, "OnOO", &capsule, &offset, &dtype_object, &shape_object) ||
        !gdpy_dtype_from(dtype_object, &dtype) || !gdpy_shape_from(shape_object, "shape", &shape))
        return NULL;
    size_t bytes = gd_dtype_size(dtype);
    for (int i = 0; i < shape.rank; i++)
        if (shape.at[i] < 0 || __builtin_mul_overflow(bytes, (size_t)shape.at[i], &bytes))
            bytes = SIZE_MAX;
    segment *s = part_of(capsule, offset, bytes);
    if (!s) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    atomic_fetch_add(&s->owners, 1);
    atomic_fetch_add(&s->tensors, 1);
    gd_tensor *t = gd_from_memory_at(c.site, shape, NULL, dtype, s->at + offset, drop_tensor, s);
    if (gd_tensor_is_error(t)) drop_tensor(NULL, s);
    return gdpy_end(&c, t);
}

/* _segment_is_free(segment): no tensor is in it. */
static PyObject *core_segment_is_free(PyObject *module, PyObject *capsule) {
    (void)module;
    segment *s = PyCapsule_GetPointer(capsule, NAME);
    return s ? PyBool_FromLong(atomic_load(&s->tensors) == 0) : NULL;
}

PyMethodDef gdpy_segment_functions[] = {
    {"_segment_new", core_segment_new, METH_VARARGS, NULL},
    {"_segment_open", core_segment_open, METH_VARARGS, NULL},
    {"_segment_write", core_segment_write, METH_VARARGS, NULL},
    {"_segment_tensor", core_segment_tensor, METH_VARARGS, NULL},
    {"_segment_is_free", core_segment_is_free, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
