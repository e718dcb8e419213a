/* optimizer.c - one definition of each optimizer, for values and for symbols.
 *
 * A method is a function that updates one parameter with ordinary ops. What it keeps for each
 * parameter (its slots) and for all (the number of the step) are tensors for eager ops and variables
 * in a graph; the method does not see the difference.
 */
#include "gradus/optim.h"

#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/map.h"
#include "graph/graph.h"
#include "gradus/ops.h"
#include "gradus/session.h"
#include "ops/call.h"

enum { MOST_SLOTS = 2 };

/* What a method sees of one step. */
typedef struct stepping {
    const gd_optimizer *optimizer;
    gd_tensor *lr;
    gd_tensor *shared[MOST_SLOTS]; /* what `begin` has worked out for all parameters */
} stepping;

typedef struct method {
    const char *name;
    int slots;    /* tensors like the parameter, from 0 */
    bool counts;  /* needs the number of the step */
    void (*begin)(stepping *s, gd_tensor *t); /* t: the number of this step, from 1 */
    gd_tensor *(*update)(const stepping *s, gd_tensor *p, gd_tensor *g, gd_tensor *const *slots);
} method;

struct gd_optimizer {
    gd_object object;
    const method *method;
    bool in_graph;
    double lr_value;
    union {
        gd_optim_sgd_options sgd;
        gd_optim_adam_options adam;
    } options;
    int count;
    gd_tensor **parameters; /* held, as are the tensors below */
    gd_tensor **slots;      /* (count, slots); those of a parameter are NULL until its first step */
    gd_tensor *lr, *t;
};

/* --- methods ----------------------------------------------------------------------------------- */

static gd_tensor *sgd_update(const stepping *s, gd_tensor *p, gd_tensor *g, gd_tensor *const *slots) {
    (void)slots;
    return gd_sgd_step(p, g, s->lr, .weight_decay = s->optimizer->options.sgd.weight_decay);
}

static gd_tensor *momentum_update(const stepping *s, gd_tensor *p, gd_tensor *g, gd_tensor *const *slots) {
    const gd_optim_sgd_options *o = &s->optimizer->options.sgd;
    return gd_momentum_step(p, slots[0], g, s->lr, .momentum = o->momentum, .dampening = o->dampening, .nesterov = o->nesterov,
                            .weight_decay = o->weight_decay);
}

/* lr / (1 - beta1^t) and sqrt(1 - beta2^t) */
static void adam_begin(stepping *s, gd_tensor *t) {
    const gd_optim_adam_options *o = &s->optimizer->options.adam;
    gd_tensor *one = gd_scalar(1);
    s->shared[0] = gd_div(s->lr, gd_sub(one, gd_pow(gd_scalar(o->beta1), t)));
    s->shared[1] = gd_sqrt(gd_sub(one, gd_pow(gd_scalar(o->beta2), t)));
}

static gd_tensor *adam_update(const stepping *s, gd_tensor *p, gd_tensor *g, gd_tensor *const *slots) {
    const gd_optim_adam_options *o = &s->optimizer->options.adam;
    return gd_adam_step(p, slots[0], slots[1], g, s->shared[0], s->shared[1], .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps,
                        .weight_decay = o->weight_decay);
}

static const method sgd_method = {"sgd", 0, false, NULL, sgd_update};
static const method momentum_method = {"momentum", 1, false, NULL, momentum_update};
static const method adam_method = {"adam", 2, true, adam_begin, adam_update};

/* --- the object -------------------------------------------------------------------------------- */

static void destroy(gd_object *object) {
    gd_optimizer *o = (gd_optimizer *)object;
    for (int i = 0; i < o->count && o->parameters; i++) gd_release(o->parameters[i]);
    for (int i = 0; i < o->count * o->method->slots && o->slots; i++) gd_release(o->slots[i]);
    gd_release(o->lr);
    gd_release(o->t);
    gd_free(o->parameters);
    gd_free(o->slots);
    gd_free(o);
    gd_object_count(-1);
}
static const gd_class optimizer_class = {.name = "optimizer", .destroy = destroy};

