/* record.c - parses records (record.h has the syntax) and builds the IR of their expressions. */
#include "codegen/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/record_text.h"
#include "core/ascii.h"
#include "core/number.h"

bool gd_record_fail(gd_record *r, const char *what, const char *detail) {
    if (!r->error[0]) snprintf(r->error, sizeof r->error, "%s '%.60s'", what, detail);
    return false;
}

char *gd_record_skip(char *s) {
    while (*s == ' ' || *s == '\t') s++;
    return s;
}

/* Removes spaces at both ends. */
static char *trim_spaces(char *s) {
    s = gd_record_skip(s);
    size_t n = strlen(s);
    while (n > 0 && gd_is_space(s[n - 1])) s[--n] = 0;
    return s;
}

static size_t name_length(const char *s) {
    size_t n = 0;
    if (!gd_is_alpha(s[0]) && s[0] != '_') return 0;
    while (gd_is_alnum(s[n]) || s[n] == '_') n++;
    return n;
}

char *gd_record_name(char **s, char *ended_by) {
    char *start = gd_record_skip(*s);
    size_t n = name_length(start);
    if (n == 0) return NULL;
    *ended_by = start[n];
    start[n] = 0;
    *s = start + n;
    return start;
}

int gd_record_input(const gd_record *r, const char *name) {
    for (int i = 0; i < r->n_inputs; i++)
        if (strcmp(name, r->inputs[i].name) == 0) return i;
    return -1;
}

/* --- types ------------------------------------------------------------------------------------ */

static const struct {
    const char *text;
    gd_attr_type type;
    int count;
} types[] = {
    {"int[1]", GD_ATTR_INTS, 1},   {"int[2]", GD_ATTR_INTS, 2}, {"int[3]", GD_ATTR_INTS, 3},
    {"int[]", GD_ATTR_SHAPE, 0},   {"int", GD_ATTR_INT, 0},     {"float[]", GD_ATTR_FLOATS, 0},
    {"float", GD_ATTR_FLOAT, 0},   {"bool", GD_ATTR_BOOL, 0},   {"dtype", GD_ATTR_DTYPE, 0},
    {"string", GD_ATTR_STRING, 0}, {"graph", GD_ATTR_GRAPH, 0}, {"number", GD_ATTR_NUMBER, 0},
};

/* Reads a type at *s and moves *s behind it. False: there is none. */
static bool take_type(char **s, gd_op_attr *attr) {
    *s = gd_record_skip(*s);
    if (**s == '{') {
        char *close = strchr(*s, '}');
        if (!close) return false;
        *close = 0;
        for (char *c = *s; *c; c++)
            if (*c == ',') *c = ' ';
        attr->type = GD_ATTR_WORD;
        attr->words = trim_spaces(*s + 1);
        *s = close + 1;
        return true;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t n = strlen(types[i].text);
        if (strncmp(*s, types[i].text, n) != 0 || name_length(*s + n) > 0) continue;
        attr->type = types[i].type;
        attr->count = types[i].count;
        *s += n;
        return true;
    }
    return false;
}

/* --- the first line --------------------------------------------------------------------------- */

static gd_op_attr *add_attr(gd_record *r) {
    if (r->n_attrs == GD_RECORD_MAX) {
        gd_record_fail(r, "too many attributes", "");
        return NULL;
    }
    gd_op_attr *attr = &r->attrs[r->n_attrs++];
    *attr = (gd_op_attr){.doc = ""};
    return attr;
}

