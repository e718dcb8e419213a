/* dlpack.c - sharing memory by DLPack: __dlpack__, from_dlpack, and the table of C functions that newer
 * libraries use instead.
 *
 * Order: capsules; what others give; from_dlpack; what others get; the table.
 */
#include "binding.h"

#include <string.h>

#include "interop.h"

static const char new_name[] = "dltensor_versioned", old_name[] = "dltensor";
static const char used_new_name[] = "used_dltensor_versioned", used_old_name[] = "used_dltensor";

/* Memory that cannot be shared is a BufferError for every library that exchanges arrays. */
static PyObject *raise_buffer_error(void) {
    const gd_status status = gd_error_status();
    if (PyErr_Occurred() || (status != GD_E_STATE && status != GD_E_UNSUPPORTED))
        return gdpy_raise();
    PyErr_SetString(PyExc_BufferError, gd_error_message());
    gd_clear_error();
    return NULL;
}

/* --- what others give ------------------------------------------------------------------------- */

/* A foreign tensor whose deleter is called with the GIL, and not after Python's end: a tensor may be freed
 * by any thread, but not every library's deleter may. */
typedef struct held_foreign {
    gd_dl_managed managed; /* the first field */
    gd_dl_managed *versioned;
    gd_dl_unversioned *old;
} held_foreign;

static void delete_held(gd_dl_managed *m) {
    held_foreign *held = (held_foreign *)m;
    if (!gdpy_alive()) return;
    const PyGILState_STATE gil = PyGILState_Ensure();
    if (held->versioned && held->versioned->deleter) held->versioned->deleter(held->versioned);
    if (held->old && held->old->deleter) held->old->deleter(held->old);
    PyMem_Free(held);
    PyGILState_Release(gil);
}

/* A tensor that owns one of the two structs. NULL with an exception; then the caller still owns it. */
static gd_tensor *import_struct(gd_dl_managed *versioned, gd_dl_unversioned *old, gd_copy_mode copy,
                                int64_t stream) {
    if (versioned && versioned->major != GD_DL_MAJOR) {
        PyErr_Format(PyExc_BufferError, "the tensor is of DLPack %u.%u; Gradus knows version 1",
                     (unsigned)versioned->major, (unsigned)versioned->minor);
        return NULL;
    }
    held_foreign *held = PyMem_Malloc(sizeof *held);
    if (!held) return PyErr_NoMemory(), NULL;
    *held = (held_foreign){.managed = {.major = GD_DL_MAJOR,
                                       .minor = GD_DL_MINOR,
                                       .deleter = delete_held,
                                       .flags = versioned ? versioned->flags : 0,
                                       .tensor = versioned ? versioned->tensor : old->tensor},
                           .versioned = versioned,
                           .old = old};
    const gd_from_dlpack_options options = {.stream = stream, .copy = copy};
    gd_tensor *t =
        gd_from_dlpack_at(gdpy_site(), (struct DLManagedTensorVersioned *)&held->managed, &options);
    if (!gd_tensor_is_error(t)) return t;
    PyMem_Free(held);
    raise_buffer_error();
    return NULL;
}

/* A capsule is used once: then it has another name, and its destructor does nothing. */
static gd_tensor *import_capsule(PyObject *capsule, gd_copy_mode copy, int64_t stream) {
    const bool is_new = PyCapsule_IsValid(capsule, new_name);
    if (!is_new && !PyCapsule_IsValid(capsule, old_name)) {
        const char *name = PyCapsule_CheckExact(capsule) ? PyCapsule_GetName(capsule) : NULL;
        PyErr_Clear();
        if (name && strncmp(name, "used_", 5) == 0)
            PyErr_SetString(PyExc_ValueError,
                            "the DLPack capsule has been used already; each is used once");
        else PyErr_Format(PyExc_TypeError, "expected a DLPack capsule, not %R", capsule);
        return NULL;
    }
    void *pointer = PyCapsule_GetPointer(capsule, is_new ? new_name : old_name);
    gd_tensor *t = is_new ? import_struct(pointer, NULL, copy, stream)
                          : import_struct(NULL, pointer, copy, stream);
    if (t && PyCapsule_SetName(capsule, is_new ? used_new_name : used_old_name) != 0) PyErr_Clear();
    return t;
}

