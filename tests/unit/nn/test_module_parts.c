/* test_module_parts.c - parts of a module as bindings of other languages read and change them, and forward
 * functions that a program gives to layers and containers. */
#include <string.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"

static bool is_part(gd_module *m, int i, gd_part_kind kind, const char *name) {
    gd_module_part part;
    return gd_module_part_at(m, i, &part) && part.kind == kind && strcmp(part.name, name) == 0;
}

CLEAN_TEST(parts_are_listed_in_the_order_of_addition) {
    GD_SCOPE;
    gd_module *m = gd_module_new(NULL, 0);
    gd_tensor *w = gd_ones(gd_dims(2)), *b = gd_zeros(gd_dims(2));
    gd_module_add_parameter(m, "w", w);
    gd_module_add(m, "child", gd_nn_linear(2, 3));
    gd_module_add_buffer(m, "b", b);
    gd_module_add_parameter(m, "absent", NULL);
    CHECK(is_part(m, 0, GD_PART_PARAMETER, "w") && is_part(m, 1, GD_PART_CHILD, "child"));
    CHECK(is_part(m, 2, GD_PART_BUFFER, "b") && is_part(m, 3, GD_PART_PARAMETER, "absent"));
    gd_module_part part;
    CHECK(gd_module_part_at(m, 0, &part) && part.object == w);
    CHECK(gd_module_part_at(m, 3, &part) && part.object == NULL);
    CHECK(!gd_module_part_at(m, 4, &part) && !gd_module_part_at(m, -1, &part));
    CHECK(!gd_module_part_at(NULL, 0, &part) && !gd_failed());
    CHECK(gd_module_part_named(m, "b", &part) && part.kind == GD_PART_BUFFER && part.object == b);
    CHECK(!gd_module_part_named(m, "c", &part) && !gd_module_part_named(m, NULL, &part) &&
          !gd_module_part_named(NULL, "b", &part) && !gd_failed());
}

typedef struct {
    gd_module *fc1, *fc2;
    gd_tensor *scale;
} fields;

static gd_tensors add_one(gd_tensors in, void *self) {
    fields *f = self;
    return gd_listed(gd_add(gd_module_forward(f->fc1, in.at[0]), 1));
}

CLEAN_TEST(removed_parts_leave_the_tree_and_the_struct) {
    GD_SCOPE;
    gd_module *m = gd_module_new(add_one, sizeof(fields));
    fields *f = gd_module_self(m);
    GD_CHILD(m, f->fc1, gd_nn_linear(2, 2));
    GD_CHILD(m, f->fc2, gd_nn_linear(2, 2));
    GD_PARAMETER(m, f->scale, gd_ones(gd_dims(1)));
    CHECK(gd_module_parameters(m).count == 5);
    CHECK(gd_module_remove(m, "fc2") == GD_OK && f->fc2 == NULL);
    CHECK(gd_module_parameters(m).count == 3 && gd_module_count(m) == 1);
    CHECK(is_part(m, 1, GD_PART_PARAMETER, "scale"));
    CHECK(gd_module_tensor(m, "scale") == f->scale); /* found under its new number */
    char name[40];
    CHECK(strcmp(gd_module_name_of(m, f->scale, name, sizeof name), "scale") == 0);
    CHECK(gd_module_add(m, "fc2", gd_nn_relu()) == GD_OK);
    CHECK(gd_module_find(m, "fc2") != NULL && !gd_failed());
    CHECK(gd_module_remove(m, "fc3") == GD_E_ARGUMENT && strstr(gd_error_message(), "'fc3'"));
    gd_clear_error();
    gd_module *net = gd_nn_net("x", "y");
    gd_net_add(net, "relu", gd_nn_relu(), "x", "y");
    CHECK(gd_module_remove(net, "relu") == GD_E_STATE);
    gd_clear_error();
}

