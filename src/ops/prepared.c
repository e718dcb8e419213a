/* prepared.c - a cache of the results of kernels' `prepare`, by problem.
 *
 * The key is everything that `prepare` may read: kernel, device, options, whether tf32 is allowed,
 * and the dtype, shape, strides and alignment of each operand. At most MAX_IDLE entries that
 * nobody holds stay in the cache; beyond that the least recently used is released.
 */
#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fork.h"
#include "ops/launch.h"

enum { HASH_SIZE = 1024, MAX_IDLE = 512, HEAD_WORDS = 4, VIEW_WORDS = 1 + 2 * GD_MAX_RANK };

struct gd_prepared {
    struct gd_prepared *chain;         /* next entry in the same slot of the hash table */
    struct gd_prepared *newer, *older; /* list of idle entries: those with refs == 0 */
    gd_device *device;
    const gd_kernel *kernel;
    void *value;
    size_t workspace_bytes;
    int refs;
    uint64_t hash;
    size_t key_words;
    int64_t key[];
};

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(cache_lock)
static gd_prepared *table[HASH_SIZE], *newest, *oldest;
static int n_idle;

/* --- keys ------------------------------------------------------------------------------------- */

/* The largest power of two, up to 256, that divides the address. */
static int64_t alignment_of(const void *address) {
    const uintptr_t low = (uintptr_t)address | 256;
    return (int64_t)(low & -low);
}

static inline int64_t *add_view_key(int64_t *at, const gd_view *v) {
    const int64_t alignment = v->data ? alignment_of(v->data) : 0;
    *at++ = alignment | (int64_t)v->dtype << 16 | (int64_t)v->rank << 32;
    for (int i = 0; i < v->rank; i++) *at++ = v->dims[i];
    for (int i = 0; i < v->rank; i++) *at++ = v->strides[i];
    return at;
}

static size_t option_bytes(const gd_kernel_call *call) {
    return call->attrs ? call->op->attrs_size : 0;
}

static size_t max_key_words(const gd_kernel_call *call) {
    return HEAD_WORDS + (size_t)(call->n_in + call->n_out) * VIEW_WORDS +
           (option_bytes(call) + 7) / 8;
}

/* Returns the number of words. */
static size_t make_key(const gd_kernel_call *call, int64_t *key) {
    const size_t options = option_bytes(call);
    int64_t *at = key;
    *at++ = (int64_t)(uintptr_t)call->kernel;
    *at++ = (int64_t)(uintptr_t)call->device;
    *at++ = (int64_t)(uintptr_t)call->op;
    *at++ = (int64_t)call->each << 32 | call->n_in << 1 | call->tf32;
    for (int i = 0; i < call->n_in; i++) at = add_view_key(at, &call->in[i]);
    for (int i = 0; i < call->n_out; i++) at = add_view_key(at, &call->out[i]);
    if (options) {
        at[(options - 1) / 8] = 0; /* the last word may be filled in part */
        memcpy(at, call->attrs, options);
    }
    return (size_t)(at - key) + (options + 7) / 8;
}

static uint64_t hash_key(const int64_t *key, size_t words) {
    uint64_t h = words;
    for (size_t i = 0; i < words; i++) {
        h = (h ^ (uint64_t)key[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

static bool same_key(const int64_t *a, const int64_t *b, size_t words) {
    for (size_t i = 0; i < words; i++)
        if (a[i] != b[i]) return false;
    return true;
}

/* --- entries ---------------------------------------------------------------------------------- */

static void remove_idle(gd_prepared *p) {
    if (p->newer) p->newer->older = p->older;
    else newest = p->older;
    if (p->older) p->older->newer = p->newer;
    else oldest = p->newer;
    n_idle--;
}

static void add_idle(gd_prepared *p) {
    p->newer = NULL;
    p->older = newest;
    if (newest) newest->newer = p;
    else oldest = p;
    newest = p;
    n_idle++;
}

/* Removes the least recently used idle entry from the table. */
static gd_prepared *take_oldest(void) {
    gd_prepared *p = oldest, **at = &table[p->hash % HASH_SIZE];
    remove_idle(p);
    while (*at != p) at = &(*at)->chain;
    *at = p->chain;
    return p;
}

static void free_entry(gd_prepared *p) {
    if (p->kernel->release) p->kernel->release(p->device, p->value);
    gd_free(p);
}

static gd_prepared *find_entry(const int64_t *key, size_t words, uint64_t hash) {
    for (gd_prepared *p = table[hash % HASH_SIZE]; p; p = p->chain)
        if (p->hash == hash && p->key_words == words && same_key(p->key, key, words)) {
            if (p->refs++ == 0) remove_idle(p);
            return p;
        }
    return NULL;
}

static gd_status make_entry(const gd_kernel_call *call, const int64_t *key, size_t words,
                            uint64_t hash, gd_prepared **made) {
    gd_prepared *p = gd_calloc(1, sizeof *p + words * sizeof *key);
    if (!p) return gd_fail(GD_E_MEMORY, "no memory to prepare a kernel");
    gd_status status = call->kernel->prepare(call, &p->value, &p->workspace_bytes);
    if (status != GD_OK) {
        gd_free(p);
        return status;
    }
    p->device = call->device;
    p->kernel = call->kernel;
    p->refs = 1;
    p->hash = hash;
    p->key_words = words;
    memcpy(p->key, key, words * sizeof *key);
    *made = p;
    return GD_OK;
}

gd_status gd_prepared_get(gd_kernel_call *call, gd_prepared **prepared) {
    int64_t short_key[256];
    const size_t most = max_key_words(call);
    int64_t *key = most <= 256 ? short_key : gd_malloc(most * sizeof *key);
    if (!key) return gd_fail(GD_E_MEMORY, "no memory to prepare a kernel");
    const size_t words = make_key(call, key);
    const uint64_t hash = hash_key(key, words);
    pthread_mutex_lock(&cache_lock);
    gd_prepared *p = find_entry(key, words, hash);
    pthread_mutex_unlock(&cache_lock);
    gd_status status = GD_OK;
    if (!p) { /* not under the lock: prepare may compile. Two threads may both add an entry */
        status = make_entry(call, key, words, hash, &p);
        if (status == GD_OK) {
            pthread_mutex_lock(&cache_lock);
            p->chain = table[hash % HASH_SIZE];
            table[hash % HASH_SIZE] = p;
            pthread_mutex_unlock(&cache_lock);
        }
    }
    if (key != short_key) gd_free(key);
    *prepared = p;
    if (status != GD_OK) return status;
    call->prepared = p->value;
    call->workspace_bytes = p->workspace_bytes;
    return GD_OK;
}

void gd_prepared_release(gd_prepared *p) {
    if (!p) return;
    gd_prepared *old = NULL;
    pthread_mutex_lock(&cache_lock);
    if (--p->refs == 0) {
        add_idle(p);
        if (n_idle > MAX_IDLE) old = take_oldest();
    }
    pthread_mutex_unlock(&cache_lock);
    if (old) free_entry(old);
}

void *gd_prepared_value(const gd_prepared *p) { return p->value; }
