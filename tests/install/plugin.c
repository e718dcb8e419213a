/* plugin.c - opens the library with dlopen, as a plugin host does, and calls it from two threads.
 *
 *     plugin PATH_OF_LIBGRADUS_SO
 *
 * dlopen has little room for initial-exec thread-locals: a library with too many fails only there.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

typedef struct gd_tensor gd_tensor;
static gd_tensor *(*scalar)(const char *site, double);
static double (*item)(const char *site, const gd_tensor *);
static void (*release)(gd_tensor *);

/* Runs in the main thread, which is older than the library, and in a new one: both need its
 * thread-locals. */
static void *add_item(void *sum) {
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
    add_item(&sum);
    pthread_t thread;
    if (pthread_create(&thread, NULL, add_item, &sum) != 0) return 1;
    pthread_join(thread, NULL);
    return sum == 4 ? 0 : 1;
}
