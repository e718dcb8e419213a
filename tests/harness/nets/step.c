/* step.c - random nets as training steps: the first value, the layers, the optimizer. */
#include "step.h"

#include "layers.h"

/* The streams of draws: one for each layer, and these. */
enum {
    FIRST_STREAM = 100,
    LOSS_STREAM,
    SECOND_LOSS_STREAM,
    STEP_STREAM,
    FETCH_STREAM,
    PENALTY_STREAM
};

static void use_stream(net *n, int stream) { n->d = (draws){draw_at(n->seed, (uint64_t)stream)}; }

/* --- the first value -------------------------------------------------------------------------- */

static net_value draw_images(net *n) {
    static const int axes_of[] = {1, 2, 2, 2, 2, 3}, sides[] = {0, 24, 13, 6};
    const int axes = axes_of[below(n, 6)];
    gd_shape s = gd_dims(one_in(n, 4) ? 1 : 1 + below(n, 6), 1);
    int64_t positions = s.at[0];
    const int64_t side = 1 + below(n, sides[axes]);
    for (int i = 0; i < axes; i++) {
        s.at[s.rank] = one_in(n, 2) ? side : 1 + below(n, sides[axes]);
        positions *= s.at[s.rank++];
    }
    s.at[1] = draw_size(n, most_channels(positions));
    return value_of(net_input(n, s, 0), NET_IMAGES);
}

static net_value draw_sequence(net *n) {
    const bool is_long = n->autocast && one_in(n, 8); /* cuDNN computes attention of 128 steps */
    const int64_t batch = one_in(n, 4) || is_long ? 1 : 1 + below(n, 6),
                  steps = is_long ? 128 : draw_size(n, 20);
    if (one_in(n, 2)) {
        const int64_t width = draw_size(n, most_channels(batch * steps));
        return value_of(net_input(n, gd_dims(batch, steps, width), 0), NET_SEQUENCE);
    }
    const int words = 1 + below(n, 30);
    const int64_t width = draw_size(n, 32);
    net_say(n, " embedding(%d->%d)", words, (int)width);
    gd_tensor *w = parameter(n, gd_dims(words, width), 0, 1),
              *x = net_input(n, gd_dims(batch, steps), words);
    gd_tensor *y = one_in(n, 3) ? gd_embedding(x, w, .padding_idx = 0) : gd_embedding(x, w);
    if (one_in(n, 2)) y = gd_add(y, parameter(n, gd_dims(steps, width), 0, 0.3));
    return value_of(y, NET_SEQUENCE);
}

static net_value draw_first(net *n) {
    use_stream(n, FIRST_STREAM);
    switch (below(n, 6)) {
    case 0: {
        const int64_t batch = draw_size(n, 40);
        return value_of(net_input(n, gd_dims(batch, draw_size(n, 32)), 0), NET_ROWS);
    }
    case 1:
    case 2: return draw_sequence(n);
    default: return draw_images(n);
    }
}

static void say_dims(net *n, net_value x) {
    net_say(n, " [");
    for (int i = 0; i < gd_tensor_rank(x.t); i++)
        net_say(n, "%s%d", i ? "," : "", (int)dim_of(x.t, i));
    net_say(n, "]\n");
}

/* --- the net ---------------------------------------------------------------------------------- */

static int layer_count(const net *n) { return 1 + (int)(draw_at(n->seed, 77) % (MAX_LAYERS - 4)); }

static net_value draw_layer(net *n, net_value x) {
    switch (x.form) {
    case NET_IMAGES: return image_layer(n, x);
    case NET_SEQUENCE: return sequence_layer(n, x);
    default: return row_layer(n, x);
    }
}

/* A layer whose values the backward pass computes again. */
static gd_tensor *repeat_layer(gd_tensors in, void *user) {
    const net_repeat *r = user;
    net *n = r->net;
    const int next = n->next, n_values = n->n_values;
    n->next = r->next;
    n->n_values = r->n_values;
    n->input = r->input;
    n->repeats = true;
    use_stream(n, r->layer);
    const net_value y = draw_layer(n, value_of(in.at[0], r->form));
    n->repeats = false;
    if (!n->building && n->next < next) n->next = next; /* the backward pass comes later */
    n->n_values = n_values;
    n->repeat_form = y.form;
    return y.t;
}