/* The stream on which a producer must order its work; GD_NO_STREAM on the CPU. False with an exception. */
static bool stream_for(int32_t type, int32_t number, int64_t *stream) {
    *stream = GD_NO_STREAM;
    if (type != GD_DL_CUDA && type != GD_DL_CUDA_MANAGED) return true;
    const gd_device *device = gd_dl_find_device_at(gdpy_site(), (gd_dl_device){type, number});
    if (!device) return gdpy_raise(), false;
    *stream = gd_device_stream(device);
    return true;
}

/* --- the table of another library --- */

typedef struct exchange_table {
    uint32_t major, minor;
    const struct exchange_table *before; /* of an older major version */
    int (*allocate)(gd_dl_tensor *like, gd_dl_managed **to, void *context,
                    void (*set_error)(void *context, const char *kind, const char *message));
    int (*from_object)(void *object, gd_dl_managed **to);
    int (*to_object)(gd_dl_managed *from, void **to);
    int (*describe)(void *object, gd_dl_tensor *to);
    int (*stream)(int32_t type, int32_t number, void **stream);
} exchange_table;
static const char table_name[] = "dlpack_exchange_api",
                  table_attribute[] = "__dlpack_c_exchange_api__";

static const exchange_table *table_of(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, table_attribute);
    const exchange_table *table = capsule && PyCapsule_IsValid(capsule, table_name)
                                      ? PyCapsule_GetPointer(capsule, table_name)
                                      : NULL;
    PyErr_Clear();
    Py_XDECREF(capsule); /* the table itself lives as long as the process */
    while (table && table->major != GD_DL_MAJOR) table = table->before;
    return table && table->from_object ? table : NULL;
}

/* PyTorch's table gives tensors that require a gradient, which its __dlpack__ refuses: nothing here would
 * compute that gradient. */
static bool requires_grad(PyObject *o) {
    PyObject *answer = PyObject_GetAttrString(o, "requires_grad");
    const bool is_true = answer == Py_True;
    if (!answer) PyErr_Clear();
    Py_XDECREF(answer);
    if (is_true)
        PyErr_Format(PyExc_BufferError,
                     "%R requires a gradient, which Gradus does not know; call .detach() first",
                     (PyObject *)Py_TYPE(o));
    return is_true;
}

static gd_tensor *import_by_table(const exchange_table *table, PyObject *o, gd_copy_mode copy) {
    gd_dl_managed *managed = NULL;
    void *theirs = NULL;
    if (requires_grad(o)) return NULL;
    if (table->from_object(o, &managed) != 0 || !managed) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_BufferError, "%R gave no DLPack tensor", (PyObject *)Py_TYPE(o));
        return NULL;
    }
    const gd_dl_device at = managed->tensor.device;
    int64_t stream;
    bool good = stream_for(at.type, at.number, &stream);
    if (good && stream != GD_NO_STREAM) {
        good = !table->stream || table->stream(at.type, at.number, &theirs) == 0;
        stream = (int64_t)(intptr_t)theirs;
    }
    gd_tensor *t = good ? import_struct(managed, NULL, copy, stream) : NULL;
    if (!t && managed->deleter) managed->deleter(managed);
    return t;
}

/* --- its methods --- */

/* o.__dlpack__(stream=..., max_version=(1, 3), copy=False). `modern`: with the last two. */
static PyObject *call_dlpack(PyObject *method, int64_t stream, gd_copy_mode copy, bool modern) {
    PyObject *names = PyDict_New(), *none = PyTuple_New(0), *result = NULL;
    PyObject *number = stream == GD_NO_STREAM ? NULL : PyLong_FromLongLong(stream);
    PyObject *version = modern ? Py_BuildValue("(ii)", GD_DL_MAJOR, GD_DL_MINOR) : NULL;
    bool good = names && none && (number || stream == GD_NO_STREAM) && (version || !modern);
    if (good && number) good = PyDict_SetItemString(names, "stream", number) == 0;
    if (good && version) good = PyDict_SetItemString(names, "max_version", version) == 0;
    if (good && modern && copy == GD_COPY_NEVER)
        good = PyDict_SetItemString(names, "copy", Py_False) == 0;
    if (good) result = PyObject_Call(method, none, names);
    Py_XDECREF(names);
    Py_XDECREF(none);
    Py_XDECREF(number);
    Py_XDECREF(version);
    return result;
}

