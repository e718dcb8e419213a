/* operator_check.c - checks operator texts (operator_text.h) against the record of their op.
 *
 * Order: the values of options; the words of each list; a text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/operator_text.h"
#include "core/ascii.h"
#include "core/number.h"

/* --- the values of options -------------------------------------------------------------------- */

static const gd_op_param *find_input(const gd_operator_owner *op, const char *name) {
    for (int i = 0; i < op->n_inputs; i++)
        if (strcmp(op->inputs[i].name, name) == 0) return &op->inputs[i];
    return NULL;
}

static const gd_op_attr *find_option(const gd_operator_owner *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, name) == 0) return &op->attrs[i];
    return NULL;
}

static bool has_integers(const gd_op_attr *option) {
    return option->type == GD_ATTR_INT || option->type == GD_ATTR_INTS ||
           option->type == GD_ATTR_SHAPE;
}

static bool is_one_of(const char *words, const char *word) {
    char known[GD_OPERATOR_WORD];
    while (gd_operator_next_word(&words, known, sizeof known))
        if (strcmp(known, word) == 0) return true;
    return false;
}

static bool is_integers(const char *text, bool list) {
    for (char *end;; text = end + 1) {
        strtoll(text, &end, 10);
        if (end == text || (*end && !(list && *end == ','))) return false;
        if (!*end) return true;
    }
}

/* Whether gd_attrs_put_text takes this text for the option. */
static bool is_value(const gd_op_attr *option, const char *text) {
    char *end;
    const bool none = strcmp(text, "none") == 0;
    switch (option->type) {
    case GD_ATTR_INT: return none || is_integers(text, false);
    case GD_ATTR_INTS: return is_integers(text, true);
    case GD_ATTR_SHAPE: return none || is_integers(text, true);
    case GD_ATTR_FLOAT:
    case GD_ATTR_NUMBER: gd_double_parse(text, &end); return none || (end != text && !*end);
    case GD_ATTR_BOOL: return is_one_of("true false 1 0", text);
    case GD_ATTR_WORD: return is_one_of(option->words, text);
    case GD_ATTR_DTYPE: return gd_dtype_from_name(text) != GD_DTYPE_NONE;
    case GD_ATTR_STRING: return true;
    default: return false;
    }
}

/* --- words ------------------------------------------------------------------------------------ */

/* Each function returns what is wrong with a word, or NULL. */

/* Conversions that apply to any op, and those that read options or inputs of one op, which only
 * the library's own table can use. */
static const char any_conversion[] = "all broadcast nonnegative pads trailing_axes",
                  op_conversion[] = "first last output_sizes same_pads";

static const char *check_conversion(const gd_operator_owner *op, const gd_op_attr *option,
                                    const char *conversion) {
    if (!conversion[0]) return NULL;
    if (!has_integers(option)) return "only lists of integers are converted:";
    if (is_one_of(op_conversion, conversion) && op->in_table) return NULL;
    return is_one_of(any_conversion, conversion) && op->n_inputs ? NULL : "no such conversion:";
}

static const char *check_input(const gd_operator_owner *op, const char *word) {
    gd_operator_input i;
    gd_operator_next_input(&word, &i);
    const gd_op_param *input = find_input(op, i.ours);
    const gd_op_attr *option = find_option(op, i.ours);
    if (i.bad) return "not an input:";
    if (i.kind != GD_OPERATOR_TENSOR) {
        if (!option) return "no such option:";
        if (i.has_fill) return "only an input can be filled:";
        if (i.kind == GD_OPERATOR_LIST)
            return has_integers(option) ? check_conversion(op, option, i.conversion)
                                        : "the option has no integers:";
        const bool is_number = option->type == GD_ATTR_INT || option->type == GD_ATTR_FLOAT ||
                               option->type == GD_ATTR_NUMBER;
        return is_number && !i.conversion[0] ? NULL : "the option is not one number:";
    }
    if (!input) return "no such input:";
    if (input->variadic) return "an input of any number of tensors cannot be named:";
    if (i.conversion[0]) return "an input cannot be converted:";
    return i.has_fill && !input->optional ? "an input that is not optional cannot be filled:"
                                          : NULL;
}