CLEAN_TEST(a_parameter_gets_another_tensor) {
    GD_SCOPE;
    gd_module *layer = gd_nn_linear(3, 2), *net = gd_nn_sequential(layer);
    gd_tensor *w = gd_ones(gd_dims(2, 3));
    CHECK(gd_module_set_tensor(layer, "weight", w) == GD_OK);
    CHECK(gd_module_tensor(net, "0.weight") == w && gd_tensor_requires_grad(w));
    CHECK(gd_module_set_tensor(layer, "bias", NULL) == GD_OK);
    gd_tensor *y = gd_module_forward(net, gd_ones(gd_dims(1, 3)));
    CHECK(gd_item(gd_sum(y)) == 6);
    CHECK(gd_module_set_tensor(layer, "weight", gd_ones(gd_dims(2), .dtype = GD_I64)) ==
          GD_E_DTYPE);
    gd_clear_error();
    CHECK(gd_module_tensor(net, "0.weight") == w);
}

CLEAN_TEST(parts_of_a_program_do_not_disturb_layers_and_containers) {
    GD_SCOPE;
    gd_module *layer = gd_nn_linear(GD_ANY, 2), *net = gd_nn_sequential(layer);
    gd_module_add_parameter(layer, "extra", gd_ones(gd_dims(2, 3)));
    gd_module_add_parameter(net, "scale", gd_ones(gd_dims(1)));
    CHECK(gd_module_append(net, gd_nn_relu()) == GD_OK && gd_module_find(net, "1") != NULL);
    gd_tensor *x = gd_randn(gd_dims(4, 3)), *y = gd_module_forward(net, x);
    gd_tensor *w = gd_module_tensor(net, "0.weight"), *b = gd_module_tensor(net, "0.bias");
    CHECK(tensors_same_bits(y, gd_relu(gd_linear(x, w, b))));
    CHECK(tensors_same_bits(gd_module_forward(gd_module_clone(net), x), y));
    CHECK(gd_module_remove(layer, "weight") == GD_E_STATE && says("it can only be replaced"));
    gd_clear_error();
    CHECK(gd_module_remove(gd_module_clone(layer), "weight") == GD_E_STATE);
    gd_clear_error();
    CHECK(gd_module_remove(layer, "extra") == GD_OK);
    CHECK(tensors_same_bits(gd_module_forward(net, x), y));
    gd_module *residual = gd_nn_residual(gd_nn_relu(), NULL);
    CHECK(gd_module_remove(residual, "inside") == GD_E_STATE);
    gd_clear_error();
}

/* Doubles what the layer computes. */
static gd_tensors doubled(gd_tensors in, void *self) {
    gd_module *m = *(gd_module **)self;
    return gd_listed(gd_mul(gd_module_base_forward(m, in).at[0], 2));
}

static void override(gd_module *m, gd_forward forward) {
    CHECK(gd_module_override(m, forward, sizeof(gd_module *), .type = "doubled") == GD_OK);
    *(gd_module **)gd_module_self(m) = m;
}

CLEAN_TEST(a_layer_and_a_container_run_the_function_of_a_program) {
    GD_SCOPE;
    gd_module *layer = gd_nn_linear(GD_ANY, 2), *net = gd_nn_sequential(layer, gd_nn_relu());
    override(layer, doubled);
    override(net, doubled);
    gd_tensor *x = gd_randn(gd_dims(4, 3)), *y = gd_module_forward(net, x);
    gd_tensors p = gd_module_parameters(net);
    CHECK(p.count == 2 && strcmp(gd_module_type(layer), "doubled") == 0);
    CHECK(tensors_same_bits(y, gd_mul(gd_relu(gd_mul(gd_linear(x, p.at[0], p.at[1]), 2)), 2)));
    CHECK(gd_module_append(net, gd_nn_relu()) == GD_OK);
    CHECK(gd_module_override(layer, doubled, 0) == GD_E_STATE);
    gd_clear_error();
    CHECK(gd_module_is_training(layer));
    gd_module_set_training(layer, false);
    CHECK(!gd_module_is_training(layer) && gd_module_is_training(net));
    CHECK(!gd_failed());
}

TEST_MAIN
