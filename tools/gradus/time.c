/* time.c - gradus time: how long each layer of a net takes, forward and backward. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gradus/caffe.h"
#include "tool.h"

static struct {
    const char *model, *weights, *input, *phase, *stage, *dummy;
    int64_t iterations, level;
} o = {.iterations = 20, .phase = "TRAIN"};

static const option options[] = {
    {"model", TEXT, &o.model, "NET",
     "a net of Caffe (net.prototxt), a saved model.onnx, or a net of the zoo (\"resnet18\")"},
    {"weights", TEXT, &o.weights, "FILE", "weights of a net of Caffe: .caffemodel"},
    {"iterations", INTEGER, &o.iterations, "N", "in [1, 1000000]: how often (default 20)"},
    {"input", TEXT, &o.input, "SIZES",
     "shape of the input with its batch axis: 1,3,224,224 (default: that of the net)"},
    {"phase", TEXT, &o.phase, "TRAIN|TEST", "layers of a net of Caffe (default TRAIN)"},
    {"level", INTEGER, &o.level, "N", "level of a net of Caffe (default 0)"},
    {"stage", TEXT, &o.stage, "NAMES", "stages of a net of Caffe, with commas between them"},
    {"dummy", TEXT, &o.dummy, "SHAPES",
     "random data in place of data layers: \"data=3,227,227 label=1000\""},
    {0}};

/* --- measuring -------------------------------------------------------------------------------- */

enum { MAX_OUTPUTS = 16 };

typedef struct row {
    const char *name, *type;
    double macs;
    double *forward, *backward; /* seconds of each iteration */
    double began;
} row;

typedef struct times {
    row *rows;
    int count;
    int64_t iteration;
    gd_device *device;
    int open;      /* the layer whose backward pass runs; -1: none */
    double since;  /* when it began */
    bool counting; /* the first call of all, for the multiply-adds */
} times;

/* One layer, for its hooks. */
typedef struct layer_time {
    times *t;
    int row;
} layer_time;

