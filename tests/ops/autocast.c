/* autocast.c - under GD_AUTOCAST every op gives the results of explicitly cast inputs, in the dtype
 * of its autocast class and of PyTorch's autocast (golden/autocast.txt). Gradients have the dtypes
 * of the inputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/op.h"
#include "suites.h"

static bool is_narrow(gd_dtype dtype) { return dtype == GD_F16 || dtype == GD_BF16; }

/* Autocast does not change calls with f64 inputs, nor calls that write into f16 or bf16. */
static bool is_left_alone(const test_case *c, gd_dtype dtype) {
    bool any = false;
    for (int i = 0; i < case_tensor_count(c); i++) {
        const gd_dtype own = case_dtype(c, i, dtype);
        any |= own == GD_F64 || (is_narrow(own) && input_is_mutated(c->block->op, i));
    }
    return any;
}

/* The dtype to which autocast should cast an input. */
static gd_dtype autocast_dtype(const gd_op *op, gd_dtype input, gd_dtype low) {
    if (op->flags & GD_OP_LOW_PRECISION && (is_narrow(input) || input == GD_F32)) return low;
    if (op->flags & GD_OP_FULL_PRECISION && is_narrow(input)) return GD_F32;
    return input;
}

/* The results for explicitly cast inputs. */
static gd_tensors call_with_casts(const test_case *c, gd_dtype dtype, gd_dtype low) {
    gd_tensor *in[MAX_TENSORS];
    const gd_op *op = c->block->op;
    gd_seed(7);
    const int n = build_inputs(&(run_setup){.c = c, .dtype = dtype}, in);
    for (int i = 0; i < n; i++)
        if (in[i] && !input_is_mutated(op, i) && !is_left_alone(c, dtype))
            in[i] = gd_cast(in[i], autocast_dtype(op, gd_tensor_dtype(in[i]), low));
    return gd_op_call(op, (gd_tensors){in, n}, build_attrs(c));
}

static const char *check_same_as_casts(const test_case *c, gd_dtype dtype, gd_dtype low,
                                       const run_result *r) {
    static char why[512];
    const gd_tensors expected = call_with_casts(c, dtype, low);
    if (gd_failed()) return gd_error_message();
    for (int64_t k = 0; k < expected.count; k++)
        if (!tensors_agree(r->out[k], expected.at[k], 0, why)) return why;
    return NULL;
}

/* |a - b| / |b| as vectors: single elements may differ by more after a relu or many steps of a
 * recurrence. 0 if an expected element is too large for f16. */
static double relative_error(const gd_tensor *a, const gd_tensor *b) {
    double *x = tensor_numbers(a), *y = tensor_numbers(b), off = 0, all = 0;
    const int64_t n = gd_tensor_numel(b);
    for (int64_t i = 0; i < n && x && y; i++) {
        if (!(fabs(y[i]) < 1e4)) all = INFINITY;
        off += (x[i] - y[i]) * (x[i] - y[i]);
        all += y[i] * y[i];
    }
    free(x);
    free(y);
    return all > 0 && all < INFINITY ? sqrt(off / all) : 0;
}

static const char *check_near_f32(const test_case *c, gd_dtype low, const run_result *r) {
    static char why[100];
    const char *no_grad;
    run_result exact;
    run_setup s = {.c = c, .dtype = GD_F32, .gradients = case_has_gradient(c, GD_F32, &no_grad)};
    run_case(&s, &exact);
    if (exact.status != GD_OK) return gd_error_message();
    /* A recurrence of a saturated tanh amplifies the rounding of x and of the weights to bf16. */
    const double most = low == GD_BF16 ? 0.15 : 0.03;
    for (int k = 0; k < exact.n_out; k++) {
        const double off = relative_error(r->out[k], exact.out[k]);
        snprintf(why, sizeof why, "result %d has a relative error of %.3g against f32", k, off);
        if (!(off < most)) return why;
    }
    for (int i = 0; i < exact.n_in; i++) {
        const double off =
            exact.grad[i] && r->grad[i] ? relative_error(r->grad[i], exact.grad[i]) : 0;
        snprintf(why, sizeof why,
                 "the gradient of input %d has a relative error of %.3g against f32", i, off);
        if (!(off < most)) return why;
    }
    return NULL;
}

