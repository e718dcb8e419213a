/* cases.h - the test cases of tests/cases/, read. See tests/cases/README.md for the format. */
#ifndef GRADUS_TESTS_CASES_H
#define GRADUS_TESTS_CASES_H

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
    gd_dtype dtype; /* GD_DTYPE_NONE: that of the variant being run */
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
    char *text;    /* the line with single spaces: data and golden results hang on it */
    char *options; /* as gd_attrs_parse takes them */
    case_input inputs[MAX_INPUTS];
    int n_inputs;
    bool nograd, nosecond, notorch;
    bool random; /* of a layer: train mode draws random numbers, so only eval mode equals PyTorch */
    bool flexible; /* an input has the dtype of the variant */
} test_case;

struct test_block {
    const char *file; /* "elementwise.txt" */
    const char *family;
    int line;
    const gd_op *op;              /* the op, or the record of the layer */
    const struct gd_maker *layer; /* of a layer block; NULL: an op's */
    char *torch;                  /* NULL: PyTorch has no such thing */
    char *call; /* of a layer: how PyTorch's module `m` is called; NULL: with the inputs in order */
    unsigned dtypes; /* bit for each dtype that inputs are tried with */
    bool dtypes_given;
    double tolerance_f32, tolerance_f64;
    char *nograd, *nosecond; /* reasons; NULL: checked */
    test_case *cases;
    int n_cases;
};

typedef struct test_cases {
    test_block *blocks;
    int n_blocks;
    char **texts; /* names that blocks point to */
    int n_texts;
    int errors; /* bad lines; each was printed with file and line */
} test_cases;

/* Reads every .txt file of the folder whose name without .txt is `family` (NULL: all), and the
 * blocks of op `op` (NULL: all). */
test_cases cases_read(const char *folder, const char *family, const char *op);
void cases_free(test_cases *cases);

/* The item that stands for input tensor number i of the call, in the record's order; NULL: absent.
 * `name` gets the input's name and `item` its place in a list. */
const case_item *case_item_at(const test_case *c, int i, const char **name, int *item);
/* How many tensors the call has. */
int case_tensor_count(const test_case *c);

/* A hash of text, the same everywhere (FNV-1a, 64 bits). */
uint64_t text_hash(uint64_t seed, const char *text);

/* "elementwise.txt:12: add: case a=(2,3) b=(3)" */
const char *case_name(const test_case *c);

#endif
