/* record_text.h - pieces that the files which parse records share. */
#ifndef GRADUS_CODEGEN_RECORD_TEXT_H
#define GRADUS_CODEGEN_RECORD_TEXT_H

#include "codegen/record.h"

/* Notes what is wrong with the record, if it is the first; always false. */
bool gd_record_fail(gd_record *record, const char *what, const char *detail);

/* Past spaces. */
char *gd_record_skip(char *s);

/* Cuts the next name off *s, or returns NULL. *ended_by is the character that was behind it. */
char *gd_record_name(char **s, char *ended_by);

/* Input of that name; -1: none. */
int gd_record_input(const gd_record *record, const char *name);

/* A line that says a fact (facts.h), with its first word cut off. `*is_fact` is false when that
 * word is no such. */
bool gd_record_fact(gd_record *record, const char *word, char *rest, bool *is_fact);
void gd_record_each_fact(void (*visit)(const char *word));

#endif
