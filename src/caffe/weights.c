/* weights.c - reads and writes .caffemodel files.
 *
 * As in Caffe, a file is a net whose layers have blobs, and the blobs go to the layers of the same names. All
 * files are checked before anything is copied, so a failure changes nothing.
 */
#include "caffe/weights.h"

#include <stdio.h>
#include <string.h>

#include "caffe/blob.h"
#include "caffe/hdf5_files.h"
#include "caffe/read.h"
#include "caffe/save/save.h"
#include "core/alloc.h"
#include "core/freed.h"
#include "core/grow.h"
#include "core/thread.h"
#include "dispatch/call.h"
#include "gradus/caffe.h"
#include "gradus/ops.h"
#include "nn/module.h"
#include "nn/net.h"

/* --- loading ---------------------------------------------------------------------------------- */

/* A blob of a file, and the tensor that it is for. */
typedef struct copy {
    gd_tensor *from, *to; /* `from` is retained */
} copy;

typedef struct loading {
    gd_module *net;
    copy *copies;
    int count, room;
    size_t given; /* layers of the current file that have blobs */
} loading;

/* "[20,1,5,5]" */
static const char *shape_text(const gd_shape *s, char text[200]) {
    size_t used = (size_t)snprintf(text, 200, "[");
    for (int i = 0; i < s->rank; i++)
        used +=
            (size_t)snprintf(text + used, 200 - used, "%s%lld", i ? "," : "", (long long)s->at[i]);
    snprintf(text + used, 200 - used, "]");
    return text;
}

/* Whether the shapes are equal but for leading ones, which files with the four old sizes have. */
static bool fits(const gd_shape *a, const gd_shape *b, bool old) {
    const int lead = a->rank - b->rank;
    if (lead != 0 && (!old || lead < 0)) return false;
    for (int i = 0; i < lead; i++)
        if (a->at[i] != 1) return false;
    return memcmp(a->at + lead, b->at, (size_t)b->rank * sizeof *b->at) == 0;
}

static gd_status wrong_shape(const gd_pb *layer, int blob, const gd_shape *theirs,
                             const gd_shape *ours) {
    char a[200], b[200];
    const char *name = gd_pb_string(layer, "name");
    return gd_pb_fail(layer,
                      "layer '%s': its blob %d is %s here, but %s in the net; to train the layer "
                      "anew, give it another name in the net",
                      name, blob, shape_text(theirs, a), shape_text(ours, b));
}

static gd_status note_copy(loading *l, gd_tensor *from, gd_tensor *to) {
    if (!gd_grow(l->copies, l->count, l->room)) return gd_no_memory(NULL, "for weights");
    l->copies[l->count++] = (copy){gd_retain(from), to};
    return GD_OK;
}

/* A message about "a blob" names the layer and the number of the blob. */
static gd_status name_blob(const gd_pb *layer, int number, const gd_pb *blob, gd_status status) {
    static const char general[] = "a blob ";
    char text[GD_MESSAGE_MAX];
    const char *at = status == GD_E_FORMAT ? strstr(gd_latest_failure(), general) : NULL;
    if (!at) return status;
    snprintf(text, sizeof text, "%s", at + strlen(general));
    return gd_pb_fail(blob, "layer '%s': its blob %d %s", gd_pb_string(layer, "name"), number,
                      text);
}

static gd_status take_blob(loading *l, const gd_pb *layer, int number, const gd_pb *blob,
                           gd_tensor *to) {
    GD_SCOPE;
    gd_shape theirs;
    const gd_shape ours = gd_shape_of(to->rank, to->dims);
    gd_status status = gd_caffe_blob_shape(blob, &theirs);
    if (status != GD_OK) return name_blob(layer, number, blob, status);
    if (!fits(&theirs, &ours, !gd_pb_has(blob, "shape")))
        return wrong_shape(layer, number, &theirs, &ours);
    gd_tensor *from;
    status = gd_caffe_blob_tensor(blob, &from);
    if (status != GD_OK) return name_blob(layer, number, blob, status);
    return note_copy(l, from, to);
}

/* The tensors of a layer in the order of its blobs. Returns the number; `at` has room for that of
 * entries. */
static int blobs_of(const gd_module *m, gd_tensor **at) {
    int count = 0;
    for (int i = 0; i < m->count; i++)
        if (m->entries[i].kind != GD_A_CHILD && m->entries[i].object)
            at[count++] = (gd_tensor *)m->entries[i].object;
    return count;
}

static gd_status take_layer(loading *l, const gd_pb *layer) {
    const gd_entry *e = gd_module_entry(l->net, gd_pb_string(layer, "name"));
    const gd_module *m = e && e->kind == GD_A_CHILD ? (const gd_module *)e->object : NULL;
    const size_t given = gd_pb_count(layer, "blobs");
    l->given += given > 0;
    if (!m || given == 0) return GD_OK;
    gd_tensor **at = gd_calloc((size_t)m->count + 1, sizeof *at);
    if (!at) return gd_no_memory(NULL, "for weights");
    const int count = blobs_of(m, at);
    gd_status status = GD_OK;
    if (given != (size_t)count)
        status = gd_pb_fail(layer, "layer '%s' has %zu blob%s here, but %d in the net", e->name,
                            given, given == 1 ? "" : "s", count);
    for (int i = 0; i < count && status == GD_OK; i++)
        status = take_blob(l, layer, i, gd_pb_message_at(layer, "blobs", (size_t)i), at[i]);
    gd_free(at);
    return status;
}