static bool is_repeated(const net *n, int layer) {
    return !(n->without & NO_RECOMPUTATION) && draw_at(n->seed, 500 + (uint64_t)layer) % 24 == 0;
}

static net_value draw_repeated(net *n, net_value x, int layer) {
    net_repeat *r = &n->repeated[layer];
    int input = n->n_values - 1;
    while (input >= 0 && n->values[input].t != x.t) input--;
    *r = (net_repeat){n, layer, n->next, n->n_values, input, x.form};
    net_say(n, " recompute:");
    n->recomputes = true;
    gd_tensor *y = gd_recompute(repeat_layer, gd_list(x.t), r);
    return value_of(y, n->repeat_form);
}

/* Some values of layers are results of the step, as they are or transposed. */
static void fetch_values(net *n) {
    use_stream(n, FETCH_STREAM);
    if (n->without & NO_FETCHES) return;
    for (int i = 0; i < n->n_values && n->n_fetches < MAX_FETCHES; i++) {
        if (!one_in(n, 5)) continue;
        gd_tensor *t = gd_detach(n->values[i].t);
        net_say(n, "fetches value %d\n", i);
        n->fetches[n->n_fetches++] = one_in(n, 3) ? gd_transpose(t, 0, 1) : t;
        if (one_in(n, 8) && n->n_fetches < MAX_FETCHES) n->fetches[n->n_fetches++] = t;
    }
}

/* The mean square of the gradient of a value. */
static gd_tensor *gradient_penalty(net *n, gd_tensor *loss) {
    const net_value v = n->values[below(n, n->n_values)];
    if (!v.trained) return gd_mul(loss, gd_scalar(0.1));
    gd_tensor *g =
        gd_grad(gd_list(loss), gd_list(v.t), .create_graph = true, .allow_unused = true).at[0];
    return g ? gd_mul(gd_sum(gd_square(g)), gd_scalar(0.5)) : gd_mul(loss, gd_scalar(0.1));
}

gd_tensor *net_loss(net *n, gd_tensors in, int shift) {
    n->next = n->next_input = n->n_values = n->n_fetches = 0;
    n->in = in;
    GD_AUTOCAST(n->exact ? GD_DTYPE_NONE : n->autocast);
    net_value x = draw_first(n);
    say_dims(n, x);
    if (shift && gd_tensor_dtype(x.t) == GD_F32) x.t = gd_mul(x.t, gd_scalar(0.7));
    remember(n, x);
    for (int i = 0; i < layer_count(n); i++) {
        if (n->layers_off >> i & 1) continue;
        use_stream(n, i);
        net_say(n, "%2d:", i);
        x = is_repeated(n, i) ? draw_repeated(n, x, i) : draw_layer(n, x);
        say_dims(n, x);
        remember(n, x);
    }
    if (n->building) n->adds_affine = !has_parameter(n);
    if (n->adds_affine) x = affine_layer(n, x);
    use_stream(n, LOSS_STREAM);
    gd_tensor *loss = draw_loss(n, x);
    use_stream(n, SECOND_LOSS_STREAM);
    if (one_in(n, 4) && !(n->without & NO_SECOND_LOSS)) {
        const int at = below(n, n->n_values);
        net_say(n, ", of value %d:", at);
        loss = gd_add(loss, gd_mul(draw_loss(n, n->values[at]), gd_scalar(0.5)));
    }
    use_stream(n, PENALTY_STREAM);
    if (one_in(n, 12) && !n->autocast && !n->building && !n->in_graph && !n->evaluates &&
        !(n->without & NO_PENALTY))
        loss = gd_add(loss, gradient_penalty(n, loss));
    net_say(n, "\n");
    fetch_values(n);
    return loss;
}

/* --- the step --------------------------------------------------------------------------------- */

