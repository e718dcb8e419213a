/* inspect.c - gradus summary, list, ops and info: describes nets, records, ops and files. */
#include <stdlib.h>
#include <string.h>

#include "gradus/caffe.h"
#include "tool.h"

/* --- summary ---------------------------------------------------------------------------------- */

static struct { const char *input, *dummy; } s = {NULL, NULL};

static const option summary_options[] = {
    {"input", TEXT, &s.input, "SIZES",
     "shape of an input with its batch axis: 1,3,224,224 (default: the usual input of the net)"},
    {"dummy", TEXT, &s.dummy, "SHAPES",
     "shapes of the data of a net of Caffe: \"data=3,227,227 label=1000\""},
    {0}};

bool read_sizes(const char *text, gd_shape *dims) {
    *dims = gd_dims(0);
    dims->rank = 0;
    while (*text && dims->rank < 8) {
        char *end;
        const long long n = strtoll(text, &end, 10);
        if (end == text || n < 1 || (*end && *end != ',')) return false;
        dims->at[dims->rank++] = n;
        text = *end ? end + 1 : end;
    }
    return dims->rank > 0 && !*text;
}

/* The value of an option in "resnet18 channels=1", or the default. */
static int64_t model_option(const char *model, const char *name, int64_t otherwise) {
    char key[64];
    snprintf(key, sizeof key, "%s=", name);
    const char *at = strstr(model, key);
    return at ? strtoll(at + strlen(key), NULL, 10) : otherwise;
}

gd_tensor *usual_input(const char *model, const model_info *a) {
    if (a->channels) return gd_zeros(gd_dims(1, a->channels, a->height, a->width));
    if (strncmp(model, "resnet18", 8) == 0)
        return gd_zeros(gd_dims(1, model_option(model, "channels", 3), 224, 224));
    if (strncmp(model, "resnet20", 8) == 0)
        return gd_zeros(gd_dims(1, model_option(model, "channels", 3), 32, 32));
    if (strncmp(model, "gpt", 3) == 0)
        return gd_zeros(gd_dims(1, model_option(model, "context", 128)), .dtype = GD_I64);
    if (strncmp(model, "char_lstm", 9) == 0) return gd_zeros(gd_dims(1, 128), .dtype = GD_I64);
    const int64_t size = model_option(model, "size", 28);
    return gd_zeros(gd_dims(1, model_option(model, "channels", 1), size, size));
}

static int print_summary(const char *model, gd_module *net, char *text) {
    if (!text) return failed();
    if (common.json) {
        json_begin(NULL);
        json_text("model", model);
        json_integer("parameters", gd_module_parameter_count(net));
        json_text("table", text);
        json_end();
        json_line();
    } else fputs(text, stdout);
    free(text);
    return DONE;
}

/* A net of Caffe has the shapes of its inputs. */
static int summarize_caffe(const char *path) {
    enum { MOST = 64 };
    gd_tensor *inputs[MOST];
    gd_caffe_blob blob;
    int count = 0;
    if (s.input) return usage_error(&summary_command, "--input is for nets that are not of Caffe");
    gd_module *net = gd_caffe_net(path, .dummy = s.dummy);
    if (!net) return failed();
    for (; count < MOST && gd_caffe_input(net, count, &blob); count++)
        inputs[count] = gd_zeros(blob.shape);
    return print_summary(path, net, gd_module_summary_at(NULL, net, (gd_tensors){inputs, count}));
}

static int run_summary(int count, const char **words) {
    model_info a;
    if (count != 1)
        return usage_error(&summary_command, "it needs one net; there are %d arguments", count);
    if (ends_with(words[0], ".prototxt")) return summarize_caffe(words[0]);
    if (s.dummy) return usage_error(&summary_command, "--dummy is for nets of Caffe");
    gd_module *net = make_model(words[0], NULL, &a);
    if (!net) return FAILED;
    gd_shape dims;
    if (s.input && !read_sizes(s.input, &dims))
        return usage_error(&summary_command, "--input needs sizes such as 1,3,224,224; it is '%s'",
                           s.input);
    gd_tensor *x = s.input ? gd_zeros(dims) : usual_input(words[0], &a);
    const int code = print_summary(words[0], net, gd_module_summary(net, x));
    free_model_info(&a);
    return code;
}

