/* record_lookup.c - finds the inputs and options that rows name in the records of ops. */
#include <string.h>

#include "onnx/operator_table.h"
#include "dispatch/infer.h"

const gd_op_attr *gd_onnx_find_option(const gd_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, name) == 0) return &op->attrs[i];
    return NULL;
}

int gd_onnx_input_index(const gd_op *op, const char *name) {
    for (int i = 0; i < op->n_inputs; i++)
        if (strcmp(op->inputs[i].name, name) == 0) return i;
    return -1;
}

const char *gd_onnx_word_text(const gd_op_attr *attr, gd_word value, char word[GD_OPERATOR_WORD]) {
    const char *words = attr->words;
    while (gd_operator_next_word(&words, word, GD_OPERATOR_WORD))
        if (gd_word_of(word) == value) return word;
    word[0] = '\0';
    return word;
}

int gd_onnx_option_numbers(const gd_op_attr *attr, const void *attrs, int64_t *numbers) {
    const char *field = (const char *)attrs + attr->offset;
    int count = 1;
    if (attr->type == GD_ATTR_SHAPE) {
        const gd_shape *list = (const gd_shape *)field;
        if (!gd_shape_is_set(list)) return -1;
        count = list->rank;
        memcpy(numbers, list->at, (size_t)count * sizeof *numbers);
        return count;
    }
    if (attr->type == GD_ATTR_INTS) count = attr->count;
    else if (attr->type != GD_ATTR_INT) return -1;
    memcpy(numbers, field, (size_t)count * sizeof *numbers);
    return numbers[0] == GD_UNSET ? -1 : count;
}
