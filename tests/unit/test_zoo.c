/* test_zoo.c - ready networks. */
#include <string.h>

#include "clean_test.h"
#include "gradus/gradus.h"

static void check_net(gd_module *net, gd_tensor *x, int64_t parameters, int64_t classes) {
    CHECK(net != NULL);
    CHECK_SAYING(gd_module_parameter_count(net) == parameters, "%lld", (long long)gd_module_parameter_count(net));
    gd_tensor *y = gd_module_forward(net, x);
    CHECK(gd_tensor_rank(y) == 2 && gd_tensor_dim(y, 1) == classes);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(networks_for_images_have_the_known_numbers_of_parameters) {
    GD_SCOPE;
    check_net(gd_zoo_lenet(), gd_randn(gd_dims(2, 1, 28, 28)), 61706, 10);
    check_net(gd_zoo_resnet18(), gd_randn(gd_dims(2, 3, 64, 64)), 11689512, 1000);
    check_net(gd_zoo_resnet20(), gd_randn(gd_dims(2, 3, 32, 32)), 272474 + 16 * 0, 10);
    check_net(gd_net_new("resnet18", "classes=7"), gd_randn(gd_dims(2, 3, 32, 32)), 11689512 - 993 * 513, 7);
}

TEST_MAIN
