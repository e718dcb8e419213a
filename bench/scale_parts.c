/* scale_parts.c - programs of size n: deep nets, graphs with many feeds, datasets of many parts. */
#include "scale_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "caffe/read.h"
#include "core/alloc.h"
#include "gradus/gradus.h"
#include "train/tensorboard.h"

/* A file that the caller removes. */
static const char *file_path(const char *ending) {
    static char path[200];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%.100s/gradus_scale_%d.%s", folder ? folder : "/tmp",
             (int)getpid(), ending);
    return path;
}

/* Runs a statement as a part. */
#define PART(name, ...)  \
    do {                 \
        scale_begin();   \
        __VA_ARGS__;     \
        scale_end(name); \
    } while (0)

/* --- modules ---------------------------------------------------------------------------------- */

enum { WIDTH = 4, BATCH = 2 };

static gd_module *make_chain(int n) {
    gd_module *net = gd_nn_sequential(gd_nn_linear(WIDTH, WIDTH));
    for (int i = 1; i < n; i++) {
        gd_module_append(net, gd_nn_relu());
        gd_module_append(net, gd_nn_linear(WIDTH, WIDTH));
    }
    return net;
}

static void find_all(gd_module *net, int n) {
    char name[32];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%d.weight", 2 * i);
        gd_module_tensor(net, name);
        gd_module_at(net, 2 * i);
    }
}

static void save_and_load(gd_module *net) {
    const char *path = file_path("safetensors");
    PART("save a state", gd_save_state(path, gd_part("net", net)));
    PART("load a state", gd_load_state(path, gd_part("net", net)));
    unlink(path);
}

/* Nothing in the file has a name of the net. */
static void load_misfit(gd_module *net, int n) {
    const char *path = file_path("safetensors");
    gd_module *other = gd_nn_sequential();
    for (int i = 0; i < n; i++) gd_module_append(other, gd_nn_sequential(gd_nn_linear(1, 1)));
    gd_save_state(path, gd_part("other", other));
    PART("load a state that does not fit", gd_load_state(path, gd_part("net", net)));
    unlink(path);
    gd_clear_error();
}

static void write_graph(gd_module *net, gd_tensor *x) {
    char *data = NULL;
    size_t bytes;
    PART("TensorBoard graph", gd_tensorboard_graph(net, gd_list(x), &data, &bytes));
    free(data);
}

static void run_modules(int n) {
    gd_module *net;
    gd_tensor *x = gd_zeros(gd_dims(BATCH, WIDTH));
    PART("append modules", net = make_chain(n));
    PART("clone a module, destroy the clone", {
        GD_SCOPE;
        gd_module_clone(net);
    });
    PART("list parameters", gd_module_parameters(net));
    PART("find parameters by name", find_all(net, n));
    PART("summary", free(gd_module_summary(net, x)));
    const char *picture = file_path("svg");
    PART("picture", gd_module_draw(net, picture, gd_list(x)));
    unlink(picture);
    save_and_load(net);
    load_misfit(net, n);
    write_graph(net, x);
}

/* --- names ------------------------------------------------------------------------------------ */

static void ask_for_names(gd_module *net) {
    char name[64];
    const gd_tensors all = gd_module_parameters(net);
    for (int64_t i = 0; i < all.count; i++) gd_module_name_of(net, all.at[i], name, sizeof name);
}

/* One layer, with many names. */
static void save_shared_layer(int n) {
    const char *path = file_path("safetensors");
    gd_module *net = gd_nn_sequential(), *layer = gd_nn_linear(WIDTH, WIDTH);
    for (int i = 0; i < n; i++) gd_module_append(net, layer);
    PART("save a shared layer", gd_save_state(path, gd_part("net", net)));
    unlink(path);
}

static void keep_all(int n) {
    GD_SCOPE;
    gd_tensor **all = malloc((size_t)n * sizeof *all);
    {
        GD_SCOPE;
        for (int i = 0; i < n; i++) all[i] = gd_scalar(i);
        scale_begin();
        for (int i = 0; i < n; i++) gd_keep(all[i]);
        scale_end("keep the objects of a scope");
    }
    free(all);
}

