/* probe.c - shape inference for unknown sizes: calls infer rules with sizes to try. See probe.h.
 *
 * The op may constrain an unknown size: in a sum of [?, 3] and [7, 3] it must be 7 or 1. The search
 * first takes all unknown sizes as free. If the rule fails, it pins some of them to 1 or to a known
 * size of the inputs or options: first one of them, then two, and so on.
 */
#include "dispatch/probe.h"

#include <string.h>

#include "core/alloc.h"
#include "dispatch/call_infer.h"

/* Pairs of sizes for free unknown sizes. They have many divisors, so that splits and reshapes work,
 * and their products do not overflow. The second pair is for windows larger than the first. A third
 * pair is the first multiplied by the integers of the options, for an axis that is split into these
 * sizes: reshaping [n, 4] to [-1, 8, 8, 4] needs a multiple of 64. */
static const int64_t PROBES[][2] = {{840, 1680}, {5040, 10080}};

enum {
    MAX_UNKNOWN = 16,
    MAX_CHOICES = 16,
    MAX_PINNED = 4,
    MAX_TRIES = 20000,
    MAX_FACTOR = 1 << 26
};

bool gd_has_unknown(gd_tensor *const *in, int n_in) {
    for (int i = 0; i < n_in; i++)
        for (int d = 0; in[i] && in[i]->kind == GD_SYMBOL && d < in[i]->rank; d++)
            if (in[i]->dims[d] == GD_UNKNOWN) return true;
    return false;
}

typedef struct shape_probe {
    gd_infer *infer;
    gd_tensor **in; /* copies of those inputs that have unknown sizes */
    gd_tensor *copies;
    int n_unknown;                 /* unknown sizes that may be pinned; those beyond the first
                                      MAX_UNKNOWN are always free */
    int64_t *unknown[MAX_UNKNOWN]; /* their addresses in `copies` */
    int64_t choices[MAX_CHOICES];  /* sizes that an unknown size may be pinned to */
    int n_choices;
    int64_t factor; /* the product of the integers in the options */
    int tries;
    bool found;         /* the rule has succeeded for some sizes: */
    gd_infer answer;    /* with these results */
    gd_meta *more_outs; /* outputs of later calls, unless the rule allocates its own */
    bool hopeless;      /* nothing can be inferred before the sizes are known */
} shape_probe;

static void add_choice(shape_probe *p, int64_t size) {
    for (int i = 0; i < p->n_choices; i++)
        if (p->choices[i] == size) return;
    if (p->n_choices < MAX_CHOICES) p->choices[p->n_choices++] = size;
}

/* Sets all unknown sizes. */
static void set_free_sizes(shape_probe *p, int64_t size) {
    for (int i = 0; i < p->infer->n_in; i++) {
        gd_tensor *t = p->in[i];
        if (t == p->infer->in[i]) continue;
        for (int d = 0; d < t->rank; d++)
            if (p->infer->in[i]->dims[d] == GD_UNKNOWN) t->dims[d] = size;
    }
}

/* Calls the rule with the sizes that are set now. */
static gd_status call_rule(shape_probe *p, gd_infer *answer, gd_meta *out) {
    for (int i = 0; i < p->infer->n_in; i++)
        if (p->in[i] != p->infer->in[i])
            gd_row_major(p->in[i]->rank, p->in[i]->dims, p->in[i]->strides);
    *answer = *p->infer;
    answer->in = p->in;
    answer->out = out;
    return gd_infer_known(answer);
}

/* Makes those sizes of `first` unknown that are different in the other answer. */
static gd_status merge_answers(shape_probe *p, gd_infer *first, const gd_infer *other) {
    bool same = first->n_out == other->n_out;
    for (int k = 0; same && k < first->n_out; k++) same = first->out[k].rank == other->out[k].rank;
    if (!same) {
        p->hopeless = true;
        return gd_fail(
            GD_E_SHAPE,
            "the number of results or of their dimensions depends on a size that is not known yet");
    }
    for (int k = 0; k < first->n_out; k++)
        for (int d = 0; d < first->out[k].rank; d++)
            if (first->out[k].dims[d] != other->out[k].dims[d]) first->out[k].dims[d] = GD_UNKNOWN;
    return GD_OK;
}

