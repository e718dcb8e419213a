/* net.h - the layers of a gd_nn_net, for the functions that clone and free modules. */
#ifndef GRADUS_NN_NET_H
#define GRADUS_NN_NET_H

#include "nn/module.h"

struct gd_net_row {
    int entry;                 /* index of the layer among the entries of the net */
    const char *reads, *gives; /* names, separated by spaces; interned */
};

void gd_net_rows_free(gd_module *net);
gd_status gd_net_rows_copy(gd_module *copy, const gd_module *net);

#endif
