/* test_optim_golden.c - optimizers and schedules follow PyTorch's trajectories.
 *
 * tests/golden/optim_cases.txt has the cases; optim_make.py describes the net and the format of
 * optim.bin. Each case takes 100 steps with eager ops, in a gd_jit, and in a session with leaves
 * and with variables: all within 1e-6 of PyTorch, and at level 0 all with the same bits.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "clean_test.h"
#include "gradus/gradus.h"

enum {
    STEPS = 100,
    INPUTS = 5,
    HIDDEN = 7,
    OUTPUTS = 3,
    BATCH = 8,
    NUMBERS = 6,
    TENSORS = 4,
    MAX_CASES = 64
};
enum { PARAMETERS = HIDDEN * INPUTS + HIDDEN + OUTPUTS * HIDDEN + OUTPUTS, LINE = 300 };

typedef enum mode { EAGER, JIT, JIT_FUSED, SESSION, SESSION_FUSED, VARIABLES, MODES } mode;
static const char *const mode_names[] = {
    "eager", "jit", "jit, level 2", "session", "session, level 2", "variables"};

typedef struct trajectory {
    double at[STEPS][NUMBERS], last[PARAMETERS];
} trajectory;

typedef struct test_case {
    char line[LINE], part[5][LINE]; /* optimizer, options, options of group 1, schedule, more */
    double clip_norm, clip_value;
    int frozen;
    trajectory expected;
} test_case;

static test_case cases[MAX_CASES];
static int n_cases;

/* --- reading ---------------------------------------------------------------------------------- */

static uint64_t key_of(const char *line) {
    uint64_t h = 14695981039346656037u;
    for (; *line; line++) h = (h ^ (unsigned char)*line) * 1099511628211u;
    return h;
}

static double number_after(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at ? strtod(at + strlen(name), NULL) : 0;
}

static void split_parts(test_case *c) {
    const char *from = c->line;
    for (int i = 0; i < 5; i++) {
        size_t n = strcspn(from, "|");
        const char *next = from[n] ? from + n + 1 : from + n;
        while (n > 0 && *from == ' ') from++, n--;
        while (n > 0 && from[n - 1] == ' ') n--;
        snprintf(c->part[i], LINE, "%.*s", (int)n, from);
        from = next;
    }
    c->clip_norm = number_after(c->part[4], "clip_norm=");
    c->clip_value = number_after(c->part[4], "clip_value=");
    c->frozen = (int)number_after(c->part[4], "frozen=");
}

static bool read_cases(void) {
    if (n_cases) return true;
    FILE *text = fopen(GRADUS_GOLDEN "/optim_cases.txt", "r"),
         *golden = fopen(GRADUS_GOLDEN "/optim.bin", "rb");
    char magic[8], line[LINE];
    uint64_t count = 0;
    bool fine = text && golden && fread(magic, 8, 1, golden) == 1 &&
                memcmp(magic, "GDOPTIM1", 8) == 0 && fread(&count, 8, 1, golden) == 1;
    while (fine && fgets(line, LINE, text)) {
        uint64_t key;
        line[strcspn(line, "\n")] = 0;
        if (*line == 0 || *line == '#') continue;
        test_case *c = &cases[n_cases];
        snprintf(c->line, LINE, "%s", line);
        split_parts(c);
        fine = ++n_cases < MAX_CASES && fread(&key, 8, 1, golden) == 1 && key == key_of(c->line) &&
               fread(&c->expected, sizeof c->expected, 1, golden) == 1;
        CHECK_SAYING(fine, "optim.bin does not match '%s'; run optim_make.py", line);
    }
    if (text) fclose(text);
    if (golden) fclose(golden);
    return fine && n_cases == (int)count;
}

/* --- the net ---------------------------------------------------------------------------------- */

static gd_tensor *wave_data(gd_shape dims, double phase) {
    double values[256];
    int64_t n = 1;
    for (int d = 0; d < dims.rank; d++) n *= dims.at[d];
    for (int64_t i = 0; i < n; i++)
        values[i] = sin(0.7 * (double)(i * i) + 1.3 * (double)i + phase);
    return gd_from_array(dims, GD_F64, values);
}

