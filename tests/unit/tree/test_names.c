/* test_names.c - one name, one thing: no two headers of the library define the same name, and the
 * include guard of a header follows its path.
 *
 * Names count with and without the library's prefix. Source files may define a type that a header only
 * announces, so their types with the prefix count, too. Not compared are macros that a header removes
 * at its end, constants without the prefix, and headers that a file includes several times.
 */
#include <stdlib.h>

#include "sources.h"

/* --- templates --------------------------------------------------------------------------------- */

/* Headers that a file includes several times. */
static char templates[32][96];
static int n_templates;

static void find_templates(const char *path, const char *text, void *user) {
    static const char begin[] = "#include \"";
    (void)path, (void)user;
    for (const char *at = text; (at = strstr(at, begin)); at++) {
        const size_t length = strcspn(at, "\n");
        const char *again = at + length;
        while ((again = strstr(again, begin)) && strncmp(again, at, length + 1) != 0) again++;
        if (!again || n_templates == 32) continue;
        const char *name = at + strlen(begin);
        snprintf(templates[n_templates++], sizeof *templates, "src/%.*s", (int)strcspn(name, "\""),
                 name);
    }
}

static bool is_template(const char *file) {
    for (int i = 0; i < n_templates; i++)
        if (strcmp(templates[i], file) == 0) return true;
    return false;
}

/* --- what headers define ----------------------------------------------------------------------- */

typedef struct definition {
    char name[64], file[96];
    int line;
} definition;

enum { MAX_DEFINITIONS = 1 << 14 };
static definition definitions[MAX_DEFINITIONS];
static int n_definitions;

/* The reader of a header: what the statement that it is in has so far. */
typedef struct reader {
    const char *file, *at;
    int line;
    int depth;              /* open brackets of all kinds */
    int angles;             /* open < outside of brackets, of templates */
    token last[3];          /* the tokens before the current one; last[0]: directly */
    bool in_enum, has_body; /* has_body: of a struct, union or enum, or a function */
    bool is_typedef;
    token tag, name, function, inner; /* inner: in (*NAME)( */
} reader;

static const token none = {.kind = END};

static bool is_ours(token t) {
    return t.kind == NAME && t.length > 3 &&
           (memcmp(t.at, "gd_", 3) == 0 || memcmp(t.at, "GD_", 3) == 0);
}

