/* stack.h - measures the stack that a function uses: it runs in a thread whose stack was filled
 * with a pattern. */
#ifndef GRADUS_TESTS_HARNESS_STACK_H
#define GRADUS_TESTS_HARNESS_STACK_H

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* threads.h promises that 64 KiB are enough. The guard page, signal handlers and the program itself
 * use a part of them. */
enum {
    STACK_PROMISED = 64 << 10,
    STACK_ALLOWED = STACK_PROMISED - (8 << 10),
    STACK_GIVEN = 2 << 20
};

typedef struct {
    void (*fn)(void *arg);
    void *arg;
} stack_call;

static inline void *stack_thread(void *call) {
    ((stack_call *)call)->fn(((stack_call *)call)->arg);
    return NULL;
}

/* Bytes of stack that fn(arg) uses in a new thread, including the thread's own data; 0: the thread
 * could not be created. */
static inline size_t stack_used(void (*fn)(void *arg), void *arg) {
    static unsigned char *stack;
    const unsigned char pattern = 0xa5;
    if (!stack)
        stack = mmap(NULL, STACK_GIVEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) return 0;
    memset(stack, pattern, STACK_GIVEN);
    stack_call call = {fn, arg};
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK_GIVEN);
    const bool began = pthread_create(&thread, &attributes, stack_thread, &call) == 0;
    pthread_attr_destroy(&attributes);
    if (!began) return 0;
    pthread_join(thread, NULL);
    size_t untouched = 0;
    while (untouched < STACK_GIVEN && stack[untouched] == pattern) untouched++;
    return STACK_GIVEN - untouched;
}

#endif
