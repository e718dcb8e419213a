/* golden.h - PyTorch's results, stored by tests/golden/make.py in one file a family. */
#ifndef GRADUS_TESTS_GOLDEN_H
#define GRADUS_TESTS_GOLDEN_H

#include "run.h"

/* Names a case in a variant: changes with the op, the case's text and the torch line, so that a
 * stored result that no longer belongs to its case is not found. */
uint64_t golden_key(const test_case *c, gd_dtype dtype);

/* The dtypes in which a case is compared with PyTorch; GD_DTYPE_NONE for one whose inputs all have
 * a dtype of their own. Returns how many. */
int golden_dtypes(const test_case *c, gd_dtype dtypes[GD_DTYPE_COUNT]);

typedef struct golden golden;
golden *golden_open(const char *folder, const char *family); /* NULL: no file, or not one of ours */
void golden_close(golden *g);

typedef enum golden_answer { GOLDEN_SAME, GOLDEN_DIFFERS, GOLDEN_MISSING, GOLDEN_REFUSED } golden_answer;

/* Whether PyTorch has a result for this key, without comparing. */
golden_answer golden_look(const golden *g, uint64_t key);

/* Compares a result with the stored one; `why` (512 bytes) says what differs. */
golden_answer golden_compare(const golden *g, uint64_t key, const run_result *r, const test_block *b, char *why);

/* Writes everything make.py needs about a family's cases to stdout: a line of JSON for each case
 * and variant, followed by the bytes of its inputs. */
void golden_dump(const test_cases *cases);

#endif
