/* errors.c - failures of the library as exceptions.
 *
 * Each status has a class, which is also the class that Python has for such a mistake: a gradus.ShapeError
 * is a ValueError. All of them are gradus.Error.
 */
#include "object.h"

#include <string.h>

static PyObject *error_class; /* gradus.Error */

static struct {
    gd_status status;
    const char *name; /* of the class */
    PyObject **also;  /* Python's own */
    PyObject *class;
    const char *doc;
} classes[] = {
    {GD_E_ARGUMENT, "gradus.ArgumentError", &PyExc_ValueError, NULL,
     "An argument is missing or has a value that makes no sense."},
    {GD_E_SHAPE, "gradus.ShapeError", &PyExc_ValueError, NULL,
     "Ranks or sizes do not fit together."},
    {GD_E_DTYPE, "gradus.DtypeError", &PyExc_TypeError, NULL,
     "The op does not support this dtype."},
    {GD_E_DEVICE, "gradus.DeviceError", &PyExc_RuntimeError, NULL,
     "Tensors on different devices, or a device that does not exist."},
    {GD_E_INDEX, "gradus.IndexError", &PyExc_IndexError, NULL,
     "An axis or an index is out of range."},
    {GD_E_OVERFLOW, "gradus.OverflowError", &PyExc_OverflowError, NULL,
     "A size that does not fit 63 bits."},
    {GD_E_MEMORY, "gradus.MemoryError", &PyExc_MemoryError, NULL, "Out of memory."},
    {GD_E_UNSUPPORTED, "gradus.UnsupportedError", &PyExc_NotImplementedError, NULL,
     "A valid call that this build, device or op does not support."},
    {GD_E_STATE, "gradus.StateError", &PyExc_RuntimeError, NULL,
     "The wrong state: backward twice, an overwritten saved value, data of a symbol."},
    {GD_E_IO, "gradus.IOError", &PyExc_OSError, NULL, "The system could not read or write."},
    {GD_E_FORMAT, "gradus.FormatError", &PyExc_ValueError, NULL,
     "A file that is damaged, or of another format."},
};
enum { CLASSES = sizeof classes / sizeof *classes };

int gdpy_errors_init(PyObject *module) {
    error_class = PyErr_NewExceptionWithDoc("gradus.Error", "A failure of Gradus.", NULL, NULL);
    if (!error_class || PyModule_AddObjectRef(module, "Error", error_class) < 0) return -1;
    for (int i = 0; i < CLASSES; i++) {
        PyObject *bases = PyTuple_Pack(2, error_class, *classes[i].also);
        if (!bases) return -1;
        classes[i].class = PyErr_NewExceptionWithDoc(classes[i].name, classes[i].doc, bases, NULL);
        Py_DECREF(bases);
        if (!classes[i].class ||
            PyModule_AddObjectRef(module, classes[i].name + sizeof "gradus", classes[i].class) < 0)
            return -1;
    }
    return 0;
}

PyObject *gdpy_exception_of(gd_status status) {
    for (int i = 0; i < CLASSES; i++)
        if (classes[i].status == status) return classes[i].class;
    return error_class;
}

/* The message in Python's words: calls of C that the program does not know are left out, and names of
 * functions are those of the package. */
static PyObject *message_text(const char *message) {
    static const char *const calls[] = {"gd_item: ", "gd_copy_to: ", "gd_jit_call: "};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strncmp(message, calls[i], strlen(calls[i])) == 0) message += strlen(calls[i]);
    if (strncmp(message, "gd_", 3) == 0) message += 3;
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    PyObject *named = text ? PyObject_CallMethod(text, "replace", "ss", "gd_", "gd.") : NULL;
    Py_XDECREF(text);
    return named;
}

PyObject *gdpy_raise(void) {
    if (!PyErr_Occurred()) {
        const gd_status status = gd_error_status();
        PyObject *kept = gdpy_kept_exception();
        if (kept) {
            PyErr_SetObject((PyObject *)Py_TYPE(kept), kept);
            Py_DECREF(kept);
        } else if (status == GD_OK) PyErr_SetString(error_class, "the call has failed");
        else {
            PyObject *text = message_text(gd_error_message());
            if (text) PyErr_SetObject(gdpy_exception_of(status), text);
            Py_XDECREF(text);
        }
    }
    gd_clear_error();
    return NULL;
}
