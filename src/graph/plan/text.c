/* text.c - a plan as text: the program, and how each step runs.
 *
 *     %4 f32[2,8,6,6] = conv2d(%1, %2 (captured 0) f32[8,3,3,3]) padding=1  by tiled: tiles 20x32, 1 part
 */
#include "dispatch/call.h"
#include "dispatch/launch.h"
#include "graph/plan/build.h"

/* The kernel as text: "gemm", "cudnn: engine 38, channels last". */
static void print_kernel(FILE *out, const gd_plan *plan, const gd_pcall *c) {
    char text[160];
    gd_kernel_call call;
    gd_kernel_call_set(&call, c->step->attrs, plan->views + c->first, c->n_in,
                       plan->views + c->first + c->n_in, c->n_out);
    call.op = c->step->op;
    call.each = c->step->each;
    call.device = plan->device;
    call.tf32 = plan->tf32;
    call.kernel = c->kernel;
    call.prepared = c->prepared ? gd_prepared_value(c->prepared) : NULL;
    call.workspace_bytes = c->workspace_bytes;
    fputs(gd_kernel_text(&call, text, sizeof text), out);
}

/* The calls are in the order of their steps. */
typedef struct text {
    const gd_plan *plan;
    int next; /* the first call whose step has no line yet */
} text;

/* Adds how a step runs to its line. */
static void print_call(FILE *out, const gd_pstep *step, void *arg) {
    text *t = arg;
    const gd_plan *plan = t->plan;
    if (t->next == plan->n_calls || plan->calls[t->next].step != step)
        return; /* a view, or nothing to compute */
    const gd_pcall *c = &plan->calls[t->next++];
    const int copies = c->n_before + c->n_after;
    fputs("  by ", out);
    print_kernel(out, plan, c);
    if (copies) fprintf(out, ", with %d cop%s of operands", copies, copies == 1 ? "y" : "ies");
}

char *gd_plan_text(const gd_plan *plan) {
    text t = {plan, 0};
    return gd_program_text_with(plan->program, print_call, &t);
}
