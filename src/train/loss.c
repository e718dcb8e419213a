/* loss.c - computes the loss of a batch, with or without weights; see loss.h.
 *
 * With weights, the loss is sum(w l) / sum(w). l is the loss with reduction=none: (N) for class
 * numbers, (N, D) for the mse of outputs (N, D). w is the weight of the sample times the weight of
 * the element's class; it is 0 where the target is the ignore_index of the loss. If all weights are
 * equal, the result is the loss without weights.
 */
#include "train/loss.h"

#include <stdio.h>
#include <string.h>

#include "core/freed.h"
#include "gradus/autograd.h"
#include "gradus/graph.h"
#include "gradus/ops.h"
#include "nn/layer.h"

gd_status gd_check_weights(const gd_training *t, const char *what, const gd_tensor *classes) {
    if (!t->loss_each)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: weights need a loss for each sample: a .loss whose layer has an "
                       "option reduction%s",
                       what, t->loss_function ? "; a .loss_function returns one number" : "");
    char text[100];
    snprintf(text, sizeof text, "%s: class_weights", what);
    if (classes) GD_TRY(gd_check_freed(classes, text));
    if (classes && (classes->kind != GD_VALUE || classes->rank != 1 || classes->dtype != GD_F32))
        return gd_fail(GD_E_SHAPE,
                       "%s: class_weights must be f32 of rank 1, a weight for each class", what);
    return GD_OK;
}

enum { MAX_LOSS_INPUTS = 16 };

/* The name of the loss as gd_compile takes it: "cross_entropy", or that of another layer. */
static void loss_name(const gd_module *layer, char *text, size_t size) {
    const size_t length = strlen(layer->type), suffix = strlen("_loss");
    const bool ends = length > suffix && strcmp(layer->type + length - suffix, "_loss") == 0;
    snprintf(text, size, "the loss %.*s", (int)(ends ? length - suffix : length), layer->type);
}

static gd_status check_outputs(const gd_batch_result *r, int64_t outputs) {
    if (outputs > r->outputs.count && r->targets.count == 0)
        return gd_fail(GD_E_ARGUMENT,
                       "it needs a target, and batches have none: all tensors of the data are "
                       "inputs of the net");
    if (outputs > r->outputs.count)
        return gd_fail(GD_E_ARGUMENT, "it needs %lld outputs of the net, which returned %lld",
                       (long long)outputs, (long long)r->outputs.count);
    if (outputs + r->targets.count > MAX_LOSS_INPUTS)
        return gd_fail(GD_E_ARGUMENT, "there are %lld targets; it takes at most %lld",
                       (long long)r->targets.count, (long long)(MAX_LOSS_INPUTS - outputs));
    return GD_OK;
}

/* Calls a loss layer with outputs of the net, then the targets. The layer takes the outputs that
 * its required inputs need besides the targets. */
