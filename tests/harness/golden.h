/* golden.h - PyTorch's results, stored by tests/golden/make.py, one file per family. */
#ifndef GRADUS_TESTS_HARNESS_GOLDEN_H
#define GRADUS_TESTS_HARNESS_GOLDEN_H

#include "run.h"

/* The key of a case in a variant: a hash of the op, the torch line, the case's text and the dtype.
 * A change to any of them makes the stored result stale, and its key is then not found. */
uint64_t golden_key(const test_case *c, gd_dtype dtype);

/* The dtypes in which a case is compared with PyTorch; GD_DTYPE_NONE for a case that
 * gives the dtypes of all inputs. Returns their number. */
int golden_dtypes(const test_case *c, gd_dtype dtypes[GD_DTYPE_COUNT]);

typedef struct golden golden;
golden *golden_open(const char *folder,
                    const char *family); /* NULL: no file, or of another format */
void golden_close(golden *g);

typedef enum golden_answer {
    GOLDEN_SAME,
    GOLDEN_DIFFERS,
    GOLDEN_MISSING,
    GOLDEN_TORCH_ERROR /* PyTorch raised an error */
} golden_answer;

/* Whether PyTorch has a result for this key, without comparing. */
golden_answer golden_look(const golden *g, uint64_t key);

/* Compares a result with the stored one; `why` (512 bytes) describes the first difference. */
golden_answer golden_compare(const golden *g, uint64_t key, const run_result *r,
                             const test_block *b, char *why);

/* The text stored as the bytes of an entry's only output (nn_make.py: names and shapes of a state).
 * free() it. NULL: no such entry. */
char *golden_text(const golden *g, uint64_t key);

/* Print JSON for make.py and nn_make.py: a string, a list of integers, the options of a case with
 * defaults, and the inputs of a case. dump_inputs also stores the tensors in `t` and returns their
 * number; dump_bytes writes their elements. */
void dump_string(const char *s);
void dump_ints(const int64_t *list, int n);
void dump_options(const test_case *c);
int dump_inputs(const test_case *c, gd_dtype dtype, gd_tensor **t);
void dump_bytes(gd_tensor *const *t, int n);

/* Writes the input of make.py to stdout: for each case and variant a line of JSON, followed by the
 * bytes of its inputs. */
void golden_dump(const test_cases *cases);

#endif
