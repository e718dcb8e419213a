/* loader.c - loaders: gd_loader over built-in datasets, and over Python objects that make whole batches.
 *
 * A dataset of Python objects is a dataset of the library whose samples are their own numbers; the
 * loader's collate function takes the numbers of a batch to Python, where a Source (gradus/data/_source.py)
 * makes the batch: here, or in a worker process. So the library's workers, order, position and state serve
 * both kinds, and fit takes both. Each batch takes the GIL once. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "object.h"

/* --- threads ---------------------------------------------------------------------------------- */

static _Thread_local bool is_worker; /* a thread of the library, which has Python from us */

/* The destructors of C++'s thread_local variables, which run before the system clears the keys in which
 * Python keeps its thread states. NULL where the C library has none. */
extern int __cxa_thread_atexit_impl(void (*destroy)(void *), void *object, void *library)
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

/* A worker keeps one thread state from its first batch to its end: it is created once, and what a dataset
 * stores in a threading.local stays there. */
static void end_thread(void *state) {
    if (!gdpy_alive()) return;
    PyEval_RestoreThread(state);
    PyGILState_Release(PyGILState_UNLOCKED);
}
static PyGILState_STATE enter_worker(void) {
    if (PyGILState_GetThisThreadState()) return gdpy_enter();
    const PyGILState_STATE state = gdpy_enter();
    is_worker = true;
    if (!__cxa_thread_atexit_impl) return state;
    PyThreadState *kept = PyThreadState_Get();
    if (__cxa_thread_atexit_impl(end_thread, kept, &__dso_handle) != 0) return state;
    gdpy_enter(); /* once more: the state stays when the batch is made */
    return PyGILState_UNLOCKED;
}

/* --- sources ---------------------------------------------------------------------------------- */

/* How long workers waited for the GIL, to find loaders that need processes. The GIL protects it. */
typedef struct waits {
    bool watched;
    int calls;
    double began, cpu_began; /* of the first call: now, and the process's time on CPUs */
    double entry, wall,
        cpu; /* sums: until the GIL was there; of the calls, and their time on a CPU */
} waits;

typedef struct source {
    PyObject *object; /* a Source */
    int64_t count;
    waits waits;
} source;

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t source_count(void *self) { return ((source *)self)->count; }

/* A sample: its number, and the key of random numbers in this epoch. */
static gd_tensors source_get(int64_t index, gd_random *random, void *self) {
    (void)self;
    const int64_t both[] = {index, (int64_t)random->rng.seed};
    return gd_listed(gd_from_array(gd_dims(2), GD_I64, both));
}

static void source_destroy(void *self) {
    source *s = self;
    if (gdpy_alive()) {
        const PyGILState_STATE state = gdpy_enter();
        Py_XDECREF(s->object);
        gdpy_leave(state);
    }
    free(s);
}

/* Waits for the GIL make up most of the time, and one CPU does it all. A wait for files or sleep leaves
 * the CPU, and code that releases the GIL uses more than one. */
static bool waits_for_gil(const waits *w) {
    const double all = seconds(CLOCK_MONOTONIC) - w->began,
                 cpus = (seconds(CLOCK_PROCESS_CPUTIME_ID) - w->cpu_began) / all;
    return w->calls >= 32 && all > 1 && w->entry / w->calls > 1e-3 && w->cpu < 0.5 * w->wall &&
           cpus > 0.3 && cpus < 1.3;
}

static void watch_waits(source *s, double before, double after, double cpu) {
    waits *w = &s->waits;
    if (!w->watched) return;
    if (w->calls++ == 0) {
        w->began = before;
        w->cpu_began = seconds(CLOCK_PROCESS_CPUTIME_ID);
        return;
    }
    w->entry += after - before;
    w->wall += seconds(CLOCK_MONOTONIC) - before;
    w->cpu += seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    if (w->calls % 16 != 0 || !waits_for_gil(w)) return;
    w->watched = false;
    PyObject *done =
        PyObject_CallMethod(s->object, "warn_about_gil", "i", (int)(100 * (1 - w->cpu / w->wall)));
    if (!done) PyErr_WriteUnraisable(s->object);
    Py_XDECREF(done);
}

