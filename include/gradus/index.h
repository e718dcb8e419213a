/* index.h - parts of a tensor, as x[...] in Python.
 *
 *     gd_index(x, 2)                             x[2]
 *     gd_index(x, GD_ALL, -1)                    x[:, -1]
 *     gd_index(x, GD_ELLIPSIS, gd_range(1, 4))   x[..., 1:4]
 *     gd_index(x, i)                             x[i]            i: a tensor of integers
 *     gd_index(x, GD_ALL, i, GD_ALL, j)          x[:, i, :, j]   i and j broadcast
 *     gd_index(x, mask)                          x[mask]         mask: a tensor of bools
 *     gd_index(x, GD_NEWAXIS, gd_range(0, GD_END))
 *
 *     gd_index_put(x, gd_places(i, j), v)                       x with v at [i, j]
 *     gd_index_put(x, gd_places(i, j), v, .accumulate = true)   x with v added there
 *     gd_index_put_(x, gd_places(i, j), v)                      x[i, j] = v, in place
 *
 * Each argument after x (a "place", gd_place) applies to the next axis of x. Trailing axes may be
 * left out. Negative indices count from the end. An index out of range fails with GD_E_INDEX; the
 * message names the index, its axis and the range.
 *
 * The kinds of places:
 *   a number        selects one index and removes the axis
 *   gd_range(a, b)  indices a to b - 1, as Python's a:b; gd_range_by(a, b, step) as a:b:step
 *   GD_ALL          the entire axis; GD_ELLIPSIS: all axes that the other places do not use
 *   GD_NEWAXIS      a new axis of size 1
 *   integer tensor  the indices that it holds. Several such tensors broadcast and select together:
 *                   gd_index(x, i, j)[k] = x[i[k]][j[k]]. Their broadcast dimensions replace the
 *                   indexed axes; if these axes are not adjacent, they come first in the result.
 *                   (Numbers and new axes are applied before, as in PyTorch.)
 *   bool tensor     a mask, which covers as many axes as it has dimensions. It selects the indices
 *                   at which it is true, so the size of the result depends on its data.
 * Without a tensor among the places the result is a view of x.
 *
 * Gradients of any order flow into x and v. If indices repeat, gd_index_put keeps the last value in
 * row-major order, or adds all values in this order; the result is the same for any number of
 * threads.
 */
#ifndef GRADUS_INDEX_H
#define GRADUS_INDEX_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/options.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gd_place_kind {
    GD_PLACE_ALL,
    GD_PLACE_ELLIPSIS,
    GD_PLACE_NEWAXIS,
    GD_PLACE_AT,    /* start */
    GD_PLACE_RANGE, /* start, stop, step */
    GD_PLACE_TENSOR,
} gd_place_kind;

/* The index of one axis. */
typedef struct gd_place {
    gd_place_kind kind;
    gd_tensor *tensor;
    int64_t start, stop, step;
#ifdef __cplusplus
    gd_place() = default;
    gd_place(gd_place_kind k, gd_tensor *t, int64_t a, int64_t b, int64_t by)
        : kind(k), tensor(t), start(a), stop(b), step(by) {}
    gd_place(gd_tensor *t) : gd_place(GD_PLACE_TENSOR, t, 0, 0, 1) {}
    gd_place(int64_t position) : gd_place(GD_PLACE_AT, nullptr, position, 0, 1) {}
    gd_place(int position) : gd_place(GD_PLACE_AT, nullptr, position, 0, 1) {}
#endif
} gd_place;

/* Several places: gd_places(i, GD_ALL, 3). */
typedef struct gd_place_list {
    const gd_place *at;
    int count;
} gd_place_list;

