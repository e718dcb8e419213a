/* record_text.h - helpers that the parts of the record parser share. */
#ifndef GRADUS_CODEGEN_RECORD_TEXT_H
#define GRADUS_CODEGEN_RECORD_TEXT_H

#include "codegen/record.h"

/* Sets record->error, unless it is set already. Always returns false. */
bool gd_record_fail(gd_record *record, const char *what, const char *detail);

/* Skips spaces. */
char *gd_record_skip(char *s);

/* Takes the next name at *s and moves *s behind it; NULL: there is none. The character after the
 * name, *ended_by, is replaced by 0. */
char *gd_record_name(char **s, char *ended_by);

/* The number of the input with that name; -1: none. */
int gd_record_input(const gd_record *record, const char *name);

/* Parses a line that sets a fact (facts.h). `word` is its first word, `rest` the text after it.
 * *is_fact is false if the word belongs to no fact. */
bool gd_record_fact(gd_record *record, const char *word, char *rest, bool *is_fact);
void gd_record_each_fact(void (*visit)(const char *word));

/* Parses a line that names an operator of `system`, and of others after it; `rest` is the text
 * after that word. */
bool gd_record_operators(gd_record *record, const char *system, char *rest);
/* Returns the end of a line. If the line names an operator, those below that are indented further
 * continue it: the line breaks become spaces, and *joined is their number. */
char *gd_record_join_operator(gd_record *record, char *line, int *joined);
/* Checks the operators, when all inputs and options are known. */
bool gd_record_check_operators(gd_record *record);
void gd_record_each_operator_word(void (*visit)(const char *word));

#endif
