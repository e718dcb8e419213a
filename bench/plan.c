/* plan.c - the overhead of a session run, and training steps as eager ops and as plans. */
#include <stdio.h>

#include "bench.h"
#include "gradus/gradus.h"
#include "train.h"

/* --- the cost of a run ------------------------------------------------------------------------ */

static gd_session *session;
static gd_tensors feeds, fetches;

static void run_session(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_session_run(session, feeds, fetches);
}

enum { NODES = 100 };

static void bench_run_cost(void) {
    GD_SCOPE;
    gd_set_num_threads(1);
    gd_graph *graph = gd_graph_new();
    gd_tensor *constant, *chain;
    {
        GD_GRAPH(graph);
        constant = gd_full(gd_dims(1), 3);
        chain = gd_variable(gd_full(gd_dims(1), 1));
        for (int i = 0; i < NODES; i++) chain = i % 2 ? gd_add(chain, chain) : gd_sin(chain);
    }
    feeds = gd_nothing;
    gd_tensor *one[1];
    fetches = (gd_tensors){one, 1};
    double spread, empty;
    session = gd_session_new(graph, .level = 0);
    one[0] = constant;
    empty = bench_time(run_session, NULL, &spread);
    bench_report("run_empty_ns", empty, spread, "ns",
                 "a run that fetches one constant; target 1000");
    one[0] = chain;
    double ns = bench_time(run_session, NULL, &spread);
    bench_report("run_node_ns", (ns - empty) / NODES, spread / NODES, "ns",
                 "a node of one element, unfused; target 100");
}

/* --- training steps --------------------------------------------------------------------------- */

/* Runs the modes in turn, so that all of them see the same state of the machine. */
static void measure_training(const char *net, int threads) {
    static const char *const modes[] = {"eager", "plan", "fused", "jit", "jit_forgets"};
    enum { MODES = sizeof modes / sizeof *modes };
    GD_SCOPE;
    gd_set_num_threads(threads);
    void *trains[MODES];
    bench_rival found[MODES];
    for (int m = 0; m < MODES; m++)
        if (!(trains[m] = train_new(net, modes[m]))) return;
    bench_in_turn(train_step, trains, MODES, found);
    for (int m = 0; m < MODES; m++) {
        char row[64], note[64] = "a training step with eager ops";
        if (m > 0)
            snprintf(note, sizeof note, "%.2f times as fast as the eager step", found[m].speedup);
        snprintf(row, sizeof row, "%s_%s_ms%s", net, modes[m], threads > 1 ? "_2t" : "");
        bench_report(row, found[m].ns / 1e6, found[m].spread / 1e6, "ms", note);
    }
}

static void bench_training(void) {
    for (int threads = 1; threads <= 2; threads++) {
        measure_training("two_layer", threads);
        measure_training("mlp", threads);
    }
}

/* The overhead of modules: a step with modules compared with the same step of bare ops; reports the
 * worst. */
static void bench_module_overhead(void) {
    static const char *const nets[] = {"two_layer", "mlp"}, *const modes[] = {"eager", "jit"};
    double worst = 0, spread = 0;
    char note[96] = "";
    for (int n = 0; n < 2; n++)
        for (int m = 0; m < 2; m++) {
            GD_SCOPE;
            gd_set_num_threads(1);
            char with[32];
            snprintf(with, sizeof with, "module_%s", modes[m]);
            void *trains[2] = {train_new(nets[n], modes[m]), train_new(nets[n], with)};
            if (!trains[0] || !trains[1]) return;
            bench_rival found[2];
            bench_in_turn(train_step, trains, 2, found);
            const double overhead = 1 / found[1].speedup;
            if (overhead <= worst) continue;
            worst = overhead;
            spread = found[1].spread / found[1].ns;
            snprintf(note, sizeof note,
                     "a step with modules / with bare ops, the worst: %s, %s; target at most 1.1",
                     nets[n], modes[m]);
        }
    bench_report("module_overhead", worst, spread, "times", note);
}

const bench_entry bench_plan[] = {{"run", bench_run_cost},
                                  {"train", bench_training},
                                  {"module_overhead", bench_module_overhead},
                                  {NULL, NULL}};
