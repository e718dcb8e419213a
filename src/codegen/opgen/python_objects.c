/* python_objects.c - writes python_constructors.c: for each layer, optimizer, dataset and so on the __init__
 * of its Python class; and the types of these classes, python_KINDs.pyi.
 *
 * The line `python` of a record says what differs, as for ops (python.c):
 *
 *     python Conv2d(in_channels, out_channels, kernel_size=kernel, stride, padding|pad_mode)
 *
 * Without a name, that of the record is written in capital letters: Conv2d for conv2d; networks and
 * initializers, which are functions, keep it. Without parentheses all options may be given by position, in
 * the order of the record, otherwise only the ones that are listed. `-`: there is no such class. Layers and networks also take
 * `device` and `dtype`.
 *
 * Some arguments of PyTorch are no options here: `inplace~False` takes any value, which changes nothing, and False if it is not
 * given; `sparse!False` takes only False, because anything else would change the meaning. `momentum?`: None is NAN. */
#include <string.h>

#include "codegen/opgen/opgen.h"
#include "core/ascii.h"

typedef struct argument {
    char name[64], also[128];
    const gd_op_attr *attr, *word; /* `word`: the option that a str is for */
    bool keyword, inferred, none_is_nan;
    /* no option (attr is NULL): its default as text; `refuses`: other values are errors */
    char constant[32];
    bool refuses;
} argument;

enum { MAX_ARGUMENTS = 30 };

typedef struct constructor {
    factory_view view;
    char name[64];
    argument arguments[MAX_ARGUMENTS];
    int count;
    const char *subject, *subject_kind, *subject_type; /* its first argument; NULL: none */
    const char *subject_field;
    bool is_module; /* takes device and dtype */
} constructor;

static constructor constructors[1000];
static int n_constructors;

static bool is_kind(const constructor *c, const char *kind) {
    return strcmp(c->view.kind, kind) == 0;
}

static const gd_op_attr *find_option(const constructor *c, const char *name, size_t length) {
    const gd_record *r = c->view.record;
    for (int i = 0; i < r->n_attrs; i++)
        if (strlen(r->attrs[i].name) == length && memcmp(r->attrs[i].name, name, length) == 0)
            return &r->attrs[i];
    die(c->view.path, c->view.line, "line python: no option '%.*s'", (int)length, name);
    return NULL;
}

static bool has_argument(const constructor *c, const gd_op_attr *attr) {
    for (int i = 0; i < c->count; i++)
        if (c->arguments[i].attr == attr || c->arguments[i].word == attr) return true;
    return false;
}

static argument *next_argument(constructor *c, const char *name, size_t length) {
    if (c->count == MAX_ARGUMENTS) die(c->view.path, c->view.line, "too many arguments for Python");
    argument *a = &c->arguments[c->count++];
    snprintf(a->name, sizeof a->name, "%.*s", (int)length, name);
    return a;
}

/* inplace~False, sparse!False */
static void add_constant(constructor *c, const char *text, size_t length) {
    const size_t name = strcspn(text, "~!");
    argument *a = next_argument(c, text, name);
    a->refuses = text[name] == '!';
    snprintf(a->constant, sizeof a->constant, "%.*s", (int)(length - name - 1), text + name + 1);
}

static argument *add_argument(constructor *c, const char *theirs, size_t length,
                              const gd_op_attr *attr) {
    if (has_argument(c, attr))
        die(c->view.path, c->view.line, "line python: '%s' is there twice", attr->name);
    argument *a = next_argument(c, theirs, length);
    a->attr = attr;
    snprintf(a->also, sizeof a->also, "%s %s", attr->name, /* options.c reads the first */
             python_equal_names(c->view.record, attr->name, false));
    const gd_record *r = c->view.record;
    for (int i = 0; i < r->n_finds; i++) a->inferred |= strcmp(r->finds[i].option, attr->name) == 0;
    return a;
}

/* leaky_relu: LeakyRelu */
static void default_name(constructor *c) {
    char *to = c->name;
    const bool function = is_kind(c, "net") || is_kind(c, "init");
    bool upper = true;
    for (const char *from = c->view.record->name; *from && to < c->name + sizeof c->name - 1;
         from++) {
        if (*from == '_' && !function) upper = true;
        else *to++ = upper && !function ? gd_to_upper(*from) : *from, upper = false;
    }
    *to = 0;
}