/* Parses a parameter list such as "x, w, b?" or "x, dims:int[]", without its parentheses. */
static bool parse_params(gd_record *r, char *s, gd_op_param *params, int *count, bool inputs) {
    s = gd_record_skip(s);
    while (*s) {
        char end;
        char *name = gd_record_name(&s, &end);
        if (!name) return gd_record_fail(r, "expected a name at", s);
        char *at = s;
        bool first = true;
        gd_op_param param = {.name = name};
        for (;; at++, first = false) {
            char c = first ? end : *at;
            if (c == '?') param.optional = true;
            else if (c == '*') param.variadic = true;
            else if (c == '!') param.mutated = true;
            else if (c == '~') param.hidden = true;
            else break;
        }
        char c = first ? end : *at;
        if (c == ':' && inputs) {
            gd_op_attr *attr = add_attr(r);
            at++;
            if (!attr) return false;
            if (!take_type(&at, attr)) return gd_record_fail(r, "no such type", at);
            attr->name = name;
            attr->required = true;
            attr->doc = "";
            r->order[r->n_order++] = ~(r->n_attrs - 1);
            c = *at;
        } else {
            if (*count == GD_RECORD_MAX) return gd_record_fail(r, "too many parameters at", name);
            if (inputs) r->order[r->n_order++] = *count;
            params[(*count)++] = param;
        }
        while (c == ' ') c = *++at;
        if (c == 0) break;
        if (c != ',') return gd_record_fail(r, "expected ',' after", name);
        s = gd_record_skip(at + 1);
    }
    return true;
}

static const struct {
    const char *text;
    unsigned flag;
} flags[] = {
    {"elementwise", GD_OP_ELEMENTWISE},
    {"view", GD_OP_VIEW},
    {"random", GD_OP_RANDOM},
    {"dynamic", GD_OP_DYNAMIC},
    {"nograd", GD_OP_NO_GRAD},
    {"internal", GD_OP_INTERNAL},
    {"float", GD_OP_FLOAT},
    {"predicate", GD_OP_PREDICATE},
    {"integral", GD_OP_INTEGRAL},
    {"opaque", GD_OP_OPAQUE},
    {"idempotent", GD_OP_IDEMPOTENT},
    {"involution", GD_OP_INVOLUTION},
    {"shapeonly", GD_OP_SHAPE_ONLY},
    {"heavy", GD_OP_HEAVY},
    {"strided_rows", GD_OP_STRIDED_ROWS},
    {"assigns", GD_OP_ASSIGNS},
    {"awaits", GD_OP_AWAITS},
    {"fallible", GD_OP_FALLIBLE},
    {"calls", GD_OP_CALLS},
    {"lowp", GD_OP_LOW_PRECISION},
    {"fullp", GD_OP_FULL_PRECISION},
    {"inplace", 0},
};

static bool parse_flags(gd_record *r, char *s) {
    char end;
    for (char *word; (word = gd_record_name(&s, &end));) {
        bool known = false;
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            if (strcmp(word, flags[i].text) == 0) {
                r->flags |= flags[i].flag;
                if (!flags[i].flag) r->inplace_too = true;
                known = true;
            }
        if (!known) return gd_record_fail(r, "no such flag", word);
        if (end == 0) break;
        s++;
    }
    return true;
}

/* Parses "NAME", "NAME(x, n:int)" or "NAME(x, n:int) -> y  of OP". */
static bool parse_factory_head(gd_record *r, char *line) {
    char *of = strstr(line, "  of ");
    if (of) {
        *of = 0;
        r->of = trim_spaces(of + 5);
    }
    char *arrow = strstr(line, "->");
    if (arrow) *arrow = 0;
    char *open = strchr(line, '('), *close = open ? strchr(open, ')') : NULL;
    if (open && !close) return gd_record_fail(r, "expected ')' in", line);
    if (open) *open = *close = 0;
    r->name = trim_spaces(line);
    if (name_length(r->name) != strlen(r->name) || !*r->name)
        return gd_record_fail(r, "bad name", r->name);
    if (open && !parse_params(r, open + 1, r->inputs, &r->n_inputs, true)) return false;
    return !arrow || parse_params(r, trim_spaces(arrow + 2), r->outputs, &r->n_outputs, false);
}

