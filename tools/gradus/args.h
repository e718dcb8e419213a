/* args.h - the options of a command line, from a table.
 *
 *     static const char *out;
 *     static int64_t epochs = 5;
 *     static const option options[] = {
 *         {"out", TEXT, &out, "FILE", "where the model goes"},
 *         {"epochs", INTEGER, &epochs, "N", "how often all samples are seen"},
 *         {0}};
 */
#ifndef GRADUS_TOOL_ARGS_H
#define GRADUS_TOOL_ARGS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum option_type { HEADING, TEXT, INTEGER, NUMBER, FLAG } option_type;

typedef struct option {
    const char *name; /* without the dashes; of a heading, its text */
    option_type type;
    void *into;        /* const char **, int64_t *, double *, bool * */
    const char *value; /* what help calls its value */
    const char *help;
} option;

enum { MOST_WORDS = 64 };

typedef struct command {
    const char *name;
    const char *usage;    /* "gradus predict MODEL IMAGE..." */
    const char *summary;  /* one line for the list of commands */
    const char *about;    /* some lines for its help; or NULL */
    const char *examples; /* lines for its help; or NULL */
    const option *options;
    int (*run)(int count, const char **words); /* what is no option, and how many */
    bool any_device; /* --device may name a kind of which there is no device here */
} command;

/* Exit codes. */
enum { DONE = 0, FAILED = 1, USAGE = 2, INTERRUPTED = 130 };

/* Reads the arguments behind the command's name. Returns false after it has said what is wrong, or has
 * printed the help (then *code is DONE). */
bool read_args(const command *c, int argc, char **argv, const char **words, int *count, int *code);

void print_help(const command *c);

/* Says what is wrong on stderr, and returns USAGE. */
int usage_error(const command *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Options that all commands have, read by main.c. */
extern const option common_options[];

#endif
