/* kernel_blocks.c - reads the blocks of kernels, and writes their tables.
 *
 *     / *kernel conv2d.winograd  rank 20  wide  dtypes f32 f16 bf16
 *      * 3x3, stride 1, at least 16 channels.
 *      * /
 *
 * The head has the op, a dot, a name for the kernel, and words (CONTRIBUTING.md explains them). Lines
 * below it that are indented further belong to it. The rest documents the kernel. A block may register
 * the same functions for several ops: "softmax.rows, log_softmax.rows  ...", or "conv{1,2,3}d.gemm ...".
 * OP in the name of a function stands for the op: "run run_OP".
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen/kernel_words.h"
#include "codegen/opgen/opgen.h"
#include "codegen/opgen/variants.h"

kernel kernels[MAX_KERNELS];
int n_kernels;

/* Functions of a kernel: OP_VARIANT_run, or another one that the block names. */
static const struct {
    const char *word;
    size_t offset; /* of its name in a kernel, which is that of the field of gd_kernel, too */
} kernel_functions[] = {
    {"run", offsetof(kernel, run)},
    {"match", offsetof(kernel, match)},
    {"workspace", offsetof(kernel, workspace)},
    {"scratch", offsetof(kernel, scratch)},
    {"prepare", offsetof(kernel, prepare)},
    {"release", offsetof(kernel, release)},
    {"describe", offsetof(kernel, describe)},
    {"prefers_channels_last", offsetof(kernel, prefers_channels_last)},
};
static const char *const dtype_names[] = {
    [GD_BOOL] = "bool", [GD_U8] = "u8",     [GD_I8] = "i8",   [GD_I32] = "i32", [GD_I64] = "i64",
    [GD_F16] = "f16",   [GD_BF16] = "bf16", [GD_F32] = "f32", [GD_F64] = "f64",
};
/* Ops without a record: the library runs them on every device (dispatch/kernel_table.c). */
static const char *const library_ops[] = {"elementwise", "elementwise_list", "fused_reduction"};
enum {
    N_KERNEL_FUNCTIONS = sizeof kernel_functions / sizeof *kernel_functions,
    N_LIBRARY_OPS = sizeof library_ops / sizeof *library_ops,
    MAX_WORDS = 96
};

/* --- reading ---------------------------------------------------------------------------------- */

static char *function_of(kernel *k, int which) {
    return (char *)k + kernel_functions[which].offset;
}

/* OP in the name stands for that of the op. */
static void set_kernel_function(kernel *k, int which, const char *name) {
    const char *found = strstr(name, "OP");
    const int before = (int)(found ? found - name : (long)strlen(name));
    const int size = snprintf(function_of(k, which), sizeof k->run, "%.*s%s%s", before, name,
                              found ? k->op : "", found ? found + 2 : "");
    if (size >= (int)sizeof k->run)
        die(k->source->path, k->line, "the name '%s' is too long", name);
}

static int find_dtype(const char *word) {
    for (int d = GD_BOOL; d < GD_DTYPE_COUNT; d++)
        if (strcmp(word, dtype_names[d]) == 0) return d;
    return 0;
}

/* A word of a head, and its line. */
typedef struct head_word {
    char *text;
    int line;
} head_word;

/* Takes the dtypes after the word "dtypes"; returns their number. */
static int take_dtypes(kernel *k, const head_word *words, int n) {
    int taken = 0;
    for (int d; taken < n && (d = find_dtype(words[taken].text)) != 0; taken++) {
        const size_t used = strlen(k->dtypes);
        snprintf(k->dtypes + used, sizeof k->dtypes - used, "%s1u << %d", used ? " | " : "", d);
    }
    return taken;
}

/* Takes a word of a kernel block and its values, if it has any. Returns how many words that are; 0:
 * there is no such word, or its value is missing or wrong. */
