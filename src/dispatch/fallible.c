/* fallible.c - error messages for bad data that kernels of asynchronous devices find.
 *
 * The host reads the error word long after the call. Until then this file keeps op, shapes and
 * source location of every call that may fail. Eager calls are kept in a ring buffer; if newer
 * calls have overwritten an entry, the message names the device alone. The calls of a plan are kept
 * as long as the plan's instance.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fork.h"
#include "core/number.h"
#include "dispatch/call.h"
#include "dispatch/launch.h"
#include "dispatch/problem.h"

enum { RING_ENTRIES = 4096, MAX_INPUTS = 6 };

typedef struct operand {
    uint8_t dtype, rank; /* dtype GD_DTYPE_NONE: absent */
    int64_t dims[GD_MAX_RANK];
} operand;

/* What a kernel checks: the operand with the elements, and the name of the thing that they
 * index. */
typedef struct checked_data {
    operand operand;
    const char *what; /* static or interned; NULL: the op has no option `what` */
} checked_data;

typedef struct eager_call {
    gd_device *device;
    uint64_t number;
    checked_data checked;
    const gd_op *op;
    const char *site;
    int n_in;
    operand in[MAX_INPUTS];
} eager_call;

typedef struct plan_call {
    struct plan_call *next;
    gd_device *device;
    uint64_t number;
    checked_data checked;
    const char *name, *site;
} plan_call;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(lock)
static eager_call *ring; /* RING_ENTRIES of them, allocated by the first call */
static plan_call *plan_calls;

bool gd_op_is_fallible(const gd_op *op, const gd_view *in, int n_in) {
    if (op->ir) return false;
    if (op->facts.checks || (op->flags & GD_OP_FALLIBLE)) return true;
    for (int i = 0; i < n_in; i++)
        if (in[i].data && gd_dtype_is_int(in[i].dtype)) return true;
    return false;
}

/* --- recording calls -------------------------------------------------------------------------- */

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

/* The checked operand is the first input, unless the op's record names another. */
static checked_data checked_data_of(const gd_kernel_call *call) {
    const gd_op *op = call->op;
    const int input = op->facts.checks ? op->facts.index.tensor : 0;
    checked_data c = {.what = op->facts.checks ? "a table" : NULL}; /* for op embedding */
    if (input < call->n_in) c.operand = operand_of_view(&call->in[input]);
    for (int i = 0; i < op->n_attrs && call->attrs; i++)
        if (op->attrs[i].type == GD_ATTR_STRING && strcmp(op->attrs[i].name, "what") == 0)
            memcpy(&c.what, (const char *)call->attrs + op->attrs[i].offset, sizeof c.what);
    return c;
}

