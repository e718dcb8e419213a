/* main.c - the generator's main program: finds records in the sources and writes all output
 * files. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen/opgen/opgen.h"
#include "codegen/opgen/variants.h"
#include "core/ascii.h"
#include "core/number.h"

op *ops[MAX_OPS];
int n_ops;
source sources[MAX_SOURCES];
int n_sources;
const char *root;
static const char *out_dir;

void die(const char *file, int line, const char *format, ...) {
    fprintf(stderr, "%s:%d: error: ", file, line);
    va_list args;
    va_start(args, format);
    gd_vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* --- files ------------------------------------------------------------------------------------ */

static char *read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    size_t used = 0, size = 1 << 16, n;
    char *text = malloc(size + 1);
    while ((n = fread(text + used, 1, size - used, f)) > 0)
        if ((used += n) == size) text = realloc(text, (size *= 2) + 1);
    fclose(f);
    text[used] = 0;
    return text;
}

static char *out_text;
static size_t out_size;
static FILE *out_stream;
static char out_path[1024];

/* Creates the folders of a path. */
static void make_folders(char *path) {
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST) die(path, 0, "cannot create the folder");
        *slash = '/';
    }
}

FILE *begin_output(const char *name) {
    snprintf(out_path, sizeof out_path, "%s/%s", out_dir, name);
    make_folders(out_path);
    return out_stream = open_memstream(&out_text, &out_size);
}

