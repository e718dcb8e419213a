/* build.c - builds a plan from a program: runs passes, adds calls and memory, and lays out the
 * boundary of runs on asynchronous devices. */
#include "graph/plan/build.h"

#include "core/alloc.h"
#include "graph/passes/passes.h"
#include "graph/plan/bodies.h"
#include "dispatch/call.h"
#include "dispatch/launch.h"

/* A feed must not share its memory with a tensor that is written too early (gd_plan_overwrites):
 * before the end of the run, or, if a commit reads a feed, by another commit. */
static gd_status find_overwritten(gd_plan *plan) {
    const gd_program *p = plan->program;
    bool reads_feed = false;
    for (int i = 0; i < p->n_commits; i++)
        reads_feed |= p->roots[p->values[p->commits[i].value].root].kind == GD_ROOT_FEED;
    for (int i = 0; i < p->n_commits; i++) {
        const gd_storage *storage = p->roots[p->commits[i].root].storage;
        if (storage && (p->commits[i].through || reads_feed) &&
            !gd_map_put(&plan->overwritten, storage, i))
            return gd_no_memory(NULL, "to plan a run");
    }
    return GD_OK;
}

static gd_status list_buffers(gd_plan *plan) {
    const gd_program *p = plan->program;
    plan->buffers = gd_malloc((size_t)(p->n_roots + 1) * sizeof *plan->buffers);
    plan->fetch_buffers = gd_malloc((size_t)(p->n_fetches + 1) * sizeof *plan->fetch_buffers);
    int *buffer_of = gd_malloc((size_t)(p->n_roots + 1) * sizeof *buffer_of);
    if (!plan->buffers || !plan->fetch_buffers || !buffer_of) {
        gd_free(buffer_of);
        return gd_no_memory(NULL, "to plan a run");
    }
    for (int r = 0; r < p->n_roots; r++) {
        buffer_of[r] = p->roots[r].fetched ? plan->n_buffers : -1;
        if (p->roots[r].fetched) plan->buffers[plan->n_buffers++] = r;
    }
    for (int i = 0; i < p->n_fetches; i++)
        plan->fetch_buffers[i] = buffer_of[p->values[p->fetches[i]].root];
    gd_free(buffer_of);
    return GD_OK;
}

/* Branches, loops, and host kernels. */
static bool runs_on_host(const gd_pcall *c) {
    return (c->step->op->flags & GD_OP_OPAQUE) || c->kernel == &gd_host_kernel;
}

/* Splits the calls into segments where the host has to read a condition. The last may be empty. */
static gd_status cut_segments(gd_plan *plan) {
    plan->segments = gd_calloc(2 * (size_t)plan->n_calls + 1, sizeof *plan->segments);
    if (!plan->segments) return gd_no_memory(NULL, "to plan a run");
    int first = 0;
    for (int i = 0; i <= plan->n_calls; i++) {
        const bool ends = i == plan->n_calls;
        if (!ends && !runs_on_host(&plan->calls[i])) continue;
        if (i > first || ends) plan->segments[plan->n_segments++] = (gd_segment){first, i, false};
        if (!ends) plan->segments[plan->n_segments++] = (gd_segment){i, i + 1, true};
        first = i + 1;
    }
    return GD_OK;
}

static bool is_fed_or_fetched(const gd_root *root) {
    return root->kind == GD_ROOT_FEED || root->fetched;
}

/* A captured plan copies its fetches, because its addresses are fixed; it is captured for the addresses
 * of its large feeds (run/feeds.c). A GPU copies BYTES_PER_LAUNCH in about the time in which the host
 * launches a kernel. If the large feeds and fetches are larger than that for each call, the plan is not
 * captured, and runs use the fetches in place, too. */
enum { LARGE_BYTES = 1 << 20, BYTES_PER_LAUNCH = 8 << 20, LARGE_FEED_BYTES = 1 << 17 };

static gd_status choose_in_place(gd_plan *plan) {
    const gd_program *p = plan->program;
    plan->in_place = gd_calloc((size_t)p->n_roots + 1, sizeof *plan->in_place);
    plan->fed_in_place = gd_malloc((size_t)(p->n_roots + 1) * sizeof *plan->fed_in_place);
    if (!plan->in_place || !plan->fed_in_place) return gd_no_memory(NULL, "to plan a run");
    size_t bytes = 0;
    for (int r = 0; r < p->n_roots; r++)
        if (is_fed_or_fetched(&p->roots[r]) && p->roots[r].bytes >= LARGE_BYTES)
            bytes += p->roots[r].bytes;
    plan->captured = bytes / BYTES_PER_LAUNCH < (size_t)plan->n_calls || bytes == 0;
    for (int r = 0; r < p->n_roots; r++) {
        const gd_root *root = &p->roots[r];
        if (root->kind == GD_ROOT_FEED && root->bytes >= LARGE_FEED_BYTES)
            plan->fed_in_place[plan->n_fed_in_place++] = r;
        plan->in_place[r] = root->kind == GD_ROOT_FEED
                                ? root->bytes >= LARGE_FEED_BYTES
                                : root->fetched && root->bytes >= LARGE_BYTES && !plan->captured;
    }
    return GD_OK;
}