static bool parse_head(gd_record *r, char *line) {
    if (r->factory) return parse_factory_head(r, line);
    char *open = strchr(line, '('), *close = open ? strchr(open, ')') : NULL;
    if (!open || !close) return gd_record_fail(r, "expected name(inputs) -> outputs in", line);
    *open = *close = 0;
    r->name = trim_spaces(line);
    if (name_length(r->name) != strlen(r->name) || !*r->name)
        return gd_record_fail(r, "bad op name", r->name);
    if (!parse_params(r, open + 1, r->inputs, &r->n_inputs, true)) return false;
    char *arrow = strstr(close + 1, "->");
    if (!arrow) return gd_record_fail(r, "expected '->' in the head of", r->name);
    char *outputs = gd_record_skip(arrow + 2), *end = outputs;
    /* outputs end at two spaces or at the end of the line */
    while (*end && !(end[0] == ' ' && end[1] == ' ')) end++;
    bool more = *end != 0;
    *end = 0;
    if (!parse_params(r, trim_spaces(outputs), r->outputs, &r->n_outputs, false)) return false;
    return more ? parse_flags(r, end + 1) : true;
}

/* --- the other lines -------------------------------------------------------------------------- */

static bool parse_saves(gd_record *r, char *s) {
    char end;
    r->saves_in = r->saves_out = 0;
    for (char *name; (name = gd_record_name(&s, &end));) {
        bool known = strcmp(name, "nothing") == 0;
        for (int i = 0; i < r->n_inputs; i++)
            if (strcmp(name, r->inputs[i].name) == 0) r->saves_in |= 1u << i, known = true;
        for (int i = 0; i < r->n_outputs; i++)
            if (strcmp(name, r->outputs[i].name) == 0) r->saves_out |= 1u << i, known = true;
        if (!known) return gd_record_fail(r, "no such input or output", name);
        if (end == 0) break;
        while (*++s == ',' || *s == ' ') {
        }
    }
    return true;
}

/* Parses "a 1, b 1": an input, and the number for which the result is the other input. */
static bool parse_neutral(gd_record *r, char *s) {
    char end;
    if (r->n_inputs != 2)
        return gd_record_fail(r, "neutral numbers are for ops of two inputs, not for", r->name);
    for (char *name; (name = gd_record_name(&s, &end));) {
        const int at = gd_record_input(r, name);
        if (at < 0) return gd_record_fail(r, "no such input", name);
        gd_op_param *input = &r->inputs[at];
        char *number = end ? s + 1 : s, *after;
        input->neutral = gd_double_parse(number, &after);
        if (after == number) return gd_record_fail(r, "expected a number after", name);
        input->has_neutral = true;
        s = gd_record_skip(after);
        if (*s == 0) return true;
        if (*s != ',') return gd_record_fail(r, "expected ',' before", s);
        s = gd_record_skip(s + 1);
    }
    return gd_record_fail(r, "expected an input and a number at", s);
}

static bool parse_onnx(gd_record *r, char *s) { return gd_record_operators(r, "onnx", s); }
static bool parse_caffe(gd_record *r, char *s) { return gd_record_operators(r, "caffe", s); }

static bool parse_attr(gd_record *r, char *name, char *rest) {
    gd_op_attr *attr = add_attr(r);
    if (!attr) return false;
    if (!take_type(&rest, attr)) return gd_record_fail(r, "no such type", rest);
    attr->name = name;
    rest = gd_record_skip(rest);
    if (*rest != '=') return gd_record_fail(r, "expected '= default' for", name);
    char *value = gd_record_skip(rest + 1), *end = value;
    while (*end && !(end[0] == ' ' && end[1] == ' ')) end++;
    if (*end) *end++ = 0;
    attr->default_text = trim_spaces(value);
    attr->doc = trim_spaces(end);
    return true;
}

/* Parses "in_features x[-1]". */
static bool parse_finds(gd_record *r, char *s) {
    char end, *option = gd_record_name(&s, &end);
    if (!option || !end || r->n_finds == GD_MAX_FINDS)
        return gd_record_fail(r, "expected an option and a size at", s);
    s++;
    char *input = gd_record_name(&s, &end), *after;
    const int at = input ? gd_record_input(r, input) : -1;
    if (at < 0 || end != '[')
        return gd_record_fail(r, "expected a size such as x[1] after", option);
    const long axis = strtol(s + 1, &after, 10);
    if (*after != ']') return gd_record_fail(r, "expected a size such as x[1] after", option);
    r->finds[r->n_finds++] = (gd_record_find){option, at, (int)axis};
    return true;
}

