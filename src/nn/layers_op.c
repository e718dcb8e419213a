/* layers_op.c - any op as a layer. */
#include <string.h>

#include "core/alloc.h"
#include "gradus/layers.h"
#include "nn/layer.h"
#include "dispatch/call.h"

/*layer op(xs*, name:string) -> ys*
 * Any op as a layer, by its name: gd_nn_op("cat", .options = "axis=1"). It has the inputs and
 * outputs of the op.
 *   options string = none   options of the op, as text
 */
static gd_status op_build(gd_module *m) {
    const gd_nn_op_options *o = m->options;
    const gd_op *op = o->name ? gd_op_find(o->name) : NULL;
    if (!op)
        return gd_fail(GD_E_ARGUMENT, "op: name is '%.60s'; there is no such op",
                       o->name ? o->name : "NULL");
    gd_attrs *attrs = gd_attrs_new(op);
    if (!attrs) return gd_failure();
    gd_status status = o->options ? gd_attrs_parse(attrs, o->options) : GD_OK;
    if (status == GD_OK) status = gd_attrs_check_given(op, attrs);
    if (status != GD_OK) {
        gd_error_prefix("op: options: ");
        return status;
    }
    m->op = op;
    if (op->attrs_size == 0) return GD_OK;
    m->op_options = gd_malloc(op->attrs_size);
    if (!m->op_options) return gd_no_memory(NULL, "for a layer");
    memcpy(m->op_options, gd_attrs_data(attrs), op->attrs_size);
    return GD_OK;
}
static gd_tensors op_forward(gd_module *m, gd_tensors in) {
    return gd_call_with(m->op, NULL, in, m->op_options);
}

#include "nn/layers_op.gen.h"
