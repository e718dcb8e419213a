/* test_cuda_nets.c - random training steps give the same results eagerly on the CPU, eagerly on
 * CUDA, and as plans of both. */
#include "cuda_child.h"
#include "nets/check.h"

TEST(random_steps_agree_on_cuda) {
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    net_device = "cuda";
    check_seeds(1, 8);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