typedef struct net {
    const test_case *c;
    gd_tensor *w[TENSORS];
    gd_optimizer *optimizer;
    gd_schedule *schedule;
    gd_tensor *x[4], *y[4];
} net;

static const char *options_of(const char *text) {
    text += strcspn(text, " ");
    return text;
}

static void attach_optimizer(net *n) {
    const test_case *c = n->c;
    n->optimizer = gd_optimizer_new(c->part[0], gd_list(n->w[0], n->w[1]), c->part[1]);
    gd_optimizer_add_text(n->optimizer, gd_list(n->w[2], n->w[3]), c->part[2]);
    if (!*c->part[3]) return;
    char name[40];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(c->part[3], " "), c->part[3]);
    n->schedule = gd_schedule_new(name, n->optimizer, options_of(c->part[3]));
}

static net make_net(const test_case *c, bool variables) {
    const gd_shape shapes[] = {gd_dims(HIDDEN, INPUTS), gd_dims(HIDDEN), gd_dims(OUTPUTS, HIDDEN),
                               gd_dims(OUTPUTS)};
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    net n = {.c = c};
    for (int i = 0; i < TENSORS; i++) {
        gd_tensor *w = gd_mul(wave_data(shapes[i], i), gd_scalar_of(0.5, GD_F64));
        n.w[i] = variables ? gd_variable(w, .name = names[i]) : gd_requires_grad(w);
    }
    attach_optimizer(&n);
    for (int i = 0; i < 4; i++) {
        n.x[i] = wave_data(gd_dims(BATCH, INPUTS), 10 + i);
        n.y[i] = wave_data(gd_dims(BATCH, OUTPUTS), 20 + i);
    }
    return n;
}

static gd_tensor *loss_of(const net *n, gd_tensor *x, gd_tensor *y) {
    gd_tensor *h = gd_tanh(gd_linear(x, n->w[0], n->w[1]));
    return gd_mse_loss(gd_linear(h, n->w[2], n->w[3]), y);
}