static bool read_device(PyObject *pair, const char *what, gd_dl_device *device) {
    PyObject *list = PySequence_Check(pair) ? PySequence_Tuple(pair) : NULL;
    long numbers[2] = {0, 0};
    bool good = list && PyTuple_Size(list) == 2;
    for (int i = 0; i < 2 && good; i++) {
        PyObject *number = PyNumber_Index(PyTuple_GetItem(list, i));
        numbers[i] = number ? PyLong_AsLong(number) : -1;
        good = number && !(numbers[i] == -1 && PyErr_Occurred()) && numbers[i] >= INT32_MIN &&
               numbers[i] <= INT32_MAX;
        Py_XDECREF(number);
    }
    Py_XDECREF(list);
    *device = (gd_dl_device){(int32_t)numbers[0], (int32_t)numbers[1]};
    if (good) return true;
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s is two integers, the type and the number of a device; not %R",
                 what, pair);
    return false;
}

static gd_tensor *import_by_methods(PyObject *o, gd_copy_mode copy) {
    PyObject *pair = PyObject_CallMethod(o, "__dlpack_device__", NULL), *method = NULL,
             *capsule = NULL;
    gd_dl_device at;
    int64_t stream;
    gd_tensor *t = NULL;
    if (pair && read_device(pair, "the result of __dlpack_device__", &at) &&
        stream_for(at.type, at.number, &stream))
        method = PyObject_GetAttrString(o, "__dlpack__");
    if (method) capsule = call_dlpack(method, stream, copy, true);
    if (method && !capsule &&
        PyErr_ExceptionMatches(PyExc_TypeError)) { /* of the time before 1.0 */
        PyErr_Clear();
        capsule = call_dlpack(method, stream, copy, false);
    }
    if (capsule)
        t = import_capsule(capsule, copy, GD_NO_STREAM); /* the producer has waited already */
    Py_XDECREF(capsule);
    Py_XDECREF(method);
    Py_XDECREF(pair);
    return t;
}

static gd_tensor *import_object(PyObject *o, gd_copy_mode copy) {
    if (PyCapsule_CheckExact(o)) return import_capsule(o, copy, 0);
    const exchange_table *table = table_of(Py_TYPE(o));
    if (table) return import_by_table(table, o, copy);
    if (PyObject_HasAttrString(o, "__dlpack__") && PyObject_HasAttrString(o, "__dlpack_device__"))
        return import_by_methods(o, copy);
    PyErr_Format(PyExc_TypeError,
                 "from_dlpack takes an object with __dlpack__ and __dlpack_device__, not %R",
                 (PyObject *)Py_TYPE(o));
    return NULL;
}

gd_tensor *gdpy_from_dlpack(PyObject *o) { return import_object(o, GD_COPY_IF_NEEDED); }

/* None, True or False. -1: exception. */
static int read_copy(PyObject *copy, gd_copy_mode *mode) {
    const int wanted = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    *mode = copy == Py_None ? GD_COPY_IF_NEEDED : wanted ? GD_COPY_ALWAYS : GD_COPY_NEVER;
    return wanted < 0 ? -1 : 0;
}

static gd_tensor *move_to(gd_tensor *t, gd_device *device, gd_copy_mode copy) {
    if (!t || !device || gd_tensor_device(t) == device) return t;
    if (copy == GD_COPY_NEVER) {
        PyErr_Format(PyExc_BufferError, "a tensor on %s needs a copy on %s, and copy is False",
                     gd_device_name(gd_tensor_device(t)), gd_device_name(device));
        return NULL;
    }
    gd_tensor *y;
    Py_BEGIN_ALLOW_THREADS y = gd_to_device_at(NULL, t, device);
    Py_END_ALLOW_THREADS return y;
}

PyObject *gdpy_function_from_dlpack(PyObject *module, PyObject *args, PyObject *names) {
    (void)module;
    static char *words[] = {"", "device", "copy", NULL};
    PyObject *o, *device = Py_None, *copy = Py_None;
    gd_copy_mode mode;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|$OO:from_dlpack", words, &o, &device, &copy) ||
        read_copy(copy, &mode) < 0)
        return NULL;
    gd_device *to = device == Py_None ? NULL : gdpy_device_from(device);
    if (device != Py_None && !to) return NULL;
    gd_scope *scope = gd_scope_open_at(NULL);
    gd_tensor *t = move_to(import_object(o, mode), to, mode);
    PyObject *result = t ? gdpy_wrap(t) : NULL;
    gd_scope_close(&scope);
    return result;
}

