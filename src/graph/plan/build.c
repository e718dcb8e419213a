/* build.c - builds a plan from a program: runs passes, copies fetches, adds calls and memory, and
 * lays out the boundary of runs on asynchronous devices. */
#include "graph/plan/build.h"

#include <string.h>

#include "core/alloc.h"
#include "graph/control/step.h"
#include "dispatch/call.h"
#include "dispatch/launch.h"

/* --- passes ----------------------------------------------------------------------------------- */

/* gradus/session.h describes the levels. */
static gd_status run_passes(gd_program *p, gd_device *device, int level) {
    bool done = gd_pass_prune(p) >= 0 && gd_pass_cse(p) >= 0;
    if (level >= 1) {
        done = done && gd_pass_fold(p, device) >= 0;
        for (int changes = 1; done && changes > 0;) { /* one change may enable another */
            changes = gd_pass_simplify(p);
            const int shared = changes > 0 ? gd_pass_cse(p) : 0;
            done = changes >= 0 && shared >= 0;
        }
    }
    done = done && gd_pass_prune(p) >= 0;
    if (level >= 2)
        done = done && gd_pass_fold_norm(p, device) >= 0 && gd_pass_layout(p, device) >= 0 &&
               gd_pass_epilogue(p, device) >= 0 && gd_pass_linear_gradients(p, device) >= 0 &&
               gd_pass_conv_gradients(p, device) >= 0 && gd_pass_loss_gradient(p, device) >= 0;
    const bool fuse = level >= 2 && device->api->fusion && !gd_reference_only();
    done = done && (!fuse || gd_pass_fuse(p, device) >= 0);
    done = done && (level < 2 || gd_pass_absorb_casts(p, device) >= 0);
    return done ? GD_OK : gd_this_thread.latest;
}

/* Frees constants that were folded into others. */
static gd_status drop_unread_constants(gd_program *p) {
    bool *read = gd_calloc((size_t)p->n_roots + 1, sizeof *read);
    if (!read) return gd_no_memory(NULL, "to plan a run");
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_in && !p->steps[i].removed; k++)
            if (p->steps[i].in[k] >= 0) read[p->values[p->steps[i].in[k]].root] = true;
    for (int i = 0; i < p->n_fetches; i++) read[p->values[p->fetches[i]].root] = true;
    for (int i = 0; i < p->n_commits; i++) read[p->values[p->commits[i].value].root] = true;
    for (int r = 0; r < p->n_roots; r++) {
        gd_root *root = &p->roots[r];
        if (!root->constant || read[r]) continue;
        gd_storage_release(root->storage);
        *root = (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = root->bytes};
    }
    gd_free(read);
    return GD_OK;
}

/* --- fetches ---------------------------------------------------------------------------------- */

/* Adds a step at the start that copies a value which is not a temporary. -1: no memory. */
static int copy_at_start(gd_program *p, int value, bool fetched) {
    const gd_pvalue v = p->values[value];
    size_t bytes;
    if (gd_dims_bytes(v.rank, v.dims, (gd_dtype)v.dtype, &bytes) != GD_OK) return -1;
    gd_pvalue copy = v;
    copy.root = gd_program_root(
        p, (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = bytes, .fetched = fetched});
    copy.offset = 0;
    gd_row_major(v.rank, v.dims, copy.strides);
    int *ids = gd_program_alloc(p, 2 * sizeof *ids);
    if (copy.root < 0 || !ids || !gd_program_step(p)) return -1;
    ids[0] = value;
    ids[1] = gd_program_value(p, copy);
    if (ids[1] < 0) return -1;
    memmove(p->steps + 1, p->steps, (size_t)(p->n_steps - 1) * sizeof *p->steps);
    p->steps[0] =
        (gd_pstep){.op = gd_op_find("clone"), .n_in = 1, .n_out = 1, .in = ids, .out = ids + 1};
    return ids[1];
}

static gd_status copy_fetches(gd_program *p) {
    for (int i = 0; i < p->n_fetches; i++) {
        gd_root *root = &p->roots[p->values[p->fetches[i]].root];
        if (root->kind == GD_ROOT_TEMPORARY) root->fetched = true;
        else if ((p->fetches[i] = copy_at_start(p, p->fetches[i], true)) < 0) return gd_failure();
    }
    return GD_OK;
}

/* On an asynchronous device, the entry of a run stores the results of groups that have nothing left to
 * await: this saves a kernel call. */
static gd_status drop_groups(gd_program *p, const gd_device *device) {
    if (device->api->host_reads) return GD_OK;
    int *readers = gd_program_readers(p);
    if (!readers) return gd_this_thread.latest;
    for (int i = 0; i < p->n_steps; i++) {
        gd_pstep *s = &p->steps[i];
        if (s->removed || !(s->op->flags & GD_OP_AWAITS) || s->n_in > 0) continue;
        const int r = gd_value_root(p, s->out[0]);
        int fetches = 0;
        for (int k = 0; k < p->n_fetches; k++) fetches += gd_value_root(p, p->fetches[k]) == r;
        if (r < 0 || !p->roots[r].fetched || readers[r] != fetches) continue;
        p->roots[r].truth = true;
        s->removed = true;
    }
    gd_free(readers);
    return GD_OK;
}

/* A commit whose value is another variable's old value needs a copy: that variable may be committed
 * first. */
