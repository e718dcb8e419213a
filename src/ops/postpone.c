/* postpone.c - kernel calls that wait until all of them are there: see call.h. */
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "ops/call.h"

/* In one block with its views and options. */
struct gd_postponed_call {
    gd_postponed_call *next;
    gd_kernel_call call;
    gd_staging staging;
    bool ready;
};

void gd_postpone_begin(gd_postponed *list) {
    *list = (gd_postponed){.before = gd_this_thread.postponed, .end = &list->first};
    gd_this_thread.postponed = list;
}

gd_status gd_postpone_call(const gd_op *op, const gd_kernel_call *call, gd_device *device) {
    gd_postponed *list = gd_this_thread.postponed;
    const int n =
        call->each ? 0 : call->n_in + call->n_out; /* those of a list live until it has run */
    gd_postponed_call *h = gd_malloc(sizeof *h + (size_t)n * sizeof(gd_view) + op->attrs_size);
    if (!h) return gd_fail(GD_E_MEMORY, "no memory to hold a call");
    gd_view *views = (gd_view *)(h + 1);
    *h = (gd_postponed_call){.call = *call};
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

static bool on_host(const gd_postponed_call *h) { return h->call.device->api->host_reads; }

/* Gets all the memory that the call needs. */
static gd_status make_ready(gd_postponed_call *h) {
    GD_TRY(gd_kernel_ready(h->call.op, &h->call, h->call.device));
    gd_status status = on_host(h) ? gd_kernel_stage(&h->call, &h->staging) : GD_OK;
    if (status != GD_OK) gd_kernel_done(&h->call);
    return status;
}

gd_status gd_postpone_end(gd_postponed *list, gd_status status) {
    gd_this_thread.postponed = list->before;
    for (gd_postponed_call *h = list->first; h && status == GD_OK; h = h->next) {
        status = make_ready(h);
        h->ready = status == GD_OK;
    }
    while (list->first) {
        gd_postponed_call *h = list->first;
        list->first = h->next;
        if (status == GD_OK) status = gd_kernel_go(&h->call, on_host(h) ? &h->staging : NULL);
        if (h->ready) {
            gd_kernel_unstage(&h->call, &h->staging);
            gd_kernel_done(&h->call);
        }
        gd_free(h);
    }
    return status;
}
