/* intern.c */
#include "ops/intern.h"

#include <pthread.h>
#include <string.h>

#include "core/alloc.h"

typedef struct interned {
    struct interned *next;
    char text[];
} interned;

typedef struct kept {
    struct kept *next;
    void *block;
} kept;

static interned *strings;
static kept *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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

void gd_keep_until_exit(void *block) {
    kept *k = gd_malloc(sizeof *k);
    if (!k) return; /* it leaks at exit, which harms nobody */
    k->block = block;
    pthread_mutex_lock(&lock);
    k->next = blocks;
    blocks = k;
    pthread_mutex_unlock(&lock);
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
        gd_free(k->block);
        gd_free(k);
    }
}
