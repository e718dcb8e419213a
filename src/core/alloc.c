/* alloc.c - memory of the library, with a switch that makes allocations fail for tests. */
#include "core/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "gradus/testing.h"

/* Decremented by each allocation. An allocation that finds 0 fails; a lasting fault stays at 0.
 * Negative: no fault is set. */
static _Atomic int64_t fault_countdown = -1;
static _Atomic int fault_lasts;
static _Atomic int64_t allocation_count;

void gd_fault_after(int64_t n, bool lasting) {
    atomic_store(&fault_lasts, lasting);
    atomic_store(&fault_countdown, n);
}

bool gd_faults_armed(void) {
    return atomic_load_explicit(&fault_countdown, memory_order_relaxed) >= 0;
}

int64_t gd_fault_allocations(void) { return atomic_load(&allocation_count); }

static bool allocation_fails(void) {
    if (atomic_load_explicit(&fault_countdown, memory_order_relaxed) < 0) return false;
    atomic_fetch_add_explicit(&allocation_count, 1, memory_order_relaxed);
    int64_t left = atomic_fetch_sub(&fault_countdown, 1);
    if (left > 0) return false;
    if (left == 0 && atomic_load(&fault_lasts)) atomic_store(&fault_countdown, 0);
    return left == 0;
}

void *gd_malloc(size_t bytes) { return allocation_fails() ? NULL : malloc(bytes ? bytes : 1); }

void *gd_calloc(size_t count, size_t bytes) {
    return allocation_fails() ? NULL : calloc(count ? count : 1, bytes ? bytes : 1);
}

void *gd_realloc(void *old, size_t bytes) {
    return allocation_fails() ? NULL : realloc(old, bytes ? bytes : 1);
}

void *gd_aligned_alloc(size_t alignment, size_t bytes) {
    void *p = NULL;
    if (allocation_fails() || posix_memalign(&p, alignment, bytes ? bytes : 1) != 0) return NULL;
    return p;
}

void gd_free(void *p) { free(p); }

void *gd_alloc_pages(size_t bytes) {
    if (allocation_fails()) return NULL;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void gd_free_pages(void *p, size_t bytes) { munmap(p, bytes); }