static bool same_text(token a, token b) {
    return a.kind == b.kind && a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

static bool is_header(const char *path) {
    return has_ending(path, (const char *const[]){".h", ".cuh", NULL});
}

static void define(const reader *r, token t) {
    static const char *const keywords[] = {"struct", "union", "enum", NULL}; /* without a tag */
    const bool is_type = r->is_typedef || (r->has_body && r->depth == 0 && same_text(t, r->tag));
    if (t.kind != NAME || is_one_of(t, keywords)) return;
    if (!is_header(r->file) && !(is_ours(t) && is_type)) return;
    definition *d = &definitions[n_definitions];
    CHECK(n_definitions < MAX_DEFINITIONS && t.length < sizeof d->name);
    if (n_definitions == MAX_DEFINITIONS || t.length >= sizeof d->name) return;
    memcpy(d->name, t.at, t.length);
    d->name[t.length] = 0;
    snprintf(d->file, sizeof d->file, "%s", r->file);
    d->line = t.line;
    n_definitions++;
}

static void undefine(const reader *r, token t) {
    for (int i = n_definitions; i-- > 0;)
        if (strcmp(definitions[i].file, r->file) == 0 && token_is(t, definitions[i].name))
            definitions[i] = definitions[--n_definitions];
}

/* At the # of a directive: defines or removes a macro, and moves behind the line and those that
 * continue it. */
static void read_directive(reader *r) {
    token t = next_token(&r->at, &r->line);
    if (token_is(t, "define")) define(r, next_token(&r->at, &r->line));
    if (token_is(t, "undef")) undefine(r, next_token(&r->at, &r->line));
    for (; *r->at && *r->at != '\n'; r->at++)
        if (r->at[0] == '\\' && r->at[1] == '\n') r->at++, r->line++;
}

static void begin_statement(reader *r) {
    r->in_enum = r->has_body = r->is_typedef = false;
    r->tag = r->name = r->function = r->inner = r->last[0] = r->last[1] = r->last[2] = none;
}

/* `typedef struct gd_x gd_x;` and `struct gd_x;` only announce what another header defines. */
static void end_statement(reader *r) {
    const bool announces = r->tag.kind == NAME && !r->has_body && r->function.kind == END &&
                           same_text(r->tag, r->name);
    if (r->inner.kind == NAME) define(r, r->inner);
    else if (r->function.kind == NAME) define(r, r->function);
    else if (r->name.kind == NAME && !announces) define(r, r->name);
    begin_statement(r);
}

static bool opens(token t) { return token_is(t, "(") || token_is(t, "[") || token_is(t, "{"); }
static bool closes(token t) { return token_is(t, ")") || token_is(t, "]") || token_is(t, "}"); }

/* GD_API, GD_PRINTF(1, 2), __attribute__((...)). */
static bool is_macro(token t) {
    if (t.kind != NAME) return false;
    for (size_t i = 0; i < t.length; i++)
        if (islower((unsigned char)t.at[i])) return t.at[0] == '_';
    return true;
}

/* Behind a parenthesis: TYPE (*NAME). */
static bool declares_pointer(const reader *r) { return r->at[strspn(r->at, " \n")] == '*'; }

/* Skips the parameters of a template. A struct with parameters is that of a template which is defined
 * elsewhere. */
static bool skip_angles(reader *r, token t) {
    if (token_is(t, "<") && r->last[0].kind == NAME && same_text(r->last[0], r->tag)) r->tag = none;
    if (token_is(t, ";")) r->angles = 0; /* it was no parameter */
    r->angles += token_is(t, "<");
    const bool inside = r->angles > 0;
    r->angles -= inside && token_is(t, ">");
    return inside;
}

static void read_outer_token(reader *r, token t) {
    static const char *const tags[] = {"struct", "union", "enum", "class", NULL};
    if (token_is(t, "typedef")) r->is_typedef = true;
    if (is_one_of(r->last[0], tags)) {
        if (t.kind == NAME) r->tag = t;
        r->in_enum = token_is(r->last[0], "enum");
    }
    const bool is_struct = r->tag.kind == NAME || is_one_of(r->last[0], tags);
    if (token_is(t, "{") && (is_struct || r->in_enum) && r->function.kind == END) {
        r->has_body = true;
        define(r, r->tag);
    }
    if (token_is(t, "(") && r->function.kind == END && !declares_pointer(r)) {
        if (is_macro(r->last[0])) r->name = none;
        else if (r->last[0].kind == NAME) r->function = r->last[0];
    }
    if (t.kind == NAME) r->name = t;
    if (token_is(t, "=")) r->function = r->function.kind == END ? r->name : r->function;
    if (token_is(t, ";")) end_statement(r);
}

static void read_inner_token(reader *r, token t) {
    if (r->in_enum && r->depth == 1 && t.kind == NAME &&
        (token_is(r->last[0], "{") || token_is(r->last[0], ",")) && is_ours(t))
        define(r, t);
    if (r->depth == 1 && token_is(r->last[0], "*") && token_is(r->last[1], "(") && *r->at == ')')
        r->inner = t;
}

static void read_definitions(const char *path, const char *text, void *user) {
    const char *root = user;
    if (is_template(path + strlen(root) + 1)) return;
    reader r = {.file = path + strlen(root) + 1, .at = text, .line = 1};
    begin_statement(&r);
    for (token t; (t = next_token(&r.at, &r.line)).kind != END;) {
        if (token_is(t, "#")) {
            read_directive(&r);
            continue;
        }
        if (token_is(t, "{") && r.depth == 0 && r.last[0].kind == STRING) { /* extern "C" { */
            begin_statement(&r);
            continue;
        }
        if (r.depth == 0 && skip_angles(&r, t)) continue;
        if (r.depth == 0) read_outer_token(&r, t);
        else if (!closes(t)) read_inner_token(&r, t);
        if (opens(t)) r.depth++;
        if (closes(t) && r.depth > 0 && --r.depth == 0 && token_is(t, "}") &&
            (r.function.kind == NAME || !r.has_body))
            end_statement(&r);
        if (token_is(t, ";") && r.depth == 0) continue;
        r.last[2] = r.last[1], r.last[1] = r.last[0], r.last[0] = t;
    }
}

/* --- no name twice ----------------------------------------------------------------------------- */

static int compare_definitions(const void *a, const void *b) {
    const definition *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order == 0) order = strcmp(x->file, y->file);
    return order ? order : x->line - y->line;
}

static bool is_defined(const char *name, const char *file) {
    for (int i = 0; i < n_definitions; i++)
        if (!strcmp(definitions[i].name, name) && !strcmp(definitions[i].file, file)) return true;
    return false;
}

