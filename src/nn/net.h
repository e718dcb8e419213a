/* net.h - the layers of a gd_nn_net, for library code that builds and copies nets. */
#ifndef GRADUS_NN_NET_H
#define GRADUS_NN_NET_H

#include "nn/module.h"

/* A list of names of tensors; NULL is an absent input, or an output that nobody reads. */
typedef struct gd_name_list {
    const char *const *at;
    int count;
} gd_name_list;

/* gd_nn_net and gd_net_add with lists instead of texts. These do not record a failure, except that
 * a net that cannot be made is NULL. */
gd_module *gd_net_new_with(gd_name_list inputs, gd_name_list outputs);
gd_status gd_net_add_with(gd_module *net, const char *name, gd_module *layer, gd_name_list reads,
                          gd_name_list gives);

/* The layer that was added last reads its input number `i` detached: no gradient goes there. */
void gd_net_detach_input(gd_module *net, int i);

void gd_net_rows_free(gd_module *net);
gd_status gd_net_rows_copy(gd_module *copy, const gd_module *net);

#endif
