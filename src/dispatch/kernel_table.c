/* kernel_table.c - the kernel table: the kernels of each op for each kind of device, best first, and
 * the choice among them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/fork.h"
#include "gradus/testing.h"
#include "dispatch/intern.h"
#include "dispatch/kernel_files.h"
#include "dispatch/table.h"

static pthread_mutex_t kernel_lock = PTHREAD_MUTEX_INITIALIZER;
GD_INNER_MUTEX_AT_FORK(kernel_lock)
static bool reference_only; /* GRADUS_KERNELS=reference */
static bool bodies_only;    /* GRADUS_KERNELS=bodies */
/* The kernel that gd_set_kernel prefers: of this op, and its name. */
static const char *preferred_op, *preferred_kernel;

/* Kernels for all elementwise ops: those registered for op "elementwise". */
static gd_kernel_list elementwise_kernels[GD_DEVICE_KINDS];
static const gd_kernel *elementwise_first[GD_MAX_KERNELS];
/* Kernels for all fused ops that end in a reduction: op "fused_reduction". */
static gd_kernel_list reduction_kernels[GD_DEVICE_KINDS];
static const gd_kernel *reduction_first[GD_MAX_KERNELS];
/* Kernels that run an elementwise op for each entry of a list (gd_each in call.h): op
 * "elementwise_list". */
static gd_kernel_list list_kernels[GD_DEVICE_KINDS];
static const gd_kernel *list_first[GD_MAX_KERNELS];

static gd_kernel_list *find_kernels(gd_kernel_list *lists, const char *device) {
    for (int i = 0; i < GD_DEVICE_KINDS && lists[i].device; i++)
        if (lists[i].device == device || strcmp(lists[i].device, device) == 0) return &lists[i];
    return NULL;
}

static gd_status add_kernel_list(gd_kernel_list *lists, const gd_kernel **first, const char *device,
                                 gd_kernel_list **made) {
    int i = 0;
    while (i < GD_DEVICE_KINDS && lists[i].device) i++;
    if (i == GD_DEVICE_KINDS)
        return gd_fail(GD_E_ARGUMENT, "more than %d kinds of device", GD_DEVICE_KINDS);
    lists[i].entries = i == 0 ? first : gd_calloc_until_exit(GD_MAX_KERNELS * sizeof *first);
    if (!lists[i].entries) return gd_fail(GD_E_MEMORY, "no memory for a kernel entry");
    lists[i].device = device;
    *made = &lists[i];
    return GD_OK;
}

gd_status gd_kernel_insert(const gd_op *op, const gd_kernel *kernel) {
    gd_kernel_list *lists = elementwise_kernels;
    const gd_kernel **first = elementwise_first;
    if (op) {
        lists = op->state->kernels;
        first = op->state->first;
    } else if (strcmp(kernel->op, "fused_reduction") == 0) {
        lists = reduction_kernels;
        first = reduction_first;
    } else if (strcmp(kernel->op, "elementwise_list") == 0) {
        lists = list_kernels;
        first = list_first;
    } else if (strcmp(kernel->op, "elementwise") != 0) {
        return gd_fail(GD_E_ARGUMENT, "the kernel's op '%s' does not exist", kernel->op);
    }
    gd_kernel_list *list = find_kernels(lists, kernel->device);
    if (!list) GD_TRY(add_kernel_list(lists, first, kernel->device, &list));
    if (list->count == GD_MAX_KERNELS)
        return gd_fail(GD_E_ARGUMENT, "more than %d kernels for '%s'", GD_MAX_KERNELS, kernel->op);
    const gd_kernel **entries = list->entries;
    int at = list->count++;
    for (; at > 0 && entries[at - 1]->rank < kernel->rank; at--) entries[at] = entries[at - 1];
    entries[at] = kernel;
    return GD_OK;
}

