/* args.c - reads a command line by the table of options of a command; prints help. */
#include "args.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

int usage_error(const command *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("gradus", stderr);
    if (c) fprintf(stderr, " %s", c->name);
    fputs(": ", stderr);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nTry 'gradus %s--help'.\n",
            c ? strcat(strcpy((char[40]){0}, c->name), " ") : "");
    va_end(args);
    return USAGE;
}

/* --- help ------------------------------------------------------------------------------------- */

static void print_options(const option *o) {
    for (; o->name; o++) {
        if (o->type == HEADING) {
            printf("\n%s:\n", o->name);
            continue;
        }
        char left[60];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        if (strlen(left) > 22) printf("  %s\n  %-22s  ", left, "");
        else printf("  %-22s  ", left);
        print_wrapped(o->help, 26, 80);
    }
}

void print_help(const command *c) {
    printf("%s\n\nusage: %s\n", c->summary, c->usage);
    if (c->about) printf("\n%s", c->about);
    if (c->options && c->options->name) {
        if (c->options->type != HEADING) puts("\noptions:");
        print_options(c->options);
    }
    print_options(common_options);
    if (c->examples) printf("\nexamples:\n%s", c->examples);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Whether a name is that of an option; Caffe writes sigint_effect for sigint-effect. */
static bool is_named(const char *own, const char *name, size_t length) {
    if (strlen(own) != length) return false;
    for (size_t i = 0; i < length; i++)
        if (own[i] != (name[i] == '_' ? '-' : name[i])) return false;
    return true;
}

static const option *find_option(const option *o, const char *name, size_t length) {
    for (; o && o->name; o++)
        if (o->type != HEADING && is_named(o->name, name, length)) return o;
    return NULL;
}

int edit_distance(const char *a, const char *b, size_t n) {
    int row[64], m = (int)strlen(b);
    if (m > 62 || n > 62) return 99;
    for (int j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (int j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

const char *nearest_option(const command *c, const char *name, size_t length) {
    const option *lists[] = {c->options, common_options};
    const char *best = NULL;
    int least = MAX_EDITS + 1;
    for (int k = 0; k < 2; k++)
        for (const option *o = lists[k]; o && o->name; o++) {
            if (o->type == HEADING) continue;
            const int d = edit_distance(name, o->name, length);
            if (d < least) best = o->name, least = d;
        }
    return best;
}

/* Whether a number is in the range that the help begins with: "in (0, inf): learning rate". */
static bool check_range(const command *c, const option *o, double x, const char *text) {
    char *end;
    if (strncmp(o->help, "in ", 3) != 0) return true;
    const char *range = o->help + 3;
    const double low = strtod(range + 1, &end), high = strtod(end + 1, &end);
    if ((*range == '[' ? x >= low : x > low) && (*end == ']' ? x <= high : x < high)) return true;
    usage_error(c, "--%s is %s; it must be in %.*s", o->name, text, (int)(end + 1 - range), range);
    return false;
}

static bool read_value(const command *c, const option *o, const char *text) {
    char *end;
    errno = 0;
    switch (o->type) {
    case TEXT: *(const char **)o->into = text; return true;
    case INTEGER: {
        const long long n = strtoll(text, &end, 10);
        if (!*text || *end || errno) break;
        *(int64_t *)o->into = n;
        return check_range(c, o, (double)n, text);
    }
    case NUMBER: {
        const double x = strtod(text, &end);
        if (!*text || *end || errno || !isfinite(x)) break;
        *(double *)o->into = x;
        return check_range(c, o, x, text);
    }
    default: break;
    }
    usage_error(c, "--%s needs %s; '%s' is not one", o->name,
                o->type == INTEGER ? "an integer" : "a number", text);
    return false;
}

/* Whether a word is an option with one dash, as Caffe's commands take them: -solver=FILE. */
static bool has_one_dash(const command *c, const char *word) {
    const char *name = word + 1;
    const size_t length = strcspn(name, "=");
    return length > 1 &&
           (find_option(c->options, name, length) || find_option(common_options, name, length));
}

enum { MAX_GIVEN = 200 };
static const char *given_options[MAX_GIVEN];
static int n_given;

bool is_given(const char *name) {
    for (int i = 0; i < n_given; i++)
        if (strcmp(given_options[i], name) == 0) return true;
    return false;
}

static bool read_option(const command *c, char **argv, int argc, int *at) {
    const char *name = argv[*at] + (argv[*at][1] == '-' ? 2 : 1);
    const size_t length = strcspn(name, "=");
    const char *given = name[length] ? name + length + 1 : NULL;
    const option *o = find_option(c->options, name, length);
    if (!o) o = find_option(common_options, name, length);
    if (!o) {
        const char *near = nearest_option(c, name, length);
        usage_error(c, "there is no option --%.*s%s%s%s", (int)length, name,
                    near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
        return false;
    }
    if (n_given < MAX_GIVEN) given_options[n_given++] = o->name;
    if (o->type == FLAG) {
        const bool off = given && (strcmp(given, "false") == 0 || strcmp(given, "0") == 0);
        const bool on = !given || strcmp(given, "true") == 0 || strcmp(given, "1") == 0;
        if (!on && !off) usage_error(c, "--%s takes no value", o->name); /* but as Caffe's flags */
        else *(bool *)o->into = on;
        return on || off;
    }
    if (!given && *at + 1 < argc) given = argv[++*at];
    if (!given) usage_error(c, "--%s needs a value: %s", o->name, o->value);
    return given && read_value(c, o, given);
}

bool read_args(const command *c, int argc, char **argv, const char **words, int *count, int *code) {
    bool only_words = false;
    *count = 0;
    *code = USAGE;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!only_words && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            print_help(c);
            *code = DONE;
            return false;
        }
        if (!only_words && strcmp(word, "--") == 0) {
            only_words = true;
            continue;
        }
        if (!only_words &&
            (strncmp(word, "--", 2) == 0 || (word[0] == '-' && has_one_dash(c, word)))) {
            if (!read_option(c, argv, argc, &i)) return false;
            continue;
        }
        if (!only_words && word[0] == '-' && word[1]) {
            usage_error(c, "there is no option %s", word);
            return false;
        }
        if (*count == MAX_WORDS) {
            usage_error(c, "there are more than %d arguments", MAX_WORDS);
            return false;
        }
        words[(*count)++] = word;
    }
    return true;
}
