/* random_integers.c - random integers: randint and randperm. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "ops/random/random_ops.h"

/* The range in which a dtype represents all integers. */
static void integer_limits(gd_dtype dtype, int64_t *least, int64_t *most) {
    switch (dtype) {
    case GD_BOOL: *least = 0, *most = 1; break;
    case GD_U8: *least = 0, *most = UINT8_MAX; break;
    case GD_I8: *least = INT8_MIN, *most = INT8_MAX; break;
    case GD_I32: *least = INT32_MIN, *most = INT32_MAX; break;
    case GD_BF16: *least = -256, *most = 256; break;
    case GD_F16: *least = -2048, *most = 2048; break;
    case GD_F32: *least = -(1 << 24), *most = 1 << 24; break;
    case GD_F64: *least = -((int64_t)1 << 53), *most = (int64_t)1 << 53; break;
    default: *least = INT64_MIN, *most = INT64_MAX; break;
    }
}

/*op randint(dims:int[], low:int, high:int) -> y  nograd random
 * Random integers from low to high - 1, all equally likely.
 *   dtype dtype = i64
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   python (low, high, size=dims)
 */
static gd_status randint_infer(gd_infer *i) {
    const gd_randint_options *o = i->attrs;
    size_t bytes;
    int64_t least, most;
    GD_TRY(gd_need_key(i, 0));
    if (o->low >= o->high)
        return gd_op_fail(GD_E_ARGUMENT, "low is %lld and high is %lld; high must be above low",
                          (long long)o->low, (long long)o->high);
    GD_TRY(gd_shape_bytes(o->dims, o->dtype, &bytes));
    integer_limits(o->dtype, &least, &most);
    if (o->low < least || o->high - 1 > most)
        return gd_op_fail(GD_E_OVERFLOW, "%s represents all integers only from %lld to %lld",
                          gd_dtype_name(o->dtype), (long long)least, (long long)most);
    i->out[0].dtype = o->dtype;
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof i->out[0].dims);
    return GD_OK;
}

/*op scaled_words(high, low, range_high:int, range_low:int, ones:int, first:int) -> y  elementwise integral internal
 * first + the upper 64 bits of the 128-bit product of random bits (high, low) and a range
 * (range_high, range_low), all given as 32-bit words. `ones` is 2^32 - 1. A product of two words
 * fits into 64 bits.
 *   low_low = low * range_low
 *   low_high = low * range_high
 *   high_low = high * range_low
 *   middle = bit_and(shr(low_low, 32), ones) + bit_and(low_high, ones) + bit_and(high_low, ones)
 *   carried = bit_and(shr(low_high, 32), ones) + bit_and(shr(high_low, 32), ones) + shr(middle, 32)
 *   y = first + high * range_high + carried
 */
static void randint_expand(gd_expansion *e) {
    const gd_randint_options *o = e->attrs;
    const uint64_t range = (uint64_t)o->high - (uint64_t)o->low;
    gd_tensor *words =
        gd_key_words(gd_call_key(e, 0, NULL), gd_dims(gd_numel(o->dims.rank, o->dims.at), 2));
    gd_tensor *y =
        gd_scaled_words(gd_select(words, 1, 0), gd_select(words, 1, 1), (int64_t)(range >> 32),
                        (int64_t)(range & UINT32_MAX), UINT32_MAX, o->low);
    e->y[0] = gd_reshape(gd_as_dtype(y, o->dtype), o->dims);
}
static gd_status randint_raw(gd_kernel_call *k) {
    const gd_randint_options *o = k->attrs;
    const gd_view *y = &k->out[0];
    uint64_t range = (uint64_t)o->high - (uint64_t)o->low;
    for (int64_t i = 0, n = gd_view_count(y); i < n; i++)
        gd_store_i64(
            y->dtype, gd_view_element(y, i),
            (int64_t)((uint64_t)o->low + gd_below(gd_long_at(k->rng, (uint64_t)i), range)));
    return GD_OK;
}

/*op randperm(n:int) -> y  nograd random
 * A random permutation of the integers 0 to n - 1: each gets 64 random bits, and they are sorted by
 * these.
 *   dtype dtype = i64
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   python (n)
 */