/* Types, constants, macros, functions and variables; and a type that another header defines. */
static void check_that_headers_are_understood(void) {
    CHECK(is_defined("gd_queue", "include/gradus/backend.h"));
    CHECK(is_defined("GD_QUEUE_UPLOAD", "include/gradus/backend.h"));
    CHECK(!is_defined("gd_queue_event", "include/gradus/backend.h"));
    CHECK(is_defined("gd_queue_event", "src/backend/cuda/state.h"));
    CHECK(is_defined("GD_MAX_RANK", "include/gradus/tensor.h"));
    CHECK(is_defined("gd_shape", "include/gradus/tensor.h"));
    CHECK(is_defined("gd_names", "include/gradus/npy.h"));
    CHECK(is_defined("gd_item_at", "include/gradus/tensor.h"));
    CHECK(is_defined("gd_this_thread", "src/core/thread.h"));
    CHECK(is_defined("gd_tensor", "src/core/tensor.h"));
    CHECK(is_defined("gd_expand", "gradus/ops.h"));
}

/* The kind of device in src/backend/KIND/ or src/ops/FAMILY/KIND/; its length is 0 elsewhere. */
static token kind_of(const char *file) {
    static const char backend[] = "src/backend/", ops[] = "src/ops/";
    const char *at = NULL;
    if (strncmp(file, backend, strlen(backend)) == 0) at = file + strlen(backend);
    else if (strncmp(file, ops, strlen(ops)) == 0) at = strchr(file + strlen(ops), '/');
    at = at && *at == '/' ? at + 1 : at;
    const size_t length = at ? strcspn(at, "/") : 0;
    return at && at[length] == '/' ? (token){NAME, at, length, 0} : none;
}

/* No file includes headers of two kinds of device. */
static bool are_for_different_devices(const char *a, const char *b) {
    const token x = kind_of(a), y = kind_of(b);
    return x.kind == NAME && y.kind == NAME && !same_text(x, y);
}

TEST(no_two_headers_define_the_same_name) {
    static const char *const endings[] = {".h", ".cuh", ".c", NULL};
    each_file(GRADUS_SOURCE "/src", endings, find_templates, NULL);
    CHECK(n_templates > 2 && n_templates < 32);
    each_file(GRADUS_SOURCE "/include", endings, read_definitions, GRADUS_SOURCE);
    each_file(GRADUS_SOURCE "/src", endings, read_definitions, GRADUS_SOURCE);
    each_file(GRADUS_GENERATED "/gradus", endings, read_definitions, GRADUS_GENERATED);
    CHECK(n_definitions > 3000);
    check_that_headers_are_understood();
    qsort(definitions, (size_t)n_definitions, sizeof *definitions, compare_definitions);
    for (int i = 1; i < n_definitions; i++) {
        const definition *a = &definitions[i - 1], *b = &definitions[i];
        if (strcmp(a->name, b->name) != 0 || are_for_different_devices(a->file, b->file)) continue;
        CHECK_SAYING(strcmp(a->file, b->file) == 0, "%s:%d and %s:%d define %s: rename one of them",
                     a->file, a->line, b->file, b->line, b->name);
    }
}

/* --- include guards ---------------------------------------------------------------------------- */

/* GRADUS_, then the path below src/ or include/gradus/, or in other folders all of it. */
static void expected_guard(const char *path, char *guard, size_t size) {
    static const char *const roots[] = {"src/", "include/gradus/", NULL};
    for (int i = 0; roots[i]; i++)
        if (strncmp(path, roots[i], strlen(roots[i])) == 0) path += strlen(roots[i]);
    snprintf(guard, size, "GRADUS_%s", path);
    for (char *c = guard; *c; c++)
        *c = isalnum((unsigned char)*c) ? (char)toupper((unsigned char)*c) : '_';
}

/* Templates, which files include several times, have no guard. */
static void check_guard(const char *path, const char *text, void *user) {
    char guard[128];
    const char *at = text;
    int line = 1;
    (void)user;
    path += strlen(GRADUS_SOURCE) + 1;
    const token hash = next_token(&at, &line), word = next_token(&at, &line);
    const token name = next_token(&at, &line), second = next_token(&at, &line);
    const token define = next_token(&at, &line), again = next_token(&at, &line);
    if (!token_is(hash, "#") || !token_is(word, "ifndef") || !token_is(second, "#") ||
        !token_is(define, "define") || !same_text(name, again))
        return;
    expected_guard(path, guard, sizeof guard);
    CHECK_SAYING(token_is(name, guard), "%s:%d: the include guard is %.*s, not %s", path, name.line,
                 (int)name.length, name.at, guard);
}

TEST(include_guards_follow_the_paths_of_headers) {
    static const char *const folders[] = {"include", "src", "tests", "bench", "tools", "examples"};
    int count = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char folder[4096];
        snprintf(folder, sizeof folder, "%s/%s", GRADUS_SOURCE, folders[i]);
        count += each_file(folder, (const char *const[]){".h", ".cuh", NULL}, check_guard, NULL);
    }
    CHECK(count > 300);
}

TEST_MAIN