/* make(numbers, key, epoch, batch): the tensors of the batch. */
static PyObject *call_source(source *s, const gd_tensors *samples, int64_t count) {
    const gd_loader_position at = gd_loader_preparing();
    PyObject *numbers = PyList_New((Py_ssize_t)count), *made = NULL;
    uint64_t key = 0;
    for (int64_t i = 0; i < count && numbers; i++) {
        const int64_t *both = gd_data(samples[i].at[0]);
        PyObject *number = PyLong_FromLongLong(both[0]);
        key = (uint64_t)both[1];
        if (!number) Py_CLEAR(numbers);
        else PyList_SetItem(numbers, (Py_ssize_t)i, number);
    }
    if (numbers)
        made = PyObject_CallMethod(s->object, "make", "OKLL", numbers, (unsigned long long)key,
                                   (long long)at.epoch, (long long)at.batch);
    Py_XDECREF(numbers);
    return made;
}

/* Tensors of the open scope that share the memory of these, which Python may free. */
static gd_tensors shared_list(PyObject *list) {
    const Py_ssize_t n = PyList_Size(list);
    gd_tensors made = {NULL, 0};
    gd_tensor **at = n >= 0 ? PyMem_Malloc(sizeof *at * (size_t)(n + 1)) : NULL;
    for (Py_ssize_t i = 0; at && i < n; i++) {
        PyObject *o = PyList_GetItem(list, i);
        if (!o || !gdpy_is_tensor(o)) {
            PyErr_SetString(PyExc_TypeError, "a batch has something that is no tensor");
            PyMem_Free(at);
            return made;
        }
        at[i] = gd_detach_at(NULL, gdpy_tensor_of(o));
    }
    if (at) made = gd_list_copy((gd_tensors){at, n});
    PyMem_Free(at);
    return made;
}

static gd_tensors source_collate(const gd_tensors *samples, int64_t count, void *self) {
    source *s = self;
    const double before = s->waits.watched ? seconds(CLOCK_MONOTONIC) : 0;
    const PyGILState_STATE state = enter_worker();
    const double after = s->waits.watched ? seconds(CLOCK_MONOTONIC) : 0,
                 cpu = s->waits.watched ? seconds(CLOCK_THREAD_CPUTIME_ID) : 0;
    gd_tensors batch = {NULL, 0};
    PyObject *made = call_source(s, samples, count);
    if (made && PyList_Check(made)) batch = shared_list(made);
    Py_XDECREF(made);
    if (PyErr_Occurred()) gdpy_keep_exception(), batch = (gd_tensors){NULL, 0};
    watch_waits(s, before, after, cpu);
    gdpy_leave(state);
    return batch;
}

/* --- orders of Python samplers ---------------------------------------------------------------- */

/* The order of an epoch is a table. It is made when the first worker asks for it; the workers of the epoch
 * before have ended by then. */
typedef struct py_order {
    PyObject *object; /* has table(epoch, seed): the numbers of the samples */
    int64_t count;    /* positions */
    int64_t *table, length;
    _Atomic int64_t epoch; /* of the table; -1: none */
} py_order;

static int64_t order_count(int64_t samples, void *self) {
    (void)samples;
    return ((py_order *)self)->count;
}

static bool fill_table(py_order *o, PyObject *list, int64_t epoch) {
    const Py_ssize_t n = PyList_Size(list);
    int64_t *table = n >= 0 ? malloc(sizeof *table * (size_t)(n + 1)) : NULL;
    if (!table) return PyErr_NoMemory(), false;
    for (Py_ssize_t i = 0; i < n; i++) {
        table[i] = PyLong_AsLongLong(PyList_GetItem(list, i));
        if (table[i] == -1 && PyErr_Occurred()) return free(table), false;
    }
    free(o->table);
    o->table = table;
    o->length = n;
    atomic_store(&o->epoch, epoch);
    return true;
}

static gd_status load_table(py_order *o, uint64_t seed, int64_t epoch) {
    const PyGILState_STATE state = enter_worker();
    gd_status status = GD_OK;
    PyObject *list =
        PyObject_CallMethod(o->object, "table", "LK", (long long)epoch, (unsigned long long)seed);
    /* the call may have let another worker in, which then has filled the table */
    if (!list || (atomic_load(&o->epoch) != epoch && !fill_table(o, list, epoch)))
        status = gdpy_keep_exception();
    Py_XDECREF(list);
    gdpy_leave(state);
    return status;
}

