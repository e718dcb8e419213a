/* boundary.c - runs of a plan on an asynchronous device.
 *
 * A captured plan is launched many times with the addresses of its capture. So one entry kernel
 * copies feeds in, one exit kernel copies fetches out, and a launch sets only their arguments: the
 * addresses of feeds and fetches, scalars from the host (captured scalars), and the numbers of the
 * run for random ops. All other addresses are fixed: temporaries are in the instance's slab; feeds,
 * scalars and fetches in its boundary block; variables and captured tensors keep their storage. If
 * one of those gets another storage, the plan is captured again.
 *
 * Large feeds are read where they are (feeds.c). A plan with few calls and large feeds and fetches
 * (choose_in_place in plan/build.c) is not captured, and writes the fetches where they are, too.
 *
 * The first run is not captured, since kernels may load code in it. Where a plan has branches or
 * loops, the host reads their conditions between captured segments.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/run/instance.h"
#include "dispatch/launch.h"
#include "dispatch/profile.h"

/* The name of a step in messages. For a step of an op's body it is the op that was called. */
static const char *step_name(const gd_pstep *step) {
    const gd_origin *origin = step->node ? step->node->origin : NULL;
    const char *in_jit = gd_jit_step_name(step);
    if (in_jit) return in_jit;
    if (!origin) return step->op->name;
    return origin->caller ? origin->caller->name : origin->name;
}

gd_status gd_boundary_make(gd_plan *plan, gd_instance *in) {
    const gd_program *p = plan->program;
    in->copies = gd_calloc((size_t)p->n_roots + 1, sizeof *in->copies);
    in->scalars = gd_calloc((size_t)(plan->n_scalar_words + 2), sizeof *in->scalars);
    in->feed_copies = gd_calloc((size_t)p->n_roots + 1, sizeof *in->feed_copies);
    if (!in->copies || !in->scalars || !in->feed_copies) return gd_no_memory(NULL, "for a run");
    GD_TRY(gd_captures_make(plan, in));
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
            call->rng_offset = (char *)in->boundary + plan->rng_offset_slot;
        }
        if (gd_op_is_fallible(step->op, call->in, call->n_in))
            GD_TRY(gd_call_enroll_step(call, step_name(step), node ? node->site : NULL));
    }
    return GD_OK;
}

void gd_boundary_free(gd_plan *plan, gd_instance *in) {
    gd_device *d = plan->device;
    gd_captures_free(plan, in);
    gd_feeds_free_copies(plan, in);
    for (int i = 0; in->calls && i < plan->n_calls; i++)
        if (in->calls[i].number) gd_call_forget(d, in->calls[i].number);
    if (in->boundary) gd_device_free(d, in->boundary, plan->boundary);
    gd_free(in->copies);
    gd_free(in->scalars);
    gd_free(in->feed_copies);
}

/* --- arguments of a launch -------------------------------------------------------------------- */

/* Adds the current value of a captured scalar, in pieces of up to 8 bytes. */
static int add_scalars(const gd_plan *plan, gd_instance *in, int root, int n) {
    const gd_root *r = &plan->program->roots[root];
    for (size_t at = 0; at < r->bytes; at += 8, n++) {
        gd_boundary_scalar *number = &in->scalars[n];
        *number = (gd_boundary_scalar){.to = (char *)in->boundary + plan->slots[root] + at,
                                       .bytes = r->bytes - at < 8 ? r->bytes - at : 8};
        memcpy(&number->bits, (const char *)r->storage->data + at, number->bytes);
    }
    return n;
}

static gd_boundary make_entry(const gd_plan *plan, gd_instance *in, gd_tensors feeds, uint64_t run,
                              uint64_t steps) {
    const gd_program *p = plan->program;
    gd_boundary b = {.copies = in->copies, .scalars = in->scalars};
    for (int r = 0; r < p->n_roots; r++) {
        const gd_root *root = &p->roots[r];
        if (root->kind == GD_ROOT_FEED) {
            const void *from = gd_feed_address(root, feeds);
            if (in->base[r] != from)
                in->copies[b.n_copies++] = (gd_boundary_copy){in->base[r], from, root->bytes};
        } else if (gd_root_is_scalar(plan, r)) {
            b.n_scalars = add_scalars(plan, in, r, b.n_scalars);
        } else if (root->always_true) {
            in->scalars[b.n_scalars++] = (gd_boundary_scalar){in->base[r], root->bytes, true};
        }
    }
    if (plan->rng_offset_slot != GD_NO_SLOT) {
        char *rng_offset = (char *)in->boundary + plan->rng_offset_slot; /* a gd_rng: seed, call */
        in->scalars[b.n_scalars++] = (gd_boundary_scalar){rng_offset, 8, steps};
        in->scalars[b.n_scalars++] = (gd_boundary_scalar){rng_offset + 8, 8, run};
    }
    return b;
}

/* `copies` is the rest of in->copies after those of the entry: a root is fed or fetched, never
 * both. Fetches in place need no copy. */
