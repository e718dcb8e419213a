/* cases.c - reads the files of tests/cases/. See cases.h. */
#include "cases.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/factory.h"

typedef struct reader {
    test_cases *cases;
    const char *file, *family, *only_op;
    int line;
    test_block *block; /* NULL: before the first block, or inside a skipped one */
    bool skipping;     /* inside a block of another op than only_op, or of an unknown op */
} reader;

uint64_t text_hash(uint64_t seed, const char *text) {
    uint64_t h = 14695981039346656037u ^ seed;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h;
}

static bool report_bad_line(reader *r, const char *what, const char *where) {
    fprintf(stderr, "%s:%d: %s: %s\n", r->file, r->line, what, where);
    r->cases->errors++;
    return false;
}

static char *copy_text(const char *from, size_t n) {
    char *text = malloc(n + 1);
    memcpy(text, from, n);
    text[n] = 0;
    return text;
}

/* A copy that the cases own, so that many blocks may point to it. */
static const char *own_text(test_cases *cases, const char *from, size_t n) {
    cases->texts = realloc(cases->texts, (size_t)(cases->n_texts + 1) * sizeof *cases->texts);
    return cases->texts[cases->n_texts++] = copy_text(from, n);
}

/* --- inputs ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    data_kind kind;
} kind_names[] = {{"positive", KIND_POSITIVE}, {"above1", KIND_ABOVE1},     {"unit", KIND_UNIT},
                  {"prob", KIND_PROB},         {"away", KIND_AWAY},         {"zeros", KIND_ZEROS},
                  {"ties", KIND_TIES},         {"special", KIND_SPECIAL},   {"index", KIND_INDEX},
                  {"mask", KIND_MASK},         {"distinct", KIND_DISTINCT}, {"sign", KIND_SIGN}};

/* Reads a kind of data such as "index(5,neg)", the text after the colon. */
static bool read_kind(reader *r, const char **at, case_item *item) {
    size_t n = strcspn(*at, "(+ ");
    for (size_t i = 0; i < sizeof kind_names / sizeof *kind_names; i++) {
        if (strlen(kind_names[i].name) != n || strncmp(kind_names[i].name, *at, n) != 0) continue;
        item->kind = kind_names[i].kind;
        const char *s = *at + n;
        if (item->kind == KIND_INDEX) {
            char *end;
            if (*s != '(') return report_bad_line(r, "index needs its range: index(n)", *at);
            item->range = strtoll(s + 1, &end, 10);
            if (strncmp(end, ",neg", 4) == 0) item->negative = true, end += 4;
            if (*end != ')' || item->range < 1) return report_bad_line(r, "bad range", *at);
            s = end + 1;
            if (!item->dtype) item->dtype = GD_I64;
        }
        if (item->kind == KIND_MASK && !item->dtype) item->dtype = GD_BOOL;
        *at = s;
        return true;
    }
    return report_bad_line(r, "unknown kind of data", *at);
}

/* Reads one tensor such as "i64(2,3):index(5)". */
static bool read_item(reader *r, const char **at, case_item *item) {
    const char *s = *at;
    size_t n = strcspn(s, "( ");
    *item = (case_item){.dims = {.form = 1}};
    if (s[n] != '(') return report_bad_line(r, "expected a shape such as (2,3)", s);
    if (n > 0) {
        char name[16];
        snprintf(name, sizeof name, "%.*s", (int)(n < 15 ? n : 15), s);
        item->dtype = gd_dtype_from_name(name);
        if (!item->dtype) return report_bad_line(r, "unknown dtype", s);
    }
    s += n + 1;
    while (*s != ')') {
        char *end;
        if (item->dims.rank == GD_MAX_RANK)
            return report_bad_line(r, "more than 8 dimensions", *at);
        int64_t size = strtoll(s, &end, 10);
        if (end == s || size < 0 || (*end != ',' && *end != ')'))
            return report_bad_line(r, "bad shape", *at);
        item->dims.at[item->dims.rank++] = size;
        s = *end == ',' ? end + 1 : end;
    }
    s++;
    if (*s == ':') {
        s++;
        if (!read_kind(r, &s, item)) return false;
    }
    *at = s;
    return true;
}

