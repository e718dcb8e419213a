/* lists.c - combines copies of variables into calls for lists of tensors (gd_each in ops/call.h).
 *
 * A run that may fail computes new values of variables beside the old ones: it copies a variable
 * first if an op updates it (the running statistics of a batch norm), and copies the new values
 * back at the end. These are many small copies. On a device with a kernel for lists, one call at
 * the first of them copies all, and one call at the end copies all new values back.
 */
#include "core/alloc.h"
#include "graph/plan/build.h"
#include "ops/call.h"
#include "ops/launch.h"

/* Views to copy between. */
typedef struct copy_list {
    gd_pcopy *copies;
    int count;
} copy_list;

static bool is_float_row_major(const gd_view *v) {
    return gd_dtype_is_float(v->dtype) && gd_numel(v->rank, v->dims) > 0 &&
           gd_is_row_major(v->rank, v->dims, v->strides);
}

/* Whether the copy has no conversion, and the same dtype as the others of the list. */
static bool fits_list(const gd_plan *plan, const copy_list *l, gd_pcopy copy) {
    const gd_view *to = &plan->views[copy.to], *from = &plan->views[copy.from];
    return is_float_row_major(to) && is_float_row_major(from) && to->dtype == from->dtype &&
           (l->count == 0 || to->dtype == plan->views[l->copies[0].to].dtype);
}

/* The call that copies the list; its kernel is NULL if the device has none, or without memory. */
static gd_pcall make_list_call(gd_plan *plan, const copy_list *l) {
    gd_pcall c = {.first = plan->n_views,
                  .n_in = l->count,
                  .n_out = l->count,
                  .workspace = -1,
                  .first_copy = plan->n_copies};
    gd_pstep *step = gd_program_alloc(plan->program, sizeof *step);
    if (!step) return c;
    *step = (gd_pstep){.op = gd_op_find("clone"), .each = l->count};
    c.step = step;
    int view;
    for (int i = 0; i < 2 * l->count; i++) {
        const gd_pcopy *copy = &l->copies[i % l->count];
        if (gd_plan_repeat_view(plan, i < l->count ? copy->from : copy->to, &view) != GD_OK)
            return c;
    }
    gd_kernel_call call;
    gd_kernel_call_set(&call, NULL, plan->views + c.first, c.n_in, plan->views + c.first + c.n_in,
                       c.n_out);
    call.op = step->op;
    call.each = step->each;
    call.device = plan->device;
    const gd_kernel *kernel = gd_kernel_select(step->op, &call, plan->device->api->kind);
    const unsigned wanted = GD_KERNEL_CHECKED;
    if (kernel && (kernel->flags & (GD_KERNEL_STAGED | wanted)) == wanted && !kernel->workspace &&
        !kernel->prepare)
        c.kernel = kernel;
    return c;
}

/* --- copies at the start ---------------------------------------------------------------------- */

/* Whether the call copies all of a variable or captured tensor to a temporary of its own. `same` is
 * that of liveness: a copy to itself is removed later. */
static bool is_variable_copy(const gd_plan *plan, const gd_pcall *c, const int *same) {
    if (!gd_step_copies(plan->program, c->step) || c->step->each || c->n_before || c->n_after)
        return false;
    const int from = plan->bindings[c->first].root, to = plan->bindings[c->first + 1].root;
    if (from < 0 || to < 0 || same[to] != to || !gd_root_is_temporary(plan->program, to))
        return false;
    const gd_root_kind kind = plan->program->roots[from].kind;
    const gd_pvalue *result = &plan->program->values[c->step->out[0]];
    return (kind == GD_ROOT_VARIABLE || kind == GD_ROOT_CAPTURED) &&
           gd_value_fills_root(plan->program, result);
}

static void list_first_copies(gd_plan *plan, const int *same, copy_list *l) {
    int first = -1, kept = 0;
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall *c = &plan->calls[i];
        const gd_pcopy copy = {.to = c->first + 1, .from = c->first};
        if (!is_variable_copy(plan, c, same) || !fits_list(plan, l, copy)) continue;
        if (first < 0) first = i;
        l->copies[l->count++] = copy;
    }
    if (l->count < 2) return;
    const gd_pcall list = make_list_call(plan, l);
    if (!list.kernel) return;
    int member = 0;
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall c = plan->calls[i];
        if (i == first) plan->calls[kept++] = list;
        if (member < l->count && l->copies[member].from == c.first) {
            gd_prepared_release(c.prepared);
            member++;
        } else {
            plan->calls[kept++] = c;
        }
    }
    plan->n_calls = kept;
}

/* --- commits ---------------------------------------------------------------------------------- */

/* Whether no other commit writes memory of this one's variable. */
static bool commits_alone(const gd_program *p, const gd_commit *c) {
    if (!gd_commit_fills_alone(p, c) || !gd_value_fills_root(p, &p->values[c->to])) return false;
    for (int i = 0; i < p->n_commits; i++)
        if (&p->commits[i] != c && p->commits[i].root == c->root) return false;
    return true;
}

/* The commits that need copies have theirs in the same order. */
static gd_status list_commits(gd_plan *plan, copy_list *l) {
    const gd_program *p = plan->program;
    gd_pcopy *copies = plan->copies + plan->first_commit_copy;
    int kept = 0;
    for (int i = 0, k = 0; i < p->n_commits; i++) {
        if (p->commits[i].through) continue;
        if (commits_alone(p, &p->commits[i]) && fits_list(plan, l, copies[k]))
            l->copies[l->count++] = copies[k];
        k++;
    }
    if (l->count < 2) return GD_OK;
    const gd_pcall list = make_list_call(plan, l);
    if (!list.kernel) return GD_OK;
    GD_TRY(gd_plan_append_call(plan, list));
    for (int k = 0, member = 0; k < plan->n_commit_copies; k++) {
        if (member < l->count && l->copies[member].to == copies[k].to) member++;
        else copies[kept++] = copies[k];
    }
    plan->n_commit_copies = kept;
    return GD_OK;
}

gd_status gd_plan_list_copies(gd_plan *plan, const int *same) {
    if (plan->on_host || !gd_list_kernel_exists(plan->device->api->kind)) return GD_OK;
    copy_list l = {
        gd_malloc((size_t)(plan->n_calls + plan->n_commit_copies + 1) * sizeof *l.copies), 0};
    if (!l.copies) return gd_no_memory(NULL, "to plan a run");
    list_first_copies(plan, same, &l);
    l.count = 0;
    gd_status status = list_commits(plan, &l);
    gd_free(l.copies);
    return status;
}
