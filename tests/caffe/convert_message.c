/* convert_message.c - reads messages of Caffe and writes them, for messages_against_caffe.py.
 *
 *     convert_message < list
 *
 * Each line of standard input is "SCHEMA FROM TO IN OUT": the message of the file IN (net, solver,
 * solver_state, blob_vector, datum) in the format FROM (text, wire, any) is written to OUT in the format
 * TO. If FROM is `upgrade`, a net or a solver is read in either format and upgraded. If FROM is `tensors`,
 * the blobs of a blob_vector are made tensors and blobs again. The program answers with "done", or with
 * "failed: " and the message of the failure.
 */
#include <stdio.h>
#include <string.h>

#include "caffe/blob.h"
#include "caffe/read.h"
#include "core/alloc.h"
#include "core/error.h"
#include "files.h"
#include "gradus/gradus.h"

static const struct {
    const char *name;
    const gd_pb_schema *schema;
} schemas[] = {
    {"net", &gd_caffe_net_schema},
    {"solver", &gd_caffe_solver_schema},
    {"solver_state", &gd_caffe_solver_state_schema},
    {"blob_vector", &gd_caffe_blob_vector_schema},
    {"datum", &gd_caffe_datum_schema},
};

static gd_status load(gd_pb_doc **doc, const gd_pb_schema *schema, const char *from,
                      const char *path) {
    if (strcmp(from, "text") == 0) return gd_pb_load_text(doc, schema, path);
    if (strcmp(from, "wire") == 0) return gd_pb_load(doc, schema, path);
    if (strcmp(from, "any") == 0) return gd_pb_load_either(doc, schema, path);
    return schema == &gd_caffe_net_schema ? gd_caffe_read_net(doc, path)
                                          : gd_caffe_read_solver(doc, path);
}

static gd_status through_tensors(gd_pb_doc **doc) {
    const gd_pb_list *blobs = gd_pb_get(gd_pb_root(*doc), "blobs");
    gd_pb_doc *made = gd_pb_new(&gd_caffe_blob_vector_schema);
    gd_status status = made ? GD_OK : GD_E_MEMORY;
    for (size_t i = 0; blobs && i < blobs->count && status == GD_OK; i++) {
        gd_tensor *t;
        status = gd_caffe_blob_tensor(blobs->messages[i], &t);
        if (status == GD_OK)
            status = gd_caffe_put_blob(gd_pb_put_message(gd_pb_root(made), "blobs"), t);
    }
    gd_pb_free(*doc);
    *doc = made;
    if (status != GD_OK) gd_pb_free(made);
    return status;
}

static gd_status convert(const gd_pb_schema *schema, const char *from, const char *to,
                         const char *in, const char *out) {
    GD_SCOPE;
    gd_pb_doc *doc;
    char *data;
    size_t bytes;
    const bool tensors = strcmp(from, "tensors") == 0;
    GD_TRY(load(&doc, schema, tensors ? "wire" : from, in));
    if (tensors) GD_TRY(through_tensors(&doc));
    const gd_status status = strcmp(to, "text") == 0 ? gd_pb_print_text(doc, &data, &bytes)
                                                     : gd_pb_print(doc, &data, &bytes);
    gd_pb_free(doc);
    if (status != GD_OK) return status;
    file_write(out, data, bytes);
    gd_free(data);
    return GD_OK;
}

int main(void) {
    char line[3000], schema[40], from[40], to[40], in[1000], out[1000];
    while (fgets(line, sizeof line, stdin)) {
        gd_status status = gd_fail(GD_E_ARGUMENT, "%s", line);
        if (sscanf(line, "%39s %39s %39s %999s %999s", schema, from, to, in, out) == 5)
            for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
                if (strcmp(schemas[i].name, schema) == 0)
                    status = convert(schemas[i].schema, from, to, in, out);
        if (status == GD_OK) puts("done");
        else printf("failed: %s\n", gd_latest_failure());
        fflush(stdout);
    }
    return 0;
}
