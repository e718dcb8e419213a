/* test_cuda_loss.c - a cross-entropy and its gradient in a plan on CUDA: one launch for both, with
 * the results of the CPU. */
#include "compare.h"
#include "cuda_child.h"

typedef struct loss_case {
    gd_shape dims;
    const char *options; /* of gd_cross_entropy */
    bool weighted;
} loss_case;

static gd_tensors compute_loss(gd_tensors in, void *user) {
    const loss_case *c = user;
    const double smoothing = strstr(c->options, "smooth") ? 0.2 : 0;
    const gd_word reduction = strstr(c->options, "sum")    ? GD_SUM
                              : strstr(c->options, "none") ? GD_NONE
                                                           : GD_MEAN;
    gd_tensor *loss =
        gd_cross_entropy(in.at[0], in.at[1], .reduction = reduction, .ignore_index = 1,
                         .label_smoothing = smoothing, .weight = c->weighted ? in.at[2] : NULL);
    gd_tensor *all = reduction == GD_NONE ? gd_sum(loss) : loss;
    return gd_listed(all, gd_grad(gd_list(all), gd_list(in.at[0])).at[0]);
}

static void check_loss(const loss_case *c, gd_device *device) {
    GD_SCOPE;
    gd_shape positions = {.rank = c->dims.rank - 1, .form = 1};
    for (int i = 0, n = 0; i < c->dims.rank; i++)
        if (i != 1) positions.at[n++] = c->dims.at[i];
    gd_seed(4);
    gd_tensor *x = gd_randn(c->dims), *y = gd_randint(positions, 0, c->dims.at[1]),
              *w = gd_rand(gd_dims(c->dims.at[1]));
    gd_tensor *on_x = gd_requires_grad(gd_to_device(x, device)), *on_y = gd_to_device(y, device),
              *on_w = gd_to_device(w, device);
    gd_tensors expected = compute_loss(gd_list(gd_requires_grad(x), y, w), (void *)c);
    gd_jit *jit = gd_jit_new(compute_loss, (void *)c);
    emulated_controls *cuda = emulated_cuda();
    const int64_t before = cuda ? cuda->counts.captured : 0;
    for (int run = 0; run < 3; run++) {
        gd_tensors got = gd_jit_call(jit, gd_list(on_x, on_y, on_w));
        for (int i = 0; i < 2 && !gd_failed(); i++) {
            const double distance = tensors_relative_distance(
                gd_to_device(got.at[i], gd_device_get("cpu")), expected.at[i]);
            CHECK_SAYING(distance < 1e-5, "%s, %d classes, result %d: %g", c->options,
                         (int)c->dims.at[1], i, distance);
        }
    }
    CHECK_SAYING(!gd_failed(), "%s: %s", c->options, gd_error_message());
    gd_clear_error();
    if (cuda && !strstr(c->options, "none")) /* with both boundaries */
        CHECK_SAYING(cuda->counts.captured - before <= 3, "%s: %d nodes", c->options,
                     (int)(cuda->counts.captured - before));
}

/* A thread or a warp for each position; more positions than a block has threads; planes. */
TEST(cross_entropy_and_its_gradient_take_one_launch) {
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    const gd_shape dims[] = {gd_dims(24, 10), gd_dims(24, 40), gd_dims(1500, 4),
                             gd_dims(3, 5, 4, 2), gd_dims(2, 20, 6)};
    static const char *const options[] = {"mean", "sum", "none", "mean smooth", "sum smooth"};
    for (int i = 0; i < 5 && device; i++)
        for (int o = 0; o < 5; o++)
            for (int weighted = 0; weighted < 2; weighted++)
                check_loss(&(loss_case){dims[i], options[o], weighted}, device);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