static void load_all(const char *path, char **names, int n) {
    gd_npz *file = gd_npz_open(path);
    for (int i = 0; i < n; i++) gd_npz_load(file, names[i]);
}

static void save_and_load_arrays(int n) {
    const char *path = file_path("npz");
    gd_tensor **all = malloc((size_t)n * sizeof *all);
    char **names = malloc((size_t)n * sizeof *names);
    for (int i = 0; i < n; i++) {
        all[i] = gd_scalar(i);
        names[i] = malloc(16);
        snprintf(names[i], 16, "x%d", i);
    }
    PART("save arrays", gd_save_npz(path, (const char *const *)names, ((gd_tensors){all, n})));
    PART("load arrays by name", load_all(path, names, n));
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
    free(all);
    unlink(path);
}

/* A table of n columns. */
static void read_tables(int n) {
    const char *path = file_path("csv");
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < n; i++) fprintf(f, "%sx%d", i ? "," : "", i);
    for (int row = 0; f && row < 2; row++)
        for (int i = 0; i < n; i++) fprintf(f, "%s%d", i ? "," : "\n", i + row);
    if (f) fclose(f);
    gd_dataset *table;
    PART("open a table", table = gd_dataset_csv(path, .target = "x0"));
    const size_t size = (size_t)gd_dataset_layout(table, NULL, 0) + 1;
    char *layout = malloc(size);
    PART("layout of a table", gd_dataset_layout(table, layout, size));
    PART("open a table like another", gd_dataset_csv(path, .target = "x0", .layout = layout));
    free(layout);
    unlink(path);
}

static void run_names(int n) {
    gd_module *net = make_chain(n);
    PART("names of parameters", ask_for_names(net));
    save_shared_layer(n);
    keep_all(n);
    save_and_load_arrays(n);
    read_tables(n);
}

/* --- a net of named layers -------------------------------------------------------------------- */

static void add_layers(gd_module *net, int n) {
    char name[32], reads[32], gives[32];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        snprintf(reads, sizeof reads, "x%d", i);
        snprintf(gives, sizeof gives, i < n - 1 ? "x%d" : "y", i + 1);
        gd_net_add(net, name, gd_nn_linear(WIDTH, WIDTH), reads, gives);
    }
}

static void run_net(int n) {
    gd_module *net = gd_nn_net("x0", "y");
    gd_tensor *x = gd_zeros(gd_dims(BATCH, WIDTH));
    PART("gd_net_add", add_layers(net, n));
    PART("call a gd_nn_net", gd_module_forward(net, x));
    PART("clone a gd_nn_net", gd_module_clone(net));
}

/* --- training --------------------------------------------------------------------------------- */

typedef struct training {
    gd_module *net;
    gd_optimizer *optimizer;
} training;

static gd_tensors train_step(gd_tensors in, void *user) {
    training *t = user;
    gd_tensor *loss = gd_mse_loss(gd_module_forward(t->net, in.at[0]), in.at[1]);
    gd_optimizer_zero_grad(t->optimizer);
    gd_backward(loss);
    gd_optimizer_step(t->optimizer);
    return gd_listed(loss);
}

/* Gradients of several steps add up: the jit is fed those of earlier calls. */
static gd_tensors accumulate_step(gd_tensors in, void *user) {
    training *t = user;
    gd_tensor *loss = gd_mse_loss(gd_module_forward(t->net, in.at[0]), in.at[1]);
    gd_backward(loss);
    return gd_listed(loss);
}

static void call(gd_jit *jit, gd_tensor *x, gd_tensor *y) {
    GD_SCOPE;
    gd_jit_call(jit, gd_list(x, y));
}

