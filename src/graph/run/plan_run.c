/* plan_run.c - instances of plans, and running them. */
#include "graph/run/plan_run.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "graph/run/instance.h"
#include "dispatch/launch.h"
#include "dispatch/call.h"
#include "dispatch/intern.h"
#include "dispatch/profile.h"

/* --- instances -------------------------------------------------------------------------------- */

void gd_instance_bind(const gd_plan *plan, gd_instance *in, int root, void *base) {
    if (in->base[root] == base) return;
    in->base[root] = base;
    for (int i = plan->first_view[root]; i < plan->first_view[root + 1]; i++) {
        const int v = plan->views_of[i];
        in->views[v].data = (char *)base + plan->bindings[v].offset;
    }
}

static void instance_free(gd_plan *plan, gd_instance *in) {
    if (!in) return;
    if (!plan->on_host) gd_boundary_free(plan, in);
    if (in->slab) gd_device_free(plan->device, in->slab, plan->slab);
    for (int i = 0; in->fetched && i < plan->n_buffers; i++) gd_storage_release(in->fetched[i]);
    gd_free(in->base);
    gd_free(in->views);
    gd_free(in->calls);
    gd_free(in->fetched);
    gd_free(in);
}

static void free_idle_instances(gd_plan *plan) {
    while (plan->idle) {
        gd_instance *in = plan->idle;
        plan->idle = in->next;
        instance_free(plan, in);
    }
}

static gd_status fill_instance(gd_plan *plan, gd_instance *in) {
    in->base = gd_calloc((size_t)plan->program->n_roots + 1, sizeof *in->base);
    in->views = gd_malloc(((size_t)plan->n_views + 1) * sizeof *in->views);
    in->calls = gd_calloc((size_t)plan->n_calls + 1, sizeof *in->calls);
    in->fetched = gd_calloc((size_t)plan->n_buffers + 1, sizeof *in->fetched);
    if (!in->base || !in->views || !in->calls || !in->fetched)
        return gd_no_memory(NULL, "for a run");
    if (plan->n_views) memcpy(in->views, plan->views, (size_t)plan->n_views * sizeof *in->views);
    if (plan->slab) GD_TRY(gd_device_alloc(plan->device, plan->slab, &in->slab));
    for (int r = 0; r < plan->program->n_roots; r++)
        if (plan->places[r].in_slab)
            gd_instance_bind(plan, in, r, (char *)in->slab + plan->places[r].offset);
        else if (plan->program->roots[r].kind == GD_ROOT_CAPTURED)
            gd_instance_bind(plan, in, r, plan->program->roots[r].storage->data);
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall *c = &plan->calls[i];
        gd_kernel_call *k = &in->calls[i];
        gd_kernel_call_set(k, c->step->attrs, in->views + c->first, c->n_in,
                           in->views + c->first + c->n_in, c->n_out);
        k->op = c->step->op;
        k->each = c->step->each;
        k->kernel = c->kernel;
        k->device = plan->device;
        k->tf32 = plan->tf32;
        k->workspace = c->workspace < 0 ? NULL : in->views[c->workspace].data;
        k->workspace_bytes = c->workspace_bytes;
        k->prepared = c->prepared ? gd_prepared_value(c->prepared) : NULL;
    }
    if (!plan->on_host) GD_TRY(gd_boundary_make(plan, in));
    return GD_OK;
}

gd_status gd_plan_borrow(gd_plan *plan, gd_instance **instance) {
    gd_guard_lock(plan->guard);
    gd_instance *in = plan->idle;
    if (in) plan->idle = in->next;
    gd_guard_unlock(plan->guard);
    *instance = in;
    if (in) return GD_OK;
    in = gd_calloc(1, sizeof *in);
    gd_status status = in ? fill_instance(plan, in) : gd_no_memory(NULL, "for a run");
    if (status != GD_OK) {
        instance_free(plan, in);
        in = NULL;
    }
    *instance = in;
    return status;
}

