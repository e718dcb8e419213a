/* record_operator.c - parses the lines of a record that name operators of other systems:
 *
 *     onnx Gather(x, index) axis=axis~0  when x:rank>0 index:int  cast -i
 *     onnx Concat axis=axis   caffe Concat axis=axis concat_dim=axis
 *
 * The words are those of operator_text.h. Inputs are in parentheses, with commas between them; the
 * attributes follow. Lines below that are indented further continue the text. */
#include <stdio.h>
#include <string.h>

#include "codegen/record_text.h"
#include "core/ascii.h"

static bool is_word(const char *s, size_t length, const char *word) {
    return strlen(word) == length && memcmp(s, word, length) == 0;
}

static size_t word_length(const char *s) { return strcspn(s, " \t\n"); }

/* The text of a system, which the word at s names; NULL: it names none. */
static gd_operator_text *find_system(gd_record *r, const char *s, size_t length) {
    if (is_word(s, length, "onnx")) return &r->onnx;
    return is_word(s, length, "caffe") ? &r->caffe : NULL;
}

/* The list that the word at s begins; NULL: none. */
static const char **find_list(gd_operator_text *t, const char *s, size_t length) {
    if (is_word(s, length, "when")) return &t->when;
    return is_word(s, length, "cast") ? &t->cast : NULL;
}

void gd_record_each_operator_word(void (*visit)(const char *word)) {
    visit("when");
    visit("cast");
}

char *gd_record_join_operator(gd_record *r, char *line, int *joined) {
    const size_t indent = strspn(line, " ");
    char *end = line + strcspn(line, "\n");
    *joined = 0;
    if (indent < 2 || !find_system(r, line + indent, word_length(line + indent))) return end;
    for (; *end && strspn(end + 1, " ") > indent; ++*joined) {
        *end = ' ';
        end += strcspn(end, "\n");
    }
    return end;
}

/* Parses the name, and the inputs in parentheses. Returns the text behind them; NULL: failed. */
static char *take_name(gd_record *r, gd_operator_text *t, char *s) {
    char *name = s = gd_record_skip(s);
    while (gd_is_alnum(*s) || *s == '_') s++;
    if (!gd_is_alpha(*name) || (*s && *s != '(' && *s != ' '))
        return gd_record_fail(r, "expected an operator at", name), NULL;
    char *open = *s == '(' ? s : NULL, *close = open ? strchr(open, ')') : NULL;
    if (open && (!close || (close[1] && close[1] != ' ')))
        return gd_record_fail(r, "expected ')' and a space in", name), NULL;
    t->name = name;
    if (!open) return s;
    *open = *close = '\0';
    t->inputs = open + 1;
    for (char *c = open + 1; c < close; c++)
        if (*c == ',') *c = ' ';
    return close + 1;
}

/* Parses one operator. Returns the text behind it: the word of another system, or "". NULL:
 * failed. */
static char *take_operator(gd_record *r, gd_operator_text *t, char *s) {
    if (t->name && *t->name) return gd_record_fail(r, "a second operator:", s), NULL;
    char *end = take_name(r, t, s); /* of the name or list so far */
    const char **list = &t->attributes;
    if (!(s = end)) return NULL;
    for (;;) {
        s = gd_record_skip(s);
        const size_t length = word_length(s);
        const char **next = length ? find_list(t, s, length) : NULL;
        const bool done = length == 0 || find_system(r, s, length);
        if ((next || done) && list != &t->attributes && !*list)
            return gd_record_fail(r, "an empty list before the end, or before", s), NULL;
        if (next && *next) return gd_record_fail(r, "a second list:", s), NULL;
        if (done) break;
        if (next) list = next;
        else {
            if (!*list) *end = '\0', *list = s;
            end = s + length;
        }
        s += length;
    }
    *end = '\0';
    return s;
}

bool gd_record_operators(gd_record *r, const char *system, char *s) {
    gd_operator_text *t = find_system(r, system, strlen(system));
    while (t) {
        *(t == &r->onnx ? &r->onnx_line : &r->caffe_line) = r->error_line;
        if (!(s = take_operator(r, t, s))) return false;
        const size_t length = word_length(s);
        t = find_system(r, s, length);
        s += length;
    }
    return true;
}

bool gd_record_check_operators(gd_record *r) {
    const gd_operator_owner owner = {r->inputs, r->n_inputs, r->attrs, r->n_attrs, false};
    const struct {
        const char *system;
        const gd_operator_text *text;
        int line;
    } lines[] = {{"onnx", &r->onnx, r->onnx_line}, {"caffe", &r->caffe, r->caffe_line}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char error[128];
        if (gd_operator_check(lines[i].text, &owner, error, sizeof error)) continue;
        if (!r->error[0])
            snprintf(r->error, sizeof r->error, "%s %.40s: %s", lines[i].system,
                     lines[i].text->name, error);
        r->error_line = lines[i].line;
        return false;
    }
    return true;
}
