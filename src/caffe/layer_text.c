/* layer_text.c - see layer_text.h. */
#include "caffe/layer_text.h"

#include "caffe/schema.h"
#include "core/alloc.h"
#include "core/error.h"
#include "nn/module.h"

/* One document holds all layers of a net. */
struct gd_caffe_texts {
    gd_object object;
    gd_pb_doc *doc;
};

typedef struct layer_text {
    gd_object object;
    gd_caffe_texts *texts; /* retained */
    const gd_pb *layer;
} layer_text;

static void destroy_texts(gd_object *object) {
    gd_pb_free(((gd_caffe_texts *)object)->doc);
    gd_free(object);
    gd_object_count(-1);
}
static const gd_class texts_class = {.name = "caffe texts", .destroy = destroy_texts};

static void destroy_text(gd_object *object) {
    gd_object_release(&((layer_text *)object)->texts->object);
    gd_free(object);
    gd_object_count(-1);
}
static const gd_class text_class = {.name = "caffe layer", .destroy = destroy_text};

static gd_caffe_texts *new_texts(void) {
    gd_caffe_texts *t = gd_calloc(1, sizeof *t);
    gd_pb_doc *doc = t ? gd_pb_new(&gd_caffe_net_schema) : NULL;
    if (!doc) {
        gd_free(t);
        return NULL;
    }
    t->doc = doc;
    gd_object_init(&t->object, &texts_class);
    gd_object_count(1);
    return t;
}

gd_status gd_caffe_keep_text(gd_caffe_texts **texts, gd_module *module, const gd_pb *layer) {
    static const char *const left_out[] = {"name",  "bottom",  "blobs",
                                           "phase", "include", "exclude"};
    if (module->source) return GD_OK;
    if (!*texts && !(*texts = new_texts())) return gd_no_memory(NULL, "for a net");
    layer_text *kept = gd_calloc(1, sizeof *kept);
    if (!kept) return gd_no_memory(NULL, "for a net");
    gd_pb *copy = gd_pb_put_message(gd_pb_root((*texts)->doc), "layer");
    gd_pb_copy(copy, layer);
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) gd_pb_clear(copy, left_out[i]);
    gd_object_init(&kept->object, &text_class);
    gd_object_count(1);
    kept->texts = *texts;
    gd_object_retain(&kept->texts->object);
    kept->layer = copy;
    module->source = &kept->object;
    return gd_pb_check((*texts)->doc);
}

void gd_caffe_texts_release(gd_caffe_texts *texts) {
    if (texts) gd_object_release(&texts->object);
}

const gd_pb *gd_caffe_text_of(const gd_module *module) {
    const gd_object *source = module->source;
    return source && source->class == &text_class ? ((const layer_text *)source)->layer : NULL;
}
