/* table.c - the op table and the kernel table at run time, and lists of tensors. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/freed.h"
#include "core/alloc.h"
#include "core/fork.h"
#include "gradus/testing.h"
#include "dispatch/intern.h"
#include "dispatch/kernel_family.h"
#include "dispatch/op.h"

enum { MAX_OPS = 4096 };
static const gd_op *table[MAX_OPS]; /* sorted by name */
static int table_count;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
GD_INNER_MUTEX_AT_FORK(table_lock)
static pthread_once_t table_once = PTHREAD_ONCE_INIT;
static bool reference_only; /* GRADUS_KERNELS=reference */
static bool bodies_only;    /* GRADUS_KERNELS=bodies */

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

/* --- ops -------------------------------------------------------------------------------------- */

/* The index at which the op is in the table or would be inserted. */
static int table_index(const char *name) {
    int low = 0, high = table_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (strcmp(table[middle]->name, name) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static gd_status insert_op(const gd_op *op) {
    int at = table_index(op->name);
    if (at < table_count && strcmp(table[at]->name, op->name) == 0)
        return gd_fail(GD_E_ARGUMENT, "there is an op '%s' already", op->name);
    if (table_count == MAX_OPS) return gd_fail(GD_E_ARGUMENT, "more than %d ops", MAX_OPS);
    memmove(&table[at + 1], &table[at], (size_t)(table_count - at) * sizeof *table);
    table[at] = op;
    table_count++;
    return GD_OK;
}

static void remove_op(const gd_op *op) {
    int at = table_index(op->name);
    memmove(&table[at], &table[at + 1], (size_t)(--table_count - at) * sizeof *table);
}

/* --- kernels ---------------------------------------------------------------------------------- */

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

static gd_status add_kernel(const gd_kernel *kernel) {
    gd_kernel_list *lists = elementwise_kernels;
    const gd_kernel **first = elementwise_first;
    if (strcmp(kernel->op, "fused_reduction") == 0) {
        lists = reduction_kernels;
        first = reduction_first;
    } else if (strcmp(kernel->op, "elementwise_list") == 0) {
        lists = list_kernels;
        first = list_first;
    } else if (strcmp(kernel->op, "elementwise") != 0) {
        int at = table_index(kernel->op);
        if (at == table_count || strcmp(table[at]->name, kernel->op) != 0)
            return gd_fail(GD_E_ARGUMENT, "the kernel's op '%s' does not exist", kernel->op);
        lists = table[at]->state->kernels;
        first = table[at]->state->first;
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

static void read_generated_lists(void) {
    const char *which = getenv("GRADUS_KERNELS");
    reference_only = which && strcmp(which, "reference") == 0;
    bodies_only = which && strcmp(which, "bodies") == 0;
    for (int f = 0; f < gd_op_family_count; f++)
        for (int i = 0; i < gd_op_families[f].count; i++) insert_op(gd_op_families[f].ops[i]);
    for (int i = 0; i < table_count; i++)
        if (table[i]->reference && !table[i]->base) add_kernel(table[i]->reference);
    for (int f = 0; f < gd_kernel_family_count_cpu; f++)
        for (int i = 0; i < gd_kernel_families_cpu[f]->count; i++)
            add_kernel(&gd_kernel_families_cpu[f]->kernels[i]);
}

void gd_table_init(void) { pthread_once(&table_once, read_generated_lists); }

gd_status gd_kernel_add(const gd_kernel *kernel) {
    gd_table_init();
    if (!kernel || !kernel->op || !kernel->device || !kernel->run)
        return gd_fail(GD_E_ARGUMENT, "gd_kernel_register: op, device and run must be set");
    pthread_mutex_lock(&table_lock);
    gd_status status = add_kernel(kernel);
    pthread_mutex_unlock(&table_lock);
    return status;
}

gd_status gd_kernel_register(const gd_kernel *kernel) {
    return gd_report(NULL, gd_kernel_add(kernel));
}

static bool takes_dtype(const gd_kernel *k, const gd_kernel_call *call) {
    return !k->dtypes || (k->dtypes >> call->out[0].dtype & 1);
}

/* Kernels are registered before they are used, so reading takes no lock. */
static const gd_kernel *select_kernel(gd_kernel_list *lists, const gd_kernel_call *call,
                                      const char *device) {
    gd_kernel_list *list = find_kernels(lists, device);
    for (int i = 0; list && i < list->count; i++) {
        const gd_kernel *k = list->entries[i];
        if (reference_only && k->rank > 0 && list->entries[list->count - 1]->rank == 0) continue;
        if (takes_dtype(k, call) && (!k->match || k->match(call))) return k;
    }
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

/* --- reading ---------------------------------------------------------------------------------- */

const gd_op *gd_op_find(const char *name) {
    gd_table_init();
    if (!name) return NULL;
    pthread_mutex_lock(&table_lock);
    int at = table_index(name);
    const gd_op *op = at < table_count && strcmp(table[at]->name, name) == 0 ? table[at] : NULL;
    pthread_mutex_unlock(&table_lock);
    return op;
}

int gd_op_count(void) {
    gd_table_init();
    pthread_mutex_lock(&table_lock);
    int count = table_count;
    pthread_mutex_unlock(&table_lock);
    return count;
}

const gd_op *gd_op_at(int index) {
    gd_table_init();
    pthread_mutex_lock(&table_lock);
    const gd_op *op = index >= 0 && index < table_count ? table[index] : NULL;
    pthread_mutex_unlock(&table_lock);
    return op;
}

const char *gd_op_name(const gd_op *op) { return op ? op->name : ""; }
const char *gd_op_doc(const gd_op *op) { return op ? op->doc : ""; }
unsigned gd_op_flags(const gd_op *op) { return op ? op->flags : 0; }
int gd_op_input_count(const gd_op *op) { return op ? op->n_inputs : 0; }
int gd_op_output_count(const gd_op *op) { return op ? op->n_outputs : 0; }
int gd_op_attr_count(const gd_op *op) { return op ? op->n_attrs : 0; }
const gd_op_param *gd_op_input(const gd_op *op, int i) {
    return op && i >= 0 && i < op->n_inputs ? &op->inputs[i] : NULL;
}
const gd_op_param *gd_op_output(const gd_op *op, int i) {
    return op && i >= 0 && i < op->n_outputs ? &op->outputs[i] : NULL;
}
const gd_op_attr *gd_op_attr_at(const gd_op *op, int i) {
    return op && i >= 0 && i < op->n_attrs ? &op->attrs[i] : NULL;
}
const char *gd_op_onnx_name(const gd_op *op) { return op && op->onnx.name ? op->onnx.name : ""; }
const char *gd_op_caffe_name(const gd_op *op) { return op && op->caffe.name ? op->caffe.name : ""; }
bool gd_op_differentiable(const gd_op *op) {
    return op && !(op->flags & (GD_OP_NO_GRAD | GD_OP_TRUTH | GD_OP_INTEGRAL)) &&
           (op->vjp || op->ir || op->expand);
}

const char *gd_op_kernels(const gd_op *op, const char *device_kind, char *text, size_t size) {
    gd_table_init();
    size_t used = 0;
    if (!text) size = 0;
    if (size) *text = 0;
    if (!device_kind) device_kind = "";
    gd_kernel_list *lists[2] = {op ? find_kernels(op->state->kernels, device_kind) : NULL,
                                op && op->ir ? find_kernels(elementwise_kernels, device_kind)
                                             : NULL};
    for (int l = 0; l < 2; l++)
        for (int i = 0; lists[l] && i < lists[l]->count && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "",
                                     lists[l]->entries[i]->variant);
    return text;
}

/* --- lists of tensors ------------------------------------------------------------------------- */

/* Every run of a session creates short lists, so each thread caches some freed ones. */
enum { SHORT_LIST = 8, CACHED_LISTS = 32 };

typedef struct {
    gd_object object;
    bool is_short; /* has room for SHORT_LIST tensors */
    /* NULL, or a failed tensor behind the entries: when the list is freed, all entries point
     * to it */
    gd_tensor *last;
    gd_tensor *at[];
} tensor_list;

static void list_destroy(gd_object *object) {
    tensor_list *l = (tensor_list *)object;
    gd_thread *thread = &gd_this_thread;
    gd_object_count(-1);
    if (l->last && gd_keeps_freed(thread)) {
        for (gd_tensor **at = l->at; (void *)at < (void *)l->last; at++) *at = l->last;
        gd_freed_keep(l->last, l);
        return;
    }
#ifndef GD_SANITIZED
    if (l->is_short && thread->alive && thread->free_list_count < CACHED_LISTS) {
        *(void **)object = thread->free_lists;
        thread->free_lists = object;
        thread->free_list_count++;
        return;
    }
#endif
    gd_free(object);
}
static const gd_class list_class = {.name = "list", .destroy = list_destroy};

gd_tensor **gd_list_new(int64_t count) {
    if (gd_scope_reserve(1) != GD_OK) return NULL;
    gd_thread *thread = &gd_this_thread;
    const bool keep = gd_keeps_freed(thread), is_short = count <= SHORT_LIST && !keep;
    const size_t list_bytes =
        sizeof(tensor_list) +
        (size_t)(is_short || count < 1 ? SHORT_LIST : count) * sizeof(gd_tensor *);
    const size_t bytes = list_bytes + (keep ? sizeof(gd_tensor) : 0);
    tensor_list *l = is_short && !gd_faults_armed() ? thread->free_lists : NULL;
    if (l) {
        thread->free_lists = *(void **)l;
        thread->free_list_count--;
        memset(l, 0, bytes);
    } else {
        l = count < INT32_MAX ? gd_calloc(1, bytes) : NULL; /* kernel calls count them in an int */
    }
    if (!l) {
        gd_fail(GD_E_MEMORY, "no memory for a list of %lld tensors", (long long)count);
        return NULL;
    }
    l->is_short = is_short;
    l->last = keep ? (gd_tensor *)(void *)((char *)l + list_bytes) : NULL;
    if (keep)
        *l->last = (gd_tensor){.kind = GD_FAILED, .device = gd_cpu(), .made_site = thread->site};
    gd_object_init(&l->object, &list_class);
    gd_object_count(1);
    gd_scope_adopt(&l->object);
    return l->at;
}

gd_tensors gd_list_copy(gd_tensors given) {
    gd_tensor **copy = gd_list_new(given.count);
    if (!copy) {
        gd_error_record(GD_E_MEMORY);
        return gd_list_of_errors(given.count);
    }
    for (int64_t i = 0; i < given.count; i++) copy[i] = given.at[i];
    return (gd_tensors){copy, given.count};
}

/* A static list of error tensors, for calls that fail without memory. It has the layout of
 * tensor_list and is never freed. */
static struct {
    gd_object object;
    bool is_short;
    gd_tensor *last;
    gd_tensor *at[GD_FEW_ERRORS];
} errors = {.object = {.class = &list_class, .refs = GD_IMMORTAL}};

gd_tensors gd_list_of_errors(int64_t count) {
    if (count <= 0) count = GD_FAILED_COUNT;
    gd_tensor **at = count > GD_FEW_ERRORS ? gd_list_new(count) : NULL;
    for (int64_t i = 0; at && i < count; i++) at[i] = &gd_error_tensor;
    if (at) return (gd_tensors){at, count};
    return (gd_tensors){errors.at, count < GD_FEW_ERRORS ? count : GD_FEW_ERRORS};
}

static void __attribute__((constructor)) fill_errors(void) {
    for (int i = 0; i < GD_FEW_ERRORS; i++) errors.at[i] = &gd_error_tensor;
}

static tensor_list *list_of(gd_tensors tensors) {
    return (tensor_list *)(void *)((char *)(uintptr_t)tensors.at - offsetof(tensor_list, at));
}

gd_tensors gd_keep_list(gd_tensors tensors) {
    for (int64_t i = 0; i < tensors.count; i++) gd_keep(tensors.at[i]);
    if (tensors.at) gd_scope_keep(&list_of(tensors)->object);
    return tensors;
}

void gd_release_list(gd_tensors tensors) {
    for (int64_t i = 0; i < tensors.count; i++) gd_release(tensors.at[i]);
    if (tensors.at) gd_object_release(&list_of(tensors)->object);
}

/* --- adding an op ----------------------------------------------------------------------------- */

gd_status gd_op_insert(const gd_op *op, const gd_kernel *reference) {
    gd_table_init();
    pthread_mutex_lock(&table_lock);
    gd_status status = insert_op(op);
    if (status == GD_OK && reference) {
        status = add_kernel(reference);
        if (status != GD_OK) remove_op(op);
    }
    pthread_mutex_unlock(&table_lock);
    return status;
}
