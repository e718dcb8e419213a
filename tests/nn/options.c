/* options.c - a layer accepts unusual option values, or fails with a message that names the layer
 * and the option. Also checks that every layer has cases. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "layer.h"

/* Values of an option type that are wrong for at least some options. */
static const char *const *bad_values(gd_attr_type type) {
    static const char *const ints[] = {"-7", "0", "-1", NULL};
    static const char *const floats[] = {"-7", "0", "nan", "inf", "-inf", "1e300", NULL};
    static const char *const words[] = {"nothing", NULL};
    static const char *const bools[] = {"maybe", NULL};
    static const char *const lists[] = {"-7", "0", "1,2,3,4,5,6,7,8", NULL};
    static const char *const strings[] = {"nothing", NULL};
    switch (type) {
    case GD_ATTR_INT: return ints;
    case GD_ATTR_FLOAT:
    case GD_ATTR_NUMBER: return floats;
    case GD_ATTR_WORD:
    case GD_ATTR_DTYPE: return words;
    case GD_ATTR_BOOL: return bools;
    case GD_ATTR_INTS:
    case GD_ATTR_SHAPE:
    case GD_ATTR_FLOATS: return lists;
    case GD_ATTR_STRING: return strings;
    default: return strings + 1;
    }
}

/* The options of the case, with one option set to another value. */
static void replace_option(const test_case *c, const char *name, const char *value, char *text,
                           size_t size) {
    char copy[1024], *rest = copy;
    snprintf(copy, sizeof copy, "%s", c->options);
    size_t used = (size_t)snprintf(text, size, "%s=%s", name, value);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        const size_t n = strcspn(word, "=");
        if (strlen(name) == n && strncmp(name, word, n) == 0) continue;
        used += (size_t)snprintf(text + used, size - used, " %s", word);
    }
}

/* Whether a text contains a name as a word. */
static bool has_word(const char *text, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at++) {
        const bool starts_word = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (starts_word && !isalnum((unsigned char)at[n]) && at[n] != '_') return true;
    }
    return false;
}

static void try_option(const test_case *c, const gd_op_attr *a, const char *value) {
    char text[1024];
    GD_SCOPE;
    gd_clear_error();
    replace_option(c, a->name, value, text, sizeof text);
    gd_module *m = gd_layer_new(gd_op_name(c->block->op), text);
    if (m) {
        gd_tensor *in[MAX_TENSORS];
        const int n = layer_inputs(c, GD_F32, in);
        gd_module_call(m, ((gd_tensors){in, n}));
    } else if (!gd_failed())
        report_fail(c, GD_DTYPE_NONE, "%s: returned NULL without recording a failure", text);
    const char *message = gd_error_message();
    if (gd_failed() &&
        (!has_word(message, gd_op_name(c->block->op)) || !has_word(message, a->name)))
        report_fail(c, GD_DTYPE_NONE,
                    "%s=%s: the message does not name both the layer and the option: %s", a->name,
                    value, message);
    else report_pass();
}

void suite_nn_options(const test_cases *cases) {
    for (int b = 0; b < cases->n_blocks; b++) {
        const test_block *block = &cases->blocks[b];
        bool first = block->n_cases > 0;
        for (int i = 0; i < b; i++) first &= cases->blocks[i].op != block->op;
        for (int i = 0; first && i < gd_op_attr_count(block->op); i++) {
            const gd_op_attr *a = gd_op_attr_at(block->op, i);
            for (const char *const *value = bad_values(a->type); *value; value++)
                try_option(&block->cases[0], a, *value);
        }
    }
}

void suite_nn_coverage(const test_cases *cases) {
    const gd_factory *m;
    for (int i = 0; (m = gd_factory_at("layer", i)); i++) {
        bool any = false;
        for (int b = 0; b < cases->n_blocks; b++)
            any |= cases->blocks[b].layer == m && cases->blocks[b].n_cases > 0;
        if (any) report_pass();
        else
            report_fail(NULL, GD_DTYPE_NONE, "the layer '%s' has no case in tests/cases/nn",
                        m->record.name);
    }
}