/* Reads a named input such as "x=(2,3)", "b=none" or "xs=(2,3)+(2,5)". */
static bool read_input(reader *r, const char **at, case_input *in) {
    size_t n = strcspn(*at, "= ");
    if ((*at)[n] != '=' || n >= sizeof in->name)
        return report_bad_line(r, "expected name=(shape)", *at);
    snprintf(in->name, sizeof in->name, "%.*s", (int)n, *at);
    const char *s = *at + n + 1;
    if (strncmp(s, "none", 4) == 0 && (!s[4] || s[4] == ' ')) {
        in->none = true;
        *at = s + 4;
        return true;
    }
    for (;;) {
        in->items = realloc(in->items, (size_t)(in->n_items + 1) * sizeof *in->items);
        if (!read_item(r, &s, &in->items[in->n_items++])) return false;
        if (*s != '+') break;
        s++;
    }
    if (in->n_items > MAX_ITEMS) return report_bad_line(r, "too many tensors", *at);
    if (*s && *s != ' ') return report_bad_line(r, "unexpected text", s);
    *at = s;
    return true;
}

/* Every required input of the record is given, and every given name is an input of the record. */
static bool check_names(reader *r, const test_case *c) {
    const gd_op *op = c->block->op;
    for (int i = 0; i < c->n_inputs; i++) {
        bool known = false;
        for (int k = 0; k < gd_op_input_count(op); k++) {
            const gd_op_param *p = gd_op_input(op, k);
            if (strcmp(p->name, c->inputs[i].name) != 0) continue;
            known = true;
            if (c->inputs[i].n_items > 1 && !p->variadic)
                return report_bad_line(r, "a list for an input that takes one tensor", p->name);
            if (c->inputs[i].none && !p->optional && !p->variadic)
                return report_bad_line(r, "this input cannot be absent", p->name);
        }
        for (int k = 0; k < i; k++)
            if (strcmp(c->inputs[k].name, c->inputs[i].name) == 0)
                return report_bad_line(r, "given twice", c->inputs[i].name);
        if (!known) return report_bad_line(r, "the op has no such input", c->inputs[i].name);
    }
    for (int k = 0; k < gd_op_input_count(op); k++) {
        const gd_op_param *p = gd_op_input(op, k);
        bool given = p->optional || p->variadic;
        for (int i = 0; i < c->n_inputs; i++) given |= strcmp(p->name, c->inputs[i].name) == 0;
        if (!given) return report_bad_line(r, "missing input", p->name);
    }
    return true;
}

static bool check_options(reader *r, const test_case *c) {
    GD_SCOPE;
    gd_attrs *attrs = gd_attrs_new(c->block->op);
    if (gd_attrs_parse(attrs, c->options) != GD_OK)
        return report_bad_line(r, gd_error_message(), c->options);
    return true;
}

/* --- lines ------------------------------------------------------------------------------------ */

static bool read_marks(reader *r, const char *s, test_case *c) {
    while (*s) {
        size_t n = strcspn(s, " ");
        if (n == 6 && strncmp(s, "nograd", n) == 0) c->nograd = true;
        else if (n == 8 && strncmp(s, "nosecond", n) == 0) c->nosecond = true;
        else if (n == 7 && strncmp(s, "notorch", n) == 0) c->notorch = true;
        else if (n == 6 && strncmp(s, "random", n) == 0 && c->block->layer) c->random = true;
        else if (n > 0)
            return report_bad_line(
                r, "unknown mark (nograd, nosecond, notorch; random for a layer)", s);
        s += n;
        while (*s == ' ') s++;
    }
    return true;
}

/* Reads a case line without its leading "case "; `text` has single spaces. */
static bool read_case(reader *r, const char *text) {
    test_block *b = r->block;
    b->cases = realloc(b->cases, (size_t)(b->n_cases + 1) * sizeof *b->cases);
    test_case *c = &b->cases[b->n_cases++];
    *c = (test_case){.block = b, .line = r->line};
    const char *bar = strchr(text, '|'), *second = bar ? strchr(bar + 1, '|') : NULL;
    size_t n = second ? (size_t)(second - text) : strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '|')) n--;
    c->text = copy_text(text, n); /* without marks: they do not change data */
    const char *from = bar ? bar + 1 : "";
    size_t options = second ? (size_t)(second - from) : strlen(from);
    c->options = copy_text(from, options);
    for (const char *s = text; *s && *s != '|';) {
        if (*s == ' ') {
            s++;
            continue;
        }
        if (c->n_inputs == MAX_INPUTS) return report_bad_line(r, "too many inputs", s);
        if (!read_input(r, &s, &c->inputs[c->n_inputs++])) return false;
    }
    if (second && !read_marks(r, second + 1 + (second[1] == ' '), c)) return false;
    if (!check_names(r, c) || !check_options(r, c)) return false;
    for (int i = 0; i < c->n_inputs; i++)
        for (int k = 0; k < c->inputs[i].n_items; k++)
            c->flexible |= c->inputs[i].items[k].dtype == GD_DTYPE_NONE;
    return true;
}

