/* test_cuda_direct.c - results of attention in plans on CUDA are written where the program's copies
 * would put them (graph/passes/direct_results.c). */
#include <math.h>

#include "cuda_child.h"

enum { BATCH = 2, HEADS = 2, WIDTH = 8, CHANNELS = HEADS * WIDTH };

/* (B, T, C) as heads (B, H, T, D). tokens is T; 0: by the ops that need not know it. */
static gd_tensor *heads_of(gd_tensor *x, int64_t tokens) {
    x = tokens ? gd_reshape(x, gd_dims(BATCH, tokens, HEADS, WIDTH))
               : gd_unflatten(x, -1, gd_dims(HEADS, WIDTH));
    return gd_transpose(x, 1, 2);
}

static gd_tensor *attend(gd_tensor *x, int64_t tokens, gd_tensor *in, gd_tensor *out) {
    gd_tensors qkv = gd_split(gd_matmul(x, in), gd_dims(CHANNELS, CHANNELS, CHANNELS), .axis = 2);
    gd_tensor *y =
        gd_scaled_dot_product_attention(heads_of(qkv.at[0], tokens), heads_of(qkv.at[1], tokens),
                                        heads_of(qkv.at[2], tokens), .causal = true);
    y = gd_transpose(y, 1, 2);
    y = tokens ? gd_reshape(y, gd_dims(BATCH, tokens, CHANNELS)) : gd_flatten(y, .start_axis = 2);
    return gd_matmul(y, out);
}

static int count_text(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; at && (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

/* At level 0 the copies remain. */
static void check_attention(gd_dtype dtype, int64_t tokens, bool reshapes, double tolerance) {
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_set_default_device(device);
    gd_seed(3);
    gd_tensor *in = gd_cast(gd_randn(gd_dims(CHANNELS, 3 * CHANNELS)), dtype),
              *out = gd_cast(gd_randn(gd_dims(CHANNELS, CHANNELS)), dtype),
              *values = gd_cast(gd_randn(gd_dims(BATCH, tokens, CHANNELS)), dtype), *x, *y, *gx;
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(BATCH, tokens, CHANNELS), .dtype = dtype);
        y = attend(x, reshapes ? tokens : 0, in, out);
        gx = gd_grad(gd_list(gd_sum(gd_mul(y, y))), gd_list(x)).at[0];
    }
    gd_tensor *results[2][2];
    for (int i = 0; i < 2; i++) {
        gd_session *s = gd_session_new(graph, .level = 2 * i);
        char *text = gd_session_plan_text(s, gd_feed(x, values), gd_list(y, gx));
        CHECK_SAYING(count_text(text, " = cat(") == !i, "level %d: %s", 2 * i, text);
        CHECK_SAYING((count_text(text, "by copy") == 0) == i, "level %d: %s", 2 * i, text);
        free(text);
        for (int run = 0; run < 3; run++) { /* captured, too */
            gd_tensors r = gd_session_run(s, gd_feed(x, values), gd_list(y, gx));
            results[i][0] = gd_cast(r.at[0], GD_F32);
            results[i][1] = gd_cast(r.at[1], GD_F32);
        }
    }
    for (int k = 0; k < 2; k++) {
        const double largest = gd_item(gd_max(gd_abs(results[0][k]))),
                     worst = gd_item(gd_max(gd_abs(gd_sub(results[0][k], results[1][k]))));
        CHECK_SAYING(worst <= tolerance * largest, "result %d: %g of %g", k, worst, largest);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_set_default_device(NULL);
}

TEST(attention_writes_where_its_copies_would) {
    IN_CHILD(EMULATED, "");
    for (int reshapes = 0; reshapes < 2; reshapes++) {
        check_attention(GD_BF16, 128, reshapes, 0.02); /* cuDNN */
        check_attention(GD_F32, 7, reshapes, 1e-5);
        check_attention(GD_F16, 9, reshapes, 0.005);
    }
}

/* cat(a, b) can be written directly; the inputs of cat(a, a) cannot both be. */
TEST(an_input_that_is_joined_twice_is_copied) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_set_default_device(cuda_open_device());
    gd_seed(4);
    gd_tensor *values = gd_randn(gd_dims(BATCH, 5, CHANNELS)), *x, *y[2];
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(BATCH, 5, CHANNELS));
        gd_tensor *h = heads_of(x, 5), *a = gd_scaled_dot_product_attention(h, h, h),
                  *b = gd_scaled_dot_product_attention(h, h, h, .causal = true);
        y[0] = gd_sum(gd_cat(gd_list(a, b), .axis = 3), .axis = gd_dims(0));
        y[1] = gd_sum(gd_cat(gd_list(a, a), .axis = 3), .axis = gd_dims(0));
    }
    gd_tensor *results[2][2];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 2; i++) {
            gd_session *s = gd_session_new(graph, .level = 2 * i);
            char *text = gd_session_plan_text(s, gd_feed(x, values), gd_list(y[k]));
            CHECK_SAYING(count_text(text, " = cat(") == (k || !i), "%s", text);
            free(text);
            results[k][i] = gd_session_run(s, gd_feed(x, values), gd_list(y[k])).at[0];
        }
    for (int k = 0; k < 2; k++) {
        const double worst = gd_item(gd_max(gd_abs(gd_sub(results[k][0], results[k][1]))));
        CHECK_SAYING(worst <= 1e-5, "cat %d: %g", k, worst);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_set_default_device(NULL);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