void finish_output(void) {
    fclose(out_stream);
    char *old = read_file(out_path);
    if (!old || strcmp(old, out_text) != 0) {
        FILE *f = fopen(out_path, "wb");
        if (!f || fwrite(out_text, 1, out_size, f) != out_size || fclose(f) != 0)
            die(out_path, 0, "cannot write");
    }
    free(old);
    free(out_text);
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* A definition is a line that begins with "static" and contains the name and '('. */
bool defines_rule(const source *s, const char *op_name, const char *suffix) {
    char name[160];
    snprintf(name, sizeof name, "%s_%s(", op_name, suffix);
    for (const char *at = s->text; (at = strstr(at, name)); at++) {
        if (at > s->text && (gd_is_alnum(at[-1]) || at[-1] == '_')) continue;
        const char *line = at;
        while (line > s->text && line[-1] != '\n') line--;
        if (strncmp(line, "static ", 7) == 0) return true;
    }
    return false;
}

char *block_text(const char *start, const char *end) {
    char *text = malloc((size_t)(end - start) + 1), *to = text;
    bool line_start = false;
    for (const char *c = start; c < end; c++) {
        if (line_start) {
            const char *star = c;
            while (star < end && *star == ' ') star++;
            if (star < end && *star == '*') c = star + 1;
            if (c < end && *c == ' ') c++; /* one space after the star is not part of the text */
            line_start = false;
            if (c >= end) break;
        }
        *to++ = *c;
        line_start = *c == '\n';
    }
    *to = 0;
    return text;
}

int line_of(const source *s, const char *at) {
    int line = 1;
    for (const char *c = s->text; c < at; c++) line += *c == '\n';
    return line;
}

static void add_op(source *s, char *text, const char *rules, int line) {
    op *o = calloc(1, sizeof *o);
    o->source = s;
    o->line = line;
    snprintf(o->rules, sizeof o->rules, "%s", rules);
    if (!gd_record_parse(&o->record, text))
        die(s->path, o->line + o->record.error_line - 1, "%s", o->record.error);
    for (int i = 0; i < n_ops; i++)
        if (strcmp(ops[i]->record.name, o->record.name) == 0)
            die(s->path, o->line, "op '%s' is defined in %s too", o->record.name,
                ops[i]->source->path);
    s->has_ops = true;
    ops[n_ops++] = o;
}

/* Adds the records of a block, whose text begins with their kind: one, or one for each variant. */
static void add_records(source *s, const char *start, const char *end) {
    char *block = block_text(start, end), rules[64];
    const char *text = block + strcspn(block, " ") + 1;
    const int line = line_of(s, start);
    variant_rules_name(text, rules, sizeof rules);
    for (int k = 0; k < variant_count(text); k++) {
        const char *at = text;
        char *variant = variant_text(text, k, &at);
        if (!variant)
            die(s->path, line, "expected '}' and one alternative for each of %d variants at %.40s",
                variant_count(text), at);
        if (strncmp(block, "op ", 3) == 0) add_op(s, variant, rules, line);
        else add_factory(s, block, variant, rules, variant_number(text, k), line);
    }
    free(block);
}

static void read_source(const char *path) {
    source *s = &sources[n_sources++];
    s->path = path;
    s->text = read_file(path);
    if (!s->text) die(path, 1, "cannot read");
    const size_t skip = strlen(root) + 1;
    if (strncmp(path, root, skip - 1) != 0 || path[skip - 1] != '/')
        die(path, 1, "is not below %s", root);
    const size_t length = strcspn(path + skip, ".");
    if (length >= sizeof s->name) die(path, 1, "the path is too long");
    memcpy(s->name, path + skip, length);
    for (size_t i = 0; i < length; i++) s->symbol[i] = s->name[i] == '/' ? '_' : s->name[i];
    const char *slash = strrchr(s->name, '/');
    s->stem = slash ? slash + 1 : s->name;
    const char *family = strncmp(s->name, "ops/", 4) == 0 ? s->name + 4 : s->name;
    snprintf(s->family, sizeof s->family, "%.*s", (int)strcspn(family, "/"), family);
    const char *dash = strstr(s->text, " - "), *end = strchr(s->text, '\n');
    if (dash && end && dash < end)
        snprintf(s->title, sizeof s->title, "%.*s", (int)(end - dash - 3), dash + 3);
    char *close = strstr(s->title, " */");
    if (close) *close = 0;
    for (const char *at = s->text; (at = strstr(at, "/*")); at++) {
        bool is_op = strncmp(at, "/*op ", 5) == 0, is_kernel = strncmp(at, "/*kernel ", 9) == 0;
        const bool is_factory = is_factory_block(at + 2);
        const bool is_block = (at == s->text || at[-1] == '\n') && gd_is_lower(at[2]);
        if (is_block && !is_op && !is_kernel && !is_factory)
            die(path, line_of(s, at), "'%.*s' is no kind of block", (int)strcspn(at + 2, " \n"),
                at + 2);
        if (!is_op && !is_kernel && !is_factory) continue;
        const char *stop = strstr(at, "*/");
        if (!stop) die(path, line_of(s, at), "the block has no end");
        if (is_kernel) add_kernels(s, at + 9, stop);
        else add_records(s, at + 2, stop);
    }
}

/* --- words ------------------------------------------------------------------------------------ */

static void print_word(const char *word) { puts(word); }

/* All words of blocks, for the test that CONTRIBUTING.md explains them. */
static void print_words(void) {
    puts("/*op");
    puts("/*kernel");
    gd_record_each_word(print_word);
    for (const char *const *rule = op_rules; *rule; rule++) puts(*rule);
    print_kernel_words();
    print_factory_words();
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--words") == 0) {
        print_words();
        return 0;
    }
    if (argc < 4) die("opgen", 0, "usage: opgen OUT-DIR ROOT SOURCE..., or opgen --words");
    out_dir = argv[1];
    root = argv[2];
    if (argc - 3 > MAX_SOURCES) die("opgen", 0, "too many sources");
    for (int i = 3; i < argc; i++) read_source(argv[i]);
    resolve_factories();
    resolve_python();
    check_kernels();
    write_header();
    write_layout();
    write_calls();
    write_records();
    write_elementwise();
    write_page();
    write_factories();
    write_python();
    write_python_objects();
    write_counts();
    return 0;
}
