/* args.h - commands, and their options as tables.
 *
 *     static const char *out;
 *     static int64_t epochs = 5;
 *     static const option options[] = {
 *         {"out", TEXT, &out, "FILE", "file of the saved model"},
 *         {"epochs", INTEGER, &epochs, "N", "in [1, inf): passes over all samples"},
 *         {0}};
 */
#ifndef GRADUS_TOOLS_GRADUS_ARGS_H
#define GRADUS_TOOLS_GRADUS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum option_type { HEADING, TEXT, INTEGER, NUMBER, FLAG } option_type;

typedef struct option {
    const char *name; /* without the dashes; the text of a heading */
    option_type type;
    void *into;        /* const char **, int64_t *, double *, bool * */
    const char *value; /* placeholder of its value in the help: "FILE" */
    const char *help;  /* that of a number may begin with its range, as in records */
} option;

enum { MAX_WORDS = 64 }; /* arguments that are not options */

typedef struct command {
    const char *name;
    const char *usage;    /* "gradus predict MODEL IMAGE..." */
    const char *summary;  /* one line for the list of commands */
    const char *about;    /* a paragraph for its help; or NULL */
    const char *examples; /* lines for its help; or NULL */
    const option *options;
    int (*run)(int count, const char **words); /* gets the arguments that are not options */
    bool any_device; /* --device may name a kind of device that this machine lacks */
} command;

/* Exit codes. */
enum { DONE = 0, FAILED = 1, USAGE = 2, INTERRUPTED = 130 };

/* Reads the arguments after the name of the command. Returns false if it has printed an error
 * (*code is USAGE) or the help (*code is DONE). */
bool read_args(const command *c, int argc, char **argv, const char **words, int *count, int *code);

/* Whether the command line has this option. */
bool is_given(const char *name);

void print_help(const command *c);

/* Prints an error to stderr, and returns USAGE. */
int usage_error(const command *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The edit distance of the first n characters of a and b, for suggestions; those of names with more
 * than MAX_EDITS are none. */
int edit_distance(const char *a, const char *b, size_t n);
enum { MAX_EDITS = 3 };

/* Options of all commands (main.c). */
extern const option common_options[];

#endif
