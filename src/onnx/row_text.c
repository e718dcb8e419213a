/* row_text.c - parses the words of table rows (operator_table.h), and finds the inputs and options
 * that they name in the records of ops. */
#include <string.h>

#include "onnx/operator_table.h"
#include "dispatch/infer.h"

/* --- words of a row --------------------------------------------------------------------------- */

/* Copies the next word and moves *text behind it; false at the end. */
static bool next_word(const char **text, char *word, size_t size) {
    const char *s = *text ? *text : "";
    while (*s == ' ') s++;
    const size_t length = strcspn(s, " ");
    *text = s + length;
    if (length == 0 || length >= size) return false;
    memcpy(word, s, length);
    word[length] = '\0';
    return true;
}

/* Cuts `word` at `mark` and moves the text behind it to `part`; false if there is no `mark`. */
static bool cut_word(char *word, char mark, char *part, size_t size) {
    char *at = strchr(word, mark);
    part[0] = '\0';
    if (!at) return false;
    *at = '\0';
    const size_t length = strlen(at + 1);
    if (length < size) memcpy(part, at + 1, length + 1);
    return true;
}

bool gd_onnx_next_input(const char **text, gd_onnx_input *i) {
    char word[3 * GD_ONNX_WORD], part[3 * GD_ONNX_WORD];
    if (!next_word(text, word, sizeof word)) return false;
    *i = (gd_onnx_input){.kind = GD_ONNX_TENSOR};
    cut_word(word, '/', i->conversion, sizeof i->conversion);
    if (cut_word(word, '|', part, sizeof part)) {
        i->has_fill = true;
        i->fill = part[0] - '0';
    }
    if (cut_word(word, ':', part, sizeof part)) i->kind = GD_ONNX_LIST;
    else if (cut_word(word, '=', part, sizeof part)) i->kind = GD_ONNX_NUMBER;
    if (i->kind != GD_ONNX_TENSOR) memcpy(i->onnx, word, sizeof i->onnx);
    memcpy(i->ours, i->kind == GD_ONNX_TENSOR ? word : part, sizeof i->ours);
    return true;
}

bool gd_onnx_next_attribute(const char **text, gd_onnx_attribute *a) {
    char word[4 * GD_ONNX_WORD], part[4 * GD_ONNX_WORD];
    if (!next_word(text, word, sizeof word)) return false;
    *a = (gd_onnx_attribute){.twice = false};
    char *comma = strchr(word, ',');
    if (comma) {
        memcpy(a->renames, comma, strlen(comma) + 1);
        *comma = '\0';
    }
    cut_word(word, '~', a->onnx_default, sizeof a->onnx_default);
    cut_word(word, '|', a->fallback, sizeof a->fallback);
    cut_word(word, '/', a->conversion, sizeof a->conversion);
    a->twice = cut_word(word, '*', part, sizeof part);
    if (!cut_word(word, '!', a->fixed, sizeof a->fixed) &&
        !cut_word(word, '=', a->ours, sizeof a->ours))
        cut_word(word, '?', part, sizeof part);
    memcpy(a->onnx, word, sizeof a->onnx);
    return true;
}

bool gd_onnx_next_condition(const char **text, gd_onnx_condition *c) {
    char word[3 * GD_ONNX_WORD], part[3 * GD_ONNX_WORD];
    if (!next_word(text, word, sizeof word)) return false;
    *c = (gd_onnx_condition){.kind = GD_ONNX_OPTION};
    if (!cut_word(word, ':', part, sizeof part)) cut_word(word, '=', c->value, sizeof c->value);
    else if (strcmp(part, "int") == 0) c->kind = GD_ONNX_IS_INT;
    else if (strcmp(part, "float") == 0) c->kind = GD_ONNX_IS_FLOAT;
    else if (cut_word(part, '=', c->value, sizeof c->value) && strcmp(part, "rank_of") == 0)
        c->kind = GD_ONNX_SAME_RANK;
    else if (c->value[0]) c->kind = GD_ONNX_RANK_IS;
    else if (cut_word(part, '>', c->value, sizeof c->value)) c->kind = GD_ONNX_RANK_ABOVE;
    else {
        c->kind = GD_ONNX_IS_DTYPE;
        memcpy(c->value, part, sizeof c->value);
    }
    memcpy(c->name, word, sizeof c->name);
    return true;
}

/* --- the records of ops ----------------------------------------------------------------------- */

const gd_op_attr *gd_onnx_find_option(const gd_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, name) == 0) return &op->attrs[i];
    return NULL;
}

int gd_onnx_input_index(const gd_op *op, const char *name) {
    for (int i = 0; i < op->n_inputs; i++)
        if (strcmp(op->inputs[i].name, name) == 0) return i;
    return -1;
}

const char *gd_onnx_word_text(const gd_op_attr *attr, gd_word value, char word[GD_ONNX_WORD]) {
    const char *words = attr->words;
    while (next_word(&words, word, GD_ONNX_WORD))
        if (gd_word_of(word) == value) return word;
    word[0] = '\0';
    return word;
}

int gd_onnx_option_numbers(const gd_op_attr *attr, const void *attrs, int64_t *numbers) {
    const char *field = (const char *)attrs + attr->offset;
    int count = 1;
    if (attr->type == GD_ATTR_SHAPE) {
        const gd_shape *list = (const gd_shape *)field;
        if (!gd_shape_is_set(list)) return -1;
        count = list->rank;
        memcpy(numbers, list->at, (size_t)count * sizeof *numbers);
        return count;
    }
    if (attr->type == GD_ATTR_INTS) count = attr->count;
    else if (attr->type != GD_ATTR_INT) return -1;
    memcpy(numbers, field, (size_t)count * sizeof *numbers);
    return numbers[0] == GD_UNSET ? -1 : count;
}
