/* probe.c - see probe.h.
 *
 * An unknown size may be bound by the op: in a sum of [?, 3] and [7, 3] it must be 7 or 1. So each
 * unknown size is first tried as free, and, if the rule refuses, as one of the known sizes among the
 * inputs or 1, with as many left free as possible.
 */
#include "ops/probe.h"

#include <string.h>

#include "core/alloc.h"

/* Sizes for what is free: many divisors, so that cutting and folding works, and not so large that
 * products of them overflow. The second pair is for windows wider than the first. The third pair is
 * the first times the numbers of the options, for an axis that is cut into parts of those sizes:
 * [n, 4] as
 * [-1, 8, 8, 4] needs a multiple of 64. */
static const int64_t PROBES[][2] = {{840, 1680}, {5040, 10080}};

enum {
    MOST_UNKNOWN = 16,
    MOST_CHOICES = 16,
    MOST_PINNED = 4,
    MOST_TRIES = 20000,
    MOST_FACTOR = 1 << 26
};

/* --- ops that have a body and no rule --------------------------------------------------------- */

gd_status gd_infer_by_body(gd_infer *i) {
    gd_thread *thread = &gd_this_thread;
    void *tracer = thread->tracer;
    gd_rng numbers = {0, 0}, *noise = thread->noise;
    gd_tensor **x = gd_calloc((size_t)(i->n_in + i->n_out) + 1, sizeof *x), **y;
    if (!x) return gd_fail(GD_E_MEMORY, "no memory to work out shapes");
    y = x + i->n_in;
    gd_attempt attempt; /* shapes that do not fit are an answer, not a failure of the caller's */
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = GD_OK;
    thread->tracer = &gd_no_graph;
    thread->noise = &numbers; /* takes none of the generator's */
    for (int k = 0; k < i->n_in && status == GD_OK; k++) {
        const gd_tensor *t = i->in[k];
        if (t &&
            !(x[k] = gd_tensor_bare(GD_SYMBOL, t->device, (gd_dtype)t->dtype, t->rank, t->dims)))
            status = GD_E_MEMORY;
    }
    gd_expand expand = {i->op, i->attrs, i->n_in, i->n_out, x, y};
    if (status == GD_OK) i->op->expand(&expand);
    for (int k = 0; k < i->n_out && status == GD_OK; k++) {
        if (!y[k]) continue; /* hidden */
        if (y[k]->kind == GD_FAILED) {
            status = gd_failure();
            break;
        }
        i->out[k].dtype = (gd_dtype)y[k]->dtype;
        i->out[k].rank = y[k]->rank;
        memcpy(i->out[k].dims, y[k]->dims, sizeof(int64_t) * y[k]->rank);
    }
    thread->tracer = tracer;
    thread->noise = noise;
    gd_scope_close(&scope);
    gd_free(x);
    return gd_attempt_end(&attempt, status);
}

static gd_status rule(const gd_op *op, gd_infer *infer) {
    return op->infer ? op->infer(infer) : gd_infer_by_body(infer);
}

bool gd_has_unknown(gd_tensor *const *in, int n_in) {
    for (int i = 0; i < n_in; i++)
        for (int d = 0; in[i] && in[i]->kind == GD_SYMBOL && d < in[i]->rank; d++)
            if (in[i]->dims[d] == GD_UNKNOWN) return true;
    return false;
}

/* --- probing ---------------------------------------------------------------------------------- */

typedef struct probing {
    const gd_op *op;
    gd_infer *infer;
    gd_tensor **in; /* copies of those inputs that have unknown sizes */
    gd_tensor *copies;
    int n_unknown; /* in all inputs; beyond MOST_UNKNOWN they are only ever free */
    int64_t *place[MOST_UNKNOWN];
    int64_t choices[MOST_CHOICES]; /* sizes that an unknown one may be bound to */
    int n_choices;
    int64_t factor; /* the numbers of the options multiplied */
    int tries;
    bool found;      /* some sizes fit: */
    gd_infer answer; /* what the rule says to them */
    gd_meta *room;   /* for further answers, where the rule makes no room of its own */
    bool hopeless;   /* no answer can be given before the sizes are known */
} probing;

static void add_choice(probing *p, int64_t size) {
    for (int i = 0; i < p->n_choices; i++)
        if (p->choices[i] == size) return;
    if (p->n_choices < MOST_CHOICES) p->choices[p->n_choices++] = size;
}

static void set_free(probing *p, int64_t size) {
    for (int i = 0; i < p->infer->n_in; i++) {
        gd_tensor *t = p->in[i];
        if (t == p->infer->in[i]) continue;
        for (int d = 0; d < t->rank; d++)
            if (p->infer->in[i]->dims[d] == GD_UNKNOWN) t->dims[d] = size;
    }
}

