/* library_cudnn.c - see library_cudnn.h. */
#include "backend/cuda/library_cudnn.h"

#include <dlfcn.h>
#include <string.h>

#include "backend/cuda/library.h"

gd_dnn_functions gd_dnn;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;

static void load_dnn(void) {
    static const char *const names[] = {"libcudnn.so.9", NULL};
    void *library = gd_cuda_open_library(names);
    loaded = library != NULL;
#define LOAD(name)                                              \
    if (loaded) *(void **)&gd_dnn.name = dlsym(library, #name); \
    loaded = loaded && gd_dnn.name;
    GD_DNN_FUNCTIONS(LOAD)
#undef LOAD
}

bool gd_cuda_has_dnn(void) {
    pthread_once(&once, load_dnn);
    return loaded;
}

gd_status gd_cuda_dnn_check(gd_device *d, cudnnStatus_t status, const char *call) {
    if (status == CUDNN_STATUS_SUCCESS) return GD_OK;
    const char *end = strchr(call, '(');
    return gd_cuda_host->fail(
        status == CUDNN_STATUS_ALLOC_FAILED ? GD_E_MEMORY : GD_E_DEVICE, "%s: %.*s failed with %s",
        d->name, (int)(end ? end - call : (long)strlen(call)), call,
        gd_dnn.cudnnGetErrorString ? gd_dnn.cudnnGetErrorString(status) : "an error of cuDNN");
}

static cudnnHandle_t handles[GD_CUDA_DEVICES];
static pthread_mutex_t handle_lock = PTHREAD_MUTEX_INITIALIZER;

static gd_status create_handle(gd_device *d, cudnnHandle_t *handle) {
    const gd_cuda_state *s = gd_cuda_state_of(d);
    cudnnHandle_t created = NULL;
    GD_DNN_TRY(d, cudnnCreate(&created));
    GD_DNN_TRY(d, cudnnSetStream(created, (cudaStream_t)s->streams[GD_QUEUE_COMPUTE]));
    *handle = created;
    return GD_OK;
}

gd_status gd_cuda_dnn_handle(gd_device *d, cudnnHandle_t *handle) {
    cudnnHandle_t *known = &handles[gd_cuda_state_of(d)->index];
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    if (!gd_cuda_has_dnn())
        return gd_cuda_host->fail(GD_E_DEVICE, "cuDNN (libcudnn.so.9) was not found");
    pthread_mutex_lock(&handle_lock);
    if (!*known) status = create_handle(d, known);
    *handle = *known;
    pthread_mutex_unlock(&handle_lock);
    return status;
}
