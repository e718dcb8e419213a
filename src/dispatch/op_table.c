/* op_table.c - the op table: all ops by name, those of the library and those of the program. */
#include <pthread.h>
#include <string.h>

#include "core/fork.h"
#include "dispatch/table.h"

enum { MAX_OPS = 4096 };
static const gd_op *table[MAX_OPS]; /* sorted by name */
static int table_count;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
GD_INNER_MUTEX_AT_FORK(table_lock)
static pthread_once_t table_once = PTHREAD_ONCE_INIT;
_Atomic bool gd_table_is_filled;

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

const gd_op *gd_op_lookup(const char *name) {
    int at = table_index(name);
    return at < table_count && strcmp(table[at]->name, name) == 0 ? table[at] : NULL;
}

static void read_generated_lists(void) {
    for (int f = 0; f < gd_op_file_count; f++)
        for (int i = 0; i < gd_op_files[f].count; i++) insert_op(gd_op_files[f].ops[i]);
    gd_read_kernels();
    atomic_store_explicit(&gd_table_is_filled, true, memory_order_release);
}

void gd_table_fill(void) { pthread_once(&table_once, read_generated_lists); }

gd_status gd_op_insert(const gd_op *op) {
    gd_table_init();
    /* nobody else can see the op yet */
    if (op->reference) GD_TRY(gd_kernel_insert(op, op->reference));
    pthread_mutex_lock(&table_lock);
    gd_status status = insert_op(op);
    pthread_mutex_unlock(&table_lock);
    return status;
}

/* --- reading ---------------------------------------------------------------------------------- */

const gd_op *gd_op_find(const char *name) {
    gd_table_init();
    if (!name) return NULL;
    pthread_mutex_lock(&table_lock);
    const gd_op *op = gd_op_lookup(name);
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
    return op && !(op->flags & (GD_OP_NO_GRAD | GD_OP_PREDICATE | GD_OP_INTEGRAL)) &&
           (op->vjp || op->ir || op->expand);
}