/* Unknown sizes that are set to one size: unknown[which[i]] is to[i]. */
typedef struct pinned_sizes {
    int count, which[MAX_PINNED];
    int64_t to[MAX_PINNED];
} pinned_sizes;

static void set_sizes(shape_probe *p, int64_t size, const pinned_sizes *pinned) {
    set_free_sizes(p, size);
    for (int i = 0; i < pinned->count; i++) *p->unknown[pinned->which[i]] = pinned->to[i];
}

/* Calls the rule with probes[0] for all free sizes. Then it calls it with probes[1] for all of
 * them, and with 1 and probes[1] for each alone, if the rule accepts that. Sizes that never change
 * are known. */
static gd_status try_probes(shape_probe *p, const int64_t *probes, const pinned_sizes *pinned) {
    gd_infer first, other;
    gd_meta *given = p->infer->out;
    if (p->hopeless || p->tries++ > MAX_TRIES) return GD_E_SHAPE;
    gd_meta *spare = gd_malloc((size_t)(p->infer->n_out > 0 ? p->infer->n_out : 1) * sizeof *spare);
    if (!spare) return gd_fail(GD_E_MEMORY, "no memory to infer shapes");
    set_sizes(p, probes[0], pinned);
    gd_status status = call_rule(p, &first, p->found ? p->more_outs : given);
    for (int u = -1; u < 2 * p->n_unknown && status == GD_OK; u++) {
        set_sizes(p, probes[u < 0], pinned);
        if (u >= 0) {
            if (*p->unknown[u / 2] != probes[0]) continue; /* pinned */
            *p->unknown[u / 2] = u % 2 ? probes[1] : 1;
        }
        gd_status accepted = call_rule(p, &other, spare);
        if (accepted == GD_OK) status = merge_answers(p, &first, &other);
        else if (u < 0) status = accepted; /* alone, a size may have to equal another: no failure */
        if (other.out != spare) gd_free(other.out);
    }
    if (status == GD_OK && p->found)
        status = merge_answers(p, &p->answer, &first); /* other pins fit, too */
    else if (status == GD_OK) {
        p->found = true;
        p->answer = first;
    }
    if (first.out != given && first.out != p->more_outs && first.out != p->answer.out)
        gd_free(first.out);
    gd_free(spare);
    return status;
}

/* Tries all ways to pin `goal` unknown sizes, given those pinned already; the others come from
 * index `from` on. */
static void pin_sizes(shape_probe *p, int from, pinned_sizes *pinned, int goal) {
    if (pinned->count == goal) {
        try_probes(p, PROBES[0], pinned);
        return;
    }
    for (int u = from; u < p->n_unknown && !p->hopeless; u++)
        for (int c = 0; c < p->n_choices; c++) {
            pinned->which[pinned->count] = u;
            pinned->to[pinned->count] = p->choices[c];
            pinned->count++;
            pin_sizes(p, u + 1, pinned, goal);
            pinned->count--;
        }
}

static gd_status search_sizes(shape_probe *p) {
    pinned_sizes none = {.count = 0};
    const int64_t multiple[2] = {PROBES[0][0] * p->factor, PROBES[0][1] * p->factor};
    for (size_t i = 0; i < sizeof PROBES / sizeof *PROBES && !p->found; i++)
        try_probes(p, PROBES[i], &none);
    if (!p->found && p->factor > 1) try_probes(p, multiple, &none);
    for (int goal = 1; goal <= MAX_PINNED && !p->found && !p->hopeless; goal++)
        pin_sizes(p, 0, &none, goal);
    if (p->found && !p->hopeless) { /* clear the messages of sizes that did not fit */
        gd_this_thread.latest = GD_OK;
        gd_this_thread.latest_text[0] = 0;
        p->infer->out = p->answer.out;
        p->infer->n_out = p->answer.n_out;
        return GD_OK;
    }
    p->found = p->hopeless = false; /* once more, for the error message */
    p->tries = 0;
    gd_status status = try_probes(p, PROBES[0], &none);
    if (status != GD_OK)
        gd_error_suffix(" (taking %lld for each size that is not known yet)",
                        (long long)PROBES[0][0]);
    return status != GD_OK
               ? status
               : gd_fail(GD_E_SHAPE, "its shape depends on a size that is not known yet");
}