/* Parses "of conv2d" or "of batch_norm but training". */
static bool parse_options_of(gd_record *r, char *s) {
    char end, *of = gd_record_name(&s, &end);
    if (!of || strcmp(of, "of") != 0 || !end)
        return gd_record_fail(r, "expected 'of' and an op at", s);
    s++;
    r->options_of = gd_record_name(&s, &end);
    if (!r->options_of) return gd_record_fail(r, "expected an op at", s);
    r->options_but = "";
    if (!end) return true;
    s = gd_record_skip(s + 1);
    if (strncmp(s, "but ", 4) != 0) return gd_record_fail(r, "expected 'but' at", s);
    r->options_but = s + 4;
    return true;
}

/* Names and arguments in Python; the generator reads the text (opgen/python.c). */
static bool parse_python(gd_record *r, char *s) {
    if (r->python) return gd_record_fail(r, "a second line python:", s);
    r->python = s;
    return true;
}

/* Lines that begin with a fixed word; all others are expressions and options. */
static const struct {
    const char *word;
    bool factories; /* only in records of layers and so on, not of ops */
    bool (*parse)(gd_record *r, char *rest);
} lines[] = {
    {"finds", true, parse_finds},    {"options", true, parse_options_of},
    {"saves", false, parse_saves},   {"neutral", false, parse_neutral},
    {"onnx", false, parse_onnx},     {"caffe", false, parse_caffe},
    {"python", false, parse_python},
};
enum { N_LINES = sizeof lines / sizeof *lines };

static bool is_line(const gd_record *r, int i, const char *name, const char *rest) {
    if (strcmp(name, lines[i].word) != 0 || (lines[i].factories && !r->factory)) return false;
    /* "options int = 1" is an option of that name */
    return lines[i].parse != parse_options_of || strncmp(rest, "of ", 3) == 0;
}

/* Parses an indented line. */
static bool parse_field(gd_record *r, char *line) {
    char end, *s = line, *name = gd_record_name(&s, &end);
    if (!name) return gd_record_fail(r, "expected a name at", line);
    char *rest = end ? s + 1 : s;
    if (end == ' ') rest = gd_record_skip(rest);
    for (int i = 0; i < N_LINES; i++)
        if (is_line(r, i, name, rest)) return lines[i].parse(r, rest);
    bool is_fact;
    if (!gd_record_fact(r, name, rest, &is_fact)) return false;
    if (is_fact) return true;
    if (*rest == '=' || end == '=') {
        if (r->n_exprs == GD_RECORD_MAX) return gd_record_fail(r, "too many expressions at", name);
        char *text = end == '=' ? rest : rest + 1;
        r->exprs[r->n_exprs++] = (gd_record_expr){name, trim_spaces(text)};
        return true;
    }
    const bool written = strncmp(rest, "tensor!?", 8) == 0;
    if (written || strncmp(rest, "tensor?", 7) == 0) {
        if (r->n_inputs == GD_RECORD_MAX) return gd_record_fail(r, "too many inputs at", name);
        r->input_docs[r->n_inputs] = trim_spaces(rest + (written ? 8 : 7));
        r->inputs[r->n_inputs++] =
            (gd_op_param){.name = name, .optional = true, .option = true, .mutated = written};
        return true;
    }
    return parse_attr(r, name, rest);
}

void gd_record_each_word(void (*visit)(const char *word)) {
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) visit(flags[i].text);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) visit(types[i].text);
    for (int i = 0; i < N_LINES; i++) visit(lines[i].word);
    visit("tensor?");
    visit("tensor!?");
    gd_record_each_operator_word(visit);
    gd_record_each_fact(visit);
}

/* Whether `name` occurs as a word in `text`. */
static bool contains_word(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *s = text; (s = strstr(s, name)) != NULL; s += n) {
        bool starts = s == text || !(gd_is_alnum(s[-1]) || s[-1] == '_');
        if (starts && !gd_is_alnum(s[n]) && s[n] != '_') return true;
    }
    return false;
}

