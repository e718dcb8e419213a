/* tile.c - a stack of tiles for each thread, and a shared one for threads that cannot allocate
 * theirs. */
#include "core/tile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "core/fork.h"

enum { BLOCK = 1 << 20, ALIGNMENT = 64 };

static _Thread_local struct {
    char *block; /* NULL: not mapped yet */
    size_t used; /* bytes of the block, or of the reserve while this thread owns it */
} tiles;

/* For a thread whose block cannot be mapped; it owns the reserve from its first tile to its last.
 * */
static char reserve[BLOCK] __attribute__((aligned(ALIGNMENT)));
static pthread_mutex_t reserve_lock = PTHREAD_MUTEX_INITIALIZER;
GD_INNER_MUTEX_AT_FORK(reserve_lock)

static pthread_key_t tiles_key; /* its destructor unmaps the block of an exiting thread */
static pthread_once_t tiles_key_once = PTHREAD_ONCE_INIT;
static _Atomic bool has_tiles_key;

static void unmap_block(void *block) {
    munmap(block, BLOCK);
    tiles.block = NULL;
    tiles.used = 0;
}

static void make_tiles_key(void) {
    atomic_store(&has_tiles_key, pthread_key_create(&tiles_key, unmap_block) == 0);
}

/* A thread that outlives dlclose() must not call unmap_block, which is unmapped; its block is lost.
 * This is among the last destructors, because others end the threads of the library. */
static void __attribute__((destructor(101))) delete_tiles_key(void) {
    if (atomic_exchange(&has_tiles_key, false)) pthread_key_delete(tiles_key);
}

static char *map_block(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *gd_tile_take(size_t bytes) {
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (!tiles.block) {
        tiles.block = map_block(BLOCK);
        if (tiles.block) {
            pthread_once(&tiles_key_once, make_tiles_key);
            if (atomic_load(&has_tiles_key)) pthread_setspecific(tiles_key, tiles.block);
        } else {
            pthread_mutex_lock(&reserve_lock);
            tiles.block = reserve;
        }
    }
    char *tile = tiles.block + tiles.used;
    tiles.used += bytes;
    return tile;
}

void gd_tile_give(void *tile) {
    tiles.used = (size_t)((char *)tile - tiles.block);
    if (tiles.used > 0 || tiles.block != reserve) return;
    tiles.block = NULL; /* try to map a block again next time */
    pthread_mutex_unlock(&reserve_lock);
}