static int64_t order_at(int64_t position, uint64_t seed, uint64_t epoch, int64_t samples,
                        void *self) {
    (void)samples;
    py_order *o = self;
    if (atomic_load(&o->epoch) != (int64_t)epoch && load_table(o, seed, (int64_t)epoch) != GD_OK)
        return -1;
    if (position < o->length) return o->table[position];
    gd_raise_at(NULL, GD_E_INDEX,
                "the sampler gave %lld samples in epoch %lld, and its length was %lld",
                (long long)o->length, (long long)epoch, (long long)o->count);
    return -1;
}

static void order_destroy(void *self) {
    py_order *o = self;
    if (gdpy_alive()) {
        const PyGILState_STATE state = gdpy_enter();
        Py_XDECREF(o->object);
        gdpy_leave(state);
    }
    free(o->table);
    free(o);
}

static gd_sampler *order_new(const char *site, PyObject *object, int64_t count) {
    py_order *o = calloc(1, sizeof *o);
    if (!o) return NULL;
    o->object = Py_NewRef(object);
    o->count = count;
    atomic_store(&o->epoch, -1);
    gd_sampler *s = gd_sampler_from_at(
        site, o,
        &(gd_sampler_functions){.count = order_count, .at = order_at, .destroy = order_destroy});
    if (!s) order_destroy(o);
    return s;
}

/* --- loaders ---------------------------------------------------------------------------------- */

/* Freeing a loader waits for its workers, which may need the GIL. A worker may itself come upon the loader,
 * when it collects garbage: then the main thread frees it later. */
typedef struct late {
    struct late *next;
    void *handle;
} late;
static late *late_list; /* the GIL protects it */

static void release_loader(void *handle) {
    PyThreadState *state = PyEval_SaveThread();
    (gd_release)(handle);
    PyEval_RestoreThread(state);
}
static int release_late(void *unused) {
    (void)unused;
    while (late_list && !is_worker) {
        late *l = late_list;
        late_list = l->next;
        release_loader(l->handle);
        free(l);
    }
    return 0;
}

void gdpy_loader_dealloc(gdpy_object *o) {
    late *l = is_worker ? malloc(sizeof *l) : NULL;
    if (l) {
        *l = (late){late_list, o->handle};
        late_list = l;
        Py_AddPendingCall(release_late, NULL); /* if its queue is full, the next loader does it */
    } else if (!is_worker) release_loader(o->handle);
    o->handle = NULL; /* without memory on a worker, the loader is never freed */
}

static gd_dataset *source_dataset(gdpy_call *c, PyObject *object, int64_t count, bool watched,
                                  source **made) {
    source *s = *made = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (source){.object = Py_NewRef(object), .count = count, .waits.watched = watched};
    PyObject *name = PyObject_GetAttrString(object, "name");
    const char *utf8 = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    PyErr_Clear();
    gd_dataset *d = gd_dataset_from_at(c->site, s,
                                       &(gd_dataset_functions){.count = source_count,
                                                               .get = source_get,
                                                               .destroy = source_destroy,
                                                               .name = utf8 ? utf8 : "dataset"});
    Py_XDECREF(name);
    if (!d) source_destroy(s);
    return d;
}

/* _loader_init(self, dataset, source, count, order, positions, options): `dataset` a built-in one or None;
 * `source` with `count` samples or None; `order` a Sampler, an object with table(epoch, seed) and so many
 * positions, or None. A loader that has content gets a new one. */
static PyObject *core_loader_init(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self, *dataset, *object, *order, *device;
    long long count, positions;
    gd_loader_options o = *GD_LOADER_OPTIONS_();
    long long batch;
    unsigned long long seed;
    int shuffle, drop_last, pad, skip_broken, watched;
    if (!PyArg_ParseTuple(args, "OOOLOL(LpKiipiipdpOp)", &self, &dataset, &object, &count, &order,
                          &positions, &batch, &shuffle, &seed, &o.workers, &o.prefetch, &drop_last,
                          &o.targets, &o.weights, &pad, &o.pad_value, &skip_broken, &device,
                          &watched))
        return NULL;
    release_late(NULL);
    o.batch = batch, o.shuffle = shuffle, o.seed = seed;
    o.drop_last = drop_last, o.pad = pad, o.skip_broken = skip_broken;
    if (device != Py_None && !(o.device = gdpy_device_from(device))) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_dataset *d = NULL;
    source *s = NULL;
    if (object != Py_None) {
        d = source_dataset(&c, object, count, watched, &s);
        o.collate = source_collate;
        o.user = s;
    } else if (!(d = gdpy_handle(dataset, GDPY_DATASET, "dataset"))) return gdpy_cancel(&c);
    if (order != Py_None && gdpy_is(order, GDPY_SAMPLER)) {
        if (!(o.sampler = gdpy_handle(order, GDPY_SAMPLER, "sampler"))) return gdpy_cancel(&c);
    } else if (order != Py_None) o.sampler = order_new(c.site, order, positions);
    gd_loader *l = d && !gd_failed() ? gd_loader_new_at(c.site, d, &o) : NULL;
    gdpy_object *data = gdpy_object_data(self);
    if (l && gdpy_is(self, GDPY_LOADER) && data->handle) { /* the old content */
        void *old = data->handle;
        if (data->known) gdpy_forget_known(self);
        data->known = false;
        data->handle = NULL;
        release_loader(old);
    }
    return gdpy_end_object(&c, self, l);
}

