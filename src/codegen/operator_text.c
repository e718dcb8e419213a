/* operator_text.c - parses the words of operator texts (operator_text.h). */
#include "codegen/operator_text.h"

#include <stdio.h>
#include <string.h>

bool gd_operator_next_word(const char **text, char *word, size_t size) {
    const char *s = *text ? *text : "";
    s += strspn(s, " \t");
    const size_t length = strcspn(s, " \t");
    *text = s + length;
    if (length == 0) return false;
    snprintf(word, size, "%.*s", (int)length, s);
    return true;
}

/* Cuts `word` at `mark` and moves the text behind it to `part`. False: there is no `mark`. *bad is
 * set if there is nothing behind it, or too much. */
static bool cut_word(char *word, char mark, char part[GD_OPERATOR_WORD], bool *bad) {
    char *at = strchr(word, mark);
    part[0] = '\0';
    if (!at) return false;
    *at = '\0';
    *bad |= at[1] == '\0' || strlen(at + 1) >= GD_OPERATOR_WORD;
    snprintf(part, GD_OPERATOR_WORD, "%s", at + 1);
    return true;
}

/* Moves what is left of `word` to `part`. */
static void move_word(const char *word, char part[GD_OPERATOR_WORD], bool *bad) {
    *bad |= word[0] == '\0' || strlen(word) >= GD_OPERATOR_WORD;
    snprintf(part, GD_OPERATOR_WORD, "%s", word);
}

bool gd_operator_next_input(const char **text, gd_operator_input *i) {
    char word[GD_OPERATOR_MAX + 1], fill[GD_OPERATOR_WORD];
    if (!gd_operator_next_word(text, word, sizeof word)) return false;
    *i = (gd_operator_input){.kind = GD_OPERATOR_TENSOR, .bad = strlen(word) == GD_OPERATOR_MAX};
    cut_word(word, '/', i->conversion, &i->bad);
    if (cut_word(word, '|', fill, &i->bad)) {
        i->has_fill = true;
        i->fill = fill[0] - '0';
        i->bad |= strcmp(fill, "0") != 0 && strcmp(fill, "1") != 0;
    }
    if (cut_word(word, ':', i->ours, &i->bad)) i->kind = GD_OPERATOR_LIST;
    else if (cut_word(word, '=', i->ours, &i->bad)) i->kind = GD_OPERATOR_NUMBER;
    move_word(word, i->kind == GD_OPERATOR_TENSOR ? i->ours : i->theirs, &i->bad);
    return true;
}

bool gd_operator_next_attribute(const char **text, gd_operator_attribute *a) {
    char word[GD_OPERATOR_MAX + 1], part[GD_OPERATOR_WORD];
    if (!gd_operator_next_word(text, word, sizeof word)) return false;
    *a = (gd_operator_attribute){.bad = strlen(word) == GD_OPERATOR_MAX};
    char *comma = strchr(word, ',');
    if (comma) {
        snprintf(a->renames, sizeof a->renames, "%s", comma);
        *comma = '\0';
    }
    cut_word(word, '~', a->their_default, &a->bad);
    cut_word(word, '|', a->fallback, &a->bad);
    cut_word(word, '/', a->conversion, &a->bad);
    a->twice = cut_word(word, '*', part, &a->bad);
    a->bad |= a->twice && strcmp(part, "2") != 0;
    const size_t length = strlen(word);
    if (!cut_word(word, '!', a->fixed, &a->bad) && !cut_word(word, '=', a->ours, &a->bad)) {
        if (length > 0 && word[length - 1] == '?') word[length - 1] = '\0';
        else a->bad = true;
    }
    a->bad |= !a->ours[0] && (comma || a->fallback[0] || a->conversion[0] || a->twice);
    move_word(word, a->theirs, &a->bad);
    return true;
}

bool gd_operator_next_condition(const char **text, gd_operator_condition *c) {
    char word[GD_OPERATOR_MAX + 1], part[GD_OPERATOR_WORD];
    if (!gd_operator_next_word(text, word, sizeof word)) return false;
    *c =
        (gd_operator_condition){.kind = GD_OPERATOR_OPTION, .bad = strlen(word) == GD_OPERATOR_MAX};
    if (strcmp(word, "saving") == 0) c->kind = GD_OPERATOR_SAVING;
    else if (!cut_word(word, ':', part, &c->bad)) {
        c->bad |= !cut_word(word, '=', c->value, &c->bad);
    } else if (cut_word(part, '=', c->value, &c->bad)) {
        c->kind = strcmp(part, "rank") == 0 ? GD_OPERATOR_RANK_IS : GD_OPERATOR_SAME_RANK;
        c->bad |= c->kind == GD_OPERATOR_SAME_RANK && strcmp(part, "rank_of") != 0;
    } else if (cut_word(part, '>', c->value, &c->bad)) {
        c->kind = GD_OPERATOR_RANK_ABOVE;
        c->bad |= strcmp(part, "rank") != 0;
    } else if (strcmp(part, "int") == 0) c->kind = GD_OPERATOR_IS_INT;
    else if (strcmp(part, "float") == 0) c->kind = GD_OPERATOR_IS_FLOAT;
    else {
        c->kind = GD_OPERATOR_IS_DTYPE;
        move_word(part, c->value, &c->bad);
    }
    move_word(word, c->name, &c->bad);
    return true;
}

bool gd_operator_only_saves(const char *when) {
    gd_operator_condition condition;
    while (gd_operator_next_condition(&when, &condition))
        if (condition.kind == GD_OPERATOR_SAVING) return true;
    return false;
}
