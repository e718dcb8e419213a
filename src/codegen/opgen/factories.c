/* factories.c - layers, optimizers and so on: writes a header and a page for each kind, and
 * factory_calls.c. */
#include <stdlib.h>
#include <string.h>

#include "codegen/opgen/opgen.h"
#include "core/ascii.h"

/* A kind of record. gd_KIND_make(site, factory, [subject,] options) creates its objects. */
typedef struct factory_kind {
    const char *word;           /* its blocks begin with it */
    const char *prefix;         /* of constructors: gd_PREFIX_NAME; "": gd_NAME */
    const char *returns;        /* return type of constructors */
    const char *type, *subject; /* type and name of their first argument; NULL: none */
    const char *file;           /* gradus/FILE.h, FILE.md */
    const char *inside;         /* the library's header with gd_KIND_rules and gd_KIND_make */
    const char *includes;       /* a header that its public header includes */
    const char *title, *about;  /* for the header and the page */
    const char *rules[GD_RECORD_WORDS]; /* functions NAME_RULE of the source */
} factory_kind;

static const factory_kind kinds[] = {
    {"layer",
     "nn",
     "gd_module *",
     NULL,
     NULL,
     "layers",
     "nn/layer.h",
     "gradus/module.h",
     "Layers",
     "Every layer, as the constructor of a module (module.h). Names, meanings and initial weights "
     "are PyTorch's. A layer is called with its inputs in the order given here: "
     "gd_module_forward(attention, query, NULL, NULL, padding). An optional one that is left out "
     "is "
     "NULL, or nothing if no other follows.",
     {"check", "build", "forward"}},
    {"init",
     "init",
     "gd_tensor *",
     "gd_shape",
     "dims",
     "inits",
     "nn/initializer.h",
     "gradus/tensor.h",
     "Initializers",
     "Initial values of weights. `dims` is the shape of a weight as gd_linear and gd_conv2d take "
     "it: "
     "(outputs, inputs, kernel size...). Returns a tensor, or a symbol if a graph is being built.",
     {"check", "make"}},
    {"optimizer",
     "optim",
     "gd_optimizer *",
     "gd_tensors",
     "parameters",
     "optimizers",
     "optim/optimizer.h",
     "gradus/tensor.h",
     "Optimizers",
     "Every optimizer, as its constructors (optim.h): for a list of parameters, and with _of for a "
     "module, whose later parameters it takes in. Formulas are PyTorch's.",
     {"check", "slots", "update"}},
    {"schedule",
     "lr",
     "gd_schedule *",
     "gd_optimizer *",
     "optimizer",
     "schedules",
     "optim/schedule.h",
     "gradus/tensor.h",
     "Schedules",
     "How learning rates change from step to step (schedule.h).",
     {"check", "rate"}},
    {"net",
     "zoo",
     "gd_module *",
     NULL,
     NULL,
     "zoo",
     "zoo/zoo.h",
     "gradus/module.h",
     "Networks",
     "Ready architectures. Parameters have the names and shapes of the well-known implementations, "
     "so "
     "that their files can be loaded.",
     {"check", "make"}},
    {"dataset",
     "dataset",
     "gd_dataset *",
     NULL,
     NULL,
     "datasets",
     "data/dataset.h",
     "gradus/dataset.h",
     "Datasets",
     "Every dataset that reads files or generates samples, as its constructor (dataset.h).",
     {"check", "open", "get", "name", "close", "gather", "layout"}},
    {"transform",
     "transform",
     "gd_transform *",
     NULL,
     NULL,
     "transforms",
     "data/transform.h",
     "gradus/dataset.h",
     "Transforms",
     "Transforms of a tensor of a sample (dataset.h). Images are (C, H, W), u8 or float.",
     {"check", "apply"}},
    {"metric",
     "metric",
     "gd_metric *",
     NULL,
     NULL,
     "metrics",
     "train/metric.h",
     "gradus/metric.h",
     "Metrics",
     "Metrics over many batches (metric.h).",
     {"check", "update", "value"}},
    {"callback",
     "",
     "gd_callback *",
     NULL,
     NULL,
     "callbacks",
     "train/callback.h",
     "gradus/callback.h",
     "Callbacks",
     "Callbacks of gd_fit (callback.h).",
     {"check", "open", "on", "after", "save", "load", "close"}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, MAX_FACTORIES = 1000 };

typedef struct factory {
    gd_record record;
    const factory_kind *kind;
    source *source;
    int line, variant; /* N of a record such as conv{1,2,3}d; 0: no variants */
    char rules[64];    /* its rules begin with this: its name, or that of all variants */
    char full[80];     /* "nn_linear" */
} factory;
static factory *factories[MAX_FACTORIES];
static int n_factories;

void print_factory_words(void) {
    for (int k = 0; k < N_KINDS; k++) {
        printf("/*%s\n", kinds[k].word);
        for (const char *const *rule = kinds[k].rules; *rule; rule++) puts(*rule);
    }
}

void print_factory_counts(FILE *out) {
    for (int k = 0; k < N_KINDS; k++) {
        int count = 0;
        for (int i = 0; i < n_factories; i++) count += factories[i]->kind == &kinds[k];
        fprintf(out, "%s %d\n", kinds[k].file, count);
    }
}

bool is_factory_block(const char *at) {
    for (int k = 0; k < N_KINDS; k++) {
        size_t n = strlen(kinds[k].word);
        if (strncmp(at, kinds[k].word, n) == 0 && at[n] == ' ') return true;
    }
    return false;
}

void add_factory(source *s, const char *word, char *text, const char *rules, int variant,
                 int line) {
    factory *m = calloc(1, sizeof *m);
    size_t n = strcspn(word, " ");
    for (int k = 0; k < N_KINDS; k++)
        if (strlen(kinds[k].word) == n && strncmp(word, kinds[k].word, n) == 0) m->kind = &kinds[k];
    m->source = s;
    m->line = line;
    m->variant = variant;
    snprintf(m->rules, sizeof m->rules, "%s", rules);
    if (!gd_record_parse_factory(&m->record, text))
        die(s->path, line + m->record.error_line - 1, "%s", m->record.error);
    snprintf(m->full, sizeof m->full, "%s%s%s", m->kind->prefix, *m->kind->prefix ? "_" : "",
             m->record.name);
    for (int i = 0; i < n_factories; i++)
        if (strcmp(factories[i]->full, m->full) == 0)
            die(s->path, line, "%s '%s' is defined in %s too", m->kind->word, m->record.name,
                factories[i]->source->path);
    if (n_factories == MAX_FACTORIES) die(s->path, line, "too many records");
    s->has_factories = true;
    factories[n_factories++] = m;
}

static const gd_record *find_op(const char *name) {
    for (int i = 0; i < n_ops; i++)
        if (strcmp(ops[i]->record.name, name) == 0) return &ops[i]->record;
    return NULL;
}

/* Adds the options of ops to factories, after all ops were read. */
void resolve_factories(void) {
    for (int i = 0; i < n_factories; i++) {
        factory *m = factories[i];
        gd_record *r = &m->record;
        if (r->of && !find_op(r->of)) die(m->source->path, m->line, "there is no op '%s'", r->of);
        if (!r->options_of) continue;
        const gd_record *from = find_op(r->options_of);
        if (!from) die(m->source->path, m->line, "there is no op '%s'", r->options_of);
        if (!gd_record_add_options(r, from->attrs, from->n_attrs))
            die(m->source->path, m->line, "%s", r->error);
    }
}

void each_factory_attr(void (*look)(const gd_op_attr *attr, const char *path, int line)) {
    for (int i = 0; i < n_factories; i++)
        for (int k = 0; k < factories[i]->record.n_attrs; k++)
            look(&factories[i]->record.attrs[k], factories[i]->source->path, factories[i]->line);
}

/* --- the header of a kind --------------------------------------------------------------------- */

/* "Inputs: `query`, `key` (optional). Outputs: `y`, `weights`." `quote` is "`", or "" in C. */
static void print_params_line(FILE *out, const gd_record *r, const char *quote) {
    fprintf(out, r->n_inputs == 1 ? "Input: " : "Inputs: ");
    for (int i = 0; i < r->n_inputs; i++)
        fprintf(out, "%s%s%s%s%s%s", i ? ", " : "", quote, r->inputs[i].name, quote,
                r->inputs[i].variadic ? ", any number" : "",
                r->inputs[i].optional ? " (optional)" : "");
    fprintf(out, r->n_outputs == 1 ? ". Output: " : ". Outputs: ");
    for (int i = 0; i < r->n_outputs; i++)
        fprintf(out, "%s%s%s%s%s", i ? ", " : "", quote, r->outputs[i].name, quote,
                r->outputs[i].optional ? " (optional)" : "");
    fputs(".", out);
}

static bool has_groups(const factory_kind *k) { return strcmp(k->word, "optimizer") == 0; }

/* An optimizer has a second constructor, gd_optim_NAME_of, for the parameters of a module. */
static int constructor_count(const factory_kind *k) { return has_groups(k) ? 2 : 1; }
static const char *suffix_of(int constructor) { return constructor ? "_of" : ""; }
static const char *type_of(const factory_kind *k, int constructor) {
    return constructor ? "gd_module *" : k->type;
}
static const char *subject_of(const factory_kind *k, int constructor) {
    return constructor ? "module" : k->subject;
}

/* gd_optim_adam(parameters) */
static void print_call(FILE *out, const factory *m, int constructor) {
    const gd_record *r = &m->record;
    const char *subject = subject_of(m->kind, constructor);
    fprintf(out, "gd_%s%s(%s", m->full, suffix_of(constructor), subject ? subject : "");
    int n = subject != NULL;
    for (int i = 0; i < r->n_attrs; i++)
        if (r->attrs[i].required) fprintf(out, "%s%s", n++ ? ", " : "", r->attrs[i].name);
    fputc(')', out);
}

static void print_factory_comment(FILE *out, const factory *m) {
    const gd_record *r = &m->record;
    for (int i = 0; i < constructor_count(m->kind); i++) {
        fputs(i ? ", " : "/* ", out);
        print_call(out, m, i);
    }
    fputs("\n * ", out);
    for (const char *c = r->doc; *c; c++) {
        fputc(*c, out);
        if (*c == '\n') fputs(" * ", out);
    }
    if (r->n_inputs) {
        fputs("\n * ", out);
        print_params_line(out, r, "");
    }
    for (int i = 0, first = 1; i < r->n_attrs; i++) {
        const gd_op_attr *a = &r->attrs[i];
        if (a->required) continue;
        if (first) fputs("\n * Options:", out);
        first = 0;
        fprintf(out, "\n *   .%s = ", a->name);
        if (a->words) {
            print_default(out, a, IN_MACRO);
            fputs(" (one of ", out);
            print_constants(out, a->words, "");
            fputc(')', out);
        } else fputs(a->default_text, out);
        if (*a->doc) fprintf(out, "   %s", a->doc);
    }
    fputs(" */\n", out);
}

static void print_struct(FILE *out, const factory *m) {
    const gd_record *r = &m->record;
    if (r->n_attrs == 0) return;
    fprintf(out, "typedef struct gd_%s_options {\n", m->full);
    fputs(BY_NAME, out);
    for (int i = 0; i < r->n_attrs; i++) {
        const char *type = attr_c_type(&r->attrs[i]);
        fprintf(out, "    %s%s%s GD_DEFAULT_(", type, strchr(type, '*') ? "" : " ",
                r->attrs[i].name);
        print_default(out, &r->attrs[i], IN_CPLUSPLUS);
        fputs(");\n", out);
    }
    fprintf(out, "} GD_GIVEN_BY_NAME_ gd_%s_options;\nGD_API gd_%s_options gd_%s_defaults(void);\n",
            m->full, m->full, m->full);
}

static void print_factory_prototype(FILE *out, const factory *m, int constructor) {
    const char *type = type_of(m->kind, constructor);
    fprintf(out, "%sgd_%s%s_at(const char *site", m->kind->returns, m->full,
            suffix_of(constructor));
    if (type)
        fprintf(out, ", %s%s%s", type, strchr(type, '*') ? "" : " ",
                subject_of(m->kind, constructor));
    if (m->record.n_attrs) fprintf(out, ", const gd_%s_options *options", m->full);
    fputc(')', out);
}

/* The macro's arguments end with an underscore, because the struct's fields have the same names. */
static void print_factory_macro(FILE *out, const factory *m, int constructor) {
    const gd_record *r = &m->record;
    const char *subject = subject_of(m->kind, constructor), *suffix = suffix_of(constructor);
    int n = subject != NULL, options = 0, first = 1;
    fprintf(out, "#define gd_%s%s(%s", m->full, suffix, subject ? subject : "");
    for (int i = 0; i < r->n_attrs; i++) {
        if (r->attrs[i].required) fprintf(out, "%s%s_", n++ ? ", " : "", r->attrs[i].name);
        options += !r->attrs[i].required;
    }
    fprintf(out, "%s) \\\n    GD_WITH_OPTIONS_(gd_%s%s_at(GD_HERE",
            !options ? ""
            : n      ? ", ..."
                     : "...",
            m->full, suffix);
    if (subject) fprintf(out, ", %s", subject);
    const bool required = n > (subject != NULL);
    if (r->n_attrs) {
        fprintf(out, ", %s(gd_%s_options, (", required ? "GD_MADE_WITH_" : "GD_OPTIONS_", m->full);
        for (int i = 0; i < r->n_attrs; i++) {
            fprintf(out, "%s.%s = ", i ? ", " : "", r->attrs[i].name);
            print_default(out, &r->attrs[i], IN_MACRO);
        }
        if (required) fputs("), (", out);
        for (int i = 0; i < r->n_attrs; i++)
            if (r->attrs[i].required) {
                fprintf(out, "%s.%s = (%s_)", first ? "" : ", ", r->attrs[i].name,
                        r->attrs[i].name);
                first = 0;
            }
        if (required) fputs("), (", out);
        first = 1;
        for (int i = 0; i < r->n_attrs; i++)
            if (r->attrs[i].required) {
                fprintf(out, "%s%s_", first ? "" : ", ", r->attrs[i].name);
                first = 0;
            }
        fprintf(out, ")%s)", options ? ", __VA_ARGS__" : ", ");
    }
    fputs("))\n\n", out);
}

/* --- groups of an optimizer ------------------------------------------------------------------- */

/* The options of a group of parameters: those of all optimizers, each once, with no defaults.
 * Options of the same name have the same type; bools are integers, so that "not given" is a
 * value. */
static factory *group_factory(void) {
    static factory all = {.full = "group", .record = {.name = "group", .doc = ""}};
    gd_record *r = &all.record;
    static bool collected;
    for (int i = 0; i < n_factories && !collected; i++)
        for (int k = 0; has_groups(factories[i]->kind) && k < factories[i]->record.n_attrs; k++) {
            gd_op_attr a = factories[i]->record.attrs[k];
            if (a.type != GD_ATTR_FLOAT && a.type != GD_ATTR_BOOL)
                die(factories[i]->source->path, factories[i]->line,
                    "option '%s' of an optimizer is neither float nor bool", a.name);
            if (a.type == GD_ATTR_BOOL) a.type = GD_ATTR_INT;
            a.default_text = "none";
            a.required = false;
            const gd_op_attr *known = NULL;
            for (int j = 0; j < r->n_attrs; j++)
                if (strcmp(r->attrs[j].name, a.name) == 0) known = &r->attrs[j];
            if (known && known->type != a.type)
                die(factories[i]->source->path, factories[i]->line,
                    "option '%s' has another type in another optimizer", a.name);
            if (!known && r->n_attrs == GD_RECORD_MAX)
                die(factories[i]->source->path, factories[i]->line, "too many options in all");
            if (!known) r->attrs[r->n_attrs++] = a;
        }
    collected = true;
    return &all;
}

static void print_group(FILE *out) {
    const factory *g = group_factory();
    fputs(
        "/* Adds parameters to an optimizer as a group with its own options. Options that are not\n"
        " * given are those of the first group. Fails for an option that the optimizer lacks. */\n",
        out);
    print_struct(out, g);
    fputs("GD_API gd_status gd_optimizer_add_at(const char *site, gd_optimizer *optimizer, "
          "gd_tensors parameters,\n"
          "                                     const gd_group_options *options);\n"
          "#define gd_optimizer_add(optimizer, parameters, ...) \\\n"
          "    GD_WITH_OPTIONS_(gd_optimizer_add_at(GD_HERE, optimizer, parameters, "
          "GD_OPTIONS_(gd_group_options, (",
          out);
    for (int i = 0; i < g->record.n_attrs; i++) {
        fprintf(out, "%s.%s = ", i ? ", " : "", g->record.attrs[i].name);
        print_default(out, &g->record.attrs[i], IN_MACRO);
    }
    fputs("), __VA_ARGS__)))\n\n", out);
}

static void write_kind(const factory_kind *k) {
    char name[80], guard[80];
    snprintf(name, sizeof name, "gradus/%s.h", k->file);
    snprintf(guard, sizeof guard, "GRADUS_%s_H", k->file);
    for (char *c = guard; *c; c++) *c = gd_to_upper(*c);
    FILE *out = begin_output(name);
    fprintf(
        out,
        "/* %s.h - %s\n *\n * The build writes this file from the records; to change it, change "
        "the records.\n */\n",
        k->file, k->about);
    fprintf(out,
            "#ifndef %s\n#define %s\n\n%s#include \"%s\"\n#include \"gradus/ops.h\"\n#include "
            "\"gradus/options.h\"\n"
            "#include \"gradus/scope.h\"\n\n#ifdef __cplusplus\n#if defined(__clang__)\n#pragma "
            "clang diagnostic push\n"
            "#pragma clang diagnostic ignored \"-Wreturn-type-c-linkage\"\n#endif\nextern \"C\" "
            "{\n#endif\n\n",
            guard, guard, SYSTEM_HEADER, k->includes);
    for (int i = 0; i < n_factories; i++) {
        if (factories[i]->kind != k) continue;
        print_factory_comment(out, factories[i]);
        print_struct(out, factories[i]);
        for (int c = 0; c < constructor_count(k); c++) {
            fputs("GD_API ", out);
            print_factory_prototype(out, factories[i], c);
            fputs(";\n", out);
            print_factory_macro(out, factories[i], c);
        }
    }
    if (has_groups(k)) print_group(out);
    fputs("#ifdef __cplusplus\n}\n#if defined(__clang__)\n#pragma clang diagnostic "
          "pop\n#endif\n#endif\n#endif\n",
          out);
    finish_output();
}

/* --- the records as data ---------------------------------------------------------------------- */

/* The last record with the same rules: conv3d for conv1d, conv2d and conv3d. */
static const factory *last_variant(const factory *m) {
    for (int i = 0; i < n_factories; i++)
        if (factories[i]->kind == m->kind && strcmp(factories[i]->rules, m->rules) == 0)
            m = factories[i];
    return m;
}

void each_factory(void (*visit)(const factory_view *f)) {
    for (int i = 0; i < n_factories; i++) {
        const factory *m = factories[i];
        visit(&(factory_view){m->kind->word, m->kind->file, m->full, &m->record, m->source->path,
                              m->line});
    }
}

void print_factories(FILE *out, const source *s) {
    for (int i = 0; i < n_factories; i++) {
        factory *m = factories[i];
        gd_record r = m->record;
        if (m->source != s) continue;
        print_params(out, m->full, "inputs", r.inputs, r.n_inputs);
        print_params(out, m->full, "outputs", r.outputs, r.n_outputs);
        r.name = m->full; /* for the printed names and the options struct */
        print_attrs(out, &r);
        fprintf(out, "static const gd_%s_rules %s_rules_ = {", m->kind->word, m->full);
        for (const char *const *rule = m->kind->rules; *rule; rule++)
            if (defines_rule(s, m->rules, *rule))
                fprintf(out, ".%s = %s_%s, ", *rule, m->rules, *rule);
        fprintf(out, "};\n");
        const factory *last = last_variant(m);
        if (last != m) fprintf(out, "extern const gd_factory gd_factory_%s;\n", last->full);
        if (r.n_finds) {
            fprintf(out, "static const gd_record_find %s_finds_[] = {", m->full);
            for (int k = 0; k < r.n_finds; k++)
                fprintf(out, "%s{\"%s\", %d, %d}", k ? ", " : "", r.finds[k].option,
                        r.finds[k].input, r.finds[k].axis);
            fputs("};\n", out);
        }
        fprintf(out,
                "extern const gd_factory gd_factory_%s;\nconst gd_factory gd_factory_%s = {.kind = "
                "\"%s\", "
                ".rules = &%s_rules_",
                m->full, m->full, m->kind->word, m->full);
        if (m->variant)
            fprintf(out, ", .variant = %d, .last_variant = &gd_factory_%s", m->variant, last->full);
        if (r.of) fprintf(out, ", .of = \"%s\"", r.of);
        if (r.n_finds) fprintf(out, ", .finds = %s_finds_, .n_finds = %d", m->full, r.n_finds);
        fprintf(out, ",\n    .record = {.name = \"%s\", .doc = ", m->record.name);
        print_string(out, r.doc);
        print_operators(out, &r);
        int required = 0;
        while (required < r.n_inputs && !r.inputs[required].optional &&
               !r.inputs[required].variadic)
            required++;
        if (r.n_inputs)
            fprintf(out, ", .inputs = %s_inputs_, .n_inputs = %d, .n_required = %d", m->full,
                    r.n_inputs, required);
        if (r.n_outputs)
            fprintf(out, ", .outputs = %s_outputs_, .n_outputs = %d", m->full, r.n_outputs);
        if (r.n_attrs)
            fprintf(out,
                    ", .attrs = %s_attrs_, .n_attrs = %d, .attrs_size = sizeof(gd_%s_options), "
                    ".defaults = &%s_default_attrs_",
                    m->full, r.n_attrs, m->full, m->full);
        fputs("}};\n\n", out);
    }
}

static void write_factory_calls(void) {
    FILE *out = begin_output("factory_calls.c");
    fputs("/* Written by the build from the records of layers, optimizers and so on. */\n", out);
    for (int k = 0; k < N_KINDS; k++) {
        bool any = false;
        for (int i = 0; i < n_factories; i++) any |= factories[i]->kind == &kinds[k];
        if (any)
            fprintf(out, "#include \"gradus/%s.h\"\n#include \"%s\"\n", kinds[k].file,
                    kinds[k].inside);
    }
    fputs("#include \"dispatch/factory.h\"\n\n", out);
    for (int i = 0; i < n_factories; i++) {
        const factory *m = factories[i];
        fprintf(out, "extern const gd_factory gd_factory_%s;\n", m->full);
        if (m->record.n_attrs)
            fprintf(out,
                    "gd_%s_options gd_%s_defaults(void) { return *(const gd_%s_options "
                    "*)gd_factory_%s.record.defaults; }\n",
                    m->full, m->full, m->full, m->full);
        for (int c = 0; c < constructor_count(m->kind); c++) {
            const char *subject = subject_of(m->kind, c);
            print_factory_prototype(out, m, c);
            fprintf(out, " {\n    return gd_%s_make%s(site, &gd_factory_%s, %s%s%s);\n}\n\n",
                    m->kind->word, suffix_of(c), m->full, subject ? subject : "",
                    subject ? ", " : "", m->record.n_attrs ? "options" : "NULL");
        }
    }
    print_attrs(out, &group_factory()->record);
    fprintf(
        out,
        "extern const gd_op_attr *const gd_group_attrs;\nextern const int gd_group_attr_count;\n"
        "gd_group_options gd_group_defaults(void) { return group_default_attrs_; }\n"
        "const gd_op_attr *const gd_group_attrs = group_attrs_;\nconst int gd_group_attr_count = "
        "%d;\n\n",
        group_factory()->record.n_attrs);
    fputs("const gd_factory *const gd_factories[] = {\n", out);
    for (int i = 0; i < n_factories; i++) fprintf(out, "    &gd_factory_%s,\n", factories[i]->full);
    fprintf(out, "    NULL};\nconst int gd_factory_total = %d;\n", n_factories);
    finish_output();
}

/* --- the reference page of a kind ------------------------------------------------------------- */

static void print_page_row(FILE *out, const gd_op_attr *a) {
    fprintf(out, "| `.%s` | %s | ", a->name, type_text(a));
    if (a->words) {
        fputc('`', out);
        print_default(out, a, IN_MACRO);
        fputs("` | ", out);
        print_constants(out, a->words, "`");
        if (*a->doc) fputs(": ", out);
    } else fprintf(out, "%s | ", a->default_text);
    fprintf(out, "%s |\n", a->doc);
}

/* The options that a layer can infer, in a sentence: "`in_features` may be `GD_ANY` ...". */
static void print_finds(FILE *out, const gd_record *r) {
    for (int i = 0; i < r->n_finds; i++) {
        const gd_record_find *f = &r->finds[i];
        fprintf(out, "%s`%s` may be `GD_ANY` (in text `any`): size %d of %s in the first call.%s",
                i ? " " : "\n", f->option, f->axis, r->inputs[f->input].name,
                i + 1 < r->n_finds ? "" : "\n");
    }
}

static void write_kind_page(const factory_kind *k) {
    char name[80];
    snprintf(name, sizeof name, "%s.md", k->file);
    FILE *out = begin_output(name);
    fprintf(
        out,
        "# %s\n\nThe build writes this page from the records (`make docs`); to change it, change "
        "the records. %s\n\n",
        k->title, k->about);
    for (int i = 0; i < n_factories; i++) {
        const gd_record *r = &factories[i]->record;
        if (factories[i]->kind != k) continue;
        for (int c = 0; c < constructor_count(k); c++) {
            fputs(c ? ", `" : "### `", out);
            print_call(out, factories[i], c);
            fputc('`', out);
        }
        fputs("\n\n", out);
        int options = 0;
        for (int a = 0; a < r->n_attrs; a++) options += !r->attrs[a].required;
        print_doc(out, r->doc);
        if (*r->caffe.name) fprintf(out, "\nCaffe `%s`.\n", r->caffe.name);
        if (r->n_inputs) {
            fputs("\n", out);
            print_params_line(out, r, "`");
            fputs("\n", out);
        }
        print_finds(out, r);
        if (options) fputs("\n| option | type | default | |\n|---|---|---|---|\n", out);
        for (int a = 0; a < r->n_attrs; a++)
            if (!r->attrs[a].required) print_page_row(out, &r->attrs[a]);
        fputs("\n", out);
    }
    finish_output();
}

void write_factories(void) {
    for (int k = 0; k < N_KINDS; k++) {
        write_kind(&kinds[k]);
        write_kind_page(&kinds[k]);
    }
    write_factory_calls();
}