/* The rule's answer to the sizes as they are now. */
static gd_status ask(probing *p, gd_infer *answer, gd_meta *out) {
    for (int i = 0; i < p->infer->n_in; i++)
        if (p->in[i] != p->infer->in[i])
            gd_row_major(p->in[i]->rank, p->in[i]->dims, p->in[i]->strides);
    *answer = *p->infer;
    answer->in = p->in;
    answer->out = out;
    return rule(p->op, answer);
}

/* What another answer has differently is unknown. */
static gd_status differ(probing *p, gd_infer *first, const gd_infer *other) {
    bool same = first->n_out == other->n_out;
    for (int k = 0; same && k < first->n_out; k++) same = first->out[k].rank == other->out[k].rank;
    if (!same) {
        p->hopeless = true;
        return gd_fail(
            GD_E_SHAPE,
            "how many results or dimensions there are depends on a size that is not known yet");
    }
    for (int k = 0; k < first->n_out; k++)
        for (int d = 0; d < first->out[k].rank; d++)
            if (first->out[k].dims[d] != other->out[k].dims[d]) first->out[k].dims[d] = GD_UNKNOWN;
    return GD_OK;
}

typedef struct pins {
    int count, which[MOST_PINNED];
    int64_t to[MOST_PINNED];
} pins;

static void set_sizes(probing *p, int64_t size, const pins *pinned) {
    set_free(p, size);
    for (int i = 0; i < pinned->count; i++) *p->place[pinned->which[i]] = pinned->to[i];
}

/* Asks with one size for all that is free; then with another for all of it, and with that and with 1
 * for each alone, where the rule allows that: what never changes is known. */
static gd_status try_probes(probing *p, const int64_t *probes, const pins *pinned) {
    gd_infer first, other;
    gd_meta *given = p->infer->out;
    if (p->hopeless || p->tries++ > MOST_TRIES) return GD_E_SHAPE;
    gd_meta *spare = gd_malloc((size_t)(p->infer->n_out > 0 ? p->infer->n_out : 1) * sizeof *spare);
    if (!spare) return gd_fail(GD_E_MEMORY, "no memory to work out shapes");
    set_sizes(p, probes[0], pinned);
    if (p->found) memcpy(p->room, given, (size_t)p->infer->n_out * sizeof *given);
    gd_status status = ask(p, &first, p->found ? p->room : given);
    for (int u = -1; u < 2 * p->n_unknown && status == GD_OK; u++) {
        set_sizes(p, probes[u < 0], pinned);
        if (u >= 0) {
            if (*p->place[u / 2] != probes[0]) continue; /* pinned */
            *p->place[u / 2] = u % 2 ? probes[1] : 1;
        }
        memcpy(spare, given, (size_t)p->infer->n_out * sizeof *spare);
        gd_status accepted = ask(p, &other, spare);
        if (accepted == GD_OK) status = differ(p, &first, &other);
        else if (u < 0) status = accepted; /* alone, it may be bound to another; together not */
        if (other.out != spare) gd_free(other.out);
    }
    if (status == GD_OK && p->found)
        status = differ(p, &p->answer, &first); /* sizes of another kind fit, too */
    else if (status == GD_OK) {
        p->found = true;
        p->answer = first;
    }
    if (first.out != given && first.out != p->room && first.out != p->answer.out)
        gd_free(first.out);
    gd_free(spare);
    return status;
}

/* Binds one more of the unknown sizes from `from` on, in every way. */
static void bind(probing *p, int from, pins *pinned, int goal) {
    if (pinned->count == goal) {
        try_probes(p, PROBES[0], pinned);
        return;
    }
    for (int u = from; u < p->n_unknown && !p->hopeless; u++)
        for (int c = 0; c < p->n_choices; c++) {
            pinned->which[pinned->count] = u;
            pinned->to[pinned->count] = p->choices[c];
            pinned->count++;
            bind(p, u + 1, pinned, goal);
            pinned->count--;
        }
}

static gd_status search(probing *p) {
    pins none = {.count = 0};
    const int64_t multiple[2] = {PROBES[0][0] * p->factor, PROBES[0][1] * p->factor};
    for (size_t i = 0; i < sizeof PROBES / sizeof *PROBES && !p->found; i++)
        try_probes(p, PROBES[i], &none);
    if (!p->found && p->factor > 1) try_probes(p, multiple, &none);
    for (int goal = 1; goal <= MOST_PINNED && !p->found && !p->hopeless; goal++)
        bind(p, 0, &none, goal);
    if (p->found &&
        !p->hopeless) { /* what did not fit was an answer, and is no message to anybody */
        gd_this_thread.latest = GD_OK;
        gd_this_thread.latest_text[0] = 0;
        p->infer->out = p->answer.out;
        p->infer->n_out = p->answer.n_out;
        return GD_OK;
    }
    p->found = p->hopeless = false; /* once more, for the message */
    p->tries = 0;
    gd_status status = try_probes(p, PROBES[0], &none);
    if (status != GD_OK)
        gd_error_suffix(" (taking %lld for each size that is not known yet)",
                        (long long)PROBES[0][0]);
    return status != GD_OK
               ? status
               : gd_fail(GD_E_SHAPE, "its shape depends on a size that is not known yet");
}

