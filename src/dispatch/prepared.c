/* prepared.c - a cache of the results of kernels' `prepare`, by problem.
 *
 * The key is everything that `prepare` may read: kernel, device, options, whether tf32 is allowed,
 * and the dtype, shape, strides and alignment of each operand. At most MAX_IDLE entries that
 * nobody holds stay in the cache; beyond that the least recently used is released. A problem that a
 * kernel declines has an entry, too, which nobody holds.
 */
#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fork.h"
#include "dispatch/launch.h"

enum { HASH_SIZE = 1024, MAX_IDLE = 512, HEAD_WORDS = 4, VIEW_WORDS = 1 + 2 * GD_MAX_RANK };

struct gd_prepared {
    struct gd_prepared *chain;         /* next entry in the same slot of the hash table */
    struct gd_prepared *newer, *older; /* list of idle entries: those with refs == 0 */
    gd_device *device;
    const gd_kernel *kernel;
    void *value;
    size_t workspace_bytes;
    bool declined;
    char *reason; /* the message of a `prepare` that declined; NULL: none */
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

static size_t words_for(size_t bytes) { return (bytes + 7) / 8; }

static int64_t *add_bytes_key(int64_t *at, const void *bytes, size_t count) {
    if (count == 0) return at;
    at[(count - 1) / 8] = 0; /* the last word may be filled in part */
    memcpy(at, bytes, count);
    return at + words_for(count);
}

static const char *string_at(const void *field) { return *(const char *const *)field; }

static int64_t *add_option_key(int64_t *at, const gd_op_attr *a, const void *field) {
    switch (a->type) {
    case GD_ATTR_INT:
    case GD_ATTR_FLOAT: return add_bytes_key(at, field, 8);
    case GD_ATTR_NUMBER: return add_bytes_key(at, field, sizeof(gd_number));
    case GD_ATTR_INTS: return add_bytes_key(at, field, (size_t)a->count * sizeof(int64_t));
    case GD_ATTR_GRAPH: return add_bytes_key(at, field, sizeof(void *));
    case GD_ATTR_BOOL: *at++ = *(const bool *)field; return at;
    case GD_ATTR_WORD: *at++ = (int64_t) * (const gd_word *)field; return at;
    case GD_ATTR_DTYPE: *at++ = (int64_t) * (const gd_dtype *)field; return at;
    case GD_ATTR_SHAPE: {
        const gd_shape *s = field;
        *at++ = s->rank;
        return add_bytes_key(at, s->at, (size_t)(s->rank > 0 ? s->rank : 0) * sizeof *s->at);
    }
    case GD_ATTR_FLOATS: {
        const gd_floats *s = field;
        *at++ = s->count;
        return add_bytes_key(at, s->at, (size_t)(s->count > 0 ? s->count : 0) * sizeof *s->at);
    }
    case GD_ATTR_STRING: {
        const char *text = string_at(field);
        const size_t length = text ? strlen(text) : 0;
        *at++ = text ? (int64_t)length : -1;
        return add_bytes_key(at, text, length);
    }
    }
    return at;
}

/* The struct of options also has padding, whose bytes are arbitrary, and the addresses of optional
 * tensors, which are operands. So the key has the options one by one. Fused ops describe no options;
 * their struct is zeroed before it is filled. */
static int64_t *add_options_key(int64_t *at, const gd_kernel_call *call) {
    const gd_op *op = call->op;
    if (!call->attrs) return at;
    if (op->fusion) return add_bytes_key(at, call->attrs, op->attrs_size);
    for (int i = 0; i < op->n_attrs; i++)
        at = add_option_key(at, &op->attrs[i], (const char *)call->attrs + op->attrs[i].offset);
    return at;
}

/* Each option has at most one word more than its bytes in the struct; strings are not part of it. */
static size_t max_key_words(const gd_kernel_call *call) {
    const gd_op *op = call->op;
    size_t words = HEAD_WORDS + (size_t)(call->n_in + call->n_out) * VIEW_WORDS +
                   words_for(op->attrs_size) + 2 * (size_t)op->n_attrs;
    for (int i = 0; i < op->n_attrs && call->attrs; i++) {
        const void *field = (const char *)call->attrs + op->attrs[i].offset;
        if (op->attrs[i].type == GD_ATTR_STRING && string_at(field))
            words += words_for(strlen(string_at(field)));
    }
    return words;
}

/* Returns the number of words. */
static size_t make_key(const gd_kernel_call *call, int64_t *key) {
    int64_t *at = key;
    *at++ = (int64_t)(uintptr_t)call->kernel;
    *at++ = (int64_t)(uintptr_t)call->device;
    *at++ = (int64_t)(uintptr_t)call->op;
    *at++ = (int64_t)call->each << 32 | call->n_in << 1 | call->tf32;
    for (int i = 0; i < call->n_in; i++) at = add_view_key(at, &call->in[i]);
    for (int i = 0; i < call->n_out; i++) at = add_view_key(at, &call->out[i]);
    return (size_t)(add_options_key(at, call) - key);
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
    if (p->kernel->release && !p->declined) p->kernel->release(p->device, p->value);
    gd_free(p->reason);
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

static char *copy_text(const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copy = gd_malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static gd_status make_entry(const gd_kernel_call *call, const int64_t *key, size_t words,
                            uint64_t hash, gd_prepared **made) {
    gd_thread *thread = &gd_this_thread;
    gd_prepared *p = gd_calloc(1, sizeof *p + words * sizeof *key);
    if (!p) return gd_fail(GD_E_MEMORY, "no memory to prepare a kernel");
    thread->latest = GD_OK;
    const gd_status status = call->kernel->prepare(call, &p->value, &p->workspace_bytes);
    if (status != GD_OK && status != GD_E_UNSUPPORTED) {
        gd_free(p);
        return status;
    }
    p->declined = status == GD_E_UNSUPPORTED;
    if (p->declined && thread->latest == status) p->reason = copy_text(thread->latest_text);
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
    if (p->declined) {
        *prepared = NULL;
        if (p->reason) gd_fail(GD_E_UNSUPPORTED, "%s", p->reason);
        else gd_this_thread.latest = GD_OK;
        gd_prepared_release(p);
        return GD_E_UNSUPPORTED;
    }
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
