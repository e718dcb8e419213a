/* log.c - what the library logs, for Python's logging.
 *
 * The library logs from any thread, also from one that holds a lock for which a thread with the GIL waits.
 * So a message is only queued, and Python's main thread passes it on as soon as it can. */
#include "binding.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct message {
    struct message *next;
    gd_log_level level;
    char text[];
} message;

static struct {
    pthread_mutex_t lock;
    message *first, **end;
    int count;
    bool requested; /* a call of deliver is pending */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = &queue.first};
enum { MOST = 1000 }; /* messages that wait; later ones are dropped */

static PyObject *logger; /* logging.getLogger("gradus"), when the first message comes */

static message *take_all(void) {
    pthread_mutex_lock(&queue.lock);
    message *first = queue.first;
    queue.first = NULL;
    queue.end = &queue.first;
    queue.count = 0;
    queue.requested = false;
    pthread_mutex_unlock(&queue.lock);
    return first;
}

static void pass_on(const message *m) {
    static const int levels[] = {10, 20, 30, 40}; /* logging.DEBUG to logging.ERROR */
    if (!logger) {
        PyObject *logging = PyImport_ImportModule("logging");
        logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "gradus") : NULL;
        Py_XDECREF(logging);
    }
    PyObject *done =
        logger ? PyObject_CallMethod(logger, "log", "iss", levels[m->level], "%s", m->text) : NULL;
    if (!done) PyErr_WriteUnraisable(logger);
    Py_XDECREF(done);
}

static int deliver(void *none) {
    (void)none;
    for (message *m = take_all(), *next; m; m = next) {
        next = m->next;
        pass_on(m);
        free(m);
    }
    return 0;
}

static void log_message(gd_log_level level, const char *text, void *user) {
    (void)user;
    const size_t length = strlen(text) + 1;
    message *m = malloc(sizeof *m + length);
    if (!m) return;
    *m = (message){.level = level};
    memcpy(m->text, text, length);
    pthread_mutex_lock(&queue.lock);
    bool kept = queue.count < MOST, request = kept && !queue.requested;
    if (kept) {
        *queue.end = m;
        queue.end = &m->next;
        queue.count++;
        queue.requested = true;
    }
    pthread_mutex_unlock(&queue.lock);
    if (!kept) free(m);
    if (request && gdpy_alive() && Py_AddPendingCall(deliver, NULL) != 0) {
        pthread_mutex_lock(
            &queue.lock); /* the interpreter's own queue is full: try with the next one */
        queue.requested = false;
        pthread_mutex_unlock(&queue.lock);
    }
}

int gdpy_log_init(PyObject *module) {
    (void)module;
    gd_set_log(log_message, NULL);
    return 0;
}
