/* known.c - one object for each handle, where programs compare objects: `p is net.fc.weight`.
 *
 * Results of ops are new handles, so only handles that the library holds and hands out again are entered:
 * parameters, buffers, gradients. The table holds no references; an object leaves it when it is freed.
 * The GIL protects it. */
#include "binding.h"

#include <string.h>

static struct {
    PyObject **at; /* open addressing; NULL: free */
    size_t size, used;
} table;

static size_t hash(const gd_tensor *t) {
    return (size_t)((uintptr_t)t >> 4) * 0x9E3779B97F4A7C15u >> 16;
}

/* The slot of a handle, or the free one where it would be. */
static size_t find(const gd_tensor *t) {
    size_t i = hash(t) & (table.size - 1);
    while (table.at[i] && gdpy_tensor_of(table.at[i]) != t) i = (i + 1) & (table.size - 1);
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
        if (old[i]) table.at[find(gdpy_tensor_of(old[i]))] = old[i];
    PyMem_Free(old);
    return 0;
}

int gdpy_make_known(PyObject *o) {
    gdpy_tensor *tensor = gdpy_tensor_data(o);
    if (tensor->known) return 0;
    if (2 * table.used >= table.size && grow() < 0) return -1;
    const size_t i = find(tensor->t);
    if (table.at[i]) return 0; /* another object of this handle is the known one */
    table.at[i] = o;
    table.used++;
    tensor->known = true;
    return 0;
}

void gdpy_forget_known(gdpy_tensor *tensor) {
    size_t gap = find(tensor->t);
    table.at[gap] = NULL;
    table.used--;
    for (size_t i = gap; table.at[i = (i + 1) & (table.size - 1)];) { /* close the gap */
        const size_t home = hash(gdpy_tensor_of(table.at[i])) & (table.size - 1);
        if (((i - home) & (table.size - 1)) < ((i - gap) & (table.size - 1))) continue;
        table.at[gap] = table.at[i];
        table.at[gap = i] = NULL;
    }
}

PyObject *gdpy_wrap_known(gd_tensor *t) {
    if (t && table.size) {
        PyObject *o = table.at[find(t)];
        if (o) return Py_NewRef(o);
    }
    PyObject *o = gdpy_wrap(t);
    if (!o || o == Py_None || gdpy_make_known(o) == 0) return o;
    Py_DECREF(o);
    return NULL;
}