/* The known sizes of the inputs that have unknown ones, multiplied; 0: too many elements. */
static int64_t known_elements(const probing *p) {
    int64_t all = 1;
    for (int i = 0; i < p->infer->n_in; i++)
        for (int d = 0; p->in[i] != p->infer->in[i] && d < p->infer->in[i]->rank; d++) {
            const int64_t size = p->infer->in[i]->dims[d];
            if (size != GD_UNKNOWN && __builtin_mul_overflow(all, size, &all)) return 0;
        }
    return all;
}

/* An axis that is split has the sum of the sizes; one that is reshaped has their product over the
 * sizes that are known. */
static void add_list(probing *p, const int64_t *list, int n) {
    int64_t sum = 0, product = 1;
    const int64_t known = known_elements(p);
    for (int k = 0; k < n; k++)
        if (list[k] > 0 && list[k] < 1 << 20 && product <= MOST_FACTOR) {
            sum += list[k];
            product *= list[k];
        }
    if (product > MOST_FACTOR) return;
    if (p->factor <= MOST_FACTOR / product) p->factor *= product;
    add_choice(p, sum);
    if (known > 0 && product % known == 0) add_choice(p, product / known);
}

/* Sizes that the options name may be what an unknown one has to be. */
static void add_options(probing *p) {
    p->factor = 1;
    for (int i = 0; i < p->op->n_attrs && p->infer->attrs; i++) {
        const gd_op_attr *a = &p->op->attrs[i];
        const char *field = (const char *)p->infer->attrs + a->offset;
        const int64_t *list = (const int64_t *)field;
        int n = a->type == GD_ATTR_INT ? 1 : a->type == GD_ATTR_INTS ? a->count : 0;
        if (a->type == GD_ATTR_SHAPE)
            n = ((const gd_shape *)field)->form == 1 ? ((const gd_shape *)field)->rank : 0;
        for (int k = 0; k < n; k++)
            if (list[k] > 0 && list[k] < 1 << 20) add_choice(p, list[k]);
        if (a->type == GD_ATTR_SHAPE && n > 1) add_list(p, list, n);
    }
}

gd_status gd_infer_any(const gd_op *op, gd_infer *infer) {
    int n = 0;
    for (int i = 0; i < infer->n_in; i++) {
        const gd_tensor *t = infer->in[i];
        if (!t || t->kind != GD_SYMBOL) continue;
        bool unknown = false;
        for (int d = 0; d < t->rank; d++) unknown |= t->dims[d] == GD_UNKNOWN;
        n += unknown;
    }
    if (n == 0 || (op->flags & GD_OP_CALLS))
        return rule(op, infer); /* which tries sizes of its own */

    probing p = {.op = op, .infer = infer};
    p.in = gd_malloc((size_t)infer->n_in * sizeof *p.in);
    p.copies = gd_malloc((size_t)n * sizeof *p.copies);
    gd_status status =
        p.in && p.copies ? GD_OK : gd_fail(GD_E_MEMORY, "no memory to work out shapes");
    for (int i = 0, k = 0; i < infer->n_in && status == GD_OK; i++) {
        gd_tensor *t = infer->in[i];
        bool unknown = false;
        for (int d = 0; t && d < t->rank; d++) unknown |= t->dims[d] == GD_UNKNOWN;
        p.in[i] = t;
        if (!unknown) {
            for (int d = 0; t && d < t->rank; d++) add_choice(&p, t->dims[d]);
            continue;
        }
        p.copies[k] = *t;
        p.in[i] = &p.copies[k++];
        for (int d = 0; d < t->rank; d++) {
            if (t->dims[d] != GD_UNKNOWN) add_choice(&p, t->dims[d]);
            else if (p.n_unknown < MOST_UNKNOWN) p.place[p.n_unknown++] = &p.in[i]->dims[d];
        }
    }
    add_choice(&p, 1);
    if (status == GD_OK) add_options(&p);
    p.room = gd_malloc((size_t)(infer->n_out > 0 ? infer->n_out : 1) * sizeof *p.room);
    if (!p.room && status == GD_OK) status = gd_fail(GD_E_MEMORY, "no memory to work out shapes");
    if (status == GD_OK) status = search(&p);
    if (p.found && status != GD_OK && p.answer.out != infer->out) gd_free(p.answer.out);
    gd_free(p.room);
    gd_free(p.copies);
    gd_free(p.in);
    return status;
}