static int take_kernel_word(kernel *k, const head_word *words, int n) {
    const char *word = words[0].text;
    for (int i = 0; i < GD_KERNEL_FLAG_WORDS; i++)
        if (strcmp(word, gd_kernel_flag_words[i].word) == 0) {
            k->flags |= gd_kernel_flag_words[i].flag;
            return 1;
        }
    if (n < 2) return 0;
    if (strcmp(word, "rank") == 0) {
        char *end;
        k->rank = (int)strtol(words[1].text, &end, 10);
        return *end ? 0 : 2;
    }
    if (strcmp(word, "dtypes") == 0) {
        const int taken = take_dtypes(k, words + 1, n - 1);
        return taken ? taken + 1 : 0;
    }
    for (int i = 0; i < N_KERNEL_FUNCTIONS; i++)
        if (strcmp(word, kernel_functions[i].word) == 0) {
            set_kernel_function(k, i, words[1].text);
            return 2;
        }
    return 0;
}

/* The kind of device is the folder of the source, backend/KIND or ops/FAMILY/KIND, where KIND is a
 * folder of backend/. */
static void set_kernel_device(kernel *k) {
    const char *name = k->source->name, *end = k->source->stem - 1, *start = end;
    while (start > name && start[-1] != '/') start--;
    char folder[1024];
    struct stat found;
    snprintf(folder, sizeof folder, "%s/backend/%.*s", root, (int)(end - start), start);
    if ((strncmp(name, "backend/", 8) != 0 && strncmp(name, "ops/", 4) != 0) ||
        end - start >= (int)sizeof k->device || stat(folder, &found) != 0)
        die(k->source->path, k->line,
            "'%.*s' is no kind of device: kernels belong in src/backend/KIND/ or "
            "src/ops/FAMILY/KIND/",
            (int)(end - start), start);
    memcpy(k->device, start, (size_t)(end - start));
}

/* Finds the functions that have the usual names: those of the op, or of all its variants. */
static void find_kernel_functions(kernel *k, const char *rules) {
    const char *const names[] = {rules, k->op};
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < N_KERNEL_FUNCTIONS; i++) {
            char base[140], name[200];
            snprintf(base, sizeof base, "%s_%s", names[n], k->variant);
            snprintf(name, sizeof name, "%s_%s", base, kernel_functions[i].word);
            if (defines_rule(k->source, base, kernel_functions[i].word))
                set_kernel_function(k, i, name);
        }
}

/* Adds the kernel of one op. `name` is "conv2d.gemm", `rules` "convNd" for all variants. */
static void add_kernel(source *s, int line, char *name, const char *rules, const head_word *words,
                       int n, const char *doc) {
    if (n_kernels == MAX_KERNELS) die(s->path, line, "more than %d kernels", MAX_KERNELS);
    kernel *k = &kernels[n_kernels++];
    *k = (kernel){.source = s, .rank = 1, .line = line, .doc = doc};
    char *dot = strchr(name, '.');
    if (!dot || dot == name || !dot[1] || strlen(name) >= sizeof k->op)
        die(s->path, line, "'%s' is not op.variant", name);
    snprintf(k->op, sizeof k->op, "%.*s", (int)(dot - name), name);
    snprintf(k->variant, sizeof k->variant, "%s", dot + 1);
    find_kernel_functions(k, rules);
    for (int i = 0, taken; i < n; i += taken) {
        taken = take_kernel_word(k, words + i, n - i);
        if (!taken)
            die(s->path, words[i].line, "'%s' is no word of a kernel, or lacks a value",
                words[i].text);
    }
    if (!k->run[0]) die(s->path, line, "no function %s_%s_run", k->op, k->variant);
    if (!*doc) die(s->path, line, "no sentence below %s says what the kernel is", name);
    set_kernel_device(k);
    s->has_kernels = true;
}

/* The text below the head, which ends before the first line that is not indented. The head ends with 0
 * afterwards. */