/* "OP.KERNEL" */
static void read_preferred(const char *text) {
    static char name[128];
    const int length = snprintf(name, sizeof name, "%s", text);
    char *dot = strchr(name, '.');
    if (dot) *dot = 0;
    if (!dot || length >= (int)sizeof name || !gd_op_lookup(name)) {
        gd_notice(GD_LOG_WARNING,
                  "GRADUS_KERNELS is '%s'; it is 'reference', 'bodies', or an op and one of its "
                  "kernels, as "
                  "'conv2d.gemm'",
                  text);
        return;
    }
    preferred_op = name;
    preferred_kernel = dot + 1;
}

void gd_read_kernels(void) {
    const char *which = getenv("GRADUS_KERNELS");
    reference_only = which && strcmp(which, "reference") == 0;
    bodies_only = which && strcmp(which, "bodies") == 0;
    if (which && *which && !reference_only && !bodies_only) read_preferred(which);
    for (int f = 0; f < gd_op_file_count; f++)
        for (int i = 0; i < gd_op_files[f].count; i++) {
            const gd_op *op = gd_op_files[f].ops[i];
            if (op->reference && !op->base) gd_kernel_insert(op, op->reference);
        }
    for (int f = 0; f < gd_kernel_file_count_cpu; f++)
        for (int i = 0; i < gd_kernel_files_cpu[f]->count; i++) {
            const gd_kernel *kernel = &gd_kernel_files_cpu[f]->kernels[i];
            gd_kernel_insert(gd_op_lookup(kernel->op), kernel);
        }
}

gd_status gd_kernel_add(const gd_kernel *kernel) {
    gd_table_init();
    if (!kernel || !kernel->op || !kernel->device || !kernel->run)
        return gd_fail(GD_E_ARGUMENT, "gd_kernel_register: op, device and run must be set");
    const gd_op *op = gd_op_find(kernel->op);
    pthread_mutex_lock(&kernel_lock);
    gd_status status = gd_kernel_insert(op, kernel);
    pthread_mutex_unlock(&kernel_lock);
    return status;
}

gd_status gd_kernel_register(const gd_kernel *kernel) {
    return gd_report(NULL, gd_kernel_add(kernel));
}

static bool takes_dtype(const gd_kernel *k, const gd_kernel_call *call) {
    return !k->dtypes || (k->dtypes >> call->out[0].dtype & 1);
}

static bool is_preferred(const gd_kernel *k) {
    return preferred_kernel && strcmp(k->op, preferred_op) == 0 &&
           strcmp(k->variant, preferred_kernel) == 0;
}

/* Whether kernel i of the list can run the call. */
static inline bool kernel_matches(const gd_kernel_list *list, int i, const gd_kernel_call *call) {
    const gd_kernel *k = list->entries[i];
    if (reference_only && k->rank > 0 && list->entries[list->count - 1]->rank == 0) return false;
    return takes_dtype(k, call) && (!k->match || k->match(call));
}

/* Says once that the op of GRADUS_KERNELS has no such kernel on a device. */
static void say_unknown(const gd_kernel_list *list) {
    static atomic_bool said;
    char names[300] = "";
    size_t used = 0;
    for (int i = 0; i < list->count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 list->entries[i]->variant);
    if (!atomic_exchange(&said, true))
        gd_notice(GD_LOG_WARNING, "GRADUS_KERNELS: %s has no kernel '%s' for %s; it has: %s",
                  preferred_op, preferred_kernel, list->device, names);
}

/* The preferred kernel if it can run the call; NULL: another one runs. */
static const gd_kernel *select_preferred(const gd_kernel_list *list, const gd_kernel_call *call) {
    for (int i = 0; i < list->count; i++)
        if (is_preferred(list->entries[i]))
            return kernel_matches(list, i, call) ? list->entries[i] : NULL;
    if (list->count && strcmp(list->entries[0]->op, preferred_op) == 0) say_unknown(list);
    return NULL;
}

/* Kernels are registered before they are used, so reading takes no lock. */
static const gd_kernel *select_kernel(gd_kernel_list *lists, const gd_kernel_call *call,
                                      const char *device) {
    const gd_kernel_list *list = find_kernels(lists, device);
    const gd_kernel *k = preferred_kernel && list ? select_preferred(list, call) : NULL;
    if (k) return k;
    for (int i = 0; list && i < list->count; i++)
        if (kernel_matches(list, i, call)) return list->entries[i];
    return NULL;
}