/* The product of the known sizes of inputs that have unknown sizes; 0: it overflows. */
static int64_t known_elements(const shape_probe *p) {
    int64_t all = 1;
    for (int i = 0; i < p->infer->n_in; i++)
        for (int d = 0; p->in[i] != p->infer->in[i] && d < p->infer->in[i]->rank; d++) {
            const int64_t size = p->infer->in[i]->dims[d];
            if (size != GD_UNKNOWN && __builtin_mul_overflow(all, size, &all)) return 0;
        }
    return all;
}

/* Adds choices from a list of sizes in the options. For a split, the size of the axis is the sum of
 * the list; for a reshape it is the product divided by the known sizes. */
static void add_list_choices(shape_probe *p, const int64_t *list, int n) {
    int64_t sum = 0, product = 1;
    const int64_t known = known_elements(p);
    for (int k = 0; k < n; k++)
        if (list[k] > 0 && list[k] < 1 << 20 && product <= MAX_FACTOR) {
            sum += list[k];
            product *= list[k];
        }
    if (product > MAX_FACTOR) return;
    if (p->factor <= MAX_FACTOR / product) p->factor *= product;
    add_choice(p, sum);
    if (known > 0 && product % known == 0) add_choice(p, product / known);
}

/* Adds the integers in the options to the choices: an unknown size may have to equal one
 * of them. */
static void add_option_choices(shape_probe *p) {
    p->factor = 1;
    const gd_op *op = p->infer->op;
    for (int i = 0; i < op->n_attrs && p->infer->attrs; i++) {
        const gd_op_attr *a = &op->attrs[i];
        const char *field = (const char *)p->infer->attrs + a->offset;
        const int64_t *list = (const int64_t *)field;
        int n = a->type == GD_ATTR_INT ? 1 : a->type == GD_ATTR_INTS ? a->count : 0;
        if (a->type == GD_ATTR_SHAPE)
            n = ((const gd_shape *)field)->form == 1 ? ((const gd_shape *)field)->rank : 0;
        for (int k = 0; k < n; k++)
            if (list[k] > 0 && list[k] < 1 << 20) add_choice(p, list[k]);
        if (a->type == GD_ATTR_SHAPE && n > 1) add_list_choices(p, list, n);
    }
}

gd_status gd_probe_sizes(gd_infer *infer) {
    shape_probe p = {.infer = infer};
    int n = 0; /* inputs with unknown sizes */
    for (int i = 0; i < infer->n_in; i++) n += gd_has_unknown(&infer->in[i], 1);
    p.in = gd_malloc((size_t)infer->n_in * sizeof *p.in);
    p.copies = gd_malloc((size_t)n * sizeof *p.copies);
    gd_status status = p.in && p.copies ? GD_OK : gd_fail(GD_E_MEMORY, "no memory to infer shapes");
    for (int i = 0, k = 0; i < infer->n_in && status == GD_OK; i++) {
        gd_tensor *t = infer->in[i];
        p.in[i] = t;
        if (!gd_has_unknown(&t, 1)) {
            for (int d = 0; t && d < t->rank; d++) add_choice(&p, t->dims[d]);
            continue;
        }
        p.copies[k] = *t;
        p.in[i] = &p.copies[k++];
        for (int d = 0; d < t->rank; d++) {
            if (t->dims[d] != GD_UNKNOWN) add_choice(&p, t->dims[d]);
            else if (p.n_unknown < MAX_UNKNOWN) p.unknown[p.n_unknown++] = &p.in[i]->dims[d];
        }
    }
    add_choice(&p, 1);
    if (status == GD_OK) add_option_choices(&p);
    p.more_outs = gd_malloc((size_t)(infer->n_out > 0 ? infer->n_out : 1) * sizeof *p.more_outs);
    if (!p.more_outs && status == GD_OK) status = gd_fail(GD_E_MEMORY, "no memory to infer shapes");
    if (status == GD_OK) status = search_sizes(&p);
    if (p.found && status != GD_OK && p.answer.out != infer->out) gd_free(p.answer.out);
    gd_free(p.more_outs);
    gd_free(p.copies);
    gd_free(p.in);
    return status;
}
