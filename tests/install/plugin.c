/* plugin.c - opens the library while it runs, as a plugin host does, and trains one number.
 *
 *     plugin PATH_OF_LIBGRADUS_SO
 *
 * dlopen has room for few initial-exec thread-locals: a library with too many is refused there, and
 * nowhere else.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

typedef struct gd_tensor gd_tensor;
static gd_tensor *(*scalar)(const char *site, double);
static double (*item)(const char *site, const gd_tensor *);
static void (*release)(gd_tensor *);

/* Threads that were there before the library was opened need its thread-locals, too. */
static void *in_thread(void *sum) {
    gd_tensor *t = scalar("plugin", 2);
    *(double *)sum += item("plugin", t);
    release(t);
    return NULL;
}

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "dlopen: %s\n", argc > 1 ? dlerror() : "no path");
        return 1;
    }
    *(void **)&scalar = dlsym(library, "gd_scalar_at");
    *(void **)&item = dlsym(library, "gd_item_at");
    *(void **)&release = dlsym(library, "gd_release");
    if (!scalar || !item || !release) {
        fprintf(stderr, "dlsym: %s\n", dlerror());
        return 1;
    }
    double sum = 0;
    in_thread(&sum);
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, &sum) != 0) return 1;
    pthread_join(thread, NULL);
    return sum == 4 ? 0 : 1;
}
