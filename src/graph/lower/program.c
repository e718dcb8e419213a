/* program.c - the arrays of a program, queries of them, and the program as text. */
#include "graph/lower/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/grow.h"
#include "graph/build/options.h"
#include "dispatch/call.h"

/* --- memory ----------------------------------------------------------------------------------- */

struct gd_block_list {
    struct gd_block_list *next;
};

void *gd_program_alloc(gd_program *program, size_t bytes) {
    struct gd_block_list *block = gd_calloc(1, sizeof *block + (bytes + 15) / 16 * 16 + 16);
    if (!block) {
        gd_no_memory(NULL, "to plan a run");
        return NULL;
    }
    block->next = program->memory;
    program->memory = block;
    return (char *)block + 16;
}

void gd_program_free(gd_program *program) {
    if (!program) return;
    for (int i = 0; i < program->n_roots; i++) gd_storage_release(program->roots[i].storage);
    for (int i = 0; i < program->n_held; i++) gd_node_release(program->held[i]);
    gd_free(program->roots);
    gd_free(program->values);
    gd_free(program->steps);
    gd_free(program->commits);
    gd_free(program->held);
    gd_index_set_free(&program->views);
    gd_map_free(&program->storages);
    while (program->memory) {
        struct gd_block_list *block = program->memory;
        program->memory = block->next;
        gd_free(block);
    }
    gd_free(program);
}

int gd_program_root(gd_program *p, gd_root root) {
    const int first = root.storage ? gd_map_find(&p->storages, root.storage) : -1;
    if (!gd_grow(p->roots, p->n_roots, p->roots_room) ||
        (root.storage && first < 0 && !gd_map_put(&p->storages, root.storage, p->n_roots)))
        return gd_no_memory(NULL, "to plan a run"), -1;
    root.memory = first < 0 ? p->n_roots : first;
    if (first >= 0) p->roots[first].shared = true;
    p->roots[p->n_roots] = root;
    return p->n_roots++;
}

int gd_program_value(gd_program *p, gd_pvalue value) {
    if (!gd_grow(p->values, p->n_values, p->values_room))
        return gd_no_memory(NULL, "to plan a run"), -1;
    p->values[p->n_values] = value;
    return p->n_values++;
}

gd_pstep *gd_program_step(gd_program *p) {
    if (!gd_grow(p->steps, p->n_steps, p->steps_room))
        return gd_no_memory(NULL, "to plan a run"), NULL;
    memset(&p->steps[p->n_steps], 0, sizeof *p->steps);
    return &p->steps[p->n_steps++];
}

gd_status gd_program_commit(gd_program *p, gd_commit commit) {
    if (!gd_grow(p->commits, p->n_commits, p->commits_room))
        return gd_no_memory(NULL, "to plan a run");
    p->commits[p->n_commits++] = commit;
    return GD_OK;
}

bool gd_step_copies(const gd_program *p, const gd_pstep *s) {
    if (!gd_op_copies(s->op) || s->n_in != 1 || s->n_out != 1 || s->in[0] < 0 || s->out[0] < 0)
        return false;
    const gd_pvalue *x = &p->values[s->in[0]], *y = &p->values[s->out[0]];
    return x->dtype == y->dtype && gd_values_have_same_dims(x, y);
}

/* --- readers and writers ---------------------------------------------------------------------- */

static int *alloc_root_counts(const gd_program *p) {
    int *counts = gd_calloc((size_t)p->n_roots + 1, sizeof *counts);
    if (!counts) gd_no_memory(NULL, "to plan a run");
    return counts;
}

int *gd_program_readers(const gd_program *p) {
    int *readers = alloc_root_counts(p);
    if (!readers) return NULL;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_in && !p->steps[i].removed; k++)
            if (p->steps[i].in[k] >= 0) readers[p->values[p->steps[i].in[k]].root]++;
    for (int i = 0; i < p->n_fetches; i++) readers[p->values[p->fetches[i]].root]++;
    for (int i = 0; i < p->n_commits; i++) readers[p->values[p->commits[i].value].root]++;
    return readers;
}

