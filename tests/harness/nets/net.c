/* net.c - how the layers of random nets draw: sizes, tensors, values. */
#include "net.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void net_say(net *n, const char *format, ...) {
    if (!n->building || n->text_end >= NET_TEXT - 1) return;
    va_list args;
    va_start(args, format);
    n->text_end += (size_t)vsnprintf(n->text + n->text_end, NET_TEXT - n->text_end, format, args);
    va_end(args);
    if (n->text_end >= NET_TEXT) n->text_end = NET_TEXT - 1;
}

int64_t dim_of(gd_tensor *t, int axis) {
    return gd_tensor_is_error(t) ? 1 : gd_tensor_dim(t, axis);
}
bool one_in(net *n, int k) { return draw_one_in(&n->d, k); }
int below(net *n, int k) { return draw_below(&n->d, k); }

/* --- sizes ------------------------------------------------------------------------------------ */

int64_t draw_size(net *n, int64_t most) {
    static const int odd[] = {1, 2, 3, 5, 7, 8, 13, 16, 17, 32}, even[] = {8, 16, 24, 32};
    for (;;) {
        const bool aligned = one_in(n, n->autocast ? 2 : 4);
        const int64_t size = aligned ? even[below(n, 4)] : odd[below(n, 10)];
        if (size <= most) return size;
        if (most < 8) return 1 + below(n, (int)most);
    }
}

int64_t most_channels(int64_t positions) {
    const int64_t most = MAX_ELEMENTS / (positions > 0 ? positions : 1);
    return most < 1 ? 1 : most > 32 ? 32 : most;
}

gd_shape shape_without(gd_tensor *t, int axis) {
    gd_shape s = gd_tensor_shape(t);
    for (int i = axis; i + 1 < s.rank; i++) s.at[i] = s.at[i + 1];
    s.rank--;
    return s;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static gd_tensor *scaled_noise(gd_shape shape, double mean, double scale) {
    return gd_add(gd_mul(gd_randn(shape), gd_scalar(scale)), gd_scalar(mean));
}

static gd_tensor *net_add(net *n, net_role role, gd_tensor *made) {
    if (n->n_tensors == MAX_TENSORS) return NULL;
    n->roles[n->n_tensors] = role;
    n->classes[n->n_tensors] = 0;
    return n->tensors[n->n_tensors++] = made;
}

gd_tensor *net_tensor(net *n, net_role role, gd_shape shape, double mean, double scale) {
    if (n->building) net_add(n, role, scaled_noise(shape, mean, scale));
    return n->tensors[n->next++];
}

bool has_parameter(const net *n) {
    for (int i = 0; i < n->n_tensors; i++)
        if (n->roles[i] == NET_PARAMETER) return true;
    return false;
}

gd_tensor *parameter(net *n, gd_shape shape, double mean, double scale) {
    const bool frozen = draw_at(n->seed, 1000 + (uint64_t)n->next) % 9 == 0 && has_parameter(n) &&
                        !(n->without & NO_FREEZING);
    return net_tensor(n, frozen ? NET_FROZEN : NET_PARAMETER, shape, mean, scale);
}

gd_tensor *weight(net *n, gd_shape shape, int64_t inputs) {
    return parameter(n, shape, 0, 1 / sqrt((double)inputs));
}

gd_tensor *bias_or_none(net *n, int64_t size) {
    return one_in(n, 3) ? NULL : parameter(n, gd_dims(size), 0, 0.2);
}

gd_tensor *constant(net *n, gd_shape shape, double mean, double scale) {
    return net_tensor(n, NET_CONSTANT, shape, mean, scale);
}

gd_tensor *net_input(net *n, gd_shape shape, int classes) {
    if (n->building) {
        net_add(n, NET_INPUT, classes ? gd_randint(shape, 0, classes) : gd_randn(shape));
        n->classes[n->n_tensors - 1] = classes;
        n->n_inputs++;
        return n->tensors[n->next++];
    }
    n->next++;
    return n->in.at[n->next_input++];
}

/* --- values ----------------------------------------------------------------------------------- */

net_value value_of(gd_tensor *t, net_form form) { return (net_value){t, form, false}; }
net_value as_rows(gd_tensor *t) { return value_of(t, NET_ROWS); }

void remember(net *n, net_value v) {
    for (int i = 0; i < n->next; i++) v.trained |= n->roles[i] == NET_PARAMETER;
    if (n->n_values < MAX_VALUES && !n->repeats) n->values[n->n_values++] = v;
}

static bool same_shape(gd_tensor *a, gd_tensor *b) {
    if (gd_tensor_rank(a) != gd_tensor_rank(b)) return false;
    for (int i = 0; i < gd_tensor_rank(a); i++)
        if (dim_of(a, i) != dim_of(b, i)) return false;
    return true;
}

gd_tensor *find_alike(net *n, gd_tensor *x) {
    gd_tensor *found[MAX_VALUES];
    int count = 0;
    for (int i = 0; i < n->n_values; i++)
        if (n->values[i].t != x && !(n->repeats && i == n->input) && same_shape(n->values[i].t, x))
            found[count++] = n->values[i].t;
    return count ? found[below(n, count)] : NULL;
}

int channel_axis(net_value x) { return x.form == NET_SEQUENCE ? 2 : 1; }

gd_tensor *kinked(net *n, gd_tensor *x) {
    n->has_kinks = true;
    return x;
}

gd_tensor *relu_of(net *n, gd_tensor *x) {
    return n->autocast && gd_tensor_numel(x) < 300 ? gd_tanh(x) : kinked(n, gd_relu(x));
}