static void parse_line(constructor *c, const char *text) {
    const char *open = strchr(text, '('), *close = open ? strchr(open, ')') : NULL;
    if (open && !close) die(c->view.path, c->view.line, "line python: expected ')' in %s", text);
    const size_t length = strcspn(text, " (");
    if (length) snprintf(c->name, sizeof c->name, "%.*s", (int)length, text);
    else default_name(c);
    for (const char *s = open ? open + 1 : ""; *s && s < close;) {
        const size_t n = strcspn(s, ",)"), theirs = strcspn(s, "=|?,)");
        const char *ours = s[theirs] == '=' ? s + theirs + 1 : s, *bar = memchr(s, '|', n);
        if (strcspn(s, "~!") < n) add_constant(c, s, n);
        else {
            argument *a = add_argument(c, s, theirs, find_option(c, ours, strcspn(ours, "|?,)")));
            if (bar) a->word = find_option(c, bar + 1, (size_t)(s + n - bar - 1));
            a->none_is_nan = memchr(s, '?', n) != NULL;
        }
        s += n + (s[n] == ',');
        while (*s == ' ') s++;
    }
    const gd_record *r = c->view.record;
    for (int required = 1; required >= 0; required--)
        for (int i = 0; i < r->n_attrs; i++)
            if (r->attrs[i].required == required && !has_argument(c, &r->attrs[i]))
                add_argument(c, r->attrs[i].name, strlen(r->attrs[i].name), &r->attrs[i])->keyword =
                    open != NULL;
}

static void add_constructor(const factory_view *view) {
    const char *line = view->record->python ? view->record->python : "";
    if (strcmp(line, "-") == 0) return;
    constructor *c = &constructors[n_constructors++];
    *c = (constructor){.view = *view};
    c->is_module = is_kind(c, "layer") || is_kind(c, "net");
    if (is_kind(c, "optimizer")) {
        c->subject = "params";
        c->subject_kind = "PARAMETERS";
        c->subject_field = "gdpy_parameters ";
        c->subject_type = "_Parameters";
    } else if (is_kind(c, "schedule")) {
        c->subject = "optimizer";
        c->subject_kind = "OPTIMIZER_OF";
        c->subject_field = "gd_optimizer *";
        c->subject_type = "Optimizer";
    } else if (is_kind(c, "init")) {
        c->subject = "shape";
        c->subject_kind = "SHAPE";
        c->subject_field = "gd_shape ";
        c->subject_type = "_Ints";
    }
    parse_line(c, line);
}

/* --- code ------------------------------------------------------------------------------------- */

static int param_count(const constructor *c) {
    return (c->subject != NULL) + c->count + 2 * c->is_module;
}

static void print_frame(FILE *out, const constructor *c) {
    fputs("typedef struct {\n", out);
    if (c->subject) fprintf(out, "    %ssubject;\n", c->subject_field);
    if (c->view.record->n_attrs) fprintf(out, "    gd_%s_options o;\n", c->view.full);
    else if (!c->subject) fputs("    char none;\n", out);
    fprintf(out, "} %s_frame;\n", c->view.full);
}

static bool is_required(const argument *a) { return a->attr && a->attr->required; }

static void print_argument(FILE *out, const constructor *c, const argument *a) {
    if (!a->attr) {
        fprintf(out, "    {\"%s\", \"\", \"%s\", 0, GDPY_%s, 0, 0, 0},\n", a->name, a->constant,
                a->refuses ? "CONSTANT" : "IGNORED");
        return;
    }
    fprintf(out, "    {\"%s\", \"%s\", ", a->name, a->also);
    const gd_op_attr *worded = a->word ? a->word : a->attr;
    print_string(out, worded->words ? worded->words : "");
    fprintf(out, ", offsetof(%s_frame, o.%s), GDPY_%s, %d, %d%s%s%s, ", c->view.full, a->attr->name,
            python_kind(a->attr), a->attr->count, a->attr->required,
            a->keyword ? " | GDPY_KEYWORD" : "", a->inferred ? " | GDPY_INFERRED" : "",
            a->none_is_nan ? " | GDPY_NONE_IS_NAN" : "");
    if (a->word) fprintf(out, "offsetof(%s_frame, o.%s)},\n", c->view.full, a->word->name);
    else fputs("0},\n", out);
}