static bool read_dtypes(reader *r, const char *s) {
    const unsigned floats = 1u << GD_F16 | 1u << GD_BF16 | 1u << GD_F32 | 1u << GD_F64;
    const unsigned ints = 1u << GD_U8 | 1u << GD_I8 | 1u << GD_I32 | 1u << GD_I64;
    unsigned mask = 0;
    while (*s) {
        char word[16];
        size_t n = strcspn(s, " ");
        snprintf(word, sizeof word, "%.*s", (int)(n < 15 ? n : 15), s);
        if (strcmp(word, "float") == 0) mask |= floats;
        else if (strcmp(word, "all") == 0) mask |= floats | ints | 1u << GD_BOOL;
        else if (strcmp(word, "number") == 0) mask |= floats | ints;
        else if (strcmp(word, "int") == 0) mask |= ints;
        else if (gd_dtype_from_name(word)) mask |= 1u << gd_dtype_from_name(word);
        else return report_bad_line(r, "unknown dtype", s);
        s += n;
        while (*s == ' ') s++;
    }
    if (!mask) return report_bad_line(r, "expected at least one dtype", "dtypes");
    r->block->dtypes = mask;
    r->block->dtypes_given = true;
    return true;
}

static bool begin_block(reader *r, const char *name, bool is_layer) {
    r->block = NULL;
    r->skipping = r->only_op && strcmp(r->only_op, name) != 0;
    if (r->skipping) return true;
    const gd_factory *layer = is_layer ? gd_factory_find("layer", name) : NULL;
    const gd_op *op = is_layer ? (layer ? &layer->record : NULL) : gd_op_find(name);
    if (!op) {
        r->skipping = true;
        return report_bad_line(r, is_layer ? "there is no such layer" : "there is no such op",
                               name);
    }
    test_cases *all = r->cases;
    all->blocks = realloc(all->blocks, (size_t)(all->n_blocks + 1) * sizeof *all->blocks);
    r->block = &all->blocks[all->n_blocks++];
    *r->block = (test_block){.file = r->file,
                             .family = r->family,
                             .line = r->line,
                             .op = op,
                             .layer = layer,
                             .dtypes = 1u << GD_F16 | 1u << GD_BF16 | 1u << GD_F32 | 1u << GD_F64,
                             .tolerance_f32 = 2e-5,
                             .tolerance_f64 = 1e-10};
    return true;
}

static bool is_keyword(const char *word, const char *key) { return strcmp(word, key) == 0; }

static bool read_line(reader *r, char *line) {
    /* single spaces, none at the ends */
    char *to = line;
    for (char *from = line; *from; from++) {
        char ch = isspace((unsigned char)*from) ? ' ' : *from;
        if (ch == ' ' && (to == line || to[-1] == ' ')) continue;
        *to++ = ch;
    }
    while (to > line && to[-1] == ' ') to--;
    *to = 0;
    if (!*line || *line == '#') return true;
    size_t n = strcspn(line, " ");
    char *rest = line + n + (line[n] == ' ');
    line[n] = 0; /* `line` is now the first word, `rest` the remainder */
    if (is_keyword(line, "op") || is_keyword(line, "layer"))
        return begin_block(r, rest, is_keyword(line, "layer"));
    if (r->skipping) return true;
    test_block *b = r->block;
    if (!b) return report_bad_line(r, "expected 'op NAME' or 'layer NAME' first", line);
    if (is_keyword(line, "case")) return read_case(r, rest);
    if (is_keyword(line, "dtypes")) return read_dtypes(r, rest);
    if (is_keyword(line, "torch"))
        return b->torch ? report_bad_line(r, "a second torch line", rest)
                        : (b->torch = copy_text(rest, strlen(rest)), true);
    if (is_keyword(line, "call") && b->layer)
        return b->call ? report_bad_line(r, "a second call line", rest)
                       : (b->call = copy_text(rest, strlen(rest)), true);
    if (is_keyword(line, "nograd"))
        return *rest ? (free(b->nograd), b->nograd = copy_text(rest, strlen(rest)), true)
                     : report_bad_line(r, "give the reason", line);
    if (is_keyword(line, "nosecond"))
        return *rest ? (free(b->nosecond), b->nosecond = copy_text(rest, strlen(rest)), true)
                     : report_bad_line(r, "give the reason", line);
    if (is_keyword(line, "tolerance")) {
        char *end;
        b->tolerance_f32 = strtod(rest, &end);
        if (end == rest || !(b->tolerance_f32 > 0))
            return report_bad_line(r, "expected a number", rest);
        if (*end == ' ') {
            char *second;
            double f64 = strtod(end, &second);
            if (second != end) b->tolerance_f64 = f64;
        }
        return true;
    }
    return report_bad_line(
        r, "expected op, layer, torch, call, dtypes, tolerance, nograd, nosecond or case", line);
}

