/* dump.c - prints the cases, their options with defaults, and their data for golden/make.py. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "dispatch/call.h"

void dump_string(const char *s) {
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') putchar('\\');
        putchar(*s);
    }
    putchar('"');
}

void dump_ints(const int64_t *list, int n) {
    putchar('[');
    for (int i = 0; i < n; i++) printf("%s%" PRId64, i ? ", " : "", list[i]);
    putchar(']');
}

static void put_word(const char *words, gd_word value) {
    while (*words) {
        char word[64];
        size_t n = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        if (gd_word_of(word) == value) {
            dump_string(word);
            return;
        }
        words += n;
        while (*words == ' ') words++;
    }
    printf("null");
}

static void put_number(double v) {
    if (isnan(v)) printf("null");
    else if (isinf(v)) printf(v > 0 ? "Infinity" : "-Infinity");
    else printf("%.17g", v);
}

/* Prints the value of an option as JSON; an unset one is null. */
static void put_option(const gd_op_attr *a, const char *data) {
    const void *field = data + a->offset;
    switch (a->type) {
    case GD_ATTR_INT:
        if (*(const int64_t *)field == GD_UNSET) printf("null");
        else printf("%" PRId64, *(const int64_t *)field);
        break;
    case GD_ATTR_FLOAT: put_number(*(const double *)field); break;
    case GD_ATTR_NUMBER: {
        const gd_number *n = field;
        if ((double)n->integer == n->value && fabs(n->value) >= 0x1p53)
            printf("%" PRId64, n->integer);
        else put_number(n->value);
        break;
    }
    case GD_ATTR_BOOL: printf(*(const bool *)field ? "true" : "false"); break;
    case GD_ATTR_INTS:
        if (*(const int64_t *)field == GD_UNSET) printf("null");
        else dump_ints(field, a->count);
        break;
    case GD_ATTR_SHAPE: {
        const gd_shape *list = field;
        if (list->form != 1) printf("null");
        else dump_ints(list->at, list->rank);
        break;
    }
    case GD_ATTR_FLOATS: {
        const gd_floats *list = field;
        printf("[");
        for (int i = 0; i < list->count; i++) {
            if (i) printf(", ");
            put_number(list->at[i]);
        }
        printf("]");
        break;
    }
    case GD_ATTR_WORD: put_word(a->words, *(const gd_word *)field); break;
    case GD_ATTR_DTYPE: {
        gd_dtype dtype = *(const gd_dtype *)field;
        if (dtype) printf("{\"dtype\": \"%s\"}", gd_dtype_name(dtype));
        else printf("null");
        break;
    }
    case GD_ATTR_STRING: {
        const char *s = *(const char *const *)field;
        if (s) dump_string(s);
        else printf("null");
        break;
    }
    case GD_ATTR_GRAPH: printf("null"); break;
    }
}

void dump_options(const test_case *c) {
    const gd_op *op = c->block->op;
    GD_SCOPE;
    size_t size = op->attrs_size;
    char *data = malloc(size + 1);
    if (size) memcpy(data, gd_attrs_data(build_attrs(c)), size);
    if (size) gd_attrs_normalize(op, data);
    printf("{");
    for (int i = 0; i < gd_op_attr_count(op); i++) {
        const gd_op_attr *a = gd_op_attr_at(op, i);
        if (i) printf(", ");
        dump_string(a->name);
        printf(": ");
        put_option(a, data);
    }
    printf("}");
    free(data);
}

int dump_inputs(const test_case *c, gd_dtype dtype, gd_tensor **t) {
    const gd_op *op = c->block->op;
    printf("\"names\": [");
    for (int i = 0; i < gd_op_input_count(op); i++)
        printf("%s{\"name\": \"%s\", \"list\": %s}", i ? ", " : "", gd_op_input(op, i)->name,
               gd_op_input(op, i)->variadic ? "true" : "false");
    printf("], \"tensors\": [");
    int n = case_tensor_count(c);
    for (int i = 0; i < n; i++) {
        const char *name;
        int item;
        case_item_at(c, i, &name, &item);
        t[i] = case_tensor(c, i, dtype, LAYOUT_ROWS, false);
        printf("%s{\"name\": \"%s\", ", i ? ", " : "", name);
        if (t[i]) {
            gd_shape dims = gd_tensor_shape(t[i]);
            printf("\"dtype\": \"%s\", \"mutated\": %s, \"dims\": ",
                   gd_dtype_name(gd_tensor_dtype(t[i])),
                   input_is_mutated(op, i) ? "true" : "false");
            dump_ints(dims.at, dims.rank);
        } else printf("\"dtype\": null");
        printf("}");
    }
    printf("]");
    return n;
}

void dump_bytes(gd_tensor *const *t, int n) {
    for (int i = 0; i < n; i++)
        if (t[i])
            fwrite(gd_data(t[i]), gd_dtype_size(gd_tensor_dtype(t[i])),
                   (size_t)gd_tensor_numel(t[i]), stdout);
}

static void put_variant(const test_case *c, gd_dtype dtype) {
    const char *why;
    gd_tensor *t[MAX_TENSORS];
    GD_SCOPE;
    printf("{\"key\": \"%016" PRIx64
           "\", \"where\": \"%s:%d\", \"op\": \"%s\", \"family\": \"%s\", \"torch\": ",
           golden_key(c, dtype), c->block->file, c->line, gd_op_name(c->block->op),
           c->block->family);
    dump_string(c->block->torch);
    printf(", \"internal\": %s", gd_op_flags(c->block->op) & GD_OP_INTERNAL ? "true" : "false");
    printf(", \"dtype\": \"%s\", \"grad\": %s, \"options\": ", dtype ? gd_dtype_name(dtype) : "-",
           case_has_gradient(c, dtype ? dtype : GD_F32, &why) ? "true" : "false");
    dump_options(c);
    printf(", ");
    int n = dump_inputs(c, dtype, t);
    printf("}\n");
    dump_bytes(t, n);
}

void golden_dump(const test_cases *cases) {
    for (int b = 0; b < cases->n_blocks; b++) {
        const test_block *block = &cases->blocks[b];
        for (int k = 0; k < block->n_cases && block->torch; k++) {
            gd_dtype dtypes[GD_DTYPE_COUNT];
            int n = golden_dtypes(&block->cases[k], dtypes);
            for (int d = 0; d < n && !block->cases[k].notorch; d++)
                put_variant(&block->cases[k], dtypes[d]);
        }
    }
}