static const char *check_gradient_dtypes(const test_case *c, gd_dtype dtype, const run_result *r) {
    static char why[200];
    for (int i = 0; i < r->n_in; i++) {
        if (!r->grad[i] || gd_tensor_dtype(r->grad[i]) == case_dtype(c, i, dtype)) continue;
        snprintf(why, sizeof why, "the gradient of input %d is %s", i,
                 gd_dtype_name(gd_tensor_dtype(r->grad[i])));
        return why;
    }
    return NULL;
}

static const char *check_autocast(const test_case *c, gd_dtype dtype, gd_dtype low, run_result *r) {
    const char *no_grad;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    {
        GD_AUTOCAST(low);
        run_case(&s, r);
    }
    if (r->status != GD_OK) return gd_error_message();
    const char *why = check_gradient_dtypes(c, dtype, r);
    if (!why) why = check_same_as_casts(c, dtype, low, r);
    if (!why && dtype == GD_F32 && c->block->op->flags & GD_OP_LOW_PRECISION)
        why = check_near_f32(c, low, r);
    return why;
}

/* --- PyTorch's dtypes ------------------------------------------------------------------------- */

static char *golden_lines;

static void read_golden_lines(void) {
    char path[1000];
    snprintf(path, sizeof path, "%s/autocast.txt", golden_folder);
    FILE *file = fopen(path, "r");
    golden_lines = calloc(1, 1 << 20);
    if (file) {
        if (golden_lines) golden_lines[fread(golden_lines, 1, (1 << 20) - 1, file)] = 0;
        fclose(file);
    }
}

/* The text after "\nexp bf16 : " in autocast.txt; NULL: PyTorch has no such op. */
static const char *find_golden_line(const gd_op *op, gd_dtype dtype) {
    char key[120];
    snprintf(key, sizeof key, "\n%s %s : ", op->name, gd_dtype_name(dtype));
    const char *line = golden_lines ? strstr(golden_lines, key) : NULL;
    return line ? line + strlen(key) : NULL;
}

/* A line of autocast.txt ends with a reason if we differ from PyTorch on purpose. */
static const char *check_torch_dtypes(const test_case *c, gd_dtype dtype, const run_result *r) {
    static char why[300], text[200];
    const char *line = find_golden_line(c->block->op, dtype),
               *dtype_option = strstr(c->options, "dtype=");
    if (!line || dtype_option || is_left_alone(c, dtype)) return NULL;
    size_t used = 0;
    text[0] = 0;
    int visible = 0;
    for (int k = 0; k < c->block->op->n_outputs; k++) visible += !c->block->op->outputs[k].hidden;
    for (int k = 0; k < r->n_out && k < visible && used < sizeof text - 8; k++)
        if (gd_dtype_is_float(gd_tensor_dtype(r->out[k])))
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "",
                                     gd_dtype_name(gd_tensor_dtype(r->out[k])));
    const size_t length = strcspn(line, ":\n") - 1;
    const bool same = strlen(text) == length && strncmp(line, text, length) == 0;
    int fields = 0;
    for (const char *at = line; *at && *at != '\n'; at++) fields += *at == ':';
    const bool differs = fields > 1;
    if (c->block->op->outputs[0].variadic || same != differs) return NULL;
    snprintf(why, sizeof why, "the results are %s; PyTorch's are %.*s%s", text, (int)length, line,
             differs ? ", but golden/autocast_make.py expects a difference" : "");
    return why;
}

/* --- the suite -------------------------------------------------------------------------------- */

static void check_variant(const test_case *c, gd_dtype dtype) {
    static const gd_dtype lows[] = {GD_BF16, GD_F16};
    const gd_op *op = c->block->op;
    if (op->flags & (GD_OP_INTERNAL | GD_OP_DYNAMIC) || op->base) return;
    for (int k = 0; k < 2; k++) {
        GD_SCOPE;
        run_result r;
        const char *why = check_autocast(c, dtype, lows[k], &r);
        if (!why && lows[k] == GD_BF16) why = check_torch_dtypes(c, dtype, &r);
        if (why) report_fail(c, dtype, "under autocast to %s: %s", gd_dtype_name(lows[k]), why);
        else report_pass();
        gd_clear_error();
    }
}

void suite_autocast(const test_cases *cases) {
    read_golden_lines();
    each_variant(cases, 1u << GD_F32 | 1u << GD_BF16 | 1u << GD_F16 | 1u << GD_F64, check_variant);
    free(golden_lines);
}
