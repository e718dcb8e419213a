/* test_onnx_rows.c - the rows that map ops to ONNX operators, in the table and in records. */
#include "clean_test.h"
#include "dispatch/op.h"
#include "onnx/operator_table.h"

TEST(the_texts_of_the_table_name_what_their_ops_have) {
    for (int i = 0; i < gd_onnx_row_count; i++) {
        const gd_onnx_row *row = &gd_onnx_rows[i];
        const gd_op *op = gd_op_find(row->op);
        char error[256];
        CHECK_SAYING(op || !row->op, "there is no op '%s'", row->op);
        if (!op) continue;
        const gd_operator_owner owner = {op->inputs, op->n_inputs, op->attrs, op->n_attrs, true};
        const gd_operator_text text = {.inputs = row->inputs,
                                       .attributes = row->attributes,
                                       .when = row->when,
                                       .cast = row->cast};
        CHECK_SAYING(gd_operator_check(&text, &owner, error, sizeof error), "%s: %s", row->op,
                     error);
    }
}

TEST_MAIN
