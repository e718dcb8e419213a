/* test_sources.c - rules for all sources of the library, checked in the sources themselves. */
#include "sources.h"

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

/* --- blocks ----------------------------------------------------------------------------------- */

/* A block begins in its line with the kind of its record, without a space before it. */
static void check_blocks(const char *path, const char *text, void *user) {
    const char *at = text, *end = strstr(text, ".gen.h\"");
    int line = 1;
    (void)user;
    for (; *at; at += strcspn(at, "\n"), at += *at == '\n', line++)
        CHECK_SAYING(strncmp(at, "/*", 2) != 0 || !islower((unsigned char)at[2]) || end,
                     "%s:%d: the generator does not read the blocks of this file", path, line);
}

TEST(blocks_of_records_and_kernels_are_where_the_generator_reads_them) {
    static const char *const endings[] = {".c", ".h", ".cu", ".cuh", ".cpp", NULL};
    CHECK(each_file(GRADUS_SOURCE "/src", endings, check_blocks, NULL) > 300);
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

/* Whether the file has kernels for one kind of device: src/ops/FAMILY/KIND/. */
static bool is_kernel_source(const char *path) {
    const char *family = strstr(path, "/src/ops/");
    const char *kind = family ? strchr(family + strlen("/src/ops/"), '/') : NULL;
    return kind && strchr(kind + 1, '/');
}

static void check_device_use(const char *path, const char *text, void *user) {
    if (is_kernel_source(path)) return;
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
    static const char *const folders[] = {"codegen", "dispatch", "ops",  "autograd",
                                          "graph",   "nn",       "optim"};
    for (int i = 0; i < 7; i++) {
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

/* The functions whose calls are collected. */
static const char *readers[2];

static void collect_read_variables(const char *path, const char *text, void *user) {
    int line = 1;
    for (token t; (t = next_token(&text, &line)).kind != END;) {
        if (t.kind != NAME || (!token_is(t, readers[0]) && !token_is(t, readers[1]))) continue;
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
    readers[0] = "getenv", readers[1] = "secure_getenv";
    each_source(GRADUS_SOURCE "/src", collect_read_variables, &read);
    char *page = read_file(GRADUS_SOURCE "/docs/guide/environment.md");
    CHECK(page);
    if (page) collect_documented_variables(page, &documented);
    free(page);
    CHECK(read.count > 5);
    for (int i = 0; i < read.count; i++)
        CHECK_SAYING(has_name(&documented, read.at[i]),
                     "%s is read and not in docs/guide/environment.md", read.at[i]);
    for (int i = 0; i < documented.count; i++)
        CHECK_SAYING(has_name(&read, documented.at[i]),
                     "%s is in docs/guide/environment.md and never read", documented.at[i]);
}

/* The page has one paragraph with the names of harmless variables. */
static void collect_harmless_variables(const char *page, name_list *n) {
    const char *at = strstr(page, "In a program with elevated privileges"),
               *end = at ? strstr(at, "\n\n") : NULL;
    while (end && (at = strchr(at, '`')) && at < end) {
        const size_t length = strcspn(at + 1, "`");
        add_name(n, at + 1, length);
        at += length + 2;
    }
}

TEST(a_privileged_program_reads_exactly_the_variables_that_the_page_calls_harmless) {
    static name_list plain, secure, harmless;
    readers[0] = readers[1] = "getenv";
    each_source(GRADUS_SOURCE "/src", collect_read_variables, &plain);
    readers[0] = readers[1] = "secure_getenv";
    each_source(GRADUS_SOURCE "/src", collect_read_variables, &secure);
    char *page = read_file(GRADUS_SOURCE "/docs/guide/environment.md");
    CHECK(page);
    if (page) collect_harmless_variables(page, &harmless);
    free(page);
    CHECK(plain.count > 5 && secure.count > 5);
    for (int i = 0; i < plain.count; i++) {
        CHECK_SAYING(has_name(&harmless, plain.at[i]),
                     "%s is read with getenv, and docs/guide/environment.md does not call it "
                     "harmless; secure_getenv ignores it in set-user-ID programs",
                     plain.at[i]);
        CHECK_SAYING(!has_name(&secure, plain.at[i]), "%s is read with both functions",
                     plain.at[i]);
    }
    for (int i = 0; i < harmless.count; i++)
        CHECK_SAYING(has_name(&plain, harmless.at[i]), "%s is read with secure_getenv",
                     harmless.at[i]);
}

TEST_MAIN
