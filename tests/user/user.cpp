// user.cpp - the public headers in C++: typed calls with options structs, and scopes.
#include <cstdio>

#include <gradus/gradus.h>

int main() {
    GD_SCOPE;
    const float data[] = {1, 2, 3, 4, 5, 6};
    gd_tensor *x = gd_from_array(gd_dims(2, 3), GD_F32, data);
    gd_requires_grad(x);
    gd_tensor *y = nullptr;
    {
        GD_SCOPE;
        y = gd_keep(gd_mul(gd_add(x, x), gd_exp(gd_neg(x))));
    }
    gd_sum_options over_rows;
    over_rows.axis = gd_dims(0);
    gd_tensor *sums = gd_sum_at(GD_HERE, y, &over_rows);
    if (gd_tensor_numel(sums) != 3) return 1;
    if (gd_backward_at(GD_HERE, gd_sum_at(GD_HERE, sums, nullptr), nullptr) != GD_OK) return 1;
    gd_tensor *image = gd_full(gd_dims(1, 1, 6, 6), 1.0);
    gd_avg_pool2d_options pool;
    pool.kernel = 2;
    pool.stride = {2, 1};
    if (gd_tensor_dim(gd_avg_pool2d_at(GD_HERE, image, &pool), 3) != 5) return 1;
    const long long big = 9007199254740993; // not representable as a double
    if (gd_item_int(gd_sum_at(GD_HERE,
                              gd_full_like_at(GD_HERE, gd_scalar_of(big, GD_I64), big, nullptr),
                              nullptr)) != big)
        return 1;
    gd_clamp_options between;
    between.min = 0.5;
    between.max = 2;
    if (gd_item(gd_max_at(GD_HERE, gd_clamp_at(GD_HERE, x, &between), nullptr)) != 2) return 1;
    gd_tensor *const list[] = {x, x};
    if (gd_tensor_is_error(gd_call("cat", (gd_tensors{list, 2}), "axis=1"))) return 1;
    gd_tensor *second = gd_index(x, GD_ALL, 1),
              *picked = gd_index(x, gd_range(0, GD_END), gd_scalar_int(-1), GD_NEWAXIS);
    if (gd_tensor_numel(second) != 2 || gd_tensor_rank(picked) != 2) return 1;
    gd_index_put_options adding;
    adding.accumulate = true;
    if (gd_tensor_is_error(
            gd_index_put_at(GD_HERE, x, gd_places(0, gd_scalar_int(2)), gd_scalar(1), &adding)))
        return 1;
    if (gd_failed()) {
        std::fprintf(stderr, "%s\n", gd_error_message());
        return 1;
    }
    std::puts("1 passed, 0 failed");
    return gd_tensor_grad(x) ? 0 : 1;
}
