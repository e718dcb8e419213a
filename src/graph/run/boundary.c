/* boundary.c - runs of a plan on an asynchronous device.
 *
 * A captured plan is launched again and again with the addresses that it was captured with. So feeds
 * are copied in by one entry kernel, fetches are copied out by one exit kernel, and their arguments
 * are all that a launch sets: addresses outside, the numbers of the host (captured scalars), and the
 * numbers of the run for random ops. In between everything has its place for good: temporaries in
 * the instance's slab, feeds, numbers and fetches in its boundary block, variables and captured
 * tensors where they are. If one of those gets other memory, the plan is captured again.
 *
 * The first run is not captured: kernels may load code then.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/run/instance.h"
#include "ops/launch.h"

/* What a message about the step calls it: a step of a body is part of the op that was called. */
static const char *step_name(const gd_pstep *step) {
    const gd_origin *origin = step->node ? step->node->origin : NULL;
    if (!origin) return step->op->name;
    return origin->caller ? origin->caller->name : origin->name;
}

gd_status gd_boundary_make(gd_plan *plan, gd_instance *in) {
    const gd_program *p = plan->program;
    in->copies = gd_calloc((size_t)p->n_roots + 1, sizeof *in->copies);
    in->numbers = gd_calloc((size_t)(plan->n_number_words + 2), sizeof *in->numbers);
    if (!in->copies || !in->numbers) return gd_fail(GD_E_MEMORY, "no memory for a run");
    GD_TRY(gd_device_alloc(plan->device, plan->boundary, &in->boundary));
    for (int r = 0; r < p->n_roots; r++)
        if (plan->slots[r] != GD_NO_SLOT)
            gd_instance_bind(plan, in, r, (char *)in->boundary + plan->slots[r]);
    for (int i = 0; i < plan->n_calls; i++) {
        gd_kernel_call *call = &in->calls[i];
        const gd_pstep *step = plan->calls[i].step;
        const gd_node *node = step->node;
        if (step->op->flags & GD_OP_RANDOM) {
            call->rng = node->rng;
            call->noise = (char *)in->boundary + plan->noise_slot;
        }
        if (gd_op_is_fallible(step->op, call->in, call->n_in))
            GD_TRY(gd_call_enroll_step(call, step_name(step), node ? node->site : NULL));
    }
    return GD_OK;
}

void gd_boundary_free(gd_plan *plan, gd_instance *in) {
    gd_device *d = plan->device;
    if (in->capture && gd_device_check(d) == GD_OK) {
        gd_device_lock(d);
        d->api->capture_free(d, in->capture);
        gd_device_unlock(d);
    }
    for (int i = 0; in->calls && i < plan->n_calls; i++)
        if (in->calls[i].number) gd_call_withdraw(d, in->calls[i].number);
    if (in->boundary) gd_device_free(d, in->boundary, plan->boundary);
    gd_free(in->copies);
    gd_free(in->numbers);
}

/* --- arguments of a launch -------------------------------------------------------------------- */

/* Up to 8 bytes of a captured scalar as they are now. */
static int add_numbers(const gd_plan *plan, gd_instance *in, int root, int n) {
    const gd_root *r = &plan->program->roots[root];
    for (size_t at = 0; at < r->bytes; at += 8, n++) {
        gd_boundary_number *number = &in->numbers[n];
        *number = (gd_boundary_number){.to = (char *)in->boundary + plan->slots[root] + at,
                                       .bytes = r->bytes - at < 8 ? r->bytes - at : 8};
        memcpy(&number->bits, (const char *)r->storage->data + at, number->bytes);
    }
    return n;
}