/* ",replicate:edge,circular:wrap" */
static const char *check_renames(const gd_op_attr *option, const char *renames) {
    char ours[GD_OPERATOR_WORD];
    if (*renames && option->type != GD_ATTR_WORD) return "only words have other names:";
    while (*renames) {
        const size_t word = strcspn(renames + 1, ":,"), all = strcspn(renames + 1, ",");
        snprintf(ours, sizeof ours, "%.*s", (int)word, renames + 1);
        if (word == all || word + 1 == all || !is_one_of(option->words, ours))
            return "no such word of the option:";
        if (all - word > GD_OPERATOR_WORD) return "too long a word:";
        renames += 1 + all;
    }
    return NULL;
}

static const char *check_attribute(const gd_operator_owner *op, const char *word) {
    gd_operator_attribute a;
    gd_operator_next_attribute(&word, &a);
    const gd_op_attr *option = find_option(op, a.ours), *other = find_option(op, a.fallback);
    if (a.bad) return "not an attribute:";
    for (const char *s = a.theirs; *s; s++)
        if (!gd_is_alnum(*s) && *s != '_') return "not an attribute:";
    if (!a.ours[0]) return NULL;
    if (!option) return "no such option:";
    if (option->type == GD_ATTR_GRAPH || option->type == GD_ATTR_FLOATS)
        return "an attribute cannot hold this option:";
    if (a.fallback[0] && (!other || !has_integers(other) || !has_integers(option)))
        return "no such list of integers:";
    if (a.twice && !has_integers(option)) return "only lists of integers are repeated:";
    if (a.their_default[0] && !is_value(option, a.their_default))
        return "not a value of the option:";
    const char *what = check_renames(option, a.renames);
    return what ? what : check_conversion(op, option, a.conversion);
}

static const char *check_condition(const gd_operator_owner *op, const char *word) {
    gd_operator_condition c;
    gd_operator_next_condition(&word, &c);
    const gd_op_attr *option = find_option(op, c.name);
    if (c.bad) return "not a condition:";
    if (c.kind == GD_OPERATOR_SAVING) return NULL;
    if (c.kind == GD_OPERATOR_OPTION) {
        if (!option) return "no such option:";
        return is_value(option, c.value) ? NULL : "not a value of the option:";
    }
    if (!find_input(op, c.name)) return "no such input:";
    const bool has_rank = c.kind == GD_OPERATOR_RANK_IS || c.kind == GD_OPERATOR_RANK_ABOVE;
    if (has_rank && !is_integers(c.value, false)) return "not a rank:";
    if (c.kind == GD_OPERATOR_SAME_RANK && !find_input(op, c.value)) return "no such input:";
    const bool is_dtype =
        c.kind != GD_OPERATOR_IS_DTYPE || gd_dtype_from_name(c.value) != GD_DTYPE_NONE;
    return is_dtype ? NULL : "no such dtype:";
}

static const char *check_cast(const gd_operator_owner *op, const char *letters) {
    if (strspn(letters, "ybiwpo-") != strlen(letters)) return "no such cast:";
    return strlen(letters) > (size_t)op->n_inputs ? "more letters than inputs:" : NULL;
}

/* --- a text ----------------------------------------------------------------------------------- */

static bool fail(char *error, size_t size, const char *what, const char *word) {
    snprintf(error, size, "%s '%s'", what, word);
    return false;
}

typedef const char *(*check_word)(const gd_operator_owner *op, const char *word);

static bool check_list(const gd_operator_owner *op, const char *list, check_word check, char *error,
                       size_t size) {
    char word[GD_OPERATOR_MAX + 1];
    while (gd_operator_next_word(&list, word, sizeof word)) {
        const char *what = check(op, word);
        if (what) return fail(error, size, what, word);
    }
    return true;
}

static bool check_repeats(const char *attributes, char *error, size_t size) {
    gd_operator_attribute a, other;
    while (gd_operator_next_attribute(&attributes, &a))
        for (const char *rest = attributes; gd_operator_next_attribute(&rest, &other);)
            if (strcmp(a.theirs, other.theirs) == 0)
                return fail(error, size, "two attributes of one name:", a.theirs);
    return true;
}

bool gd_operator_check(const gd_operator_text *t, const gd_operator_owner *op, char *error,
                       size_t size) {
    const char *what;
    return check_list(op, t->inputs, check_input, error, size) &&
           check_list(op, t->attributes, check_attribute, error, size) &&
           check_repeats(t->attributes, error, size) &&
           check_list(op, t->when, check_condition, error, size) &&
           (!t->cast || !(what = check_cast(op, t->cast)) || fail(error, size, what, t->cast));
}
