/* test_stages.c - expressions in which a long primitive depends on another run as several loops. */
#include "backend/cpu/elementwise_job.h"
#include "codegen/native.h"
#include "codegen/stages.h"
#include "test.h"

typedef struct expression {
    gd_ir ir;
    gd_ir_node nodes[GD_IR_MAX_NODES];
} expression;

static int find_input(gd_ir_builder *b, void *context, const char *name, size_t length) {
    (void)context;
    return length == 1 && *name >= 'a' && *name <= 'c' ? gd_ir_var(b, *name - 'a') : -1;
}

static void parse_expression(expression *e, const char *text) {
    gd_ir_builder b = {.count = 0};
    memset(e, 0, sizeof *e);
    int node = gd_ir_parse(&b, text, find_input, NULL);
    CHECK_SAYING(node >= 0, "%s", b.error);
    e->ir = gd_ir_finish(&b, &node, 1, e->nodes);
    e->ir.n_vars = 3;
}

TEST(a_long_primitive_that_depends_on_another_has_its_own_stage) {
    static const struct {
        const char *text;
        int stages, buffers;
    } cases[] = {{"a*b + c", 1, 0},
                 {"tanh(a) * exp(b) + sqrt(c)", 1, 0}, /* independent of each other */
                 {"tanh(erf(a))", 2, 1},
                 {"tanh(erf(a)*b + c)", 2, 1},
                 {"erf(a) * tanh(erf(a))", 2, 1},
                 {"(a + b) * tanh(exp(c))", 2, 1}, /* a + b is recomputed where it is read */
                 {"log(tanh(erf(a))) + erf(a)", 3, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expression e;
        gd_stages s;
        parse_expression(&e, cases[i].text);
        gd_find_stages(&e.ir, true, &s);
        CHECK_SAYING(s.count == cases[i].stages && s.n_buffers == cases[i].buffers,
                     "%s: %d stages, %d buffers", cases[i].text, s.count, s.n_buffers);
        gd_find_stages(&e.ir, false, &s);
        CHECK(s.count == 1);
    }
}

enum { MAX_ELEMENTS = 2000 };

/* Compares the kernel with the primitives one by one: the same bits, into a new result or in
 * place. */
static void check_kernel(const char *text, int64_t n, bool in_place) {
    static float x[3][MAX_ELEMENTS], y[MAX_ELEMENTS], expected[MAX_ELEMENTS];
    _Alignas(64) static char tiles[16 * MAX_ELEMENTS * sizeof(float)];
    expression e;
    gd_ew_program p;
    parse_expression(&e, text);
    const gd_kernel_source source = {.ir = &e.ir, .type = "f32"};
    gd_ew_fn fn = (gd_ew_fn)(void *)gd_native_kernel(&source, gd_ew_target(gd_cpu_isa()));
    if (!fn) SKIP("there is no compiler");
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < MAX_ELEMENTS; i++)
            x[k][i] = (float)((i * 37 + k * 101) % 211) / 100 - 1;
    const void *in[3] = {x[0], x[1], x[2]};
    void *out[1] = {expected};
    CHECK(gd_ew_prepare_ir(&e.ir, GD_EW_F32, &p) == GD_OK && p.n_slots <= 16);
    gd_ew_constants(&p, NULL, MAX_ELEMENTS, n, tiles);
    gd_ew_evaluate(&p, MAX_ELEMENTS, n, in, out, tiles);
    out[0] = in_place ? x[0] : y;
    fn(n, in, out, NULL);
    CHECK_SAYING(memcmp(out[0], expected, (size_t)n * sizeof(float)) == 0, "%s of %d", text,
                 (int)n);
}

TEST(stages_give_the_same_bits_and_may_overwrite_an_operand) {
    static const char *const texts[] = {"tanh(erf(a))", "tanh(erf(a)*b + c) * a",
                                        "(a + b) * tanh(exp(c)) - a",
                                        "log(2 + tanh(erf(a))) + erf(a) * b"};
    static const int64_t sizes[] = {1, 16, 37, 255, 256, 257, 1000, MAX_ELEMENTS};
    for (int t = 0; t < 4; t++)
        for (int s = 0; s < 8; s++)
            for (int in_place = 0; in_place < 2; in_place++)
                check_kernel(texts[t], sizes[s], in_place);
}

TEST_MAIN
