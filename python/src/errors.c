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

/* Notes where the library was when a function of the program raised an exception: its message has that
 * before the exception's, "body.0 (Block): KeyError: ...". */
static void note_place(PyObject *exception, const char *message) {
    while (strncmp(message, "gd_", 3) == 0 && strstr(message, ": "))
        message = strstr(message, ": ") + 2; /* calls of C that the program does not know */
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(exception), "__name__");
    const char *name = type ? PyUnicode_AsUTF8AndSize(type, NULL) : NULL;
    const char *at = name ? strstr(message, name) : NULL;
    size_t length = at ? (size_t)(at - message) : 0;
    while (length && (message[length - 1] == ' ' || message[length - 1] == ':')) length--;
    if (length && !PyObject_HasAttrString(exception, "__notes__")) {
        PyObject *place = PyUnicode_DecodeUTF8(message, (Py_ssize_t)length, "replace"),
                 *note = place ? PyUnicode_FromFormat("in %U", place) : NULL,
                 *done = note ? PyObject_CallMethod(exception, "add_note", "O", note) : NULL;
        Py_XDECREF(done);
        Py_XDECREF(note);
        Py_XDECREF(place);
    }
    Py_XDECREF(type);
    PyErr_Clear();
}

PyObject *gdpy_raise(void) {
    if (!PyErr_Occurred()) {
        const gd_status status = gd_error_status();
        PyObject *kept = gdpy_kept_exception();
        if (kept) {
            note_place(kept, gd_error_message());
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
