/* operand.h - numbers as operands of elementwise ops.
 *
 *     gd_tensor *y = gd_mul(x, 0.5);              // numbers in C ...
 *     gd_tensor *z = gd_where(gd_gt(x, 0), x, 1); // ... where these ops take tensors
 *
 * A number takes its dtype from the tensors of the call, as in NumPy and PyTorch: it is converted
 * to their promoted dtype, unless it is of a higher kind (bool < integer < float). So x * 0.5 is
 * f16 if x is f16, and x + 1 is i64 if x is i64. 0.5 is f32 where the tensors are integers, and 1
 * is i64 where they are bools. The condition of gd_where has no influence. An integer that the
 * dtype cannot hold is an error. Without any tensor the results are those of tensors of rank 0: i64
 * or f32.
 *
 * In a graph a number is a constant.
 */
#ifndef GRADUS_OPERAND_H
#define GRADUS_OPERAND_H

#include "gradus/options.h"
#include "gradus/tensor.h"

/* A tensor, or a number and its kind: GD_BOOL, GD_I64 or GD_F64. For gd_NAME_numbers_at, the
 * functions behind calls with numbers. */
#ifdef __cplusplus
#include <type_traits>

/* An enumerator of an unscoped enum is an integer, as in C. */
template <typename T>
struct gd_is_number_
    : std::integral_constant<bool, std::is_arithmetic<T>::value ||
                                       (std::is_enum<T>::value &&
                                        std::is_convertible<T, long long>::value)> {};
/* A class of the program that wraps a tensor. */
template <typename T>
struct gd_wraps_tensor_
    : std::integral_constant<bool, std::is_class<T>::value &&
                                       std::is_convertible<T, gd_tensor *>::value> {};

struct gd_operand {
    gd_tensor *tensor;
    gd_number number;
    gd_dtype kind;
    gd_operand(gd_tensor *t) : tensor(t), number(0), kind(GD_DTYPE_NONE) {}
    template <typename T, typename std::enable_if<gd_wraps_tensor_<T>::value, int>::type = 0>
    gd_operand(T t) : tensor(t), number(0), kind(GD_DTYPE_NONE) {}
    template <typename T, typename std::enable_if<gd_is_number_<T>::value, int>::type = 0>
    gd_operand(T x)
        : tensor(nullptr), number(+x), kind(std::is_same<T, bool>::value       ? GD_BOOL
                                            : std::is_floating_point<T>::value ? GD_F64
                                                                               : GD_I64) {}
};

/* A tensor that may be absent is a gd_tensor *, nullptr or NULL; a number, also 0, is an error. */
inline gd_tensor *gd_tensor_or_null_(gd_tensor *t) { return t; }
template <typename T,
          typename std::enable_if<std::is_same<T, int>::value || std::is_floating_point<T>::value,
                                  int>::type = 0>
gd_tensor *gd_tensor_or_null_(T a_number) = delete;
#define GD_TENSOR_OR_NULL_(x) gd_tensor_or_null_(x)

/* Calls one of two functions: of tensors, or of operands if a number is among them. */
template <bool numbers> struct gd_operands_call_ {
    template <typename F, typename G, typename... Arguments>
    static auto call(F tensors, G, Arguments... arguments) -> decltype(tensors(arguments...)) {
        return tensors(arguments...);
    }
};
template <> struct gd_operands_call_<true> {
    template <typename F, typename G, typename... Arguments>
    static auto call(F, G operands, Arguments... arguments) -> decltype(operands(arguments...)) {
        return operands(arguments...);
    }
};
template <typename... None> struct gd_numbers_among_ {
    enum { any = 0 };
};
template <typename First, typename... Rest> struct gd_numbers_among_<First, Rest...> {
    static_assert(gd_is_number_<First>::value || std::is_convertible<First, gd_tensor *>::value,
                  "an operand of an elementwise op is a gd_tensor * or a number");
    enum { any = gd_is_number_<First>::value || gd_numbers_among_<Rest...>::any };
};
template <typename F, typename G, typename A, typename B, typename... Rest>
inline gd_tensor *gd_operands_2_(F f, G g, const char *site, A a, B b, Rest... rest) {
    return gd_operands_call_<gd_numbers_among_<A, B>::any>::call(f, g, site, a, b, rest...);
}
template <typename F, typename G, typename A, typename B, typename C, typename... Rest>
inline gd_tensor *gd_operands_3_(F f, G g, const char *site, A a, B b, C c, Rest... rest) {
    return gd_operands_call_<gd_numbers_among_<A, B, C>::any>::call(f, g, site, a, b, c, rest...);
}
template <typename F, typename G, typename B, typename... Rest>
inline gd_tensor *gd_operands_inplace_(F f, G g, const char *site, gd_tensor *written, B b,
                                       Rest... rest) {
    return gd_operands_call_<gd_numbers_among_<B>::any>::call(f, g, site, written, b, rest...);
}

