/* test_sources.c - rules for all sources of the library, checked in the sources themselves. */
#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>

#include "test.h"

/* --- files ------------------------------------------------------------------------------------ */

/* Reads a file as a string; the caller frees it. NULL: it cannot be read. */
static char *read_file(const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    size_t length = 0, room = 1 << 16;
    char *text = malloc(room);
    for (size_t got; text && (got = fread(text + length, 1, room - length - 1, f)) > 0;) {
        length += got;
        if (room - length < 2) text = realloc(text, room *= 2);
    }
    fclose(f);
    if (text) text[length] = 0;
    return text;
}

typedef void visitor(const char *path, const char *text, void *user);

/* Visits each .c and .h file in a folder and below it; returns their number. */
static int each_source(const char *folder, visitor *visit, void *user) {
    DIR *d = opendir(folder);
    int count = 0;
    CHECK_SAYING(d, "%s", folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        const size_t length = strlen(e->d_name);
        if (e->d_name[0] == '.') continue;
        if (e->d_type == DT_DIR) {
            count += each_source(path, visit, user);
            continue;
        }
        if (length < 3 || (strcmp(e->d_name + length - 2, ".c") != 0 &&
                           strcmp(e->d_name + length - 2, ".h") != 0))
            continue;
        char *text = read_file(path);
        CHECK_SAYING(text, "%s", path);
        if (text) visit(path, text, user);
        free(text);
        count++;
    }
    if (d) closedir(d);
    return count;
}

/* --- tokens of C ------------------------------------------------------------------------------ */

typedef enum { END, NAME, STRING, OTHER } token_kind;
typedef struct token {
    token_kind kind;
    const char *at;
    size_t length;
    int line;
} token;

/* Returns the token at or after *at and moves *at behind it. Comments are not tokens. */
static token next_token(const char **at, int *line) {
    const char *s = *at;
    for (;;) {
        if (*s == '\n') (*line)++;
        if (isspace((unsigned char)*s)) s++;
        else if (s[0] == '/' && s[1] == '/') s += strcspn(s, "\n");
        else if (s[0] == '/' && s[1] == '*') {
            const char *end = strstr(s + 2, "*/");
            for (; *s && s != end; s++) *line += *s == '\n';
            if (end) s += 2;
        } else break;
    }
    token t = {.kind = *s ? OTHER : END, .at = s, .length = *s != 0, .line = *line};
    if (isalpha((unsigned char)*s) || *s == '_') {
        t.kind = NAME;
        while (isalnum((unsigned char)s[t.length]) || s[t.length] == '_') t.length++;
    } else if (*s == '"' || *s == '\'') {
        if (*s == '"') t.kind = STRING;
        while (s[t.length] && s[t.length] != *s)
            t.length += s[t.length] == '\\' && s[t.length + 1] ? 2 : 1;
        t.length += s[t.length] != 0;
    }
    *at = s + t.length;
    return t;
}

static bool token_is(token t, const char *text) {
    return strlen(text) == t.length && memcmp(t.at, text, t.length) == 0;
}

static bool is_one_of(token t, const char *const *words) {
    for (; *words; words++)
        if (token_is(t, *words)) return true;
    return false;
}

/* --- locale ----------------------------------------------------------------------------------- */

/* Returns whether a string contains a float conversion such as "%.*g". */
static bool prints_float(token t) {
    for (size_t i = 0; i + 1 < t.length; i++) {
        if (t.at[i] != '%') continue;
        if (t.at[i + 1] == '%') {
            i++;
            continue;
        }
        size_t n = i + 1;
        while (n < t.length && strchr("-+ #'0123456789.*lL", t.at[n])) n++;
        if (n < t.length && strchr("aAeEfFgG", t.at[n])) return true;
    }
    return false;
}

/* These are called only in core/number.c. */
static const char *const locale_functions[] = {
    "strtod",   "strtof",    "strtold",   "atof",      "strtod_l",   "strtof_l",    "scanf",
    "sscanf",   "fscanf",    "vscanf",    "vsscanf",   "vfscanf",    "vprintf",     "vfprintf",
    "vsprintf", "vsnprintf", "vasprintf", "vdprintf",  "isalpha",    "isdigit",     "isalnum",
    "isspace",  "isupper",   "islower",   "isxdigit",  "ispunct",    "isprint",     "isgraph",
    "iscntrl",  "isblank",   "toupper",   "tolower",   "strcasecmp", "strncasecmp", "strcoll",
    "strxfrm",  "strftime",  "setlocale", "uselocale", "newlocale",  "localeconv",  NULL};

/* These must not print floats. */
static const char *const printers[] = {"printf",   "fprintf", "sprintf", "snprintf",
                                       "asprintf", "dprintf", NULL};

enum { DEEPEST = 256 };

