/* einsum.c - Einstein summation as matrix products.
 *
 * Operands are multiplied from left to right, two at a time. The labels of a pair form four groups:
 * in both and kept (batch), in both and summed (inner), in the first only (rows), in the second
 * only (columns). With its dimensions permuted into these groups, a pair is one batched matrix
 * product.
 */
#include <string.h>

#include "core/ascii.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

/*op einsum(equation:string, xs*) -> y  heavy lowp
 * Einstein summation: "ij,jk->ik" is a matrix product, "ii->i" a diagonal, "bij->bji" a transpose.
 * Labels are letters; "..." stands for further dimensions, which broadcast. Without "->" the result
 * has the labels that occur once, in alphabetical order. Integers and bools are multiplied and
 * summed as i64, as in sum.
 *   dtype dtype = none    convert to this type first, and return it
 *   onnx Einsum equation=equation  cast y
 */

enum { LABELS = 64, MAX_OPERANDS = 16 };

typedef struct {
    int n;                      /* operands */
    int rank[MAX_OPERANDS + 1]; /* entry n is the result */
    int8_t label[MAX_OPERANDS + 1][GD_MAX_RANK];
    int64_t size[LABELS]; /* -1: the label does not occur */
    int count[LABELS];    /* occurrences in the operands */
} equation;

/* Labels a-z are 0-25, A-Z are 26-51. Dimensions of "..." are 52 and up, counted from the right. */
static int label_of(char c) { return gd_is_lower(c) ? c - 'a' : c - 'A' + 26; }
enum { DOTS = 52 };

/* Parses a term, which ends at ',', at '-' or at the end of the text. rank < 0: the term is the
 * result, in which "..." stands for `dots` dimensions. */
static gd_status parse_term(const char **s, int rank, int dots, int8_t *labels, int *count) {
    int letters = 0, n = 0;
    bool has_dots = false;
    const char *p = *s;
    for (; *p && *p != ',' && *p != '-'; p++) letters += gd_is_alpha(*p);
    int hidden = rank < 0 ? dots : rank - letters;
    for (p = *s; *p && *p != ',' && *p != '-'; p++) {
        if (*p == ' ') continue;
        if (strncmp(p, "...", 3) == 0 && !has_dots) {
            for (int k = hidden; k-- > 0;)
                if (n < GD_MAX_RANK && k < 8) labels[n++] = (int8_t)(DOTS + k);
            has_dots = true;
            p += 2;
        } else if (!gd_is_alpha(*p)) {
            return gd_op_fail(GD_E_ARGUMENT, "the equation has '%c'; labels must be letters", *p);
        } else if (n == GD_MAX_RANK) {
            return gd_op_fail(GD_E_SHAPE, "more than %d labels in a term", GD_MAX_RANK);
        } else {
            labels[n++] = (int8_t)label_of(*p);
        }
    }
    *s = p;
    *count = n;
    if (rank >= 0 && (has_dots ? hidden < 0 : hidden != 0))
        return gd_op_fail(GD_E_SHAPE, "%d labels for a tensor of %d dimensions", letters, rank);
    return GD_OK;
}

/* The result term, which begins with "->" at s. */
static gd_status parse_result(const char *text, const char *s, int dots, equation *q) {
    const int n = q->n;
    if (s[1] != '>') return gd_op_fail(GD_E_ARGUMENT, "expected '->' in '%s'", text);
    s += 2;
    GD_TRY(parse_term(&s, -1, dots, q->label[n], &q->rank[n]));
    if (*s) return gd_op_fail(GD_E_ARGUMENT, "'%s' after the result was not expected", s);
    for (int k = 0; k < q->rank[n]; k++) {
        if (q->size[q->label[n][k]] == -1)
            return gd_op_fail(GD_E_ARGUMENT, "a label of the result of '%s' is in no term", text);
        for (int j = 0; j < k; j++)
            if (q->label[n][j] == q->label[n][k])
                return gd_op_fail(GD_E_ARGUMENT, "a label occurs twice in the result of '%s'",
                                  text);
    }
    return GD_OK;
}