static gd_tensors train_step(gd_tensors in, void *user) {
    net *n = user;
    const gd_tensors all = {n->w, TENSORS};
    gd_optimizer_zero_grad(n->optimizer);
    gd_tensor *loss = loss_of(n, in.at[0], in.at[1]);
    gd_backward(loss);
    if (n->c->clip_norm > 0) gd_clip_grad_norm(all, n->c->clip_norm);
    if (n->c->clip_value > 0) gd_clip_grad_value(all, n->c->clip_value);
    gd_optimizer_step(n->optimizer);
    if (n->schedule) gd_schedule_step(n->schedule);
    return gd_listed(loss);
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct runner {
    net net;
    gd_jit *jit;
    gd_session *session;
    gd_tensor *x, *y, *step;
} runner;

static int level_of(mode m) { return m == JIT_FUSED || m == SESSION_FUSED ? 2 : 0; }

static void begin_run(runner *r, const test_case *c, mode m) {
    *r = (runner){.session = NULL};
    if (m < SESSION) {
        r->net = make_net(c, false);
        return;
    }
    gd_graph *graph = gd_graph_new();
    if (m != VARIABLES) r->net = make_net(c, false);
    GD_GRAPH(graph);
    if (m == VARIABLES) r->net = make_net(c, true);
    r->x = gd_placeholder(gd_dims(BATCH, INPUTS), .dtype = GD_F64);
    r->y = gd_placeholder(gd_dims(BATCH, OUTPUTS), .dtype = GD_F64);
    r->step = gd_minimize(r->net.optimizer, loss_of(&r->net, r->x, r->y), .clip_norm = c->clip_norm,
                          .clip_value = c->clip_value, .schedule = r->net.schedule);
    r->session = gd_session_new(graph, .level = level_of(m));
}

static void run_step(runner *r, int i) {
    GD_SCOPE;
    net *n = &r->net;
    gd_tensor *x = n->x[i % 4], *y = n->y[i % 4];
    if (n->c->frozen) gd_set_requires_grad(n->w[1], i >= n->c->frozen);
    if (r->session) gd_session_run(r->session, gd_feed(r->x, x, r->y, y), gd_list(r->step));
    else if (r->jit) gd_jit_call(r->jit, gd_list(x, y));
    else train_step(gd_list(x, y), n);
}

static gd_tensor *value_of(const runner *r, gd_tensor *t, mode m) {
    return m == VARIABLES ? gd_session_get(r->session, t) : t;
}

static void read_numbers(runner *r, mode m, double *numbers, double *last) {
    GD_SCOPE;
    for (int k = 0; k < TENSORS; k++) {
        double values[64];
        gd_tensor *w = value_of(r, r->net.w[k], m);
        const int64_t n = gd_tensor_numel(w);
        gd_copy_to(w, values, sizeof(double) * (size_t)n);
        numbers[k] = 0;
        for (int64_t i = 0; i < n; i++) numbers[k] += values[i] * cos((double)i);
        if (last) memcpy(last, values, sizeof(double) * (size_t)n), last += n;
    }
    for (int g = 0; g < 2; g++)
        numbers[TENSORS + g] =
            gd_item(value_of(r, gd_optimizer_lr(r->net.optimizer, .group = g), m));
}

static bool follow_trajectory(const test_case *c, mode m, trajectory *got) {
    GD_SCOPE;
    runner r;
    begin_run(&r, c, m);
    if (m == JIT || m == JIT_FUSED) r.jit = gd_jit_new(train_step, &r.net, .level = level_of(m));
    for (int i = 0; i < STEPS && !gd_failed(); i++) {
        run_step(&r, i);
        read_numbers(&r, m, got->at[i], i == STEPS - 1 ? got->last : NULL);
    }
    if (r.jit)
        CHECK_SAYING(gd_jit_traces(r.jit) == 1 + (c->frozen > 0), "%s: %d traces", c->line,
                     gd_jit_traces(r.jit));
    CHECK_SAYING(!gd_failed(), "%s, %s: %s", c->line, mode_names[m], gd_error_message());
    const bool fine = !gd_failed();
    gd_clear_error();
    return fine;
}

static double relative_error(double got, double expected) {
    return fabs(got - expected) / fmax(1e-3, fabs(expected));
}

static void compare_trajectory(const test_case *c, mode m, const trajectory *got) {
    double most = 0;
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < NUMBERS; k++) {
            const double off = relative_error(got->at[i][k], c->expected.at[i][k]);
            if (!(off <= most)) most = off;
            CHECK_SAYING(off <= 1e-6, "%s, %s, step %d, number %d: %.12g, not %.12g", c->line,
                         mode_names[m], i, k, got->at[i][k], c->expected.at[i][k]);
            if (!(off <= 1e-6)) return;
        }
    for (int i = 0; i < PARAMETERS; i++)
        CHECK_SAYING(relative_error(got->last[i], c->expected.last[i]) <= 1e-6,
                     "%s, %s, element %d", c->line, mode_names[m], i);
}

CLEAN_TEST(optimizers_and_schedules_follow_pytorch) {
    static trajectory eager, got;
    CHECK(read_cases() && n_cases > 30);
    for (int i = 0; i < n_cases; i++) {
        const test_case *c = &cases[i];
        if (!follow_trajectory(c, EAGER, &eager)) continue;
        compare_trajectory(c, EAGER, &eager);
        for (mode m = JIT; m < MODES; m++) {
            if (c->frozen && m >= SESSION)
                continue; /* a graph has the leaves as they were when it was built */
            if (!follow_trajectory(c, m, &got)) continue;
            compare_trajectory(c, m, &got);
            if (level_of(m) == 0)
                CHECK_SAYING(memcmp(&eager, &got, sizeof got) == 0, "%s: %s has other bits",
                             c->line, mode_names[m]);
        }
    }
}

TEST_MAIN
