/* plugin.c - opens the library with dlopen, as a plugin host does, calls it from two threads, and
 * closes it while the second one is alive, which then ends. Three times.
 *
 *     plugin PATH_OF_LIBGRADUS_SO
 *
 * dlopen has little room for initial-exec thread-locals: a library with too many fails only there.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct gd_tensor gd_tensor;
static gd_tensor *(*eye)(const char *site, int64_t, const void *options);
static gd_tensor *(*matmul)(const char *site, gd_tensor *, gd_tensor *);
static gd_tensor *(*sum)(const char *site, gd_tensor *, const void *options);
static double (*item)(const char *site, const gd_tensor *);
static void (*release)(gd_tensor *);

static bool open_library(const char *path, void **library) {
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*library) {
        fprintf(stderr, "dlopen: %s\n", dlerror());
        return false;
    }
    *(void **)&eye = dlsym(*library, "gd_eye_at");
    *(void **)&matmul = dlsym(*library, "gd_matmul_at");
    *(void **)&sum = dlsym(*library, "gd_sum_at");
    *(void **)&item = dlsym(*library, "gd_item_at");
    *(void **)&release = dlsym(*library, "gd_release");
    if (eye && matmul && sum && item && release) return true;
    fprintf(stderr, "dlsym: %s\n", dlerror());
    return false;
}

/* Runs in the main thread, which is older than the library, and in a new one: both need its
 * thread-locals. A product of this size has scratch memory of its thread, and workers. */
static double trace_of_product(void) {
    gd_tensor *a = eye("plugin", 300, NULL), *b = matmul("plugin", a, a),
              *s = sum("plugin", b, NULL);
    const double trace = item("plugin", s);
    release(s);
    release(b);
    release(a);
    return trace;
}

static pthread_barrier_t computed, closed;

static void *compute_and_outlive(void *trace) {
    *(double *)trace = trace_of_product();
    pthread_barrier_wait(&computed);
    pthread_barrier_wait(&closed);
    return NULL;
}

static bool use_and_close(const char *path) {
    void *library;
    double trace = 0;
    pthread_t thread;
    if (!open_library(path, &library)) return false;
    const double own = trace_of_product();
    if (pthread_create(&thread, NULL, compute_and_outlive, &trace) != 0) return false;
    pthread_barrier_wait(&computed);
    dlclose(library);
    pthread_barrier_wait(&closed);
    pthread_join(thread, NULL);
    return own == 300 && trace == 300;
}

int main(int argc, char **argv) {
    if (argc != 2) return 1;
    pthread_barrier_init(&computed, NULL, 2);
    pthread_barrier_init(&closed, NULL, 2);
    for (int i = 0; i < 3; i++)
        if (!use_and_close(argv[1])) return 1;
    return 0;
}