/* Without "->": the dimensions of "...", then the labels that occur once, in alphabetical order. */
static gd_status default_result(int dots, equation *q) {
    static const char alphabetical[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const int n = q->n;
    for (int k = dots; k-- > 0;) q->label[n][q->rank[n]++] = (int8_t)(DOTS + k);
    for (const char *c = alphabetical; *c; c++)
        if (q->count[label_of(*c)] == 1) {
            if (q->rank[n] == GD_MAX_RANK)
                return gd_op_fail(GD_E_SHAPE, "more than %d labels in the result", GD_MAX_RANK);
            q->label[n][q->rank[n]++] = (int8_t)label_of(*c);
        }
    return GD_OK;
}

static gd_status parse_equation(const char *text, int n, gd_tensor *const *xs, equation *q) {
    if (!text) return gd_op_fail(GD_E_ARGUMENT, "the equation is missing");
    if (n > MAX_OPERANDS) return gd_op_fail(GD_E_ARGUMENT, "more than %d tensors", MAX_OPERANDS);
    *q = (equation){.n = n};
    for (int i = 0; i < LABELS; i++) q->size[i] = -1;
    const char *s = text;
    int dots = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && *s++ != ',')
            return gd_op_fail(GD_E_ARGUMENT, "'%s' has fewer terms than the %d tensors", text, n);
        GD_TRY(parse_term(&s, xs[i]->rank, 0, q->label[i], &q->rank[i]));
        for (int k = 0; k < q->rank[i]; k++) {
            int label = q->label[i][k];
            int64_t size = xs[i]->dims[k], *known = &q->size[label];
            if (label >= DOTS && label - DOTS + 1 > dots) dots = label - DOTS + 1;
            q->count[label]++;
            if (*known == -1 || *known == 1) *known = size;
            else if (size != *known && size != 1)
                return gd_op_fail(GD_E_SHAPE, "in '%s' a label has the sizes %lld and %lld", text,
                                  (long long)*known, (long long)size);
        }
    }
    while (*s == ' ') s++;
    if (*s == ',')
        return gd_op_fail(GD_E_ARGUMENT, "'%s' has more terms than the %d tensors", text, n);
    return *s == '-' ? parse_result(text, s, dots, q) : default_result(dots, q);
}

/* The dtype of the computation: i64 for integers, unless the caller asks for a dtype. */
static gd_dtype einsum_dtype(gd_tensor *const *xs, int n, gd_dtype requested) {
    gd_dtype dtype = (gd_dtype)xs[0]->dtype;
    for (int k = 1; k < n; k++) dtype = gd_promote(dtype, (gd_dtype)xs[k]->dtype);
    return requested ? requested : gd_dtype_is_float(dtype) ? dtype : GD_I64;
}

static gd_status einsum_infer(gd_infer *i) {
    const gd_einsum_options *o = i->attrs;
    equation q;
    GD_TRY(parse_equation(o->equation, i->n_in, i->in, &q));
    gd_meta *y = &i->out[0];
    y->dtype = einsum_dtype(i->in, i->n_in, o->dtype);
    if (gd_dtype_size(y->dtype) == 0) return gd_op_fail(GD_E_DTYPE, "there is no such dtype");
    y->rank = q.rank[q.n];
    for (int k = 0; k < y->rank; k++) y->dims[k] = q.size[q.label[q.n][k]];
    return GD_OK;
}

/* --- the body --------------------------------------------------------------------------------- */

typedef struct {
    gd_tensor *t;
    int rank;
    int8_t label[GD_MAX_RANK];
} term;

/* The dimension with this label; -1: none. */
static int find_label(const term *t, int label) {
    for (int k = 0; k < t->rank; k++)
        if (t->label[k] == label) return k;
    return -1;
}

static void drop_label(term *t, int k) {
    memmove(&t->label[k], &t->label[k + 1], (size_t)(t->rank - k - 1));
    t->rank--;
}

/* A label that occurs twice in a term becomes a diagonal, which is the last dimension. */
static void take_diagonals(term *t) {
    for (int a = 0; a < t->rank; a++)
        for (int b = a + 1; b < t->rank; b++)
            if (t->label[a] == t->label[b]) {
                int8_t label = t->label[a];
                t->t = gd_diagonal(t->t, .axis1 = a, .axis2 = b);
                drop_label(t, b);
                drop_label(t, a);
                t->label[t->rank++] = label;
                a = -1;
                break;
            }
}

/* Sums over the labels that are not in `keep`. */
static void sum_unused(term *t, const bool *keep) {
    gd_shape axes = {.form = 1};
    for (int k = 0; k < t->rank; k++)
        if (!keep[t->label[k]]) axes.at[axes.rank++] = k;
    if (!axes.rank) return;
    t->t = gd_sum(t->t, .axis = axes, .dtype = (gd_dtype)t->t->dtype);
    for (int k = t->rank; k-- > 0;)
        if (!keep[t->label[k]]) drop_label(t, k);
}

static int64_t label_size(const term *t, int label) {
    int k = find_label(t, label);
    return k < 0 || t->t->kind == GD_FAILED ? 1 : t->t->dims[k];
}