static void run_training(int n) {
    training t = {make_chain(n), NULL};
    gd_tensor *x = gd_ones(gd_dims(BATCH, WIDTH)), *y = gd_zeros(gd_dims(BATCH, WIDTH));
    PART("new optimizer", t.optimizer = gd_optim_adam(gd_module_parameters(t.net)));
    PART("eager step, first", train_step(gd_list(x, y), &t));
    PART("eager step", train_step(gd_list(x, y), &t));
    gd_jit *jit = gd_jit_new(train_step, &t);
    PART("jit step, first", call(jit, x, y));
    PART("jit step", call(jit, x, y));
    PART("plan as text", free(gd_jit_plan_text(jit, gd_list(x, y))));
    jit = gd_jit_new(accumulate_step, &t);
    call(jit, x, y); /* the leaves have gradients from here on */
    PART("jit that accumulates, first", call(jit, x, y));
    PART("jit that accumulates", call(jit, x, y));
    gd_clip_grad_norm(gd_module_parameters(t.net), 1);
    PART("clip gradients", gd_clip_grad_norm(gd_module_parameters(t.net), 1));
}

/* A jit that goes on the tape: its backward pass is derived from the trace. */
static gd_tensors forward_step(gd_tensors in, void *user) {
    return gd_listed(gd_mean(gd_module_forward(user, in.at[0])));
}

/* Several backward passes in one trace, as a step that accumulates gradients of small batches. */
typedef struct many_passes {
    gd_module *net;
    int count;
} many_passes;

static gd_tensors run_passes(gd_tensors in, void *user) {
    const many_passes *m = user;
    for (int i = 0; i < m->count; i++)
        gd_backward(gd_mean(gd_module_forward(m->net, gd_mul(in.at[0], gd_scalar(i)))));
    return gd_listed(gd_mean(in.at[0]));
}

static void run_backward_passes(int n) {
    many_passes m = {make_chain(2), n};
    gd_tensor *x = gd_ones(gd_dims(BATCH, WIDTH));
    gd_jit *jit = gd_jit_new(run_passes, &m);
    PART("jit with many backward passes, first", gd_jit_call(jit, gd_list(x)));
}

static gd_tensor *call_net(gd_tensors in, void *net) { return gd_module_forward(net, in.at[0]); }

static void run_tape(int n) {
    gd_module *net = make_chain(n);
    gd_tensor *x = gd_ones(gd_dims(BATCH, WIDTH)), *loss;
    gd_jit *jit = gd_jit_new(forward_step, net);
    PART("jit on the tape, first", loss = gd_jit_call(jit, gd_list(x)).at[0]);
    PART("its gradients, first", gd_backward(loss));
    PART("jit on the tape", loss = gd_jit_call(jit, gd_list(x)).at[0]);
    PART("its gradients", gd_backward(loss));
    PART("recomputed segment", loss = gd_mean(gd_recompute(call_net, gd_list(x), net)));
    PART("gradients of a recomputed segment", gd_backward(loss));
}

static void run_groups(int n) {
    gd_module *net = make_chain(n);
    gd_tensors p = gd_module_parameters(net);
    gd_optimizer *optimizer = gd_optim_adam(((gd_tensors){p.at, 1}));
    scale_begin();
    for (int i = 1; i < p.count; i++)
        gd_optimizer_add_text(optimizer, ((gd_tensors){p.at + i, 1}), "lr=0.01");
    scale_end("add groups to an optimizer");
    gd_module_forward(net, gd_ones(gd_dims(BATCH, WIDTH)));
    gd_backward(gd_sum(gd_module_forward(net, gd_ones(gd_dims(BATCH, WIDTH)))));
    PART("step of an optimizer with groups", gd_optimizer_step(optimizer));
}

static void set_factors(gd_optimizer *optimizer, gd_tensors p, bool layers) {
    for (int64_t i = 0; i < p.count; i++) {
        if (layers) gd_optimizer_set_factors(optimizer, p.at[i], .lr = 1.0 / (1 + (double)(i / 2)));
        else if (i % 2) gd_optimizer_set_factors(optimizer, p.at[i], .weight_decay = 0);
    }
}

