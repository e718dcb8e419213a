/* python.c - writes python_calls.c: the functions and methods of the Python module, one for each op; and their types,
 * python_functions.pyi and python_methods.pyi, of which cmake/python.cmake makes _core.pyi.
 *
 * The line `python` of a record says what differs from the record:
 *
 *     python permute_dims permute(x, *axes)
 *     python (x, kernel_size=kernel, stride, padding)
 *     python -
 *
 * The names come first, those of the standard before PyTorch's; without a name it is that of the op. In
 * parentheses are the arguments that may be given by position, in their order: inputs and options of the
 * record, with Python's name before `=` where it differs, and `*` before a list that takes all numbers that
 * are left. All other options are given by name. Without parentheses every input and option may be given by
 * position, in the order of the record. `-`: the op is not a function of the module.
 *
 *     python (x, weight=w, padding|pad_mode)       a str for padding is the option pad_mode
 *     python (x, alpha, inplace)                   inplace=True: calls the form that writes x
 *
 * Some names mean the same everywhere and need no line: axis and dim, keepdim and keepdims (python_equal_names). */
#include <string.h>

#include "codegen/opgen/opgen.h"
#include "core/ascii.h"

/* An argument: an input or an option of the record. */
typedef struct param {
    char name[64], also[64];
    const gd_op_param *input; /* or: */
    const gd_op_attr *attr;   /* or neither: inplace */
    const gd_op_attr *word;   /* the option that a str is for */
    int index;
    bool star, keyword;
} param;

enum { MAX_PARAMS = 32, MAX_NAMES = 4 };

typedef struct function {
    const op *o;
    char names[MAX_NAMES][64];
    int n_names;
    param params[MAX_PARAMS];
    int count;
    bool creates; /* takes a device and requires_grad */
    bool inplace; /* takes inplace=True */
} function;

static function functions[MAX_OPS];
static int n_functions;

/* --- names ------------------------------------------------------------------------------------ */

static bool has_input(const gd_record *r, const char *name) {
    for (int i = 0; i < r->n_inputs; i++)
        if (strcmp(r->inputs[i].name, name) == 0) return true;
    return false;
}

static const gd_op_attr *find_attr(const gd_record *r, const char *name) {
    for (int i = 0; i < r->n_attrs; i++)
        if (strcmp(r->attrs[i].name, name) == 0) return &r->attrs[i];
    return NULL;
}

/* Names that mean the same, each followed by a space. */
const char *python_equal_names(const gd_record *r, const char *name, bool first) {
    static const char *const pairs[][2] = {
        {"axis", "dim "},        {"axes", "dims axis dim "}, {"keepdim", "keepdims "},
        {"dims", "shape size "}, {"xs", "tensors arrays "},  {"w", "weight "},
        {"axis0", "dim0 "},      {"axis1", "dim1 "},         {"causal", "is_causal "},
        {"index", "indices "},   {"p", "probability "},      {"axis2", "dim2 "},
    };
    if (first && strcmp(name, "x") == 0) return "input self ";
    if (first && strcmp(name, "a") == 0) return "input x1 self ";
    if (strcmp(name, "b") == 0) return has_input(r, "w") ? "bias " : "other x2 ";
    if (strcmp(name, "axis") == 0 && !find_attr(r, "dims")) return "dim dims ";
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcmp(pairs[i][0], name) == 0 && (i != 10 || !first)) return pairs[i][1];
    return "";
}

static bool set_member(param *p, const op *o, const char *ours) {
    const gd_record *r = &o->record;
    for (int i = 0; i < r->n_inputs; i++)
        if (strcmp(r->inputs[i].name, ours) == 0) {
            p->input = &r->inputs[i];
            p->index = i;
            return true;
        }
    for (int i = 0; i < r->n_attrs; i++)
        if (strcmp(r->attrs[i].name, ours) == 0) {
            p->attr = &r->attrs[i];
            p->index = i;
            return true;
        }
    return false;
}

