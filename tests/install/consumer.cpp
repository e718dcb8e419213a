// consumer.cpp - the program of consumer.c in C++17, and in C++20 with options by name.
#include <gradus/gradus.h>

#include <cstdio>

static gd_tensor *square(gd_tensors in, void *) { return gd_sum(gd_square(in.at[0])); }

struct two_parts {
    gd_module *body, *head;
};

static gd_tensors forward(gd_tensors in, void *self) {
    two_parts *m = static_cast<two_parts *>(self);
    return gd_listed(gd_module_forward(m->head, gd_module_forward(m->body, in.at[0])));
}

// A user-defined module. C++17 passes only required arguments, or fills an options struct.
static bool modules() {
    GD_SCOPE;
    gd_module *net = gd_module_new(forward, sizeof(two_parts));
    two_parts *m = static_cast<two_parts *>(gd_module_self(net));
#if __cplusplus >= 202002L
    gd_module *conv = gd_nn_conv2d(1, 4, 3, .padding = 1), *drop = gd_nn_dropout(.p = 0.1);
#else
    gd_nn_conv2d_options same = gd_nn_conv2d_defaults();
    same.in_channels = 1;
    same.out_channels = 4;
    same.kernel = 3;
    same.padding = 1;
    gd_module *conv = gd_nn_conv2d_at(GD_HERE, &same), *drop = gd_nn_dropout();
#endif
    GD_CHILD(net, m->body,
             gd_nn_sequential(conv, gd_nn_relu(), gd_nn_max_pool2d(2), gd_nn_flatten(), drop));
    GD_CHILD(net, m->head, gd_nn_linear(GD_ANY, 10));
    gd_tensor *y = gd_module_forward(net, gd_randn(gd_dims(2, 1, 8, 8)));
    gd_tensor *loss = gd_module_forward(gd_nn_mse_loss(), y, gd_zeros(gd_dims(2, 10)));
    gd_backward(loss);
    return !gd_failed() && gd_tensor_dim(y, 1) == 10 && gd_module_parameters(net).count == 4 &&
           gd_module_grad(net, "head.weight");
}

// A device, its name, or nullptr for the CPU.
static bool devices() {
    if (gd_to_device(gd_scalar(1), "cpu") == nullptr) return false;
    const bool named = gd_set_default_device("cpu") == GD_OK,
               given = gd_set_default_device(gd_device_get("cpu")) == GD_OK;
    return named && given && gd_set_default_device(nullptr) == GD_OK && !gd_failed();
}

// A class of the program that holds a tensor.
struct holder {
    gd_tensor *t;
    operator gd_tensor *() const { return t; }
};

enum { TWO = 2 };

// Numbers as operands: also enumerators, and beside a class that converts to a tensor.
static bool numbers() {
    const holder h{gd_scalar(3)};
    const bool others = gd_item(gd_mul(gd_scalar(3), TWO)) == 6 && gd_item(gd_mul(h, 2)) == 6 &&
                        gd_item(gd_mul(h, h)) == 9 && gd_item(gd_lerp(h, TWO, 1)) == 2;
    if (!others) return false;

    gd_tensor *n = gd_cast(gd_arange(0, 4), GD_I64);
    const bool dtypes = gd_tensor_dtype(gd_mul(n, 2)) == GD_I64 &&
                        gd_tensor_dtype(gd_mul(0.5f, n)) == GD_F32 &&
                        gd_tensor_dtype(gd_add(gd_cast(n, GD_F16), 0.5)) == GD_F16;
    return dtypes && gd_item(gd_sum(gd_where(gd_gt(n, 1), n, 0))) == 5 &&
           gd_item(gd_sum(gd_add_(n, 1u))) == 10 && gd_item(gd_lerp(gd_scalar(2), 4, 0.5)) == 3;
}

int main() {
    GD_SCOPE;
    if (!numbers()) return 1;
    const float values[] = {-2, -1, 0, 1, 2, 3};
    gd_tensor *x = gd_requires_grad(gd_from_array(gd_dims(2, 3), GD_F32, values));
#if __cplusplus >= 202002L
    gd_tensor *y = gd_sum(gd_leaky_relu(x, .slope = 0.5), .axis = 1); // an option by name, as in C
    gd_tensor *all = gd_sum(gd_detach(x), .axis = {0, 1});
    if (gd_tensor_rank(y) != 1 || gd_item(all) != 3) return 1;
    if (gd_tensor_rank(gd_sum(x, .axis = gd_dims(0))) != 1) return 1;
    gd_status backward_status = gd_backward(gd_sum(y), .retain_graph = true);
#else
    gd_leaky_relu_options leaky = gd_leaky_relu_defaults();
    leaky.slope = 0.5;
    gd_sum_options rows = gd_sum_defaults();
    rows.axis = 1;
    gd_tensor *y = gd_sum_at(GD_HERE, gd_leaky_relu_at(GD_HERE, x, &leaky), &rows);
    gd_status backward_status = gd_backward(gd_sum(y));
#endif
    {
        GD_SCOPE;
        gd_tensor *both = gd_cat(gd_list(y, y));
        if (gd_tensor_numel(both) != 4) return 1;
    }
    gd_tensor *w = gd_requires_grad(gd_ones_like(gd_cast(gd_detach(x), GD_F64)));
    if (gd_gradcheck(square, gd_list(w), nullptr) != GD_OK) return 1;
    if (gd_save_npz("consumer.npz", gd_names("x", "w"), gd_list(x, w)) != GD_OK) return 1;
    if (gd_tensor_numel(gd_load_npz("consumer.npz", "w")) != 6) return 1;
    std::remove("consumer.npz");
    gd_load_state_options load;
    gd_load_report report;
    load.partial = &report;
    if (gd_save_state("consumer.safetensors", gd_part("x", x), gd_part("rng", gd_generator())) !=
        GD_OK)
        return 1;
    if (gd_load_state("consumer.safetensors", gd_part("x", x)) != GD_OK) return 1;
    if (gd_load_state_at(GD_HERE, "consumer.safetensors",
                         gd_parts(gd_part("x", x), gd_part("w", w)), &load) != GD_OK)
        return 1;
    if (report.missing != 1 || gd_state_count(gd_read_state("consumer.safetensors")) != 1) return 1;
    std::remove("consumer.safetensors");
    if (!modules() || !devices() || gd_failed() || backward_status != GD_OK) {
        std::fprintf(stderr, "%s\n", gd_error_message());
        return 1;
    }
    float sums[2], slopes[6];
    if (gd_copy_to(y, sums, sizeof sums) != GD_OK) return 1;
    if (gd_copy_to(gd_tensor_grad(x), slopes, sizeof slopes) != GD_OK) return 1;
    std::printf("%g %g, %g %g\n", sums[0], sums[1], slopes[0], slopes[5]);
    return sums[0] == -1.5f && sums[1] == 6 && slopes[0] == 0.5f && slopes[5] == 1 ? 0 : 1;
}