/* Assigns fixed offsets to the feeds, fetches and numbers that runs on an asynchronous device
 * copy. */
static gd_status place_boundary(gd_plan *plan) {
    const gd_program *p = plan->program;
    plan->rng_offset_slot = GD_NO_SLOT;
    if (plan->device->api->host_reads) return GD_OK;
    GD_TRY(choose_in_place(plan));
    plan->slots = gd_malloc((size_t)(p->n_roots + 1) * sizeof *plan->slots);
    if (!plan->slots) return gd_no_memory(NULL, "to plan a run");
    for (int r = 0; r < p->n_roots; r++) {
        const bool number = gd_root_is_scalar(plan, r);
        plan->slots[r] = GD_NO_SLOT;
        if ((!is_fed_or_fetched(&p->roots[r]) || plan->in_place[r]) && !number) continue;
        plan->slots[r] = plan->boundary;
        plan->boundary += gd_plan_align(plan->device, p->roots[r].bytes + 1);
        if (number || p->roots[r].always_true)
            plan->n_scalar_words += (int)((p->roots[r].bytes + 7) / 8);
    }
    for (int i = 0; i < plan->n_calls; i++)
        if (plan->calls[i].step->op->flags & (GD_OP_RANDOM | GD_OP_OPAQUE))
            plan->rng_offset_slot = 0;
    if (plan->rng_offset_slot == 0) {
        plan->rng_offset_slot = plan->boundary;
        plan->boundary += gd_plan_align(plan->device, sizeof(gd_rng));
    }
    if (plan->boundary == 0) plan->boundary = plan->device->api->alignment;
    return cut_segments(plan);
}

/* --- the plan --------------------------------------------------------------------------------- */

/* Captured tensors must be on the plan's device, except for small ones in host memory. */
enum { MAX_SCALAR_BYTES = 64 };
static gd_status check_devices(const gd_program *p, const gd_device *device) {
    char text[160];
    bool *written = gd_calloc((size_t)p->n_roots + 1, sizeof *written);
    if (!written) return gd_no_memory(NULL, "to plan a run");
    for (int k = 0; k < p->n_commits; k++) written[p->commits[k].root] = true;
    gd_status status = GD_OK;
    for (int i = 0; i < p->n_values && status == GD_OK; i++) {
        const gd_root *root = &p->roots[p->values[i].root];
        if (root->kind != GD_ROOT_CAPTURED || root->storage->device == device) continue;
        if (!written[p->values[i].root] && root->storage->device->api->host_reads &&
            root->bytes <= MAX_SCALAR_BYTES)
            continue; /* each run passes its value */
        gd_tensor t;
        gd_program_describe(p, i, root->storage->device, &t);
        status =
            gd_fail(GD_E_DEVICE,
                    "a tensor that the graph uses, %s, is on %s, and the session runs on %s; "
                    "create a session with that .device, or move the tensor",
                    gd_describe(&t, text, sizeof text), root->storage->device->name, device->name);
    }
    gd_free(written);
    return status;
}

gd_status gd_plan_make(gd_program *program, gd_device *device, int level, size_t limit,
                       gd_plan **made) {
    const gd_status room = gd_check_stack();
    gd_plan *plan = room == GD_OK ? gd_calloc(1, sizeof *plan) : NULL;
    *made = NULL;
    if (!plan) {
        gd_program_free(program);
        return room != GD_OK ? room : gd_no_memory(NULL, "to plan a run");
    }
    plan->program = program;
    plan->device = device;
    plan->on_host = device->api->host_reads;
    plan->tf32 = gd_this_thread.tf32;
    plan->guard = gd_guard_new();
    gd_status status = check_devices(program, device);
    gd_rewrite passes = {.program = program, .device = device, .level = level, .limit = limit};
    if (status == GD_OK) status = gd_passes_run(&passes, GD_PHASE_PROGRAM);
    if (status == GD_OK) status = gd_plan_add_bodies(plan, level);
    if (status == GD_OK && program->n_commits > 0 && device->api->reserve)
        status = device->api->reserve(device); /* see may_fail in liveness.c */
    if (status == GD_OK) status = gd_plan_build_within(plan, limit);
    if (status == GD_OK) status = find_overwritten(plan);
    if (status == GD_OK) status = list_buffers(plan);
    if (status == GD_OK) status = place_boundary(plan);
    if (status != GD_OK) {
        gd_plan_free(plan);
        return status;
    }
    *made = plan;
    return GD_OK;
}