/* Factors of all biases, and of each layer. */
static void run_factors(int n) {
    gd_module *net = make_chain(n);
    const gd_tensors p = gd_module_parameters(net);
    gd_backward(gd_sum(gd_module_forward(net, gd_ones(gd_dims(BATCH, WIDTH)))));
    gd_optimizer *optimizer = gd_optim_adamw(p);
    PART("factors of biases", set_factors(optimizer, p, false));
    PART("step with factors of biases", gd_optimizer_step(optimizer));
    optimizer = gd_optim_adamw_of(net);
    PART("factors of layers", set_factors(optimizer, p, true));
    PART("step with factors of layers", gd_optimizer_step(optimizer));
    gd_module_append(net, gd_nn_linear(WIDTH, WIDTH));
    PART("step with factors of layers and a new layer", gd_optimizer_step(optimizer));
}

/* An optimizer that finds the parameters of a module by itself, also those that are built later. */
static void run_optimizer_of(int n) {
    gd_module *net = make_chain(n), *open = gd_nn_sequential();
    gd_tensor *x = gd_ones(gd_dims(BATCH, WIDTH)), *y = gd_zeros(gd_dims(BATCH, WIDTH));
    training t = {net, NULL};
    PART("new optimizer of a module", t.optimizer = gd_optim_adam_of(net));
    PART("eager step of an optimizer of a module, first", train_step(gd_list(x, y), &t));
    PART("eager step of an optimizer of a module", train_step(gd_list(x, y), &t));
    gd_jit *jit = gd_jit_new(train_step, &t);
    PART("jit step of an optimizer of a module, first", call(jit, x, y));
    PART("jit step of an optimizer of a module", call(jit, x, y));
    for (int i = 0; i < n; i++) gd_module_append(open, gd_nn_linear(GD_ANY, WIDTH));
    t = (training){open, gd_optim_adam_of(open)};
    PART("step that builds the net, then the optimizer", train_step(gd_list(x, y), &t));
    const char *path = file_path("safetensors");
    PART("save an optimizer of a module",
         gd_save_state(path, gd_part("net", open), gd_part("adam", t.optimizer)));
    PART("load an optimizer of a module",
         gd_load_state(path, gd_part("net", open), gd_part("adam", t.optimizer)));
    unlink(path);
}

static void run_fit(int n) {
    gd_module *net = make_chain(n);
    gd_tensor *x = gd_ones(gd_dims(2 * BATCH, WIDTH)), *y = gd_zeros(gd_dims(2 * BATCH, WIDTH));
    PART("gd_compile", gd_compile(net, .loss = "mse"));
    PART("gd_fit",
         gd_fit(net, gd_list(x, y), .epochs = 1, .batch = BATCH, .progress = GD_PROGRESS_NONE));
}

/* All updates depend on whether all gradients are finite. */
static void run_loss_scale(int n) {
    gd_module *net = make_chain(n);
    gd_tensor *x = gd_ones(gd_dims(BATCH, WIDTH)), *y = gd_zeros(gd_dims(BATCH, WIDTH));
    gd_compile(net, .loss = "mse", .precision = "f16");
    PART("gd_fit in f16", gd_fit(net, gd_list(x, y), .batch = BATCH, .progress = GD_PROGRESS_NONE));
}

/* A plan that recomputes values: those that are only read at the end, the sums of all gradients, and
 * with less memory others, too. */
static void run_limit(int n) {
    gd_module *net = make_chain(n);
    gd_graph *graph = gd_graph_new();
    gd_tensor *fed, *sum;
    {
        GD_GRAPH(graph);
        fed = gd_placeholder(gd_dims(BATCH, WIDTH));
        gd_tensor *loss = gd_mean(gd_module_forward(net, fed));
        gd_tensors g = gd_gradients(gd_list(loss), gd_module_parameters(net));
        sum = gd_sum(g.at[0]);
        for (int64_t i = 1; i < g.count; i++) sum = gd_add(sum, gd_sum(g.at[i]));
    }
    const gd_tensors in = gd_list(fed, gd_ones(gd_dims(BATCH, WIDTH)));
    gd_plan_memory memory;
    gd_session_plan(gd_session_new(graph), in, gd_list(sum), &memory);
    gd_session *most = gd_session_new(graph, .memory_limit = memory.peak_bytes / 10 * 9),
               *half = gd_session_new(graph, .memory_limit = memory.peak_bytes / 2);
    PART("nine tenths of the memory, first run", gd_session_run(most, in, gd_list(sum)));
    PART("nine tenths of the memory", gd_session_run(most, in, gd_list(sum)));
    PART("half of the memory, first run", gd_session_run(half, in, gd_list(sum)));
    PART("half of the memory", gd_session_run(half, in, gd_list(sum)));
}