const gd_kernel *gd_kernel_select(const gd_op *op, const gd_kernel_call *call, const char *device) {
    gd_table_init();
    if (call->each) return select_kernel(list_kernels, call, device);
    const gd_kernel *k = select_kernel(op->state->kernels, call, device);
    if (!k && op->ir) k = select_kernel(elementwise_kernels, call, device);
    if (!k && op->fusion) k = select_kernel(reduction_kernels, call, device);
    return k;
}

const gd_kernel *gd_kernel_select_next(const gd_op *op, const gd_kernel_call *call,
                                       const char *device) {
    gd_kernel_list *const lists[] = {call->each ? list_kernels : op->state->kernels,
                                     !call->each && op->ir ? elementwise_kernels : NULL,
                                     !call->each && op->fusion ? reduction_kernels : NULL};
    bool passed =
        is_preferred(call->kernel); /* the kernel that declined; a preferred one was first */
    for (int l = 0; l < 3; l++) {
        const gd_kernel_list *list = lists[l] ? find_kernels(lists[l], device) : NULL;
        for (int i = 0; list && i < list->count; i++)
            if (!passed) passed = list->entries[i] == call->kernel;
            else if (!is_preferred(list->entries[i]) && kernel_matches(list, i, call))
                return list->entries[i];
    }
    return NULL;
}

bool gd_kernel_exists(const gd_op *op, const char *device) {
    gd_table_init();
    if (op->base) op = op->base;
    if (bodies_only && op->expand) return false;
    gd_kernel_list *own = find_kernels(op->state->kernels, device);
    /* if an op has no reference kernel, its body is the reference */
    if (own && reference_only && op->expand && own->entries[own->count - 1]->rank > 0) own = NULL;
    return own || (op->ir && find_kernels(elementwise_kernels, device)) ||
           ((op->flags & GD_OP_VIEW) && op->infer);
}

bool gd_kernels_are_partial(const gd_op *op, const char *device) {
    gd_table_init();
    const gd_kernel_list *own = find_kernels(op->state->kernels, device);
    for (int i = 0; own && i < own->count; i++)
        if (!own->entries[i]->match && !own->entries[i]->dtypes) return false;
    return own != NULL;
}

bool gd_list_kernel_exists(const char *device) {
    gd_table_init();
    return !reference_only && find_kernels(list_kernels, device);
}

bool gd_reference_only(void) {
    gd_table_init();
    return reference_only;
}

void gd_set_reference_kernels(bool on) {
    gd_table_init();
    reference_only = on;
}

void gd_set_op_bodies(bool on) {
    gd_table_init();
    bodies_only = on;
}

void gd_set_kernel(const char *op, const char *kernel) {
    gd_table_init();
    preferred_op = op;
    preferred_kernel = op ? kernel : NULL;
}

const gd_kernel *gd_op_kernel_at(const gd_op *op, const char *device_kind, int index) {
    gd_table_init();
    if (!op || !device_kind || index < 0) return NULL;
    if (op->base) op = op->base;
    gd_kernel_list *const lists[] = {op->state->kernels, op->ir ? elementwise_kernels : NULL,
                                     op->fusion ? reduction_kernels : NULL};
    for (int l = 0; l < 3; l++) {
        const gd_kernel_list *list = lists[l] ? find_kernels(lists[l], device_kind) : NULL;
        if (!list) continue;
        if (index < list->count) return list->entries[index];
        index -= list->count;
    }
    return NULL;
}

const char *gd_op_kernels(const gd_op *op, const char *device_kind, char *text, size_t size) {
    const gd_kernel *kernel;
    size_t used = 0;
    if (!text) size = 0;
    if (size) *text = 0;
    for (int i = 0; used < size && (kernel = gd_op_kernel_at(op, device_kind, i)); i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", kernel->variant);
    return text;
}