step_options draw_step(net *n) {
    static const char *const optimizers[][2] = {
        {"sgd", "lr=0.05"},
        {"sgd", "lr=0.05"},
        {"sgd", "lr=0.05 weight_decay=0.1"},
        {"sgd", "lr=0.05 momentum=0.9"},
        {"sgd", "lr=0.05 momentum=0.9 nesterov=true weight_decay=0.1"},
        {"adam", "lr=0.01 eps=0.02"},
        {"adamw", "lr=0.01 eps=0.02 weight_decay=0.1"},
        {"adam", "lr=0.01 eps=0.02 amsgrad=true"},
        {"rmsprop", "lr=0.005 eps=0.05"},
    };
    use_stream(n, STEP_STREAM);
    const int kind = below(n, 9);
    step_options o = {.zero_last = one_in(n, 2),
                      .accumulates = one_in(n, 8),
                      .clips_norm = one_in(n, 6),
                      .clips_value = one_in(n, 10),
                      .scales = one_in(n, 8) || n->autocast == GD_F16,
                      .fetches_gradient = one_in(n, 8),
                      .fetches_parameter = one_in(n, 8),
                      .two_groups = one_in(n, 6),
                      .evaluates = one_in(n, 8),
                      .zero_never = one_in(n, 10),
                      .optimizer = optimizers[kind][0],
                      .options = optimizers[kind][1]};
    if (n->without & NO_CLIPPING) o.clips_norm = o.clips_value = false;
    if (n->without & NO_ACCUMULATION) o.accumulates = o.zero_never = false;
    if (n->without & NO_FETCHES) o.fetches_gradient = o.fetches_parameter = false;
    if (n->without & ONE_ROW_OF_OPTIONS) o.two_groups = false, o.scales = n->autocast == GD_F16;
    if (n->without & PLAIN_OPTIMIZER) o.optimizer = "sgd", o.options = "lr=0.05";
    return o;
}

static void describe_step(net *n) {
    const step_options o = draw_step(n);
    net_say(n, "%s %s%s%s%s%s%s%s%s%s%s", o.optimizer, o.options,
            o.zero_never  ? ", no zero_grad"
            : o.zero_last ? ", zero_grad last"
                          : "",
            o.accumulates ? ", two backwards" : "", o.clips_norm ? ", clip_grad_norm" : "",
            o.clips_value ? ", clip_grad_value" : "", o.scales ? ", loss scale" : "",
            o.fetches_gradient ? ", fetches a gradient" : "",
            o.fetches_parameter ? ", fetches a parameter" : "", o.two_groups ? ", two groups" : "",
            o.evaluates ? ", no gradients" : "");
    net_say(n, ", autocast %s\n", n->autocast == GD_BF16 ? "bf16" : n->autocast ? "f16" : "off");
}

/* The parameters; `frozen` ones, too. */
static gd_tensors net_parameters(net *n, gd_tensor **room) {
    int count = 0;
    for (int i = 0; i < n->n_tensors; i++)
        if (n->roles[i] == NET_PARAMETER || n->roles[i] == NET_FROZEN)
            room[count++] = n->tensors[i];
    return (gd_tensors){room, count};
}

void make_optimizer(net *n) {
    const step_options o = draw_step(n);
    gd_tensor *room[MAX_TENSORS];
    const gd_tensors all = net_parameters(n, room);
    const int64_t first = o.two_groups && all.count > 2 ? all.count / 2 : all.count;
    n->optimizer = gd_optimizer_new(o.optimizer, ((gd_tensors){room, first}), o.options);
    if (first < all.count)
        gd_optimizer_add_text(n->optimizer, ((gd_tensors){room + first, all.count - first}),
                              "lr=0.02");
    n->loss_scale = o.scales ? gd_loss_scale_new(.start = 256) : NULL;
}