static gd_boundary make_exit(const gd_plan *plan, gd_instance *in, gd_boundary_copy *copies) {
    gd_boundary b = {.copies = copies};
    for (int i = 0; i < plan->n_buffers; i++) {
        const int root = plan->buffers[i];
        if (plan->in_place[root]) continue;
        copies[b.n_copies++] = (gd_boundary_copy){.to = in->fetched[i]->data,
                                                  .from = in->base[root],
                                                  .bytes = plan->program->roots[root].bytes};
    }
    return b;
}

/* --- runs ------------------------------------------------------------------------------------- */

/* One run, with the arguments of its entry and its exit. */
typedef struct boundary_run {
    gd_plan *plan;
    gd_instance *in;
    gd_boundary entry, exit;
    uint64_t run, steps; /* the scalars of random ops */
} boundary_run;

/* The first segment begins with the entry, the last ends with the commits and the exit. */
static gd_status queue_segment(boundary_run *r, int number) {
    gd_plan *plan = r->plan;
    gd_device *d = plan->device;
    const gd_segment *s = &plan->segments[number];
    if (number == 0) GD_TRY(d->api->enter(d, &r->entry));
    GD_TRY(gd_instance_run_calls(plan, r->in, s->first, s->end, r->run, r->steps));
    if (number < plan->n_segments - 1) return GD_OK;
    GD_TRY(gd_instance_commit(plan, r->in));
    return r->exit.n_copies ? d->api->leave(d, &r->exit) : GD_OK;
}

static gd_status capture_segment(boundary_run *r, int number) {
    gd_device *d = r->plan->device;
    gd_capture **capture = &r->in->set->captures[number];
    gd_capture_drop(d, capture);
    GD_TRY(d->api->capture_begin(d));
    gd_status status = queue_segment(r, number);
    gd_status ended = d->api->capture_end(d, capture);
    if (status == GD_OK) status = ended;
    if (status != GD_OK) gd_capture_drop(d, capture); /* never launch a partial capture */
    return status;
}

/* The device's lock is held. */
static gd_status run_segment(boundary_run *r, int number) {
    gd_instance *in = r->in;
    gd_device *d = r->plan->device;
    gd_capture **capture = &in->set->captures[number];
    /* the profiler and anomaly mode act on each call, so they need the calls one by one, unless
     * plans are measured */
    const unsigned watch = atomic_load_explicit(&gd_watch, memory_order_relaxed);
    const bool timed = watch == (GD_WATCH_TIME | GD_WATCH_PLANS), watched = watch && !timed;
    if (!d->api->capture_begin || !in->warmed || watched || !r->plan->captured)
        return queue_segment(r, number);
    if (!*capture) GD_TRY(capture_segment(r, number));
    const bool leaves = number == r->plan->n_segments - 1 && r->exit.n_copies > 0;
    const gd_profile_mark mark = gd_profile_start(d);
    const gd_status status = d->api->capture_launch(d, *capture, number == 0 ? &r->entry : NULL,
                                                    leaves ? &r->exit : NULL);
    if (!mark.started) return status;
    const gd_kernel_call call = gd_profile_plan_call(d);
    return gd_profile_end(&call, mark, status);
}

/* Runs a branch or a loop, whose condition the host reads; its bodies are plans of their own. */
static gd_status run_on_host(boundary_run *r, int number) {
    const gd_segment *s = &r->plan->segments[number];
    if (number == 0) GD_TRY(r->plan->device->api->enter(r->plan->device, &r->entry));
    return gd_instance_run_calls(r->plan, r->in, s->first, s->end, r->run, r->steps);
}

/* Variables may have got another storage since the last run. */
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

static gd_status run_bound(gd_plan *plan, gd_instance *in, gd_tensors feeds, uint64_t run,
                           uint64_t steps) {
    gd_device *d = plan->device;
    boundary_run r = {.plan = plan, .in = in, .run = run, .steps = steps};
    gd_status status = GD_OK;
    r.entry = make_entry(plan, in, feeds, run, steps);
    r.exit = make_exit(plan, in, in->copies + r.entry.n_copies);
    r.entry.run = in->run = gd_device_number(d);
    for (int i = 0; i < plan->n_segments && status == GD_OK; i++) {
        if (plan->segments[i].on_host) {
            status = run_on_host(&r, i);
            continue;
        }
        status = gd_device_begin_call(d, "a run of a plan", gd_this_thread.site);
        if (status == GD_OK) status = gd_device_end_call(d, run_segment(&r, i));
    }
    return status;
}

gd_status gd_boundary_run(gd_plan *plan, gd_instance *in, gd_tensors feeds,
                          gd_tensor *const *variables, uint64_t run, uint64_t steps) {
    GD_TRY(gd_device_check(plan->device));
    bind_variables(plan, in, variables);
    if (in->moved) gd_captures_drop_all(plan, in);
    in->moved = false;
    gd_status status = gd_feeds_bind(plan, in, feeds);
    if (status == GD_OK && plan->captured && in->warmed)
        status = gd_captures_choose(plan, in, feeds);
    if (status == GD_OK) status = run_bound(plan, in, feeds, run, steps);
    if (!plan->captured) gd_feeds_free_copies(plan, in);
    if (status != GD_OK) return status;
    in->warmed = !gd_device_debug; /* captures would hide the call that fails */
    return GD_OK;
}
