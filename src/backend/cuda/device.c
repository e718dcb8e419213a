/* device.c - CUDA devices as a backend of Gradus. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/fusion.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/state.h"

/* --- contexts --------------------------------------------------------------------------------- */

static _Thread_local CUcontext current_context;

gd_status gd_cuda_enter_context(gd_device *d) {
    const CUcontext context = gd_cuda_state_of(d)->context;
    if (__builtin_expect(current_context == context, 1)) return GD_OK;
    GD_CUDA_TRY(d, cuCtxSetCurrent(context));
    current_context = context;
    return GD_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

static gd_device_api api = {
    /* `fusion` is set when the backend is opened */
    .kind = "cuda",
    .dtypes = (1u << GD_DTYPE_COUNT) - 2u,
    .alignment = 256,
    .alloc = gd_cuda_alloc,
    .free = gd_cuda_free,
    .memory_info = gd_cuda_memory_info,
    .pinned_alloc = gd_cuda_pinned_alloc,
    .pinned_free = gd_cuda_pinned_free,
    .upload = gd_cuda_upload,
    .download = gd_cuda_download,
    .event_record = gd_cuda_event_record,
    .event_join = gd_cuda_event_join,
    .event_wait = gd_cuda_event_wait,
    .event_done = gd_cuda_event_done,
    .event_free = gd_cuda_event_free,
    .time_record = gd_cuda_time_record,
    .time_between = gd_cuda_time_between,
    .error_read = gd_cuda_error_read,
    .error_parse = gd_cuda_error_parse,
    .error_clear = gd_cuda_error_clear,
    .enter = gd_cuda_enter,
    .leave = gd_cuda_leave,
    .capture_begin = gd_cuda_capture_begin,
    .capture_end = gd_cuda_capture_end,
    .capture_launch = gd_cuda_capture_launch,
    .capture_free = gd_cuda_capture_free,
    .dlpack_type = 2, /* kDLCUDA */
    .dlpack_number = gd_cuda_dlpack_number,
    .native_stream = gd_cuda_native_stream,
    .stream_record = gd_cuda_stream_record,
    .stream_join = gd_cuda_stream_join,
};

enum { OLDEST_CAPABILITY = 80 };

static gd_device devices[GD_CUDA_DEVICES];
static gd_device *device_list[GD_CUDA_DEVICES];
static gd_cuda_state states[GD_CUDA_DEVICES];

static gd_status read_attributes(gd_device *d, gd_cuda_state *s) {
    int major, minor;
    GD_CUDA_TRY(
        d, cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, s->number));
    GD_CUDA_TRY(
        d, cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, s->number));
    GD_CUDA_TRY(d, cuDeviceGetAttribute(&s->processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                        s->number));
    GD_CUDA_TRY(d, cuDeviceGetAttribute(&s->shared_bytes,
                                        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                        s->number));
    s->capability = 10 * major + minor;
    return GD_OK;
}

static gd_status make_word(gd_device *d, gd_cuda_state *s) {
    void *word;
    gd_status status = gd_cuda_alloc(d, sizeof *s->word, &word);
    if (status != GD_OK) return status;
    s->word = word;
    GD_CUDA_TRY(d, cuMemsetD8Async((CUdeviceptr)(uintptr_t)word, 0, sizeof *s->word,
                                   s->streams[GD_QUEUE_COMPUTE]));
    return GD_OK;
}

static gd_status open_device(int number, gd_device *d, gd_cuda_state *s) {
    char name[100] = "";
    snprintf(d->name, sizeof d->name, "cuda:%d", s->index);
    d->api = &api;
    d->state = s;
    GD_CUDA_TRY(d, cuDeviceGet(&s->number, number));
    gd_status status = read_attributes(d, s);
    if (status != GD_OK) return status;
    if (s->capability < OLDEST_CAPABILITY) {
        gd_cuda.cuDeviceGetName(name, sizeof name, s->number);
        return gd_cuda_host->fail(
            GD_E_DEVICE, "device %d, %s, has compute capability %d.%d; %d.%d or newer is needed",
            number, name, s->capability / 10, s->capability % 10, OLDEST_CAPABILITY / 10,
            OLDEST_CAPABILITY % 10);
    }
    pthread_mutex_init(&s->lock, NULL);
    GD_CUDA_TRY(d, cuDevicePrimaryCtxRetain(&s->context, s->number));
    status = gd_cuda_enter_context(d);
    for (int i = 0; i < GD_QUEUE_COUNT && status == GD_OK; i++)
        status =
            GD_CUDA_CALL(d, cuStreamCreateWithPriority(&s->streams[i], CU_STREAM_NON_BLOCKING, 0));
    return status == GD_OK ? make_word(d, s) : status;
}

GD_API const gd_backend_info gradus_backend_info = GD_BACKEND_INFO("cuda");

/* Devices that are too old are left out; if all are, the failure of the last one remains. The kernels
 * are there without a device, too, for lists. */
GD_API gd_status gradus_backend_open(const gd_host *host, gd_backend *backend) {
    gd_cuda_host = host;
    api.fusion = gd_cuda_fusion_rules();
    gd_status status = gd_cuda_collect_kernels(&backend->kernels, &backend->n_kernels);
    if (status == GD_OK) status = gd_cuda_load_driver();
    if (status != GD_OK) return status;
    int count = 0, opened = 0;
    gd_cuda.cuDeviceGetCount(&count);
    for (int i = 0; i < count && opened < GD_CUDA_DEVICES; i++) {
        states[opened].index = opened;
        status = open_device(i, &devices[opened], &states[opened]);
        if (status == GD_OK) device_list[opened] = &devices[opened], opened++;
    }
    if (opened == 0) return status;
    backend->devices = device_list;
    backend->n_devices = opened;
    return GD_OK;
}
