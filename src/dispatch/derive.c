/* derive.c - ops that are created at run time: gradients of elementwise ops, updates that can be
 * skipped, and ops that the program defines. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "codegen/record.h"
#include "core/alloc.h"
#include "core/fork.h"
#include "dispatch/call.h"
#include "dispatch/intern.h"
#include "dispatch/table.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(lock)

/* --- gradients -------------------------------------------------------------------------------- */

/* An op for a gradient expression. */
typedef struct {
    gd_op op;
    gd_op_state state;
    gd_ir ir;
    gd_ir_node nodes[GD_IR_MAX_NODES];
    gd_op_param inputs[24], output;
    char name[96];
} derived_op;

static const gd_op *make_gradient_op(const gd_op *parent, int input, const gd_ir *ir,
                                     const gd_ir_node *nodes, int n) {
    derived_op *d = gd_calloc_until_exit(sizeof *d);
    if (!d) return NULL;
    memcpy(d->nodes, nodes, sizeof d->nodes);
    d->ir = *ir;
    d->ir.nodes = d->nodes;
    snprintf(d->name, sizeof d->name, "%.60s.g%.20s", parent->name, parent->inputs[input].name);
    for (int i = 0; i < n; i++) d->inputs[i].name = "operand";
    d->output.name = "g";
    d->op = (gd_op){.name = d->name,
                    .doc = "",
                    .flags = GD_OP_ELEMENTWISE | GD_OP_INTERNAL,
                    .inputs = d->inputs,
                    .n_inputs = n,
                    .n_required = n,
                    .outputs = &d->output,
                    .n_outputs = 1,
                    .attrs = parent->attrs,
                    .n_attrs = parent->n_attrs,
                    .attrs_size = parent->attrs_size,
                    .defaults = parent->defaults,
                    .saves_in = ~0u,
                    .infer = gd_infer_elementwise,
                    .ir = &d->ir,
                    .state = &d->state};
    return &d->op;
}

static bool derive_gradient(const gd_op *op, int input, struct gd_derived *result) {
    gd_ir_node nodes[GD_IR_MAX_NODES];
    memset(nodes, 0, sizeof nodes);
    gd_ir ir;
    if (op->gradient_ir && op->gradient_ir[input]) {
        ir = *op->gradient_ir[input];
        memcpy(nodes, ir.nodes, sizeof *nodes * (size_t)ir.count);
        ir.nodes = nodes;
    } else if (!gd_ir_gradient(op->ir, op->n_inputs, input, &ir, nodes)) {
        return false;
    }
    result->passes = -1;
    result->zero = gd_ir_is_zero(&ir);
    for (int k = 0; k < op->n_outputs; k++)
        if (gd_ir_is_var(&ir, k)) result->passes = k;
    if (!result->zero && result->passes < 0) {
        int used[4 * GD_RECORD_MAX];
        result->n_sources = gd_ir_compact(&ir, nodes, used);
        for (int i = 0; i < result->n_sources; i++) result->source[i] = (int8_t)used[i];
        result->op = make_gradient_op(op, input, &ir, nodes, result->n_sources);
        if (!result->op) return false;
    }
    return true;
}

const struct gd_derived *gd_op_derived(const gd_op *op, int input) {
    pthread_mutex_lock(&lock);
    gd_op_state *state = op->state;
    if (!state->derived)
        state->derived = gd_calloc_until_exit((size_t)op->n_inputs * sizeof *state->derived);
    struct gd_derived *d = state->derived ? &state->derived[input] : NULL;
    if (d && !d->ready) d->ready = derive_gradient(op, input, d);
    bool ready = d && d->ready;
    pthread_mutex_unlock(&lock);
    if (!ready) gd_fail(GD_E_MEMORY, "no memory for the gradient of %s", op->name);
    return ready ? d : NULL;
}

/* --- updates that can be skipped -------------------------------------------------------------- */

typedef struct {
    gd_op op;
    gd_op_state state;
    gd_ir ir;
    gd_ir_node nodes[GD_IR_MAX_NODES];
    gd_op_param inputs[24];
    char name[96];
} unless_op;

static const gd_op *make_unless_op(const gd_op *op) {
    enum { MAX_INPUTS = sizeof((unless_op *)0)->inputs / sizeof(gd_op_param) };
    unless_op *u = op->n_inputs < MAX_INPUTS ? gd_calloc_until_exit(sizeof *u) : NULL;
    if (!u) return NULL;
    if (!gd_ir_unless(op->ir, op->inputs, op->n_inputs, &u->ir, u->nodes)) {
        gd_free_early(u);
        return NULL;
    }
    snprintf(u->name, sizeof u->name, "%.80s.unless", op->name);
    memcpy(u->inputs, op->inputs, (size_t)op->n_inputs * sizeof *u->inputs);
    u->inputs[op->n_inputs].name = "skip";
    u->op = *op;
    u->op.name = u->name;
    u->op.flags |= GD_OP_INTERNAL;
    u->op.inputs = u->inputs;
    u->op.n_inputs = op->n_inputs + 1;
    u->op.n_required = op->n_inputs + 1;
    u->op.facts = (gd_op_facts){0};
    u->op.reference = NULL; /* it has an expression */
    u->op.gradient_ir = NULL;
    u->op.ir = &u->ir;
    u->op.state = &u->state;
    return &u->op;
}

const gd_op *gd_op_unless(const gd_op *op) {
    pthread_mutex_lock(&lock);
    if (!op->state->unless) op->state->unless = make_unless_op(op);
    const gd_op *unless = op->state->unless;
    pthread_mutex_unlock(&lock);
    if (!unless)
        gd_fail(GD_E_MEMORY, "no memory for a variant of %s that can be skipped", op->name);
    return unless;
}

