/* stages.c - splits an expression into stages. See stages.h. */
#include "codegen/stages.h"

static const gd_prim *prim_of(const gd_ir *ir, int node) {
    const int code = ir->nodes[node].code;
    return code < GD_IR_PRIM ? 0 : &gd_prims[code - GD_IR_PRIM];
}

static bool is_output(const gd_ir *ir, int node) {
    for (int i = 0; i < ir->n_outputs; i++)
        if (ir->output[i] == node) return true;
    return false;
}

/* The largest number of long primitives on a path to each node, itself included. Returns the
 * maximum. */
static int count_long(const gd_ir *ir, int16_t *longs) {
    int most = 0;
    for (int i = 0; i < ir->count; i++) {
        const gd_prim *p = prim_of(ir, i);
        longs[i] = 0;
        if (!p) continue;
        for (int k = 0; k < p->arity; k++)
            if (longs[ir->nodes[i].arg[k]] > longs[i]) longs[i] = longs[ir->nodes[i].arg[k]];
        longs[i] += p->is_long;
        if (longs[i] > most) most = longs[i];
    }
    return most;
}

/* Moves nodes that depend on no long primitive to the first stage that reads them, where they need
 * no buffer. */
static void delay_nodes(const gd_ir *ir, const int16_t *longs, gd_stages *s) {
    for (int i = ir->count; i-- > 0;) {
        if (s->stage[i] < 0 || longs[i] > 0) continue;
        int first = is_output(ir, i) ? s->count - 1 : s->count;
        for (int u = i + 1; u < ir->count; u++)
            if (s->stage[u] >= 0 && s->stage[u] < first)
                for (int k = 0; k < prim_of(ir, u)->arity; k++)
                    if (ir->nodes[u].arg[k] == i) first = s->stage[u];
        if (first < s->count) s->stage[i] = (int16_t)first;
    }
}

static void assign_buffers(const gd_ir *ir, gd_stages *s) {
    for (int i = 0; i < ir->count; i++) {
        if (s->stage[i] < 0) continue;
        bool later = is_output(ir, i) && s->stage[i] < s->count - 1;
        for (int stage = s->stage[i] + 1; stage < s->count && !later; stage++)
            later = gd_stage_reads_node(ir, s, stage, i);
        if (later) s->buffer[i] = (int16_t)s->n_buffers++;
    }
}

static void use_one_stage(const gd_ir *ir, gd_stages *s) {
    s->count = 1;
    s->n_buffers = 0;
    for (int i = 0; i < ir->count; i++) {
        s->stage[i] = prim_of(ir, i) ? 0 : -1;
        s->buffer[i] = -1;
    }
}

void gd_find_stages(const gd_ir *ir, bool real, gd_stages *s) {
    int16_t longs[GD_IR_MAX_NODES];
    use_one_stage(ir, s);
    const int most = count_long(ir, longs);
    if (!real || most < 2) return;
    s->count = most;
    for (int i = 0; i < ir->count; i++)
        if (s->stage[i] == 0 && longs[i] > 1) s->stage[i] = (int16_t)(longs[i] - 1);
    delay_nodes(ir, longs, s);
    assign_buffers(ir, s);
    if (s->n_buffers > GD_STAGE_BUFFERS) use_one_stage(ir, s);
}

/* Whether a primitive of the stage reads the node, or it is an output and the stage is the last. */
static bool stage_reads(const gd_ir *ir, const gd_stages *s, int stage, int node) {
    if (stage == s->count - 1 && is_output(ir, node)) return true;
    for (int u = node + 1; u < ir->count; u++) {
        if (s->stage[u] != stage) continue;
        for (int k = 0; k < prim_of(ir, u)->arity; k++)
            if (ir->nodes[u].arg[k] == node) return true;
    }
    return false;
}

bool gd_stage_reads_node(const gd_ir *ir, const gd_stages *s, int stage, int node) {
    return s->stage[node] >= 0 && s->stage[node] < stage && stage_reads(ir, s, stage, node);
}

bool gd_stage_reads_var(const gd_ir *ir, const gd_stages *s, int stage, int number) {
    for (int i = 0; i < ir->count; i++)
        if (ir->nodes[i].code == GD_IR_VAR && ir->nodes[i].arg[0] == number &&
            stage_reads(ir, s, stage, i))
            return true;
    return false;
}
