/* transaction.c - transactions: kernel calls of which all run or none does. See call.h. */
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "dispatch/call.h"
#include "dispatch/launch.h"

/* A deferred call, in one block of memory with its views and options. */
struct gd_transaction_call {
    gd_transaction_call *next;
    gd_kernel_call call;
    gd_launch launch;
    bool ready;
};

void gd_transaction_begin(gd_transaction *list) {
    *list = (gd_transaction){.before = gd_this_thread.transaction, .end = &list->first};
    gd_this_thread.transaction = list;
}

gd_status gd_transaction_add(const gd_op *op, const gd_kernel_call *call, gd_device *device) {
    gd_transaction *list = gd_this_thread.transaction;
    /* the views of a list call (gd_dispatch_each) live until it has run and need no copy */
    const int n = call->each ? 0 : call->n_in + call->n_out;
    gd_transaction_call *h = gd_malloc(sizeof *h + (size_t)n * sizeof(gd_view) + op->attrs_size);
    if (!h) return gd_fail(GD_E_MEMORY, "no memory for a call of a transaction");
    gd_view *views = (gd_view *)(h + 1);
    *h = (gd_transaction_call){.call = *call};
    if (n > 0) {
        memcpy(views, call->in, (size_t)call->n_in * sizeof *views);
        memcpy(views + call->n_in, call->out, (size_t)call->n_out * sizeof *views);
        h->call.in = views;
        h->call.out = views + call->n_in;
    }
    h->call.op = op;
    h->call.device = device;
    h->call.attrs = call->attrs ? memcpy(views + n, call->attrs, op->attrs_size) : NULL;
    *list->end = h;
    list->end = &h->next;
    return GD_OK;
}

gd_status gd_transaction_end(gd_transaction *list, gd_status status) {
    gd_this_thread.transaction = list->before;
    for (gd_transaction_call *h = list->first; h && status == GD_OK; h = h->next) {
        status = gd_launch_begin(&h->launch, h->call.op, &h->call, h->call.device);
        h->ready = status == GD_OK;
    }
    while (list->first) {
        gd_transaction_call *h = list->first;
        list->first = h->next;
        if (status == GD_OK) status = gd_launch_run(&h->launch);
        if (h->ready) gd_launch_end(&h->launch);
        gd_free(h);
    }
    return status;
}
