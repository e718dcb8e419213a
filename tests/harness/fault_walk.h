/* fault_walk.h - repeats a piece of code and makes allocation n fail in round n.
 *
 *     for (fault_walk w = {.what = "saving a net"}; fault_next(&w);) {
 *         GD_SCOPE;
 *         ... prepare ...
 *         fault_begin(&w);
 *         gd_status status = gd_save_state(...);
 *         fault_end(&w);
 *         CHECK_FAULT(&w, status);
 *         ... check that nothing changed, where status is not GD_OK ...
 *     }
 *
 * The walk ends after the first round that makes fewer allocations. fault_next fails the test if a
 * round leaks objects or bytes, or if the walk does not end.
 */
#ifndef GRADUS_TESTS_HARNESS_FAULT_WALK_H
#define GRADUS_TESTS_HARNESS_FAULT_WALK_H

#include "core/error.h"
#include "gradus/device.h"
#include "gradus/scope.h"
#include "gradus/status.h"
#include "gradus/testing.h"

typedef struct fault_walk {
    const char *what;       /* the name of the code in messages */
    bool lasting;           /* all later allocations fail as well */
    int64_t first;          /* the allocation that fails in the first round */
    int64_t stride;         /* distance between the allocations of two rounds; 0: 1 */
    int64_t dense;          /* if not 0: the stride grows by 1 for each `dense` allocations */
    int64_t most;           /* the walk fails at this allocation; 0: 100000 */
    int64_t at;             /* the allocation that fails in this round */
    int64_t rounds;         /* started so far */
    int64_t failures;       /* rounds that failed, as CHECK_FAULT counts them */
    bool fired;             /* this round reached its allocation; set by fault_end */
    int64_t counted;        /* gd_fault_allocations at the start of the round */
    int64_t objects, bytes; /* live ones at the start of the round */
} fault_walk;

/* Makes allocation w->at of the code that follows fail. */
static inline void fault_begin(fault_walk *w) {
    w->counted = gd_fault_allocations();
    gd_fault_after(w->at, w->lasting);
}

static inline void fault_end(fault_walk *w) {
    gd_fault_after(-1, false);
    w->fired = gd_fault_allocations() - w->counted > w->at;
}

/* Advances to the next round. False: the walk is complete. */
static inline bool fault_advance(fault_walk *w) {
    if (w->rounds && !w->fired) return false;
    if (w->rounds == 0) w->at = w->first;
    else w->at += (w->stride ? w->stride : 1) + (w->dense ? w->at / w->dense : 0);
    w->rounds++;
    w->fired = false;
    w->objects = gd_live_objects();
    w->bytes = gd_memory_stats(NULL).live_bytes;
    return w->at < (w->most ? w->most : 100000);
}

/* Whether the current round has leaked nothing. */
static inline bool fault_is_clean(const fault_walk *w) {
    return w->rounds == 0 ||
           (gd_live_objects() == w->objects && gd_memory_stats(NULL).live_bytes == w->bytes);
}
static inline long long fault_leaked_objects(const fault_walk *w) {
    return (long long)(gd_live_objects() - w->objects);
}
static inline long long fault_leaked_bytes(const fault_walk *w) {
    return (long long)(gd_memory_stats(NULL).live_bytes - w->bytes);
}

/* --- in tests with test.h --------------------------------------------------------------------- */

/* Checks that the last round leaked nothing, then advances. False: the walk is complete. */
#define fault_next(w)                                                                          \
    ({                                                                                         \
        CHECK_SAYING(fault_is_clean(w), "%s, allocation %lld: leaks %lld objects, %lld bytes", \
                     (w)->what, (long long)(w)->at, fault_leaked_objects(w),                   \
                     fault_leaked_bytes(w));                                                   \
        const bool more_ = test_failures < 10 && fault_advance(w);                             \
        CHECK_SAYING(more_ || test_failures || !(w)->fired, "%s: the walk does not end",       \
                     (w)->what);                                                               \
        more_;                                                                                 \
    })

/* The round succeeded, or it failed because the allocation that it reached failed. Clears the
 * recorded failure. */
#define CHECK_FAULT(w, status)                                                     \
    do {                                                                           \
        const gd_status status_ = (status);                                        \
        CHECK_SAYING(status_ == GD_OK || ((w)->fired && status_ == GD_E_MEMORY),   \
                     "%s, allocation %lld: %s: %s", (w)->what, (long long)(w)->at, \
                     gd_status_name(status_), gd_latest_failure());                \
        (w)->failures += status_ != GD_OK;                                         \
        gd_clear_error();                                                          \
    } while (0)

/* Any other condition; a failure names the allocation. */
#define CHECK_ROUND(w, condition) \
    CHECK_SAYING(condition, "%s, allocation %lld", (w)->what, (long long)(w)->at)

#endif
