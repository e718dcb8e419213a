/* tensor.h - the tensor: a handle to a value, to a node of a graph, or to a failure.
 *
 * A tensor has a dtype, a device, up to 8 dimensions, and an offset and strides into storage that
 * several tensors may share. Handles are reference counted and belong to scopes (scope.h).
 *
 * Threads: handles may be shared between threads; reference counts are atomic. Several threads may
 * read a tensor at the same time. A program that writes one needs its own lock.
 */
#ifndef GRADUS_TENSOR_H
#define GRADUS_TENSOR_H

/* gcc ignores the diagnostic pragmas of options.h if a call with options is an argument of gd_list:
 * gd_list(gd_sum(x, .axis = 1)). It then warns about the macros of this header. */
#pragma GCC system_header

#include "gradus/device.h"
#include "gradus/dtype.h"
#include "gradus/status.h"

#ifdef __cplusplus
#include <initializer_list>
extern "C" {
#endif

enum { GD_MAX_RANK = 8 };

typedef struct gd_tensor gd_tensor;

/* --- lists of numbers ------------------------------------------------------------------------- */

/* A list of up to 8 sizes or axes, written gd_dims(64, 1000). gd_dims() is the empty list, the
 * shape of a scalar. As an option of an op it may also be a single number (.axis = 1). */
#ifdef __cplusplus
} /* the list types have constructors in C++ */
struct gd_shape {
    int64_t at[GD_MAX_RANK];
    int rank;
    int form;
    gd_shape() = default;
    gd_shape(int64_t number) : at{number}, rank(1), form(1) {}
    gd_shape(std::initializer_list<int64_t> numbers) : at{}, rank(0), form(1) {
        for (int64_t number : numbers) {
            if (rank < GD_MAX_RANK) at[rank] = number;
            rank++; /* a call with a list that is too long fails */
        }
    }
};
inline gd_shape gd_shape_default_(int64_t first) { /* the value of an option that was not given */
    gd_shape shape{};
    shape.at[0] = first;
    shape.form = -1;
    return shape;
}
extern "C" {
#else
typedef struct gd_shape {
    int64_t at[GD_MAX_RANK];
    int rank;
    int form; /* 1: written with gd_dims; 0: written as a brace list, whose length is unknown */
} gd_shape;
#endif

/* A list of up to 16 floats as an option, written gd_floats(0.485, 0.456, 0.406), or a single
 * number (.mean = 0.5). */
enum { GD_MAX_FLOATS = 16 };
#ifdef __cplusplus
}
struct gd_floats {
    double at[GD_MAX_FLOATS];
    int count;
    int form;
    gd_floats(double number) : at{number}, count(1), form(1) {}
    gd_floats(std::initializer_list<double> numbers) : at{}, count(0), form(1) {
        for (double number : numbers) {
            if (count < GD_MAX_FLOATS) at[count] = number;
            count++; /* a call with a list that is too long fails */
        }
    }
    template <typename... Rest>
    gd_floats(double first, double second, Rest... rest)
        : gd_floats(std::initializer_list<double>{first, second, static_cast<double>(rest)...}) {}
};
inline gd_floats gd_floats_default_(double first) { /* the value of an option that was not given */
    gd_floats floats(first);
    floats.count = 0;
    floats.form = -1;
    return floats;
}
extern "C" {
#else
typedef struct gd_floats {
    double at[GD_MAX_FLOATS];
    int count;
    int form; /* as in gd_shape */
} gd_floats;
#define gd_floats(...)         \
    (__extension__(gd_floats){ \
        {__VA_ARGS__}, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), 1})
#endif

/* A number as an argument or option of ops whose tensors may hold integers: gd_full(dims, 5),
 * .max = 0.5. Programs write a C number. A double cannot hold every integer beyond 2^53, so
 * `integer` has the exact integer if (double)integer == value, and is ignored otherwise. Arguments
 * keep all 64 bits of an integer; a named option needs .max = gd_number_of(9007199254740993) for
 * that. */
#ifdef __cplusplus
} /* in C++ it is constructed from numbers of any type */
#define GD_FROM_(type, exact) \
    gd_number(type x) : value(static_cast<double>(x)), integer(exact) {}
