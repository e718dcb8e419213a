/* record_facts.c - parses the lines of a record that set the facts of facts.h. */
#include <stdlib.h>
#include <string.h>

#include "codegen/record_text.h"

/* The index of the word at s in a list of words; -1: it is none of them. */
static int word_index(const char *const *words, int n, char *s) {
    char end, *word = gd_record_name(&s, &end);
    for (int i = 0; i < n && word; i++)
        if (strcmp(word, words[i]) == 0) return i;
    return -1;
}

enum { CONTROL_WORDS = 4, REDUCES_WORDS = 4 };
static const char *const control_words[CONTROL_WORDS] = {"branch", "while", "scan", "gradients"};
static const char *const reduces_words[REDUCES_WORDS] = {"sum", "mean", "max", "min"};

static bool parse_control(gd_record *r, char *s) {
    const int which = word_index(control_words, CONTROL_WORDS, s);
    if (which < 0) return gd_record_fail(r, "control is branch, while, scan or gradients, not", s);
    if (!(r->flags & GD_OP_OPAQUE))
        return gd_record_fail(r, "control is for ops that are 'opaque', not", r->name);
    r->facts.control = (gd_op_control)(GD_CONTROL_BRANCH + which);
    return true;
}

static bool parse_reduces(gd_record *r, char *s) {
    const int which = word_index(reduces_words, REDUCES_WORDS, s);
    if (which < 0) return gd_record_fail(r, "reduces is sum, mean, max or min, not", s);
    if (r->n_inputs != 1 || r->n_outputs != 1)
        return gd_record_fail(r, "only ops of one input and one output reduce:", r->name);
    r->facts.reduces = (gd_op_reduces)(GD_REDUCES_SUM + which);
    return true;
}

static bool parse_fills(gd_record *r, char *s) {
    char end, *name = gd_record_name(&s, &end);
    for (int i = 0; i < r->n_attrs && name; i++)
        if (strcmp(name, r->attrs[i].name) == 0 && r->attrs[i].type == GD_ATTR_NUMBER)
            r->facts.fills = name;
    return r->facts.fills ? true : gd_record_fail(r, "no option of type number:", name ? name : s);
}

/* --- fuses ------------------------------------------------------------------------------------ */

/* Parses the ops before '(', "conv1d|conv2d (" or "relu.gx(", into names with spaces between them.
 * Returns the text after '('. */
static char *take_ops(char *s, char **names) {
    char *open = strchr(s = gd_record_skip(s), '('), *to = s;
    if (!open || open == s) return NULL;
    for (char *c = s; c < open; c++)
        if (*c == '|') *to++ = ' ';
        else if (*c != ' ') *to++ = *c;
    *to = 0;
    *names = s;
    return open + 1;
}

/* Parses operands up to ')': inputs of the op and, if `call` is not NULL, one call of another op.
 * `other` is the number for names that are no inputs; 0: they are an error. Returns the text after
 * ')'. */
static char *take_operands(gd_record *r, char *s, int8_t *in, int *n, int other,
                           gd_op_fuses *call) {
    for (char end = ','; end == ','; ++*n) {
        const size_t length = strcspn(s, ",()");
        int input = GD_FUSES_INNER;
        if (*n == GD_FUSES_INPUTS) return NULL;
        if (s[length] == '(' && call && !call->inner) {
            s = take_ops(s, (char **)(void *)&call->inner);
            s = s ? take_operands(r, s, call->inner_in, &call->n_inner, other, NULL) : NULL;
            if (!s) return NULL;
            end = *(s = gd_record_skip(s));
        } else {
            char *name = gd_record_name(&s, &end);
            input = name ? gd_record_input(r, name) : -1;
            if (input < 0 && call) return NULL;
            if (input < 0 && !(input = other)) return NULL;
            if (end == ' ') end = *(s = gd_record_skip(s + 1));
        }
        if (end != ',' && end != ')') return NULL;
        in[*n] = (int8_t)input;
        s++;
    }
    return s;
}

/* Parses "outer(inner(inputs), inputs)". */
static bool parse_pair(gd_record *r, char *text, int other, gd_op_fuses *f) {
    char *s = take_ops(text, (char **)(void *)&f->outer);
    for (int i = 0; i < r->n_inputs + r->n_outputs; i++)
        if (i < r->n_inputs ? r->inputs[i].variadic : r->outputs[i - r->n_inputs].variadic)
            return gd_record_fail(r, "an op with variadic inputs or outputs cannot fuse:", r->name);
    if (s) s = take_operands(r, s, f->outer_in, &f->n_outer, other, f);
    return s && f->inner ? true
                         : gd_record_fail(r, "expected outer(inner(inputs), inputs) in", text);
}

static bool parse_fuses(gd_record *r, char *text) {
    return parse_pair(r, text, 0, &r->facts.fuses);
}
static bool parse_folds(gd_record *r, char *text) {
    return parse_pair(r, text, GD_FUSES_OTHER, &r->facts.folds);
}