static gd_boundary make_entry(const gd_plan *plan, gd_instance *in, gd_tensors feeds, uint64_t run,
                              uint64_t steps) {
    const gd_program *p = plan->program;
    gd_boundary b = {.copies = in->copies, .numbers = in->numbers};
    for (int r = 0; r < p->n_roots; r++) {
        const gd_root *root = &p->roots[r];
        if (plan->slots[r] == GD_NO_SLOT) continue;
        if (root->kind == GD_ROOT_FEED) {
            const gd_tensor *t = feeds.at[root->number];
            const size_t offset = (size_t)t->offset * gd_dtype_bytes(t->dtype);
            in->copies[b.n_copies++] = (gd_boundary_copy){
                .to = in->base[r], .from = (char *)t->storage->data + offset, .bytes = root->bytes};
        } else if (gd_root_is_number(plan, r)) {
            b.n_numbers = add_numbers(plan, in, r, b.n_numbers);
        }
    }
    if (plan->noise_slot != GD_NO_SLOT) {
        char *noise = (char *)in->boundary + plan->noise_slot; /* a gd_rng: seed, call */
        in->numbers[b.n_numbers++] = (gd_boundary_number){noise, 8, steps};
        in->numbers[b.n_numbers++] = (gd_boundary_number){noise + 8, 8, run};
    }
    return b;
}

/* Uses the room of the entry's copies: the entry has been queued. */
static gd_boundary make_exit(const gd_plan *plan, gd_instance *in, gd_boundary_copy *copies) {
    gd_boundary b = {.copies = copies};
    for (int i = 0; i < plan->n_buffers; i++) {
        const int root = plan->buffers[i];
        copies[b.n_copies++] = (gd_boundary_copy){.to = in->fetched[i]->data,
                                                  .from = in->base[root],
                                                  .bytes = plan->program->roots[root].bytes};
    }
    return b;
}

/* --- runs ------------------------------------------------------------------------------------- */

static gd_status queue_calls(gd_plan *plan, gd_instance *in, const gd_boundary *entry,
                             const gd_boundary *exit) {
    gd_device *d = plan->device;
    GD_TRY(d->api->enter(d, entry));
    GD_TRY(gd_instance_run_calls(plan, in, 0, 0));
    return d->api->leave(d, exit);
}

static gd_status capture_calls(gd_plan *plan, gd_instance *in, const gd_boundary *entry,
                               const gd_boundary *exit) {
    gd_device *d = plan->device;
    if (in->capture) d->api->capture_free(d, in->capture);
    in->capture = NULL;
    GD_TRY(d->api->capture_begin(d));
    gd_status status = queue_calls(plan, in, entry, exit);
    gd_status ended = d->api->capture_end(d, &in->capture);
    return status != GD_OK ? status : ended;
}

/* Variables may have been given other memory since the last run. */
static void bind_variables(const gd_plan *plan, gd_instance *in, gd_tensor *const *variables) {
    const gd_program *p = plan->program;
    for (int r = 0; r < p->n_roots; r++) {
        const gd_root *root = &p->roots[r];
        if (root->kind != GD_ROOT_VARIABLE) continue;
        void *data = variables[root->number]->storage->data;
        in->moved |= in->base[r] != data;
        gd_instance_bind(plan, in, r, data);
    }
}

gd_status gd_boundary_run(gd_plan *plan, gd_instance *in, gd_tensors feeds,
                          gd_tensor *const *variables, uint64_t run, uint64_t steps) {
    gd_device *d = plan->device;
    const bool captures = d->api->capture_begin && plan->capturable;
    GD_TRY(gd_device_check(d));
    bind_variables(plan, in, variables);
    gd_boundary entry = make_entry(plan, in, feeds, run, steps);
    gd_boundary exit = make_exit(plan, in, in->copies + entry.n_copies);
    gd_device_lock(d);
    entry.run = gd_device_number(d);
    gd_status status = GD_OK;
    if (captures && in->warmed && (!in->capture || in->moved)) {
        status = capture_calls(plan, in, &entry, &exit);
        in->moved = false;
    }
    if (status == GD_OK)
        status = in->capture ? d->api->capture_launch(d, in->capture, &entry, &exit)
                             : queue_calls(plan, in, &entry, &exit);
    in->warmed |= status == GD_OK;
    gd_device_unlock(d);
    in->run = entry.run;
    return status;
}