static param *add_param(function *f, const char *theirs, const char *ours) {
    param *p = &f->params[f->count++];
    if (f->count > MAX_PARAMS) die(f->o->source->path, f->o->line, "too many arguments for Python");
    if (!set_member(p, f->o, ours))
        die(f->o->source->path, f->o->line, "line python: no input or option '%s'", ours);
    for (const param *q = f->params; q < p; q++)
        if (q->input == p->input && q->attr == p->attr && (p->input || p->attr))
            die(f->o->source->path, f->o->line, "line python: '%s' is there twice", ours);
    const char *also = python_equal_names(&f->o->record, ours, p == f->params);
    if (strcmp(theirs, "keepdim") == 0) theirs = "keepdims"; /* as in the standard */
    snprintf(p->name, sizeof p->name, "%s", theirs);
    snprintf(p->also, sizeof p->also, "%s%s%s", strcmp(theirs, ours) ? ours : "",
             strcmp(theirs, ours) ? " " : "", also);
    return p;
}

static bool has_param(const function *f, const char *ours) {
    for (int i = 0; i < f->count; i++)
        if ((f->params[i].input && strcmp(f->params[i].input->name, ours) == 0) ||
            (f->params[i].attr && strcmp(f->params[i].attr->name, ours) == 0))
            return true;
    return false;
}

/* The arguments that the record has beyond those of the line. */
static void add_others(function *f, bool keyword) {
    const gd_record *r = &f->o->record;
    for (int i = 0; i < r->n_order; i++) {
        const int k = r->order[i];
        const char *name = k < 0 ? r->attrs[~k].name : r->inputs[k].name;
        if (!has_param(f, name)) add_param(f, name, name);
    }
    for (int i = 0; i < r->n_attrs; i++)
        if (!has_param(f, r->attrs[i].name))
            add_param(f, r->attrs[i].name, r->attrs[i].name)->keyword = keyword;
    for (int i = 0; i < r->n_inputs; i++)
        if (!has_param(f, r->inputs[i].name))
            add_param(f, r->inputs[i].name, r->inputs[i].name)->keyword = keyword;
}

