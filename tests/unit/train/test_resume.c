/* test_resume.c - a training run that continues in a new process has the same bits as an
 * uninterrupted run.
 *
 * The test runs itself again: `test_resume --resume MODE LEFT_OUT FROM TO` loads FROM, takes the
 * second half of the steps, and saves to TO.
 */
#include <unistd.h>

#include "child.h"
#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"
#include "temp.h"

enum { STEPS = 100, SAVED = 50, BATCH = 16, INPUTS = 8, CLASSES = 4 };

typedef enum run_mode { EAGER, JIT, SESSION, RUN_MODES } run_mode;
static const char *const mode_names[] = {"eager", "jit", "session"};

typedef struct training_run {
    gd_module *net;
    gd_optimizer *adam;
    gd_schedule *cosine;
    gd_jit *jit;
    gd_session *session;
    gd_tensor *x, *y, *loss, *train; /* of the session's graph */
    gd_tensor *losses;               /* of the second half */
} training_run;

static gd_tensors train_step(gd_tensors in, void *user) {
    training_run *r = user;
    gd_tensor *loss = gd_cross_entropy(gd_module_forward(r->net, in.at[0]), in.at[1]);
    gd_optimizer_zero_grad(r->adam);
    gd_backward(loss);
    gd_optimizer_step(r->adam);
    gd_schedule_step(r->cosine);
    return gd_listed(loss);
}

static void make_session(training_run *r) {
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    r->x = gd_placeholder(gd_dims(BATCH, INPUTS));
    r->y = gd_placeholder(gd_dims(BATCH), .dtype = GD_I64);
    r->loss = gd_cross_entropy(gd_module_forward(r->net, r->x), r->y);
    r->train = gd_minimize(r->adam, r->loss, .schedule = r->cosine);
    r->session = gd_session_new(graph, .level = 0);
}

static void make_run(training_run *r, run_mode mode, uint64_t seed) {
    gd_seed(seed);
    *r = (training_run){.losses = gd_zeros(gd_dims(STEPS - SAVED))};
    r->net = gd_nn_sequential(gd_nn_linear(INPUTS, 32), gd_nn_batch_norm1d(32), gd_nn_relu(),
                              gd_nn_dropout(.p = 0.3), gd_nn_linear(32, CLASSES));
    r->adam = gd_optim_adam(gd_module_parameters(r->net), .lr = 1e-2);
    r->cosine = gd_lr_cosine(r->adam, 80, .warmup = 10);
    if (mode == JIT) r->jit = gd_jit_new(train_step, r, .level = 0);
    if (mode == SESSION) make_session(r);
}

/* Batches and dropout draw from the same generator. */
static void take_steps(training_run *r, int from, int to) {
    for (int i = from; i < to && !gd_failed(); i++) {
        GD_SCOPE;
        gd_tensor *x = gd_randn(gd_dims(BATCH, INPUTS));
        gd_tensor *y = gd_randint(gd_dims(BATCH), 0, CLASSES), *loss;
        if (r->session)
            loss = gd_session_run(r->session, gd_feed(r->x, x, r->y, y), gd_list(r->loss, r->train))
                       .at[0];
        else
            loss =
                (r->jit ? gd_jit_call(r->jit, gd_list(x, y)) : train_step(gd_list(x, y), r)).at[0];
        if (i >= SAVED) ((float *)gd_data(r->losses))[i - SAVED] = (float)gd_item(loss);
    }
}

/* Returns all parts except `left_out`. */
static gd_state_parts parts_of(const training_run *r, const char *left_out,
                               gd_state_part parts[6]) {
    const gd_state_part all[] = {gd_part("net", r->net),         gd_part("adam", r->adam),
                                 gd_part("cosine", r->cosine),   gd_part("rng", gd_generator()),
                                 gd_part("session", r->session), gd_part("losses", r->losses)};
    int64_t count = 0;
    for (int i = 0; i < 6; i++)
        if (all[i].object && strcmp(all[i].name, left_out) != 0) parts[count++] = all[i];
    return (gd_state_parts){parts, count};
}

