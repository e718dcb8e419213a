/* options.h - how a call takes options by name.
 *
 *     #define gd_thing(x, ...) \
 *         GD_WITH_OPTIONS_(gd_thing_at(x, GD_OPTIONS_(gd_thing_options, (.size = 3) \
 *                                                     __VA_OPT__(,) __VA_ARGS__)))
 *
 * In C the defaults come first and the user's own fields after them; that a field is then given
 * twice is the point, so the compiler's remark on it is turned off for this one expression. In C++
 * the fields of the struct have their defaults themselves: int size GD_DEFAULT_(3); designators
 * are C++20's.
 */
#ifndef GRADUS_OPTIONS_H
#define GRADUS_OPTIONS_H

#ifdef __cplusplus

#define GD_DEFAULT_(...) = __VA_ARGS__
/* The options live until the end of the expression they are written in. */
template <typename T> inline const T *gd_address_(const T &t) { return &t; }
#define GD_OPTIONS_(type, defaults, ...) gd_address_(type{__VA_ARGS__})
#define GD_WITH_OPTIONS_(...)            __VA_ARGS__
/* With arguments that are fields, too: (defaults), (.n = (3)), (3), then the user's own. */
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