const command summary_command = {
    .name = "summary",
    .usage = "gradus summary NET|MODEL.onnx|NET.prototxt [--input SIZES]",
    .summary = "show the layers of a net, with shapes and parameters",
    .examples =
        "  gradus summary lenet\n  gradus summary \"resnet18 classes=10\" --input 1,3,64,64\n",
    .options = summary_options,
    .run = run_summary};

/* --- records ---------------------------------------------------------------------------------- */

static const struct {
    const char *plural, *kind;
} kinds[] = {{"nets", "net"},       {"datasets", "dataset"},     {"transforms", "transform"},
             {"layers", "layer"},   {"optimizers", "optimizer"}, {"schedules", "schedule"},
             {"metrics", "metric"}, {"callbacks", "callback"},   {"inits", "init"}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const char *type_name(const gd_op_attr *a) {
    switch (a->type) {
    case GD_ATTR_INT: return "integer";
    case GD_ATTR_FLOAT: return "number";
    case GD_ATTR_BOOL: return "true or false";
    case GD_ATTR_WORD: return a->words;
    case GD_ATTR_STRING: return "text";
    case GD_ATTR_DTYPE: return "dtype";
    case GD_ATTR_NUMBER: return "number";
    default: return "list";
    }
}

static void print_first_sentence(const char *doc, int indent) {
    char text[400];
    const char *end = doc;
    while ((end = strchr(end, '.'))) { /* skips the period of "et al. 2015" */
        end++;
        if (*end == '\0' || ((*end == ' ' || *end == '\n') && end[1] >= 'A' && end[1] <= 'Z'))
            break;
    }
    snprintf(text, sizeof text, "%.*s", end ? (int)(end - doc) : (int)strlen(doc), doc);
    print_wrapped(text, indent, 80);
}

static void json_record(const gd_op *r) {
    json_begin(NULL);
    json_text("name", gd_op_name(r));
    json_text("doc", gd_op_doc(r));
    json_begin_list("options");
    for (int i = 0; i < gd_op_attr_count(r); i++) {
        const gd_op_attr *a = gd_op_attr_at(r, i);
        json_begin(NULL);
        json_text("name", a->name);
        json_text("type", type_name(a));
        json_bool("required", a->required);
        json_text("default", a->required ? NULL : a->default_text);
        json_text("doc", a->doc);
        json_end();
    }
    json_end_list();
    json_end();
}

static void print_record(const gd_op *r) {
    print_wrapped(gd_op_doc(r), 0, 80);
    for (int i = 0; i < gd_op_attr_count(r); i++) {
        const gd_op_attr *a = gd_op_attr_at(r, i);
        if (a->type == GD_ATTR_GRAPH) continue;
        char left[80];
        snprintf(left, sizeof left, "%s%s%s", a->name, a->required ? "" : "=",
                 a->required ? "" : a->default_text);
        if (strlen(left) > 22) printf("  %s\n  %-22s  ", left, "");
        else printf("  %-22s  ", left);
        char right[600];
        snprintf(right, sizeof right, "%s%s%s", type_name(a), *a->doc ? ": " : "", a->doc);
        print_wrapped(right, 26, 80);
    }
}

static int run_list(int count, const char **words) {
    if (count == 0) {
        puts("Kinds that can be listed, and the number of each:");
        for (int k = 0; k < N_KINDS; k++) {
            int n = 0;
            while (gd_record_at(kinds[k].kind, n)) n++;
            printf("  gradus list %-12s %d\n", kinds[k].plural, n);
        }
        return DONE;
    }
    const char *kind = NULL;
    for (int k = 0; k < N_KINDS; k++)
        if (strcmp(words[0], kinds[k].plural) == 0 || strcmp(words[0], kinds[k].kind) == 0)
            kind = kinds[k].kind;
    if (!kind) return usage_error(&list_command, "there is no list of %s", words[0]);
    const gd_op *one = count > 1 ? gd_record_get(kind, words[1]) : NULL;
    if (count > 1 && !one) return usage_error(&list_command, "there is no %s '%s'", kind, words[1]);
    if (common.json) json_begin_list(NULL);
    for (int i = 0; one ? i < 1 : gd_record_at(kind, i) != NULL; i++) {
        const gd_op *r = one ? one : gd_record_at(kind, i);
        if (common.json) json_record(r);
        else if (one) {
            puts(gd_op_name(r));
            print_record(r);
        } else {
            printf("%-22s  ", gd_op_name(r));
            print_first_sentence(gd_op_doc(r), 24);
        }
    }
    if (common.json) {
        json_end_list();
        json_line();
    } else if (!one) printf("\nFor the options of one: gradus list %s NAME\n", words[0]);
    return DONE;
}

const command list_command = {.name = "list",
                              .usage = "gradus list [nets|datasets|transforms|layers|... [NAME]]",
                              .summary = "list nets, datasets, optimizers ... and their options",
                              .examples = "  gradus list transforms\n  gradus list dataset csv\n",
                              .run = run_list};

/* --- ops -------------------------------------------------------------------------------------- */

static const char *device_kind(void) {
    static char kind[32];
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(common.device ? common.device : "cpu", ":"),
             common.device ? common.device : "cpu");
    return kind;
}