static gd_status randperm_infer(gd_infer *i) {
    const gd_randperm_options *o = i->attrs;
    size_t bytes;
    int64_t least, most;
    GD_TRY(gd_need_key(i, 0));
    if (o->n < 0)
        return gd_op_fail(GD_E_ARGUMENT, "n is %lld; it must be 0 or more", (long long)o->n);
    if (!gd_dtype_is_int(o->dtype))
        return gd_op_fail(GD_E_DTYPE, "dtype is %s; it must be an integer",
                          gd_dtype_name(o->dtype));
    GD_TRY(gd_shape_bytes(gd_dims(o->n), GD_I64, &bytes));
    integer_limits(o->dtype, &least, &most);
    if (o->n - 1 > most)
        return gd_op_fail(GD_E_OVERFLOW, "n is %lld, but the largest %s is %lld", (long long)o->n,
                          gd_dtype_name(o->dtype), (long long)most);
    i->out[0].dtype = o->dtype;
    i->out[0].rank = 1;
    i->out[0].dims[0] = o->n;
    return GD_OK;
}

/* An integer of the permutation and the random bits that it is sorted by. */
typedef struct {
    uint64_t bits;
    int64_t index;
} ticket;

/* bits >> shift is the bucket of a ticket. The shift is such that buckets hold two to four tickets
 * on average. */
static int bucket_shift(int64_t n) {
    int shift = 63;
    while (shift > 0 && (n >> (64 - shift)) > 2) shift--;
    return shift;
}

/* Draws n tickets, sorted by their bits; equal ones stay in order. A bucket sort by the upper bits
 * comes first; buckets hold few tickets because the bits are uniform, so an insertion sort does the
 * rest. Behind the tickets is space for n + 1 words of bits and for the buckets' starts. */
static void draw_sorted_tickets(gd_rng rng, int64_t n, ticket *tickets) {
    const int shift = bucket_shift(n);
    const size_t buckets = (size_t)1 << (64 - shift);
    uint64_t *bits = (uint64_t *)(tickets + n);
    int64_t *starts = (int64_t *)(bits + n + 1);
    memset(starts, 0, (buckets + 1) * sizeof *starts);
    for (int64_t i = 0; i < n; i += 2) { /* a block gives two elements, so one extra if n is odd */
        uint32_t w[4];
        gd_philox(rng, (uint64_t)i / 2, w);
        bits[i] = (uint64_t)w[0] << 32 | w[1];
        bits[i + 1] = (uint64_t)w[2] << 32 | w[3];
    }
    for (int64_t i = 0; i < n; i++) starts[(bits[i] >> shift) + 1]++;
    for (size_t b = 1; b <= buckets; b++) starts[b] += starts[b - 1];
    for (int64_t i = 0; i < n; i++) tickets[starts[bits[i] >> shift]++] = (ticket){bits[i], i};
    for (int64_t i = 1; i < n; i++) {
        ticket t = tickets[i];
        int64_t at = i;
        for (; at > 0 && tickets[at - 1].bits > t.bits; at--) tickets[at] = tickets[at - 1];
        tickets[at] = t;
    }
}

/*op ticket_order(high, low, half:int, unit:int) -> y  elementwise integral internal
 * The 64 random bits of two words as an i64 that sorts as the unsigned number does. half is 2^31
 * and unit 2^32.
 *   y = (high - half) * unit + low
 */

/* The 64 bits of element i are the words 2 i and 2 i + 1. */
static void randperm_expand(gd_expansion *e) {
    const gd_randperm_options *o = e->attrs;
    gd_tensor *words = gd_key_words(gd_call_key(e, 0, NULL), gd_dims(o->n, 2));
    gd_tensor *order = gd_ticket_order(gd_select(words, 1, 0), gd_select(words, 1, 1),
                                       INT64_C(1) << 31, INT64_C(1) << 32);
    e->y[0] = gd_as_dtype(gd_argsort(order), o->dtype);
}

/* The tickets, their bits (one extra, see draw_sorted_tickets), and the starts of buckets. */
static size_t randperm_workspace(const gd_kernel_call *k) {
    const int64_t n = k->out[0].dims[0];
    return (size_t)n * sizeof(ticket) + ((size_t)n + 1) * 8 +
           (((size_t)1 << (64 - bucket_shift(n))) + 1) * 8;
}
static gd_status randperm_raw(gd_kernel_call *k) {
    const gd_view *y = &k->out[0];
    int64_t n = y->dims[0];
    ticket *tickets = k->workspace;
    draw_sorted_tickets(k->rng, n, tickets);
    for (int64_t i = 0; i < n; i++) gd_store_i64(y->dtype, gd_view_element(y, i), tickets[i].index);
    return GD_OK;
}

#include "ops/random/random_integers.gen.h"
