/* integer.h - the integer that a gd_number stands for. */
#ifndef GRADUS_CORE_INTEGER_H
#define GRADUS_CORE_INTEGER_H

#include "core/whole.h"
#include "gradus/tensor.h"

static inline int64_t gd_number_i64(gd_number n) {
    return (double)n.whole == n.value ? n.whole : gd_whole_i64(n.value);
}

static inline bool gd_number_equal(gd_number a, gd_number b) {
    return __builtin_memcmp(&a.value, &b.value, sizeof a.value) == 0 &&
           gd_number_i64(a) == gd_number_i64(b);
}

/* No fraction; an infinite one has none. */
static inline bool gd_number_is_whole(gd_number n) { return n.value == __builtin_trunc(n.value); }

#endif