static void print_params_table(FILE *out, const constructor *c) {
    if (!param_count(c)) return;
    fprintf(out, "static const gdpy_param %s_params[] = {\n", c->view.full);
    if (c->subject)
        fprintf(out,
                "    {\"%s\", \"%s\", \"\", offsetof(%s_frame, subject), GDPY_%s, 0, "
                "GDPY_REQUIRED, 0},\n",
                c->subject, is_kind(c, "optimizer") ? "parameters " : "", c->view.full,
                c->subject_kind);
    for (int i = 0; i < c->count; i++) print_argument(out, c, &c->arguments[i]);
    if (c->is_module)
        fputs("    {\"device\", \"\", \"\", 0, GDPY_DEVICE, 0, GDPY_KEYWORD, 0},\n"
              "    {\"dtype\", \"\", \"\", 0, GDPY_NEW_DTYPE, 0, GDPY_KEYWORD, 0},\n",
              out);
    fputs("};\n", out);
}

/* gd_optim_adam_of_at(c.site, f.subject.module, &f.o) */
static void print_call(FILE *out, const constructor *c, const char *form, const char *subject) {
    fprintf(out, "gd_%s%s_at(c.site%s%s)", c->view.full, form, subject,
            c->view.record->n_attrs ? ", &f.o" : "");
}

static void print_function(FILE *out, const constructor *c) {
    const char *full = c->view.full;
    fprintf(out, "static size_t %s_fill(void *frame) {\n", full);
    if (c->view.record->n_attrs)
        fprintf(out, "    if (frame) ((%s_frame *)frame)->o = gd_%s_defaults();\n", full, full);
    fprintf(out, "    return (void)frame, sizeof(%s_frame);\n}\n", full);
    fprintf(out,
            "static const gdpy_function %s_function = {\"%s\", %s%s, %d, 0, false, NULL};\n"
            "static PyObject *%s_init(PyObject *self, PyObject *const *args, Py_ssize_t n, "
            "PyObject *names) {\n"
            "    %s_frame f;\n    memset(&f, 0, sizeof f);\n",
            full, c->name, param_count(c) ? full : "NULL", param_count(c) ? "_params" : "",
            param_count(c), full, full);
    fprintf(out, "    %s_fill(&f);\n", full);
    fprintf(out,
            "    gdpy_call c;\n"
            "    if (!gdpy_begin(&c, &%s_function, &f, NULL, args, n, names)) return NULL;\n    ",
            full);
    if (is_kind(c, "init")) {
        fputs("(void)self;\n    return gdpy_end(&c, ", out);
        print_call(out, c, "", ", f.subject");
        fputs(");\n}\n\n", out);
    } else if (is_kind(c, "optimizer")) {
        fputs("gd_optimizer *o = f.subject.module ? ", out);
        print_call(out, c, "_of", ", f.subject.module");
        fputs(" : ", out);
        print_call(out, c, "", ", f.subject.list");
        fputs(";\n    return gdpy_end_optimizer(&c, self, o, &f.subject);\n}\n\n", out);
    } else {
        fprintf(out, "return gdpy_end_%s(&c, self, ", c->is_module ? "module" : "object");
        print_call(out, c, "", c->subject ? ", f.subject" : "");
        fputs(");\n}\n\n", out);
    }
}

static void print_signature(FILE *out, const constructor *c) {
    bool first = is_kind(c, "init"), starred = false;
    if (!first) fputs("$self", out);
    if (c->subject) {
        fprintf(out, "%s%s", first ? "" : ", ", c->subject);
        first = false;
    }
    for (int i = 0; i < c->count; i++) {
        const argument *a = &c->arguments[i];
        if (!first) fputs(", ", out);
        first = false;
        if (a->keyword && !starred) starred = (fputs("*, ", out), true);
        fputs(a->name, out);
        if (!is_required(a)) {
            const bool text = !a->attr && *a->constant >= 'a' && *a->constant <= 'z';
            fprintf(out, text ? "='%s'" : "=%s", a->attr ? python_default(a->attr) : a->constant);
        }
    }
    if (c->is_module) fprintf(out, ", %sdevice=None, dtype=None", starred ? "" : "*, ");
}

