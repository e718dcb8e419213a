/* onnx_files.h - helpers of the ONNX tests: a folder, files written from their text form, runs. */
#ifndef GRADUS_TESTS_UNIT_ONNX_ONNX_FILES_H
#define GRADUS_TESTS_UNIT_ONNX_ONNX_FILES_H

#include "clean_test.h"
#include "core/alloc.h"
#include "fault_walk.h"
#include "files.h"
#include "gradus/gradus.h"
#include "onnx/load/load.h"
#include "temp.h"

/* Writes a model file from its text form and returns its path. */
static inline const char *write_model(const char *text) {
    gd_pb_doc *doc;
    char *data;
    size_t bytes;
    const char *path = temp_path("text.onnx");
    CHECK_SAYING(gd_pb_read_text(&doc, &gd_onnx_model_schema, "model", text, strlen(text)) == GD_OK,
                 "%s", gd_error_message());
    if (!doc) abort();
    CHECK(gd_pb_print(doc, &data, &bytes) == GD_OK);
    file_write(path, data, bytes);
    gd_free(data);
    gd_pb_free(doc);
    return path;
}

static inline gd_tensor *run_one(gd_graph *graph, const char *input, gd_tensor *value,
                                 const char *output) {
    gd_session *session = gd_session_new(graph, .level = 0);
    gd_tensors r = gd_session_run(session, gd_feed(gd_graph_find(graph, input), value),
                                  gd_list(gd_graph_find(graph, output)));
    return r.count ? r.at[0] : NULL;
}

/* --- files from text -------------------------------------------------------------------------- */

#define HEAD "ir_version: 10 opset_import { version: 21 } "
#define INPUT(name, dims) \
    "input { name: '" name "' type { tensor_type { elem_type: 1 shape { " dims " } } } } "
#define OUTPUT(name) "output { name: '" name "' type { tensor_type { elem_type: 1 } } } "

/* Loads a file with each of its allocations failing once. */
static inline void walk_load(const char *path, fault_walk w) {
    while (fault_next(&w)) {
        GD_SCOPE;
        fault_begin(&w);
        gd_graph *g = gd_onnx_load(path);
        fault_end(&w);
        CHECK_ROUND(&w, g || gd_failed());
        CHECK_FAULT(&w, gd_error_status());
    }
}

static inline void check_load_fails(const char *text, gd_status status, const char *message) {
    GD_SCOPE;
    const char *path = write_model(text);
    CHECK(gd_onnx_load(path) == NULL);
    CHECK_SAYING(gd_error_status() == status && says(message) && says("text.onnx"), "%s: %s",
                 gd_status_name(gd_error_status()), gd_error_message());
    gd_clear_error();
}

#endif