static gd_optimizer *fail(const char *site, gd_status status) {
    gd_report(site, status);
    return NULL;
}

/* A result of an op: gradients go to the leaves that it was made from, and never to it. */
static gd_status refuse_result(const gd_tensor *p, const char *what, int64_t i) {
    const gd_node *node = p->node;
    const char *op = node->op ? node->op->name : "apply";
    const char *leaf = p->kind == GD_SYMBOL ? "gd_variable" : "gd_requires_grad";
    return gd_fail(
        GD_E_STATE,
        "%s: parameter %lld is the result of %s%s%s%s, not a %s, and would never change; "
        "write %s(gd_%s(...)) instead of gd_%s(%s(...))",
        what, (long long)i, op, node->site ? " (" : "", node->site ? node->site : "",
        node->site ? ")" : "", p->kind == GD_SYMBOL ? "variable" : "leaf", leaf, op, op, leaf);
}

static gd_status check_parameter(const gd_tensor *p, const char *what, int64_t i) {
    char text[160];
    if (!p || p->kind == GD_FAILED || p->kind == GD_META)
        return gd_fail(GD_E_ARGUMENT, "%s: parameter %lld is %s", what, (long long)i,
                       p ? "an error" : "NULL");
    const gd_origin_kind from =
        p->kind == GD_SYMBOL && p->node->origin ? p->node->origin->kind : GD_FROM_OP;
    if (p->kind == GD_SYMBOL && from == GD_FROM_PLACEHOLDER)
        return gd_fail(
            GD_E_STATE,
            "%s: parameter %lld is the placeholder '%s', which is fed; use a gd_variable", what,
            (long long)i, p->node->origin->name);
    if (p->kind == GD_SYMBOL ? from != GD_FROM_VARIABLE : p->node != NULL)
        return refuse_result(p, what, i);
    if (!gd_dtype_is_float((gd_dtype)p->dtype))
        return gd_fail(GD_E_DTYPE, "%s: parameter %lld is %s; parameters are floats", what,
                       (long long)i, gd_describe(p, text, sizeof text));
    return GD_OK;
}

/* A leaf that requires no gradient is frozen: steps skip it. */
static gd_status check_parameters(gd_tensors parameters, const char *what, bool *symbols) {
    if (parameters.count < 1 || !parameters.at)
        return gd_fail(GD_E_ARGUMENT, "%s: there are no parameters", what);
    gd_map seen = {NULL, 0, 0};
    gd_status status = GD_OK;
    for (int64_t i = 0; i < parameters.count && status == GD_OK; i++) {
        const gd_tensor *p = parameters.at[i];
        status = check_parameter(p, what, i);
        if (status != GD_OK) break;
        if (i > 0 && (p->kind == GD_SYMBOL) != *symbols)
            status =
                gd_fail(GD_E_ARGUMENT, "%s: parameters are tensors or variables, not both", what);
        *symbols = p->kind == GD_SYMBOL;
        const void *key = *symbols ? (const void *)p->node : p;
        const int first = gd_map_find(&seen, key);
        if (first >= 0)
            status = gd_fail(
                GD_E_ARGUMENT,
                "%s: parameter %lld is the same tensor as parameter %d and would be changed twice "
                "in a step; list it once",
                what, (long long)i, first);
        else if (status == GD_OK && !gd_map_put(&seen, key, (int)i))
            status = gd_fail(GD_E_MEMORY, "no memory for an optimizer");
    }
    gd_map_free(&seen);
    return status;
}

