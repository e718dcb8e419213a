// consumer.cpp - the same program in C++17 and in C++20, which has options by name.
#include <gradus/gradus.h>

#include <cstdio>

int main() {
    GD_SCOPE;
    const float values[] = {-2, -1, 0, 1, 2, 3};
    gd_tensor *x = gd_requires_grad(gd_from_array(gd_dims(2, 3), GD_F32, values));
#if __cplusplus >= 202002L
    gd_tensor *y = gd_sum(gd_leaky_relu(x, .slope = 0.5), .axis = gd_dims(1));
    gd_status walked = gd_backward(gd_sum(y), .retain_graph = true);
#else
    gd_leaky_relu_options leaky = gd_leaky_relu_defaults();
    leaky.slope = 0.5;
    gd_sum_options rows = gd_sum_defaults();
    rows.axis = gd_dims(1);
    gd_tensor *y = gd_sum_at(GD_HERE, gd_leaky_relu_at(GD_HERE, x, &leaky), &rows);
    gd_status walked = gd_backward(gd_sum(y));
#endif
    {
        GD_SCOPE;
        gd_tensor *both = gd_cat(gd_list(y, y));
        if (gd_tensor_numel(both) != 4) return 1;
    }
    if (gd_failed() || walked != GD_OK) {
        std::fprintf(stderr, "%s\n", gd_error_message());
        return 1;
    }
    float sums[2], slopes[6];
    if (gd_copy_to(y, sums, sizeof sums) != GD_OK) return 1;
    if (gd_copy_to(gd_tensor_grad(x), slopes, sizeof slopes) != GD_OK) return 1;
    std::printf("%g %g, %g %g\n", sums[0], sums[1], slopes[0], slopes[5]);
    return sums[0] == -1.5f && sums[1] == 6 && slopes[0] == 0.5f && slopes[5] == 1 ? 0 : 1;
}