static double now(gd_device *device) {
    struct timespec t;
    gd_synchronize(device);
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static gd_tensors before_forward(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    layer_time *l = user;
    row *r = &l->t->rows[l->row];
    (void)out;
    if (l->t->counting) r->macs = gd_module_macs_at(NULL, m, in);
    r->began = now(l->t->device);
    return (gd_tensors){NULL, 0};
}

/* The backward pass of a layer runs from when the gradient of its output is there until that of another
 * layer's is. */
static void close_backward(times *t) {
    const double time = now(t->device);
    if (t->open >= 0) t->rows[t->open].backward[t->iteration] += time - t->since;
    t->since = time;
    t->open = -1;
}

static gd_tensor *at_gradient(gd_tensor *gradient, void *user) {
    layer_time *l = user;
    close_backward(l->t);
    l->t->open = l->row;
    return gradient;
}

static gd_tensors after_forward(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    layer_time *l = user;
    row *r = &l->t->rows[l->row];
    (void)m, (void)in;
    r->forward[l->t->iteration] += now(l->t->device) - r->began;
    for (int64_t i = 0; i < out.count; i++)
        if (out.at[i] && gd_tensor_requires_grad(out.at[i]))
            gd_tensor_hook(out.at[i], at_gradient, l);
    return (gd_tensors){NULL, 0};
}

/* The sum of all outputs that have a gradient; NULL: none has. */
static gd_tensor *sum_of(gd_tensors out) {
    gd_tensor *sum = NULL;
    for (int64_t i = 0; i < out.count; i++) {
        if (!gd_tensor_requires_grad(out.at[i])) continue;
        gd_tensor *part = gd_sum(out.at[i]);
        sum = sum ? gd_add(sum, part) : part;
    }
    return sum;
}

static void run_once(gd_module *net, gd_tensors in, times *t) {
    GD_SCOPE;
    gd_tensor *sum = sum_of(gd_module_call(net, in));
    t->open = -1;
    if (sum && !gd_failed()) gd_backward(sum);
    if (t->open >= 0) close_backward(t);
    gd_module_zero_grad(net);
}

/* --- the whole as a plan ---------------------------------------------------------------------- */

typedef struct whole {
    gd_module *net;
    bool backward;
} whole;

static gd_tensors run_plan(gd_tensors in, void *user) {
    const whole *w = user;
    if (w->backward) gd_module_zero_grad(w->net);
    gd_tensors out = gd_module_call(w->net, in);
    if (!w->backward) return out;
    gd_tensor *sum = sum_of(out);
    if (!sum) return out;
    gd_backward(sum);
    return gd_listed(sum);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *values, int64_t count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

/* The median time of a call as a plan; NaN: the net cannot be one. */
static double plan_time(gd_module *net, gd_tensors in, gd_device *device, bool backward,
                        double *seconds) {
    GD_SCOPE;
    whole w = {net, backward};
    gd_jit *jit = gd_jit_new(run_plan, &w);
    for (int64_t i = -2; i < o.iterations && !gd_failed(); i++) {
        GD_SCOPE;
        const double began = now(device);
        gd_jit_call(jit, in);
        if (i >= 0) seconds[i] = now(device) - began;
    }
    if (!gd_failed()) return median(seconds, o.iterations);
    note("the net cannot run as a plan: %s", gd_error_message());
    gd_clear_error();
    return NAN;
}

/* --- the net and its input -------------------------------------------------------------------- */

static int add_inputs(gd_module *net, gd_tensor *in[MAX_OUTPUTS], int64_t *count) {
    gd_caffe_blob blob;
    for (*count = 0; *count < MAX_OUTPUTS && gd_caffe_input(net, (int)*count, &blob); ++*count)
        in[*count] = blob.shape.rank > 1 ? gd_randn(blob.shape) : gd_zeros(blob.shape);
    return gd_failed() ? failed() : DONE;
}

static gd_module *open_caffe(void) {
    char stages[400];
    return gd_caffe_net(o.model, .weights = o.weights, .train = strcmp(o.phase, "TRAIN") == 0,
                        .level = (int)o.level,
                        .stages = stage_names(o.stage, stages, sizeof stages), .dummy = o.dummy);
}

static int open_net(gd_module **net, gd_tensor *in[MAX_OUTPUTS], int64_t *count) {
    model_info a;
    gd_shape dims;
    if (ends_with(o.model, ".prototxt")) {
        if (o.input) return usage_error(&time_command, "--input is for nets that are not of Caffe");
        *net = open_caffe();
        return *net ? add_inputs(*net, in, count) : failed();
    }
    *net = make_model(o.model, NULL, &a);
    if (!*net) return FAILED;
    if (o.input && !read_sizes(o.input, &dims))
        return usage_error(&time_command, "--input needs sizes such as 1,3,224,224; it is '%s'",
                           o.input);
    in[0] = o.input ? gd_randn(dims) : usual_input(o.model, &a);
    *count = 1;
    free_model_info(&a);
    return gd_failed() || gd_module_build_at(NULL, *net, (gd_tensors){in, 1}) != GD_OK ? failed()
                                                                                       : DONE;
}

static bool add_rows(gd_module *net, times *t, layer_time *layers) {
    gd_module_part part;
    for (int i = 0; gd_module_part_at(net, i, &part); i++) {
        if (part.kind != GD_PART_CHILD || !part.object) continue;
        row *r = &t->rows[t->count];
        r->name = part.name;
        r->type = gd_module_type(part.object);
        r->forward = calloc((size_t)o.iterations, sizeof(double));
        r->backward = calloc((size_t)o.iterations, sizeof(double));
        if (!r->forward || !r->backward) return false;
        layers[t->count] = (layer_time){t, t->count};
        gd_module_on_forward(part.object, before_forward, &layers[t->count], .before = true);
        gd_module_on_forward(part.object, after_forward, &layers[t->count]);
        t->count++;
    }
    return true;
}

/* --- output ----------------------------------------------------------------------------------- */

static void print_row(const char *name, const char *type, double forward, double backward,
                      double macs) {
    if (common.json) {
        json_begin(NULL);
        json_text("name", name);
        json_text("type", type);
        json_number("forward_ms", 1e3 * forward);
        json_number("backward_ms", 1e3 * backward);
        json_number("multiply_adds", macs);
        json_end();
        return;
    }
    char millions[40] = "";
    if (macs > 0) snprintf(millions, sizeof millions, "%.3f", macs / 1e6);
    print_safely(stdout, name);
    const int used = (int)strlen(name);
    printf("%*s  %-18s %10.3f %10.3f %14s\n", used < 28 ? 28 - used : 0, "", type, 1e3 * forward,
           1e3 * backward, millions);
}

static void print_results(const times *t, double macs, double plan_forward, double plan_step) {
    double forward = 0, backward = 0;
    if (common.json) {
        json_begin(NULL);
        json_text("model", o.model);
        json_integer("iterations", o.iterations);
        json_begin_list("layers");
    } else
        printf("%-28s  %-18s %10s %10s %14s\n", "layer", "type", "forward ms", "backward",
               "million madds");
    for (int i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        const double f = median(r->forward, o.iterations), b = median(r->backward, o.iterations);
        print_row(r->name, r->type, f, b, r->macs);
        forward += f, backward += b;
    }
    if (common.json) {
        json_end_list();
        json_number("forward_ms", 1e3 * forward);
        json_number("backward_ms", 1e3 * backward);
        json_number("multiply_adds", macs);
        json_number("plan_forward_ms", 1e3 * plan_forward);
        json_number("plan_ms", 1e3 * plan_step);
        json_end();
        json_line();
        return;
    }
    print_row("all layers", "", forward, backward, macs);
    if (isnan(plan_step)) return;
    printf("\nThe whole as a plan: forward %.3f ms, forward and backward %.3f ms.\n",
           1e3 * plan_forward, 1e3 * plan_step);
    printf("Medians of %lld iterations on %s.\n", (long long)o.iterations,
           gd_device_name(gd_default_device()));
}

static int measure(gd_module *net, gd_tensors in) {
    gd_device *device = gd_default_device();
    times t = {.device = device, .counting = true};
    const double macs = gd_module_macs_at(NULL, net, in);
    double *seconds = calloc((size_t)o.iterations, sizeof *seconds);
    const double plan_forward = seconds ? plan_time(net, in, device, false, seconds) : NAN,
                 plan_step = seconds && gd_module_parameter_count(net) > 0
                                 ? plan_time(net, in, device, true, seconds)
                                 : plan_forward;
    const size_t count = (size_t)gd_module_count(net);
    layer_time *layers = calloc(count + 1, sizeof *layers);
    t.rows = calloc(count + 1, sizeof *t.rows);
    bool good = seconds && layers && t.rows && add_rows(net, &t, layers);
    for (int64_t i = -1; i < o.iterations && good && !gd_failed(); i++) {
        t.iteration = i < 0 ? 0 : i;
        run_once(net, in, &t);
        t.counting = false;
        for (int k = 0; i < 0 && k < t.count; k++) t.rows[k].forward[0] = t.rows[k].backward[0] = 0;
    }
    const int code = gd_failed() ? failed() : good ? DONE : fail("no memory");
    if (code == DONE) print_results(&t, macs, plan_forward, plan_step);
    for (int i = 0; i < t.count; i++) free(t.rows[i].forward), free(t.rows[i].backward);
    free(t.rows);
    free(layers);
    free(seconds);
    return code;
}

static int run_time(int count, const char **words) {
    gd_module *net;
    gd_tensor *in[MAX_OUTPUTS];
    int64_t n = 0;
    if (count == 1 && !o.model) o.model = words[0], count = 0;
    if (count) return usage_error(&time_command, "unexpected argument '%s'", words[0]);
    if (!o.model)
        return usage_error(&time_command, "--model is missing; for example --model net.prototxt");
    if (strcmp(o.phase, "TRAIN") && strcmp(o.phase, "TEST"))
        return usage_error(&time_command, "--phase must be TRAIN or TEST");
    const int code = open_net(&net, in, &n);
    return code != DONE ? code : measure(net, (gd_tensors){in, n});
}

const command time_command = {
    .name = "time",
    .usage = "gradus time --model NET [--iterations N] [options]",
    .summary = "measure each layer of a net",
    .about = "Prints the time of each layer, forward and backward, one after the other, and its\n"
             "multiply-adds; then the time of the whole net as one plan, which is how it trains.\n",
    .examples = "  gradus time --model train_val.prototxt --dummy \"data=3,227,227 label=1000\"\n"
                "  gradus time --model deploy.prototxt --phase TEST --device cuda\n"
                "  gradus time resnet18 --input 8,3,224,224\n",
    .options = options,
    .run = run_time};
