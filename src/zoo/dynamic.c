/* dynamic.c - networks whose structure depends on the input: trees and programs that C code reads.
 *
 * Both take their structure as tokens in postfix order, operands before their operator: with ten
 * digits as leaves and the operators + (10) and * (11), "2 3 4 * +" is the tensor {2, 3, 4, 11,
 * 10}. A stack holds the states of the subtrees that are complete.
 */
#include "core/alloc.h"
#include "gradus/autograd.h"
#include "gradus/inits.h"
#include "gradus/layers.h"
#include "gradus/nn.h"
#include "gradus/ops.h"
#include "gradus/zoo.h"
#include "dispatch/op.h"
#include "zoo/zoo.h"

static gd_tensors fail_forward(gd_status status) {
    gd_report(NULL, status);
    return gd_list_of_errors(1);
}

static gd_status check_range(const char *option, int64_t value, int64_t least, int64_t most) {
    GD_TRY(gd_net_at_least(option, value, least));
    if (value <= most) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s is %lld; it must be at most %lld", option, (long long)value,
                   (long long)most);
}
/* Each operator has its own weights, so their number is limited. */
static gd_status check_operators(const char *option, int64_t value) {
    return check_range(option, value, 0, 1 << 16);
}
static gd_status check_width(int64_t value) { return check_range("width", value, 1, 1 << 30); }

/* --- tokens in postfix order ------------------------------------------------------------------ */

/* The tokens: first the leaves, then operators on one state, then those on two. */
typedef struct vocabulary {
    int64_t leaves, unary, binary;
} vocabulary;

typedef struct postfix {
    int64_t *tokens, count;
    int64_t leaves; /* the number of leaves */
    int64_t depth;  /* the largest number of states on the stack */
} postfix;

static int64_t operand_count(const vocabulary *v, int64_t token) {
    return token < v->leaves ? 0 : token < v->leaves + v->unary ? 1 : 2;
}

static gd_status check_token(const vocabulary *v, int64_t token, int64_t position, int64_t states) {
    const int64_t all = v->leaves + v->unary + v->binary, needs = operand_count(v, token);
    if (token < 0 || token >= all)
        return gd_fail(GD_E_ARGUMENT,
                       "token %lld is %lld; leaves are 0 to %lld, operators %lld to %lld",
                       (long long)position, (long long)token, (long long)v->leaves - 1,
                       (long long)v->leaves, (long long)all - 1);
    if (states < needs)
        return gd_fail(GD_E_ARGUMENT,
                       "token %lld is the operator %lld on %lld state%s, but there %s %lld before "
                       "it; tokens are in postfix "
                       "order, operands before their operator",
                       (long long)position, (long long)token, (long long)needs,
                       needs == 1 ? "" : "s", states == 1 ? "is" : "are", (long long)states);
    return GD_OK;
}

static gd_status check_structure(const vocabulary *v, postfix *p) {
    int64_t states = 0;
    for (int64_t i = 0; i < p->count; i++) {
        GD_TRY(check_token(v, p->tokens[i], i, states));
        p->leaves += p->tokens[i] < v->leaves;
        states += 1 - operand_count(v, p->tokens[i]);
        if (states > p->depth) p->depth = states;
    }
    if (states == 1) return GD_OK;
    return gd_fail(
        GD_E_ARGUMENT,
        "%lld states are left after the last of %lld tokens; there must be one, the root",
        (long long)states, (long long)p->count);
}

static gd_status check_tensor(const gd_tensor *t) {
    if (!t) return gd_fail(GD_E_ARGUMENT, "the tokens are NULL");
    if (gd_tensor_is_symbol(t))
        return gd_fail(
            GD_E_STATE,
            "the tokens are a symbol, which has no values yet, and the network is built from them; "
            "in a jit or a graph use a captured tensor, not an input or a placeholder");
    if (gd_tensor_rank(t) == 1 && gd_tensor_dtype(t) == GD_I64) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "the tokens are %s of rank %d; they must be i64 of rank 1",
                   gd_dtype_name(gd_tensor_dtype(t)), gd_tensor_rank(t));
}