static gd_status take_file(loading *l, const char *path) {
    gd_pb_doc *doc;
    if (gd_caffe_is_hdf5(path)) GD_TRY(gd_caffe_net_load_hdf5(&doc, path));
    else GD_TRY(gd_caffe_read_net(&doc, path));
    const gd_pb_list *layers = gd_pb_get(gd_pb_root(doc), "layer");
    const int before = l->count;
    gd_status status = GD_OK;
    l->given = 0;
    for (size_t i = 0; layers && i < layers->count && status == GD_OK; i++)
        status = take_layer(l, layers->messages[i]);
    if (status == GD_OK && l->given == 0)
        status = gd_fail(GD_E_FORMAT, "%s: there are no weights in this file", path);
    if (status == GD_OK && l->count == before)
        gd_notice(GD_LOG_WARNING,
                  "%s: nothing was copied: none of its %zu layers with weights has the name of a "
                  "layer of the net",
                  path, l->given);
    gd_pb_free(doc);
    return status;
}

static gd_status take_files(loading *l, const char *paths) {
    for (const char *s = paths; *s;) {
        const size_t n = strcspn(s, ",");
        char *path = gd_malloc(n + 1);
        if (!path) return gd_no_memory(NULL, "for weights");
        memcpy(path, s, n);
        path[n] = 0;
        const gd_status status = n ? take_file(l, path) : GD_OK;
        gd_free(path);
        GD_TRY(status);
        s += n + (s[n] == ',');
    }
    return GD_OK;
}

static gd_status copy_all(const loading *l) {
    for (int i = 0; i < l->count; i++) {
        GD_SCOPE;
        gd_tensor *to = l->copies[i].to,
                  *from = gd_reshape(l->copies[i].from, gd_shape_of(to->rank, to->dims));
        GD_TRY(gd_copy_tensor(to, from));
    }
    return GD_OK;
}

gd_status gd_caffe_load_weights(const char *paths, gd_module *net) {
    loading l = {.net = net};
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status = take_files(&l, paths);
    if (status == GD_OK) status = copy_all(&l);
    for (int i = 0; i < l.count; i++) gd_release(l.copies[i].from);
    gd_free(l.copies);
    return gd_attempt_end(&attempt, status);
}

static gd_status check_net(const gd_module *net, const char *path, const char *what) {
    if (!net && gd_failed()) return gd_failure();
    if (!net || !path)
        return gd_fail(GD_E_ARGUMENT, "%s: the %s is NULL", what, net ? "path" : "module");
    return GD_OK;
}

gd_status gd_caffe_load_at(const char *site, const char *paths, gd_module *net) {
    GD_LIVE_AT(site, net);
    GD_CALLED_FROM(site);
    gd_status status = check_net(net, paths, "gd_caffe_load");
    if (status == GD_OK) status = gd_caffe_load_weights(paths, net);
    return gd_report(site, status);
}

/* --- saving ----------------------------------------------------------------------------------- */

static gd_status put_layer(gd_pb *message, const gd_entry *e, const gd_module *m) {
    gd_pb *layer = gd_pb_put_message(message, "layer");
    gd_pb_put_string(layer, "name", e->name);
    gd_pb_put_string(layer, "type", m->type);
    for (int i = 0; i < m->count; i++)
        if (m->entries[i].kind != GD_A_CHILD && m->entries[i].object)
            GD_TRY(gd_caffe_put_blob(gd_pb_put_message(layer, "blobs"),
                                     (gd_tensor *)m->entries[i].object));
    return GD_OK;
}

gd_status gd_caffe_put_layers(gd_pb *message, gd_module *net) {
    bool found;
    GD_TRY(gd_caffe_put_saved_layers(message, net, &found));
    if (found) return GD_OK;
    for (int i = 0; i < net->count; i++)
        if (net->entries[i].kind == GD_A_CHILD && net->entries[i].object)
            GD_TRY(put_layer(message, &net->entries[i], (gd_module *)net->entries[i].object));
    return GD_OK;
}

gd_status gd_caffe_save_weights(const char *path, gd_module *net) {
    GD_SCOPE;
    gd_pb_doc *doc = gd_pb_new(&gd_caffe_net_schema);
    if (!doc) return gd_failure();
    gd_status status = gd_caffe_put_layers(gd_pb_root(doc), net);
    if (status == GD_OK)
        status = gd_caffe_is_hdf5(path) ? gd_caffe_net_save_hdf5(gd_pb_root(doc), path)
                                        : gd_pb_save(doc, path);
    gd_pb_free(doc);
    return status;
}

gd_status gd_caffe_save_at(const char *site, const char *path, gd_module *net) {
    GD_LIVE_AT(site, net);
    GD_CALLED_FROM(site);
    gd_status status = check_net(net, path, "gd_caffe_save");
    if (status == GD_OK) status = gd_caffe_save_weights(path, net);
    return gd_report(site, status);
}
