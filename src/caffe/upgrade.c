/* upgrade.c - upgrades nets and solvers of older versions to today's fields. See read.h. */
#include "caffe/upgrade.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"

/* --- nets ------------------------------------------------------------------------------------- */

/* Three blobs of a batch norm once were listed as parameters with rates. They are statistics, which
 * are not trained. */
static void upgrade_batch_norm(gd_pb *layer, unsigned *upgraded) {
    const gd_pb_list *params = gd_pb_get(layer, "param");
    if (params == NULL || params->count != 3) return;
    for (int i = 0; i < 3; i++) {
        gd_pb_put_float(params->messages[i], "lr_mult", 0);
        gd_pb_put_float(params->messages[i], "decay_mult", 0);
    }
    *upgraded |= GD_CAFFE_OLD_BATCH_NORMS;
}

static gd_status upgrade_net(gd_pb *net, const char *file, unsigned *upgraded) {
    GD_TRY(gd_caffe_upgrade_layers(net, upgraded));
    const gd_pb_list *layers = gd_pb_get(net, "layer");
    for (size_t i = 0; layers && i < layers->count; i++) {
        gd_caffe_warn_of_transform(layers->messages[i], file);
        if (strcmp(gd_pb_string_of(layers->messages[i], "type"), "BatchNorm") == 0)
            upgrade_batch_norm(layers->messages[i], upgraded);
    }
    return gd_pb_check(net->doc);
}

/* --- solvers ---------------------------------------------------------------------------------- */

static gd_status upgrade_solver_type(gd_pb *solver, unsigned *upgraded) {
    static const char *const types[] = {"SGD",     "Nesterov", "AdaGrad",
                                        "RMSProp", "AdaDelta", "Adam"};
    if (!gd_pb_has(solver, "solver_type")) return GD_OK;
    if (gd_pb_has(solver, "type"))
        return gd_pb_fail(solver, "a solver has either 'type' or, in older files, 'solver_type'; "
                                  "this one has both");
    const int64_t number = gd_pb_int_of(solver, "solver_type");
    if (number < 0 || number >= (int64_t)(sizeof types / sizeof *types))
        return gd_pb_fail(solver, "solver_type %lld does not exist", (long long)number);
    gd_pb_put_string(solver, "type", types[number]);
    gd_pb_clear(solver, "solver_type");
    *upgraded |= GD_CAFFE_OLD_SOLVER_TYPE;
    return GD_OK;
}

static gd_status upgrade_solver(gd_pb *solver, const char *file, unsigned *upgraded) {
    static const char *const nets[] = {"net_param", "train_net_param", "test_net_param"};
    GD_TRY(upgrade_solver_type(solver, upgraded));
    for (int i = 0; i < 3; i++) {
        const gd_pb_list *list = gd_pb_get(solver, nets[i]);
        for (size_t k = 0; list && k < list->count; k++)
            GD_TRY(upgrade_net(list->messages[k], file, upgraded));
    }
    return gd_pb_check(solver->doc);
}

/* --- the log ---------------------------------------------------------------------------------- */

static void tell(const char *file, unsigned upgraded) {
    static const char *const parts[] = {"layers of version 1",
                                        "transforms in the options of data layers",
                                        "rates of the statistics of batch norms", "solver_type"};
    char text[200] = "";
    for (int i = 0; i < 4; i++)
        if (upgraded & 1U << i) {
            const size_t length = strlen(text);
            snprintf(text + length, sizeof text - length, "%s%s", length ? ", " : "", parts[i]);
        }
    if (upgraded)
        gd_notice(GD_LOG_INFO, "%s: written for an older Caffe, and upgraded: %s", file, text);
}

gd_status gd_caffe_upgrade_net(gd_pb *net, const char *file) {
    unsigned upgraded = 0;
    GD_TRY(upgrade_net(net, file, &upgraded));
    tell(file, upgraded);
    return GD_OK;
}

gd_status gd_caffe_upgrade_solver(gd_pb *solver, const char *file) {
    unsigned upgraded = 0;
    GD_TRY(upgrade_solver(solver, file, &upgraded));
    tell(file, upgraded);
    return GD_OK;
}