void gd_plan_return(gd_plan *plan, gd_instance *in) {
    gd_guard_lock(plan->guard);
    in->next = plan->idle;
    plan->idle = in;
    plan->free_idle = free_idle_instances;
    gd_guard_unlock(plan->guard);
}

/* --- a run ------------------------------------------------------------------------------------ */

/* A fetch buffer that the caller of an earlier run still uses is replaced by a new one. */
gd_status gd_plan_prepare(gd_plan *plan, gd_instance *in) {
    for (int i = 0; i < plan->n_buffers; i++) {
        gd_storage *s = in->fetched[i];
        if (!s || atomic_load(&s->refs) > 1) {
            gd_storage *fresh =
                gd_storage_new(plan->device, plan->program->roots[plan->buffers[i]].bytes);
            if (!fresh) return gd_this_thread.latest;
            gd_storage_release(s);
            in->fetched[i] = s = fresh;
        }
        if (plan->on_host || plan->in_place[plan->buffers[i]])
            gd_instance_bind(plan, in, plan->buffers[i], s->data);
    }
    return GD_OK;
}

const char *gd_jit_step_name(const gd_pstep *step) {
    const gd_origin *origin = step->node ? step->node->origin : NULL;
    const bool in_jit = origin && origin->graph && origin->graph->jit;
    if (!in_jit || origin->named) return NULL;
    const char *scope = strrchr(origin->name, '/');
    char text[200];
    snprintf(text, sizeof text, "%.*s", scope ? (int)(scope - origin->name) : 0, origin->name);
    const char *kept = scope ? gd_intern(text) : NULL;
    return kept ? kept : origin->caller ? origin->caller->name : step->op->name;
}

/* Adds the name and the place of the step to the message. */
static gd_status fail_step(const gd_pstep *step, gd_status status) {
    const gd_node *node = step->node;
    const char *in_jit = gd_jit_step_name(step);
    gd_error_prefix("%s: ", in_jit                 ? in_jit
                            : node && node->origin ? node->origin->name
                                                   : step->op->name);
    if (in_jit) gd_error_location(node->site);
    else if (node && node->site) gd_error_suffix(" (%s)", node->site);
    return status;
}

static gd_status run_call(gd_plan *plan, gd_instance *in, const gd_pcall *c, gd_kernel_call *k) {
    for (int i = c->first_copy; i < c->first_copy + c->n_before; i++)
        GD_TRY(gd_copy_view(plan->device, &in->views[plan->copies[i].to],
                            &in->views[plan->copies[i].from]));
    const gd_profile_mark mark = gd_profile_start(plan->device);
    gd_status status = plan->on_host ? k->kernel->run(k) : gd_kernel_queue(k);
    if (mark.started) status = gd_profile_end(k, mark, status);
    if (status != GD_OK) return fail_step(c->step, status);
    for (int i = c->first_copy + c->n_before; i < c->first_copy + c->n_before + c->n_after; i++)
        GD_TRY(gd_copy_view(plan->device, &in->views[plan->copies[i].to],
                            &in->views[plan->copies[i].from]));
    return GD_OK;
}

gd_status gd_instance_run_calls(gd_plan *plan, gd_instance *in, int first, int end, uint64_t run,
                                uint64_t steps) {
    for (int i = first; i < end; i++) {
        const gd_pcall *c = &plan->calls[i];
        if ((c->step->op->flags & (GD_OP_RANDOM | GD_OP_OPAQUE)) &&
            (plan->on_host ||
             (c->step->op->flags & GD_OP_OPAQUE))) { /* the numbers are for its subgraphs */
            in->calls[i].rng = c->step->op->flags & GD_OP_RANDOM ? c->step->node->rng : (gd_rng){0};
            in->calls[i].rng.call += run;
            in->calls[i].rng.seed ^= steps;
        }
        GD_TRY(run_call(plan, in, c, &in->calls[i]));
    }
    return GD_OK;
}

