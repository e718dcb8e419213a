/* variants.c - the cases and dtypes in which a suite calls an op.
 *
 * A test run is one of three forms. By default, suites of many small calls run a sample of the
 * variants on devices. GRADUS_TEST_QUICK=1 (make test) runs a smaller one, on the CPU, too.
 * GRADUS_TEST_FULL=1 and --op run all. In each form a suite keeps a variant of each op, in one of
 * its turns at least.
 */
#include "suites.h"

enum { QUICK_SHARE = 4, QUICK_TURNS = 3 };

typedef void variant_function(const test_case *c, gd_dtype dtype);

/* The variants of a block, from 0; false behind the last. */
static bool variant_at(const test_block *b, unsigned mask, int index, const test_case **c,
                       gd_dtype *dtype) {
    for (int k = 0; k < b->n_cases; k++) {
        *c = &b->cases[k];
        *dtype = GD_DTYPE_NONE;
        if (!(*c)->flexible && index-- == 0) return true;
        for (int d = GD_DTYPE_COUNT; d-- > 1 && (*c)->flexible;)
            if (b->dtypes & mask & 1u << d && index-- == 0) {
                *dtype = (gd_dtype)d;
                return true;
            }
    }
    return false;
}

static uint64_t op_hash(const test_block *b) { return text_hash(3, gd_op_name(b->op)); }

static uint64_t variant_hash(const test_block *b, const test_case *c, gd_dtype dtype) {
    return text_hash(op_hash(b) + (uint64_t)dtype, c->text) >> 8;
}

/* One in how many variants runs; 0: only the one that each op keeps. */
static int share_now(int share_on_devices) {
    if (only_op || test_full()) return 1;
    if (test_quick()) return test_on_device() ? 0 : QUICK_SHARE;
    return test_on_device() ? share_on_devices : 1;
}

void each_variant_in_turn(const test_cases *cases, unsigned mask, sampling s,
                          variant_function *fn) {
    const int share = share_now(s.share);
    const int turns = test_quick() && s.turns > QUICK_TURNS ? QUICK_TURNS : s.turns;
    for (int i = 0; i < cases->n_blocks; i++) {
        const test_block *b = &cases->blocks[i];
        const test_case *c, *least = NULL;
        gd_dtype dtype, least_dtype = GD_DTYPE_NONE;
        bool any = false;
        for (int v = 0; variant_at(b, mask, v, &c, &dtype); v++) {
            const uint64_t hash = variant_hash(b, c, dtype);
            if (!least || hash < variant_hash(b, least, least_dtype))
                least = c, least_dtype = dtype;
            if (share == 0 || hash % (uint64_t)share != 0) continue;
            any = true;
            fn(c, dtype);
        }
        const bool its_turn = op_hash(b) % (uint64_t)turns == (uint64_t)(s.turn % turns);
        if (!any && least && its_turn) fn(least, least_dtype);
    }
}

void each_variant(const test_cases *cases, unsigned mask, variant_function *fn) {
    each_variant_in_turn(cases, mask, (sampling){.share = 1, .turns = 1}, fn);
}
