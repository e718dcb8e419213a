/* remat_model.c - what rematerialization knows about a program (remat.h). */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/remat.h"
#include "dispatch/fused.h"

/* An estimate of a step's time: the bytes that it reads and writes; for a product also its
 * multiply-adds: with operands of (m,k), (k,n) and (m,n) elements there are mkn. */
static double estimate_cost(const gd_program *p, const gd_pstep *s, bool heavy) {
    double bytes = 0, product = 1;
    int large = 0;
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const int v = k < s->n_in ? s->in[k] : s->out[k - s->n_in];
        if (v < 0) continue;
        const double n = (double)gd_numel(p->values[v].rank, p->values[v].dims);
        bytes += n * (double)gd_dtype_size((gd_dtype)p->values[v].dtype);
        if (large < 3 && (k < 2 || k == s->n_in)) product *= n, large++;
    }
    return heavy ? bytes + sqrt(product) : bytes;
}

/* While the steps are listed, per root: the latest step that reads it, and that changes it. */
typedef struct step_uses {
    int *read, *updated;
} step_uses;

/* Whether a step can be repeated with the same results. A random step can: its call number is
 * fixed. A step that updates an input can if the input is a copy of a variable: it gets a new
 * copy. */
static bool can_repeat(const gd_remat_model *m, const step_uses *u, int number) {
    const gd_program *p = m->p;
    const gd_pstep *s = &p->steps[number];
    if (s->removed || s->view || (s->op->flags & GD_OP_OPAQUE) || m->risks[number]) return false;
    for (int k = 0; k < s->n_out; k++) {
        const int root = gd_value_root(p, s->out[k]);
        if (root < 0 || u->updated[root] == number) continue;
        if (!gd_root_is_temporary(p, root) || m->writers[root] != 1) {
            const bool copy =
                gd_root_is_temporary(p, root) && m->writers[root] == 2 && gd_step_copies(p, s);
            if (!copy || gd_root_is_temporary(p, gd_value_root(p, s->in[0]))) return false;
        }
    }
    for (int k = m->steps[number].in; k < m->steps[number].out; k++) {
        const int root = m->operands[k].root;
        if (!m->operands[k].updated) {
            if (m->writers[root] != 1) return false;
        } else if (m->writers[root] != 2 || m->producer[root] < 0 || !m->can[m->producer[root]]) {
            return false;
        }
    }
    return true;
}

/* Counts the writers of each root. */
static void count_writers(gd_remat_model *m, int *latest) {
    const gd_program *p = m->p;
    for (int r = 0; r < p->n_roots; r++) m->producer[r] = latest[r] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        for (int k = 0; k < s->n_out && !s->view && !s->removed; k++) {
            const int root = gd_value_root(p, s->out[k]);
            if (root < 0 || latest[root] == i) continue;
            latest[root] = i;
            if (m->writers[root]++ == 0) m->producer[root] = i;
        }
    }
}

static void add_operands(gd_remat_model *m, const int *values, int count, int *n) {
    for (int k = 0; k < count; k++) {
        const int root = gd_value_root(m->p, values[k]);
        if (gd_root_is_temporary(m->p, root))
            m->operands[(*n)++] = (gd_remat_operand){.root = root};
    }
}

static void note_uses(const gd_remat_model *m, step_uses *u, int number) {
    const gd_pstep *s = &m->p->steps[number];
    for (int k = 0; k < s->n_in; k++) {
        const int root = gd_value_root(m->p, s->in[k]);
        if (root >= 0) u->read[root] = number;
    }
    for (int k = 0; k < s->n_out; k++) {
        const int root = gd_value_root(m->p, s->out[k]);
        if (root >= 0 && u->read[root] == number) u->updated[root] = number;
    }
}

static void list_step(gd_remat_model *m, step_uses *u, int number, int *n) {
    const gd_pstep *s = &m->p->steps[number];
    gd_remat_step *to = &m->steps[number];
    *to = (gd_remat_step){*n, *n, *n};
    if (s->view || s->removed) return;
    note_uses(m, u, number);
    add_operands(m, s->in, s->n_in, n);
    to->out = *n;
    add_operands(m, s->out, s->n_out, n);
    to->end = *n;
    for (int k = to->in; k < to->end; k++)
        m->operands[k].updated = u->updated[m->operands[k].root] == number;
    m->in_place[number] =
        (s->op->ir || s->op->fusion) && !(m->given->scratch && m->given->scratch[number]);
    m->can[number] = can_repeat(m, u, number);
    m->heavy[number] = s->op->flags & GD_OP_HEAVY;
    m->cost[number] = estimate_cost(m->p, s, m->heavy[number]);
}

static void list_roots(gd_remat_model *m) {
    const gd_program *p = m->p;
    for (int r = 0; r < p->n_roots; r++) {
        m->bytes[r] =
            (p->roots[r].bytes + GD_SLAB_ALIGNMENT - 1) / GD_SLAB_ALIGNMENT * GD_SLAB_ALIGNMENT;
        m->fetched[r] = p->roots[r].fetched;
    }
    for (int i = 0; i < p->n_commits; i++)
        m->assigned[gd_value_root(p, p->commits[i].value)] = true;
}

gd_status gd_remat_begin(gd_remat_model *m, gd_program *p, const gd_remat *given) {
    const size_t roots = (size_t)p->n_roots + 1, steps = (size_t)p->n_steps + 1;
    size_t operands = 1;
    for (int i = 0; i < p->n_steps; i++)
        operands += (size_t)p->steps[i].n_in + (size_t)p->steps[i].n_out;
    *m = (gd_remat_model){.p = p,
                          .given = given,
                          .steps = gd_malloc(steps * sizeof *m->steps),
                          .operands = gd_malloc(operands * sizeof *m->operands),
                          .bytes = gd_calloc(roots, sizeof(size_t)),
                          .fetched = gd_calloc(roots, sizeof(bool)),
                          .in_place = gd_calloc(steps, sizeof(bool)),
                          .producer = gd_malloc(roots * sizeof(int)),
                          .writers = gd_calloc(roots, sizeof(int)),
                          .risks = gd_program_risks(p),
                          .can = gd_calloc(steps, sizeof(bool)),
                          .heavy = gd_calloc(steps, sizeof(bool)),
                          .cost = gd_calloc(steps, sizeof(double)),
                          .assigned = gd_calloc(roots, sizeof(bool))};
    step_uses u = {gd_malloc(roots * sizeof(int)), gd_malloc(roots * sizeof(int))};
    const bool fine = m->steps && m->operands && m->bytes && m->fetched && m->in_place &&
                      m->producer && m->writers && m->risks && m->can && m->heavy && m->cost &&
                      m->assigned && u.read && u.updated;
    if (fine) {
        int n = 0;
        list_roots(m);
        count_writers(m, u.read);
        for (int r = 0; r < p->n_roots; r++) u.read[r] = u.updated[r] = -1;
        for (int i = 0; i < p->n_steps; i++) list_step(m, &u, i, &n);
    }
    gd_free(u.read);
    gd_free(u.updated);
    return fine ? GD_OK : gd_no_memory(NULL, "to plan a run");
}

void gd_remat_end(gd_remat_model *m) {
    gd_free(m->steps);
    gd_free(m->operands);
    gd_free(m->bytes);
    gd_free(m->fetched);
    gd_free(m->in_place);
    gd_free(m->producer);
    gd_free(m->writers);
    gd_free(m->risks);
    gd_free(m->can);
    gd_free(m->heavy);
    gd_free(m->cost);
    gd_free(m->assigned);
}
