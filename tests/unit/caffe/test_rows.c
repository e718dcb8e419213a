/* test_rows.c - the words of Caffe in the records of ops name fields that its messages have. */
#include <stdio.h>
#include <string.h>

#include "caffe/layer.h"
#include "clean_test.h"
#include "codegen/operator_text.h"
#include "dispatch/op.h"
#include "gradus/gradus.h"

static bool has_field(const gd_pb_field *message, const char *name) {
    for (int i = 0; message && i < message->message->count; i++)
        if (strcmp(message->message->fields[i].name, name) == 0) return true;
    return false;
}

TEST(rows_name_fields_of_their_message) {
    int count = 0;
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        if (!op->caffe.name || !*op->caffe.name) continue;
        count++;
        const gd_pb_field *message = gd_caffe_message_of(op->caffe.name);
        const char *words = op->caffe.attributes;
        gd_operator_attribute a;
        while (words && gd_operator_next_attribute(&words, &a))
            CHECK_SAYING(has_field(message, a.theirs), "%s: %s has no field '%s'", op->name,
                         op->caffe.name, a.theirs);
        CHECK_SAYING(!gd_caffe_find_type(op->caffe.name), "%s: %s is a type of the table, too",
                     op->name, op->caffe.name);
    }
    CHECK(count > 5);
}

TEST_MAIN
