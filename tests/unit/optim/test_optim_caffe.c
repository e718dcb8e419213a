/* test_optim_caffe.c - optimizers and schedules follow the formulas of Caffe's solvers.
 *
 * tests/golden/caffe_optim_cases.txt has the cases; caffe_optim_make.py describes the net and the
 * format of caffe_optim.bin. Each case takes 50 steps with eager ops, in a gd_jit, and by gd_fit:
 * all within 1e-10 of NumPy, and eager ops, the jit at level 0 and an eager gd_fit with the same
 * bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "clean_test.h"
#include "gradus/gradus.h"

enum { STEPS = 50, INPUTS = 5, HIDDEN = 7, OUTPUTS = 3, BATCH = 8, BATCHES = 4, TENSORS = 4 };
enum { PARAMETERS = HIDDEN * INPUTS + HIDDEN + OUTPUTS * HIDDEN + OUTPUTS, LINE = 400 };

/* lr_mult and decay_mult of the parameters. */
static const double factors[TENSORS][2] = {{1, 1}, {2, 0}, {0.5, 2}, {2, 0}};

typedef enum mode { EAGER, JIT, FIT_EAGER, FIT, MODES } mode;
static const char *const mode_names[] = {"eager", "jit", "fit without jit", "fit"};

typedef struct trajectory {
    double at[STEPS][TENSORS + 1], last[PARAMETERS];
} trajectory;

typedef struct test_case {
    char line[LINE], part[4][LINE]; /* Caffe's fields, optimizer, schedule, more */
    double clip_norm;
    int accumulate;
    trajectory expected;
} test_case;

/* --- reading ---------------------------------------------------------------------------------- */

static uint64_t key_of(const char *line) {
    uint64_t h = 14695981039346656037u;
    for (; *line; line++) h = (h ^ (unsigned char)*line) * 1099511628211u;
    return h;
}

static double number_after(const char *text, const char *name, double otherwise) {
    const char *at = strstr(text, name);
    return at ? strtod(at + strlen(name), NULL) : otherwise;
}

static void split_parts(test_case *c) {
    const char *from = c->line;
    for (int i = 0; i < 4; i++) {
        size_t n = strcspn(from, "|");
        const char *next = from[n] ? from + n + 1 : from + n;
        while (n > 0 && *from == ' ') from++, n--;
        while (n > 0 && from[n - 1] == ' ') n--;
        snprintf(c->part[i], LINE, "%.*s", (int)n, from);
        from = next;
    }
    c->clip_norm = number_after(c->part[3], "clip_norm=", 0);
    c->accumulate = (int)number_after(c->part[3], "accumulate=", 1);
}

typedef struct files {
    FILE *text, *golden;
} files;

static bool open_files(files *f, uint64_t *count) {
    char magic[8];
    f->text = fopen(GRADUS_GOLDEN "/caffe_optim_cases.txt", "r");
    f->golden = fopen(GRADUS_GOLDEN "/caffe_optim.bin", "rb");
    return f->text && f->golden && fread(magic, 8, 1, f->golden) == 1 &&
           memcmp(magic, "GDCAFFE1", 8) == 0 && fread(count, 8, 1, f->golden) == 1;
}

/* The next case; false at the end. */
static bool read_case(files *f, test_case *c) {
    uint64_t key;
    do {
        if (!fgets(c->line, LINE, f->text)) return false;
        c->line[strcspn(c->line, "\n")] = 0;
    } while (*c->line == 0 || *c->line == '#');
    split_parts(c);
    const bool fine = fread(&key, 8, 1, f->golden) == 1 && key == key_of(c->line) &&
                      fread(&c->expected, sizeof c->expected, 1, f->golden) == 1;
    CHECK_SAYING(fine, "caffe_optim.bin does not match '%s'; run caffe_optim_make.py", c->line);
    return fine;
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

typedef struct run {
    const test_case *c;
    gd_module *net;
    gd_tensors parameters;
    gd_optimizer *optimizer;
    gd_schedule *schedule; /* NULL: none */
    gd_tensor *x[BATCHES], *y[BATCHES];
    bool steps; /* this batch is the last of its group */
    int batch;
    trajectory *got;
} run;

static gd_schedule *make_schedule(const char *text, gd_optimizer *optimizer) {
    char name[40];
    if (!*text) return NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, " "), text);
    return gd_schedule_new(name, optimizer, text + strlen(name));
}

static void begin_run(run *r, const test_case *c, trajectory *got) {
    *r = (run){.c = c, .got = got};
    r->net =
        gd_nn_sequential(gd_nn_linear(INPUTS, HIDDEN), gd_nn_tanh(), gd_nn_linear(HIDDEN, OUTPUTS));
    gd_module_to(r->net, NULL, GD_F64);
    r->parameters = gd_module_parameters(r->net);
    char name[40];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(c->part[1], " "), c->part[1]);
    r->optimizer = gd_optimizer_new_of(name, r->net, c->part[1] + strlen(name));
    for (int i = 0; i < TENSORS; i++) {
        GD_NO_GRAD;
        gd_tensor *p = r->parameters.at[i];
        gd_assign(p, gd_mul(wave_data(gd_tensor_shape(p), i), gd_scalar_of(0.5, GD_F64)));
        gd_optimizer_set_factors(r->optimizer, p, .lr = factors[i][0],
                                 .weight_decay = factors[i][1]);
    }
    r->schedule = make_schedule(c->part[2], r->optimizer);
    for (int i = 0; i < BATCHES; i++) {
        r->x[i] = wave_data(gd_dims(BATCH, INPUTS), 10 + i);
        r->y[i] = wave_data(gd_dims(BATCH, OUTPUTS), 20 + i);
    }
}