static void print_op(const gd_op *op) {
    char kernels[200];
    printf("%s(", gd_op_name(op));
    for (int i = 0; i < gd_op_input_count(op); i++) {
        const gd_op_param *p = gd_op_input(op, i);
        printf("%s%s%s", i ? ", " : "", p->name, p->variadic ? "..." : p->optional ? "?" : "");
    }
    fputs(") -> ", stdout);
    for (int i = 0; i < gd_op_output_count(op); i++)
        if (!gd_op_output(op, i)->hidden) printf("%s%s", i ? ", " : "", gd_op_output(op, i)->name);
    putchar('\n');
    print_record(op);
    const char *way = gd_op_runs_as(op, device_kind());
    printf("on %s: %s %s\n", device_kind(), way,
           strcmp(way, "kernel") == 0 ? gd_op_kernels(op, device_kind(), kernels, sizeof kernels)
                                      : "");
    if (*gd_op_onnx_name(op)) printf("ONNX: %s\n", gd_op_onnx_name(op));
}

static bool all_kinds;
static const option ops_options[] = {
    {"kernels", FLAG, &all_kinds, NULL,
     "show how each op runs on every kind of device, or all kernels of one op"},
    {0}};

/* There is no op of this name: names that differ in a few letters. */
static int fail_without_op(const char *name) {
    enum { MAX_NEAR = 4 };
    const char *near[MAX_NEAR];
    char text[200] = "";
    int n = 0, least = MAX_EDITS;
    for (int i = 0; i < gd_op_count(); i++) {
        const char *known = gd_op_name(gd_op_at(i));
        const int d = edit_distance(name, known, strlen(name));
        if (d > least || (gd_op_flags(gd_op_at(i)) & (GD_OP_INTERNAL | GD_OP_INPLACE))) continue;
        if (d < least) n = 0;
        least = d;
        if (n < MAX_NEAR) near[n++] = known;
    }
    for (int i = 0; i < n; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s",
                 i == 0       ? "; did you mean "
                 : i == n - 1 ? " or "
                              : ", ",
                 near[i]);
    }
    return usage_error(&ops_command, "there is no op '%s'%s%s", name, text, n ? "?" : "");
}

