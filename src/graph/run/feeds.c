/* feeds.c - feeds that runs on an asynchronous device use where they are, and captures for their
 * addresses.
 *
 * The addresses of a capture are fixed. Programs feed few different tensors in turn: a loader has
 * several buffers, and the allocator reuses freed memory. So a plan is captured for each combination
 * of addresses that its large feeds have, and an instance keeps the captures of the latest
 * combinations. If there are many, it copies its feeds to a fixed address from then on.
 */
#include "core/alloc.h"
#include "graph/run/instance.h"

enum {
    MAX_MISSES = 4, /* combinations whose captures replace others, before feeds are copied */
    PATIENCE = 100, /* runs without such a combination, after which earlier ones do not count */
};

void *gd_feed_address(const gd_root *root, gd_tensors feeds) {
    const gd_tensor *t = feeds.at[root->number];
    return (char *)t->storage->data + (size_t)t->offset * gd_dtype_bytes(t->dtype);
}

/* --- addresses -------------------------------------------------------------------------------- */

/* Binds a feed to its tensor, or to memory for a copy if it is not aligned. */
static gd_status bind_feed(const gd_plan *plan, gd_instance *in, int root, gd_tensors feeds) {
    const gd_root *r = &plan->program->roots[root];
    void *address = gd_feed_address(r, feeds);
    if (in->copies_feeds || (uintptr_t)address % plan->device->api->alignment) {
        if (!in->feed_copies[root])
            GD_TRY(gd_device_alloc(plan->device, r->bytes, &in->feed_copies[root]));
        address = in->feed_copies[root];
    }
    gd_instance_bind(plan, in, root, address);
    return GD_OK;
}

gd_status gd_feeds_bind(const gd_plan *plan, gd_instance *in, gd_tensors feeds) {
    for (int i = 0; i < plan->n_fed_in_place; i++)
        GD_TRY(bind_feed(plan, in, plan->fed_in_place[i], feeds));
    return GD_OK;
}

/* The memory is reused only by later work on the queue. */
void gd_feeds_free_copies(const gd_plan *plan, gd_instance *in) {
    for (int i = 0; i < plan->n_fed_in_place && in->feed_copies; i++) {
        const int root = plan->fed_in_place[i];
        if (!in->feed_copies[root]) continue;
        gd_device_free(plan->device, in->feed_copies[root], plan->program->roots[root].bytes);
        in->feed_copies[root] = NULL;
    }
}

/* --- captures --------------------------------------------------------------------------------- */

void gd_capture_drop(gd_device *d, gd_capture **capture) {
    if (*capture && gd_device_is_usable(d)) { /* a lost device has no captures */
        gd_device_lock(d);
        d->api->capture_free(d, *capture);
        gd_device_unlock(d);
    }
    *capture = NULL;
}

gd_status gd_captures_make(const gd_plan *plan, gd_instance *in) {
    for (int i = 0; i < GD_CAPTURE_SETS; i++) {
        gd_capture_set *set = &in->sets[i];
        set->captures = gd_calloc((size_t)plan->n_segments + 1, sizeof *set->captures);
        set->feeds = gd_calloc((size_t)plan->n_fed_in_place + 1, sizeof *set->feeds);
        if (!set->captures || !set->feeds) return gd_no_memory(NULL, "for a run");
    }
    in->set = in->sets;
    return GD_OK;
}

static void empty_set(const gd_plan *plan, gd_capture_set *set) {
    for (int i = 0; set->captures && i < plan->n_segments; i++)
        gd_capture_drop(plan->device, &set->captures[i]);
    set->latest_run = 0;
}

void gd_captures_drop_all(const gd_plan *plan, gd_instance *in) {
    for (int i = 0; i < GD_CAPTURE_SETS; i++) empty_set(plan, &in->sets[i]);
}

void gd_captures_free(const gd_plan *plan, gd_instance *in) {
    gd_captures_drop_all(plan, in);
    for (int i = 0; i < GD_CAPTURE_SETS; i++) {
        gd_free(in->sets[i].captures);
        gd_free(in->sets[i].feeds);
    }
}

static bool is_set_for_feeds(const gd_plan *plan, const gd_instance *in,
                             const gd_capture_set *set) {
    for (int i = 0; i < plan->n_fed_in_place; i++)
        if (set->feeds[i] != in->base[plan->fed_in_place[i]]) return false;
    return set->latest_run > 0;
}

/* An empty set, or else the one that was not used for longest. */
static gd_capture_set *find_oldest_set(gd_instance *in) {
    gd_capture_set *oldest = &in->sets[0];
    for (int i = 1; i < GD_CAPTURE_SETS; i++)
        if (in->sets[i].latest_run < oldest->latest_run) oldest = &in->sets[i];
    return oldest;
}

/* From now on feeds are copied; if there is no memory for it, they stay in place. */
static gd_status copy_feeds(const gd_plan *plan, gd_instance *in, gd_tensors feeds) {
    gd_captures_drop_all(plan, in);
    in->misses = 0;
    in->copies_feeds = true;
    if (gd_feeds_bind(plan, in, feeds) == GD_OK) return GD_OK;
    in->copies_feeds = false;
    gd_feeds_free_copies(plan, in);
    return gd_feeds_bind(plan, in, feeds);
}

/* Replaces the oldest captures by an empty set for the bound feeds. */
static gd_status replace_oldest_set(const gd_plan *plan, gd_instance *in, gd_tensors feeds) {
    in->set = find_oldest_set(in);
    if (in->set->latest_run > 0) { /* all are used */
        in->misses = in->n_runs - in->latest_miss > PATIENCE ? 1 : in->misses + 1;
        in->latest_miss = in->n_runs;
    }
    if (in->misses > MAX_MISSES) GD_TRY(copy_feeds(plan, in, feeds));
    empty_set(plan, in->set);
    for (int i = 0; i < plan->n_fed_in_place; i++)
        in->set->feeds[i] = in->base[plan->fed_in_place[i]];
    return GD_OK;
}

gd_status gd_captures_choose(const gd_plan *plan, gd_instance *in, gd_tensors feeds) {
    int i = 0;
    in->n_runs++;
    while (i < GD_CAPTURE_SETS && !is_set_for_feeds(plan, in, &in->sets[i])) i++;
    if (i < GD_CAPTURE_SETS) in->set = &in->sets[i];
    else GD_TRY(replace_oldest_set(plan, in, feeds));
    in->set->latest_run = in->n_runs;
    return GD_OK;
}
