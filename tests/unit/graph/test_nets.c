/* test_nets.c - random training steps give the same results eagerly, as plans, and in sessions, on the
 * CPU and on the test device. */
#include <stdlib.h>

#include "nets/check.h"
#include "test.h"

TEST(random_steps_agree_on_the_cpu) {
    net_device = NULL;
    check_seeds(1, 120);
}

TEST(random_steps_agree_on_the_test_device) {
    net_device = "test";
    check_seeds(1001, 20);
}

int main(int argc, char **argv) {
    setenv("GRADUS_BACKEND_PATH", GRADUS_TEST_BACKENDS, 1);
    return test_run_all(argc, argv);
}
