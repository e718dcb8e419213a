// mistakes17.cpp - calls that must not compile in C++17, which has no options by name: one for each
// value of MISTAKE. With MISTAKE=0 it is right, and compiles without a warning.
#include <gradus/gradus.h>

void calls(gd_tensor *x, gd_tensors p, gd_dataset *data);
void calls(gd_tensor *x, gd_tensors p, gd_dataset *data) {
    GD_SCOPE;
    gd_sum(x);
    gd_loader_new(data);
    gd_optim_sgd(p);
    gd_dataset_csv("a");
    gd_nn_linear(3, 4);
#if MISTAKE == 1
    gd_dataset_csv("a", ";");
#elif MISTAKE == 2
    gd_nn_linear(3, 4, false);
#elif MISTAKE == 3
    gd_nn_dropout(0.5);
#elif MISTAKE == 4
    gd_optim_sgd(p, 0.1);
#elif MISTAKE == 5
    gd_loader_new(data, 32);
#elif MISTAKE == 6
    gd_sum(x, 1);
#endif
}