/* --- what others get -------------------------------------------------------------------------- */

/* Of a capsule that nobody has used. */
static void free_capsule(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, new_name)) {
        gd_dl_managed *m = PyCapsule_GetPointer(capsule, new_name);
        m->deleter(m);
    } else if (PyCapsule_IsValid(capsule, old_name)) {
        gd_dl_unversioned *m = PyCapsule_GetPointer(capsule, old_name);
        m->deleter(m);
    }
}

static bool check_exported(gd_tensor *t) {
    if (!gd_tensor_requires_grad(t)) return true;
    PyErr_SetString(PyExc_BufferError,
                    "the tensor requires a gradient, which other libraries do not know; "
                    "call .detach() first");
    return false;
}

/* The argument `stream`, for a tensor on a device of this type. */
static bool read_stream(PyObject *o, int32_t type, int64_t *stream) {
    *stream = type == GD_DL_CPU ? GD_NO_STREAM : 1; /* None: the legacy default stream */
    if (o == Py_None) return true;
    const long long number = PyLong_Check(o) ? PyLong_AsLongLong(o) : -2;
    if (number == -1 && PyErr_Occurred()) return false;
    *stream = number;
    if (number == GD_NO_STREAM || (number > 0 && type != GD_DL_CPU)) return true;
    if (type == GD_DL_CPU)
        PyErr_SetString(PyExc_ValueError, "stream: a tensor on the CPU has none; it must be None");
    else
        PyErr_Format(
            PyExc_ValueError,
            "stream must be None, -1, 1 (the legacy default stream), 2 (that of the thread) or the "
            "address of a stream, not %R",
            o);
    return false;
}

/* The argument `dl_device`: the device for the copy, or NULL. */
static bool read_target(PyObject *o, gd_tensor *t, gd_device **device) {
    gd_dl_device wanted;
    *device = NULL;
    if (o == Py_None) return true;
    if (!read_device(o, "dl_device", &wanted)) return false;
    *device = gd_dl_find_device_at(gdpy_site(), wanted);
    if (*device == gd_tensor_device(t)) *device = NULL;
    else if (!*device) {
        PyErr_SetString(PyExc_BufferError, gd_error_message());
        gd_clear_error();
        return false;
    }
    return true;
}

static bool wants_versioned(PyObject *version, bool *versioned) {
    *versioned = false;
    if (version == Py_None) return true;
    gd_dl_device pair; /* two integers, too */
    if (!read_device(version, "max_version", &pair)) return false;
    *versioned = pair.type >= GD_DL_MAJOR;
    return true;
}

PyObject *gdpy_dlpack(PyObject *self, PyObject *args, PyObject *names) {
    static char *words[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *target = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|$OOOO:__dlpack__", words, &stream, &version,
                                     &target, &copy))
        return NULL;
    gd_tensor *t = gdpy_tensor_of(self);
    gd_to_dlpack_options options = {.stream = 0};
    gd_copy_mode mode;
    bool versioned;
    if (!check_exported(t)) return NULL;
    const gd_dl_device at = gd_dl_device_of_at(gdpy_site(), gd_tensor_device(t));
    if (at.type == 0) return raise_buffer_error();
    if (read_copy(copy, &mode) < 0 || !wants_versioned(version, &versioned) ||
        !read_target(target, t, &options.device) || !read_stream(stream, at.type, &options.stream))
        return NULL;
    if (options.device && mode == GD_COPY_NEVER) {
        PyErr_SetString(PyExc_BufferError,
                        "dl_device is another device, which needs a copy, and copy is False");
        return NULL;
    }
    options.copy = mode == GD_COPY_ALWAYS;
    void *m;
    PyThreadState *released = options.copy || options.device ? PyEval_SaveThread() : NULL;
    m = versioned ? (void *)gd_to_dlpack_at(NULL, t, &options)
                  : (void *)gd_to_dlpack_unversioned_at(NULL, t, &options);
    if (released) PyEval_RestoreThread(released);
    if (!m) return raise_buffer_error();
    PyObject *capsule = PyCapsule_New(m, versioned ? new_name : old_name, free_capsule);
    if (capsule) return capsule;
    if (versioned) ((gd_dl_managed *)m)->deleter(m);
    else ((gd_dl_unversioned *)m)->deleter(m);
    return NULL;
}