struct gd_number {
    double value;
    int64_t integer;
    GD_FROM_(float, 0)
    GD_FROM_(double, 0)
    GD_FROM_(long double, 0)
    GD_FROM_(bool, x)
    GD_FROM_(int, x)
    GD_FROM_(long, x)
    GD_FROM_(long long, x)
    GD_FROM_(unsigned, x)
    GD_FROM_(unsigned long, x > INT64_MAX ? INT64_MAX : static_cast<int64_t>(x))
    GD_FROM_(unsigned long long, x > INT64_MAX ? INT64_MAX : static_cast<int64_t>(x))
};
#undef GD_FROM_
#define gd_number_of(x) (gd_number(x))
extern "C" {
#else
typedef struct gd_number {
    double value;
    int64_t integer;
} gd_number;
static inline gd_number gd_number_real_(double x) { return (gd_number){x, 0}; }
static inline gd_number gd_number_int_(int64_t x) { return (gd_number){(double)x, x}; }
static inline gd_number gd_number_unsigned_(uint64_t x) {
    return (gd_number){(double)x, x > INT64_MAX ? INT64_MAX : (int64_t)x};
}
static inline gd_number gd_number_same_(gd_number x) { return x; }
/* clang-format off */
#define gd_number_of(x)                                                                    \
    _Generic((x), float: gd_number_real_, double: gd_number_real_,                         \
             long double: gd_number_real_, unsigned long: gd_number_unsigned_,             \
             unsigned long long: gd_number_unsigned_, gd_number: gd_number_same_,          \
             default: gd_number_int_)(x)
/* clang-format on */
#endif

/* Options of fixed length: .stride = 2 means {2, 2}; .stride = {2, 1} gives each number. */
#ifdef __cplusplus
}
#define GD_LIST_(n, ...)                              \
    struct gd_int##n {                                \
        int64_t at[n];                                \
        gd_int##n(int64_t each) {                     \
            for (int i = 0; i < n; i++) at[i] = each; \
        }                                             \
        __VA_ARGS__                                   \
    }
GD_LIST_(1, );
GD_LIST_(2, gd_int2(int64_t a, int64_t b) : at{a, b} {});
GD_LIST_(3, gd_int3(int64_t a, int64_t b, int64_t c) : at{a, b, c} {});
#undef GD_LIST_
template <typename... Sizes> inline gd_shape gd_dims(Sizes... sizes) {
    static_assert(sizeof...(Sizes) <= GD_MAX_RANK, "a tensor has at most 8 dimensions");
    return gd_shape(std::initializer_list<int64_t>{static_cast<int64_t>(sizes)...});
}
extern "C" {
#else
typedef struct gd_int1 {
    int64_t at[1];
} gd_int1;
typedef struct gd_int2 {
    int64_t at[2];
} gd_int2;
typedef struct gd_int3 {
    int64_t at[3];
} gd_int3;
#define gd_dims(...)          \
    (__extension__(gd_shape){ \
        {__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), 1})
#endif

/* An element of a list option that was not given. */
#define GD_UNSET INT64_MIN

/* An unknown size of a placeholder (graph.h) or a layer (module.h). */
#define GD_ANY (-1)

/* "To the end", for the stop of a slice. */
#define GD_END INT64_MAX

/* x[i][j]... as a view: one index for each of the first axes (the op gd_subtensor of ops.h). */
#define gd_at(x, ...) gd_subtensor(x, gd_dims(__VA_ARGS__))

/* A shape from an array. */
GD_API gd_shape gd_shape_of(int rank, const int64_t *sizes);

/* --- lists of tensors ------------------------------------------------------------------------- */

/* Several tensors: gd_cat(gd_list(a, b, c), .axis = 1). A list that an op returns belongs to the
 * scope, with its array and its tensors. */
typedef struct gd_tensors {
    gd_tensor *const *at;
    int64_t count;
} gd_tensors;

#ifdef __cplusplus
} /* in C++ a list written in a call lives, like any temporary, until the end of that call */
template <int count> struct gd_list_of_ {
    gd_tensor *at[count];
    operator gd_tensors() const { return gd_tensors{at, count}; }
};
template <typename... Tensors> inline gd_list_of_<sizeof...(Tensors)> gd_list(Tensors... tensors) {
    return gd_list_of_<sizeof...(Tensors)>{{tensors...}};
}
extern "C" {
#else
#define gd_list(...)                                              \
    (__extension__(gd_tensors){(gd_tensor *const[]){__VA_ARGS__}, \
                               sizeof((gd_tensor *[]){__VA_ARGS__}) / sizeof(gd_tensor *)})
#endif

/* The first `count` tensors of an array as a list, for lists that a loop fills:
 *
 *     gd_tensor *parts[8];
 *     for (int i = 0; i < 8; i++) parts[i] = gd_full(gd_dims(2), i);
 *     gd_tensor *y = gd_cat(gd_list_of(parts, 8));
 *
 * The array is not copied, so it must live as long as the list; gd_list_copy (scope.h) copies a
 * list that a function returns. */
static inline gd_tensors gd_list_of(gd_tensor *const *array, int64_t count) {
    gd_tensors list = {array, count};
    return list;
}

/* --- properties ------------------------------------------------------------------------------- */

/* All of these accept NULL and error tensors, for which they return 0, GD_DTYPE_NONE or false. */
GD_API gd_dtype gd_tensor_dtype(const gd_tensor *t);
GD_API gd_device *gd_tensor_device(const gd_tensor *t);
GD_API int gd_tensor_rank(const gd_tensor *t);
GD_API gd_shape gd_tensor_shape(const gd_tensor *t);
GD_API int64_t gd_tensor_dim(const gd_tensor *t, int axis);    /* axis may be negative */
GD_API int64_t gd_tensor_stride(const gd_tensor *t, int axis); /* in elements */
GD_API int64_t gd_tensor_numel(const gd_tensor *t);
GD_API bool gd_tensor_is_contiguous(const gd_tensor *t);
GD_API bool gd_tensor_is_error(const gd_tensor *t);
GD_API bool gd_tensor_is_symbol(const gd_tensor *t);
/* Whether its memory belongs to another library that allows only reading (dlpack.h). Calls that
 * would write it fail. */
GD_API bool gd_tensor_is_read_only(const gd_tensor *t);

/* --- data in and out -------------------------------------------------------------------------- */

/* A tensor of uninitialized memory on the thread's default device (device.h). */
#define gd_empty(...) gd_empty_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_empty_at(const char *site, gd_shape shape, gd_dtype dtype);

/* Copies `data` (row-major) into a new tensor: gd_from_array(gd_dims(2, 3), GD_F32, values). */
#define gd_from_array(...) gd_from_array_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_from_array_at(const char *site, gd_shape shape, gd_dtype dtype,
                                   const void *data);