static int run_ops(int count, const char **words) {
    const gd_op *one = count ? gd_op_find(words[0]) : NULL;
    if (count && !one) return fail_without_op(words[0]);
    if (one && all_kinds) return list_kernels_of(one, common.device ? device_kind() : NULL);
    if (one && !common.json) {
        print_op(one);
        return DONE;
    }
    if (!one && (all_kinds || common.device)) return list_kernels(all_kinds ? NULL : device_kind());
    int total = 0;
    if (common.json) json_begin_list(NULL);
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = one ? one : gd_op_at(i);
        if (gd_op_flags(op) & (GD_OP_INTERNAL | GD_OP_INPLACE)) continue;
        total++;
        if (common.json) json_record(op);
        else {
            printf("%-24s%s ", gd_op_name(op), gd_op_differentiable(op) ? " " : "*");
            print_first_sentence(gd_op_doc(op), 26);
        }
        if (one) break;
    }
    if (common.json) {
        json_end_list();
        json_line();
    } else printf("\n%d ops. * has no gradient. For the options of one: gradus ops NAME\n", total);
    return DONE;
}

const command ops_command = {.name = "ops",
                             .usage = "gradus ops [NAME]",
                             .summary = "list ops, their options and their kernels",
                             .options = ops_options,
                             .examples = "  gradus ops conv2d\n  gradus ops --kernels\n"
                                         "  gradus ops --kernels conv2d\n"
                                         "  gradus ops --device cpu\n",
                             .any_device = true,
                             .run = run_ops};

/* --- info ------------------------------------------------------------------------------------- */

static int print_model_info(const char *path) {
    model_info a;
    gd_module *net = load_model(path, &a);
    if (!net) return failed();
    const int64_t n = gd_module_parameter_count(net);
    if (common.json) {
        json_begin(NULL);
        json_text("file", path);
        json_text("model", a.model);
        json_integer("parameters", n);
        json_text("transform", a.transform);
        json_begin_list("classes");
        for (int64_t i = 0; i < a.n_classes; i++) json_text(NULL, a.classes[i]);
        json_end_list();
        json_end();
        json_line();
    } else {
        printf("%s\n  parameters  %lld\n", path, (long long)n);
        if (*a.model) printf("  model       %s\n", a.model);
        if (*a.transform) printf("  transform   %s\n", a.transform);
        if (a.channels)
            printf("  input       images of %lld x %lld, %s\n", (long long)a.width,
                   (long long)a.height, a.channels == 1 ? "grey" : "colour");
        if (a.n_classes) printf("  classes     %lld:", (long long)a.n_classes);
        for (int64_t i = 0; i < a.n_classes && i < 12; i++)
            printf(" %s", strcmp(a.classes[i], "\n") == 0 ? "\\n" : a.classes[i]);
        if (a.n_classes) puts(a.n_classes > 12 ? " ..." : "");
    }
    free_model_info(&a);
    return DONE;
}

static int run_info(int count, const char **words) {
    if (count > 1)
        return usage_error(&info_command, "it takes one file; there are %d arguments", count);
    if (count) return print_model_info(words[0]);
    if (common.json) {
        json_begin(NULL);
        json_text("version", gd_version());
        json_integer("threads", gd_num_threads());
        json_text("device", gd_device_name(gd_default_device()));
        json_text("instruction_set", gd_cpu_instruction_set());
        json_integer("ops", gd_op_count());
        json_end();
        json_line();
        return DONE;
    }
    printf("gradus %s\n  instruction set  %s\n  threads          %d\n  devices          cpu\n  ops "
           "             %d\n",
           gd_version(), gd_cpu_instruction_set(), gd_num_threads(), gd_op_count());
    return DONE;
}

const command info_command = {.name = "info",
                              .usage = "gradus info [MODEL.onnx]",
                              .summary = "describe this build and machine, or a saved model",
                              .run = run_info};