int *gd_program_writes(const gd_program *p) {
    int *writes = alloc_root_counts(p);
    for (int i = 0; writes && i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_out && !p->steps[i].view && !p->steps[i].removed; k++)
            if (p->steps[i].out[k] >= 0) writes[p->values[p->steps[i].out[k]].root]++;
    return writes;
}

bool gd_is_dense(int rank, const int64_t *dims, const int64_t *strides) {
    int left = 0, d;
    int64_t stride = 1;
    for (d = 0; d < rank; d++) left += dims[d] != 1;
    for (; left > 0; left--) { /* find the next axis, from the innermost */
        for (d = 0; d < rank && (dims[d] == 1 || strides[d] != stride); d++) {
        }
        if (d == rank || dims[d] == 0) return false;
        stride *= dims[d];
    }
    return true;
}

_Alignas(GD_UNBOUND_ALIGNMENT) char gd_unbound_memory[GD_UNBOUND_ALIGNMENT];

gd_view gd_program_view(const gd_pvalue *v) {
    const size_t offset = (size_t)v->offset * gd_dtype_bytes(v->dtype);
    gd_view view = {.data = gd_unbound_memory + offset % GD_UNBOUND_ALIGNMENT,
                    .dtype = (gd_dtype)v->dtype,
                    .rank = v->rank};
    for (int i = 0; i < v->rank; i++) view.dims[i] = v->dims[i], view.strides[i] = v->strides[i];
    return view;
}

/* Selects the kernel for a step, and finds out whether it prefers channels last. */
static const gd_kernel *select_step_kernel(const gd_program *p, const gd_pstep *s,
                                           gd_device *device, bool *prefers_channels_last) {
    enum { MAX_FEW = 32 };
    const int n = s->n_in + s->n_out;
    gd_view few[MAX_FEW], *views = few;
    *prefers_channels_last = false;
    if ((s->op->flags & GD_OP_OPAQUE) || (n > MAX_FEW && !s->each)) return NULL;
    if (n > MAX_FEW && !(views = gd_malloc((size_t)n * sizeof *views))) return NULL;
    for (int i = 0; i < n; i++) {
        const int value = i < s->n_in ? s->in[i] : s->out[i - s->n_in];
        if (value == -1) views[i] = (gd_view){.data = NULL};
        else views[i] = gd_program_view(&p->values[value < 0 ? GD_UNWANTED(value) : value]);
        if (value < 0) views[i].data = NULL;
    }
    gd_kernel_call call;
    gd_kernel_call_set(&call, s->attrs, views, s->n_in, views + s->n_in, s->n_out);
    call.op = s->op;
    call.each = s->each;
    call.device = device;
    const gd_kernel *kernel = gd_kernel_select(s->op, &call, device->api->kind);
    if (kernel && kernel->prefers_channels_last)
        *prefers_channels_last = kernel->prefers_channels_last(&call);
    if (views != few) gd_free(views);
    return kernel;
}

const gd_kernel *gd_step_kernel(const gd_program *p, const gd_pstep *s, gd_device *device) {
    bool prefers;
    return select_step_kernel(p, s, device, &prefers);
}

bool gd_step_prefers_channels_last(const gd_program *p, const gd_pstep *s, gd_device *device) {
    bool prefers;
    select_step_kernel(p, s, device, &prefers);
    return prefers;
}

void gd_program_describe(const gd_program *p, int value, gd_device *device, gd_tensor *t) {
    const gd_pvalue *v = &p->values[value];
    memset(t, 0, sizeof *t);
    t->kind = GD_META;
    t->dtype = v->dtype;
    t->rank = v->rank;
    t->offset = v->offset;
    t->device = device;
    for (int i = 0; i < v->rank; i++) t->dims[i] = v->dims[i], t->strides[i] = v->strides[i];
}

