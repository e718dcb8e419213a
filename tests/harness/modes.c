/* modes.c - the table of modes, and the modes that run a case eagerly. To add a mode, write its run
 * function and add it to `modes` at the end of this file. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "modes.h"

/* --- eager ------------------------------------------------------------------------------------ */

static const run_mode eager = {"eager", true, NULL, run_case, false};

/* --- without a scope: the caller owns the tensors that calls return --------------------------- */

/* The elements of a result, which become a tensor in the scope of the starting thread. */
typedef struct result_copy {
    gd_shape shape;
    gd_dtype dtype;
    char *data;
} result_copy;

static void copy_result(result_copy *c, gd_tensor *t) {
    *c = (result_copy){.data = NULL};
    if (!t) return;
    c->shape = gd_tensor_shape(t);
    c->dtype = gd_tensor_dtype(t);
    size_t bytes = (size_t)gd_tensor_numel(t) * gd_dtype_size(c->dtype);
    c->data = malloc(bytes + 1);
    gd_copy_to(t, c->data, bytes);
}

/* Frees the copy. */
static gd_tensor *tensor_from_copy(result_copy *c) {
    gd_tensor *t = c->data ? gd_from_array(c->shape, c->dtype, c->data) : NULL;
    free(c->data);
    return t;
}

/* A run that releases inputs, options, outputs and gradients one by one. The suite reports objects
 * that are still alive as leaks. */
typedef struct unscoped_run {
    const run_setup *s;
    run_result *r;
    gd_device *device; /* the default device of the starting thread */
    result_copy outs[MAX_TENSORS], grads[MAX_TENSORS];
} unscoped_run;

static void *unscoped_thread(void *arg) {
    unscoped_run *run = arg;
    const run_setup *s = run->s;
    run_result *r = run->r;
    result_copy *outs = run->outs, *grads = run->grads;
    int64_t objects = gd_live_objects();
    gd_set_default_device(run->device);
    gd_tensor *in[MAX_TENSORS], *weights[MAX_TENSORS], *used[MAX_TENSORS], *by[MAX_TENSORS];
    int n_used = 0, n_by = 0;
    *r = (run_result){.status = GD_OK};
    gd_clear_error();
    gd_seed(7);
    r->n_in = build_inputs(s, in);
    gd_attrs *attrs = build_attrs(s->c);
    gd_tensors y = gd_op_call(s->c->block->op, (gd_tensors){in, r->n_in}, attrs);
    r->status = gd_error_status();
    for (int64_t k = 0; k < y.count; k++) {
        copy_result(&outs[r->n_out++], y.at[k]);
        if (gd_tensor_requires_grad(y.at[k])) {
            weights[n_used] = loss_weights(y.at[k], (int)k);
            used[n_used++] = y.at[k];
        }
    }
    for (int i = 0; i < r->n_in; i++) {
        grads[i].data = NULL;
        if (gd_tensor_requires_grad(in[i])) by[n_by++] = in[i];
    }
    if (n_used > 0 && n_by > 0 && s->gradients && r->status == GD_OK) {
        gd_tensors g = gd_grad(((gd_tensors){used, n_used}), ((gd_tensors){by, n_by}),
                               .gradients = (gd_tensors){weights, n_used}, .allow_unused = true);
        r->status = gd_error_status();
        for (int i = 0, k = 0; i < r->n_in; i++)
            if (gd_tensor_requires_grad(in[i])) copy_result(&grads[i], g.at[k++]);
        r->has_grad = r->status == GD_OK;
        gd_release_list(g);
    }
    for (int i = 0; i < r->n_in; i++)
        if (in[i] && input_is_mutated(s->c->block->op, i)) copy_result(&outs[r->n_out++], in[i]);
    for (int k = 0; k < n_used; k++) gd_release(weights[k]);
    gd_release_list(y);
    gd_release(attrs);
    for (int i = 0; i < r->n_in; i++) gd_release(in[i]);
    snprintf(r->message, sizeof r->message, "%s", gd_error_message());
    r->leaked = gd_live_objects() - objects;
    return NULL;
}

/* Runs the case on a new thread, which has no scope. */
static void run_unscoped(const run_setup *s, run_result *r) {
    pthread_t thread;
    unscoped_run *run = calloc(1, sizeof *run);
    run->s = s;
    run->r = r;
    run->device = gd_default_device();
    pthread_create(&thread, NULL, unscoped_thread, run);
    pthread_join(thread, NULL);
    for (int k = 0; k < r->n_out; k++) r->out[k] = tensor_from_copy(&run->outs[k]);
    for (int i = 0; i < r->n_in; i++) r->grad[i] = tensor_from_copy(&run->grads[i]);
    free(run);
}

static const run_mode unscoped = {"without scopes", true, NULL, run_unscoped, true};

const run_mode *const modes[] = {&eager,          &unscoped,     &graph_mode,  &plan_mode,
                                 &optimized_mode, &unknown_mode, &device_mode, NULL};