#ifdef __cplusplus
}
#define GD_PLACE_AS_(kind, tensor, start, stop, step) gd_place(kind, tensor, start, stop, step)
template <int count> struct gd_places_of_ {
    gd_place at[count > 0 ? count : 1];
    operator gd_place_list() const { return gd_place_list{at, count}; }
};
template <typename... Places> inline gd_places_of_<sizeof...(Places)> gd_places(Places... places) {
    return gd_places_of_<sizeof...(Places)>{{gd_place(places)...}};
}
extern "C++" {
#else
#define GD_PLACE_AS_(kind, tensor, start, stop, step) ((gd_place){kind, tensor, start, stop, step})
#endif

#define GD_ALL      GD_PLACE_AS_(GD_PLACE_ALL, NULL, 0, 0, 1)
#define GD_ELLIPSIS GD_PLACE_AS_(GD_PLACE_ELLIPSIS, NULL, 0, 0, 1)
#define GD_NEWAXIS  GD_PLACE_AS_(GD_PLACE_NEWAXIS, NULL, 0, 0, 1)

/* start:stop and start:stop:step. GD_UNSET leaves out start or stop, as Python's ::step does;
 * GD_END as stop is the end of the axis. Values out of range are clamped. */
static inline gd_place gd_range(int64_t start, int64_t stop) {
    return GD_PLACE_AS_(GD_PLACE_RANGE, NULL, start, stop, 1);
}
static inline gd_place gd_range_by(int64_t start, int64_t stop, int64_t step) {
    return GD_PLACE_AS_(GD_PLACE_RANGE, NULL, start, stop, step);
}

#ifdef __cplusplus
}
extern "C" {
#else
static inline gd_place gd_place_same_(gd_place place) { return place; }
static inline gd_place gd_place_number_(int64_t position) {
    return GD_PLACE_AS_(GD_PLACE_AT, NULL, position, 0, 1);
}
static inline gd_place gd_place_tensor_(gd_tensor *t) {
    return GD_PLACE_AS_(GD_PLACE_TENSOR, t, 0, 0, 1);
}
#define GD_PLACE_(place)                   \
    _Generic((place), gd_place             \
             : gd_place_same_, gd_tensor * \
             : gd_place_tensor_, default   \
             : gd_place_number_)(place)

/* GD_PLACE_ of each argument, each followed by a comma. A macro does not expand inside itself, so
 * GD_NEXT_PLACE_ ends with its own name without arguments, and the layers of GD_AGAIN_ expand it
 * again for the next argument. */
#define GD_NOTHING_         ()
#define GD_AGAIN_(...)      GD_AGAIN4_(GD_AGAIN4_(GD_AGAIN4_(__VA_ARGS__)))
#define GD_AGAIN4_(...)     GD_AGAIN3_(GD_AGAIN3_(GD_AGAIN3_(__VA_ARGS__)))
#define GD_AGAIN3_(...)     GD_AGAIN2_(GD_AGAIN2_(GD_AGAIN2_(__VA_ARGS__)))
#define GD_AGAIN2_(...)     __VA_ARGS__
#define GD_EACH_PLACE_(...) __VA_OPT__(GD_AGAIN_(GD_NEXT_PLACE_(__VA_ARGS__)))
#define GD_NEXT_PLACE_(place, ...) \
    GD_PLACE_(place), __VA_OPT__(GD_NEXT_PLACE_NAME_ GD_NOTHING_(__VA_ARGS__))
#define GD_NEXT_PLACE_NAME_() GD_NEXT_PLACE_

#define gd_places(...)                                   \
    (__extension__(gd_place_list){                       \
        (const gd_place[]){GD_EACH_PLACE_(__VA_ARGS__)}, \
        (int)(sizeof((gd_place[]){GD_EACH_PLACE_(__VA_ARGS__)}) / sizeof(gd_place))})
#endif

/* x[places]. */
#define gd_index(x, ...) gd_index_at(GD_HERE, x, gd_places(__VA_ARGS__))
GD_API gd_tensor *gd_index_at(const char *site, gd_tensor *x, gd_place_list places);

typedef struct gd_index_put_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    bool accumulate GD_DEFAULT_(false); /* add the value instead of replacing elements */
} GD_GIVEN_BY_NAME_ gd_index_put_options;
#define GD_INDEX_PUT_OPTIONS_(...) \
    GD_OPTIONS_(gd_index_put_options, (.accumulate = false), __VA_ARGS__)

/* A copy of x in which x[places] is replaced by `value`, broadcast to the shape of x[places]. */
#define gd_index_put(x, places, value, ...) \
    GD_WITH_OPTIONS_(gd_index_put_at(GD_HERE, x, places, value, GD_INDEX_PUT_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_index_put_at(const char *site, gd_tensor *x, gd_place_list places,
                                  gd_tensor *value, const gd_index_put_options *options);

/* Writes `value`, broadcast to the shape of x[places] and cast to the dtype of x, into x and
 * returns x. x may be a view: the tensor that it shares its memory with changes, too. `value` may
 * share memory with x. An index out of range changes nothing (on a device that works
 * asynchronously, as for all ops).
 *
 * Like other ops in place it is on the tape, so that gradients flow into `value` and into what x
 * was before. Then x must not be a leaf that requires a gradient, nor share its memory. In a jit,
 * writes to captured tensors take effect at the end of each run. */
#define gd_index_put_(x, places, value, ...) \
    GD_WITH_OPTIONS_(                        \
        gd_index_put__at(GD_HERE, x, places, value, GD_INDEX_PUT_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_index_put__at(const char *site, gd_tensor *x, gd_place_list places,
                                   gd_tensor *value, const gd_index_put_options *options);

#ifdef __cplusplus
}
#endif
#endif
