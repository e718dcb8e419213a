/* fallible.c - calls of asynchronous devices that may find bad data: what the host remembers of them
 * until it has read the error word.
 *
 * An eager call is remembered in a ring of the latest ones; where the ring has gone round, the
 * message names the device alone. The calls of a plan are remembered as long as the plan's instance.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fork.h"
#include "ops/launch.h"

enum { RING = 4096, MOST_INPUTS = 6 };

typedef struct operand {
    uint8_t dtype, rank; /* dtype GD_DTYPE_NONE: absent */
    int64_t dims[GD_MAX_RANK];
} operand;

typedef struct eager_call {
    gd_device *device;
    uint64_t number;
    const gd_op *op;
    const char *site;
    int n_in;
    operand in[MOST_INPUTS];
} eager_call;

typedef struct plan_call {
    struct plan_call *next;
    gd_device *device;
    uint64_t number;
    const char *name, *site;
} plan_call;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(lock)
static eager_call *ring; /* RING entries, made with the first call */
static plan_call *plan_calls;

bool gd_op_is_fallible(const gd_op *op, const gd_view *in, int n_in) {
    if (op->ir) return false;
    if (op->facts.checks || (op->flags & GD_OP_REFUSES)) return true;
    for (int i = 0; i < n_in; i++)
        if (in[i].data && gd_dtype_is_int(in[i].dtype)) return true;
    return false;
}

/* --- remembering ------------------------------------------------------------------------------ */

static operand operand_of_view(const gd_view *v) {
    operand o = {.dtype = (uint8_t)(v->data ? v->dtype : GD_DTYPE_NONE), .rank = (uint8_t)v->rank};
    memcpy(o.dims, v->dims, sizeof o.dims);
    return o;
}

static operand operand_of_tensor(const gd_tensor *t) {
    operand o = {.dtype = t ? t->dtype : GD_DTYPE_NONE, .rank = t ? t->rank : 0};
    if (t) memcpy(o.dims, t->dims, sizeof o.dims);
    return o;
}

void gd_call_enroll(gd_kernel_call *call) {
    const uint64_t number = gd_device_number(call->device);
    const gd_invocation *outer = gd_this_thread.body; /* the program called that op */
    pthread_mutex_lock(&lock);
    if (!ring) ring = gd_calloc(RING, sizeof *ring);
    if (ring) {
        eager_call *e = &ring[number % RING];
        e->device = call->device;
        e->number = number;
        e->op = outer ? outer->op : call->op;
        e->site = outer ? outer->site : call->site;
        e->n_in = outer ? outer->n_in : call->n_in;
        for (int i = 0; i < e->n_in && i < MOST_INPUTS; i++)
            e->in[i] = outer ? operand_of_tensor(outer->in[i]) : operand_of_view(&call->in[i]);
    }
    pthread_mutex_unlock(&lock);
    call->number = number;
}

gd_status gd_call_enroll_step(gd_kernel_call *call, const char *name, const char *site) {
    plan_call *p = gd_malloc(sizeof *p);
    if (!p) return gd_fail(GD_E_MEMORY, "no memory for a run");
    call->number = gd_device_number(call->device);
    pthread_mutex_lock(&lock);
    *p = (plan_call){plan_calls, call->device, call->number, name, site};
    plan_calls = p;
    pthread_mutex_unlock(&lock);
    return GD_OK;
}

void gd_call_withdraw(gd_device *device, uint64_t number) {
    pthread_mutex_lock(&lock);
    for (plan_call **at = &plan_calls, *p; (p = *at); at = &p->next)
        if (p->device == device && p->number == number) {
            *at = p->next;
            gd_free(p);
            break;
        }
    pthread_mutex_unlock(&lock);
}

/* --- messages --------------------------------------------------------------------------------- */

gd_status gd_data_fail(const gd_data_error *e) {
    const long long a = e->values[0], b = e->values[1], c = e->values[2];
    switch ((gd_data_problem)e->problem) {
    case GD_DATA_INDEX:
        return gd_fail(GD_E_INDEX,
                       "element %lld of the index is %lld; it must be at least 0 and below %lld",
                       (long long)e->element, a, b);
    case GD_DATA_AXIS_INDEX:
        return gd_fail(GD_E_INDEX, "index %lld is out of range for axis %lld of size %lld", a, c,
                       b);
    case GD_DATA_CLASS:
        return gd_fail(
            GD_E_INDEX,
            "target %lld is class %lld, and there are classes 0 to %lld (%lld is ignored)",
            (long long)e->element, a, b - 1, c);
    case GD_DATA_PLACE: return gd_fail(GD_E_INDEX, "place %lld in a plane of %lld elements", a, b);
    case GD_DATA_PROBABILITY:
        return gd_fail(GD_E_ARGUMENT, "element %lld of p is %g, which is no probability",
                       (long long)e->element, e->real);
    case GD_DATA_NOT_FINITE:
        return gd_fail(GD_E_STATE, "element %lld is %g", (long long)e->element, e->real);
    case GD_DATA_TOO_FEW:
        return gd_fail(GD_E_SHAPE, "the mask selects %lld elements, and there are %lld", a, b);
    case GD_DATA_WEIGHTS:
        return gd_fail(GD_E_ARGUMENT, "row %lld has %lld positive weights for %lld draws",
                       (long long)e->element, a, b);
    case GD_DATA_OK: break;
    }
    return gd_fail(GD_E_STATE, "a kernel has found bad data");
}

/* "gather(x f32[4,2], index i64[2]): " */
static void describe_eager_call(const eager_call *e, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s(", e->op->name);
    for (int i = 0; i < e->n_in && i < MOST_INPUTS && used < size - 1; i++) {
        const int last = e->op->n_inputs - 1;
        const char *name = last < 0 ? "extra" : e->op->inputs[i < last ? i : last].name;
        const operand *o = &e->in[i];
        char shape[160] = "";
        if (o->dtype != GD_DTYPE_NONE) gd_shape_text(o->rank, o->dims, shape, sizeof shape);
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s %s%s", i ? ", " : "", name,
                             o->dtype == GD_DTYPE_NONE ? "absent" : gd_dtype_name(o->dtype), shape);
    }
    if (used < size - 1) snprintf(text + used, size - used, "): ");
}

static gd_status explain_error(gd_device *device, const gd_data_error *error) {
    char text[640] = "";
    const char *site = NULL;
    pthread_mutex_lock(&lock);
    const eager_call *e = ring ? &ring[error->number % RING] : NULL;
    const plan_call *p = plan_calls;
    while (p && (p->device != device || p->number != error->number)) p = p->next;
    if (p) {
        snprintf(text, sizeof text, "%s: ", p->name);
        site = p->site;
    } else if (e && e->device == device && e->number == error->number) {
        describe_eager_call(e, text, sizeof text);
        site = e->site;
    } else {
        snprintf(text, sizeof text, "a kernel on %s: ", device->name);
    }
    pthread_mutex_unlock(&lock);
    gd_status status = gd_data_fail(error);
    gd_error_prefix("%s", text);
    if (site) gd_error_place(site);
    return status;
}

__attribute__((constructor)) static void set_hook(void) { gd_data_error_hook = explain_error; }
