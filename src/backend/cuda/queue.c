/* queue.c - events of a CUDA device, and its error word. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/state.h"

/* --- events ----------------------------------------------------------------------------------- */

/* A free event, or a new one. NULL, with the failure set, if there is none. */
static gd_queue_event *take_event(gd_device *d, bool timed) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    pthread_mutex_lock(&s->lock);
    gd_queue_event *event = s->free_events[timed];
    if (event) s->free_events[timed] = event->next;
    pthread_mutex_unlock(&s->lock);
    if (event) return event;
    event = gd_cuda_host->allocate(sizeof *event);
    if (!event) {
        gd_cuda_host->fail(GD_E_MEMORY, "no memory for an event of %s", d->name);
        return NULL;
    }
    event->timed = timed;
    const unsigned flags = timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
    if (GD_CUDA_CALL(d, cuEventCreate(&event->event, flags)) == GD_OK) return event;
    gd_cuda_host->release(event);
    return NULL;
}

void gd_cuda_event_free(gd_device *d, gd_queue_event *event) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    pthread_mutex_lock(&s->lock);
    event->next = s->free_events[event->timed];
    s->free_events[event->timed] = event;
    pthread_mutex_unlock(&s->lock);
}

static gd_status record_event(gd_device *d, CUstream stream, bool timed, gd_queue_event **event) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    *event = take_event(d, timed);
    if (!*event) return GD_E_DEVICE;
    status = GD_CUDA_CALL(d, cuEventRecord((*event)->event, stream));
    if (status != GD_OK) gd_cuda_event_free(d, *event);
    return status;
}

gd_status gd_cuda_event_record(gd_device *d, gd_queue queue, gd_queue_event **event) {
    return record_event(d, gd_cuda_state_of(d)->streams[queue], false, event);
}

gd_status gd_cuda_time_record(gd_device *d, gd_queue_event **event) {
    return record_event(d, gd_cuda_state_of(d)->streams[GD_QUEUE_COMPUTE], true, event);
}

gd_status gd_cuda_time_between(gd_device *d, gd_queue_event *first, gd_queue_event *second,
                               double *ns) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    float ms = 0;
    GD_CUDA_TRY(d, cuEventElapsedTime(&ms, first->event, second->event));
    *ns = 1e6 * (double)ms;
    return GD_OK;
}

gd_status gd_cuda_event_join(gd_device *d, gd_queue queue, gd_queue_event *event) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    const CUstream stream = gd_cuda_state_of(d)->streams[queue];
    GD_CUDA_TRY(d, cuStreamWaitEvent(stream, event->event, 0));
    return GD_OK;
}

gd_status gd_cuda_event_wait(gd_device *d, gd_queue_event *event) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(d, cuEventSynchronize(event->event));
    return GD_OK;
}

gd_status gd_cuda_event_done(gd_device *d, gd_queue_event *event, bool *done) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    const CUresult result = gd_cuda.cuEventQuery(event->event);
    *done = result != CUDA_ERROR_NOT_READY;
    return *done ? gd_cuda_check(d, result, "cuEventQuery") : GD_OK;
}

/* --- streams of other libraries --------------------------------------------------------------- */

/* DLPack's numbers 0, 1 and 2 are the driver's handles of the default stream, the legacy default stream
 * and that of the thread. */
int32_t gd_cuda_dlpack_number(const gd_device *d) { return gd_cuda_state_of(d)->number; }

void *gd_cuda_native_stream(const gd_device *d) {
    return gd_cuda_state_of(d)->streams[GD_QUEUE_COMPUTE];
}

gd_status gd_cuda_stream_record(gd_device *d, void *stream, gd_queue_event **event) {
    return record_event(d, stream, false, event);
}

gd_status gd_cuda_stream_join(gd_device *d, void *stream, gd_queue_event *event) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(d, cuStreamWaitEvent(stream, event->event, 0));
    return GD_OK;
}

/* --- the error word --------------------------------------------------------------------------- */

_Static_assert(sizeof(gd_cuda_word) <= GD_ERROR_BYTES, "the library reserves this much memory");

static CUdeviceptr word_address(const gd_cuda_state *s) { return (CUdeviceptr)(uintptr_t)s->word; }

gd_status gd_cuda_error_read(gd_device *d, void *to) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(
        d, cuMemcpyDtoHAsync(to, word_address(s), sizeof *s->word, s->streams[GD_QUEUE_COMPUTE]));
    return GD_OK;
}

void gd_cuda_error_parse(gd_device *d, const void *read, gd_data_error *error) {
    (void)d;
    const gd_cuda_word *w = read;
    *error = (gd_data_error){.number = w->number,
                             .run = w->run,
                             .problem = (int32_t)w->problem,
                             .element = w->element,
                             .values = {w->values[0], w->values[1], w->values[2]},
                             .real = w->real};
}

/* `current_run` stays: a plan may be running. */
gd_status gd_cuda_error_clear(gd_device *d) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(d, cuMemsetD8Async(word_address(s), 0, offsetof(gd_cuda_word, current_run),
                                   s->streams[GD_QUEUE_COMPUTE]));
    return GD_OK;
}