static gd_optimizer *make(const char *site, const char *what, gd_tensors parameters, const method *m, double lr) {
    bool symbols = false;
    gd_status status = check_parameters(parameters, what, &symbols);
    if (status == GD_OK && !(lr >= 0)) status = gd_fail(GD_E_ARGUMENT, "%s: the learning rate is %g", what, lr);
    if (status != GD_OK) return fail(site, status);
    gd_optimizer *o = gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *o) : NULL;
    gd_tensor **held = o ? gd_calloc((size_t)parameters.count, sizeof *held) : NULL;
    if (!held) {
        gd_free(o);
        return fail(site, gd_fail(GD_E_MEMORY, "no memory for an optimizer"));
    }
    gd_object_init(&o->object, &optimizer_class);
    gd_object_count(1);
    gd_scope_adopt(&o->object);
    o->method = m;
    o->in_graph = symbols;
    o->lr_value = lr;
    o->parameters = held;
    for (int64_t i = 0; i < parameters.count; i++) held[o->count++] = gd_retain(parameters.at[i]);
    return o;
}

gd_optimizer *gd_optim_sgd_at(const char *site, gd_tensors parameters, const gd_optim_sgd_options *options) {
    const bool plain = options->momentum == 0;
    if (options->nesterov && plain) return fail(site, gd_fail(GD_E_ARGUMENT, "gd_optim_sgd: nesterov needs momentum"));
    gd_optimizer *o = make(site, "gd_optim_sgd", parameters, plain ? &sgd_method : &momentum_method, options->lr);
    if (o) o->options.sgd = *options;
    return o;
}

gd_optimizer *gd_optim_adam_at(const char *site, gd_tensors parameters, const gd_optim_adam_options *options) {
    gd_optimizer *o = make(site, "gd_optim_adam", parameters, &adam_method, options->lr);
    if (o) o->options.adam = *options;
    return o;
}

/* --- state ------------------------------------------------------------------------------------- */

/* A tensor that lasts: a value, or in a graph a variable that begins as this value. */
static gd_tensor *lasting(const gd_optimizer *o, gd_tensor *value) {
    if (value->kind == GD_FAILED) return NULL;
    gd_tensor *t = o->in_graph ? gd_variable(value, .trainable = false) : value;
    return t->kind == GD_FAILED ? NULL : gd_retain(t);
}

static gd_status make_rate(gd_optimizer *o) {
    gd_tensor **slots = gd_calloc((size_t)(o->count * o->method->slots) + 1, sizeof *slots);
    gd_scope *scope = gd_scope_open();
    gd_tensor *lr = slots ? lasting(o, gd_scalar(o->lr_value)) : NULL,
              *t = lr ? lasting(o, gd_scalar(0)) : NULL;
    gd_scope_close(&scope);
    if (lr && t) {
        o->slots = slots;
        o->lr = lr;
        o->t = t;
        return GD_OK;
    }
    gd_release(lr);
    gd_free(slots);
    return slots ? gd_failure() : gd_fail(GD_E_MEMORY, "no memory for an optimizer");
}

/* The slots of one parameter: all of them, or none. */
static gd_status make_slots(gd_optimizer *o, int parameter) {
    const gd_tensor *p = o->parameters[parameter];
    const int n = o->method->slots;
    gd_tensor **slots = o->slots + parameter * n;
    if (n == 0 || slots[0]) return GD_OK;
    gd_scope *scope = gd_scope_open();
    gd_device *device = gd_this_thread.device;
    gd_tensor *made[MOST_SLOTS];
    int k = 0;
    gd_this_thread.device = p->device;
    while (k < n && (made[k] = lasting(
                         o, gd_zeros(gd_shape_of(p->rank, p->dims), .dtype = (gd_dtype)p->dtype))))
        k++;
    gd_this_thread.device = device;
    gd_scope_close(&scope);
    if (k == n) {
        memcpy(slots, made, (size_t)n * sizeof *slots);
        return GD_OK;
    }
    while (k > 0) gd_release(made[--k]);
    return gd_failure();
}

