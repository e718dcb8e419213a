/* one_op.c - times one op, by name, with given shapes and options (bench --op). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "gradus/gradus.h"

static gd_tensor *make_input(gd_shape dims, gd_dtype dtype, int64_t below) {
    if (below > 0) return gd_randint(dims, 0, below, .dtype = dtype);
    const bool is_float = dtype == GD_F32 || dtype == GD_F64 || dtype == GD_F16 || dtype == GD_BF16;
    return is_float ? gd_cast(gd_randn(dims), dtype) : gd_zeros(dims, .dtype = dtype);
}

/* "1024,64" or "i64:32,10": standard normal floats, integers that are all 0. "i64<9:32,10": integers
 * from 0 to 8. "1024,64t": the last two axes are transposed in memory. "none": absent. */
static gd_tensor *parse_input(const char *text) {
    const char *colon = strchr(text, ':'), *below = strchr(text, '<');
    char dtype_name[16] = "f32";
    if (colon)
        snprintf(dtype_name, sizeof dtype_name, "%.*s", (int)((below ? below : colon) - text),
                 text);
    const gd_dtype dtype = gd_dtype_from_name(dtype_name);
    gd_shape dims = {.form = 1};
    bool transposed = false;
    for (const char *s = colon ? colon + 1 : text; *s && dims.rank < GD_MAX_RANK;) {
        char *end;
        dims.at[dims.rank++] = strtoll(s, &end, 10);
        transposed = strcmp(end, "t") == 0;
        if (end == s || (*end && *end != ',' && !transposed)) return NULL;
        s = *end ? end + 1 : end;
    }
    if (dtype == GD_DTYPE_NONE || (transposed && dims.rank < 2)) return NULL;
    gd_tensor *t = make_input(dims, dtype, colon && below ? strtoll(below + 1, NULL, 10) : 0);
    return transposed ? gd_transpose(gd_contiguous(gd_transpose(t, -2, -1)), -2, -1) : t;
}

bool bench_add_argument(bench_call *c, const char *text) {
    if (strchr(text, '=')) {
        const size_t used = strlen(c->options);
        return snprintf(c->options + used, sizeof c->options - used, "%s ", text) <
               (int)(sizeof c->options - used);
    }
    if (c->n_inputs == BENCH_TENSORS) return false;
    const bool absent = strcmp(text, "none") == 0;
    gd_tensor *t = absent ? NULL : parse_input(text);
    if (!absent && (!t || gd_tensor_is_error(t))) return false;
    c->inputs[c->n_inputs++] = t;
    const gd_dtype dtype = t ? gd_tensor_dtype(t) : GD_DTYPE_NONE;
    if (dtype == GD_F32 || dtype == GD_F64 || dtype == GD_F16 || dtype == GD_BF16)
        c->by[c->n_by++] = t;
    return true;
}

gd_tensor *bench_run_call(const bench_call *c) {
    return gd_call(c->op, ((gd_tensors){(gd_tensor **)(uintptr_t)c->inputs, c->n_inputs}),
                   c->options);
}
static void run_forward(void *arg) {
    GD_SCOPE;
    GD_NO_GRAD;
    bench_run_call(arg);
}
static void run_backward(void *arg) {
    GD_SCOPE;
    bench_call *c = arg;
    gd_tensor *y = bench_run_call(c);
    gd_grad(gd_list(y), ((gd_tensors){c->by, c->n_by}), .gradients = gd_list(c->gradient),
            .allow_unused = true);
}

int bench_one_op(int argc, char **argv) {
    GD_SCOPE;
    bench_call c = {.op = argv[0]};
    for (int i = 1; i < argc; i++)
        if (!bench_add_argument(&c, argv[i])) {
            fprintf(stderr,
                    "bench: '%s' is neither a shape such as 1024,64 or i64:32,10 nor an "
                    "option such as axis=1\n",
                    argv[i]);
            return 1;
        }
    for (int i = 0; i < c.n_by; i++) gd_requires_grad(c.by[i]);
    gd_tensor *y = bench_run_call(&c);
    double spread;
    if (!gd_failed()) {
        double ns = bench_time(run_forward, &c, &spread);
        printf("%s on %d threads: %.4g ms (quartiles %.2g apart)\n", c.op, gd_num_threads(),
               ns / 1e6, spread / 1e6);
    }
    if (!gd_failed() && c.n_by > 0 && gd_tensor_requires_grad(y)) {
        c.gradient = gd_ones_like(y);
        double ns = bench_time(run_backward, &c, &spread);
        printf("with its gradients: %.4g ms (quartiles %.2g apart)\n", ns / 1e6, spread / 1e6);
    }
    if (gd_failed()) fprintf(stderr, "bench: %s\n", gd_error_message());
    return gd_failed();
}
