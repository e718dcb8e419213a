/* user.c - a program as a user writes it, with all public headers, options and nested scopes. It
 * compiles without warnings at -Wall -Wextra -Wshadow -Werror. */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

static gd_tensor *layer(gd_tensor *x, gd_tensor *w, gd_tensor *b) {
    GD_SCOPE;
    return gd_keep(gd_tanh(gd_add(gd_matmul(x, w), b)));
}

static gd_tensor *square_sum(gd_tensors in, void *user) {
    (void)user;
    return gd_sum(gd_square(in.at[0]));
}

int main(void) {
    GD_SCOPE;
    gd_seed(1);
    gd_tensor *x = gd_randn(gd_dims(16, 8)), *target = gd_randn(gd_dims(16, 2));
    gd_tensor *w1 = gd_requires_grad(gd_randn(gd_dims(8, 12))),
              *b1 = gd_requires_grad(gd_zeros(gd_dims(12)));
    gd_tensor *w2 = gd_requires_grad(gd_randn(gd_dims(12, 2))),
              *b2 = gd_requires_grad(gd_zeros(gd_dims(2)));
    gd_tensor *const params[] = {w1, b1, w2, b2};
    double first = 0, last = 0;
    for (int step = 0; step < 100; step++) {
        GD_SCOPE;
        gd_tensor *loss = gd_sum(gd_square(gd_sub(layer(layer(x, w1, b1), w2, b2), target)));
        if (gd_backward(loss) != GD_OK) break;
        last = gd_item(loss);
        if (step == 0) first = last;
        GD_NO_GRAD;
        for (int i = 0; i < 4; i++) {
            GD_SCOPE;
            gd_sub_(params[i], gd_mul(gd_tensor_grad(params[i]), gd_scalar(0.005)));
            gd_zero_grad(params[i]);
        }
    }
    {
        GD_SCOPE;
        gd_tensor *image = gd_rand(gd_dims(1, 3, 8, 8)), *k = gd_randn(gd_dims(4, 3, 3, 3));
        gd_tensor *y = gd_conv2d(image, k, NULL, .stride = 2, .padding = {1, 0});
        gd_tensor *z = gd_sum(y, .axis = gd_dims(2, 3), .keepdim = true);
        gd_tensors parts = gd_split(z, gd_dims(1, 3), .axis = 1);
        gd_tensor *joined = gd_cat(gd_list(parts.at[1], parts.at[0]), .axis = 1);
        gd_tensor *named = gd_call("add", gd_list(joined, gd_scalar(1)), NULL);
        gd_tensors g = gd_grad(gd_list(gd_sum(gd_exp(b1))), gd_list(b1), .retain_graph = true);
        /* calls with options inside lists and inside other calls */
        gd_tensors rows = gd_list(gd_sum(x, .axis = 1), gd_mean(x, .axis = 1, .keepdim = true));
        gd_tensor *both = gd_cat(gd_list(gd_sum(x, .axis = 0), gd_mean(x, .axis = 0)), .axis = 0);
        if (rows.count != 2 ||
            gd_tensor_rank(gd_listed(gd_sum(gd_sum(x, .axis = 1), .axis = 0)).at[0]) != 0)
            return 1;
        (void)both;
        gd_tensor *d = gd_requires_grad(gd_full(gd_dims(2), 1.5, .dtype = GD_F64));
        gd_status right =
            gd_gradcheck(square_sum, gd_list(d), NULL, .second_order = true, .step = 1e-5);
        gd_load_report report;
        if (gd_save_state("user.safetensors", gd_part("x", x), gd_part("rng", gd_generator())) !=
            GD_OK)
            return 1;
        if (gd_save_state_with("user.safetensors", gd_parts(gd_part("x", x)), .shard_bytes = 0) !=
            GD_OK)
            return 1;
        if (gd_load_state_with("user.safetensors", gd_parts(gd_part("x", x), gd_part("d", d)),
                               .partial = &report) != GD_OK ||
            report.missing != 1 || gd_state_count(gd_read_state("user.safetensors")) != 1)
            return 1;
        remove("user.safetensors");
        if (gd_tensor_numel(named) != 4 || g.count != 1 || right != GD_OK) return 1;
    }
    if (gd_failed()) {
        fprintf(stderr, "%s\n", gd_error_message());
        return 1;
    }
    printf("loss %g -> %g\n1 passed, 0 failed\n", first, last);
    return last < 0.6 * first ? 0 : 1;
}
