/* event_file.h - TensorBoard's event files.
 *
 * A file is a TFRecord file: each record is its length (u64), the masked CRC-32C of the length, the
 * bytes, and their masked CRC-32C, all little-endian. A record is a message of the type Event. It
 * holds a time, a step, and one of these:
 *   - the version of the file, in the first record
 *   - a summary: numbers, histograms, images and texts
 *   - a GraphDef
 *   - the start of a session, at which TensorBoard drops earlier data of this and later steps
 *
 *     gd_pb_doc *doc = gd_event_new(step);
 *     gd_pb *value = gd_event_add_value(doc, "loss");
 *     gd_pb_put_float(value, "simple_value", 0.5);
 *     gd_event_file_write(file, doc);
 */
#ifndef GRADUS_FORMAT_EVENT_FILE_H
#define GRADUS_FORMAT_EVENT_FILE_H

#include "format/protobuf.h"

extern const gd_pb_schema gd_event_schema;     /* Event */
extern const gd_pb_schema gd_graph_def_schema; /* GraphDef, which an Event holds as bytes */

typedef struct gd_event_file gd_event_file;

/* Creates a file "events.out.tfevents.TIME.HOST.PID.N" in a folder, which must exist. The first
 * record is the version. */
gd_status gd_event_file_create(gd_event_file **out, const char *folder);
void gd_event_file_close(gd_event_file *file); /* NULL is fine */

/* An event with the time and a step; NULL: no memory, the failure is recorded. */
gd_pb_doc *gd_event_new(int64_t step);
/* Adds a value to its summary. */
gd_pb *gd_event_add_value(gd_pb_doc *event, const char *tag);

/* Appends an event and frees it. NULL: returns the failure of gd_event_new. */
gd_status gd_event_file_write(gd_event_file *file, gd_pb_doc *event);

/* The checksum of a TFRecord file. */
uint32_t gd_masked_crc32c(const void *data, size_t bytes);

#endif