/* Convolutions and batch norm: the passes for layouts, folding and epilogues. */
static void run_convolutions(int n) {
    gd_module *net = gd_nn_sequential();
    for (int i = 0; i < n; i++) {
        gd_module_append(net, gd_nn_conv2d(WIDTH, WIDTH, 3, .padding = 1));
        gd_module_append(net, gd_nn_batch_norm2d(WIDTH));
        gd_module_append(net, gd_nn_relu());
    }
    gd_tensor *x = gd_ones(gd_dims(BATCH, WIDTH, 4, 4)), *y = gd_zeros(gd_dims(BATCH, WIDTH, 4, 4));
    training t = {net, gd_optim_sgd(gd_module_parameters(net), .lr = 0.01)};
    gd_jit *jit = gd_jit_new(train_step, &t);
    PART("jit of convolutions, first", call(jit, x, y));
    gd_module_eval(net);
    gd_jit *evaluate = gd_jit_new(forward_step, net);
    GD_NO_GRAD;
    PART("jit of convolutions, evaluation", gd_jit_call(evaluate, gd_list(x)));
}

/* Attention: permuted operands, residual sums, layer norm. */
static void run_transformer(int n) {
    gd_module *net = gd_nn_sequential();
    for (int i = 0; i < n; i++)
        gd_module_append(net, gd_nn_transformer_encoder_layer(WIDTH, 2, .dim_feedforward = WIDTH,
                                                              .dropout = 0, .batch_first = true));
    gd_tensor *x = gd_ones(gd_dims(BATCH, 3, WIDTH)), *y = gd_zeros(gd_dims(BATCH, 3, WIDTH));
    training t = {net, gd_optim_adam(gd_module_parameters(net))};
    gd_jit *jit = gd_jit_new(train_step, &t);
    PART("jit of a transformer, first", call(jit, x, y));
    PART("jit of a transformer", call(jit, x, y));
}

/* --- lists of tensors ------------------------------------------------------------------------- */

static gd_tensors join(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_cat(in));
}

static gd_tensors add_rows(gd_tensors in, void *user) {
    (void)user;
    const gd_tensors rows = gd_unbind(in.at[0]);
    gd_tensor *sum = rows.at[0];
    for (int64_t i = 1; i < rows.count; i++) sum = gd_add(sum, rows.at[i]);
    return gd_listed(sum);
}

static void run_cat(int n) {
    gd_tensor **leaves = malloc((size_t)n * sizeof *leaves), *y;
    for (int i = 0; i < n; i++) leaves[i] = gd_requires_grad(gd_ones(gd_dims(1, WIDTH)));
    const gd_tensors list = {leaves, n};
    PART("cat", y = gd_cat(list));
    PART("gradients of a cat", gd_backward(gd_sum(y)));
    PART("stack", gd_stack(list));
    PART("unbind", gd_unbind(y));
    gd_jit *jit = gd_jit_new(join, NULL);
    GD_NO_GRAD;
    PART("jit of a cat, first", gd_jit_call(jit, list));
    PART("jit of a cat", gd_jit_call(jit, list));
    gd_jit *rows = gd_jit_new(add_rows, NULL);
    PART("jit of an unbind, first", gd_jit_call(rows, gd_list(y)));
    PART("jit of an unbind", gd_jit_call(rows, gd_list(y)));
    free(leaves);
}

/* --- values that many steps read -------------------------------------------------------------- */

