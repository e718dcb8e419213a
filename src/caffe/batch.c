/* batch.c - the batches that a net's data layers give it. */
#include "caffe/net.h"

gd_status gd_caffe_check_fed(const gd_caffe_text_net *net, const char *what) {
    for (int i = 0; i < net->n_inputs; i++)
        if (net->inputs[i].from_text)
            return gd_fail(
                GD_E_ARGUMENT,
                "%s: '%s' is an input of the net; %s needs data layers, which give all inputs (or "
                "`dummy`)",
                net->file, net->inputs[i].name, what);
    return GD_OK;
}

gd_status gd_caffe_next_batch(const gd_caffe_text_net *net, gd_tensors *batch) {
    *batch = (gd_tensors){NULL, 0};
    if (!net->data) return GD_OK;
    gd_loader *loader = gd_caffe_data_loader(net->data);
    for (int tries = 0; tries < 2; tries++) /* the end of an epoch of the loader */
        if (gd_loader_next_at(NULL, loader, batch)) return GD_OK;
    return gd_failed() ? gd_failure() : gd_fail(GD_E_STATE, "%s: the data are empty", net->file);
}
