/* fuzz_window_list.c - reads any bytes as a list of windows: an error, or all windows name an image. */
#include <stdlib.h>
#include <string.h>

#include "caffe/window_list.h"

static void check_windows(const gd_caffe_window_list *list, const gd_caffe_window_set *windows) {
    for (int64_t i = 0; i < windows->count; i++)
        if (windows->at[i].image < 0 || windows->at[i].image >= list->n_images) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_stream *stream;
    gd_caffe_window_list list;
    if (gd_stream_open_memory(&stream, "fuzz", data, size) != GD_OK) return 0;
    if (gd_caffe_window_list_read(&list, stream, 0.5, 0.5) == GD_OK) {
        volatile size_t bytes = 0;
        for (int i = 0; i < list.n_images; i++) bytes = bytes + strlen(list.paths[i]);
        check_windows(&list, &list.object);
        check_windows(&list, &list.background);
        gd_caffe_window_list_free(&list);
    }
    gd_stream_close(stream);
    return 0;
}
