/* options.h - macros for calls that take options by name.
 *
 *     #define gd_thing(x, ...) \
 *         GD_WITH_OPTIONS_(gd_thing_at(x, GD_OPTIONS_(gd_thing_options, (.size = 3) \
 *                                                     __VA_OPT__(,) __VA_ARGS__)))
 *
 * In C the initializer has the defaults first and then the user's fields, which override them. The
 * compiler's warning about fields that are initialized twice is disabled for this one expression.
 * In C++ the struct declares the defaults: int size GD_DEFAULT_(3). Designated initializers need
 * C++20.
 */
#ifndef GRADUS_OPTIONS_H
#define GRADUS_OPTIONS_H

#ifdef __cplusplus

#define GD_DEFAULT_(...) = __VA_ARGS__
/* The options live until the end of the enclosing expression. */
template <typename T> inline const T *gd_address_(const T &t) { return &t; }
#define GD_OPTIONS_(type, defaults, ...) gd_address_(type{__VA_ARGS__})
#define GD_WITH_OPTIONS_(...)            __VA_ARGS__
/* For calls whose arguments are also fields of the options: (defaults), the arguments as designated
 * fields (.n = (3)), the same as values (3), then the user's options. */
#define GD_UNPACK_(...) __VA_ARGS__
#if __cplusplus >= 202002L
#define GD_MADE_WITH_(type, defaults, fields, values, ...) \
    gd_address_(type{GD_UNPACK_ fields __VA_OPT__(, ) __VA_ARGS__})
#else
#define GD_MADE_WITH_(type, defaults, fields, values, ...) \
    gd_address_(type{GD_UNPACK_ values __VA_OPT__(, ) __VA_ARGS__})
#endif

#else

#define GD_DEFAULT_(...)
#define GD_UNPACK_(...)                  __VA_ARGS__
#define GD_OPTIONS_(type, defaults, ...) (&(type){GD_UNPACK_ defaults, __VA_ARGS__})
#define GD_MADE_WITH_(type, defaults, fields, values, ...) \
    (&(type){GD_UNPACK_ defaults, GD_UNPACK_ fields __VA_OPT__(, ) __VA_ARGS__})
#if defined(__clang__)
#define GD_QUIET_                                                       \
    _Pragma("clang diagnostic push")                                    \
        _Pragma("clang diagnostic ignored \"-Winitializer-overrides\"") \
            _Pragma("clang diagnostic ignored \"-Wmissing-braces\"")    \
                _Pragma("clang diagnostic ignored \"-Wmissing-field-initializers\"")
#define GD_LOUD_ _Pragma("clang diagnostic pop")
#else
#define GD_QUIET_                                                                        \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Woverride-init\"") \
        _Pragma("GCC diagnostic ignored \"-Wmissing-braces\"")                           \
            _Pragma("GCC diagnostic ignored \"-Wmissing-field-initializers\"")
#define GD_LOUD_ _Pragma("GCC diagnostic pop")
#endif
#define GD_WITH_OPTIONS_(...)  \
    __extension__({            \
        GD_QUIET_ __VA_ARGS__; \
        GD_LOUD_               \
    })

#endif
#endif
