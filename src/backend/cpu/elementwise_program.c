/* elementwise_program.c - computes an expression by a kernel that was compiled into the library, by
 * one that is compiled at run time, or by the evaluator, which runs the kernels of the primitives
 * one after the other on tiles that stay in the L1 cache. All compute the same bits.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/elementwise_job.h"
#include "codegen/native.h"
#include "codegen/record.h"
#include "core/float_to_int.h"
#include "core/alloc.h"
#include "dispatch/call.h"
#include "dispatch/intern.h"

enum {
    WORTH_COMPILING = 1024, /* elements; with fewer, compiling takes longer than it saves */
    MAX_PRIMS = 128,
};

static const size_t type_size[GD_EW_TYPES] = {4, 8, 4, 8};

int gd_ew_type(gd_dtype compute) {
    return compute == GD_F32   ? GD_EW_F32
           : compute == GD_F64 ? GD_EW_F64
           : compute == GD_I64 ? GD_EW_I64
                               : GD_EW_I32;
}

/* --- compiled kernels ------------------------------------------------------------------------- */

/* The kernels that were compiled into the library for the IR with this hash; NULL: none. */
static const gd_ew_kernel *find_library_kernels(uint64_t hash) {
    return GD_ISA_CALL(gd_ew_find)(hash);
}