/* Reads and checks the tokens. The caller frees p->tokens with gd_free, also after a failure. */
static gd_status read_postfix(const vocabulary *v, const gd_tensor *t, postfix *p) {
    GD_TRY(check_tensor(t));
    p->count = gd_tensor_numel(t);
    const size_t bytes = (size_t)p->count * sizeof *p->tokens;
    p->tokens = gd_malloc(bytes ? bytes : 1);
    if (!p->tokens) return gd_fail(GD_E_MEMORY, "no memory for %lld tokens", (long long)p->count);
    const gd_status status = gd_copy_to(t, p->tokens, bytes);
    return status == GD_OK ? check_structure(v, p) : status;
}

/* Computes the state of a leaf, which is number `number` among the leaves of this input, or of an
 * operator on the states `below`. */
typedef gd_tensor *state_fn(void *self, int64_t token, int64_t number, gd_tensor *const *below);

/* Evaluates the tokens; returns the state of the root. */
static gd_tensor *evaluate_tokens(const vocabulary *v, const postfix *p, state_fn *state,
                                  void *self) {
    gd_tensor **stack = gd_malloc((size_t)p->depth * sizeof *stack);
    if (!stack)
        return gd_tensor_fail(
            gd_fail(GD_E_MEMORY, "no memory for a stack of %lld states", (long long)p->depth));
    int64_t height = 0, leaf = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const int64_t token = p->tokens[i];
        height -= operand_count(v, token);
        stack[height] = state(self, token, leaf, &stack[height]);
        height++;
        leaf += token < v->leaves;
    }
    gd_tensor *root = stack[0];
    gd_free(stack);
    return root;
}

/* --- trees ------------------------------------------------------------------------------------ */

/* state = gate * tanh(candidate) + (1 - gate) * (left + right) / 2, where candidate and gate are
 * linear in [left, right] (1, 2 width). */
typedef struct {
    gd_module *candidate, *gate;
} tree_cell;

static gd_tensors cell_forward(gd_tensors in, void *self) {
    tree_cell *m = self;
    gd_tensor *both = gd_cat(in, .axis = 1);
    gd_tensor *candidate = gd_tanh(gd_module_forward(m->candidate, both));
    gd_tensor *gate = gd_sigmoid(gd_module_forward(m->gate, both));
    gd_tensor *mean = gd_mul(gd_add(in.at[0], in.at[1]), gd_scalar_of(0.5, gd_tensor_dtype(both)));
    return gd_listed(gd_add(mean, gd_mul(gate, gd_sub(candidate, mean))));
}

static gd_module *make_cell(int64_t width) {
    gd_module *net = gd_module_new(cell_forward, sizeof(tree_cell), .type = "tree_cell");
    tree_cell *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->candidate, gd_nn_linear(2 * width, width));
    GD_CHILD(net, m->gate, gd_nn_linear(2 * width, width));
    return net;
}

/*net tree_net
 * A recursive network over binary trees, after Socher et al. 2013. The input is a tree as i64
 * tokens (T) in postfix order: tokens below `leaves` are leaves, each a row of a table; the others
 * are operators, each with its own gated cell that combines two states to one. y (1, outputs) is a
 * linear function of the state of the root. C code reads the tokens: in a jit or a graph they are a
 * captured tensor, read once, when the function is traced or the graph is built.
 *   leaves int = 10
 *   operators int = 3
 *   width int = 32      of a state
 *   outputs int = 1
 */
typedef struct {
    gd_module *cells, *head;
    gd_tensor *table;
    vocabulary words;
} tree_net;

/* Looks up the embeddings of all leaves, (1, width) each, at once, so that the gradient is added to
 * the table once. */
static gd_tensors leaf_states(const tree_net *m, const postfix *p) {
    int64_t *leaves = gd_malloc((size_t)p->leaves * sizeof *leaves), n = 0;
    if (!leaves)
        return fail_forward(
            gd_fail(GD_E_MEMORY, "no memory for %lld leaves", (long long)p->leaves));
    for (int64_t i = 0; i < p->count; i++)
        if (p->tokens[i] < m->words.leaves) leaves[n++] = p->tokens[i];
    gd_tensor *index =
        gd_to_device(gd_from_array(gd_dims(n), GD_I64, leaves), gd_tensor_device(m->table));
    gd_free(leaves);
    return gd_split(gd_embedding(index, m->table), gd_dims(1));
}

