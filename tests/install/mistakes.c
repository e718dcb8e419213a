/* mistakes.c - calls that must not compile, one for each value of MISTAKE. With MISTAKE=0 it is
 * right, and compiles without a warning. Compiled as C and as C++20; clang cannot reject those from
 * 21 on in C. */
#include <gradus/gradus.h>

#ifndef __cplusplus
#define nullptr NULL
#endif

void calls(gd_tensor *x, gd_tensors p, gd_module *net, gd_dataset *data, void *user);
void calls(gd_tensor *x, gd_tensors p, gd_module *net, gd_dataset *data, void *user) {
    GD_SCOPE;
    const int axis = 1;
    gd_sum(x, .axis = axis);
    gd_slice(x, .axis = 1, .start = 0, .stop = 2);
    gd_optim_sgd(p, .lr = 0.1);
    gd_loader_new(gd_dataset_csv("a", .target = "b"), .batch = 32, .shuffle = true);
    gd_fit(net, data, .validation = data, .callbacks = gd_callbacks(gd_checkpoint("run")));
    gd_mul(x, 0.5);
    gd_add(1, gd_mul(x, axis));
    gd_where(gd_gt(x, 0), x, 0.f);
    gd_add_(x, 2);
    gd_clamp_tensor(x, NULL, x);
    gd_clamp_tensor(x, x, nullptr);
    (void)user;
#if MISTAKE == 1 /* options without a name: */
    gd_sum(x, 1);
#elif MISTAKE == 2
    gd_sum(x, 0);
#elif MISTAKE == 3
    gd_slice(x, 1, .start = 0, .stop = 2);
#elif MISTAKE == 4
    gd_optim_sgd(p, 0.1);
#elif MISTAKE == 5
    gd_sum(x, axis);
#elif MISTAKE == 6
    gd_nn_dropout(0.5);
#elif MISTAKE == 7
    gd_jit_new(nullptr, user, 1);
#elif MISTAKE == 8
    gd_sum(x, user);
#elif MISTAKE == 9
    gd_session_new(nullptr, nullptr);
#elif MISTAKE == 10 /* options of another type: */
    gd_fit(net, data, .callbacks = gd_checkpoint("run"));
#elif MISTAKE == 11
    gd_fit(net, data, .epochs = "3");
#elif MISTAKE == 12
    gd_fit(net, data, .resume = 3);
#elif MISTAKE == 13
    gd_fit(net, data, .class_weights = net);
#elif MISTAKE == 14 /* operands that are neither tensors nor numbers: */
    gd_mul(x, "2");
#elif MISTAKE == 15
    gd_mul(net, x);
#elif MISTAKE == 16
    gd_where(x, p, x);
#elif MISTAKE == 17
    gd_add_(1, x);
#elif MISTAKE == 18
    gd_lerp(x, x, &axis);
#elif MISTAKE == 19 /* numbers in place of tensors: */
    gd_clamp_tensor(x, x, 1);
#elif MISTAKE == 20
    gd_clamp_tensor(x, 0, x);
#elif MISTAKE == 21 /* an option without a name behind a named one: */
    gd_loader_new(data, .batch = 32, true);
#elif MISTAKE == 22
    gd_softmax(x, .axis = axis, GD_F32);
#elif MISTAKE == 23
    gd_dataset_csv("a", .target = "b", "c");
#endif
}