/* --- ops that the program defines ------------------------------------------------------------- */

typedef struct {
    gd_op op;
    gd_op_state state;
    gd_record record;
    gd_kernel kernel;
    gd_ir ir;
    gd_ir_node nodes[GD_IR_MAX_NODES];
    gd_ir gradients[GD_RECORD_MAX];
    const gd_ir *gradient_list[GD_RECORD_MAX];
    gd_ir_node gradient_nodes[GD_RECORD_MAX][GD_IR_MAX_NODES];
    _Alignas(16) char defaults[GD_RECORD_MAX * sizeof(gd_shape)];
} user_op;

static void set_user_rules(user_op *u, const gd_op_rules *rules) {
    gd_op *op = &u->op;
    op->infer = rules->infer;
    op->vjp = rules->vjp;
    op->expand = rules->expand;
    op->macs = rules->macs;
    if (!rules->reference) return;
    u->kernel = (gd_kernel){.op = op->name,
                            .variant = "reference",
                            .device = "cpu",
                            .flags = rules->reference_flags,
                            .run = rules->reference};
    op->reference = &u->kernel;
}

/* Parses the expression and the gradients of an elementwise op. A gradient saves the inputs and
 * outputs that it uses. */
static gd_status set_user_expressions(user_op *u) {
    gd_record *r = &u->record;
    gd_op *op = &u->op;
    if (!gd_record_forward(r, &u->ir, u->nodes)) return gd_fail(GD_E_ARGUMENT, "%s", r->error);
    op->saves_in = op->saves_out = 0;
    for (int i = 0; i < r->n_inputs; i++) {
        gd_ir *g = &u->gradients[i];
        if (!gd_record_gradient(r, i, g, u->gradient_nodes[i]))
            return gd_fail(GD_E_ARGUMENT, "%s", r->error);
        u->gradient_list[i] = g;
        for (int k = 0; k < r->n_inputs; k++)
            if (gd_ir_uses_var(g, r->n_outputs + k)) op->saves_in |= 1u << k;
        for (int k = 0; k < r->n_outputs; k++)
            if (gd_ir_uses_var(g, r->n_outputs + r->n_inputs + k)) op->saves_out |= 1u << k;
    }
    op->ir = &u->ir;
    op->gradient_ir = u->gradient_list;
    if (!op->infer) op->infer = gd_infer_elementwise;
    return GD_OK;
}

static gd_status build_user_op(user_op *u, const gd_op_rules *rules) {
    gd_record *r = &u->record;
    gd_op *op = &u->op;
    bool elementwise = r->flags & GD_OP_ELEMENTWISE,
         list = r->n_outputs > 0 && r->outputs[r->n_outputs - 1].variadic;
    if ((r->n_outputs > GD_MAX_OUTPUTS && !list) || (elementwise && r->n_inputs > GD_MAX_OUTPUTS))
        return gd_fail(
            GD_E_ARGUMENT,
            "op '%s' has %d inputs and %d outputs; it may have at most %d outputs, and an "
            "elementwise op as many inputs",
            r->name, r->n_inputs, r->n_outputs, GD_MAX_OUTPUTS);
    *op = (gd_op){.name = r->name,
                  .doc = r->doc,
                  .onnx = r->onnx,
                  .caffe = r->caffe,
                  .flags = r->flags | GD_OP_USER,
                  .inputs = r->inputs,
                  .n_inputs = r->n_inputs,
                  .outputs = r->outputs,
                  .n_outputs = r->n_outputs,
                  .attrs = r->attrs,
                  .n_attrs = r->n_attrs,
                  .defaults = u->defaults,
                  .saves_in = r->saves_in,
                  .saves_out = r->saves_out,
                  .facts = r->facts,
                  .state = &u->state};
    while (op->n_required < r->n_inputs && !r->inputs[op->n_required].optional &&
           !r->inputs[op->n_required].variadic)
        op->n_required++;
    for (int i = 0; i < r->n_inputs; i++) op->n_mutated += r->inputs[i].mutated;
    op->attrs_size = gd_attrs_lay_out(r->attrs, r->n_attrs);
    if (rules) set_user_rules(u, rules);
    if (elementwise) GD_TRY(set_user_expressions(u));
    if (!op->infer && !op->expand)
        return gd_fail(GD_E_ARGUMENT, "op '%s' has no infer rule and no body", r->name);
    return gd_attrs_fill_defaults(op, u->defaults);
}

gd_status gd_op_define_at(const char *site, const char *record, const gd_op_rules *rules) {
    if (!record) return gd_report(site, gd_fail(GD_E_ARGUMENT, "gd_op_define: record is NULL"));
    user_op *u = gd_calloc_until_exit(sizeof *u);
    char *text = gd_calloc_until_exit(strlen(record) + 1);
    gd_status status = u && text ? GD_OK : gd_fail(GD_E_MEMORY, "no memory for an op");
    if (status == GD_OK) {
        strcpy(text, record);
        if (!gd_record_parse(&u->record, text))
            status = gd_fail(GD_E_ARGUMENT, "line %d: %s", u->record.error_line, u->record.error);
    }
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    if (status == GD_OK) status = build_user_op(u, rules);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK) status = gd_op_insert(&u->op);
    if (status != GD_OK) {
        gd_free_early(u);
        gd_free_early(text);
        gd_error_prefix("gd_op_define: ");
    }
    return gd_report(site, status);
}