static gd_tensors train_batch(gd_tensors in, void *user) {
    run *r = user;
    gd_tensor *loss = gd_mse_loss(gd_module_forward(r->net, in.at[0]), in.at[1]);
    if (r->c->accumulate > 1)
        loss = gd_mul(loss, gd_scalar_of(1 / (double)r->c->accumulate, GD_F64));
    gd_backward(loss);
    if (!r->steps) return gd_listed(loss);
    if (r->c->clip_norm > 0) gd_clip_grad_norm(r->parameters, r->c->clip_norm, .eps = 0);
    gd_optimizer_step(r->optimizer);
    if (r->schedule) gd_schedule_step(r->schedule);
    gd_optimizer_zero_grad(r->optimizer);
    return gd_listed(loss);
}

static void read_numbers(run *r, int step, double lr) {
    GD_SCOPE;
    double *last = r->got->last;
    for (int k = 0; k < TENSORS; k++) {
        double values[64], sum = 0;
        const int64_t n = gd_tensor_numel(r->parameters.at[k]);
        gd_copy_to(r->parameters.at[k], values, sizeof(double) * (size_t)n);
        for (int64_t i = 0; i < n; i++) sum += values[i] * cos((double)i);
        memcpy(last, values, sizeof(double) * (size_t)n), last += n;
        r->got->at[step][k] = sum;
    }
    r->got->at[step][TENSORS] = lr;
}

static gd_tensors call_batch(run *r, gd_jit *jit, gd_tensors in) {
    if (!jit) return train_batch(in, r);
    return gd_jit_call(jit, in, .key = r->steps);
}

static void train_by_hand(run *r, mode m) {
    gd_jit *jit = m == JIT ? gd_jit_new(train_batch, r, .level = 0) : NULL;
    for (int i = 0; i < STEPS * r->c->accumulate && !gd_failed(); i++) {
        GD_SCOPE;
        const double lr = gd_item(gd_optimizer_lr(r->optimizer));
        r->steps = (i + 1) % r->c->accumulate == 0;
        call_batch(r, jit, gd_list(r->x[i % BATCHES], r->y[i % BATCHES]));
        if (r->steps) read_numbers(r, i / r->c->accumulate, lr);
    }
}

/* The rate of a step is that before it. */
static gd_status after_batch(gd_event *event, void *self) {
    run *r = self;
    const int group = (int)event->step / r->c->accumulate;
    if (event->step % r->c->accumulate == 0) {
        read_numbers(r, group - 1, r->got->at[group - 1][TENSORS]);
        if (group < STEPS) r->got->at[group][TENSORS] = gd_item(gd_optimizer_lr(event->optimizer));
    }
    return GD_OK;
}

static void train_by_fit(run *r, mode m) {
    gd_tensor *x = gd_cat(((gd_tensors){r->x, BATCHES})),
              *y = gd_cat(((gd_tensors){r->y, BATCHES}));
    r->got->at[0][TENSORS] = gd_item(gd_optimizer_lr(r->optimizer));
    gd_compile(r->net, .optimizer_object = r->optimizer, .schedule_object = r->schedule,
               .loss = "mse", .clip_norm = r->c->clip_norm, .clip_eps = 0,
               .accumulate = r->c->accumulate);
    gd_fit(r->net, gd_list(x, y), .max_steps = STEPS * r->c->accumulate, .batch = BATCH,
           .shuffle = false, .jit = m == FIT, .progress = GD_PROGRESS_NONE,
           .callbacks = gd_callbacks(gd_callback_from(r, .batch_end = after_batch)));
}

static bool follow_trajectory(const test_case *c, mode m, trajectory *got) {
    GD_SCOPE;
    run r;
    begin_run(&r, c, got);
    if (m < FIT_EAGER) train_by_hand(&r, m);
    else train_by_fit(&r, m);
    CHECK_SAYING(!gd_failed(), "%s, %s: %s", c->line, mode_names[m], gd_error_message());
    const bool fine = !gd_failed();
    gd_clear_error();
    return fine;
}

static double relative_error(double got, double expected) {
    return fabs(got - expected) / fmax(1e-3, fabs(expected));
}

static void compare_trajectory(const test_case *c, mode m, const trajectory *got) {
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k <= TENSORS; k++) {
            const double off = relative_error(got->at[i][k], c->expected.at[i][k]);
            CHECK_SAYING(off <= 1e-10, "%s, %s, step %d, number %d: %.12g, not %.12g", c->line,
                         mode_names[m], i, k, got->at[i][k], c->expected.at[i][k]);
            if (!(off <= 1e-10)) return;
        }
    for (int i = 0; i < PARAMETERS; i++)
        CHECK_SAYING(relative_error(got->last[i], c->expected.last[i]) <= 1e-10,
                     "%s, %s, element %d", c->line, mode_names[m], i);
}

CLEAN_TEST(optimizers_and_schedules_follow_caffes_formulas) {
    static trajectory eager, got;
    static test_case c;
    files f;
    uint64_t count = 0, n = 0;
    CHECK(open_files(&f, &count) && count > 20);
    for (; read_case(&f, &c); n++) {
        if (!follow_trajectory(&c, EAGER, &eager)) continue;
        compare_trajectory(&c, EAGER, &eager);
        for (mode m = JIT; m < MODES; m++) {
            if (!follow_trajectory(&c, m, &got)) continue;
            compare_trajectory(&c, m, &got);
            if (m != FIT)
                CHECK_SAYING(memcmp(&eager, &got, sizeof got) == 0, "%s: %s has other bits", c.line,
                             mode_names[m]);
        }
    }
    CHECK(n == count);
    if (f.text) fclose(f.text);
    if (f.golden) fclose(f.golden);
}

TEST_MAIN
