/* checked.h - overflow-checked arithmetic on sizes from files and programs.
 *
 * Each function stores the result and returns true, or returns false if the result does not fit its
 * type (*result is then undefined). The compiler warns about calls whose result is not used.
 */
#ifndef GRADUS_CORE_CHECKED_H
#define GRADUS_CORE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GD_CHECKED static inline __attribute__((warn_unused_result)) bool

GD_CHECKED gd_add_size(size_t a, size_t b, size_t *result) {
    return !__builtin_add_overflow(a, b, result);
}

GD_CHECKED gd_mul_size(size_t a, size_t b, size_t *result) {
    return !__builtin_mul_overflow(a, b, result);
}

GD_CHECKED gd_add_u64(uint64_t a, uint64_t b, uint64_t *result) {
    return !__builtin_add_overflow(a, b, result);
}

GD_CHECKED gd_mul_u64(uint64_t a, uint64_t b, uint64_t *result) {
    return !__builtin_mul_overflow(a, b, result);
}

GD_CHECKED gd_add_i64(int64_t a, int64_t b, int64_t *result) {
    return !__builtin_add_overflow(a, b, result);
}

GD_CHECKED gd_mul_i64(int64_t a, int64_t b, int64_t *result) {
    return !__builtin_mul_overflow(a, b, result);
}

#undef GD_CHECKED

#endif
