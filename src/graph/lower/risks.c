/* risks.c - which steps of a program may fail while it runs. */
#include <string.h>

#include "core/alloc.h"
#include "graph/lower/program.h"

static bool is_integer(const gd_program *p, int value) {
    const gd_dtype dtype = value < 0 ? GD_BOOL : (gd_dtype)p->values[value].dtype;
    return !gd_dtype_is_float(dtype) && dtype != GD_BOOL;
}

/* --- indices ---------------------------------------------------------------------------------- */

/* All numbers of a value are in [0, size), or `but`. */
typedef struct check {
    int value;
    int64_t size;
    bool has_but;
    int64_t but;
} check;

static const void *option(const gd_pstep *s, const char *name) {
    int i = 0;
    while (strcmp(s->op->attrs[i].name, name) != 0) i++; /* the record was checked */
    return (const char *)(s->attrs ? s->attrs : s->op->defaults) + s->op->attrs[i].offset;
}

/* The size that indices must be below; false: it is not to be seen. */
static bool find_size(const gd_program *p, const gd_pstep *s, const gd_op_index *f, int64_t *size) {
    if (f->is_number) return *size = *(const int64_t *)option(s, f->size), true;
    if (f->of >= s->n_in || (f->of >= 0 && s->in[f->of] < 0)) return false;
    const gd_pvalue *of = f->of < 0 ? NULL : &p->values[s->in[f->of]];
    const gd_shape *list = of ? NULL : option(s, f->size);
    const int64_t rank = of ? of->rank : list->rank, *sizes = of ? of->dims : list->at;
    int64_t axis = f->axis_option ? *(const int64_t *)option(s, f->axis_option) : f->axis;
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return false;
    *size = sizes[axis];
    for (int64_t k = axis + 1; k < rank && f->and_behind; k++) *size *= sizes[k];
    return true;
}

/* As the op's record says of a value; false: it says nothing, or too little. */
static bool find_check(const gd_program *p, const gd_pstep *s, const gd_op_index *f, int value,
                       check *c) {
    if (value < 0 || !find_size(p, s, f, &c->size)) return false;
    c->value = value;
    c->has_but = f->but || f->or_number;
    c->but = f->but ? *(const int64_t *)option(s, f->but) : f->number;
    return true;
}

/* What the step checks. */
static bool checks_input(const gd_program *p, const gd_pstep *s, check *c) {
    const gd_op_index *f = &s->op->facts.index;
    return s->op->facts.checks && f->tensor < s->n_in && find_check(p, s, f, s->in[f->tensor], c);
}

/* What need not be checked: the step itself makes it so. */
static bool makes_output(const gd_program *p, const gd_pstep *s, check *c) {
    const gd_op_index *f = &s->op->facts.gives;
    return s->op->facts.makes_indices && f->tensor < s->n_out &&
           find_check(p, s, f, s->out[f->tensor], c);
}

/* Both look at the same numbers, in whatever shape. */
static bool same_numbers(const gd_pvalue *a, const gd_pvalue *b) {
    if (a->root != b->root || a->dtype != b->dtype || a->offset != b->offset) return false;
    if (a->rank == b->rank && memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0 &&
        memcmp(a->strides, b->strides, sizeof(int64_t) * a->rank) == 0)
        return true;
    return gd_numel(a->rank, a->dims) == gd_numel(b->rank, b->dims) &&
           gd_is_row_major(a->rank, a->dims, a->strides) &&
           gd_is_row_major(b->rank, b->dims, b->strides);
}

/* Whether what passes the first check passes the second. */
static bool covers(const gd_program *p, const check *first, const check *second) {
    return first->size <= second->size &&
           (!first->has_but || (second->has_but && second->but == first->but)) &&
           same_numbers(&p->values[first->value], &p->values[second->value]);
}

/* A step whose results are empty does not run. */
static bool runs(const gd_program *p, const gd_pstep *s) {
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k] >= 0 && gd_numel(p->values[s->out[k]].rank, p->values[s->out[k]].dims) > 0)
            return true;
    return false;
}

/* What is known on the way through the program. */
typedef struct known {
    const gd_program *p;
    int *writes;   /* of each root: how often it is written */
    check *checks; /* that steps so far have made, or made needless */
    int n_checks;
} known;

/* Whether a step so far has found these indices to be right, or made them. */
static bool is_checked(const known *k, const check *c) {
    const int root = k->p->values[c->value].root;
    if (k->writes[root] > (k->p->roots[root].kind == GD_ROOT_TEMPORARY)) return false;
    for (int i = 0; i < k->n_checks; i++)
        if (covers(k->p, &k->checks[i], c)) return true;
    return false;
}

/* --- steps ------------------------------------------------------------------------------------ */

static bool may_fail(known *k, const gd_pstep *s) {
    const gd_program *p = k->p;
    check c;
    if (s->op->ir) return false;
    if (s->op->flags & (GD_OP_OPAQUE | GD_OP_REFUSES)) return true; /* a function may do anything */
    const bool checks = checks_input(p, s, &c), checked = checks && is_checked(k, &c);
    if (checks && !checked && runs(p, s)) k->checks[k->n_checks++] = c;
    if (makes_output(p, s, &c) && runs(p, s)) k->checks[k->n_checks++] = c;
    for (int i = 0; i < s->n_in; i++)
        if (is_integer(p, s->in[i]) && !(checked && i == s->op->facts.index.tensor)) return true;
    return false;
}

bool *gd_program_risks(const gd_program *p) {
    const size_t steps = (size_t)p->n_steps + 1;
    known k = {
        .p = p, .writes = gd_program_writes(p), .checks = gd_malloc(2 * steps * sizeof *k.checks)};
    bool *risks = k.writes && k.checks ? gd_calloc(steps, sizeof *risks) : NULL;
    if (!risks) gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int i = 0; risks && i < p->n_steps; i++)
        risks[i] = !p->steps[i].removed && !p->steps[i].view && may_fail(&k, &p->steps[i]);
    gd_free(k.writes);
    gd_free(k.checks);
    return risks;
}
