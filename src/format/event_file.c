/* event_file.c - see event_file.h. */
#define _GNU_SOURCE 1
#include "format/event_file.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/error.h"
#include "format/bytes.h"
#include "format/crc32.h"
#include "format/log_file.h"

/* --- schemas ---------------------------------------------------------------------------------- */

static const gd_pb_field histogram_fields[] = {
    {1, "min", GD_PB_DOUBLE, 0, NULL, NULL, NULL},
    {2, "max", GD_PB_DOUBLE, 0, NULL, NULL, NULL},
    {3, "num", GD_PB_DOUBLE, 0, NULL, NULL, NULL},
    {4, "sum", GD_PB_DOUBLE, 0, NULL, NULL, NULL},
    {5, "sum_squares", GD_PB_DOUBLE, 0, NULL, NULL, NULL},
    {6, "bucket_limit", GD_PB_DOUBLE, GD_PB_PACKED, NULL, NULL, NULL},
    {7, "bucket", GD_PB_DOUBLE, GD_PB_PACKED, NULL, NULL, NULL},
};
static const gd_pb_schema histogram = GD_PB_SCHEMA("HistogramProto", histogram_fields);

static const gd_pb_field image_fields[] = {
    {1, "height", GD_PB_INT32, 0, NULL, NULL, NULL},
    {2, "width", GD_PB_INT32, 0, NULL, NULL, NULL},
    {3, "colorspace", GD_PB_INT32, 0, NULL, NULL, NULL},
    {4, "encoded_image_string", GD_PB_BYTES, 0, NULL, NULL, NULL},
};
static const gd_pb_schema image = GD_PB_SCHEMA("Summary.Image", image_fields);

static const gd_pb_field dim_fields[] = {{1, "size", GD_PB_INT64, 0, NULL, NULL, NULL}};
static const gd_pb_schema dim = GD_PB_SCHEMA("TensorShapeProto.Dim", dim_fields);

static const gd_pb_field shape_fields[] = {
    {2, "dim", GD_PB_MESSAGE, GD_PB_REPEATED, &dim, NULL, NULL}};
static const gd_pb_schema shape = GD_PB_SCHEMA("TensorShapeProto", shape_fields);

static const gd_pb_field tensor_fields[] = {
    {1, "dtype", GD_PB_ENUM, 0, NULL, NULL, NULL},
    {2, "tensor_shape", GD_PB_MESSAGE, 0, &shape, NULL, NULL},
    {8, "string_val", GD_PB_STRING, GD_PB_REPEATED, NULL, NULL, NULL},
};
static const gd_pb_schema tensor = GD_PB_SCHEMA("TensorProto", tensor_fields);

static const gd_pb_field plugin_fields[] = {{1, "plugin_name", GD_PB_STRING, 0, NULL, NULL, NULL}};
static const gd_pb_schema plugin = GD_PB_SCHEMA("SummaryMetadata.PluginData", plugin_fields);

static const gd_pb_field metadata_fields[] = {
    {1, "plugin_data", GD_PB_MESSAGE, 0, &plugin, NULL, NULL}};
static const gd_pb_schema metadata = GD_PB_SCHEMA("SummaryMetadata", metadata_fields);

static const gd_pb_field value_fields[] = {
    {1, "tag", GD_PB_STRING, 0, NULL, NULL, NULL},
    {2, "simple_value", GD_PB_FLOAT, 0, NULL, NULL, NULL},
    {4, "image", GD_PB_MESSAGE, 0, &image, NULL, NULL},
    {5, "histo", GD_PB_MESSAGE, 0, &histogram, NULL, NULL},
    {8, "tensor", GD_PB_MESSAGE, 0, &tensor, NULL, NULL},
    {9, "metadata", GD_PB_MESSAGE, 0, &metadata, NULL, NULL},
};
static const gd_pb_schema value = GD_PB_SCHEMA("Summary.Value", value_fields);

static const gd_pb_field summary_fields[] = {
    {1, "value", GD_PB_MESSAGE, GD_PB_REPEATED, &value, NULL, NULL},
};
static const gd_pb_schema summary = GD_PB_SCHEMA("Summary", summary_fields);

static const gd_pb_enum session_states[] = {
    {"START", 1}, {"STOP", 2}, {"CHECKPOINT", 3}, {NULL, 0}};
static const gd_pb_field session_fields[] = {
    {1, "status", GD_PB_ENUM, 0, NULL, session_states, NULL},
};
static const gd_pb_schema session_log = GD_PB_SCHEMA("SessionLog", session_fields);

static const gd_pb_field event_fields[] = {
    {1, "wall_time", GD_PB_DOUBLE, 0, NULL, NULL, NULL},
    {2, "step", GD_PB_INT64, 0, NULL, NULL, NULL},
    {3, "file_version", GD_PB_STRING, 0, NULL, NULL, NULL},
    {4, "graph_def", GD_PB_BYTES, 0, NULL, NULL, NULL},
    {5, "summary", GD_PB_MESSAGE, 0, &summary, NULL, NULL},
    {7, "session_log", GD_PB_MESSAGE, 0, &session_log, NULL, NULL},
};
const gd_pb_schema gd_event_schema = GD_PB_SCHEMA("Event", event_fields);

static const gd_pb_field list_fields[] = {
    {7, "shape", GD_PB_MESSAGE, GD_PB_REPEATED, &shape, NULL, NULL}};
static const gd_pb_schema list = GD_PB_SCHEMA("AttrValue.ListValue", list_fields);

