/* fuzz_onnx.c - loads any bytes as an ONNX file: an error with a message, or a graph that
 * prints. */
#include <stdlib.h>

#include "core/error.h"
#include "gradus/gradus.h"
#include "onnx/load/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GD_SCOPE;
    gd_pb_doc *doc;
    gd_graph *graph = NULL;
    if (gd_pb_read(&doc, &gd_onnx_model_schema, "fuzz", data, size) != GD_OK) return 0;
    const gd_status status = gd_onnx_load_model(gd_pb_root(doc), NULL, false, &graph);
    gd_pb_free(doc);
    if ((status == GD_OK) != (graph != NULL)) abort();
    if (status != GD_OK && gd_latest_failure()[0] == '\0') abort();
    if (gd_failed()) abort(); /* only the public call records failures */
    if (graph) free(gd_graph_text(graph));
    gd_release(graph);
    return 0;
}