static void run_wide(int n) {
    gd_tensor **all = malloc((size_t)n * sizeof *all), *fed, *sum;
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        fed = gd_placeholder(gd_dims(WIDTH));
        gd_tensor *x = gd_tanh(fed);
        for (int i = 0; i < n; i++) all[i] = gd_tanh(gd_mul(x, gd_scalar(i)));
        sum = gd_sum(gd_cat(gd_list_of(all, n)));
    }
    gd_session *session = gd_session_new(graph);
    const gd_tensors in = gd_list(fed, gd_ones(gd_dims(WIDTH)));
    PART("session of a wide graph, first run", gd_session_run(session, in, gd_list(sum)));
    PART("session of a wide graph", gd_session_run(session, in, gd_list(sum)));
    free(all);
}

/* --- sessions --------------------------------------------------------------------------------- */

static void run_session(int n) {
    gd_tensor **feeds = malloc(2 * (size_t)n * sizeof *feeds),
              **fetches = malloc(2 * (size_t)n * sizeof *fetches);
    gd_graph *graph = gd_graph_new();
    char name[32];
    scale_begin();
    {
        GD_GRAPH(graph);
        gd_tensor *sum = gd_zeros(gd_dims(WIDTH));
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof name, "feed%d", i);
            gd_tensor *fed = gd_placeholder(gd_dims(WIDTH), .name = name);
            gd_tensor *v = gd_variable(gd_ones(gd_dims(WIDTH)));
            feeds[2 * i] = fed;
            sum = gd_add(sum, gd_tanh(gd_mul(fed, v)));
            fetches[2 * i] = gd_assign(v, gd_add(v, fed));
            fetches[2 * i + 1] = sum;
        }
    }
    scale_end("build a graph");
    for (int i = 0; i < n; i++) feeds[2 * i + 1] = gd_ones(gd_dims(WIDTH));
    const gd_tensors in = {feeds, 2 * n}, out = {fetches, 2 * n};
    gd_session *session = gd_session_new(graph);
    PART("session, first run", gd_session_run(session, in, out));
    PART("session run", gd_session_run(session, in, out));
    scale_begin();
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "feed%d", i);
        gd_graph_find(graph, name);
        snprintf(name, sizeof name, "tanh_%d", i);
        gd_graph_find(graph, name);
    }
    scale_end("find nodes by name");
    free(feeds);
    free(fetches);
}

/* --- ONNX ------------------------------------------------------------------------------------- */

static void run_onnx(int n) {
    const char *path = file_path("onnx");
    gd_module *net = make_chain(n), *loaded = NULL;
    gd_tensor *x = gd_zeros(gd_dims(BATCH, WIDTH));
    PART("save ONNX", gd_onnx_save_module(path, net, gd_list(x)));
    PART("load ONNX", loaded = gd_onnx_module(path));
    PART("run ONNX, first", gd_module_forward(loaded, x));
    PART("run ONNX", gd_module_forward(loaded, x));
    PART("clone ONNX", gd_module_clone(loaded));
    unlink(path);
}

/* --- data ------------------------------------------------------------------------------------- */

/* The character U+4E00 + i as UTF-8. */
static const char *character(int i) {
    static char text[4];
    const unsigned code = 0x4E00 + (unsigned)i;
    text[0] = (char)(0xE0 | code >> 12);
    text[1] = (char)(0x80 | (code >> 6 & 0x3F));
    text[2] = (char)(0x80 | (code & 0x3F));
    return text;
}

/* A text in which each character is a class. */
static void run_classes(int n) {
    const char *path = file_path("txt");
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < n; i++) fputs(character(i), f);
    if (f) fclose(f);
    gd_dataset *text;
    PART("open a text", text = gd_dataset_text(path, 3));
    scale_begin();
    for (int i = 0; i < n; i++) gd_dataset_class_index(text, character(i));
    scale_end("find classes by name");
    unlink(path);
}