static gd_status call_layer(gd_module *layer, const gd_batch_result *r, gd_tensor **loss) {
    gd_tensor *in[MAX_LOSS_INPUTS];
    int64_t outputs = r->outputs.count; /* of a module of the program */
    if (layer->factory) outputs = layer->factory->record.n_required - r->targets.count;
    if (outputs < 1) outputs = 1;
    GD_TRY(check_outputs(r, outputs));
    int64_t n = 0;
    for (int64_t i = 0; i < outputs; i++) in[n++] = r->outputs.at[i];
    for (int64_t i = 0; i < r->targets.count; i++) in[n++] = r->targets.at[i];
    *loss = gd_module_forward_at(NULL, layer, (gd_tensors){in, n});
    return (*loss)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* Messages name the loss: here those about shapes; those about data, in a run of the plan, by the
 * name scope of the nodes. */
static gd_status call_loss(const gd_batches *b, gd_module *layer, const gd_batch_result *r,
                           gd_tensor **loss) {
    char name[100];
    loss_name(layer, name, sizeof name);
    GD_NAME_SCOPE(name);
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status = call_layer(layer, r, loss);
    status = gd_attempt_end(&attempt, status);
    if (status != GD_OK) gd_error_prefix("%s: %s: ", b->what, name);
    return status;
}

static gd_status call_function(const gd_batches *b, gd_batch_result *r) {
    GD_NAME_SCOPE("the loss function");
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    r->loss = b->training->loss_function(gd_list_for(GD_READER_OUTPUTS, r->outputs),
                                         gd_list_for(GD_READER_TARGETS, r->targets),
                                         b->training->loss_user);
    gd_status status = GD_OK;
    if (!r->loss && !gd_failed()) status = gd_fail(GD_E_ARGUMENT, "it returned NULL");
    else if (!r->loss || r->loss->kind == GD_FAILED) status = gd_failure();
    status = gd_attempt_end(&attempt, status);
    if (status != GD_OK) gd_error_prefix("%s: the loss function: ", b->what);
    return status;
}

/* --- weights ---------------------------------------------------------------------------------- */

/* The class number of each element of the loss: the target itself, or the argmax of a target with a
 * number for each class (one-hot). */
static gd_status classes_of(gd_tensor *target, const gd_tensor *each, int axis,
                            gd_tensor **classes) {
    char a[128], b[128];
    gd_tensor *t = gd_detach(target);
    if (gd_tensor_numel(t) == gd_tensor_numel(each)) {
        *classes = gd_cast(gd_reshape(t, gd_shape_of(each->rank, each->dims)), GD_I64);
    } else if (t->rank == each->rank + 1 && gd_is_float(t->dtype)) {
        *classes = gd_argmax(t, .axis = axis);
    } else {
        return gd_fail(
            GD_E_SHAPE,
            "class_weights need a class for each loss: the loss is %s, and the target %s",
            gd_describe(each, a, sizeof a), gd_describe(t, b, sizeof b));
    }
    return (*classes)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* Expands sample weights (N) to the shape of the loss (N, ...). */
static gd_status expand_sample_weights(gd_tensor *weight, const gd_tensor *each, gd_tensor **w) {
    gd_shape shape = gd_shape_of(each->rank, each->dims);
    char a[128];
    if (gd_tensor_numel(weight) != (each->rank ? each->dims[0] : 1))
        return gd_fail(GD_E_SHAPE, "weights must be (N), one for each sample; they are %s",
                       gd_describe(weight, a, sizeof a));
    for (int i = 1; i < each->rank; i++) shape.at[i] = 1;
    gd_tensor *own = gd_detach(weight);
    if (own->kind != GD_FAILED && own->dtype != each->dtype)
        own = gd_cast(own, (gd_dtype)each->dtype);
    *w = gd_expand(gd_reshape(own, shape), gd_shape_of(each->rank, each->dims));
    return (*w)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* The axis of the classes in outputs (N, C, ...): the option `axis` of the loss, if it has one. */
static int class_axis(const gd_module *loss, const gd_tensor *each) {
    const int64_t *axis = gd_factory_option(loss->factory, loss->options, "axis", NULL);
    if (!axis) return 1;
    return (int)(*axis < 0 ? *axis + each->rank + 1 : *axis);
}

/* Fails unless there is a weight for each class. Other losses for each element of the output than
 * bce do not tell how many classes there are; then the data do. */
static gd_status check_weight_count(const gd_batches *b, const gd_batch_result *r,
                                    const gd_tensor *each, int axis) {
    const gd_tensor *output = r->outputs.at[0], *w = b->class_weights;
    char name[100], text[160];
    loss_name(b->training->loss_each, name, sizeof name);
    if (strncmp(b->training->loss_each->type, "bce", 3) == 0 && w->dims[0] != 2)
        return gd_fail(GD_E_SHAPE,
                       "%s: class_weights has %lld weights, but %s has 2 classes, 0 and 1, in each "
                       "output of the net; it needs a weight for each class",
                       b->what, (long long)w->dims[0], name);
    if (output->rank != each->rank + 1 || axis >= output->rank) return GD_OK;
    const int64_t classes = output->dims[axis];
    if (classes < 0 || w->dims[0] == classes) return GD_OK;
    return gd_fail(GD_E_SHAPE,
                   "%s: class_weights has %lld weights, but %s has %lld classes, in the output %s "
                   "of the net; it needs a weight for each class",
                   b->what, (long long)w->dims[0], name, (long long)classes,
                   gd_describe(output, text, sizeof text));
}

/* Targets that are numbers, such as those of mse, have no classes. Those of bce are 0 and 1. */
static gd_status check_class_targets(const gd_batches *b, const gd_tensor *target,
                                     const gd_tensor *each) {
    char name[100], text[160];
    if (!gd_is_float(target->dtype) || gd_tensor_numel(target) != gd_tensor_numel(each) ||
        strncmp(b->training->loss_each->type, "bce", 3) == 0)
        return GD_OK;
    loss_name(b->training->loss_each, name, sizeof name);
    return gd_fail(GD_E_ARGUMENT,
                   "%s: class_weights need targets that are classes, and those of %s are numbers: "
                   "%s",
                   b->what, name, gd_describe(target, text, sizeof text));
}

/* Multiplies *w, if it exists, by the weights of the classes. */
static gd_status apply_class_weights(gd_batches *b, const gd_tensor *each, gd_tensor *classes,
                                     gd_tensor **w) {
    GD_NAME_SCOPE("class_weights");
    gd_tensor *flat = gd_index_select(b->class_weights, 0, gd_reshape(classes, gd_dims(-1)));
    gd_tensor *own = gd_reshape(flat, gd_shape_of(each->rank, each->dims));
    if (own->kind != GD_FAILED && own->dtype != each->dtype)
        own = gd_cast(own, (gd_dtype)each->dtype);
    *w = *w ? gd_mul(*w, own) : own;
    return (*w)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* The weight of each element of the loss. */
static gd_status element_weights(gd_batches *b, gd_batch_result *r, const gd_tensor *each,
                                 gd_tensor **w) {
    GD_NO_GRAD;
    gd_tensor *target = r->targets.count ? r->targets.at[0] : NULL, *classes = NULL, *kept = NULL;
    const gd_factory *factory = b->training->loss_each->factory;
    const int64_t *ignore =
        gd_factory_option(factory, b->training->loss_each->options, "ignore_index", NULL);
    *w = NULL;
    if (r->weight) GD_TRY(expand_sample_weights(r->weight, each, w));
    if (ignore && target && !gd_is_float(target->dtype) &&
        gd_tensor_numel(target) == gd_tensor_numel(each))
        kept =
            gd_ne(gd_reshape(target, gd_shape_of(each->rank, each->dims)), gd_scalar_int(*ignore));
    if (b->class_weights) {
        if (!target) return gd_fail(GD_E_ARGUMENT, "class_weights need a target");
        const int axis = class_axis(b->training->loss_each, each);
        GD_TRY(check_class_targets(b, target, each));
        GD_TRY(check_weight_count(b, r, each, axis));
        GD_TRY(classes_of(target, each, axis, &classes));
        if (kept) classes = gd_mul(classes, gd_cast(kept, GD_I64));
        GD_TRY(apply_class_weights(b, each, classes, w));
    }
    if (kept) *w = gd_mul(*w, gd_cast(kept, (gd_dtype)each->dtype));
    return (*w)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

static gd_status weighted_loss(gd_batches *b, gd_batch_result *r) {
    gd_tensor *each, *w;
    GD_TRY(call_loss(b, b->training->loss_each, r, &each));
    GD_TRY(element_weights(b, r, each, &w));
    gd_tensor *sum = gd_sum(gd_mul(each, w)), *divisor;
    {
        GD_NO_GRAD;
        gd_tensor *total = gd_sum(w);
        r->count = gd_cast(total, GD_F64);
        r->sum = gd_cast(gd_detach(sum), GD_F64);
        /* if all weights are 0, the loss is 0 */
        divisor = gd_where(gd_gt(total, gd_zeros_like(total)), total, gd_ones_like(total));
    }
    r->loss = gd_div(sum, divisor);
    /* metrics can use class weights if there is one for each sample */
    if (b->class_weights && each->rank == 1) r->weight = w;
    return r->loss->kind == GD_FAILED || r->sum->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* --- the loss --------------------------------------------------------------------------------- */

gd_status gd_batch_loss(gd_batches *b, gd_tensors batch, gd_batch_result *r) {
    const gd_training *t = b->training;
    if (t->loss && (r->weight || b->class_weights)) return weighted_loss(b, r);
    if (t->loss) GD_TRY(call_loss(b, t->loss, r, &r->loss));
    else if (t->loss_function) GD_TRY(call_function(b, r));
    else return GD_OK;
    if (gd_tensor_numel(r->loss) != 1 || !gd_is_float(r->loss->dtype)) {
        char text[128];
        return gd_fail(GD_E_SHAPE, "%s: the loss must be one float; it is %s", b->what,
                       gd_describe(r->loss, text, sizeof text));
    }
    return gd_batches_mean_of(r, gd_batch_samples(batch));
}
