/* risks.c - which steps of a program may fail while it runs. */
#include <string.h>

#include "core/alloc.h"
#include "graph/lower/program.h"

static bool is_integer(const gd_program *p, int value) {
    const gd_dtype dtype = value < 0 ? GD_BOOL : (gd_dtype)p->values[value].dtype;
    return !gd_dtype_is_float(dtype) && dtype != GD_BOOL;
}

/* --- indices ---------------------------------------------------------------------------------- */

/* A range check: all numbers of a value are in [0, size), or equal `but`. */
typedef struct range_check {
    int value;
    int64_t size;
    bool has_but;
    int64_t but;
} range_check;

static const void *find_option(const gd_pstep *s, const char *name) {
    int i = 0;
    while (strcmp(s->op->attrs[i].name, name) != 0) i++; /* the record was checked */
    return (const char *)(s->attrs ? s->attrs : s->op->defaults) + s->op->attrs[i].offset;
}

/* The size that indices must be below; false: it is not known here. */
static bool find_index_size(const gd_program *p, const gd_pstep *s, const gd_op_index *f,
                            int64_t *size) {
    if (f->is_number) return *size = *(const int64_t *)find_option(s, f->size), true;
    if (f->of >= s->n_in || (f->of >= 0 && s->in[f->of] < 0)) return false;
    const gd_pvalue *of = f->of < 0 ? NULL : &p->values[s->in[f->of]];
    const gd_shape *list = of ? NULL : find_option(s, f->size);
    const int64_t rank = of ? of->rank : list->rank, *sizes = of ? of->dims : list->at;
    int64_t axis = f->axis_option ? *(const int64_t *)find_option(s, f->axis_option) : f->axis;
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return false;
    *size = sizes[axis];
    for (int64_t k = axis + 1; k < rank && f->and_behind; k++) *size *= sizes[k];
    return true;
}

/* The range of a value by the op's record; false: it is not known. */
static bool find_range_check(const gd_program *p, const gd_pstep *s, const gd_op_index *f,
                             int value, range_check *c) {
    if (value < 0 || !find_index_size(p, s, f, &c->size)) return false;
    c->value = value;
    c->has_but = f->but || f->or_number;
    c->but = f->but ? *(const int64_t *)find_option(s, f->but) : f->number;
    return true;
}

/* The range that the kernel of the step checks. */
static bool get_checked_input(const gd_program *p, const gd_pstep *s, range_check *c) {
    const gd_op_index *f = &s->op->facts.index;
    return s->op->facts.checks && f->tensor < s->n_in &&
           find_range_check(p, s, f, s->in[f->tensor], c);
}

/* The range of an output that the step computes: readers need not check it. */
static bool get_bounded_output(const gd_program *p, const gd_pstep *s, range_check *c) {
    const gd_op_index *f = &s->op->facts.gives;
    return s->op->facts.makes_indices && f->tensor < s->n_out &&
           find_range_check(p, s, f, s->out[f->tensor], c);
}

/* Whether both values have the same elements in the same order, perhaps in another shape. */
static bool has_same_numbers(const gd_pvalue *a, const gd_pvalue *b) {
    if (a->root != b->root || a->dtype != b->dtype || a->offset != b->offset) return false;
    if (a->rank == b->rank && memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0 &&
        memcmp(a->strides, b->strides, sizeof(int64_t) * a->rank) == 0)
        return true;
    return gd_numel(a->rank, a->dims) == gd_numel(b->rank, b->dims) &&
           gd_is_row_major(a->rank, a->dims, a->strides) &&
           gd_is_row_major(b->rank, b->dims, b->strides);
}

/* Whether a value that passes the first check passes the second. */
static bool implies_check(const gd_program *p, const range_check *first,
                          const range_check *second) {
    return first->size <= second->size &&
           (!first->has_but || (second->has_but && second->but == first->but)) &&
           has_same_numbers(&p->values[first->value], &p->values[second->value]);
}

/* A step whose results are all empty does not run. */
static bool has_nonempty_result(const gd_program *p, const gd_pstep *s) {
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k] >= 0 && gd_numel(p->values[s->out[k]].rank, p->values[s->out[k]].dims) > 0)
            return true;
    return false;
}

/* The ranges known at a step of the program. */
typedef struct known_ranges {
    const gd_program *p;
    int *writes;         /* per root: the number of writes */
    range_check *checks; /* ranges that earlier steps have checked or guaranteed */
    int n_checks;
} known_ranges;

/* Whether an earlier step has checked these indices, or computed them in this range. */
static bool is_checked(const known_ranges *k, const range_check *c) {
    const int root = k->p->values[c->value].root;
    if (k->writes[root] > (k->p->roots[root].kind == GD_ROOT_TEMPORARY)) return false;
    for (int i = 0; i < k->n_checks; i++)
        if (implies_check(k->p, &k->checks[i], c)) return true;
    return false;
}

/* --- steps ------------------------------------------------------------------------------------ */

static bool may_fail(known_ranges *k, const gd_pstep *s) {
    const gd_program *p = k->p;
    range_check c;
    if (s->op->ir || (s->op->flags & GD_OP_AWAITS)) return false; /* the latter read no data */
    if (s->op->flags & (GD_OP_OPAQUE | GD_OP_FALLIBLE))
        return true; /* a subgraph may contain any op */
    const bool checks = get_checked_input(p, s, &c), checked = checks && is_checked(k, &c);
    if (checks && !checked && has_nonempty_result(p, s)) k->checks[k->n_checks++] = c;
    if (get_bounded_output(p, s, &c) && has_nonempty_result(p, s)) k->checks[k->n_checks++] = c;
    for (int i = 0; i < s->n_in; i++)
        if (is_integer(p, s->in[i]) && !(checked && i == s->op->facts.index.tensor)) return true;
    return false;
}

bool *gd_program_risks(const gd_program *p) {
    const size_t steps = (size_t)p->n_steps + 1;
    known_ranges k = {
        .p = p, .writes = gd_program_writes(p), .checks = gd_malloc(2 * steps * sizeof *k.checks)};
    bool *risks = k.writes && k.checks ? gd_calloc(steps, sizeof *risks) : NULL;
    if (!risks) gd_no_memory(NULL, "to plan a run");
    for (int i = 0; risks && i < p->n_steps; i++)
        risks[i] = !p->steps[i].removed && !p->steps[i].view && may_fail(&k, &p->steps[i]);
    gd_free(k.writes);
    gd_free(k.checks);
    return risks;
}