static void run_data(int n) {
    gd_dataset **parts = malloc((size_t)n * sizeof *parts), *all;
    gd_tensors batch;
    for (int i = 0; i < n; i++)
        parts[i] = gd_dataset_tensors(gd_ones(gd_dims(2, WIDTH)), gd_zeros(gd_dims(2, WIDTH)));
    PART("concat datasets", all = gd_dataset_concat_at(NULL, (gd_dataset_list){parts, n}));
    gd_loader *loader = gd_loader_new(all, .batch = 32, .shuffle = true);
    scale_begin();
    while (gd_loader_next(loader, &batch)) {
    }
    scale_end("an epoch of a dataset of many parts");
    free(parts);
}

/* --- files of Caffe --------------------------------------------------------------------------- */

/* Layers of version 1, which are upgraded. */
static void write_old_layers(const char *path, int n) {
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < n; i++)
        fprintf(f,
                "layers { name: 'l%d' type: INNER_PRODUCT bottom: 'b%d' top: 'b%d' blobs_lr: 1\n"
                "  inner_product_param { num_output: 4 } }\n",
                i, i, i + 1);
    if (f) fclose(f);
}

static void run_caffe_files(int n) {
    const char *path = file_path("prototxt");
    gd_pb_doc *doc = NULL, *again = NULL;
    char *data = NULL;
    size_t bytes = 0;
    write_old_layers(path, n);
    PART("read and upgrade a text of Caffe", gd_caffe_read_net(&doc, path));
    unlink(path);
    PART("write a message as text", gd_pb_print_text(doc, &data, &bytes));
    gd_free(data);
    PART("write a message", gd_pb_print(doc, &data, &bytes));
    PART("read a message", gd_pb_read(&again, &gd_caffe_net_schema, "net", data, bytes));
    gd_pb_free(doc);
    gd_pb_free(again);
    gd_free(data);
}

/* A chain whose layers share names and parameters, with layers in place of one name, and layers without names
 * that read one blob. */
static void write_net(const char *path, int n) {
    FILE *f = fopen(path, "w");
    if (!f) return;
    fprintf(f, "input: 'b0' input_shape { dim: 2 dim: 4 }\n");
    for (int i = 0; i < n; i++) {
        fprintf(f,
                "layer { name: 'l%d' type: 'InnerProduct' bottom: 'b%d' top: 'b%d'\n"
                "  param { name: 'p%d' } inner_product_param { num_output: 4 } }\n",
                i / 2, i, i + 1, i - i % 3);
        fprintf(f, "layer { name: 'relu' type: 'ReLU' bottom: 'b%d' top: 'b%d' }\n", i + 1, i + 1);
        fprintf(f, "layer { type: 'TanH' bottom: 'b0' top: 't%d' }\n", i);
    }
    fclose(f);
}

static void run_caffe_net(int n) {
    GD_SCOPE;
    gd_module *net = NULL;
    write_net(file_path("prototxt"), n);
    PART("build a net of Caffe", net = gd_caffe_net(file_path("prototxt")));
    unlink(file_path("prototxt"));
    if (!net) return;
    PART("write weights of Caffe", gd_caffe_save(file_path("caffemodel"), net));
    PART("load weights of Caffe", gd_caffe_load(file_path("caffemodel"), net));
    unlink(file_path("caffemodel"));
}

const scale_program scale_programs[] = {{"modules", run_modules, 250},
                                        {"names", run_names, 500},
                                        {"net", run_net, 250},
                                        {"training", run_training, 250},
                                        {"tape", run_tape, 250},
                                        {"passes", run_backward_passes, 60},
                                        {"groups", run_groups, 250},
                                        {"factors", run_factors, 250},
                                        {"optimizer of a module", run_optimizer_of, 250},
                                        {"fit", run_fit, 125},
                                        {"loss scale", run_loss_scale, 250},
                                        {"cat", run_cat, 500},
                                        {"limit", run_limit, 400},
                                        {"convolutions", run_convolutions, 60},
                                        {"transformer", run_transformer, 20},
                                        {"wide", run_wide, 500},
                                        {"session", run_session, 500},
                                        {"onnx", run_onnx, 125},
                                        {"data", run_data, 500},
                                        {"classes", run_classes, 500},
                                        {"files of Caffe", run_caffe_files, 500},
                                        {"net of Caffe", run_caffe_net, 125},
                                        {NULL, NULL, 0}};
