/* infogain.c - InfogainLoss: SoftmaxWithLoss in which a row of a matrix says how much each class counts for a
 * label. The matrix is a bottom, or the blob of a file.
 */
#include <limits.h>
#include <math.h>

#include "caffe/blob.h"
#include "caffe/layers/bottoms.h"
#include "caffe/layers/loss.h"
#include "caffe/read.h"
#include "caffe/schema.h"
#include "core/object.h"
#include "core/tensor.h"
#include "graph/build/graph.h"

typedef struct infogain {
    int axis;
    bool gives_probabilities; /* as second top */
    gd_caffe_loss loss;
    gd_tensor *matrix; /* of the file, retained; NULL: a bottom has it */
} infogain;

static void forget_matrix(void *self) { gd_release(((infogain *)self)->matrix); }

/* Clones share the matrix, which nothing writes. */
static gd_status share_matrix(gd_module *copy, void *to, const void *from) {
    (void)copy;
    ((infogain *)to)->matrix = gd_retain(((const infogain *)from)->matrix);
    return GD_OK;
}

/* The row of the matrix for each label: (outer, classes, inner). */
static gd_tensor *rows_of(gd_tensor *matrix, gd_tensor *labels, gd_tensor *x) {
    const int64_t classes = gd_tensor_dim(x, 1), inner = gd_tensor_dim(x, 2);
    gd_tensor *table = gd_caffe_shaped(matrix, gd_dims(classes, classes));
    gd_tensor *rows = gd_index_select(table, 0, gd_reshape(labels, gd_dims(-1)));
    return gd_permute(gd_reshape(rows, gd_dims(-1, inner, classes)), gd_dims(0, 2, 1));
}

/* -(the sum of matrix[label, class] log p) for each position; the gradient also reaches p below the least
 * one. */
static gd_tensors infogain_forward(gd_tensors in, void *self) {
    const infogain *m = self;
    const double least = log(1e-20);
    gd_tensor *x = gd_caffe_by_class(in.at[0], m->axis);
    gd_tensor *matrix =
        m->matrix ? gd_to_device(m->matrix, gd_tensor_device(x)) : gd_detach(in.at[2]);
    gd_tensor *labels = gd_caffe_class_numbers(in.at[1], x, m->loss.ignored), *class = labels;
    if (m->loss.ignores) class = gd_mul(labels, gd_caffe_counted(&m->loss, labels, GD_I64));
    gd_tensor *log_p = gd_floored(gd_log_softmax(x, .axis = 1), least);
    gd_tensor *terms = gd_neg(gd_sum(gd_mul(rows_of(matrix, class, x), log_p), .axis = gd_dims(1)));
    if (m->loss.ignores)
        terms = gd_mul(terms, gd_caffe_counted(&m->loss, labels, gd_tensor_dtype(terms)));
    gd_tensor *loss = gd_caffe_normalized(&m->loss, terms, labels);
    if (!m->gives_probabilities) return gd_listed(loss);
    gd_tensor *probabilities = gd_softmax(gd_detach(in.at[0]), .axis = m->axis);
    return gd_listed(loss, probabilities);
}

static gd_status read_matrix(const gd_caffe_layer *l, const char *source, gd_tensor **matrix) {
    char path[PATH_MAX];
    gd_pb_doc *doc = NULL;
    GD_TRY(gd_caffe_find_file(source, l->file, path, sizeof path));
    gd_status status = gd_pb_load(&doc, &gd_caffe_blob_schema, path);
    if (status == GD_OK) status = gd_caffe_blob_tensor(gd_pb_root(doc), matrix);
    gd_pb_free(doc);
    return status;
}

static gd_status check_matrix(const gd_caffe_layer *l, const gd_shape *shape, int64_t classes) {
    const int64_t count = gd_caffe_count(shape, 0, shape->rank);
    char text[128];
    if (classes < 0 || count < 0 || count == classes * classes) return GD_OK;
    return gd_caffe_fail(l, "its matrix is %s; for %lld classes it must be [%lld,%lld]",
                         gd_shape_text(shape->rank, shape->at, text, sizeof text),
                         (long long)classes, (long long)classes, (long long)classes);
}

/* Finds the matrix of a layer with two bottoms. */
static gd_status take_matrix(const gd_caffe_layer *l, int64_t classes, gd_tensor **matrix) {
    const char *source = gd_pb_string_of(l->message, "infogain_loss_param.source");
    if (!*source)
        return gd_caffe_fail(l, "it needs a matrix: a third bottom, or a file as "
                                "infogain_loss_param.source");
    GD_TRY(read_matrix(l, source, matrix));
    const gd_shape shape = gd_tensor_shape(*matrix);
    return check_matrix(l, &shape, classes);
}

gd_status gd_caffe_make_InfogainLoss(gd_caffe_layer *l) {
    GD_EAGER;
    gd_tensor *matrix = NULL;
    int axis;
    GD_TRY(gd_caffe_axis(l, "infogain_loss_param.axis", &axis));
    GD_TRY(gd_caffe_need_labels(l, 1, axis));
    const int64_t classes = l->bottoms[0].at[axis];
    if (l->n_bottoms > 2) GD_TRY(check_matrix(l, &l->bottoms[2], classes));
    else GD_TRY(take_matrix(l, classes, &matrix));
    l->module = gd_module_new(infogain_forward, sizeof(infogain), .type = l->type,
                              .destroy = forget_matrix, .clone = share_matrix);
    if (!l->module) return gd_failure();
    infogain *m = gd_module_self(l->module);
    m->axis = axis;
    m->gives_probabilities = l->n_tops > 1;
    m->matrix = gd_retain(matrix);
    gd_caffe_read_loss(l, GD_CAFFE_VALID, &m->loss);
    return GD_OK;
}