static char *cut_head(char *text) {
    char *end = text + strcspn(text, "\n");
    while (*end && end[1] == ' ') end += 1 + strcspn(end + 1, "\n");
    char *rest = *end ? end + 1 : end;
    *end = 0;
    return rest;
}

/* The text in one line. */
static char *join_lines(const char *text) {
    char *line = malloc(strlen(text) + 1), *to = line;
    for (const char *c = text; *c; c++) {
        const bool space = *c == ' ' || *c == '\n';
        if (!space) *to++ = *c;
        else if (to > line && to[-1] != ' ') *to++ = ' ';
    }
    while (to > line && to[-1] == ' ') to--;
    *to = 0;
    return line;
}

/* Cuts a head, which begins in this line, into words. */
static int cut_words(char *text, head_word *words, const source *s, int line) {
    int n = 0;
    for (char *c = text; *c; n++) {
        for (; *c == ' ' || *c == '\n'; c++) line += *c == '\n';
        if (!*c) break;
        if (n == MAX_WORDS) die(s->path, line, "more than %d words", MAX_WORDS);
        words[n] = (head_word){c, line};
        c += strcspn(c, " \n");
        if (*c == '\n') line++;
        if (*c) *c++ = 0;
    }
    return n;
}

void add_kernels(source *s, const char *start, const char *end) {
    const int line = line_of(s, start);
    char *text = block_text(start, end);
    const char *doc = join_lines(cut_head(text)); /* not freed */
    head_word words[MAX_WORDS];
    const int n = cut_words(text, words, s, line);
    int names = 0;
    for (char *last; names < n && (last = strrchr(words[names].text, ',')) && !last[1]; names++)
        *last = 0;
    if (++names > n) die(s->path, line, "a kernel block begins with op.variant");
    for (int i = 0; i < names; i++)
        for (int k = 0; k < variant_count(words[i].text); k++) {
            const char *at = words[i].text;
            char *name = variant_text(words[i].text, k, &at), rules[64];
            if (!name) die(s->path, words[i].line, "expected '}' in %s", words[i].text);
            variant_rules_name(words[i].text, rules, sizeof rules);
            rules[strcspn(rules, ".")] = 0;
            add_kernel(s, words[i].line, name, rules, words + names, n - names, doc);
            free(name);
        }
    free(text);
}

static bool is_library_op(const char *name) {
    for (int i = 0; i < N_LIBRARY_OPS; i++)
        if (strcmp(library_ops[i], name) == 0) return true;
    return false;
}

/* The op's kernels are in the folder of its family. Those of `clone` are in backend/KIND: each device
 * copies with it. Ops of no family may have kernels anywhere, and the test device has all of its
 * kernels in one folder. */
static void check_folder(const kernel *k, const op *o) {
    const char *name = k->source->name, *family = o->source->family;
    const bool in_backend = strncmp(name, "backend/", 8) == 0;
    const bool copies = in_backend && strcmp(k->op, "clone") == 0;
    if (strncmp(o->source->name, "ops/", 4) != 0 || copies || strcmp(k->device, "test") == 0)
        return;
    if (in_backend || strcmp(k->source->family, family) != 0)
        die(k->source->path, k->line,
            "'%s' is an op of src/ops/%s/: its kernels belong in src/ops/%s/%s/", k->op, family,
            family, k->device);
}

static void check_op(const kernel *k) {
    for (int i = 0; i < n_ops; i++)
        if (strcmp(ops[i]->record.name, k->op) == 0) {
            check_folder(k, ops[i]);
            return;
        }
    if (!is_library_op(k->op)) die(k->source->path, k->line, "there is no op '%s'", k->op);
}