typedef struct {
    tree_net *net;
    gd_tensors leaves;
} tree_walk;

static gd_tensor *tree_state(void *self, int64_t token, int64_t number, gd_tensor *const *below) {
    tree_walk *w = self;
    if (token < w->net->words.leaves) return w->leaves.at[number];
    return gd_module_forward(gd_module_at(w->net->cells, (int)(token - w->net->words.leaves)),
                             below[0], below[1]);
}

static gd_tensors tree_net_forward(gd_tensors in, void *self) {
    tree_net *m = self;
    postfix p = {.count = 0};
    gd_tensor *y = NULL;
    const gd_status status =
        in.count == 1
            ? read_postfix(&m->words, in.at[0], &p)
            : gd_fail(GD_E_ARGUMENT, "it takes 1 input (tokens), not %lld", (long long)in.count);
    if (status == GD_OK) {
        tree_walk w = {m, leaf_states(m, &p)};
        if (!gd_tensor_is_error(w.leaves.at[0]))
            y = gd_module_forward(m->head, evaluate_tokens(&m->words, &p, tree_state, &w));
    }
    gd_free(p.tokens);
    return status != GD_OK ? fail_forward(status) : y ? gd_listed(y) : gd_list_of_errors(1);
}

static gd_status tree_net_check(const void *options) {
    const gd_zoo_tree_net_options *o = options;
    GD_TRY(gd_net_at_least("leaves", o->leaves, 1));
    GD_TRY(check_operators("operators", o->operators));
    GD_TRY(check_width(o->width));
    return gd_net_at_least("outputs", o->outputs, 1);
}
static gd_module *tree_net_make(const void *options) {
    const gd_zoo_tree_net_options *o = options;
    gd_module *net = gd_module_new(tree_net_forward, sizeof(tree_net), .type = "tree_net");
    tree_net *m = gd_module_self(net);
    if (!net) return NULL;
    m->words = (vocabulary){.leaves = o->leaves, .binary = o->operators};
    GD_PARAMETER(net, m->table, gd_init_normal(gd_dims(o->leaves, o->width)));
    GD_CHILD(net, m->cells, gd_nn_list());
    gd_status status = GD_OK;
    for (int64_t i = 0; i < o->operators && status == GD_OK; i++)
        status = gd_module_append(m->cells, make_cell(o->width));
    GD_CHILD(net, m->head, gd_nn_linear(o->width, o->outputs));
    return net;
}

/* --- programs over images --------------------------------------------------------------------- */

/* y = relu(x + conv2(relu(conv1(x)))). */
typedef struct {
    gd_module *conv1, *conv2;
} residual_block;

static gd_tensors residual_block_forward(gd_tensors in, void *self) {
    residual_block *m = self;
    gd_tensor *y = gd_module_forward(m->conv2, gd_relu(gd_module_forward(m->conv1, in.at[0])));
    return gd_listed(gd_relu(gd_add(in.at[0], y)));
}

static gd_module *make_residual_block(int64_t width) {
    gd_module *net =
        gd_module_new(residual_block_forward, sizeof(residual_block), .type = "residual_block");
    residual_block *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->conv1, gd_nn_conv2d(width, width, 3, .padding = 1));
    GD_CHILD(net, m->conv2, gd_nn_conv2d(width, width, 3, .padding = 1));
    return net;
}

/* Combines two states: relu(join([a, b])) through a residual block. */
typedef struct {
    gd_module *join, *block;
} join_block;

static gd_tensors join_block_forward(gd_tensors in, void *self) {
    join_block *m = self;
    return gd_listed(
        gd_module_forward(m->block, gd_relu(gd_module_forward(m->join, gd_cat(in, .axis = 1)))));
}

static gd_module *make_join_block(int64_t width) {
    gd_module *net = gd_module_new(join_block_forward, sizeof(join_block), .type = "join_block");
    join_block *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->join, gd_nn_conv2d(2 * width, width, 1));
    GD_CHILD(net, m->block, make_residual_block(width));
    return net;
}