static const gd_pb_field attr_fields[] = {
    {1, "list", GD_PB_MESSAGE, 0, &list, NULL, NULL},
    {2, "s", GD_PB_BYTES, 0, NULL, NULL, NULL},
    {6, "type", GD_PB_ENUM, 0, NULL, NULL, NULL},
    {7, "shape", GD_PB_MESSAGE, 0, &shape, NULL, NULL},
};
static const gd_pb_schema attr = GD_PB_SCHEMA("AttrValue", attr_fields);

static const gd_pb_field entry_fields[] = {
    {1, "key", GD_PB_STRING, 0, NULL, NULL, NULL},
    {2, "value", GD_PB_MESSAGE, 0, &attr, NULL, NULL},
};
static const gd_pb_schema entry = GD_PB_SCHEMA("NodeDef.AttrEntry", entry_fields);

static const gd_pb_field node_fields[] = {
    {1, "name", GD_PB_STRING, 0, NULL, NULL, NULL},
    {2, "op", GD_PB_STRING, 0, NULL, NULL, NULL},
    {3, "input", GD_PB_STRING, GD_PB_REPEATED, NULL, NULL, NULL},
    {4, "device", GD_PB_STRING, 0, NULL, NULL, NULL},
    {5, "attr", GD_PB_MESSAGE, GD_PB_REPEATED, &entry, NULL, NULL},
};
static const gd_pb_schema node = GD_PB_SCHEMA("NodeDef", node_fields);

static const gd_pb_field version_fields[] = {{1, "producer", GD_PB_INT32, 0, NULL, NULL, NULL}};
static const gd_pb_schema version = GD_PB_SCHEMA("VersionDef", version_fields);

static const gd_pb_field graph_fields[] = {
    {1, "node", GD_PB_MESSAGE, GD_PB_REPEATED, &node, NULL, NULL},
    {4, "versions", GD_PB_MESSAGE, 0, &version, NULL, NULL},
};
const gd_pb_schema gd_graph_def_schema = GD_PB_SCHEMA("GraphDef", graph_fields);

/* --- records ---------------------------------------------------------------------------------- */

struct gd_event_file {
    gd_log_file *log;
};

uint32_t gd_masked_crc32c(const void *data, size_t bytes) {
    const uint32_t crc = gd_crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static gd_status append_record(gd_event_file *f, const char *data, size_t bytes) {
    uint8_t *record = gd_malloc(bytes + 16);
    if (!record) return gd_fail(GD_E_MEMORY, "no memory for an event");
    gd_put_u64(record, bytes);
    gd_put_u32(record + 8, gd_masked_crc32c(record, 8));
    memcpy(record + 12, data, bytes);
    gd_put_u32(record + 12 + bytes, gd_masked_crc32c(data, bytes));
    const gd_status status = gd_log_file_append(f->log, record, bytes + 16);
    gd_free(record);
    return status;
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

gd_pb_doc *gd_event_new(int64_t step) {
    gd_pb_doc *doc = gd_pb_new(&gd_event_schema);
    if (!doc) return NULL;
    gd_pb_put_float(gd_pb_root(doc), "wall_time", seconds_now());
    gd_pb_put_int(gd_pb_root(doc), "step", step);
    return doc;
}

gd_pb *gd_event_add_value(gd_pb_doc *event, const char *tag) {
    gd_pb *root = gd_pb_root(event);
    const gd_pb_list *existing = gd_pb_get(root, "summary");
    gd_pb *in = existing ? existing->messages[0] : gd_pb_put_message(root, "summary");
    gd_pb *added = gd_pb_put_message(in, "value");
    gd_pb_put_string(added, "tag", tag);
    return added;
}

gd_status gd_event_file_write(gd_event_file *f, gd_pb_doc *event) {
    char *data = NULL;
    size_t bytes = 0;
    gd_status status = event ? gd_pb_print(event, &data, &bytes) : GD_E_MEMORY;
    if (status == GD_OK) status = append_record(f, data, bytes);
    gd_free(data);
    gd_pb_free(event);
    return status;
}

/* --- files ------------------------------------------------------------------------------------ */

/* TensorBoard reads the files of a folder in the order of their names, so the name starts with the
 * time. */
static gd_status create_log(gd_event_file *f, const char *folder) {
    char host[65] = "", name[160];
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "localhost");
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '_';
    const size_t bytes = strlen(folder) + sizeof name + 2;
    char *path = gd_malloc(bytes);
    if (!path) return gd_fail(GD_E_MEMORY, "%s: no memory left to open a log there", folder);
    gd_status status = GD_E_STATE;
    for (int n = 0; n < 1000 && status == GD_E_STATE; n++) {
        snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.%d", (long long)time(NULL),
                 host, (long)getpid(), n);
        snprintf(path, bytes, "%s/%s", folder, name);
        status = gd_log_file_open(&f->log, path, true);
    }
    gd_free(path);
    return status == GD_E_STATE ? GD_E_IO : status;
}

gd_status gd_event_file_create(gd_event_file **out, const char *folder) {
    *out = NULL;
    gd_event_file *f = gd_calloc(1, sizeof *f);
    if (!f) return gd_fail(GD_E_MEMORY, "%s: no memory left to open a log there", folder);
    gd_status status = create_log(f, folder);
    gd_pb_doc *first = status == GD_OK ? gd_event_new(0) : NULL;
    if (first) gd_pb_put_string(gd_pb_root(first), "file_version", "brain.Event:2");
    if (status == GD_OK) status = gd_event_file_write(f, first);
    if (status == GD_OK) *out = f;
    else gd_event_file_close(f);
    return status;
}

void gd_event_file_close(gd_event_file *f) {
    if (!f) return;
    gd_log_file_close(f->log);
    gd_free(f);
}