static gd_status copy_committed(gd_program *p) {
    for (int i = 0; i < p->n_commits; i++) {
        const gd_root_kind kind = p->roots[p->values[p->commits[i].value].root].kind;
        if (kind != GD_ROOT_VARIABLE && kind != GD_ROOT_CAPTURED) continue;
        if ((p->commits[i].value = copy_at_start(p, p->commits[i].value, false)) < 0)
            return gd_failure();
    }
    return GD_OK;
}

static void find_committed_feeds(gd_plan *plan) {
    const gd_program *p = plan->program;
    for (int i = 0; i < p->n_commits; i++)
        if (p->roots[p->values[p->commits[i].value].root].kind == GD_ROOT_FEED)
            plan->commits_feed = true;
}

static gd_status list_buffers(gd_plan *plan) {
    const gd_program *p = plan->program;
    plan->buffers = gd_malloc((size_t)(p->n_roots + 1) * sizeof *plan->buffers);
    if (!plan->buffers) return gd_no_memory(NULL, "to plan a run");
    for (int r = 0; r < p->n_roots; r++)
        if (p->roots[r].fetched) plan->buffers[plan->n_buffers++] = r;
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
    plan->noise_slot = GD_NO_SLOT;
    if (plan->device->api->host_reads) return GD_OK;
    GD_TRY(choose_in_place(plan));
    plan->slots = gd_malloc((size_t)(p->n_roots + 1) * sizeof *plan->slots);
    if (!plan->slots) return gd_no_memory(NULL, "to plan a run");
    for (int r = 0; r < p->n_roots; r++) {
        const bool number = gd_root_is_number(plan, r);
        plan->slots[r] = GD_NO_SLOT;
        if ((!is_fed_or_fetched(&p->roots[r]) || plan->in_place[r]) && !number) continue;
        plan->slots[r] = plan->boundary;
        plan->boundary += gd_plan_align(plan->device, p->roots[r].bytes + 1);
        if (number || p->roots[r].truth) plan->n_number_words += (int)((p->roots[r].bytes + 7) / 8);
    }
    for (int i = 0; i < plan->n_calls; i++)
        if (plan->calls[i].step->op->flags & (GD_OP_RANDOM | GD_OP_OPAQUE)) plan->noise_slot = 0;
    if (plan->noise_slot == 0) {
        plan->noise_slot = plan->boundary;
        plan->boundary += gd_plan_align(plan->device, sizeof(gd_rng));
    }
    if (plan->boundary == 0) plan->boundary = plan->device->api->alignment;
    return cut_segments(plan);
}

/* Lets results be written where copies would put them. A root may then be written in parts, which
 * passes for a limit of the memory do not support. */
static gd_status drop_copies(gd_program *p, gd_device *device, int level, size_t limit) {
    if (level < 2 || limit > 0) return GD_OK;
    return gd_pass_direct_results(p, device) >= 0 ? GD_OK : gd_this_thread.latest;
}

/* Updates of variables run as early as possible, which frees gradients, or together at the end.
 * Casts of parameters run together at the start, as do copies of variables. A limit of the memory
 * forbids lists. */
static gd_status arrange_updates(gd_program *p, gd_device *device, size_t limit) {
    const int lists = limit == 0 ? gd_pass_list_updates(p, device) : 0;
    const bool done = (lists > 0 || (lists == 0 && gd_pass_early_updates(p) >= 0)) &&
                      (limit > 0 || gd_pass_list_copies(p, device) >= 0);
    return done ? GD_OK : gd_this_thread.latest;
}

/* --- the plan --------------------------------------------------------------------------------- */

/* Captured tensors must be on the plan's device, except for small ones in host memory. */
enum { MOST_NUMBER_BYTES = 64 };
static gd_status check_devices(const gd_program *p, const gd_device *device) {
    char text[160];
    for (int i = 0; i < p->n_values; i++) {
        const gd_root *root = &p->roots[p->values[i].root];
        if (root->kind != GD_ROOT_CAPTURED || root->storage->device == device) continue;
        bool written = false;
        for (int k = 0; k < p->n_commits; k++) written |= p->commits[k].root == p->values[i].root;
        if (!written && root->storage->device->api->host_reads && root->bytes <= MOST_NUMBER_BYTES)
            continue; /* each run passes its value */
        gd_tensor t;
        gd_program_describe(p, i, root->storage->device, &t);
        return gd_fail(GD_E_DEVICE,
                       "a tensor that the graph uses, %s, is on %s, and the session runs on %s; "
                       "create a session with that .device, or move the tensor",
                       gd_describe(&t, text, sizeof text), root->storage->device->name,
                       device->name);
    }
    return GD_OK;
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
    if (status == GD_OK) status = run_passes(program, device, level);
    if (status == GD_OK) status = drop_copies(program, device, level, limit);
    if (status == GD_OK) status = drop_unread_constants(program);
    if (status == GD_OK) status = copy_fetches(program);
    if (status == GD_OK) status = drop_groups(program, device);
    if (status == GD_OK) status = copy_committed(program);
    if (status == GD_OK) status = arrange_updates(program, device, limit);
    if (status == GD_OK) status = gd_control_prepare(program, device, level);
    if (status == GD_OK && program->n_commits > 0 && device->api->reserve)
        status = device->api->reserve(device); /* see may_fail in liveness.c */
    if (status == GD_OK) status = gd_plan_build_within(plan, limit);
    if (status == GD_OK) find_committed_feeds(plan);
    if (status == GD_OK) status = list_buffers(plan);
    if (status == GD_OK) status = place_boundary(plan);
    if (status != GD_OK) {
        gd_plan_free(plan);
        return status;
    }
    *made = plan;
    return GD_OK;
}
