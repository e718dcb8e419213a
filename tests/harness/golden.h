/* golden.h - PyTorch's results, stored by tests/golden/make.py in one file a family. */
#ifndef GRADUS_TESTS_GOLDEN_H
#define GRADUS_TESTS_GOLDEN_H

#include "run.h"

/* Names a case in a variant: changes with the op, the case's text and the torch line, so that a
 * stored result that no longer belongs to its case is not found. */
uint64_t golden_key(const test_case *c, gd_dtype dtype);

/* The dtypes in which a case is compared with PyTorch; GD_DTYPE_NONE for one that gives
 * the dtypes of all inputs. Returns their number. */
int golden_dtypes(const test_case *c, gd_dtype dtypes[GD_DTYPE_COUNT]);

typedef struct golden golden;
golden *golden_open(const char *folder, const char *family); /* NULL: no file, or not one of ours */
void golden_close(golden *g);

typedef enum golden_answer {
    GOLDEN_SAME,
    GOLDEN_DIFFERS,
    GOLDEN_MISSING,
    GOLDEN_REFUSED
} golden_answer;

/* Whether PyTorch has a result for this key, without comparing. */
golden_answer golden_look(const golden *g, uint64_t key);

/* Compares a result with the stored one; `why` (512 bytes) says what differs. */
golden_answer golden_compare(const golden *g, uint64_t key, const run_result *r,
                             const test_block *b, char *why);

/* The text that is stored as bytes in an entry of one output (nn_make.py: names and shapes of a
 * state); NULL: there is none. The caller frees it. */
char *golden_text(const golden *g, uint64_t key);

/* JSON for make.py and nn_make.py: a string, a list, the options of a case with their defaults,
 * the inputs of a case by name and its tensors, which are returned in `t`. */
void dump_string(const char *s);
void dump_ints(const int64_t *list, int n);
void dump_options(const test_case *c);
int dump_inputs(const test_case *c, gd_dtype dtype, gd_tensor **t);
void dump_bytes(gd_tensor *const *t, int n);

/* Writes everything make.py needs about a family's cases to stdout: a line of JSON for each case
 * and variant, followed by the bytes of its inputs. */
void golden_dump(const test_cases *cases);

#endif
