/* intern.c - strings and memory blocks that live until the library is unloaded. */
#include "dispatch/intern.h"

#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fork.h"
#include "core/name_map.h"

/* The header of a block. */
typedef struct kept_block {
    struct kept_block *next, *previous;
    _Alignas(max_align_t) char block[];
} kept_block;

static gd_name_map strings; /* each leads to itself */
static kept_block *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* derive.c and kernel_table.c hold their own lock when they allocate */
GD_INNER_MUTEX_AT_FORK(lock)

const char *gd_intern(const char *text) {
    pthread_mutex_lock(&lock);
    char *kept = gd_name_map_find(&strings, text);
    if (!kept && (kept = gd_malloc(strlen(text) + 1))) {
        strcpy(kept, text);
        if (!gd_name_map_add(&strings, kept, kept)) {
            gd_free(kept);
            kept = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    return kept;
}

void *gd_calloc_until_exit(size_t bytes) {
    kept_block *k = gd_calloc(1, sizeof *k + bytes);
    if (!k) return NULL;
    pthread_mutex_lock(&lock);
    k->next = blocks;
    if (blocks) blocks->previous = k;
    blocks = k;
    pthread_mutex_unlock(&lock);
    return k->block;
}

void gd_free_early(void *block) {
    if (!block) return;
    kept_block *k = (kept_block *)(void *)((char *)block - offsetof(kept_block, block));
    pthread_mutex_lock(&lock);
    if (k->previous) k->previous->next = k->next;
    else blocks = k->next;
    if (k->next) k->next->previous = k->previous;
    pthread_mutex_unlock(&lock);
    gd_free(k);
}

static void __attribute__((destructor)) free_all_at_exit(void) {
    for (size_t i = 0; i < strings.size; i++) gd_free(strings.slots[i].value);
    gd_name_map_free(&strings);
    while (blocks) {
        kept_block *k = blocks;
        blocks = k->next;
        gd_free(k);
    }
}