void check_kernels(void) {
    for (int i = 0; i < n_kernels; i++) {
        const kernel *k = &kernels[i];
        check_op(k);
        for (int j = 0; j < i; j++)
            if (strcmp(kernels[j].op, k->op) == 0 && strcmp(kernels[j].variant, k->variant) == 0 &&
                strcmp(kernels[j].device, k->device) == 0)
                die(k->source->path, k->line, "%s.%s for %s is also at %s:%d", k->op, k->variant,
                    k->device, kernels[j].source->path, kernels[j].line);
    }
}

void print_kernel_words(void) {
    puts("rank");
    puts("dtypes");
    for (int i = 0; i < GD_KERNEL_FLAG_WORDS; i++) puts(gd_kernel_flag_words[i].word);
    for (int i = 0; i < N_KERNEL_FUNCTIONS; i++) puts(kernel_functions[i].word);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void print_kernel(FILE *out, kernel *k) {
    fprintf(out, "    {.op = \"%s\", .variant = \"%s\", .device = \"%s\", .rank = %d, .flags = %u",
            k->op, k->variant, k->device, k->rank, k->flags);
    if (k->dtypes[0]) fprintf(out, ", .dtypes = %s", k->dtypes);
    for (int i = 0; i < N_KERNEL_FUNCTIONS; i++)
        if (function_of(k, i)[0])
            fprintf(out, ", .%s = %s", kernel_functions[i].word, function_of(k, i));
    if (k->doc[0]) {
        fputs(", .doc = ", out);
        print_string(out, k->doc);
    }
    fputs("},\n", out);
}

void print_kernel_table(FILE *out, const source *s) {
    int count = 0;
    fprintf(out, "#include \"dispatch/kernel_files.h\"\n\n"
                 "static const gd_kernel kernels_of_file_[] = {\n");
    for (int i = 0; i < n_kernels; i++)
        if (kernels[i].source == s) print_kernel(out, &kernels[i]), count++;
    fprintf(out,
            "};\nextern const gd_kernel_file gd_kernels_%s;\n"
            "const gd_kernel_file gd_kernels_%s = {kernels_of_file_, %d};\n",
            s->symbol, s->symbol, count);
}

/* The kind of a source's kernels; NULL: it has none. */
static const char *kind_of(const source *s) {
    for (int i = 0; i < n_kernels; i++)
        if (kernels[i].source == s) return kernels[i].device;
    return NULL;
}

/* A build may leave out files of a backend, such as those that need a library, so the table of a
 * backend has weak references to them. That of the CPU has strong ones: a linker takes no file out of
 * a static library for a weak reference. */
static void write_kernel_table(const char *kind) {
    char name[64];
    snprintf(name, sizeof name, "kernels_%s.c", kind);
    FILE *out = begin_output(name);
    const char *weak = strcmp(kind, "cpu") == 0 ? "" : " __attribute__((weak))";
    fprintf(out, "/* Written by the build from the blocks of kernels. */\n"
                 "#include \"dispatch/kernel_files.h\"\n\n");
    for (int k = 0; k < n_sources; k++)
        if (kind_of(&sources[k]) && strcmp(kind_of(&sources[k]), kind) == 0)
            fprintf(out, "extern const gd_kernel_file gd_kernels_%s%s;\n", sources[k].symbol, weak);
    fprintf(out, "\nconst gd_kernel_file *const gd_kernel_files_%s[] = {\n", kind);
    int count = 0;
    for (int k = 0; k < n_sources; k++)
        if (kind_of(&sources[k]) && strcmp(kind_of(&sources[k]), kind) == 0)
            fprintf(out, "    &gd_kernels_%s,\n", sources[k].symbol), count++;
    fprintf(out, "};\nconst int gd_kernel_file_count_%s = %d;\n", kind, count);
    finish_output();
}

void write_kernel_tables(void) {
    for (int i = 0; i < n_kernels; i++) {
        bool written = false;
        for (int j = 0; j < i; j++) written |= strcmp(kernels[j].device, kernels[i].device) == 0;
        if (!written) write_kernel_table(kernels[i].device);
    }
}
