/* kernel_listing.c - how each op runs on each kind of device: by a kernel, an expression or a
 * body; and kernels as text. */
#include <stdio.h>
#include <string.h>

#include "codegen/kernel_words.h"
#include "dispatch/op.h"

static bool has_kernel(const gd_op *op, const char *kind) {
    const gd_kernel_list *lists = op->state->kernels;
    for (int i = 0; i < GD_DEVICE_KINDS && lists[i].device; i++)
        if (lists[i].count > 0 && strcmp(lists[i].device, kind) == 0) return true;
    return false;
}

/* Whether the host does the work of the op: it controls the flow, calls the program, starts a
 * copy into a variable, waits, or supplies the number of a random call. */
static bool runs_on_host(const gd_op *op) {
    const unsigned random_number = GD_OP_RANDOM | GD_OP_SHAPE_ONLY; /* random_key */
    return op->facts.control != GD_CONTROL_NONE ||
           (op->flags & (GD_OP_ASSIGNS | GD_OP_AWAITS | GD_OP_CALLS)) ||
           (op->flags & random_number) == random_number;
}

bool gd_op_needs_kernel(const gd_op *op) {
    if (!op) return false;
    if (op->base) op = op->base;
    return !op->ir && !op->expand && !(op->flags & GD_OP_VIEW) && !runs_on_host(op);
}

const char *gd_op_runs_as(const gd_op *op, const char *device_kind) {
    char text[8];
    gd_table_init();
    if (!op || !device_kind) return "none";
    if (op->base) op = op->base;
    if (runs_on_host(op)) return "host";
    if (has_kernel(op, device_kind)) return "kernel";
    if (op->ir && *gd_op_kernels(op, device_kind, text, sizeof text)) return "expression";
    if (op->flags & GD_OP_VIEW) return "view";
    return op->expand ? "body" : "none";
}

const char *gd_kernel_text(const gd_kernel_call *call, char *text, size_t size) {
    const gd_kernel *k = call->kernel;
    const int used = snprintf(text, size, "%s", k->variant ? k->variant : "");
    if (!k->describe || used < 0 || (size_t)used + 3 > size) return text;
    char *more = text + used + 2;
    *more = 0;
    k->describe(call, more, size - (size_t)used - 2);
    if (*more) memcpy(text + used, ": ", 2);
    return text;
}

const char *gd_kernel_words(const gd_kernel *kernel, char *text, size_t size) {
    size_t used = 0;
    if (!text) size = 0;
    if (size) *text = 0;
    for (int i = 0; kernel && used < size && i < GD_KERNEL_FLAG_WORDS; i++)
        if (kernel->flags & gd_kernel_flag_words[i].flag)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "",
                                     gd_kernel_flag_words[i].word);
    return text;
}

enum { MAX_KINDS = 64 };

/* Kinds in the order of the op table, each once. */
const char *gd_kernel_kind_at(int index) {
    const char *kinds[MAX_KINDS] = {"cpu"};
    int n = 1;
    gd_table_init();
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        const gd_kernel_list *lists = op ? op->state->kernels : NULL;
        for (int k = 0; lists && k < GD_DEVICE_KINDS && lists[k].device; k++) {
            int at = 0;
            while (at < n && strcmp(kinds[at], lists[k].device) != 0) at++;
            if (at == n && n < MAX_KINDS) kinds[n++] = lists[k].device;
        }
    }
    return index >= 0 && index < n ? kinds[index] : NULL;
}
