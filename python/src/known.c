/* known.c - one object for each handle, where programs compare objects: `p is net.fc.weight`.
 *
 * Results of ops are new handles, so only handles that the library holds and hands out again are entered:
 * parameters, buffers, gradients. The table holds no references; an object leaves it when it is freed.
 * The GIL protects it. */
#include "object.h"

#include <string.h>

static struct {
    PyObject **at; /* open addressing; NULL: free */
    size_t size, used;
} table;

static size_t hash(const void *handle) {
    return (size_t)((uintptr_t)handle >> 4) * 0x9E3779B97F4A7C15u >> 16;
}

/* Tensors and other objects begin with the same fields. */
_Static_assert(offsetof(gdpy_tensor, t) == offsetof(gdpy_object, handle) &&
                   offsetof(gdpy_tensor, known) == offsetof(gdpy_object, known),
               "the table reads both kinds of objects");
static const void *handle_of(PyObject *o) { return gdpy_object_data(o)->handle; }

/* The slot of a handle, or the free one where it would be. */
static size_t find(const void *handle) {
    size_t i = hash(handle) & (table.size - 1);
    while (table.at[i] && handle_of(table.at[i]) != handle) i = (i + 1) & (table.size - 1);
    return i;
}

static int grow(void) {
    PyObject **old = table.at;
    const size_t old_size = table.size, size = old_size ? 2 * old_size : 64;
    PyObject **at = PyMem_Calloc(size, sizeof *at);
    if (!at) return PyErr_NoMemory(), -1;
    table.at = at;
    table.size = size;
    for (size_t i = 0; i < old_size; i++)
        if (old[i]) table.at[find(handle_of(old[i]))] = old[i];
    PyMem_Free(old);
    return 0;
}

int gdpy_make_known(PyObject *o) {
    gdpy_object *object = gdpy_object_data(o);
    if (object->known) return 0;
    if (2 * table.used >= table.size && grow() < 0) return -1;
    const size_t i = find(object->handle);
    if (table.at[i]) return 0; /* another object of this handle is the known one */
    table.at[i] = o;
    table.used++;
    object->known = true;
    return 0;
}

void gdpy_forget_known(PyObject *o) {
    size_t gap = find(handle_of(o));
    table.at[gap] = NULL;
    table.used--;
    for (size_t i = gap; table.at[i = (i + 1) & (table.size - 1)];) { /* close the gap */
        const size_t home = hash(handle_of(table.at[i])) & (table.size - 1);
        if (((i - home) & (table.size - 1)) < ((i - gap) & (table.size - 1))) continue;
        table.at[gap] = table.at[i];
        table.at[gap = i] = NULL;
    }
}

PyObject *gdpy_find_known(const void *handle) {
    return handle && table.size ? table.at[find(handle)] : NULL;
}

PyObject *gdpy_wrap_again(gd_tensor *t) {
    PyObject *known = gdpy_find_known(t);
    return known ? Py_NewRef(known) : gdpy_wrap(t);
}

PyObject *gdpy_wrap_known(gd_tensor *t) {
    PyObject *known = gdpy_find_known(t);
    if (known) return Py_NewRef(known);
    PyObject *o = gdpy_wrap(t);
    if (!o || o == Py_None || gdpy_make_known(o) == 0) return o;
    Py_DECREF(o);
    return NULL;
}

PyTypeObject *gdpy_parameter_type;

PyObject *gdpy_wrap_parameter(gd_tensor *t) {
    PyObject *known = gdpy_find_known(t);
    if (known || !t || !gdpy_parameter_type) return gdpy_wrap_known(t);
    allocfunc allocate = (allocfunc)PyType_GetSlot(gdpy_parameter_type, Py_tp_alloc);
    PyObject *o = allocate(gdpy_parameter_type, 0);
    if (!o) return NULL;
    gdpy_tensor_data(o)->t = gd_retain(t);
    if (gdpy_make_known(o) == 0) return o;
    Py_DECREF(o);
    return NULL;
}