/*net modular_net
 * A neural module network, Johnson et al. 2017: a program selects and connects modules. Inputs are
 * the program, i64 tokens (T) in postfix order, and features x (N, channels, size, size) of images.
 * Token 0 is the scene, the features after the stem; the next `unary` tokens are modules on one
 * state (N, width, size, size), the next `binary` on two. y (N, classes) is the output of the
 * classifier. The defaults are those for the CLEVR dataset. C code reads the tokens: in a jit or a
 * graph they are a captured tensor, read once, when the function is traced or the graph is built.
 *   channels int = 1024
 *   size int = 14
 *   width int = 128
 *   unary int = 30
 *   binary int = 9
 *   classes int = 28
 *   projection int = 512   channels before the pooling of the classifier
 *   hidden int = 1024      outputs of the first linear layer of the classifier
 */
typedef struct {
    gd_module *stem, *unary, *binary, *classifier;
    vocabulary words;
} modular_net;
typedef struct {
    modular_net *net;
    gd_tensor *scene;
} program_walk;

static gd_tensor *program_state(void *self, int64_t token, int64_t number,
                                gd_tensor *const *below) {
    program_walk *w = self;
    const vocabulary *v = &w->net->words;
    (void)number;
    if (token < v->leaves) return w->scene;
    token -= v->leaves;
    if (token < v->unary)
        return gd_module_forward(gd_module_at(w->net->unary, (int)token), below[0]);
    return gd_module_forward(gd_module_at(w->net->binary, (int)(token - v->unary)), below[0],
                             below[1]);
}

static gd_tensors modular_net_forward(gd_tensors in, void *self) {
    modular_net *m = self;
    postfix p = {.count = 0};
    gd_tensor *y = NULL;
    const gd_status status = in.count == 2
                                 ? read_postfix(&m->words, in.at[0], &p)
                                 : gd_fail(GD_E_ARGUMENT, "it takes 2 inputs (tokens, x), not %lld",
                                           (long long)in.count);
    if (status == GD_OK) {
        program_walk w = {m, gd_module_forward(m->stem, in.at[1])};
        y = gd_module_forward(m->classifier, evaluate_tokens(&m->words, &p, program_state, &w));
    }
    gd_free(p.tokens);
    return status == GD_OK ? gd_listed(y) : fail_forward(status);
}

static gd_status modular_net_check(const void *options) {
    const gd_zoo_modular_net_options *o = options;
    GD_TRY(gd_net_at_least("channels", o->channels, 1));
    GD_TRY(check_range("size", o->size, 2, 1 << 15));
    GD_TRY(check_width(o->width));
    GD_TRY(check_operators("unary", o->unary));
    GD_TRY(check_operators("binary", o->binary));
    GD_TRY(gd_net_at_least("classes", o->classes, 1));
    GD_TRY(check_range("projection", o->projection, 1, 1 << 30));
    return gd_net_at_least("hidden", o->hidden, 1);
}
static gd_module *modular_net_make(const void *options) {
    const gd_zoo_modular_net_options *o = options;
    gd_module *net = gd_module_new(modular_net_forward, sizeof(modular_net), .type = "modular_net");
    modular_net *m = gd_module_self(net);
    if (!net) return NULL;
    const int64_t pooled = o->size / 2;
    m->words = (vocabulary){.leaves = 1, .unary = o->unary, .binary = o->binary};
    GD_CHILD(net, m->stem,
             gd_nn_sequential(gd_nn_conv2d(o->channels, o->width, 3, .padding = 1), gd_nn_relu(),
                              gd_nn_conv2d(o->width, o->width, 3, .padding = 1), gd_nn_relu()));
    GD_CHILD(net, m->unary, gd_nn_list());
    GD_CHILD(net, m->binary, gd_nn_list());
    gd_status status = GD_OK;
    for (int64_t i = 0; i < o->unary && status == GD_OK; i++)
        status = gd_module_append(m->unary, make_residual_block(o->width));
    for (int64_t i = 0; i < o->binary && status == GD_OK; i++)
        status = gd_module_append(m->binary, make_join_block(o->width));
    GD_CHILD(net, m->classifier,
             gd_nn_sequential(gd_nn_conv2d(o->width, o->projection, 1), gd_nn_relu(),
                              gd_nn_max_pool2d(2), gd_nn_flatten(),
                              gd_nn_linear(o->projection * pooled * pooled, o->hidden),
                              gd_nn_relu(), gd_nn_linear(o->hidden, o->classes)));
    return net;
}

#include "zoo/dynamic.gen.h"