void gd_call_record(gd_kernel_call *call) {
    const uint64_t number = gd_device_number(call->device);
    const gd_invocation *outer = gd_this_thread.body; /* the op that the program has called */
    pthread_mutex_lock(&lock);
    if (!ring) ring = gd_calloc(RING_ENTRIES, sizeof *ring);
    if (ring) {
        eager_call *e = &ring[number % RING_ENTRIES];
        e->device = call->device;
        e->number = number;
        e->checked = checked_data_of(call);
        e->op = outer ? outer->op : call->op;
        e->site = outer ? outer->site : call->site;
        e->n_in = outer ? outer->n_in : call->n_in;
        for (int i = 0; i < e->n_in && i < MAX_INPUTS; i++)
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
    *p = (plan_call){plan_calls, call->device, call->number, checked_data_of(call), name, site};
    plan_calls = p;
    pthread_mutex_unlock(&lock);
    return GD_OK;
}

void gd_call_forget(gd_device *device, uint64_t number) {
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

/* "index 9 at position [1] is out of range for axis 0 of size 4 (0 to 3)" */
static gd_status fail_index(const gd_data_error *e, const gd_data_operand *o, const char *what) {
    int64_t position[GD_MAX_RANK], rest = e->element;
    char text[128], range[64] = "it is empty";
    const bool is_signed = strncmp(what, "signed ", 7) == 0;
    for (int d = o->rank; d-- > 0; rest /= o->dims[d]) position[d] = rest % o->dims[d];
    const long long size = e->values[1];
    if (size > 0) snprintf(range, sizeof range, "%lld to %lld", is_signed ? -size : 0, size - 1);
    return gd_fail(GD_E_INDEX,
                   "index %lld at position %s%s is out of range for %s of size %lld (%s)",
                   (long long)e->values[0], gd_shape_text(o->rank, position, text, sizeof text),
                   is_signed ? " of the indices" : "", is_signed ? what + 7 : what, size, range);
}

/* Bad weights of multinomial; gd_data_problem says what the values mean. */
static gd_status fail_weights(const gd_data_error *e, const gd_data_operand *o) {
    const int64_t classes = o->dims[o->rank - 1];
    const long long row = e->element / classes, column = e->element % classes;
    if (e->values[0] < 0)
        return gd_fail(GD_E_ARGUMENT,
                       "weight %lld of row %lld is %g; weights must be 0 or more, and finite",
                       column, row, gd_shown_number(e->real));
    if (e->values[1] == 0)
        return gd_fail(GD_E_ARGUMENT, "the weights of row %lld add up to %g", row,
                       gd_shown_number(e->real));
    return gd_fail(GD_E_ARGUMENT,
                   "row %lld has %lld classes with a weight above 0; %lld cannot be drawn without "
                   "replacement",
                   row, (long long)e->values[0], (long long)e->values[1]);
}

gd_status gd_data_fail(const gd_data_error *e, const gd_data_operand *o) {
    const long long a = e->values[0], b = e->values[1], c = e->values[2], element = e->element;
    char axis[48];
    switch ((gd_data_problem)e->problem) {
    case GD_DATA_INDEX: /* only one_hot_found has no option `what` */
        return fail_index(e, o, o->what ? o->what : "a list of classes");
    case GD_DATA_AXIS_INDEX:
        snprintf(axis, sizeof axis, "axis %lld", c);
        return fail_index(e, o, axis);
    case GD_DATA_CLASS:
        snprintf(axis, sizeof axis, " (%lld is ignored)", c);
        return gd_fail(GD_E_INDEX, "target %lld is class %lld, but classes are 0 to %lld%s",
                       element, a, b - 1, c == GD_UNSET ? "" : axis);
    case GD_DATA_PLANE_INDEX:
        return gd_fail(GD_E_INDEX, "index %lld is out of range for a plane of %lld elements", a, b);
    case GD_DATA_PROBABILITY:
        return gd_fail(GD_E_ARGUMENT,
                       "element %lld of 'p' is %g; a probability must be from 0 to 1", element,
                       gd_shown_number(e->real));
    case GD_DATA_NOT_FINITE:
        return gd_fail(GD_E_STATE, "element %lld is %g, which is not finite", element,
                       gd_shown_number(e->real));
    case GD_DATA_TOO_FEW:
        return gd_fail(GD_E_SHAPE,
                       "the mask has %lld true elements, but 'src' has only %lld elements", a, b);
    case GD_DATA_WEIGHTS: return fail_weights(e, o);
    case GD_DATA_OK: break;
    }
    return gd_fail(GD_E_STATE, "a kernel found bad data");
}

static void describe_operand(const void *call, int i, char *text, size_t size) {
    const operand *o = &((const eager_call *)call)->in[i];
    char shape[160];
    if (o->dtype == GD_DTYPE_NONE) snprintf(text, size, "absent");
    else
        snprintf(text, size, "%s%s", gd_dtype_name(o->dtype),
                 gd_shape_text(o->rank, o->dims, shape, sizeof shape));
}

/* Fails with the message of the call that has set the error word. */
static gd_status explain_error(gd_device *device, const gd_data_error *error) {
    char text[640] = "";
    const char *site = NULL;
    /* the shape for a call that was overwritten: the element's position is its number */
    checked_data checked = {.operand = {.rank = 1, .dims = {INT64_MAX}}};
    pthread_mutex_lock(&lock);
    const eager_call *e = ring ? &ring[error->number % RING_ENTRIES] : NULL;
    const plan_call *p = plan_calls;
    while (p && (p->device != device || p->number != error->number)) p = p->next;
    if (p) {
        snprintf(text, sizeof text, "%s", p->name);
        site = p->site;
        checked = p->checked;
    } else if (e && e->device == device && e->number == error->number) {
        const int n_in = e->n_in < MAX_INPUTS ? e->n_in : MAX_INPUTS;
        gd_describe_call(e->op, n_in, describe_operand, e, text, sizeof text);
        site = e->site;
        checked = e->checked;
    } else {
        snprintf(text, sizeof text, "a kernel on %s", device->name);
    }
    pthread_mutex_unlock(&lock);
    gd_status status = gd_data_fail(
        error, &(gd_data_operand){checked.operand.rank, checked.operand.dims, checked.what});
    gd_error_prefix("%s: ", text);
    if (site) gd_error_location(site);
    return status;
}

__attribute__((constructor)) static void set_error_hook(void) {
    gd_data_error_hook = explain_error;
}
