/* test_cuda_elementwise.c - elementwise kernels of CUDA for shapes and strides that select each of
 * their loops: vectors, rows of vectors with broadcast operands, and single elements. */
#include "cuda_child.h"

typedef struct operand_shapes {
    const char *what;
    gd_shape a, b;
    int transposes; /* 1: a is transposed in its last two dimensions; 2: both are */
    int skips;      /* elements that a view of b leaves out at the beginning of its last axis */
} operand_shapes;

static gd_tensor *make_operand(gd_shape shape, gd_dtype dtype, bool transposes, int skips) {
    gd_shape stored = shape;
    const int last = shape.rank - 1;
    if (transposes) {
        stored.at[last] = shape.at[last - 1];
        stored.at[last - 1] = shape.at[last];
    }
    if (skips) stored.at[last] += skips;
    gd_tensor *t = gd_cast(gd_mul(gd_randn(stored), gd_scalar(3)), dtype);
    return t;
}

/* The view of a stored operand, on the device of the operand. */
static gd_tensor *view_operand(gd_tensor *t, gd_shape shape, bool transposes, int skips) {
    const int last = shape.rank - 1;
    if (skips) t = gd_narrow(t, last, skips, shape.at[last]);
    return transposes ? gd_transpose(t, last - 1, last) : t;
}

static bool same_bits(gd_tensor *on_device, gd_tensor *here) {
    gd_tensor *x = gd_contiguous(gd_to_device(on_device, gd_device_get("cpu"))),
              *y = gd_contiguous(here);
    const size_t bytes = (size_t)gd_tensor_numel(y) * gd_dtype_size(gd_tensor_dtype(y));
    return !gd_failed() && gd_tensor_dtype(x) == gd_tensor_dtype(y) &&
           memcmp(gd_data(x), gd_data(y), bytes) == 0;
}

static void check_shapes(gd_device *device, const operand_shapes *s, gd_dtype first,
                         gd_dtype second) {
    GD_SCOPE;
    gd_seed(7);
    gd_tensor *a = make_operand(s->a, first, s->transposes > 0, 0),
              *b = make_operand(s->b, second, s->transposes > 1, s->skips);
    gd_tensor *on_a = view_operand(gd_to_device(a, device), s->a, s->transposes > 0, 0),
              *on_b = view_operand(gd_to_device(b, device), s->b, s->transposes > 1, s->skips);
    a = view_operand(a, s->a, s->transposes > 0, 0);
    b = view_operand(b, s->b, s->transposes > 1, s->skips);
    const char *names[] = {gd_dtype_name(first), gd_dtype_name(second)};
    CHECK_SAYING(same_bits(gd_add(on_a, on_b), gd_add(a, b)), "%s: %s + %s: %s", s->what, names[0],
                 names[1], gd_error_message());
    CHECK_SAYING(same_bits(gd_gt(on_a, on_b), gd_gt(a, b)), "%s: %s > %s: %s", s->what, names[0],
                 names[1], gd_error_message());
    gd_clear_error();
}

TEST(all_layouts_have_the_bits_of_the_cpu) {
    const operand_shapes shapes[] = {
        {"contiguous", gd_dims(3, 5, 7), gd_dims(3, 5, 7), 0, 0},
        {"several blocks", gd_dims(9001), gd_dims(9001), 0, 0},
        {"one element", gd_dims(1), gd_dims(1), 0, 0},
        {"a number", gd_dims(5, 8), gd_dims(1), 0, 0},
        {"a bias", gd_dims(6, 40), gd_dims(40), 0, 0},
        {"a bias of odd length", gd_dims(6, 37), gd_dims(37), 0, 0},
        {"a column", gd_dims(6, 40), gd_dims(6, 1), 0, 0},
        {"a column and a row", gd_dims(6, 1), gd_dims(40), 0, 0},
        {"channels", gd_dims(3, 5, 4, 4), gd_dims(1, 5, 1, 1), 0, 0},
        {"odd channels", gd_dims(3, 5, 3, 3), gd_dims(1, 5, 1, 1), 0, 0},
        {"images and rows", gd_dims(3, 1, 4, 8), gd_dims(5, 4, 8), 0, 0},
        {"four dimensions", gd_dims(3, 1, 4, 1), gd_dims(1, 5, 1, 8), 0, 0},
        {"a transposed operand", gd_dims(12, 20), gd_dims(12, 20), 1, 0},
        {"transposed operands", gd_dims(12, 20), gd_dims(12, 20), 2, 0},
        {"an unaligned operand", gd_dims(40), gd_dims(40), 0, 3},
        {"rows of a wider tensor", gd_dims(6, 40), gd_dims(6, 40), 0, 4},
        {"nothing", gd_dims(0, 4), gd_dims(1, 4), 0, 0},
    };
    static const gd_dtype dtypes[][2] = {{GD_F32, GD_F32},   {GD_BF16, GD_BF16}, {GD_F16, GD_F16},
                                         {GD_BF16, GD_F32},  {GD_F64, GD_F64},   {GD_I64, GD_I64},
                                         {GD_F32, GD_BOOL},  {GD_I32, GD_I32},   {GD_U8, GD_F32},
                                         {GD_BOOL, GD_BOOL}, {GD_F32, GD_F64}};
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && device; i++)
        for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
            check_shapes(device, &shapes[i], dtypes[k][0], dtypes[k][1]);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