bool gd_same_options(const gd_pstep *a, const gd_pstep *b) {
    if (a->attrs == b->attrs) return true;
    if (!a->attrs || !b->attrs) return false;
    for (int i = 0; i < a->op->n_attrs; i++) {
        const gd_op_attr *attr = &a->op->attrs[i];
        if (!gd_same_option(attr, (const char *)a->attrs + attr->offset,
                            (const char *)b->attrs + attr->offset))
            return false;
    }
    return true;
}

uint64_t gd_hash_options(uint64_t hash, const gd_pstep *s) {
    for (int i = 0; i < s->op->n_attrs && s->attrs; i++) {
        const gd_op_attr *attr = &s->op->attrs[i];
        hash = gd_hash_option(hash, attr, (const char *)s->attrs + attr->offset);
    }
    return hash;
}

/* --- text ------------------------------------------------------------------------------------- */

static const char *const root_names[] = {"", "feed ", "variable ", "captured "};

static void print_value(FILE *out, const gd_program *p, int v) {
    char shape[128];
    const gd_pvalue *value = &p->values[v];
    const gd_root *root = &p->roots[value->root];
    fprintf(out, "%%%d", v);
    if (root->kind != GD_ROOT_TEMPORARY)
        fprintf(out, " (%s%d)", root_names[root->kind], root->number);
    fprintf(out, " %s%s", gd_dtype_name((gd_dtype)value->dtype),
            gd_shape_text(value->rank, value->dims, shape, sizeof shape));
}

/* The axes of a result that is not row-major, from the outermost in memory to the innermost. */
static void print_layout(FILE *out, const gd_pvalue *v) {
    int order[GD_MAX_RANK];
    if (gd_value_is_row_major(v)) return;
    for (int i = 0; i < v->rank; i++) {
        int at = i;
        for (; at > 0 && v->strides[i] > v->strides[order[at - 1]]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < v->rank; i++) fprintf(out, "%s%d", i ? "," : "{", order[i]);
    fputs("}", out);
}

char *gd_program_text(const gd_program *p) { return gd_program_text_with(p, NULL, NULL); }

char *gd_program_text_with(const gd_program *p, gd_step_printer print, void *arg) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        if (s->removed) continue;
        for (int k = 0, first = 1; k < s->n_out; k++) {
            if (s->out[k] < 0) continue;
            if (!first) fputs(", ", out);
            print_value(out, p, s->out[k]);
            if (!s->view) print_layout(out, &p->values[s->out[k]]);
            first = 0;
        }
        if (s->each) fprintf(out, " = %s[%d](", s->op->name, s->each);
        else fprintf(out, " = %s(", s->op->name);
        for (int k = 0; k < s->n_in; k++) {
            if (k) fputs(", ", out);
            if (s->in[k] < 0) fputs("-", out);
            else if (p->roots[p->values[s->in[k]].root].kind == GD_ROOT_TEMPORARY)
                fprintf(out, "%%%d", s->in[k]);
            else print_value(out, p, s->in[k]);
        }
        fputs(")", out);
        gd_fprint_options(out, s->op, s->attrs);
        if (print) print(out, s, arg);
        fputs("\n", out);
    }
    for (int i = 0; i < p->n_commits; i++)
        fprintf(out, "%s%d <- %%%d\n", root_names[p->roots[p->commits[i].root].kind],
                p->roots[p->commits[i].root].number, p->commits[i].value);
    fputs("fetch", out);
    for (int i = 0; i < p->n_fetches; i++) fprintf(out, " %%%d", p->fetches[i]);
    fputs(p->dynamic ? " (sizes depend on data: evaluated node by node)\n" : "\n", out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

bool gd_commit_fills_alone(const gd_program *p, const gd_commit *c) {
    const gd_root *root = &p->roots[c->root];
    const gd_pvalue *to = &p->values[c->to];
    if (root->kind == GD_ROOT_VARIABLE) return true;
    if (root->kind != GD_ROOT_CAPTURED || root->constant || to->offset != 0 ||
        !gd_is_row_major(to->rank, to->dims, to->strides))
        return false;
    return root->memory == c->root && !root->shared;
}
