/* integer.h - the value of a gd_number as an integer. A gd_number holds a double and, for integers
 * that a double cannot represent, an int64_t. */
#ifndef GRADUS_CORE_INTEGER_H
#define GRADUS_CORE_INTEGER_H

#include "core/float_to_int.h"
#include "gradus/tensor.h"

static inline int64_t gd_number_i64(gd_number n) {
    return (double)n.integer == n.value ? n.integer : gd_f64_to_i64(n.value);
}

static inline bool gd_number_equal(gd_number a, gd_number b) {
    return __builtin_memcmp(&a.value, &b.value, sizeof a.value) == 0 &&
           gd_number_i64(a) == gd_number_i64(b);
}

/* Whether the number has no fraction; true for infinities. */
static inline bool gd_number_is_integer(gd_number n) { return n.value == __builtin_trunc(n.value); }

#endif
