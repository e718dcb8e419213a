/* expression_tree.c - a dynamic graph: a recursive network learns to compute modulo 5.
 *
 * The graph of the network has the shape of the expression, for example (2 + 4) * 3: tree_net reads
 * tokens in postfix order, "2 4 + 3 *", and calls the cell of each operator on the states of its
 * two operands. The net sees only the tokens and the value.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { MODULUS = 5, PLUS = MODULUS, MINUS, TIMES }; /* tokens: digits, then operators */
enum { BATCH = 16, STEPS = 1500, MAX_OPERATORS = 4 };

static int64_t random_below(int64_t n) { return gd_item_int(gd_randint(gd_dims(), 0, n)); }

/* Writes a random expression with this many operators to *at and advances it. Returns its value. */
static int64_t write_expression(int64_t **at, int64_t operators) {
    if (operators == 0) return *(*at)++ = random_below(MODULUS);
    const int64_t left = random_below(operators), token = PLUS + random_below(3);
    const int64_t a = write_expression(at, left), b = write_expression(at, operators - 1 - left);
    *(*at)++ = token;
    return (token == PLUS ? a + b : token == MINUS ? a - b + MODULUS : a * b) % MODULUS;
}

/* Scores (1, MODULUS) for a random expression with up to `most` operators, and its value. */
static gd_tensor *scores_of(gd_module *net, int64_t most, int64_t *value) {
    int64_t tokens[2 * MAX_OPERATORS + 1], *end = tokens;
    *value = write_expression(&end, random_below(most + 1));
    return gd_module_forward(net, gd_from_array(gd_dims(end - tokens), GD_I64, tokens));
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(1);
    gd_module *net = gd_zoo_tree_net(.leaves = MODULUS, .operators = 3, .outputs = MODULUS);
    gd_optimizer *adam = gd_optim_adam(gd_module_parameters(net), .lr = 3e-3);
    int64_t value, right = 0;
    for (int step = 1; step <= STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_tensor *loss = gd_scalar(0);
        for (int i = 0; i < BATCH; i++) { /* short expressions first */
            gd_tensor *scores = scores_of(net, 1 + (MAX_OPERATORS - 1) * step / STEPS, &value);
            gd_tensor *target = gd_full(gd_dims(1), value, .dtype = GD_I64);
            loss = gd_add(loss, gd_cross_entropy(scores, target));
        }
        gd_optimizer_zero_grad(adam);
        gd_backward(loss);
        gd_optimizer_step(adam);
        if (step % 150 == 0) show_loss(step, gd_item(loss) / BATCH);
    }
    for (int i = 0; i < 500 && !gd_failed(); i++) {
        GD_SCOPE;
        right += gd_item_int(gd_argmax(scores_of(net, MAX_OPERATORS, &value), .axis = 1)) == value;
    }
    printf("%d of 500 new expressions are right\n", (int)right);
    return show_failure();
}
