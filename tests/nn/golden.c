/* golden.c - compares layers with PyTorch's modules that have the same weights: names, shapes,
 * outputs, gradients, buffers. */
#include "golden.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"

static uint64_t key_of(const test_case *c, gd_dtype dtype, const char *what) {
    return text_hash(golden_key(c, dtype), what);
}

/* "weight f32 4,3\nrunning_mean f32 4\n", as nn_make.py writes it. */
static void describe_state(const layer_state *s, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < s->n && used + 200 < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s %s %s ",
                                 i < s->n_parameters ? "parameter" : "buffer", s->name[i],
                                 gd_dtype_name(gd_tensor_dtype(s->at[i])));
        for (int k = 0; k < gd_tensor_rank(s->at[i]); k++)
            used += (size_t)snprintf(text + used, size - used, "%s%lld", k ? "," : "",
                                     (long long)gd_tensor_dim(s->at[i], k));
        used += (size_t)snprintf(text + used, size - used, "\n");
    }
}

static golden *golden_file;

static void compare_mode(const test_case *c, gd_module *m, gd_dtype dtype, bool train) {
    const char *mode = train ? "train" : "eval";
    char why[512] = "";
    run_result r;
    layer_fill(c, m);
    layer_run(c, m, dtype, train, &r);
    if (r.status != GD_OK) {
        report_fail(c, dtype, "in %s mode: %s", mode, gd_error_message());
        return;
    }
    switch (golden_compare(golden_file, key_of(c, dtype, mode), &r, c->block, why)) {
    case GOLDEN_SAME: report_pass(); break;
    case GOLDEN_MISSING:
        report_fail(c, dtype, "no golden result; run tests/golden/nn_make.py %s", c->block->family);
        break;
    case GOLDEN_TORCH_ERROR:
    case GOLDEN_DIFFERS:
        report_fail(c, dtype,
                    "in %s mode (buffers follow the outputs, parameters follow the inputs): %s",
                    mode, why);
    }
}

static void compare_case(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    gd_clear_error();
    if (!c->block->torch || c->notorch) {
        report_skip("PyTorch has no such module");
        return;
    }
    gd_module *m = layer_of(c, dtype);
    if (!m) {
        report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    layer_state s;
    char actual[4096];
    layer_state_of(m, &s);
    describe_state(&s, actual, sizeof actual);
    char *expected = golden_text(golden_file, key_of(c, dtype, "state"));
    if (expected && strcmp(actual, expected) != 0)
        report_fail(c, dtype, "parameters and buffers are\n%sPyTorch's are\n%s", actual, expected);
    free(expected);
    compare_mode(c, m, dtype, false);
    if (!c->random) compare_mode(c, m, dtype, true);
}

void suite_nn_golden(const test_cases *cases) {
    for (int b = 0; b < cases->n_blocks; b++) {
        const test_cases one = {.blocks = &cases->blocks[b], .n_blocks = 1};
        golden_file = golden_open(golden_folder, cases->blocks[b].family);
        each_layer_case(&one, compare_case);
        golden_close(golden_file);
    }
}

/* --- the input of nn_make.py ------------------------------------------------------------------ */

static int dump_failures;

static void dump_case(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    gd_clear_error();
    if (!c->block->torch || c->notorch) return;
    gd_module *m = layer_of(c, dtype);
    if (!m) {
        fprintf(stderr, "%s: %s\n", case_name(c), gd_error_message());
        dump_failures++;
        return;
    }
    gd_tensor *in[MAX_TENSORS];
    layer_state s;
    layer_state_of(m, &s);
    printf("{\"where\": \"%s:%d\", \"layer\": \"%s\", \"random\": %s, \"grad\": %s, \"dtype\": "
           "\"%s\", \"torch\": ",
           c->block->file, c->line, gd_op_name(c->block->op), c->random ? "true" : "false",
           c->nograd || c->block->nograd ? "false" : "true", gd_dtype_name(dtype));
    dump_string(c->block->torch);
    printf(", \"call\": ");
    if (c->block->call) dump_string(c->block->call);
    else printf("null");
    printf(", \"keys\": {\"state\": \"%016" PRIx64 "\", \"train\": \"%016" PRIx64
           "\", \"eval\": \"%016" PRIx64 "\"}, \"options\": ",
           key_of(c, dtype, "state"), key_of(c, dtype, "train"), key_of(c, dtype, "eval"));
    dump_options(c);
    printf(", ");
    const int n = dump_inputs(c, dtype, in);
    printf(", \"state\": [");
    for (int i = 0; i < s.n; i++) {
        const gd_shape dims = gd_tensor_shape(s.at[i]);
        printf("%s{\"name\": \"%s\", \"dtype\": \"%s\", \"dims\": ", i ? ", " : "", s.name[i],
               gd_dtype_name(gd_tensor_dtype(s.at[i])));
        dump_ints(dims.at, dims.rank);
        printf("}");
    }
    printf("]}\n");
    dump_bytes(in, n);
    dump_bytes(s.at, s.n);
}

int nn_dump(const test_cases *cases) {
    each_layer_case(cases, dump_case);
    return dump_failures;
}