#define GD_OPERANDS_2_(op, n, a, b, rest) \
    gd_operands_2_(op##_at, op##_numbers_at, GD_HERE, a, b GD_UNPACK_ rest)
#define GD_OPERANDS_3_(op, n, a, b, c, rest) \
    gd_operands_3_(op##_at, op##_numbers_at, GD_HERE, a, b, c GD_UNPACK_ rest)
#define GD_OPERANDS_INPLACE_(op, n, written, b, rest) \
    gd_operands_inplace_(op##_at, op##_numbers_at, GD_HERE, written, b GD_UNPACK_ rest)

#else

typedef struct gd_operand {
    gd_tensor *tensor;
    gd_number number;
    gd_dtype kind;
} gd_operand;
static inline gd_operand gd_operand_tensor_(gd_tensor *t) { return (gd_operand){.tensor = t}; }
static inline gd_operand gd_operand_bool_(bool x) {
    return (gd_operand){NULL, gd_number_int_(x), GD_BOOL};
}
static inline gd_operand gd_operand_int_(int64_t x) {
    return (gd_operand){NULL, gd_number_int_(x), GD_I64};
}
static inline gd_operand gd_operand_unsigned_(uint64_t x) {
    return (gd_operand){NULL, gd_number_unsigned_(x), GD_I64};
}
static inline gd_operand gd_operand_real_(double x) {
    return (gd_operand){NULL, gd_number_real_(x), GD_F64};
}

/* The macros evaluate each argument once, and mention it once: otherwise nested calls would double
 * the text with each level. n is a number of the call, for the names of the variables. */
/* clang-format off */
#define GD_IS_TENSOR_(x) _Generic((x), gd_tensor *: 1, void *: 1, default: 0)
#define GD_TENSOR_(x)    _Generic((x), gd_tensor *: (x), void *: (x), default: (gd_tensor *)0)
/* An error here: what an op writes in place is no gd_tensor *. */
#define GD_WRITTEN_(x)   _Generic((x), gd_tensor *: (x), void *: (x))
/* An error here: a tensor that may be absent is neither a gd_tensor * nor NULL. */
#define GD_TENSOR_OR_NULL_(x) GD_WRITTEN_(x)
/* An error here: an operand is neither a gd_tensor * nor a number. */
#define GD_OPERAND_(x)                                                                          \
    _Generic((x), gd_tensor *: gd_operand_tensor_, void *: gd_operand_tensor_,                  \
             bool: gd_operand_bool_, char: gd_operand_int_, signed char: gd_operand_int_,       \
             unsigned char: gd_operand_int_, short: gd_operand_int_,                            \
             unsigned short: gd_operand_int_, int: gd_operand_int_, unsigned: gd_operand_int_,  \
             long: gd_operand_int_, long long: gd_operand_int_,                                 \
             unsigned long: gd_operand_unsigned_, unsigned long long: gd_operand_unsigned_,     \
             float: gd_operand_real_, double: gd_operand_real_, long double: gd_operand_real_)(x)
/* clang-format on */
#define GD_AS_(all_tensors, x) __builtin_choose_expr(all_tensors, GD_TENSOR_(x), GD_OPERAND_(x))

#define GD_OPERANDS_2_(op, n, a, b, rest) GD_OPERANDS_2__(op, n, a, b, rest)
#define GD_OPERANDS_2__(op, n, a, b, rest)                                                    \
    __extension__({                                                                           \
        __auto_type gd_a_##n = a;                                                             \
        __auto_type gd_b_##n = b;                                                             \
        enum { gd_t_##n = GD_IS_TENSOR_(gd_a_##n) & GD_IS_TENSOR_(gd_b_##n) };                \
        __builtin_choose_expr(gd_t_##n, op##_at, op##_numbers_at)(                            \
            GD_HERE, GD_AS_(gd_t_##n, gd_a_##n), GD_AS_(gd_t_##n, gd_b_##n) GD_UNPACK_ rest); \
    })
#define GD_OPERANDS_3_(op, n, a, b, c, rest) GD_OPERANDS_3__(op, n, a, b, c, rest)
#define GD_OPERANDS_3__(op, n, a, b, c, rest)                                                      \
    __extension__({                                                                                \
        __auto_type gd_a_##n = a;                                                                  \
        __auto_type gd_b_##n = b;                                                                  \
        __auto_type gd_c_##n = c;                                                                  \
        enum {                                                                                     \
            gd_t_##n = GD_IS_TENSOR_(gd_a_##n) & GD_IS_TENSOR_(gd_b_##n) & GD_IS_TENSOR_(gd_c_##n) \
        };                                                                                         \
        __builtin_choose_expr(gd_t_##n, op##_at, op##_numbers_at)(                                 \
            GD_HERE, GD_AS_(gd_t_##n, gd_a_##n), GD_AS_(gd_t_##n, gd_b_##n),                       \
            GD_AS_(gd_t_##n, gd_c_##n) GD_UNPACK_ rest);                                           \
    })
#define GD_OPERANDS_INPLACE_(op, n, written, b, rest) GD_OPERANDS_INPLACE__(op, n, written, b, rest)
#define GD_OPERANDS_INPLACE__(op, n, written, b, rest)                                   \
    __extension__({                                                                      \
        __auto_type gd_a_##n = written;                                                  \
        __auto_type gd_b_##n = b;                                                        \
        enum { gd_t_##n = GD_IS_TENSOR_(gd_b_##n) };                                     \
        __builtin_choose_expr(gd_t_##n, op##_at, op##_numbers_at)(                       \
            GD_HERE, GD_WRITTEN_(gd_a_##n), GD_AS_(gd_t_##n, gd_b_##n) GD_UNPACK_ rest); \
    })

#endif
#endif