/* Every expression must define an output, a gradient, or a name that a later expression uses. */
static bool check_exprs(gd_record *r) {
    for (int i = 0; i < r->n_exprs; i++) {
        const char *name = r->exprs[i].name;
        bool used = false;
        for (int k = 0; k < r->n_outputs; k++) used |= strcmp(name, r->outputs[k].name) == 0;
        for (int k = 0; k < r->n_inputs; k++) {
            used |= name[0] == 'g' && strcmp(name + 1, r->inputs[k].name) == 0;
            used |= r->inputs[k].mutated && strcmp(name, r->inputs[k].name) == 0;
        }
        for (int k = i + 1; k < r->n_exprs; k++) used |= contains_word(r->exprs[k].text, name);
        if (!used)
            return gd_record_fail(
                r, "not an output, a gradient, or used by a later expression:", name);
    }
    return true;
}

static bool parse_record(gd_record *r, char *text, bool factory) {
    *r = (gd_record){
        .text = text, .name = "", .doc = "", .onnx.name = "", .caffe.name = "", .factory = factory};
    r->saves_in = ~0u;
    char *doc_end = NULL;
    int number = 1, joined;
    for (char *line = text, *next; line; line = next, number += 1 + joined) {
        char *end = gd_record_join_operator(r, line, &joined);
        next = *end ? end + 1 : NULL;
        *end = 0;
        r->error_line = number;
        size_t indent = strspn(line, " ");
        char *body = trim_spaces(line);
        if (!*body) continue;
        if (!*r->name) {
            if (!parse_head(r, body)) return false;
        } else if (indent >= 2) {
            if (!parse_field(r, body)) return false;
        } else if (!*r->doc) {
            r->doc = body;
            doc_end = body + strlen(body);
        } else { /* another line of documentation: append it to those before */
            *doc_end = '\n';
            memmove(doc_end + 1, body, strlen(body) + 1);
            doc_end += 1 + strlen(doc_end + 1);
        }
    }
    if (!*r->name) return gd_record_fail(r, "the record is empty", "");
    /* options that are tensors are the last inputs, so an op with a variadic input has none */
    for (int i = 0; i + 1 < r->n_inputs; i++)
        if (r->inputs[i].variadic)
            return gd_record_fail(r, "only the last input can be variadic in", r->name);
    if ((r->flags & (GD_OP_IDEMPOTENT | GD_OP_INVOLUTION)) &&
        (r->n_inputs != 1 || r->n_outputs != 1))
        return gd_record_fail(
            r, "only ops of one input and one output are idempotent or involutions:", r->name);
    for (int i = 0; i < r->n_attrs && !factory; i++) /* graphs and ONNX files cannot store them */
        if (r->attrs[i].type == GD_ATTR_FLOATS)
            return gd_record_fail(r, "an op cannot have a list of floats:", r->attrs[i].name);
    if ((r->flags & GD_OP_ELEMENTWISE) && r->n_exprs == 0)
        return gd_record_fail(r, "an elementwise op needs an expression:", r->name);
    return check_exprs(r) && (factory || gd_record_check_operators(r));
}

bool gd_record_add_options(gd_record *r, const gd_op_attr *attrs, int count) {
    for (int i = 0; i < count; i++) {
        bool known = contains_word(r->options_but, attrs[i].name);
        for (int k = 0; k < r->n_attrs; k++) known |= strcmp(r->attrs[k].name, attrs[i].name) == 0;
        if (known || attrs[i].type == GD_ATTR_GRAPH) continue;
        gd_op_attr *attr = add_attr(r);
        if (!attr) return false;
        *attr = attrs[i];
        if (attr->required)
            return gd_record_fail(r,
                                  "a required option of the op must be an argument:", attr->name);
    }
    return true;
}

bool gd_record_parse_factory(gd_record *r, char *text) { return parse_record(r, text, true); }

bool gd_record_parse(gd_record *r, char *text) { return parse_record(r, text, false); }

/* --- expressions ------------------------------------------------------------------------------ */

/* The meaning of names in an expression. */
typedef struct {
    const gd_record *r;
    int first_input, first_output, first_grad; /* their first variables; -1: not allowed */
    int output_node[GD_IR_MAX_OUTPUTS];        /* forward: an output may use an earlier one */
    int visible;                               /* the first `visible` expressions may be used */
} name_scope;