static gd_status save_run(const training_run *r, const char *path) {
    gd_state_part parts[6];
    return gd_save_state_with(path, parts_of(r, "", parts));
}

/* --- the new process -------------------------------------------------------------------------- */

static int resume_run(char **args) {
    GD_SCOPE;
    training_run r;
    gd_state_part parts[6];
    const run_mode mode = (run_mode)atoi(args[0]);
    make_run(&r, mode, 99); /* other weights and another generator state */
    /* a graph keeps the random numbers of the seed that it was built with */
    if (mode == SESSION) make_run(&r, SESSION, 1);
    gd_load_state_with(args[2], parts_of(&r, args[1], parts));
    take_steps(&r, SAVED, STEPS);
    save_run(&r, args[3]);
    if (gd_failed()) fprintf(stderr, "%s\n", gd_error_message());
    return gd_failed();
}

static int run_resume(void *args) {
    const char *const *a = args;
    execl("/proc/self/exe", "test_resume", "--resume", a[0], a[1], a[2], a[3], (char *)NULL);
    return 127;
}

static int resume_in_child(run_mode mode, const char *left_out, const char *from, const char *to) {
    char number[8];
    snprintf(number, sizeof number, "%d", mode);
    const char *const args[] = {number, left_out, from, to};
    return child_run(run_resume, (void *)args);
}

/* --- the tests -------------------------------------------------------------------------------- */

/* Returns the name of the first tensor or value that differs, or NULL. */
static const char *first_difference(const char *a_path, const char *b_path) {
    gd_state *a = gd_read_state(a_path), *b = gd_read_state(b_path);
    if (!a || !b || gd_state_count(a) != gd_state_count(b)) return "the number of tensors";
    for (int64_t i = 0; i < gd_state_count(a); i++) {
        gd_tensor *t = gd_state_tensor_at(a, i), *u = gd_state_find(b, gd_state_name(a, i));
        if (!u || !tensors_same_bits(t, u)) return gd_state_name(a, i);
    }
    for (int64_t i = 0; i < gd_state_value_count(a); i++) {
        const char *name = gd_state_value_name(a, i), *v = gd_state_value(b, name);
        if (!v || strcmp(gd_state_value(a, name), v) != 0) return name;
    }
    return NULL;
}

static void check_resumed(run_mode mode) {
    GD_SCOPE;
    const char *saved = temp_path("saved.safetensors"), *entire = temp_path("entire.safetensors"),
               *resumed = temp_path("resumed.safetensors");
    training_run r;
    make_run(&r, mode, 1);
    take_steps(&r, 0, STEPS);
    CHECK_SAYING(save_run(&r, entire) == GD_OK, "%s", gd_error_message());
    make_run(&r, mode, 1);
    take_steps(&r, 0, SAVED);
    CHECK_SAYING(save_run(&r, saved) == GD_OK, "%s", gd_error_message());
    CHECK(first_difference(entire, saved) != NULL);

    CHECK(resume_in_child(mode, "", saved, resumed) == 0);
    const char *other = first_difference(entire, resumed);
    CHECK_SAYING(!other, "%s: %s differs", mode_names[mode], other);
    /* Each part is necessary. (Adam's state uses the names of the net, so it is not loaded
     * alone.) */
    static const char *const parts[] = {"adam", "cosine", "rng", "session"};
    for (int i = 0; i < (mode == SESSION ? 4 : 3); i++) {
        CHECK(resume_in_child(mode, parts[i], saved, resumed) == 0);
        CHECK_SAYING(first_difference(entire, resumed), "%s without %s: the same", mode_names[mode],
                     parts[i]);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}
CLEAN_TEST(an_eager_run_continues_in_a_new_process) { check_resumed(EAGER); }
CLEAN_TEST(a_traced_run_continues_in_a_new_process) { check_resumed(JIT); }
CLEAN_TEST(a_session_run_continues_in_a_new_process) { check_resumed(SESSION); }

int main(int argc, char **argv) {
    if (argc == 6 && strcmp(argv[1], "--resume") == 0) return resume_run(argv + 2);
    return test_run_all(argc, argv);
}