/* The compiled kernels of an op. They are looked up once for each instruction set. */
static const gd_ew_kernel *kernels_of(const gd_op *op, const gd_ir *ir) {
    static const gd_ew_kernel none = {0, {NULL, NULL, NULL, NULL}};
    const void **entry = &op->state->compiled[gd_cpu_isa()];
    const gd_ew_kernel *kernel = __atomic_load_n(entry, __ATOMIC_ACQUIRE);
    if (kernel) return kernel;
    kernel = find_library_kernels(gd_ir_hash(ir));
    if (!kernel) kernel = &none;
    const void *before = NULL; /* do not replace kernels that another thread has stored */
    if (!__atomic_compare_exchange_n(entry, &before, (const void *)kernel, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        kernel = before;
    return kernel;
}

gd_ew_fn gd_ew_compiled_kernel(const gd_op *op, const gd_ir *ir, int type) {
    return kernels_of(op, ir)->fn[type];
}

bool gd_ew_is_compiled(const gd_op *op) { return find_library_kernels(gd_ir_hash(op->ir)) != NULL; }

extern const char gd_kernel_headers[];
extern const size_t gd_kernel_headers_bytes;

/* The flags are those of the kernels in the library: see CMakeLists.txt. */
static const char *const base[] = {NULL}, *const avx2[] = {"-mavx2", "-mfma", "-mf16c", NULL},
                         *const avx512[] = {"-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq",
                                            "-mfma",     "-mf16c",     NULL};
static gd_native_target targets[GD_ISA_COUNT] = {
    {"base", &gd_dialect_vector, base, gd_kernel_headers, 0},
    {"avx2", &gd_dialect_vector, avx2, gd_kernel_headers, 0},
    {"avx512", &gd_dialect_vector, avx512, gd_kernel_headers, 0}};

static void __attribute__((constructor)) set_prelude_bytes(void) {
    for (int i = 0; i < GD_ISA_COUNT; i++) targets[i].prelude_bytes = gd_kernel_headers_bytes;
}

const gd_native_target *gd_ew_target(gd_isa isa) { return &targets[isa]; }

static bool evaluator_only;
void gd_ew_set_compiled(bool on) { __atomic_store_n(&evaluator_only, !on, __ATOMIC_RELAXED); }
bool gd_ew_uses_compiled(void) { return !__atomic_load_n(&evaluator_only, __ATOMIC_RELAXED); }

bool gd_ew_is_worth_compiling(int64_t elements) {
    const char *on = secure_getenv("GRADUS_NATIVE");
    return elements >= WORTH_COMPILING || (on && strcmp(on, "always") == 0);
}

/* The kernels of an op without a lookup; NULL: not looked up yet. */
static const gd_ew_kernel *cached_kernels(const gd_op *op) {
    return __atomic_load_n(&op->state->compiled[gd_cpu_isa()], __ATOMIC_ACQUIRE);
}

/* Whether a fused op has no compiled kernel and is worth one. */
static bool needs_kernel(const gd_op *op, int64_t elements) {
    const gd_fusion *f = op->fusion;
    if (!f || !gd_ew_is_worth_compiling(elements)) return false;
    const gd_ew_kernel *now = f->rows ? cached_kernels(op) : kernels_of(op, &f->ir);
    return !now || !now->fn[gd_ew_type(f->type)];
}

/* Stores a compiled kernel of a fused op. Readers may still use the replaced gd_ew_kernel, so it is
 * not freed. */
static void add_kernel(const gd_op *op, gd_compiled_fn fn) {
    const gd_ew_kernel *now = cached_kernels(op);
    gd_ew_kernel *kernel = gd_calloc_until_exit(sizeof *kernel);
    if (!kernel) return;
    if (now) *kernel = *now;
    kernel->fn[gd_ew_type(op->fusion->type)] = (gd_ew_fn)(void *)fn;
    __atomic_store_n(&op->state->compiled[gd_cpu_isa()], (const void *)kernel, __ATOMIC_RELEASE);
}

void gd_fused_compile(const gd_fusion_request *requests, int n) {
    static const char *const types[GD_EW_TYPES] = {"f32", "f64", "i32", "i64"};
    gd_kernel_source *sources = gd_calloc((size_t)n + 1, sizeof *sources);
    gd_compiled_fn *fns = gd_calloc((size_t)n + 1, sizeof *fns);
    int *request_of = gd_calloc((size_t)n + 1, sizeof *request_of), count = 0;
    for (int i = 0; i < n && sources && fns && request_of; i++) {
        const gd_fusion *f = requests[i].op->fusion;
        if (!needs_kernel(requests[i].op, requests[i].elements)) continue;
        request_of[count] = i;
        sources[count++] = (gd_kernel_source){
            .ir = f->rows ? NULL : &f->ir, .rows = f->rows, .type = types[gd_ew_type(f->type)]};
    }
    if (count) gd_native_kernels(sources, count, gd_ew_target(gd_cpu_isa()), fns);
    for (int i = 0; i < count; i++)
        if (fns[i]) add_kernel(requests[request_of[i]].op, fns[i]);
    gd_free(sources);
    gd_free(fns);
    gd_free(request_of);
}

void gd_fused_compile_call(const gd_kernel_call *call, int64_t elements) {
    gd_fused_compile(&(gd_fusion_request){.op = call->op, .elements = elements}, 1);
}

void *gd_fused_rows_kernel(const gd_op *op) {
    const gd_ew_kernel *now = cached_kernels(op);
    return now ? (void *)now->fn[gd_ew_type(op->fusion->type)] : NULL;
}

bool gd_fused_has_kernel(const gd_op *op) {
    const gd_fusion *f = op->fusion;
    return f->rows ? gd_fused_rows_kernel(op) != NULL
                   : gd_ew_compiled_kernel(op, &f->ir, gd_ew_type(f->type)) != NULL;
}

/* --- the evaluator ---------------------------------------------------------------------------- */

/* Finds the kernel of a primitive by the hash of its expression: variables and one node. */
static gd_ew_fn look_up_primitive(int prim, int type) {
    gd_ir_node nodes[4];
    memset(nodes, 0, sizeof nodes);
    int arity = gd_prims[prim].arity;
    for (int i = 0; i < arity; i++)
        nodes[i] = (gd_ir_node){.code = GD_IR_VAR, .arg = {(int16_t)i, 0, 0}};
    nodes[arity] = (gd_ir_node){.code = (int16_t)(GD_IR_PRIM + prim), .arg = {-1, -1, -1}};
    for (int i = 0; i < arity; i++) nodes[arity].arg[i] = (int16_t)i;
    gd_ir ir = {.count = arity + 1,
                .n_vars = arity,
                .n_outputs = 1,
                .output = {(int16_t)arity},
                .nodes = nodes};
    const gd_ew_kernel *k = find_library_kernels(gd_ir_hash(&ir));
    return k ? k->fn[type] : NULL;
}

/* The kernel of one primitive, from a cache. */
static gd_ew_fn primitive_kernel(int prim, int type) {
    static gd_ew_fn cache[GD_ISA_COUNT][MAX_PRIMS][GD_EW_TYPES];
    if (prim >= MAX_PRIMS) return look_up_primitive(prim, type);
    gd_ew_fn *entry = &cache[gd_cpu_isa()][prim][type],
             fn = __atomic_load_n(entry, __ATOMIC_RELAXED);
    if (fn) return fn;
    fn = look_up_primitive(prim, type);
    __atomic_store_n(entry, fn, __ATOMIC_RELAXED);
    return fn;
}

static gd_status find_step_kernels(const gd_ir *ir, int type, gd_ew_program *p) {
    for (int i = 0; i < ir->count; i++) {
        int code = ir->nodes[i].code;
        if (code < GD_IR_PRIM) continue;
        p->step[i] = primitive_kernel(code - GD_IR_PRIM, type);
        if (!p->step[i])
            return gd_fail(GD_E_DTYPE, "%s is not defined for %s", gd_prims[code - GD_IR_PRIM].name,
                           type >= GD_EW_I32 ? "integers" : "floats");
    }
    return GD_OK;
}

static void init_program(gd_ew_program *p, const gd_ir *ir, int type) {
    p->ir = ir;
    p->kernel = NULL;
    p->type = type;
    p->n_slots = 0;
    p->slot = p->own_slot;
}

gd_status gd_ew_prepare_ir(const gd_ir *ir, int type, gd_ew_program *p) {
    init_program(p, ir, type);
    p->n_slots = gd_ir_slots(ir, p->own_slot);
    return find_step_kernels(ir, type, p);
}

void gd_ew_params(const gd_op *op, const void *attrs, int type, gd_param *params) {
    static const gd_dtype dtypes[GD_EW_TYPES] = {GD_F32, GD_F64, GD_I32, GD_I64};
    for (int i = 0; i < op->n_attrs && attrs; i++)
        params[i] = gd_attr_param(&op->attrs[i], attrs, dtypes[type]);
}

gd_status gd_ew_prepare(const gd_kernel_call *call, const gd_ir *ir, int type, gd_ew_program *p) {
    const gd_op *op = call->op;
    init_program(p, ir, type);
    if (op->fusion) gd_fused_params(call, p->params);
    else gd_ew_params(op, call->attrs, type, p->params);
    if (!op->fusion || gd_ew_uses_compiled()) p->kernel = gd_ew_compiled_kernel(op, ir, type);
    if (p->kernel) return GD_OK;
    GD_TRY(find_step_kernels(ir, type, p));
    if (op->fusion) { /* computed when the op was created */
        p->n_slots = op->fusion->n_slots;
        p->slot = op->fusion->slot;
    } else p->n_slots = gd_ir_slots(ir, p->own_slot);
    return GD_OK;
}

static void fill_tile(void *tile, int type, gd_param value, int64_t n) {
    switch (type) {
    case GD_EW_F32:
        for (int64_t i = 0; i < n; i++) ((float *)tile)[i] = (float)value.real;
        break;
    case GD_EW_F64:
        for (int64_t i = 0; i < n; i++) ((double *)tile)[i] = value.real;
        break;
    case GD_EW_I32:
        for (int64_t i = 0; i < n; i++) ((int32_t *)tile)[i] = (int32_t)value.integer;
        break;
    default:
        for (int64_t i = 0; i < n; i++) ((int64_t *)tile)[i] = value.integer;
        break;
    }
}

/* A constant of the expression, converted to the compute type. */
static gd_param constant_param(double value, int type) {
    if (type == GD_EW_F32 || type == GD_EW_F64) return (gd_param){.real = value};
    return (gd_param){.integer = type == GD_EW_I32 ? gd_f64_to_i32(value) : gd_f64_to_i64(value)};
}

void gd_ew_constants(const gd_ew_program *p, const gd_param *params, int64_t tile, int64_t n,
                     char *tiles) {
    if (p->kernel) return;
    for (int i = 0; i < p->ir->count; i++) {
        const gd_ir_node *node = &p->ir->nodes[i];
        if (node->code != GD_IR_CONST && node->code != GD_IR_PARAM) continue;
        const gd_param value =
            node->code == GD_IR_CONST ? constant_param(node->value, p->type) : params[node->arg[0]];
        fill_tile(tiles + (size_t)p->slot[i] * (size_t)tile * type_size[p->type], p->type, value,
                  n);
    }
}

void gd_ew_evaluate(const gd_ew_program *p, int64_t tile, int64_t n, const void *const *in,
                    void *const *out, char *tiles) {
    const gd_ir *ir = p->ir;
    const size_t stride = (size_t)tile * type_size[p->type], bytes = (size_t)n * type_size[p->type];
    const void *value[GD_IR_MAX_NODES];
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *node = &ir->nodes[i];
        void *result = p->slot[i] < 0 ? NULL : tiles + (size_t)p->slot[i] * stride;
        value[i] = result;
        if (node->code == GD_IR_VAR) {
            value[i] = in[node->arg[0]];
            if (result) value[i] = memcpy(result, value[i], bytes);
        } else if (node->code >= GD_IR_PRIM) {
            const void *args[3] = {NULL, NULL, NULL};
            for (int k = 0; k < 3; k++)
                if (node->arg[k] >= 0) args[k] = value[node->arg[k]];
            p->step[i](n, args, &result, NULL);
        }
    }
    for (int k = 0; k < ir->n_outputs; k++) memmove(out[k], value[ir->output[k]], bytes);
}