/* t permuted and reshaped to (batch, rows, cols), where each is the product of a group of
 * labels. */
static gd_tensor *group_dims(const term *t, const int *batch, int nb, const int *rows, int nr,
                             const int *cols, int nc, const int64_t *batch_size) {
    gd_shape axes = {.form = 1}, dims = {.form = 1};
    const int *groups[3] = {batch, rows, cols}, counts[3] = {nb, nr, nc};
    int64_t product[3] = {1, 1, 1};
    for (int g = 0; g < 3; g++)
        for (int k = 0; k < counts[g]; k++) {
            axes.at[axes.rank++] = find_label(t, groups[g][k]);
            int64_t size = label_size(t, groups[g][k]);
            dims.at[dims.rank++] = g == 0 ? batch_size[k] : size; /* a batch of size 1 broadcasts */
            product[g] *= g == 0 ? batch_size[k] : size;
        }
    gd_tensor *x = gd_permute(t->t, axes);
    return gd_reshape(gd_expand(x, dims), gd_dims(product[0], product[1], product[2]));
}

/* The product of two terms, summed over the labels that are not in `keep`. */
static term multiply_terms(term a, term b, const bool *keep) {
    int batch[GD_MAX_RANK], inner[GD_MAX_RANK], left[GD_MAX_RANK], right[GD_MAX_RANK],
        nb = 0, ni = 0, nl = 0, nr = 0;
    int64_t batch_size[GD_MAX_RANK];
    gd_shape dims = {.form = 1};
    term y = {.rank = 0};
    for (int k = 0; k < a.rank; k++) {
        int label = a.label[k];
        if (find_label(&b, label) < 0) left[nl++] = label;
        /* a size of 1 that broadcasts cannot be an inner dimension: it is batch, and summed
         * later */
        else if (!keep[label] && label_size(&a, label) == label_size(&b, label))
            inner[ni++] = label;
        else {
            int64_t sa = label_size(&a, label), sb = label_size(&b, label);
            batch_size[nb] = sa == 1 ? sb : sa;
            batch[nb++] = label;
        }
    }
    for (int k = 0; k < b.rank; k++)
        if (find_label(&a, b.label[k]) < 0) right[nr++] = b.label[k];
    for (int k = 0; k < nb; k++)
        y.label[y.rank++] = (int8_t)batch[k], dims.at[dims.rank++] = batch_size[k];
    for (int k = 0; k < nl; k++)
        y.label[y.rank++] = (int8_t)left[k], dims.at[dims.rank++] = label_size(&a, left[k]);
    for (int k = 0; k < nr && y.rank < GD_MAX_RANK; k++)
        y.label[y.rank++] = (int8_t)right[k], dims.at[dims.rank++] = label_size(&b, right[k]);
    gd_tensor *ta = group_dims(&a, batch, nb, left, nl, inner, ni, batch_size);
    gd_tensor *tb = group_dims(&b, batch, nb, inner, ni, right, nr, batch_size);
    y.t = gd_reshape(gd_matmul(ta, tb), dims);
    sum_unused(&y, keep);
    return y;
}

static void einsum_expand(gd_expansion *e) {
    const gd_einsum_options *o = e->attrs;
    equation q;
    if (parse_equation(o->equation, e->n_in, e->x, &q) != GD_OK) {
        e->y[0] = gd_tensor_fail(gd_this_thread.latest);
        return;
    }
    const gd_dtype dtype = einsum_dtype(e->x, e->n_in, o->dtype);
    term total = {.rank = 0};
    for (int i = 0; i < q.n; i++) {
        term t = {.t = gd_as_dtype(e->x[i], dtype), .rank = q.rank[i]};
        memcpy(t.label, q.label[i], sizeof t.label);
        take_diagonals(&t);
        bool keep[LABELS] = {false}; /* labels of the result and of later terms */
        for (int k = 0; k < q.rank[q.n]; k++) keep[q.label[q.n][k]] = true;
        for (int later = i + 1; later < q.n; later++)
            for (int k = 0; k < q.rank[later]; k++) keep[q.label[later][k]] = true;
        bool shared[LABELS]; /* and those of the product so far */
        memcpy(shared, keep, sizeof shared);
        for (int k = 0; k < total.rank; k++) shared[total.label[k]] = true;
        sum_unused(&t, shared);
        total = i == 0 ? t : multiply_terms(total, t, keep);
    }
    gd_shape axes = {.form = 1};
    for (int k = 0; k < q.rank[q.n]; k++)
        axes.at[axes.rank++] = find_label(&total, q.label[q.n][k]);
    e->y[0] = gd_permute(total.t, axes);
}

#include "ops/matmul/einsum.gen.h"