gd_status gd_instance_commit(gd_plan *plan, gd_instance *in) {
    for (int i = 0; i < plan->n_commit_copies; i++) {
        const gd_pcopy *c = &plan->copies[plan->first_commit_copy + i];
        GD_TRY(gd_copy_view(plan->device, &in->views[c->to], &in->views[c->from]));
    }
    return GD_OK;
}

/* On the CPU: binds feeds and variables, whose addresses may change with each run. */
static inline void bind_roots(const gd_plan *plan, gd_instance *in, gd_tensors feeds,
                              gd_tensor *const *variables) {
    const gd_program *p = plan->program;
    for (int r = 0; r < p->n_roots; r++) {
        if (p->roots[r].kind == GD_ROOT_FEED) {
            const gd_tensor *t = feeds.at[p->roots[r].number];
            const size_t offset = (size_t)t->offset * gd_dtype_bytes(t->dtype);
            gd_instance_bind(plan, in, r, (char *)t->storage->data + offset);
        } else if (p->roots[r].kind == GD_ROOT_VARIABLE) {
            gd_instance_bind(plan, in, r, variables[p->roots[r].number]->storage->data);
        }
    }
}

static inline gd_status run_instance(gd_plan *plan, gd_instance *in, gd_tensors feeds,
                                     gd_tensor *const *variables, uint64_t run, uint64_t steps) {
    const gd_program *p = plan->program;
    if (plan->on_host) {
        bind_roots(plan, in, feeds, variables);
        if (plan->n_calls > 0)
            GD_TRY(gd_instance_run_calls(plan, in, 0, plan->n_calls, run, steps));
        if (plan->n_commit_copies > 0) GD_TRY(gd_instance_commit(plan, in));
    } else {
        GD_TRY(gd_boundary_run(plan, in, feeds, variables, run, steps));
    }
    for (int i = 0; i < p->n_commits; i++) { /* the tape may have saved the old contents */
        const gd_root *root = &p->roots[p->commits[i].root];
        if (root->kind == GD_ROOT_CAPTURED) atomic_fetch_add(&root->storage->version, 1);
    }
    return GD_OK;
}

gd_status gd_plan_run(gd_plan *plan, gd_instance *in, gd_tensors feeds, gd_tensor *const *variables,
                      gd_rng rng_offset) {
    return run_instance(plan, in, feeds, variables, rng_offset.call, rng_offset.seed);
}

gd_status gd_plan_run_step(gd_plan *plan, gd_instance *in, gd_tensors feeds,
                           gd_tensor *const *variables, uint64_t run, uint64_t steps) {
    GD_TRY(gd_plan_prepare(plan, in));
    return run_instance(plan, in, feeds, variables, run, steps);
}

uint64_t gd_plan_run_number(const gd_instance *in) { return in->run; }

gd_view gd_plan_result_view(const gd_plan *plan, const gd_instance *in, int fetch) {
    const gd_pvalue *v = &plan->program->values[plan->program->fetches[fetch]];
    gd_view view = {.dtype = (gd_dtype)v->dtype, .rank = v->rank};
    for (int i = 0; i < v->rank; i++) view.dims[i] = v->dims[i], view.strides[i] = v->strides[i];
    view.data = (char *)in->base[v->root] + (size_t)v->offset * gd_dtype_bytes(v->dtype);
    return view;
}

gd_tensor *gd_plan_result(gd_plan *plan, gd_instance *in, int fetch) {
    const gd_pvalue *v = &plan->program->values[plan->program->fetches[fetch]];
    const int buffer = plan->fetch_buffers[fetch];
    gd_storage *storage = buffer < 0 ? NULL : in->fetched[buffer];
    gd_tensor *t = gd_tensor_bare(GD_VALUE, plan->device, (gd_dtype)v->dtype, v->rank, v->dims);
    if (!t) return NULL;
    for (int i = 0; i < v->rank; i++) t->strides[i] = v->strides[i];
    t->offset = v->offset;
    t->storage = storage;
    gd_storage_retain(storage);
    return t;
}
