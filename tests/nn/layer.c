/* layer.c - see layer.h. */
#include "layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void each_layer_case(const test_cases *cases, void (*fn)(const test_case *c, gd_dtype dtype)) {
    for (int b = 0; b < cases->n_blocks; b++)
        for (int k = 0; k < cases->blocks[b].n_cases; k++) {
            report_at(&cases->blocks[b].cases[k], GD_F32);
            fn(&cases->blocks[b].cases[k], GD_F32);
            report_at(&cases->blocks[b].cases[k], GD_F64);
            fn(&cases->blocks[b].cases[k], GD_F64);
            report_at(NULL, GD_DTYPE_NONE);
        }
}

void layer_state_of(gd_module *m, layer_state *s) {
    gd_tensors parameters = gd_module_parameters(m), buffers = gd_module_buffers(m);
    s->n = 0;
    for (int64_t i = 0; i < parameters.count && s->n < MAX_TENSORS; i++)
        s->at[s->n++] = parameters.at[i];
    s->n_parameters = s->n;
    for (int64_t i = 0; i < buffers.count && s->n < MAX_TENSORS; i++) s->at[s->n++] = buffers.at[i];
    for (int i = 0; i < s->n; i++) gd_module_name_of(m, s->at[i], s->name[i], sizeof s->name[i]);
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

void layer_fill(const test_case *c, gd_module *m) {
    layer_state s;
    layer_state_of(m, &s);
    for (int i = 0; i < s.n; i++) {
        const gd_dtype dtype = gd_tensor_dtype(s.at[i]);
        const int64_t n = gd_tensor_numel(s.at[i]);
        const size_t bytes = (size_t)n * gd_dtype_size(dtype);
        char *data = calloc(bytes + 1, 1);
        const case_item item = {.kind = ends_with(s.name[i], "running_var") ? KIND_POSITIVE
                                                                            : KIND_PLAIN};
        const uint64_t seed =
            text_hash(text_hash(text_hash(17, gd_op_name(c->block->op)), c->text), s.name[i]);
        if (gd_dtype_is_float(dtype)) data_fill(seed, &item, dtype, n, data);
        gd_copy_from(s.at[i], data, bytes);
        free(data);
    }
}

gd_module *layer_from(const test_case *c, const char *options, gd_dtype dtype) {
    gd_module *m = gd_layer_new(gd_op_name(c->block->op), options);
    if (m && dtype != GD_F32) gd_module_to(m, NULL, dtype);
    return m;
}

gd_module *layer_of(const test_case *c, gd_dtype dtype) {
    gd_module *m = layer_from(c, c->options, dtype);
    if (m) layer_fill(c, m);
    return m;
}

int layer_inputs(const test_case *c, gd_dtype dtype, gd_tensor **in) {
    const run_setup s = {.c = c, .dtype = dtype, .gradients = !c->nograd && !c->block->nograd};
    return build_inputs(&s, in);
}

void layer_run(const test_case *c, gd_module *m, gd_dtype dtype, bool train, run_result *r) {
    gd_tensor *in[2 * MAX_TENSORS];
    layer_state s;
    *r = (run_result){.status = GD_OK};
    if (train) gd_module_train(m);
    else gd_module_eval(m);
    gd_seed(7);
    const int n_in = layer_inputs(c, dtype, in);
    gd_tensors y = gd_module_call(m, ((gd_tensors){in, n_in}));
    r->status = gd_error_status();
    if (r->status != GD_OK) return;
    layer_state_of(m, &s);
    r->n_in = case_tensor_count(c);
    for (int i = n_in; i < r->n_in; i++) in[i] = NULL;
    for (int i = 0; i < s.n_parameters; i++) in[r->n_in++] = s.at[i];
    for (int64_t k = 0; k < y.count; k++) r->out[r->n_out++] = y.at[k];
    if (!c->nograd && !c->block->nograd) {
        const run_setup setup = {.c = c, .dtype = dtype, .gradients = true};
        r->status = differentiate(&setup, in, r->out, r->n_out, r);
    }
    for (int i = s.n_parameters; i < s.n; i++) r->out[r->n_out++] = gd_clone(s.at[i]);
}