/* Makes what is kept between steps, for the parameters that have a gradient (`gradients` NULL: for
 * none). The graph of the parameters is being built, or they are tensors: then so is this, also
 * while a function is traced. */
static gd_status make_state(gd_optimizer *o, gd_tensor *const *gradients) {
    void *tracing = o->in_graph ? NULL : gd_tracing_off();
    gd_status status = o->lr ? GD_OK : make_rate(o);
    for (int i = 0; gradients && i < o->count && status == GD_OK; i++)
        if (gradients[i]) status = make_slots(o, i);
    if (!o->in_graph) gd_tracing_on(tracing);
    return status;
}

/* --- a step ------------------------------------------------------------------------------------ */

/* One step with these gradients (NULL: none). In a graph `done` gets what has to be fetched. */
static gd_status step(gd_optimizer *o, gd_tensor *const *gradients, gd_tensor **done, int *n_done) {
    stepping s = {.optimizer = o, .lr = o->lr};
    if (o->method->counts) {
        gd_tensor *t = gd_assign(o->t, gd_add(o->t, gd_scalar(1)));
        if (t->kind == GD_FAILED) return gd_failure();
        done[(*n_done)++] = t;
        o->method->begin(&s, t);
    }
    for (int i = 0; i < o->count; i++) {
        if (!gradients[i]) continue;
        gd_tensor *p = o->method->update(&s, o->parameters[i], gradients[i], o->slots + i * o->method->slots);
        if (p->kind == GD_FAILED) return gd_failure();
        done[(*n_done)++] = p;
    }
    return GD_OK;
}

