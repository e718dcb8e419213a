/* operator_text.c - parses the words of operator texts (operator_text.h). */
#include "codegen/operator_text.h"

#include <string.h>

bool gd_operator_next_word(const char **text, char *word, size_t size) {
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

bool gd_operator_next_input(const char **text, gd_operator_input *i) {
    char word[3 * GD_OPERATOR_WORD], part[3 * GD_OPERATOR_WORD];
    if (!gd_operator_next_word(text, word, sizeof word)) return false;
    *i = (gd_operator_input){.kind = GD_OPERATOR_TENSOR};
    cut_word(word, '/', i->conversion, sizeof i->conversion);
    if (cut_word(word, '|', part, sizeof part)) {
        i->has_fill = true;
        i->fill = part[0] - '0';
    }
    if (cut_word(word, ':', part, sizeof part)) i->kind = GD_OPERATOR_LIST;
    else if (cut_word(word, '=', part, sizeof part)) i->kind = GD_OPERATOR_NUMBER;
    if (i->kind != GD_OPERATOR_TENSOR) memcpy(i->theirs, word, sizeof i->theirs);
    memcpy(i->ours, i->kind == GD_OPERATOR_TENSOR ? word : part, sizeof i->ours);
    return true;
}

bool gd_operator_next_attribute(const char **text, gd_operator_attribute *a) {
    char word[4 * GD_OPERATOR_WORD], part[4 * GD_OPERATOR_WORD];
    if (!gd_operator_next_word(text, word, sizeof word)) return false;
    *a = (gd_operator_attribute){.twice = false};
    char *comma = strchr(word, ',');
    if (comma) {
        memcpy(a->renames, comma, strlen(comma) + 1);
        *comma = '\0';
    }
    cut_word(word, '~', a->their_default, sizeof a->their_default);
    cut_word(word, '|', a->fallback, sizeof a->fallback);
    cut_word(word, '/', a->conversion, sizeof a->conversion);
    a->twice = cut_word(word, '*', part, sizeof part);
    if (!cut_word(word, '!', a->fixed, sizeof a->fixed) &&
        !cut_word(word, '=', a->ours, sizeof a->ours))
        cut_word(word, '?', part, sizeof part);
    memcpy(a->theirs, word, sizeof a->theirs);
    return true;
}

bool gd_operator_next_condition(const char **text, gd_operator_condition *c) {
    char word[3 * GD_OPERATOR_WORD], part[3 * GD_OPERATOR_WORD];
    if (!gd_operator_next_word(text, word, sizeof word)) return false;
    *c = (gd_operator_condition){.kind = GD_OPERATOR_OPTION};
    if (!cut_word(word, ':', part, sizeof part)) cut_word(word, '=', c->value, sizeof c->value);
    else if (strcmp(part, "int") == 0) c->kind = GD_OPERATOR_IS_INT;
    else if (strcmp(part, "float") == 0) c->kind = GD_OPERATOR_IS_FLOAT;
    else if (cut_word(part, '=', c->value, sizeof c->value) && strcmp(part, "rank_of") == 0)
        c->kind = GD_OPERATOR_SAME_RANK;
    else if (c->value[0]) c->kind = GD_OPERATOR_RANK_IS;
    else if (cut_word(part, '>', c->value, sizeof c->value)) c->kind = GD_OPERATOR_RANK_ABOVE;
    else {
        c->kind = GD_OPERATOR_IS_DTYPE;
        memcpy(c->value, part, sizeof c->value);
    }
    memcpy(c->name, word, sizeof c->name);
    return true;
}
