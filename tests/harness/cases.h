/* cases.h - reads the test cases of tests/cases/, whose README.md describes the format. */
#ifndef GRADUS_TESTS_HARNESS_CASES_H
#define GRADUS_TESTS_HARNESS_CASES_H

#include "gradus/gradus.h"

enum { MAX_ITEMS = 24, MAX_INPUTS = 16 };

typedef enum data_kind {
    KIND_PLAIN,
    KIND_POSITIVE,
    KIND_ABOVE1,
    KIND_UNIT,
    KIND_PROB,
    KIND_AWAY,
    KIND_ZEROS,
    KIND_TIES,
    KIND_SPECIAL,
    KIND_INDEX,
    KIND_MASK,
    KIND_DISTINCT,
    KIND_SIGN,
} data_kind;

/* One tensor of a case. */
typedef struct case_item {
    gd_dtype dtype; /* GD_DTYPE_NONE: the dtype of the variant that runs */
    gd_shape dims;
    data_kind kind;
    int64_t range; /* index(n) */
    bool negative; /* index(n,neg) */
} case_item;

/* A named input: absent, one tensor, or a list. */
typedef struct case_input {
    char name[32];
    bool none;
    int n_items;
    case_item *items;
} case_input;

typedef struct test_block test_block;

typedef struct test_case {
    const test_block *block;
    int line;
    char *text;    /* the line with single spaces; the data and the golden key derive from it */
    char *options; /* as text for gd_attrs_parse */
    case_input inputs[MAX_INPUTS];
    int n_inputs;
    bool nograd, nosecond, notorch;
    bool random;   /* layer: train mode draws random numbers, so only eval mode equals PyTorch */
    bool flexible; /* at least one input has no dtype of its own and takes the variant's */
} test_case;

struct test_block {
    const char *file; /* "elementwise.txt" */
    const char *family;
    int line;
    const gd_op *op;                /* the op, or the record of the layer */
    const struct gd_factory *layer; /* NULL: this is the block of an op */
    char *torch;                    /* the PyTorch expression; NULL: PyTorch has no equivalent */
    char *call;      /* layer: the call of PyTorch's module `m`; NULL: with the inputs in order */
    unsigned dtypes; /* bit set: the dtypes of the block's variants */
    bool dtypes_given;
    double tolerance_f32, tolerance_f64;
    char *nograd, *nosecond; /* why gradients are not checked; NULL: they are */
    test_case *cases;
    int n_cases;
};

typedef struct test_cases {
    test_block *blocks;
    int n_blocks;
    char **texts; /* file and family names that blocks point to */
    int n_texts;
    int errors; /* bad lines; each was printed with file and line */
} test_cases;

/* Reads the file FAMILY.txt of the folder (NULL: every .txt file), and of it the blocks of `op`
 * (NULL: all). */
test_cases cases_read(const char *folder, const char *family, const char *op);
void cases_free(test_cases *cases);

/* Keeps one case in n, chosen by the hash of its text, and at least one of each block. */
void cases_sample(test_cases *cases, int n);

/* The item of input tensor i of the call, in the record's order; NULL: absent. Stores the input's
 * name in `name` and the index within a variadic input in `item`. */
const case_item *case_item_at(const test_case *c, int i, const char **name, int *item);
/* The number of input tensors of the call, absent ones included. */
int case_tensor_count(const test_case *c);

/* A 64-bit FNV-1a hash, the same on every machine. */
uint64_t text_hash(uint64_t seed, const char *text);

/* Such as "elementwise.txt:12: add: case a=(2,3) b=(3)". The next call overwrites the text. */
const char *case_name(const test_case *c);

#endif