/* --- index ------------------------------------------------------------------------------------ */

static const gd_op_attr *find_attr(const gd_record *r, const char *name) {
    for (int i = 0; i < r->n_attrs && name; i++)
        if (strcmp(name, r->attrs[i].name) == 0) return &r->attrs[i];
    return NULL;
}

static bool is_int(const gd_op_attr *a) { return a && a->type == GD_ATTR_INT; }

/* Parses "axis]", "1]" or "-2:]". Returns the text after it. */
static char *take_axis(gd_record *r, gd_op_index *f, char *s) {
    char *close = strchr(s, ']'), *after;
    if (!close) return gd_record_fail(r, "expected ']' after", s), NULL;
    *close = 0;
    f->axis = (int)strtol(s, &after, 10);
    f->and_behind = after != s && strcmp(after, ":") == 0;
    if (after == s) f->axis_option = s;
    const bool is_axis = f->and_behind || (*after == 0 && f->axis >= 0);
    if (after == s ? !is_int(find_attr(r, s)) : !is_axis)
        return gd_record_fail(r, "no such axis", s), NULL;
    return close + 1;
}

/* Parses "or ignore_index", "or -1", or nothing. */
static bool take_exception(gd_record *r, gd_op_index *f, char *s) {
    char end, *after;
    s = gd_record_skip(s);
    if (strncmp(s, "or ", 3) != 0) return true;
    f->number = strtol(s += 3, &after, 10);
    f->or_number = after != s;
    if (f->or_number) return true;
    f->but = gd_record_name(&s, &end);
    return is_int(find_attr(r, f->but))
               ? true
               : gd_record_fail(r, "no such option of type int:", f->but ? f->but : s);
}

/* Parses the text after the tensor's name, which was followed by `end`: "< x[axis]",
 * "< x[1] or ignore_index" or "< classes". */
static bool take_size(gd_record *r, gd_op_index *f, char *s, char end) {
    if (end != '<') s = gd_record_skip(end ? s + 1 : s), end = *s;
    if (end != '<') return gd_record_fail(r, "expected '<' before", s);
    s++;
    const char *name = gd_record_name(&s, &end);
    f->of = name ? gd_record_input(r, name) : -1;
    const gd_op_attr *size = f->of < 0 ? find_attr(r, name) : NULL;
    if (f->of < 0 && !size) return gd_record_fail(r, "no such input or option:", name ? name : s);
    if (size) f->size = name;
    if (end) s++;
    f->is_number = end != '[';
    if (!f->is_number && !(s = take_axis(r, f, s))) return false;
    if (f->is_number ? !is_int(size) : size && size->type != GD_ATTR_SHAPE)
        return gd_record_fail(r,
                              "expected an axis of a tensor, an entry of a list, or an int:", name);
    return take_exception(r, f, s);
}

static bool parse_index(gd_record *r, char *s) {
    char end, *name = gd_record_name(&s, &end);
    gd_op_index *f = &r->facts.index;
    *f = (gd_op_index){.tensor = name ? gd_record_input(r, name) : -1};
    if (f->tensor < 0) return gd_record_fail(r, "no such input", name ? name : s);
    return r->facts.checks = take_size(r, f, s, end);
}

static bool parse_gives(gd_record *r, char *s) {
    char end, *name = gd_record_name(&s, &end);
    gd_op_index *f = &r->facts.gives;
    *f = (gd_op_index){.tensor = -1};
    for (int i = 0; i < r->n_outputs && name; i++)
        if (strcmp(name, r->outputs[i].name) == 0) f->tensor = i;
    if (f->tensor < 0) return gd_record_fail(r, "no such output", name ? name : s);
    return r->facts.makes_indices = take_size(r, f, s, end);
}

static const struct {
    const char *word;
    bool (*parse)(gd_record *r, char *rest);
} facts[] = {
    {"control", parse_control}, {"reduces", parse_reduces}, {"fills", parse_fills},
    {"fuses", parse_fuses},     {"folds", parse_folds},     {"index", parse_index},
    {"gives", parse_gives},
};
enum { N_FACTS = sizeof facts / sizeof *facts };

bool gd_record_fact(gd_record *r, const char *word, char *rest, bool *is_fact) {
    for (int i = 0; i < N_FACTS; i++) {
        *is_fact = strcmp(word, facts[i].word) == 0;
        if (*is_fact) return facts[i].parse(r, rest);
    }
    return true;
}

void gd_record_each_fact(void (*visit)(const char *word)) {
    for (int i = 0; i < N_FACTS; i++) visit(facts[i].word);
    for (int i = 0; i < CONTROL_WORDS; i++) visit(control_words[i]);
    for (int i = 0; i < REDUCES_WORDS; i++) visit(reduces_words[i]);
}