static void print_row(FILE *out, const constructor *c) {
    const gd_record *r = c->view.record;
    fprintf(out, "    {\"%s\", \"%s\", \"%s\", \"", c->view.kind, r->name, c->name);
    for (int i = 0; i < r->n_inputs; i++)
        fprintf(out, "%s%s ", r->inputs[i].name, r->inputs[i].optional ? "?" : "");
    fprintf(out,
            "\",\n     {\"%s\", (PyCFunction)(void (*)(void))%s_init, METH_FASTCALL | "
            "METH_KEYWORDS,\n     \"%s(",
            is_kind(c, "init") ? c->name : "__init__", c->view.full,
            is_kind(c, "init") ? c->name : "__init__");
    print_signature(out, c);
    fputs(")\\n--\\n\\n\"\n     \"", out);
    print_python_text(out, r->doc);
    for (int i = 0; i < c->count; i++) {
        const gd_op_attr *a = c->arguments[i].attr;
        if (!a || (!*a->doc && !a->words)) continue;
        fprintf(out, "\\n\"\n     \"\\n%s: ", c->arguments[i].name);
        if (a->words) fprintf(out, "one of %s%s", a->words, *a->doc ? "; " : "");
        print_python_text(out, a->doc);
    }
    fprintf(out, "\"},\n     &%s_function, %s_fill},\n", c->view.full, c->view.full);
}

/* --- types ------------------------------------------------------------------------------------ */

static void print_stub(FILE *out, const constructor *c) {
    static const char *const bases[][2] = {
        {"layer", "Module"},         {"net", "Module"},          {"optimizer", "Optimizer"},
        {"schedule", "LRScheduler"}, {"metric", "Metric"},       {"callback", "Callback"},
        {"dataset", "Dataset"},      {"transform", "Transform"},
    };
    const char *base = NULL;
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        if (is_kind(c, bases[i][0])) base = bases[i][1];
    const bool function = is_kind(c, "init");
    if (function) fprintf(out, "def %s(", c->name);
    else fprintf(out, "class %s(%s):\n    def __init__(self", c->name, base);
    bool first = function, starred = false;
    if (c->subject) {
        fprintf(out, "%s%s: %s", first ? "" : ", ", c->subject, c->subject_type);
        first = false;
    }
    for (int i = 0; i < c->count; i++) {
        const argument *a = &c->arguments[i];
        if (!first) fputs(", ", out);
        first = false;
        if (a->keyword && !starred) starred = (fputs("*, ", out), true);
        fprintf(out, "%s: ", a->name);
        if (a->attr) print_python_type(out, python_kind(a->attr), a->attr->words);
        else fputs("Any", out);
        if (a->word) fputs(" | str", out);
        if (a->attr && (a->inferred || !is_required(a))) fputs(" | None", out);
        if (!is_required(a)) fputs(" = ...", out);
    }
    if (c->is_module)
        fprintf(out, "%s%sdevice: _DeviceLike | None = ..., dtype: _DTypeLike | None = ...",
                first ? "" : ", ", starred ? "" : "*, ");
    fprintf(out, ") -> %s: ...\n", function ? "Tensor" : "None");
}

static void write_stubs(const char *plural) {
    char name[80];
    snprintf(name, sizeof name, "python_%s.pyi", plural);
    FILE *out = begin_output(name);
    for (int i = 0; i < n_constructors; i++)
        if (strcmp(constructors[i].view.plural, plural) == 0) print_stub(out, &constructors[i]);
    finish_output();
}

void write_python_objects(void) {
    each_factory(add_constructor);
    FILE *out = begin_output("python_constructors.c");
    fputs("/* Written by the build from the records of layers, optimizers and so on: their "
          "constructors in "
          "Python. */\n#include <stddef.h>\n#include <string.h>\n\n#include \"object.h\"\n\n",
          out);
    for (int i = 0; i < n_constructors; i++) {
        print_frame(out, &constructors[i]);
        print_params_table(out, &constructors[i]);
        print_function(out, &constructors[i]);
    }
    fputs("const gdpy_constructor gdpy_constructors[] = {\n", out);
    for (int i = 0; i < n_constructors; i++) print_row(out, &constructors[i]);
    fputs("    {NULL, NULL, NULL, NULL, {NULL, NULL, 0, NULL}, NULL, NULL},\n};\n", out);
    finish_output();
    for (int i = 0; i < n_constructors; i++) {
        bool first = true;
        for (int k = 0; k < i; k++)
            first &= strcmp(constructors[k].view.plural, constructors[i].view.plural) != 0;
        if (first) write_stubs(constructors[i].view.plural);
    }
}
