/* copies.c - a layer computes the same when its sizes are inferred, when it is cloned, and when it
 * is moved to another dtype and back. */
#include <stdio.h>
#include <string.h>

#include "layer.h"

static bool runs_agree(const test_case *c, gd_dtype dtype, gd_module *a, gd_module *b, char *why) {
    for (int train = 0; train < 2; train++) {
        run_result x, y;
        layer_fill(c, a);
        layer_fill(c, b);
        layer_run(c, a, dtype, train, &x);
        layer_run(c, b, dtype, train, &y);
        snprintf(why, 512, "%s", gd_error_message());
        if (gd_failed() || !results_agree(&x, &y, NULL, why)) return false;
    }
    return true;
}

/* Compares the initial state of two layers, then their results with the case's weights. */
static void compare_layers(const test_case *c, gd_dtype dtype, const char *what, gd_module *a,
                           gd_module *b) {
    char why[512];
    layer_state x, y;
    if (!a || !b || gd_failed()) {
        report_fail(c, dtype, "%s: %s", what, gd_error_message());
        return;
    }
    layer_state_of(a, &x);
    layer_state_of(b, &y);
    bool same = x.n == y.n && x.n_parameters == y.n_parameters;
    snprintf(why, sizeof why, "%d parameters and buffers, expected %d", y.n, x.n);
    for (int i = 0; i < x.n && same; i++) {
        same = strcmp(x.name[i], y.name[i]) == 0 && tensors_agree(y.at[i], x.at[i], 0, why);
        if (!same)
            report_fail(c, dtype, "%s: %s, expected %s: %s", what, y.name[i], x.name[i], why);
    }
    if (same && !runs_agree(c, dtype, a, b, why)) report_fail(c, dtype, "%s: %s", what, why);
    else if (same) report_pass();
}

/* The options of the case, with GD_ANY for those that the layer infers from its inputs. */
static bool replace_inferred(const test_case *c, char *text, size_t size) {
    const gd_factory *factory = c->block->layer;
    bool any = false;
    size_t used = 0;
    char copy[1024], *rest = copy;
    snprintf(copy, sizeof copy, "%s", c->options);
    text[0] = 0;
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        const size_t n = strcspn(word, "=");
        bool inferred = false; /* one number, not a list of several */
        for (int i = 0; i < factory->n_finds; i++)
            inferred |= strlen(factory->finds[i].option) == n &&
                        strncmp(factory->finds[i].option, word, n) == 0 && !strchr(word, ',');
        any |= inferred;
        used += inferred
                    ? (size_t)snprintf(text + used, size - used, "%.*s=%d ", (int)n, word, GD_ANY)
                    : (size_t)snprintf(text + used, size - used, "%s ", word);
    }
    return any;
}

static void compare_copies(const test_case *c, gd_dtype dtype) {
    char text[1024];
    GD_SCOPE;
    gd_clear_error();
    gd_seed(3);
    gd_module *m = layer_from(c, c->options, GD_F32);
    if (replace_inferred(c, text, sizeof text) && dtype == GD_F32) {
        gd_tensor *in[MAX_TENSORS];
        gd_seed(3);
        gd_module *inferred = layer_from(c, text, GD_F32);
        const int n = layer_inputs(c, GD_F32, in);
        gd_module_build_at(GD_HERE, inferred, (gd_tensors){in, n});
        compare_layers(c, dtype, "inferred sizes", m, inferred);
        gd_clear_error();
    }
    if (m && dtype != GD_F32) gd_module_to(m, NULL, dtype);
    compare_layers(c, dtype, "a clone", m, m ? gd_module_clone(m) : NULL);
    gd_clear_error();
    gd_module *moved = m ? gd_module_clone(m) : NULL;
    if (moved && dtype == GD_F32 &&
        (gd_module_to(moved, NULL, GD_F64) != GD_OK || gd_module_to(moved, NULL, GD_F32) != GD_OK))
        report_fail(c, dtype, "moved: %s", gd_error_message());
    compare_layers(c, dtype, "moved to f64 and back", m, moved);
}

void suite_nn_copies(const test_cases *cases) { each_layer_case(cases, compare_copies); }