/* A tensor of rank 0: gd_scalar(2) is f32; gd_scalar_of(2, GD_I64) has another dtype. Elementwise
 * ops take numbers as they are: gd_mul(x, 2) (operand.h). */
#define gd_scalar(...) gd_scalar_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_scalar_at(const char *site, double value);
#define gd_scalar_of(value, dtype) gd_scalar_of_at(GD_HERE, gd_number_of(value), dtype)
GD_API gd_tensor *gd_scalar_of_at(const char *site, gd_number value, gd_dtype dtype);
#define gd_scalar_int(...) gd_scalar_int_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_scalar_int_at(const char *site, int64_t value);

/* Wraps host memory without a copy. `strides` are in elements, NULL for row-major; the address must
 * be a multiple of the element size. deleter(data, user), if not NULL, is called when the last
 * reference is released. If the call fails, it is not called and the caller still owns the memory.
 * */
#define gd_from_memory(...) gd_from_memory_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_from_memory_at(const char *site, gd_shape shape, const int64_t *strides,
                                    gd_dtype dtype, void *data,
                                    void (*deleter)(void *data, void *user), void *user);

/* Waits for the tensor's device and copies its elements to the host in row-major order. `bytes`
 * must be exactly numel * element size. */
#define gd_copy_to(...) gd_copy_to_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_copy_to_at(const char *site, const gd_tensor *t, void *data, size_t bytes);

/* Copies host data (row-major, the tensor's dtype) into an existing tensor. */
#define gd_copy_from(...) gd_copy_from_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_copy_from_at(const char *site, gd_tensor *t, const void *data, size_t bytes);

/* The element of a tensor with one element; waits for its device. On failure gd_item returns NaN
 * and gd_item_int 0. */
#define gd_item(...) gd_item_at(GD_HERE, __VA_ARGS__)
GD_API double gd_item_at(const char *site, const gd_tensor *t);
#define gd_item_int(...) gd_item_int_at(GD_HERE, __VA_ARGS__)
GD_API int64_t gd_item_int_at(const char *site, const gd_tensor *t);

/* The address of the first element of a CPU tensor; its other elements follow by the strides. NULL
 * for a symbol, an error tensor and a tensor on another device. */
GD_API void *gd_data(const gd_tensor *t);

/* A copy of `t` on a device, or `t` itself if it is already there. Gradients flow through. `device`
 * is a gd_device or its name: gd_to_device(t, "cuda"). */
#define gd_to_device(t, device) gd_to_device_at(GD_HERE, t, GD_DEVICE_(device))
GD_API gd_tensor *gd_to_device_at(const char *site, gd_tensor *t, gd_device *device);

#ifdef __cplusplus
}
#endif
#endif
