/* autocast.c - under GD_AUTOCAST every op gives what it gives for inputs that were cast by hand,
 * in the dtype that its class says and PyTorch's autocast has (golden/autocast.txt), and
 * gradients in the dtypes of its inputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/op.h"
#include "suites.h"

static bool is_narrow(gd_dtype dtype) { return dtype == GD_F16 || dtype == GD_BF16; }

/* Calls with f64, and those that write f16 or bf16, are left as they are. */
static bool stays(const test_case *c, gd_dtype dtype) {
    bool any = false;
    for (int i = 0; i < case_tensor_count(c); i++) {
        const gd_dtype own = case_dtype(c, i, dtype);
        any |= own == GD_F64 || (is_narrow(own) && input_is_mutated(c->block->op, i));
    }
    return any;
}

/* What autocast should make of an input. */
static gd_dtype target_of(const gd_op *op, gd_dtype input, gd_dtype low) {
    if (op->flags & GD_OP_LOW_PRECISION && (is_narrow(input) || input == GD_F32)) return low;
    if (op->flags & GD_OP_FULL_PRECISION && is_narrow(input)) return GD_F32;
    return input;
}

/* The results for inputs that are cast by hand. */
static gd_tensors by_hand(const test_case *c, gd_dtype dtype, gd_dtype low) {
    gd_tensor *in[MAX_TENSORS];
    const gd_op *op = c->block->op;
    gd_seed(7);
    const int n = build_inputs(&(run_setup){.c = c, .dtype = dtype}, in);
    for (int i = 0; i < n; i++)
        if (in[i] && !input_is_mutated(op, i) && !stays(c, dtype))
            in[i] = gd_cast(in[i], target_of(op, gd_tensor_dtype(in[i]), low));
    return gd_op_call(op, (gd_tensors){in, n}, build_attrs(c));
}

static const char *same_as_by_hand(const test_case *c, gd_dtype dtype, gd_dtype low,
                                   const run_result *r) {
    static char why[512];
    const gd_tensors expected = by_hand(c, dtype, low);
    if (gd_failed()) return gd_error_message();
    for (int64_t k = 0; k < expected.count; k++)
        if (!tensors_agree(r->out[k], expected.at[k], 0, why)) return why;
    return NULL;
}

/* |a - b| / |b|, of all elements together: single ones may be off by more, behind a relu or many
 * steps of a recurrence. 0 where there is a number that f16 does not hold. */
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

static const char *near_f32(const test_case *c, gd_dtype low, const run_result *r) {
    static char why[100];
    const char *no_grad;
    run_result exact;
    run_setup s = {.c = c, .dtype = GD_F32, .gradients = case_has_gradient(c, GD_F32, &no_grad)};
    run_case(&s, &exact);
    if (exact.status != GD_OK) return gd_error_message();
    const double most = low == GD_BF16 ? 0.1 : 0.03;
    for (int k = 0; k < exact.n_out; k++) {
        const double off = relative_error(r->out[k], exact.out[k]);
        snprintf(why, sizeof why, "result %d is off by %.3g of what f32 gives", k, off);
        if (!(off < most)) return why;
    }
    for (int i = 0; i < exact.n_in; i++) {
        const double off =
            exact.grad[i] && r->grad[i] ? relative_error(r->grad[i], exact.grad[i]) : 0;
        snprintf(why, sizeof why, "the gradient of input %d is off by %.3g of what f32 gives", i,
                 off);
        if (!(off < most)) return why;
    }
    return NULL;
}

static const char *gradients_have_dtypes_of_inputs(const test_case *c, gd_dtype dtype,
                                                   const run_result *r) {
    static char why[200];
    for (int i = 0; i < r->n_in; i++) {
        if (!r->grad[i] || gd_tensor_dtype(r->grad[i]) == case_dtype(c, i, dtype)) continue;
        snprintf(why, sizeof why, "the gradient of input %d is %s", i,
                 gd_dtype_name(gd_tensor_dtype(r->grad[i])));
        return why;
    }
    return NULL;
}

static const char *check_one(const test_case *c, gd_dtype dtype, gd_dtype low, run_result *r) {
    const char *no_grad;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    {
        GD_AUTOCAST(low);
        run_case(&s, r);
    }
    if (r->status != GD_OK) return gd_error_message();
    const char *why = gradients_have_dtypes_of_inputs(c, dtype, r);
    if (!why) why = same_as_by_hand(c, dtype, low, r);
    if (!why && dtype == GD_F32 && c->block->op->flags & GD_OP_LOW_PRECISION)
        why = near_f32(c, low, r);
    return why;
}

/* --- PyTorch's dtypes ------------------------------------------------------------------------- */

static char *golden_rows;

static void read_rows(void) {
    char path[1000];
    snprintf(path, sizeof path, "%s/autocast.txt", golden_folder);
    FILE *file = fopen(path, "r");
    golden_rows = calloc(1, 1 << 20);
    if (file) {
        if (golden_rows) golden_rows[fread(golden_rows, 1, (1 << 20) - 1, file)] = 0;
        fclose(file);
    }
}

/* "\nexp bf16 : " and what follows; NULL: PyTorch has no such op. */
static const char *row_of(const gd_op *op, gd_dtype dtype) {
    char key[120];
    snprintf(key, sizeof key, "\n%s %s : ", op->name, gd_dtype_name(dtype));
    const char *row = golden_rows ? strstr(golden_rows, key) : NULL;
    return row ? row + strlen(key) : NULL;
}

/* A row ends with a reason where we differ from PyTorch. */
static const char *dtypes_as_torch(const test_case *c, gd_dtype dtype, const run_result *r) {
    static char why[300], text[200];
    const char *row = row_of(c->block->op, dtype), *dtype_option = strstr(c->options, "dtype=");
    if (!row || dtype_option || stays(c, dtype)) return NULL;
    size_t used = 0;
    text[0] = 0;
    int visible = 0;
    for (int k = 0; k < c->block->op->n_outputs; k++) visible += !c->block->op->outputs[k].hidden;
    for (int k = 0; k < r->n_out && k < visible && used < sizeof text - 8; k++)
        if (gd_dtype_is_float(gd_tensor_dtype(r->out[k])))
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "",
                                     gd_dtype_name(gd_tensor_dtype(r->out[k])));
    const size_t length = strcspn(row, ":\n") - 1;
    const bool same = strlen(text) == length && strncmp(row, text, length) == 0;
    int fields = 0;
    for (const char *at = row; *at && *at != '\n'; at++) fields += *at == ':';
    const bool differs = fields > 1;
    if (c->block->op->outputs[0].variadic || same != differs) return NULL;
    snprintf(why, sizeof why, "the results are %s; PyTorch's are %.*s%s", text, (int)length, row,
             differs ? ", and golden/autocast_make.py says that we differ" : "");
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
        const char *why = check_one(c, dtype, lows[k], &r);
        if (!why && lows[k] == GD_BF16) why = dtypes_as_torch(c, dtype, &r);
        if (why) report_fail(c, dtype, "under autocast to %s: %s", gd_dtype_name(lows[k]), why);
        else report_pass();
        gd_clear_error();
    }
}

void suite_autocast(const test_cases *cases) {
    read_rows();
    each_variant(cases, 1u << GD_F32 | 1u << GD_BF16 | 1u << GD_F16 | 1u << GD_F64, check_variant);
    free(golden_rows);
}
