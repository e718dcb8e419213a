/* dialect_cuda.c - kernels of elementwise and fused ops in CUDA C++. See dialect_cuda.h. */
#include "codegen/dialect_cuda.h"

#include <string.h>

#include "gradus/dtype.h"

static const struct {
    const char *name;
    gd_dtype dtype;
    int bytes;
} dtypes[] = {{"bool", GD_BOOL, 1}, {"u8", GD_U8, 1},   {"i8", GD_I8, 1},
              {"i32", GD_I32, 4},   {"i64", GD_I64, 8}, {"f16", GD_F16, 2},
              {"bf16", GD_BF16, 2}, {"f32", GD_F32, 4}, {"f64", GD_F64, 8}};

static int find_dtype(const char *dtype, const char *type) {
    const int count = (int)(sizeof dtypes / sizeof *dtypes);
    int i = 0;
    while (i < count && strcmp(dtype ? dtype : type, dtypes[i].name) != 0) i++;
    return i < count ? i : -1;
}

int gd_cuda_dtype_code(const char *dtype, const char *type) {
    const int i = find_dtype(dtype, type);
    return i < 0 ? GD_DTYPE_NONE : (int)dtypes[i].dtype;
}
int gd_cuda_dtype_bytes(const char *dtype, const char *type) {
    const int i = find_dtype(dtype, type);
    return i < 0 ? 8 : dtypes[i].bytes;
}

static bool has_long_primitive(const gd_ir *ir) {
    for (int i = 0; i < ir->count; i++)
        if (ir->nodes[i].code >= GD_IR_PRIM && gd_prims[ir->nodes[i].code - GD_IR_PRIM].is_long)
            return true;
    return false;
}

/* 64 bytes in flight for each thread reach the bandwidth of memory. Long expressions have fewer,
 * because their code is repeated for each vector. */
int gd_cuda_unroll(const gd_ir *ir) {
    int inputs = 0;
    for (int i = 0; i < ir->n_vars; i++) inputs += gd_ir_uses_var(ir, i);
    if (inputs <= 1 && !has_long_primitive(ir)) return 4;
    return inputs <= 3 ? 2 : 1;
}

static void print_dtypes(FILE *out, const gd_kernel_source *s, bool any_dtypes) {
    fputs("    static __device__ __forceinline__ int dtype(int k, unsigned long long dtypes) {\n",
          out);
    if (any_dtypes) fputs("        return (int)(dtypes >> 4 * k & 15);\n    }\n", out);
    else {
        fputs("        constexpr signed char codes[] = {", out);
        for (int i = 0; i < s->ir->n_vars; i++)
            fprintf(out, "%d, ", gd_cuda_dtype_code(s->in[i], s->type));
        for (int i = 0; i < s->ir->n_outputs; i++)
            fprintf(out, "%d, ", gd_cuda_dtype_code(s->out[i], s->type));
        fputs("};\n        return codes[k];\n    }\n", out);
    }
}

/* The constructor, which reads the parameters: tensors of one element, then scalars. */
static void print_parameters(FILE *out, const gd_kernel_source *s, const char *name) {
    const gd_ir *ir = s->ir;
    for (int i = 0; i < ir->n_params; i++) fprintf(out, "    s_%s p%d;\n", s->type, i);
    fprintf(out, "    __device__ __forceinline__ explicit %s(const unsigned long long *w) {\n",
            name);
    if (ir->n_params == 0) fputs("        (void)w;\n", out);
    for (int i = 0; i < ir->n_params; i++) {
        fprintf(out, "        p%d = ", i);
        if (i < s->n_scalars)
            fprintf(out, "load_element<s_%s>(%d, address_of(w[%d]), 0);\n", s->type,
                    gd_cuda_dtype_code(s->in[ir->n_vars + i], s->type), i);
        else if (s->type[0] == 'i') fprintf(out, "(s_%s)(long long)w[%d];\n", s->type, i);
        else fprintf(out, "(s_%s)__longlong_as_double((long long)w[%d]);\n", s->type, i);
    }
    fputs("    }\n", out);
}

static void print_call(FILE *out, const gd_kernel_source *s) {
    const gd_ir *ir = s->ir;
    fprintf(out,
            "    __device__ __forceinline__ void operator()(const s_%s *v, s_%s *o) const {\n"
            "        (void)v;\n",
            s->type, s->type);
    for (int i = 0; i < ir->n_vars; i++)
        if (gd_ir_uses_var(ir, i)) fprintf(out, "        const s_%s v%d = v[%d];\n", s->type, i, i);
    gd_print_statements(out, &gd_dialect_cuda, ir, s->type);
    for (int i = 0; i < ir->n_outputs; i++) fprintf(out, "        o[%d] = o%d;\n", i, i);
    fputs("    }\n", out);
}

void gd_cuda_print_expression(FILE *out, const gd_kernel_source *s, const char *name,
                              bool any_dtypes) {
    const gd_ir *ir = s->ir;
    unsigned used = 0;
    for (int i = 0; i < ir->n_vars; i++)
        if (gd_ir_uses_var(ir, i)) used |= 1u << i;
    fprintf(out,
            "struct %s {\n    typedef s_%s type;\n    static constexpr bool ANY = %s;\n"
            "    enum { INPUTS = %d, OUTPUTS = %d, PARAMS = %d, UNROLL = %d };\n"
            "    static constexpr unsigned USED = 0x%xu;\n",
            name, s->type, any_dtypes ? "false" : "true", ir->n_vars, ir->n_outputs, ir->n_params,
            gd_cuda_unroll(ir), used);
    print_dtypes(out, s, any_dtypes);
    print_parameters(out, s, name);
    print_call(out, s);
    fputs("};\n", out);
}

void gd_cuda_print_kernel(FILE *out, gd_cuda_variant variant, const char *expression,
                          const char *name) {
    fprintf(out,
            "extern \"C\" __global__ void __launch_bounds__(256) %s(\n        const "
            "__grid_constant__ ",
            name);
    if (variant == GD_CUDA_LIST) fputs("list_arguments a) {\n    ", out);
    else
        fprintf(out, "%s_arguments<%s> a) {\n    ",
                variant == GD_CUDA_VECTORS ? "vector" : "general", expression);
    fprintf(out, "run_%s<%s>(a);\n}\n",
            variant == GD_CUDA_VECTORS    ? "vectors"
            : variant == GD_CUDA_ELEMENTS ? "elements"
                                          : "list",
            expression);
}

static void print_vector_loop(FILE *out, const gd_dialect *d, const gd_kernel_source *s,
                              const char *name) {
    (void)d;
    char expression[128];
    snprintf(expression, sizeof expression, "%s_expression", name);
    gd_cuda_print_expression(out, s, expression, false);
    gd_cuda_print_kernel(out, GD_CUDA_VECTORS, expression, name);
}

const gd_dialect gd_dialect_cuda = {
    .name = "cuda",
    .declare = "s_%s ",
    .primitive = "s_%s_%s",
    .constant = "((s_%s)%s)",
    .nan = {"__int_as_float(0x7fc00000)", "__longlong_as_double(0x7ff8000000000000ll)"},
    .infinity = {"__int_as_float(0x7f800000)", "__longlong_as_double(0x7ff0000000000000ll)"},
    .loop = print_vector_loop};