/* Parses "names(x, theirs=ours, *list)". */
static void parse_line(function *f, const char *text) {
    const op *o = f->o;
    const char *open = strchr(text, '('), *close = open ? strchr(open, ')') : NULL;
    if (open && !close) die(o->source->path, o->line, "line python: expected ')' in %s", text);
    for (const char *s = text; *s && s != open;) {
        const size_t n = strcspn(s, " (");
        if (f->n_names == MAX_NAMES) die(o->source->path, o->line, "line python: too many names");
        if (n) snprintf(f->names[f->n_names++], 64, "%.*s", (int)n, s);
        s += n;
        while (*s == ' ') s++;
    }
    for (const char *s = open ? open + 1 : ""; *s && s < close;) {
        char entry[128], *ours;
        const size_t n = strcspn(s, ",)");
        snprintf(entry, sizeof entry, "%.*s", (int)n, s);
        s += n + (s[n] == ',');
        while (*s == ' ') s++;
        char *theirs = entry + strspn(entry, "* "), *word = strchr(theirs, '|');
        if (word) *word++ = 0;
        ours = strchr(theirs, '=');
        if (ours) *ours++ = 0;
        if (o->record.inplace_too && strcmp(theirs, "inplace") == 0) {
            f->inplace = true;
            snprintf(f->params[f->count++].name, 64, "inplace");
            continue;
        }
        param *p = add_param(f, theirs, ours ? ours : theirs);
        p->star = entry[0] == '*';
        if (word && !(p->word = find_attr(&o->record, word)))
            die(o->source->path, o->line, "line python: no option '%s'", word);
    }
    add_others(f, open != NULL);
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Whether the op becomes a function: it is public, and takes no graph as an option. */
static bool is_function(const op *o) {
    const gd_record *r = &o->record;
    if (r->flags & (GD_OP_INTERNAL | GD_OP_OPAQUE)) return false;
    if (r->python && strcmp(r->python, "-") == 0) return false;
    for (int i = 0; i < r->n_attrs; i++)
        if (r->attrs[i].type == GD_ATTR_GRAPH) return false;
    return true;
}

static void add_function(const op *o) {
    function *f = &functions[n_functions++];
    *f = (function){.o = o};
    parse_line(f, o->record.python ? o->record.python : "");
    if (f->n_names == 0) snprintf(f->names[f->n_names++], 64, "%s", o->record.name);
    f->creates = true; /* without tensors but those given by name */
    for (int i = 0; i < o->record.n_inputs; i++) f->creates &= o->record.inputs[i].option;
    f->creates |= ends_with(o->record.name, "_like");
}

/* The form in place has the arguments of the op. */
static void add_inplace(const function *of) {
    static op forms[MAX_OPS];
    static char names[MAX_OPS][80];
    function *f = &functions[n_functions];
    op *o = &forms[n_functions];
    *o = *of->o;
    snprintf(names[n_functions], sizeof names[0], "%s_", of->o->record.name);
    o->record.name = names[n_functions];
    n_functions++;
    *f = *of;
    f->o = o;
    if (of->inplace) { /* has it already */
        f->inplace = false;
        f->count--;
    }
    for (int i = 0; i < f->n_names; i++)
        snprintf(f->names[i], sizeof f->names[i], "%.60s_", of->names[i]);
}

/* --- code ------------------------------------------------------------------------------------- */

const char *python_kind(const gd_op_attr *attr) {
    static const char *const attrs[] = {"INT",   "FLOAT",  "BOOL", "INTS",   "SHAPE", "WORD",
                                        "DTYPE", "STRING", "INT",  "NUMBER", "FLOATS"};
    return attrs[attr->type];
}

static const char *kind_of(const function *f, const param *p) {
    if (p->attr) return python_kind(p->attr);
    if (!p->input) return "BOOL";
    if (p->input->variadic) return "TENSORS";
    if (takes_numbers(f->o) && is_operand(f->o, p->index)) return "OPERAND";
    const bool written = p->input->mutated || (p->index == 0 && ends_with(f->o->record.name, "_"));
    return written ? "WRITTEN" : "TENSOR";
}

static bool required(const param *p) {
    if (p->attr) return p->attr->required;
    return p->input && !p->input->optional && !p->input->option;
}

/* Where the value goes: x, or o.axis; a tensor given by name is a field of the options, too. */
static void print_field(FILE *out, const param *p) {
    if (!p->attr && !p->input) fputs("inplace", out);
    else if (p->attr) fprintf(out, "o.%s", p->attr->name);
    else fprintf(out, "%s%s", p->input->option ? "o." : "", p->input->name);
}

static void print_frame(FILE *out, const function *f) {
    const gd_record *r = &f->o->record;
    fputs("typedef struct {\n", out);
    for (int i = 0; i < r->n_inputs; i++) {
        if (r->inputs[i].option) continue;
        const bool operand = takes_numbers(f->o) && is_operand(f->o, i);
        fprintf(out, "    %s%s;\n",
                operand                 ? "gd_operand "
                : r->inputs[i].variadic ? "gd_tensors "
                                        : "gd_tensor *",
                r->inputs[i].name);
    }
    if (has_options(f->o) || r->n_attrs) fprintf(out, "    gd_%s_options o;\n", r->name);
    if (f->inplace) fputs("    bool inplace;\n", out);
    if (r->n_inputs == 0 && r->n_attrs == 0) fputs("    char none;\n", out);
    fprintf(out, "} %s_frame;\n", r->name);
}

static void print_params_table(FILE *out, const function *f) {
    const gd_record *r = &f->o->record;
    if (f->count + 2 * f->creates == 0) return;
    fprintf(out, "static const gdpy_param %s_params[] = {\n", r->name);
    const unsigned deciding = takes_numbers(f->o) ? deciding_inputs(f->o) : 0;
    for (int i = 0; i < f->count; i++) {
        const param *p = &f->params[i];
        fprintf(out, "    {\"%s\", \"%s\", ", p->name, p->also);
        const gd_op_attr *worded = p->word ? p->word : p->attr;
        print_string(out, worded && worded->words ? worded->words : "");
        fprintf(out, ", offsetof(%s_frame, ", r->name);
        print_field(out, p);
        fprintf(out, "), GDPY_%s, %d, %d", kind_of(f, p), p->attr ? p->attr->count : 0,
                required(p));
        if (p->star) fputs(" | GDPY_STAR", out);
        if (p->keyword) fputs(" | GDPY_KEYWORD", out);
        if (p->input && (deciding >> p->index & 1)) fputs(" | GDPY_DECIDES", out);
        if (p->word) fprintf(out, ", offsetof(%s_frame, o.%s)", r->name, p->word->name);
        else fputs(", 0", out);
        fputs("},\n", out);
    }
    if (f->creates)
        fputs("    {\"device\", \"\", \"\", 0, GDPY_DEVICE, 0, GDPY_KEYWORD, 0},\n"
              "    {\"requires_grad\", \"\", \"\", 0, GDPY_REQUIRES_GRAD, 0, GDPY_KEYWORD, 0},\n",
              out);
    fputs("};\n", out);
}

/* Operands are parsed first, as an array. */
static int operand_count(const function *f) {
    if (!takes_numbers(f->o) || !is_operand(f->o, 0)) return 0;
    return f->o->record.n_inputs;
}

static void print_call(FILE *out, const function *f, const char *form) {
    const gd_record *r = &f->o->record;
    const bool operands = takes_numbers(f->o), numbers = strcmp(form, "_numbers") == 0;
    fprintf(out, "gd_%s%s_at(c.site", r->name, form);
    for (int i = 0; i < r->n_order; i++) {
        const int k = r->order[i];
        if (k < 0) fprintf(out, ", f.o.%s", r->attrs[~k].name);
        else
            fprintf(out, ", f.%s%s", r->inputs[k].name,
                    operands && !numbers && is_operand(f->o, k) ? ".tensor" : "");
    }
    fprintf(out, "%s)", has_options(f->o) ? ", &f.o" : "");
}

static void print_end(FILE *out, const function *f) {
    const op *o = f->o;
    const gd_record *r = &o->record;
    if (variadic_output(o)) {
        fputs("    return gdpy_end_list(&c, y);\n", out);
    } else if (visible_outputs(o) == 1) {
        if (f->inplace)
            fputs("    if (f.inplace && gdpy_is_tensor(c.first)) return gdpy_end_written(&c, y, "
                  "c.first);\n",
                  out);
        if (ends_with(r->name, "_")) fputs("    return gdpy_end_written(&c, y, c.first);\n", out);
        else fputs("    return gdpy_end(&c, y);\n", out);
    } else {
        fputs("    gd_tensor *const results[] = {", out);
        for (int i = 0, n = 0; i < r->n_outputs; i++)
            if (!r->outputs[i].hidden) fprintf(out, "%sy.%s", n++ ? ", " : "", r->outputs[i].name);
        fprintf(out,
                "};\n    if (!%s_names && !(%s_names = PyStructSequence_NewType(&%s_tuple))) "
                "return gdpy_cancel(&c);\n",
                r->name, r->name, r->name);
        fprintf(out, "    return gdpy_end_several(&c, results, %d);\n", visible_outputs(o));
    }
}

/* The named tuple of several results. Its type is made when the function is first called. */
static void print_tuple(FILE *out, const function *f) {
    const gd_record *r = &f->o->record;
    fprintf(out, "static PyTypeObject *%s_names;\nstatic PyStructSequence_Field %s_fields[] = {",
            r->name, r->name);
    for (int i = 0; i < r->n_outputs; i++)
        if (!r->outputs[i].hidden) fprintf(out, "{\"%s\", NULL}, ", r->outputs[i].name);
    fprintf(out,
            "{NULL, NULL}};\n"
            "static PyStructSequence_Desc %s_tuple = {\"gradus.return_types.%s\", NULL, %s_fields, "
            "%d};\n",
            r->name, f->names[0], r->name, visible_outputs(f->o));
}

static bool has_tuple(const function *f) {
    return !variadic_output(f->o) && visible_outputs(f->o) > 1;
}

static void print_function(FILE *out, const function *f) {
    const gd_record *r = &f->o->record;
    if (has_tuple(f)) print_tuple(out, f);
    const char *type = takes_numbers(f->o) || visible_outputs(f->o) == 1 ? "gd_tensor *" : NULL;
    const bool table = f->count || f->creates;
    char names_of[96];
    snprintf(names_of, sizeof names_of, "%.80s_names", r->name);
    fprintf(out,
            "static const gdpy_function %s_function = {\"%s\", %s%s, %d, %d, %s, %s%s};\n"
            "static PyObject *%s_call(PyObject *self, PyObject *const *args, Py_ssize_t n, "
            "PyObject *names) {\n",
            r->name, f->names[0], table ? r->name : "NULL", table ? "_params" : "",
            f->count + 2 * f->creates, operand_count(f), "false", has_tuple(f) ? "&" : "NULL",
            has_tuple(f) ? names_of : "", r->name);
    const int base =
        (int)strlen(r->name) - ends_with(r->name, "_"); /* forms in place share the defaults */
    if (has_options(f->o))
        fprintf(out, "    %s_frame f = {.o = gd_%.*s_defaults()};\n", r->name, base, r->name);
    else fprintf(out, "    %s_frame f;\n    memset(&f, 0, sizeof f);\n", r->name);
    fprintf(out,
            "    gdpy_call c;\n"
            "    if (!gdpy_begin(&c, &%s_function, &f, self, args, n, names)) return NULL;\n    ",
            r->name);
    if (variadic_output(f->o)) fputs("gd_tensors y = ", out);
    else if (type) fputs("gd_tensor *y = ", out);
    else fprintf(out, "gd_%s_outputs y = ", r->name);
    if (takes_numbers(f->o)) {
        fputs("c.numbers ? ", out);
        print_call(out, f, "_numbers");
        fputs(" : ", out);
    } else if (f->inplace) {
        fputs("f.inplace ? ", out);
        print_call(out, f, "_");
        fputs(" : ", out);
    }
    print_call(out, f, "");
    fputs(";\n", out);
    print_end(out, f);
    fputs("}\n", out);
}

/* The module's functions get the module as their first argument, methods the tensor. */
static void print_entries(FILE *out, const function *f) {
    const char *name = f->o->record.name;
    fprintf(
        out,
        "static PyObject *%s_function_(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject "
        "*names) {\n    return (void)m, %s_call(NULL, args, n, names);\n}\n\n",
        name, name);
}

void print_python_text(FILE *out, const char *text) { /* a string's inside, in several lines */
    static const char *const words[][2] = {           /* of C, and of Python */
                                           {"gd_dims(", "("},
                                           {"NULL", "None"},
                                           {"gd_", "gradus."}};
    for (const char *c = text; *c; c++) {
        const char *instead = NULL;
        for (size_t i = 0; i < sizeof words / sizeof *words && !instead; i++)
            if (strncmp(c, words[i][0], strlen(words[i][0])) == 0) {
                instead = words[i][1];
                c += strlen(words[i][0]) - 1;
            }
        if (instead) fputs(instead, out);
        else if (*c == '\n') fputs("\\n\"\n     \"", out);
        else if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
        else fputc(*c, out);
    }
}

const char *python_default(const gd_op_attr *a) {
    static char text[128];
    const bool word = a->type == GD_ATTR_WORD && strstr(a->words, "none"); /* reduction="none" */
    if ((!word && strcmp(a->default_text, "none") == 0) || strstr(a->default_text, "inf"))
        return "None";
    if (a->type == GD_ATTR_BOOL) return strcmp(a->default_text, "true") == 0 ? "True" : "False";
    if (a->type == GD_ATTR_WORD || a->type == GD_ATTR_DTYPE || a->type == GD_ATTR_STRING)
        snprintf(text, sizeof text, "'%s'", a->default_text);
    else if (strchr(a->default_text, ',')) snprintf(text, sizeof text, "(%s)", a->default_text);
    else snprintf(text, sizeof text, "%s", a->default_text);
    return text;
}

static const char *default_of(const param *p) {
    if (p->attr) return python_default(p->attr);
    return p->input ? "None" : "False";
}

/* "name(x, axis=None)" */
static void print_signature(FILE *out, const function *f, const char *name, bool method) {
    fprintf(out, "%s(", name);
    bool starred = false, optional = false;
    for (int i = 0; i < f->count; i++) {
        const param *p = &f->params[i];
        if (i) fputs(", ", out);
        if (method && i == 0) {
            fputs("$self, /", out);
            continue;
        }
        if (p->keyword && !starred) starred = (fputs("*, ", out), true);
        if (p->star) starred = (fputc('*', out), true);
        fputs(p->name, out);
        if (p->star) {
            optional = true;
            continue;
        }
        optional |= !required(p);
        if (optional) fprintf(out, "=%s", required(p) ? "None" : default_of(p));
    }
    if (f->creates)
        fprintf(out, "%s%sdevice=None, requires_grad=False", f->count ? ", " : "",
                starred ? "" : "*, ");
    fputc(')', out);
}

void print_python_signature(FILE *out, const op *o) {
    for (int i = 0; i < n_functions; i++)
        if (functions[i].o == o) {
            fputs("Python: `gradus.", out);
            print_signature(out, &functions[i], functions[i].names[0], false);
            fputs("`\n\n", out);
        }
}

/* The signature, as Python finds it, and the documentation. */
static void print_docstring(FILE *out, const function *f, const char *name, bool method) {
    const gd_record *r = &f->o->record;
    fputc('"', out);
    print_signature(out, f, name, method);
    fputs("\\n--\\n\\n\"\n     \"", out);
    print_python_text(out, r->doc);
    for (int i = 0; i < f->count; i++) {
        const gd_op_attr *a = f->params[i].attr;
        if (!a || a->required || !(*a->doc || a->words)) continue;
        fprintf(out, "\\n\"\n     \"\\n%s: ", f->params[i].name);
        if (a->words) fprintf(out, "one of %s%s", a->words, *a->doc ? "; " : "");
        print_python_text(out, a->doc);
    }
    fputc('"', out);
}

static bool is_method(const function *f) {
    return f->count > 0 && f->params[0].input && !f->params[0].input->variadic;
}

static void print_table(FILE *out, bool methods) {
    fprintf(out, "PyMethodDef gdpy_op_%s[] = {\n", methods ? "methods" : "functions");
    for (int i = 0; i < n_functions; i++) {
        const function *f = &functions[i];
        if (methods && !is_method(f)) continue;
        for (int k = 0; k < f->n_names; k++) {
            fprintf(out,
                    "    {\"%s\", (PyCFunction)(void (*)(void))%s_%s, METH_FASTCALL | "
                    "METH_KEYWORDS,\n     ",
                    f->names[k], f->o->record.name, methods ? "call" : "function_");
            print_docstring(out, f, f->names[k], methods);
            fputs("},\n", out);
        }
    }
    fputs("    {NULL, NULL, 0, NULL},\n};\n\n", out);
}

/* --- type stubs ------------------------------------------------------------------------------- */

void print_python_type(FILE *out, const char *kind, const char *words) {
    static const char *const types[][2] = {
        {"TENSOR", "_ArrayLike"},  {"WRITTEN", "Tensor"},
        {"OPERAND", "_ArrayLike"}, {"TENSORS", "Sequence[_ArrayLike]"},
        {"INT", "builtins.int"},   {"FLOAT", "builtins.float"},
        {"BOOL", "builtins.bool"}, {"INTS", "_Ints"},
        {"SHAPE", "_Ints"},        {"DTYPE", "_DTypeLike"},
        {"STRING", "str"},         {"NUMBER", "builtins.float"},
        {"FLOATS", "_Floats"},
    };
    if (strcmp(kind, "WORD") == 0) {
        fputs("Literal[", out);
        for (const char *w = words; *w; w += strspn(w, " ")) {
            const size_t n = strcspn(w, " ");
            fprintf(out, "%s\"%.*s\"", w == words ? "" : ", ", (int)n, w);
            w += n;
        }
        fputc(']', out);
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(kind, types[i][0]) == 0) fputs(types[i][1], out);
}

static void print_result_type(FILE *out, const function *f) {
    if (variadic_output(f->o)) {
        fputs("tuple[Tensor, ...]", out);
        return;
    }
    const int n = visible_outputs(f->o);
    if (n == 1) {
        fputs("Tensor", out);
        return;
    }
    fputs("tuple[", out);
    for (int i = 0; i < n; i++) fprintf(out, "%sTensor", i ? ", " : "");
    fputc(']', out);
}

/* `spread`: the list takes all positional numbers, in the second form of two. */
static void print_stub(FILE *out, const function *f, const char *name, bool method, bool spread) {
    fprintf(out, "%sdef %s(", method ? "    " : "", name);
    bool starred = false, optional = false;
    for (int i = 0; i < f->count; i++) {
        const param *p = &f->params[i];
        if (i) fputs(", ", out);
        if (method && i == 0) {
            fputs(f->count > 1 ? "self, /" : "self", out);
            continue;
        }
        if (spread && p->star) {
            fprintf(out, "*%s: builtins.int", p->name);
            starred = optional = true;
            continue;
        }
        const bool behind = i > 0 && f->params[i - 1].star;
        if ((p->keyword || behind) && !starred) starred = (fputs("*, ", out), true);
        fprintf(out, "%s: ", p->name);
        print_python_type(out, kind_of(f, p), p->attr ? p->attr->words : NULL);
        optional |= !required(p);
        if (!required(p) || optional) fputs(" | None", out);
        if (optional && !(spread && required(p))) fputs(" = ...", out);
    }
    if (f->creates)
        fprintf(out, "%s%sdevice: _DeviceLike | None = ..., requires_grad: builtins.bool = ...",
                f->count ? ", " : "", starred ? "" : "*, ");
    fputs(") -> ", out);
    print_result_type(out, f);
    fputs(": ...\n", out);
}

static bool has_star(const function *f) {
    for (int i = 0; i < f->count; i++)
        if (f->params[i].star) return true;
    return false;
}

static void write_stubs(const char *file, bool methods) {
    FILE *out = begin_output(file);
    for (int i = 0; i < n_functions; i++) {
        const function *f = &functions[i];
        if (methods && !is_method(f)) continue;
        for (int k = 0; k < f->n_names; k++) {
            const char *overload = methods ? "    @overload\n" : "@overload\n";
            if (has_star(f)) fputs(overload, out);
            print_stub(out, f, f->names[k], methods, false);
            if (!has_star(f)) continue;
            fputs(overload, out);
            print_stub(out, f, f->names[k], methods, true);
        }
    }
    finish_output();
}

void resolve_python(void) {
    for (int i = 0; i < n_ops; i++) {
        if (!is_function(ops[i])) continue;
        add_function(ops[i]);
        if (ops[i]->record.inplace_too) add_inplace(&functions[n_functions - 1]);
    }
}

void write_python(void) {
    FILE *out = begin_output("python_calls.c");
    fputs("/* Written by the build from the op records: the functions of the Python module. */\n"
          "#include <stddef.h>\n#include <string.h>\n\n#include \"call.h\"\n\n",
          out);
    for (int i = 0; i < n_functions; i++) {
        print_frame(out, &functions[i]);
        print_params_table(out, &functions[i]);
        print_function(out, &functions[i]);
        print_entries(out, &functions[i]);
    }
    print_table(out, false);
    print_table(out, true);
    finish_output();
    write_stubs("python_functions.pyi", false);
    write_stubs("python_methods.pyi", true);
}