/* _loader_next(self): the tensors of the next batch; None at the end of the epoch. */
static PyObject *core_loader_next(PyObject *module, PyObject *self) {
    (void)module;
    gd_loader *l = gdpy_handle(self, GDPY_LOADER, "self");
    if (!l) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gd_tensors batch;
    gd_retain(l); /* another thread may replace the content of self meanwhile */
    gdpy_release_gil(&c);
    const bool there = gd_loader_next_at(c.site, l, &batch);
    gdpy_take_gil(&c);
    PyObject *result = NULL;
    if (there) result = gdpy_tensor_tuple(batch);
    else if (gd_failed()) gdpy_raise();
    else result = Py_NewRef(Py_None);
    release_loader(l);
    gdpy_cancel(&c);
    return result;
}

static PyObject *core_loader_tell(PyObject *module, PyObject *self) {
    (void)module;
    gd_loader *l = gdpy_handle(self, GDPY_LOADER, "self");
    if (!l) return NULL;
    const gd_loader_position at = gd_loader_tell(l);
    return Py_BuildValue("(LL)", (long long)at.epoch, (long long)at.batch);
}

static PyObject *core_loader_seek(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    long long epoch, batch;
    if (!PyArg_ParseTuple(args, "OLL", &self, &epoch, &batch)) return NULL;
    gd_loader *l = gdpy_handle(self, GDPY_LOADER, "self");
    if (!l) return NULL;
    gdpy_call c;
    gdpy_open(&c);
    gdpy_release_gil(&c); /* it may end workers */
    return gdpy_end_status(&c, gd_loader_seek_at(c.site, l, (gd_loader_position){epoch, batch}));
}

static PyObject *core_loader_stop(PyObject *module, PyObject *self) {
    (void)module;
    gd_loader *l = gdpy_handle(self, GDPY_LOADER, "self");
    if (!l) return NULL;
    if (!is_worker) {
        PyThreadState *state = PyEval_SaveThread();
        gd_loader_stop(l);
        PyEval_RestoreThread(state);
    }
    return Py_NewRef(Py_None);
}

static PyObject *core_loader_batches(PyObject *module, PyObject *self) {
    (void)module;
    gd_loader *l = gdpy_handle(self, GDPY_LOADER, "self");
    return l ? PyLong_FromLongLong(gd_loader_batches(l)) : NULL;
}
static PyObject *core_loader_skipped(PyObject *module, PyObject *self) {
    (void)module;
    gd_loader *l = gdpy_handle(self, GDPY_LOADER, "self");
    return l ? PyLong_FromLongLong(gd_loader_skipped(l)) : NULL;
}

static PyObject *core_forget_exception(PyObject *module, PyObject *exception) {
    (void)module;
    gdpy_forget_exception(exception);
    return Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"_loader_init", core_loader_init, METH_VARARGS, NULL},
    {"_loader_next", core_loader_next, METH_O, NULL},
    {"_loader_tell", core_loader_tell, METH_O, NULL},
    {"_loader_seek", core_loader_seek, METH_VARARGS, NULL},
    {"_loader_stop", core_loader_stop, METH_O, NULL},
    {"_loader_batches", core_loader_batches, METH_O, NULL},
    {"_loader_skipped", core_loader_skipped, METH_O, NULL},
    {"_forget_exception", core_forget_exception, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int gdpy_data_init(PyObject *module) {
    if (PyModule_AddFunctions(module, functions) < 0) return -1;
    if (PyModule_AddFunctions(module, gdpy_segment_functions) < 0) return -1;
    return PyModule_AddFunctions(module, gdpy_data_functions);
}
