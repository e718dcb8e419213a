/* zoo_rule.c - networks of the zoo with weights and inputs computed by a rule. */
#include "zoo_rule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/copy.h"
#include "draw.h"

uint64_t rule_seed(const char *net, const char *name, const char *more) {
    uint64_t h = 0xCBF29CE484222325u;
    const char *const parts[] = {net, ":", name, more};
    for (int i = 0; i < 4; i++)
        for (const char *c = parts[i]; *c; c++) h = (h ^ (uint8_t)*c) * 0x100000001B3u;
    return h;
}

double rule_signed(uint64_t seed, int64_t i) {
    return (double)(draw_at(seed, (uint64_t)i) >> 40) * 0x1p-23 + 0x1p-24 - 1;
}

static gd_tensor *rule_numbers(const char *net, const char *name, gd_shape dims, gd_dtype dtype,
                               double scale, double plus) {
    gd_tensor *t = gd_empty(dims, dtype);
    const uint64_t seed = rule_seed(net, name, "");
    for (int64_t i = 0; i < gd_tensor_numel(t);
         i++) /* rounded, so that f32 and f64 have the same numbers */
        gd_store_f64(dtype, (char *)gd_data(t) + (size_t)i * gd_dtype_size(dtype),
                     (double)(float)((double)(float)(rule_signed(seed, i) * scale) + plus));
    return t;
}

static gd_tensor *rule_integers(const char *net, const char *name, int64_t n, int64_t below) {
    gd_tensor *t = gd_empty(gd_dims(n), GD_I64);
    const uint64_t seed = rule_seed(net, name, "");
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)gd_data(t))[i] =
            (int64_t)((draw_at(seed, (uint64_t)i) >> 16) % (uint64_t)below);
    return t;
}

/* The value of the tensor `name` of a state. */
static gd_tensor *rule_value(const char *net, const char *name, const gd_tensor *t) {
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    const gd_shape dims = gd_tensor_shape(t);
    const gd_dtype dtype = gd_tensor_dtype(t);
    if (!gd_dtype_is_float(dtype)) return gd_zeros(dims, .dtype = dtype);
    if (strcmp(last, "running_var") == 0) return rule_numbers(net, name, dims, dtype, 0.5, 1);
    if (dims.rank > 1)
        return rule_numbers(net, name, dims, dtype,
                            sqrt(3.0 / (double)(gd_tensor_numel(t) / dims.at[0])), 0);
    return rule_numbers(net, name, dims, dtype, 0.25, strcmp(last, "weight") == 0 ? 1 : 0);
}

void rule_fill(gd_module *module, const char *net) {
    GD_SCOPE;
    GD_NO_GRAD;
    gd_state *state = gd_state_of(module);
    for (int64_t i = 0; i < gd_state_count(state); i++) {
        gd_tensor *t = gd_state_tensor_at(state, i);
        bool tied = false; /* a tied tensor has the value of its first name */
        for (int64_t k = 0; k < i; k++) tied |= gd_data(gd_state_tensor_at(state, k)) == gd_data(t);
        if (!tied) gd_assign(t, rule_value(net, gd_state_name(state, i), t));
    }
}

/* --- the networks ----------------------------------------------------------------------------- */

const rule_net rule_nets[] = {
    {"lenet", "", .x = {4, 1, 28, 28}, .tokens = {-1}, .classes = 10},
    {"resnet18", "classes=10", .x = {2, 3, 64, 64}, .tokens = {-1}, .classes = 10, .large = true},
    {"resnet50", "classes=10", .x = {2, 3, 64, 64}, .tokens = {-1}, .classes = 10, .large = true},
    {"vgg16", "classes=10 hidden=16 dropout=0", .x = {2, 3, 32, 32}, .tokens = {-1}, .classes = 10,
     .large = true},
    {"resnet20", "", .x = {2, 3, 32, 32}, .tokens = {-1}, .classes = 10},
    {"tree_net", "width=8 outputs=2", .tokens = {1, 2, 11, 3, 9, 12, 10, 4, 1, 10, 11, -1}},
    {"modular_net", "channels=6 size=6 width=8 unary=3 binary=2 classes=5 projection=12 hidden=16",
     .x = {2, 6, 6, 6}, .tokens = {0, 1, 2, 0, 3, 4, 1, 0, 5, -1}, .classes = 5},
    {"char_lstm", "vocabulary=17 embedding=12 hidden=10", .x = {3, 7}, .tokens = {-1}, .below = 17,
     .classes = 17},
    {"gpt", "vocabulary=19 context=12 layers=2 heads=3 width=24", .x = {2, 10}, .tokens = {-1},
     .below = 19, .classes = 19},
    {"mlp", "outputs=3 hidden=12,8", .x = {5, 2, 7}, .tokens = {-1}, .classes = 3},
    {"convnet", "channels=2 width=4 hidden=9 dropout=0", .x = {3, 2, 12, 16}, .tokens = {-1},
     .classes = 10},
};
const int rule_net_count = sizeof rule_nets / sizeof *rule_nets;

gd_tensor *rule_output(const rule_case *c, gd_tensor *x) {
    if (!c->tokens) return gd_module_forward(c->module, x);
    return c->x ? gd_module_forward(c->module, c->tokens, x)
                : gd_module_forward(c->module, c->tokens);
}

gd_tensor *rule_loss(const rule_case *c, gd_tensor *y) {
    if (!c->of->classes) return gd_mse_loss(y, c->target);
    return gd_cross_entropy(gd_reshape(y, gd_dims(-1, gd_tensor_dim(y, -1))), c->target);
}

static gd_tensor *rule_input(const rule_net *of, gd_dtype dtype) {
    int rank = 0;
    while (rank < 5 && of->x[rank]) rank++;
    if (rank == 0) return NULL;
    const gd_shape dims = gd_shape_of(rank, of->x);
    if (!of->below) return rule_numbers(of->name, "x", dims, dtype, sqrt(3.0), 0);
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= of->x[i];
    return gd_reshape(rule_integers(of->name, "x", n, of->below), dims);
}

rule_case rule_make(const rule_net *of, gd_dtype dtype) {
    GD_NO_GRAD;
    rule_case c = {
        .of = of, .module = gd_net_new(of->name, of->options), .x = rule_input(of, dtype)};
    int64_t n = 0;
    while (of->tokens[n] >= 0) n++;
    if (n > 0) c.tokens = gd_from_array(gd_dims(n), GD_I64, of->tokens);
    gd_module_to(c.module, NULL, dtype);
    if (c.x && !c.tokens) gd_module_build(c.module, c.x);
    rule_fill(c.module, of->name);
    const gd_tensor *y =
        rule_output(&(rule_case){of, gd_module_clone(c.module), c.tokens, c.x, NULL}, c.x);
    if (of->classes) {
        c.target =
            rule_integers(of->name, "y", gd_tensor_numel(y) / gd_tensor_dim(y, -1), of->classes);
    } else {
        c.target = rule_numbers(of->name, "y", gd_tensor_shape(y), dtype, 1, 0);
    }
    return c;
}
