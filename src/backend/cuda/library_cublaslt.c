/* library_cublaslt.c - see library_cublaslt.h. */
#include "backend/cuda/library_cublaslt.h"

#include <dlfcn.h>

#include "backend/cuda/library.h"

static gd_cublaslt functions;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;

static void load_library(void) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    void *library = gd_cuda_open_library(names);
    loaded = library != NULL;
#define LOAD(name)                                                 \
    if (loaded) *(void **)&functions.name = dlsym(library, #name); \
    loaded = loaded && functions.name;
    CUBLASLT_FUNCTIONS(LOAD)
#undef LOAD
}

const gd_cublaslt *gd_cuda_cublaslt(void) {
    pthread_once(&once, load_library);
    return loaded ? &functions : NULL;
}

static cublasLtHandle_t handles[GD_CUDA_DEVICES];
static pthread_mutex_t handle_lock = PTHREAD_MUTEX_INITIALIZER;

cublasLtHandle_t gd_cuda_cublaslt_handle(gd_device *d) {
    cublasLtHandle_t *handle = &handles[gd_cuda_state_of(d)->index];
    if (gd_cuda_enter_context(d) != GD_OK) return NULL;
    pthread_mutex_lock(&handle_lock);
    if (!*handle && functions.cublasLtCreate(handle) != CUBLAS_STATUS_SUCCESS) {
        *handle = NULL;
        gd_cuda_host->fail(GD_E_DEVICE, "%s: cuBLASLt cannot be initialized", d->name);
    }
    pthread_mutex_unlock(&handle_lock);
    return *handle;
}
