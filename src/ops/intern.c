/* intern.c */
#include "ops/intern.h"

#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fork.h"

typedef struct interned {
    struct interned *next;
    char text[];
} interned;

/* Stands in front of the block. */
typedef struct kept {
    struct kept *next, *before;
    _Alignas(max_align_t) char block[];
} kept;

static interned *strings;
static kept *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_INNER_MUTEX_AT_FORK(lock) /* derive.c and table.c allocate under their own */

const char *gd_intern(const char *text) {
    pthread_mutex_lock(&lock);
    interned *s = strings;
    while (s && strcmp(s->text, text) != 0) s = s->next;
    if (!s && (s = gd_malloc(sizeof *s + strlen(text) + 1))) {
        strcpy(s->text, text);
        s->next = strings;
        strings = s;
    }
    pthread_mutex_unlock(&lock);
    return s ? s->text : NULL;
}

void *gd_calloc_until_exit(size_t bytes) {
    kept *k = gd_calloc(1, sizeof *k + bytes);
    if (!k) return NULL;
    pthread_mutex_lock(&lock);
    k->next = blocks;
    if (blocks) blocks->before = k;
    blocks = k;
    pthread_mutex_unlock(&lock);
    return k->block;
}

void gd_free_early(void *block) {
    if (!block) return;
    kept *k = (kept *)(void *)((char *)block - offsetof(kept, block));
    pthread_mutex_lock(&lock);
    if (k->before) k->before->next = k->next;
    else blocks = k->next;
    if (k->next) k->next->before = k->before;
    pthread_mutex_unlock(&lock);
    gd_free(k);
}

static void __attribute__((destructor)) at_exit(void) {
    while (strings) {
        interned *s = strings;
        strings = s->next;
        gd_free(s);
    }
    while (blocks) {
        kept *k = blocks;
        blocks = k->next;
        gd_free(k);
    }
}