/* --- files ------------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void read_file(test_cases *cases, const char *folder, const char *name,
                      const char *only_op) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    reader r = {.cases = cases,
                .file = own_text(cases, name, strlen(name)),
                .family = own_text(cases, name, strlen(name) - 4),
                .only_op = only_op};
    if (!f) {
        report_bad_line(&r, "cannot be read", path);
        return;
    }
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, f) >= 0) {
        r.line++;
        if (!read_line(&r, line) && r.block && r.block->n_cases > 0 &&
            r.block->cases[r.block->n_cases - 1].line == r.line)
            r.block->n_cases--; /* drop the bad case, the others still run */
    }
    free(line);
    fclose(f);
}

test_cases cases_read(const char *folder, const char *family, const char *op) {
    test_cases cases = {.n_blocks = 0};
    char *names[256];
    int n = 0;
    DIR *dir = opendir(folder);
    if (!dir) {
        fprintf(stderr, "%s: cannot be read\n", folder);
        cases.errors++;
        return cases;
    }
    for (struct dirent *e; (e = readdir(dir)) && n < 256;) {
        size_t length = strlen(e->d_name);
        if (length < 5 || strcmp(e->d_name + length - 4, ".txt") != 0) continue;
        if (family && (strlen(family) != length - 4 || strncmp(family, e->d_name, length - 4) != 0))
            continue;
        names[n++] = copy_text(e->d_name, length);
    }
    closedir(dir);
    qsort(names, (size_t)n, sizeof *names, by_name);
    for (int i = 0; i < n; i++) read_file(&cases, folder, names[i], op);
    for (int i = 0; i < n; i++) free(names[i]);
    /* realloc has moved the blocks: set the back pointers now */
    for (int b = 0; b < cases.n_blocks; b++)
        for (int k = 0; k < cases.blocks[b].n_cases; k++)
            cases.blocks[b].cases[k].block = &cases.blocks[b];
    return cases;
}

static void free_case(test_case *c) {
    for (int i = 0; i < c->n_inputs; i++) free(c->inputs[i].items);
    free(c->text);
    free(c->options);
}

/* Not the hash of test_sampled, so that a sample of a sample is not empty. */
static uint64_t sample_hash(const test_case *c) { return text_hash(11, c->text) >> 8; }

void cases_sample(test_cases *cases, int n) {
    for (int b = 0; b < cases->n_blocks; b++) {
        test_block *block = &cases->blocks[b];
        int least = 0, kept = 0;
        for (int k = 1; k < block->n_cases; k++)
            if (sample_hash(&block->cases[k]) < sample_hash(&block->cases[least])) least = k;
        for (int k = 0; k < block->n_cases; k++)
            if (k == least || sample_hash(&block->cases[k]) % (uint64_t)n == 0)
                block->cases[kept++] = block->cases[k];
            else free_case(&block->cases[k]);
        block->n_cases = kept;
    }
}

void cases_free(test_cases *cases) {
    for (int b = 0; b < cases->n_blocks; b++) {
        test_block *block = &cases->blocks[b];
        for (int k = 0; k < block->n_cases; k++) free_case(&block->cases[k]);
        free(block->cases);
        free(block->torch);
        free(block->call);
        free(block->nograd);
        free(block->nosecond);
    }
    free(cases->blocks);
    for (int i = 0; i < cases->n_texts; i++) free(cases->texts[i]);
    free(cases->texts);
}

/* --- queries ---------------------------------------------------------------------------------- */

static const case_input *find_input(const test_case *c, const char *name) {
    for (int i = 0; i < c->n_inputs; i++)
        if (strcmp(c->inputs[i].name, name) == 0) return &c->inputs[i];
    return NULL;
}

int case_tensor_count(const test_case *c) {
    int n = 0;
    for (int k = 0; k < gd_op_input_count(c->block->op); k++) {
        const gd_op_param *p = gd_op_input(c->block->op, k);
        const case_input *in = find_input(c, p->name);
        n += p->variadic ? (in ? in->n_items : 0) : 1;
    }
    return n;
}

const case_item *case_item_at(const test_case *c, int i, const char **name, int *item) {
    for (int k = 0; k < gd_op_input_count(c->block->op); k++) {
        const gd_op_param *p = gd_op_input(c->block->op, k);
        const case_input *in = find_input(c, p->name);
        int n = p->variadic ? (in ? in->n_items : 0) : 1;
        if (i >= n) {
            i -= n;
            continue;
        }
        *name = p->name;
        *item = i;
        return in && !in->none ? &in->items[i] : NULL;
    }
    return NULL;
}

const char *case_name(const test_case *c) {
    static char text[512];
    snprintf(text, sizeof text, "%s:%d: %s: case %s", c->block->file, c->line,
             gd_op_name(c->block->op), c->text);
    return text;
}
