/* options.h - macros for calls that take options by name.
 *
 *     typedef struct gd_thing_options {
 *         gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
 *         int size GD_DEFAULT_(3);
 *     } GD_GIVEN_BY_NAME_ gd_thing_options;
 *     #define gd_thing(x, ...) \
 *         GD_WITH_OPTIONS_(gd_thing_at(x, GD_OPTIONS_(gd_thing_options, (.size = 3), __VA_ARGS__)))
 *
 * In C the initializer has the defaults first and then the user's fields, which override them. The
 * compiler's warning about fields that are initialized twice is disabled for this one expression.
 * In C++ the struct declares the defaults. Designated initializers need C++20.
 *
 * An option without its name, gd_thing(x, 7), does not compile: it would initialize the field that
 * comes after the last default, which is a part of by_name_, and nothing converts to that. Nor does
 * one behind a named one, gd_thing(x, .size = 3, 7), but for two forms that compile in C: with clang,
 * which has no attribute for that, it initializes the field behind `size`; and behind a list, as in
 * gd_sum(x, .axis = 0, 1), it is the list's next number. The call then fails, unless the list has a
 * fixed length (.stride = 2, 1) or the number is 0.
 */
#ifndef GRADUS_OPTIONS_H
#define GRADUS_OPTIONS_H

/* The headers are for gcc and clang. gcc warns of variadic macros whose last arguments are left out
 * under -Wpedantic, unless they come from a system header. Warnings about the arguments remain. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header
#endif

/* The default count of an option that is a list. An array in place of the list,
 * .callbacks = array, sets the pointer and leaves this count: then the call fails. */
enum { GD_LIST_NOT_GIVEN_ = -1 };

#ifdef __cplusplus

/* The first field of options. In C++ an option without a name would initialize it. */
struct gd_options_are_given_by_name {
    char first_, next_;
    constexpr gd_options_are_given_by_name() : first_(0), next_(0) {}
    template <typename T> gd_options_are_given_by_name(T) = delete;
};

#define GD_GIVEN_BY_NAME_
#define GD_DEFAULT_(...) = __VA_ARGS__
/* The options live until the end of the enclosing expression. */
template <typename T> inline const T *gd_address_(const T &t) { return &t; }
#if defined(__clang__) && __cplusplus >= 202002L
/* Otherwise an option without a name behind a named one is only a warning. */
#define GD_NAMED_(...)                                                                      \
    _Pragma("clang diagnostic push") _Pragma("clang diagnostic error \"-Wc99-designator\"") \
        __VA_ARGS__ _Pragma("clang diagnostic pop")
#else
#define GD_NAMED_(...) __VA_ARGS__
#endif
#define GD_OPTIONS_(type, defaults, ...) GD_NAMED_(gd_address_(type{__VA_ARGS__}))
#define GD_WITH_OPTIONS_(...)            __VA_ARGS__
/* For calls whose arguments are also fields of the options: (defaults), the arguments as designated
 * fields (.n = (3)), the same as values (3), then the user's options. */
#define GD_UNPACK_(...) __VA_ARGS__
#if __cplusplus >= 202002L
#define GD_MADE_WITH_(type, defaults, fields, values, ...) \
    GD_NAMED_(gd_address_(type{GD_UNPACK_ fields, __VA_ARGS__}))
#else
/* Values for the fields behind the arguments do not compile. */
struct gd_options_need_cplusplus_20 {};
template <typename T> inline const T *gd_made_(const T &t, gd_options_need_cplusplus_20) {
    return &t;
}
#define GD_MADE_WITH_(type, defaults, fields, values, ...)            \
    gd_made_(type{gd_options_are_given_by_name(), GD_UNPACK_ values}, \
             gd_options_need_cplusplus_20{__VA_ARGS__})
#endif

#else

/* The first field of options. The macros initialize first_ last, so that an option without a name
 * initializes next_. That is an error in gcc because of the attribute, and in clang because nothing
 * converts to an atomic struct. */
#if defined(__clang__)
#define GD_GIVEN_BY_NAME_
typedef struct gd_options_are_given_by_name_ {
    char none;
} gd_options_are_given_by_name_;
typedef struct gd_options_are_given_by_name {
    char first_;
    _Atomic(gd_options_are_given_by_name_) next_;
} gd_options_are_given_by_name;
#else
#define GD_GIVEN_BY_NAME_ __attribute__((designated_init))
typedef struct gd_options_are_given_by_name {
    char first_, next_;
} GD_GIVEN_BY_NAME_ gd_options_are_given_by_name;
#endif

#define GD_DEFAULT_(...)
#define GD_UNPACK_(...) __VA_ARGS__
#define GD_OPTIONS_(type, defaults, ...) \
    (&(type){GD_UNPACK_ defaults, .by_name_.first_ = 0, __VA_ARGS__})
#define GD_MADE_WITH_(type, defaults, fields, values, ...) \
    (&(type){GD_UNPACK_ defaults, GD_UNPACK_ fields, .by_name_.first_ = 0, __VA_ARGS__})
/* Besides, a number or a pointer of another type for a pointer is an error, not a warning: it would
 * be read as something else. Discarded qualifiers remain a warning. */
/* clang-format off */
#if defined(__clang__)
#define GD_QUIET_                                                                                \
    _Pragma("clang diagnostic push")                                                             \
    _Pragma("clang diagnostic ignored \"-Winitializer-overrides\"")                              \
    _Pragma("clang diagnostic ignored \"-Wmissing-braces\"")                                     \
    _Pragma("clang diagnostic ignored \"-Wmissing-field-initializers\"")                         \
    _Pragma("clang diagnostic error \"-Wint-conversion\"")                                       \
    _Pragma("clang diagnostic error \"-Wincompatible-pointer-types\"")                           \
    _Pragma("clang diagnostic ignored \"-Wincompatible-pointer-types-discards-qualifiers\"")     \
    _Pragma("clang diagnostic warning \"-Wincompatible-pointer-types-discards-qualifiers\"")
#define GD_LOUD_ _Pragma("clang diagnostic pop")
#else
#define GD_QUIET_                                                                                \
    _Pragma("GCC diagnostic push")                                                               \
    _Pragma("GCC diagnostic ignored \"-Woverride-init\"")                                        \
    _Pragma("GCC diagnostic ignored \"-Wmissing-braces\"")                                       \
    _Pragma("GCC diagnostic ignored \"-Wmissing-field-initializers\"")                           \
    _Pragma("GCC diagnostic error \"-Wdesignated-init\"")                                        \
    _Pragma("GCC diagnostic error \"-Wint-conversion\"")                                         \
    _Pragma("GCC diagnostic error \"-Wincompatible-pointer-types\"")
#define GD_LOUD_ _Pragma("GCC diagnostic pop")
#endif
/* clang-format on */
#define GD_WITH_OPTIONS_(...)  \
    __extension__({            \
        GD_QUIET_ __VA_ARGS__; \
        GD_LOUD_               \
    })

#endif
#endif
