/* gemm_scratch.c - scratch memory for matrix products: one cached buffer per thread and kind, and a
 * reserve that all threads share when no memory is left.
 */
#include "ops/matmul/cpu/gemm_block.h"

#include "core/alloc.h"
#include "core/device.h"
#include "core/error.h"
#include "core/fork.h"
#include "gradus/testing.h"

#include <pthread.h>
#include <stdatomic.h>

/* --- the threads' own buffers ----------------------------------------------------------------- */

enum { SCRATCH_KINDS = 2, SCRATCH_ALIGNMENT = 4096 };

static _Thread_local struct {
    void *memory[SCRATCH_KINDS];
    size_t bytes[SCRATCH_KINDS];
} scratch;

static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static pthread_key_t scratch_key; /* its destructor frees the scratch memory of an exiting thread */
static _Atomic bool has_scratch_key, is_closed;

void gd_gemm_free_scratch(void) {
    for (int i = 0; i < SCRATCH_KINDS; i++) {
        gd_free(scratch.memory[i]);
        scratch.memory[i] = NULL;
        scratch.bytes[i] = 0;
    }
}

static void free_scratch_at_thread_exit(void *unused) {
    (void)unused;
    gd_gemm_free_scratch();
}

static void create_scratch_key(void) {
    atomic_store(&has_scratch_key,
                 pthread_key_create(&scratch_key, free_scratch_at_thread_exit) == 0);
}

/* A thread that outlives dlclose() must not call what is unmapped; its buffers are lost. This is
 * among the last destructors, because others end the threads of the library. */
static void __attribute__((destructor(101))) delete_scratch_key(void) {
    atomic_store(&is_closed, true);
    if (atomic_exchange(&has_scratch_key, false)) pthread_key_delete(scratch_key);
}

/* Whether the buffers of this thread are freed when it ends. */
static bool is_freed_at_thread_exit(void) {
    pthread_once(&scratch_once, create_scratch_key);
    return atomic_load(&has_scratch_key) && pthread_setspecific(scratch_key, &scratch) == 0;
}

static void *thread_scratch(gd_gemm_scratch_kind kind, size_t bytes) {
    if (scratch.bytes[kind] < bytes || gd_faults_armed()) {
        if (!is_freed_at_thread_exit() && !atomic_load(&is_closed)) return NULL;
        const size_t capacity = gd_gemm_scratch_capacity(bytes);
        gd_free(scratch.memory[kind]);
        scratch.memory[kind] = gd_aligned_alloc(SCRATCH_ALIGNMENT, capacity);
        scratch.bytes[kind] = scratch.memory[kind] ? capacity : 0;
    }
    return scratch.memory[kind];
}

/* --- the reserve ------------------------------------------------------------------------------ */

/* The layout of the reserve: scratch memory for one block, then two partial products. Each of the
 * two parts has a mutex, so one block and one split-K product use it at a time. RESERVED_BLOCK is
 * more than any block needs for its strips of A, its panel of B and its sums. */
enum { RESERVED_BLOCK = 6 << 20 };
static _Atomic(char *) reserve;
static pthread_mutex_t reserve_creation = PTHREAD_MUTEX_INITIALIZER,
                       reserve_block = PTHREAD_MUTEX_INITIALIZER,
                       reserve_partials = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(reserve_creation)
GD_MUTEX_AT_FORK(reserve_partials)
GD_INNER_MUTEX_AT_FORK(reserve_block)

gd_status gd_gemm_reserve(void) {
    if (atomic_load(&reserve)) return GD_OK;
    pthread_mutex_lock(&reserve_creation);
    if (!atomic_load(&reserve))
        atomic_store(&reserve, gd_aligned_alloc(SCRATCH_ALIGNMENT,
                                                RESERVED_BLOCK + 2 * GD_GEMM_RESERVED_PARTIAL));
    pthread_mutex_unlock(&reserve_creation);
    return atomic_load(&reserve)
               ? GD_OK
               : gd_fail(GD_E_MEMORY, "out of memory for the scratch reserve of matrix products");
}

static void __attribute__((constructor)) set_reserve_hook(void) {
    gd_cpu_reserve_hook = gd_gemm_reserve;
}

static void __attribute__((destructor)) free_reserve(void) {
    gd_gemm_free_scratch(); /* of this thread */
    gd_free(atomic_exchange(&reserve, NULL));
}

static void *lock_reserved_block(size_t bytes) {
    char *memory = atomic_load(&reserve);
    if (!memory || bytes > RESERVED_BLOCK) return NULL;
    pthread_mutex_lock(&reserve_block);
    return memory;
}

char *gd_gemm_reserved_partials_lock(void) {
    char *memory = atomic_load(&reserve);
    if (!memory) return NULL;
    pthread_mutex_lock(&reserve_partials);
    return memory + RESERVED_BLOCK;
}

void gd_gemm_reserved_partials_unlock(void) { pthread_mutex_unlock(&reserve_partials); }

void *gd_gemm_scratch(gd_gemm_scratch_kind kind, size_t bytes) {
    void *memory = thread_scratch(kind, bytes);
    return memory || kind != GD_GEMM_SCRATCH_BLOCK ? memory : lock_reserved_block(bytes);
}

void gd_gemm_scratch_done(void *memory) {
    if (memory && memory == atomic_load_explicit(&reserve, memory_order_relaxed))
        pthread_mutex_unlock(&reserve_block);
}