/* Clips the gradients and takes a step of the optimizer. Adds results that are fetched. */
static int update_net(net *n, const step_options *o, gd_tensor **results, int count) {
    gd_tensor *room[MAX_TENSORS];
    const gd_tensors parameters = net_parameters(n, room);
    if (n->loss_scale) gd_loss_scale_unscale(n->loss_scale, n->optimizer);
    if (o->clips_norm) results[count++] = gd_clip_grad_norm(parameters, 0.5);
    if (o->clips_value) gd_clip_grad_value(parameters, CLIP_VALUE(n));
    gd_tensor *g = gd_tensor_grad(room[0]);
    if (o->fetches_gradient && g) results[count++] = gd_clone(g);
    if (o->fetches_parameter) results[count++] = gd_clone(gd_detach(room[0]));
    if (n->loss_scale) gd_loss_scale_step(n->loss_scale, n->optimizer);
    else gd_optimizer_step(n->optimizer);
    if (o->zero_last && !o->zero_never) gd_optimizer_zero_grad(n->optimizer);
    if (o->fetches_parameter) results[count++] = gd_clone(gd_detach(room[parameters.count - 1]));
    return count;
}

gd_tensors net_values(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor *results[MAX_FETCHES + 1] = {net_loss(n, in, 0)};
    for (int i = 0; i < n->n_fetches; i++) results[1 + i] = n->fetches[i];
    return gd_list_copy((gd_tensors){results, 1 + n->n_fetches});
}

gd_tensors step_with(net *n, gd_tensors in, gd_jit *values) {
    const step_options o = draw_step(n);
    gd_tensor *results[MAX_FETCHES + 5];
    if (o.evaluates) {
        GD_NO_GRAD;
        return values ? gd_jit_call(values, in) : net_values(in, n);
    }
    if (!o.zero_last && !o.zero_never) gd_optimizer_zero_grad(n->optimizer);
    if (o.accumulates) gd_backward(gd_loss_scale_apply(n->loss_scale, net_loss(n, in, 1)));
    const gd_tensors y = values ? gd_jit_call(values, in) : net_values(in, n);
    results[0] = gd_detach(y.at[0]);
    gd_backward(gd_loss_scale_apply(n->loss_scale, y.at[0]));
    int count = update_net(n, &o, results, 1);
    for (int i = 1; i < y.count; i++) results[count++] = y.at[i];
    return gd_list_copy((gd_tensors){results, count});
}

gd_tensors net_step(gd_tensors in, void *user) { return step_with(user, in, NULL); }

/* --- building and copying --------------------------------------------------------------------- */

void build_net(net *n) {
    n->building = true;
    n->evaluates = draw_step(n).evaluates;
    gd_seed(n->seed);
    GD_NO_GRAD;
    net_loss(n, (gd_tensors){NULL, 0}, 0);
    describe_step(n);
    n->building = false;
}

net copy_net(const net *from, gd_device *device) {
    net n = *from;
    for (int i = 0; i < n.n_tensors; i++) {
        if (n.roles[i] == NET_INPUT) continue;
        n.tensors[i] = gd_detach(gd_to_device(gd_clone(from->tensors[i]), device));
        if (n.roles[i] == NET_PARAMETER) gd_requires_grad(n.tensors[i]);
    }
    return n;
}

/* The same values with the first axis innermost in memory. */
static gd_tensor *transposed_memory(gd_tensor *x) {
    if (gd_tensor_rank(x) < 2) return x;
    return gd_transpose(gd_contiguous(gd_transpose(x, 0, -1)), 0, -1);
}

gd_tensors net_inputs(const net *n, int step) {
    gd_tensor *made[MAX_TENSORS];
    int count = 0;
    gd_seed(n->seed * 31 + (uint64_t)step);
    for (int i = 0; i < n->n_tensors; i++) {
        if (n->roles[i] != NET_INPUT) continue;
        const gd_shape s = gd_tensor_shape(n->tensors[i]);
        made[count] = n->classes[i] ? gd_randint(s, 0, n->classes[i]) : gd_randn(s);
        if (draw_at(n->seed, 300 + (uint64_t)i) % 6 == 0)
            made[count] = transposed_memory(made[count]);
        count++;
    }
    return gd_list_copy((gd_tensors){made, count});
}
