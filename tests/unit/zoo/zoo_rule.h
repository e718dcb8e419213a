/* zoo_rule.h - networks of the zoo with weights and inputs computed by a rule from names and
 * element indices. tests/golden/zoo_make.py has the same rule, so that PyTorch computes with the
 * same numbers.
 */
#ifndef GRADUS_TESTS_UNIT_ZOO_ZOO_RULE_H
#define GRADUS_TESTS_UNIT_ZOO_ZOO_RULE_H

#include "gradus/gradus.h"

typedef struct rule_net {
    const char *name, *options;
    int64_t x[5];       /* dims of the input x, followed by 0; all 0: there is no x */
    int64_t tokens[24]; /* the first input: a program or tree, then -1; {-1}: there is none */
    int64_t below;      /* x has integers below this; 0: floats */
    int64_t classes;    /* cross entropy with class indices; 0: mean of squares */
    bool large;         /* a step takes long */
} rule_net;

/* A network with its inputs and targets, in the current scope. */
typedef struct rule_case {
    const rule_net *of;
    gd_module *module;
    gd_tensor *tokens, *x, *target; /* tokens or x may be NULL */
} rule_case;

extern const rule_net rule_nets[];
extern const int rule_net_count;

/* FNV-1a of "NET:NAME" and `more`. */
uint64_t rule_seed(const char *net, const char *name, const char *more);
/* A number in (-1, 1) with 24 bits. */
double rule_signed(uint64_t seed, int64_t i);
void rule_fill(gd_module *module, const char *net);
rule_case rule_make(const rule_net *of, gd_dtype dtype);
gd_tensor *rule_output(const rule_case *c, gd_tensor *x);
gd_tensor *rule_loss(const rule_case *c, gd_tensor *y);

#endif