/* Looks up a name. The name of an expression that is neither an output nor a gradient stands for
 * the expression in all later ones. */
static int lookup_name(gd_ir_builder *b, void *context, const char *name, size_t length) {
    name_scope *n = context;
    const gd_record *r = n->r;
#define IS(text) (strlen(text) == length && memcmp(text, name, length) == 0)
    for (int i = 0; i < r->n_inputs; i++)
        if (IS(r->inputs[i].name)) return gd_ir_var(b, n->first_input + i);
    for (int i = 0; i < r->n_attrs; i++)
        if (IS(r->attrs[i].name)) return gd_ir_param(b, i);
    for (int i = 0; i < r->n_outputs; i++) {
        if (IS(r->outputs[i].name))
            return n->first_output >= 0 ? gd_ir_var(b, n->first_output + i) : n->output_node[i];
        if (n->first_grad >= 0 && name[0] == 'g' && length > 1 &&
            strlen(r->outputs[i].name) == length - 1 &&
            memcmp(r->outputs[i].name, name + 1, length - 1) == 0)
            return gd_ir_var(b, n->first_grad + i);
    }
    for (int i = n->visible - 1; i >= 0; i--)
        if (IS(r->exprs[i].name)) {
            name_scope above = *n;
            above.visible = i;
            return gd_ir_parse(b, r->exprs[i].text, lookup_name, &above);
        }
#undef IS
    return -1;
}

/* The expression of a name, which is prefix + name. */
static const char *find_expression(const gd_record *r, const char *prefix, const char *name) {
    for (int i = 0; i < r->n_exprs; i++) {
        size_t n = strlen(prefix);
        if (strncmp(r->exprs[i].name, prefix, n) == 0 && strcmp(r->exprs[i].name + n, name) == 0)
            return r->exprs[i].text;
    }
    return NULL;
}

/* Lists the results that an elementwise op computes: its outputs that are not mutated inputs, then
 * the mutated inputs. */
static int list_results(const gd_record *r, const char **list) {
    int n = 0;
    for (int i = 0; i < r->n_outputs; i++) {
        bool written = false;
        for (int k = 0; k < r->n_inputs; k++)
            written |= r->inputs[k].mutated && strcmp(r->inputs[k].name, r->outputs[i].name) == 0;
        if (!written) list[n++] = r->outputs[i].name;
    }
    for (int k = 0; k < r->n_inputs; k++)
        if (r->inputs[k].mutated) list[n++] = r->inputs[k].name;
    return n;
}

bool gd_record_forward(gd_record *r, gd_ir *ir, gd_ir_node *nodes) {
    gd_ir_builder b = {.count = 0};
    name_scope n = {.r = r, .first_output = -1, .first_grad = -1, .visible = r->n_exprs};
    for (int i = 0; i < GD_IR_MAX_OUTPUTS; i++) n.output_node[i] = -1;
    const char *list[2 * GD_RECORD_MAX];
    const int count = list_results(r, list);
    if (count > GD_IR_MAX_OUTPUTS) return gd_record_fail(r, "too many outputs in", r->name);
    for (int i = 0; i < count; i++) {
        const char *text = find_expression(r, "", list[i]);
        if (!text) return gd_record_fail(r, "no expression for output", list[i]);
        n.output_node[i] = gd_ir_parse(&b, text, lookup_name, &n);
        if (n.output_node[i] < 0) return gd_record_fail(r, "in the expression:", b.error);
    }
    *ir = gd_ir_finish(&b, n.output_node, count, nodes);
    ir->n_vars = r->n_inputs;
    return true;
}

/* Derives the gradient by an input. Results are computed again from the inputs. */
bool gd_ir_gradient(const gd_ir *forward, int n_inputs, int input, gd_ir *ir, gd_ir_node *nodes) {
    gd_ir_builder b = {.count = 0};
    int vars[2 * GD_RECORD_MAX], sum = -1;
    for (int i = 0; i < n_inputs; i++) vars[i] = gd_ir_var(&b, forward->n_outputs + i);
    for (int k = 0; k < forward->n_outputs; k++) {
        int y = gd_ir_inline(&b, forward, k, vars, NULL);
        int part = gd_ir_derivative(&b, y, gd_ir_var(&b, k), forward->n_outputs + input);
        if (y < 0 || part < 0) return false;
        sum = sum < 0 ? part : gd_ir_apply(&b, "add", sum, part, -1);
    }
    if (sum < 0) return false;
    *ir = gd_ir_finish(&b, &sum, 1, nodes);
    return true;
}