static void check_locale_use(const char *path, const char *text, void *user) {
    (void)user;
    if (strstr(path, "/core/number.")) return;
    token calls[DEEPEST] = {{.kind = END}}, before = {.kind = END};
    int depth = 0, line = 1;
    for (token t; (t = next_token(&text, &line)).kind != END; before = t) {
        if (t.kind == NAME)
            CHECK_SAYING(!is_one_of(t, locale_functions),
                         "%s:%d: %.*s follows the locale: use core/number.h or core/ascii.h", path,
                         t.line, (int)t.length, t.at);
        if (token_is(t, "(") &&
            depth + 1 < DEEPEST) { /* parentheses without a name belong to the outer call */
            calls[depth + 1] = before.kind == NAME ? before : calls[depth];
            depth++;
        }
        if (token_is(t, ")") && depth > 0) depth--;
        if (t.kind == STRING && prints_float(t))
            CHECK_SAYING(calls[depth].kind == NAME && !is_one_of(calls[depth], printers),
                         "%s:%d: %.*s prints a float as the locale says: use core/number.h", path,
                         t.line, (int)t.length, t.at);
    }
}

TEST(no_source_uses_locale_dependent_number_formatting) {
    CHECK(each_source(GRADUS_SOURCE "/src", check_locale_use, NULL) > 200);
}

/* --- devices ---------------------------------------------------------------------------------- */

/* Returns whether the call at `at` has an argument api->kind. */
static bool names_kind(const char *at, int line) {
    token name = {.kind = END};
    int depth = 0;
    for (token t; (t = next_token(&at, &line)).kind != END;) {
        depth += token_is(t, "(") ? 1 : token_is(t, ")") ? -1 : 0;
        if (token_is(t, "kind") && token_is(name, "api")) return true;
        if (t.kind == NAME) name = t;
        if (depth == 0) break;
    }
    return false;
}

static void check_device_use(const char *path, const char *text, void *user) {
    static const char *const comparisons[] = {"strcmp", "strncmp", "memcmp", NULL};
    static const char backend[] = "\"backend/";
    (void)user;
    token before = {.kind = END};
    int line = 1;
    for (token t; (t = next_token(&text, &line)).kind != END; before = t) {
        if (t.kind == STRING && token_is(before, "include"))
            CHECK_SAYING(strncmp(t.at, backend, strlen(backend)) != 0,
                         "%s:%d: includes a backend's header: ask gd_device_api instead", path,
                         t.line);
        if (t.kind == NAME && is_one_of(t, comparisons))
            CHECK_SAYING(!names_kind(text, line),
                         "%s:%d: compares the kind of a device: ask gd_device_api instead", path,
                         t.line);
    }
}

TEST(graphs_and_ops_do_not_depend_on_a_backend) {
    static const char *const folders[] = {"codegen", "ops", "autograd", "graph", "nn", "optim"};
    for (int i = 0; i < 6; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/src/%s", GRADUS_SOURCE, folders[i]);
        CHECK(each_source(path, check_device_use, NULL) > 5);
    }
}

/* --- the environment -------------------------------------------------------------------------- */

enum { VARIABLES = 64 };
typedef struct name_list {
    char at[VARIABLES][64];
    int count;
} name_list;

static bool has_name(const name_list *n, const char *name) {
    for (int i = 0; i < n->count; i++)
        if (strcmp(n->at[i], name) == 0) return true;
    return false;
}

static void add_name(name_list *n, const char *name, size_t length) {
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)length, name);
    CHECK(n->count < VARIABLES);
    if (!has_name(n, text) && n->count < VARIABLES) strcpy(n->at[n->count++], text);
}

static void collect_read_variables(const char *path, const char *text, void *user) {
    int line = 1;
    for (token t; (t = next_token(&text, &line)).kind != END;) {
        if (t.kind != NAME || (!token_is(t, "getenv") && !token_is(t, "secure_getenv"))) continue;
        next_token(&text, &line);
        token name = next_token(&text, &line);
        CHECK_SAYING(name.kind == STRING,
                     "%s:%d: a variable without a literal name cannot be checked", path, name.line);
        if (name.kind == STRING) add_name(user, name.at + 1, name.length - 2);
    }
}

/* A documented variable has a line in the table: "| `GRADUS_CC` | ... |". */
static void collect_documented_variables(const char *text, name_list *n) {
    for (const char *at = text; (at = strstr(at, "\n| `")); at += 4)
        add_name(n, at + 4, strcspn(at + 4, "`=\n"));
}

TEST(documented_environment_variables_are_exactly_those_that_are_read) {
    static name_list read, documented;
    each_source(GRADUS_SOURCE "/src", collect_read_variables, &read);
    char *page = read_file(GRADUS_SOURCE "/docs/environment.md");
    CHECK(page);
    if (page) collect_documented_variables(page, &documented);
    free(page);
    CHECK(read.count > 5);
    for (int i = 0; i < read.count; i++)
        CHECK_SAYING(has_name(&documented, read.at[i]), "%s is read and not in docs/environment.md",
                     read.at[i]);
    for (int i = 0; i < documented.count; i++)
        CHECK_SAYING(has_name(&read, documented.at[i]),
                     "%s is in docs/environment.md and never read", documented.at[i]);
}

TEST_MAIN
