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

/* Where options of C begin in a message: ".retain_graph = true". Returns the length of the name. */
static size_t option_length(const char *message, const char *at) {
    if (*at != '.' || (at > message && at[-1] != ' ' && at[-1] != '(')) return 0;
    const size_t n = strspn(at + 1, "abcdefghijklmnopqrstuvwxyz_");
    return n > 0 && strncmp(at + 1 + n, " = ", 3) == 0 ? n : 0;
}

/* The message in Python's words: names of functions are those of the package, options are written as
 * Python's, and calls of C that the program does not know are left out. */
static PyObject *message_text(const char *message) {
    static const char *const calls[] = {"gd_item: ", "gd_copy_to: ", "gd_jit_call: "};
    static const char *const words[][2] = {
        {"GD_NO_GRAD", "gd.no_grad()"},
        {" at (unknown place)", ""},
        {"gd_", "gd."},
        {"GD_F32", "gd.float32"},
        {"GD_F64", "gd.float64"},
        {"GD_F16", "gd.float16"},
        {"GD_BF16", "gd.bfloat16"},
        {"GD_I64", "gd.int64"},
        {"GD_BOOL", "gd.bool"},
        {"GD_ANY", "None"},
        {"NULL", "None"},
        {"= true", "=True"},
        {"= false", "=False"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strncmp(message, calls[i], strlen(calls[i])) == 0) message += strlen(calls[i]);
    if (strncmp(message, "gd_", 3) == 0) message += 3;
    char *text = PyMem_Malloc(2 * strlen(message) + 1), *to = text;
    if (!text) return PyErr_NoMemory();
    for (const char *at = message; *at;) {
        const size_t option = option_length(message, at);
        const char *const *word = NULL;
        for (size_t i = 0; i < sizeof words / sizeof *words && !word && !option; i++)
            if (strncmp(at, words[i][0], strlen(words[i][0])) == 0) word = words[i];
        if (option) { /* without the point, and without spaces around "=" */
            memcpy(to, at + 1, option);
            to += option;
            at += 1 + option + 1;
            if (strncmp(at, "= true", 6) && strncmp(at, "= false", 7)) *to++ = '=', at += 2;
        } else if (word) {
            to = stpcpy(to, word[1]);
            at += strlen(word[0]);
        } else *to++ = *at++;
    }
    PyObject *named = PyUnicode_DecodeUTF8(text, to - text, "replace");
    PyMem_Free(text);
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