bool gd_ir_unless(const gd_ir *forward, const gd_op_param *inputs, int n_inputs, gd_ir *ir,
                  gd_ir_node *nodes) {
    gd_ir_builder b = {.count = 0};
    int vars[2 * GD_RECORD_MAX], outputs[GD_IR_MAX_OUTPUTS], n_written = 0;
    for (int i = 0; i < n_inputs; i++) {
        vars[i] = gd_ir_var(&b, i);
        n_written += inputs[i].mutated;
    }
    const int skip = gd_ir_var(&b, n_inputs);
    for (int k = 0; k < forward->n_outputs; k++)
        outputs[k] = gd_ir_inline(&b, forward, k, vars, NULL);
    int k = forward->n_outputs - n_written; /* mutated inputs are the last results */
    for (int i = 0; i < n_inputs; i++) {
        if (!inputs[i].mutated) continue;
        outputs[k] = gd_ir_apply(&b, "where", skip, vars[i], outputs[k]);
        k++;
    }
    if (b.error[0]) return false;
    *ir = gd_ir_finish(&b, outputs, forward->n_outputs, nodes);
    ir->n_vars = n_inputs + 1;
    return true;
}

bool gd_record_gradient(gd_record *r, int input, gd_ir *ir, gd_ir_node *nodes) {
    const char *text =
        r->flags & GD_OP_NO_GRAD ? "0" : find_expression(r, "g", r->inputs[input].name);
    if (!text) {
        gd_ir_node forward_nodes[GD_IR_MAX_NODES];
        gd_ir forward;
        if (!gd_record_forward(r, &forward, forward_nodes)) return false;
        if (!gd_ir_gradient(&forward, r->n_inputs, input, ir, nodes))
            return gd_record_fail(r, "cannot differentiate", r->name);
        return true;
    }
    gd_ir_builder b = {.count = 0};
    name_scope n = {.r = r,
                    .first_input = r->n_outputs,
                    .first_output = r->n_outputs + r->n_inputs,
                    .visible = r->n_exprs};
    int node = gd_ir_parse(&b, text, lookup_name, &n);
    if (node < 0) return gd_record_fail(r, "in the gradient:", b.error);
    *ir = gd_ir_finish(&b, &node, 1, nodes);
    return true;
}

int gd_ir_compact(gd_ir *ir, gd_ir_node *nodes, int *used) {
    int map[4 * GD_RECORD_MAX], count = 0;
    for (int v = 0; v < 4 * GD_RECORD_MAX; v++)
        if (gd_ir_uses_var(ir, v)) {
            map[v] = count;
            used[count++] = v;
        }
    for (int i = 0; i < ir->count; i++)
        if (nodes[i].code == GD_IR_VAR) nodes[i].arg[0] = (int16_t)map[nodes[i].arg[0]];
    ir->n_vars = count;
    return count;
}

uint64_t gd_ir_hash(const gd_ir *ir) {
    uint64_t h = 1469598103934665603u; /* FNV-1a over the fields, primitives by name */
#define MIX(p, n)                             \
    for (size_t mix_ = 0; mix_ < (n); mix_++) \
    h = (h ^ ((const unsigned char *)(p))[mix_]) * 1099511628211u
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *n = &ir->nodes[i];
        const char *name = n->code == GD_IR_CONST   ? "#"
                           : n->code == GD_IR_VAR   ? "$"
                           : n->code == GD_IR_PARAM ? "%"
                                                    : gd_prims[n->code - GD_IR_PRIM].name;
        MIX(name, strlen(name));
        MIX(n->arg, sizeof n->arg);
        MIX(&n->value, sizeof n->value);
    }
    MIX(ir->output, sizeof ir->output[0] * (size_t)ir->n_outputs);
#undef MIX
    return h;
}