/* The gradient of each parameter; NULL: it has none, or is frozen. */
static gd_status find_gradients(const gd_optimizer *o, gd_tensor **gradients) {
    for (int i = 0; i < o->count; i++) {
        gd_tensor *p = o->parameters[i];
        if (!p->requires_grad) {
            GD_TRY(gd_graph_note_capture(gd_graph_building(),
                                         p)); /* a jit traces anew when it is thawed */
            continue;
        }
        gradients[i] = gd_tensor_grad(p);
        if (gradients[i] && gradients[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

static gd_status take_step(gd_optimizer *o) {
    if (!o) return gd_fail(GD_E_ARGUMENT, "gd_optimizer_step: the optimizer is NULL");
    if (o->in_graph) return gd_fail(GD_E_STATE, "gd_optimizer_step: its parameters are variables of a graph; use gd_minimize");
    if (gd_this_thread.tracer && !gd_grads_are_traced())
        return gd_fail(GD_E_STATE, "gd_optimizer_step: a graph is being built, and its parameters are tensors; in a "
                                   "graph use variables and gd_minimize, or trace the step with gd_jit");
    gd_tensor **lists = gd_calloc((size_t)(2 * o->count + 1), sizeof *lists), **done = lists + o->count;
    if (!lists) return gd_fail(GD_E_MEMORY, "no memory for a step");
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin(), n_done = 0;
    gd_status status = find_gradients(o, lists);
    if (status == GD_OK) status = make_state(o, lists);
    gd_postponed updates; /* all parameters are changed, or none */
    gd_postpone_begin(&updates);
    if (status == GD_OK) status = step(o, lists, done, &n_done);
    status = gd_postpone_end(&updates, status);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    gd_free(lists);
    return gd_attempt_end(&attempt, status);
}

gd_status gd_optimizer_step_at(const char *site, gd_optimizer *o) {
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    return gd_report(site, take_step(o));
}

void gd_optimizer_zero_grad(gd_optimizer *o) {
    for (int i = 0; o && i < o->count; i++)
        if (o->parameters[i]->kind == GD_VALUE) gd_zero_grad(o->parameters[i]);
}

gd_tensor *gd_optimizer_lr_at(const char *site, gd_optimizer *o) {
    GD_CALLED_FROM(site);
    if (!o || make_state(o, NULL) != GD_OK)
        return gd_tensor_fail(o ? gd_this_thread.noted
                                : gd_fail(GD_E_ARGUMENT, "gd_optimizer_lr: NULL"));
    gd_retain(o->lr);
    gd_status status = gd_scope_take(&o->lr->object);
    return status == GD_OK ? o->lr : gd_tensor_fail(status);
}

/* In a function that is being traced, the rate is set at each call. */
static gd_status note_lr(gd_optimizer *o, double lr) {
    GD_TRY(make_state(o, NULL));
    GD_NO_GRAD;
    return gd_assign(o->lr, gd_scalar(lr))->kind == GD_FAILED ? gd_failure() : GD_OK;
}

static gd_status set_lr_now(gd_optimizer *o, double lr) {
    o->lr_value = lr;
    if (!o->lr) return GD_OK;
    void *tracing = gd_tracing_off();
    gd_status status = gd_copy_tensor(o->lr, gd_scalar(lr));
    gd_tracing_on(tracing);
    return status;
}

static gd_status set_lr(gd_optimizer *o, double lr) {
    if (!o || !(lr >= 0)) return gd_fail(GD_E_ARGUMENT, "gd_optimizer_set_lr: %s", o ? "not a learning rate" : "the optimizer is NULL");
    if (o->in_graph && o->lr)
        return gd_fail(
            GD_E_STATE,
            "gd_optimizer_set_lr: in a graph the learning rate is a variable; use gd_session_set");
    gd_scope *scope = gd_scope_open();
    gd_status status = !o->in_graph && gd_grads_are_traced() ? note_lr(o, lr) : set_lr_now(o, lr);
    gd_scope_close(&scope);
    return status;
}

gd_status gd_optimizer_set_lr_at(const char *site, gd_optimizer *o, double lr) {
    GD_CALLED_FROM(site);
    return gd_report(site, set_lr(o, lr));
}

/* --- in a graph -------------------------------------------------------------------------------- */

static gd_tensor *minimize(gd_optimizer *o, gd_tensor *loss) {
    gd_tensor **done = gd_calloc((size_t)o->count + 2, sizeof *done);
    if (!done) return gd_tensor_fail(gd_fail(GD_E_MEMORY, "no memory for a step"));
    gd_tensors gradients = gd_grad(gd_list(loss), ((gd_tensors){o->parameters, o->count}), .allow_unused = true);
    int n_done = 0;
    gd_status status = gd_failed() ? gd_error_status() : make_state(o, gradients.at);
    if (status == GD_OK) status = step(o, gradients.at, done, &n_done);
    gd_tensor *train = status == GD_OK ? gd_group(((gd_tensors){done, n_done})) : gd_tensor_fail(status);
    gd_free(done);
    return train;
}

gd_tensor *gd_minimize_at(const char *site, gd_optimizer *o, gd_tensor *loss) {
    if (loss && loss->kind == GD_FAILED) return loss;
    const char *wrong = !o                                     ? "the optimizer is NULL"
                        : !o->in_graph                         ? "its parameters are no variables; use gd_optimizer_step"
                        : !loss || loss->kind != GD_SYMBOL     ? "the loss is no symbol"
                        : gd_numel(loss->rank, loss->dims) != 1 ? "the loss has more than one element"
                                                               : NULL;
    gd_graph *graph = wrong ? NULL : o->parameters[0]->node->origin->graph;
    if (!wrong && !graph) wrong = "the graph of its parameters is gone";
    GD_CALLED_FROM(site); /* the nodes that it adds have this place, too */
    if (wrong) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_minimize: %s", wrong));
    gd_block block = gd_graph_begin(graph);
    gd_scope *scope = gd_scope_open();
    gd_tensor *train = minimize(o, loss);
    if (train->kind != GD_FAILED) gd_keep(train);
    gd_scope_close(&scope);
    gd_graph_end(&block);
    return train;
}