PyObject *gdpy_dlpack_device(PyObject *self, PyObject *none) {
    (void)none;
    const gd_dl_device at = gd_dl_device_of_at(gdpy_site(), gd_tensor_device(gdpy_tensor_of(self)));
    return at.type ? Py_BuildValue("(ii)", (int)at.type, (int)at.number) : raise_buffer_error();
}

/* --- the table -------------------------------------------------------------------------------- */

/* May be called without the GIL, so failures go to set_error. */
static int table_allocate(gd_dl_tensor *like, gd_dl_managed **to, void *context,
                          void (*set_error)(void *, const char *, const char *)) {
    static const gd_to_dlpack_options options = {.stream = GD_NO_STREAM};
    gd_scope *scope = gd_scope_open_at(NULL);
    gd_device *before = gd_default_device(), *device = gd_dl_find_device_at(NULL, like->device);
    const gd_dtype dtype = device ? gd_dl_dtype_of_at(NULL, like) : GD_DTYPE_NONE;
    *to = NULL;
    if (dtype != GD_DTYPE_NONE) {
        gd_shape shape = {.rank = like->rank, .form = 1};
        for (int i = 0; i < like->rank && i < GD_MAX_RANK; i++) shape.at[i] = like->dims[i];
        gd_set_default_device(device);
        gd_tensor *t = gd_empty_at(NULL, shape, dtype);
        gd_set_default_device(before);
        if (!gd_tensor_is_error(t)) *to = (gd_dl_managed *)gd_to_dlpack_at(NULL, t, &options);
    }
    if (!*to) {
        set_error(context, gd_error_status() == GD_E_MEMORY ? "MemoryError" : "BufferError",
                  gd_error_message());
        gd_clear_error();
    }
    gd_scope_close(&scope);
    return *to ? 0 : -1;
}

static int table_from_object(void *object, gd_dl_managed **to) {
    static const gd_to_dlpack_options options = {.stream = GD_NO_STREAM};
    *to = NULL;
    if (!gdpy_is_tensor(object)) {
        PyErr_Format(PyExc_TypeError, "expected a gradus.Tensor, not %R",
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (!check_exported(gdpy_tensor_of(object))) return -1;
    *to = (gd_dl_managed *)gd_to_dlpack_at(gdpy_site(), gdpy_tensor_of(object), &options);
    if (!*to) raise_buffer_error();
    return *to ? 0 : -1;
}

static int table_to_object(gd_dl_managed *from, void **to) {
    gd_scope *scope = gd_scope_open_at(NULL);
    gd_tensor *t = import_struct(from, NULL, GD_COPY_IF_NEEDED, GD_NO_STREAM);
    *to = t ? gdpy_wrap(t) : NULL;
    gd_scope_close(&scope);
    return *to ? 0 : -1;
}

static int table_describe(void *object, gd_dl_tensor *to) {
    if (!gdpy_is_tensor(object)) {
        PyErr_Format(PyExc_TypeError, "expected a gradus.Tensor, not %R",
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (!check_exported(gdpy_tensor_of(object))) return -1;
    if (gd_dl_describe_at(gdpy_site(), gdpy_tensor_of(object), to) == GD_OK) return 0;
    raise_buffer_error();
    return -1;
}

static int table_stream(int32_t type, int32_t number, void **stream) {
    int64_t ours;
    *stream = NULL;
    if (!stream_for(type, number, &ours)) return -1;
    if (ours != GD_NO_STREAM) *stream = (void *)(intptr_t)ours;
    return 0;
}

int gdpy_dlpack_init(PyObject *module) {
    (void)module;
    static const exchange_table table = {.major = GD_DL_MAJOR,
                                         .minor = GD_DL_MINOR,
                                         .allocate = table_allocate,
                                         .from_object = table_from_object,
                                         .to_object = table_to_object,
                                         .describe = table_describe,
                                         .stream = table_stream};
    PyObject *capsule = PyCapsule_New((void *)(uintptr_t)&table, table_name, NULL);
    const int set =
        capsule ? PyObject_SetAttrString((PyObject *)gdpy_tensor_type, table_attribute, capsule)
                : -1;
    Py_XDECREF(capsule);
    return set;
}
