/* test_caffe_save_faults.c - every allocation fails once while a module is written as a net of Caffe. */
#include "clean_test.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "temp.h"

typedef struct parts {
    gd_module *conv;
} parts;

static gd_tensors forward(gd_tensors in, void *self) {
    const parts *m = self;
    gd_tensor *y = gd_module_forward(m->conv, in.at[0]);
    gd_tensor *z = gd_max_pool2d(gd_mul(y, 2), .kernel = 3, .stride = 2, .padding = 1);
    return gd_listed(z, gd_add(y, gd_module_forward(m->conv, y)));
}

static gd_module *make_net(void) {
    gd_module *net = gd_module_new(forward, sizeof(parts));
    parts *m = gd_module_self(net);
    GD_CHILD(net, m->conv,
             gd_nn_sequential(gd_nn_conv2d(2, 2, 3, .padding = 1), gd_nn_batch_norm2d(2),
                              gd_nn_dropout()));
    return net;
}

/* Writes both files; a failure leaves no others behind. */
static void walk(const char *what, gd_module *(*make)(void)) {
    gd_tensor *x = gd_ones(gd_dims(1, 2, 4, 4));
    gd_module *net = make();
    const char *text = temp_path("net.prototxt"), *weights = temp_path("net.caffemodel");
    CHECK(gd_caffe_save_net(text, net, x) == GD_OK && gd_caffe_save(weights, net) == GD_OK);
    for (fault_walk w = {.what = what, .dense = 400}; fault_next(&w);) {
        GD_SCOPE;
        fault_begin(&w);
        gd_status status = gd_caffe_save_net(text, net, x);
        if (status == GD_OK) status = gd_caffe_save(weights, net);
        fault_end(&w);
        CHECK_FAULT(&w, status);
    }
}

CLEAN_TEST(saving_a_module_of_the_program) {
    GD_SCOPE;
    walk("saving a module", make_net);
}

static gd_module *make_text_net(void) {
    return gd_caffe_net(temp_write_text(
        "given.prototxt",
        "input: 'x' input_shape { dim: 1 dim: 2 dim: 4 dim: 4 }\n"
        "layer { name: 's' type: 'Slice' bottom: 'x' top: 'a' top: 'b' }\n"
        "layer { name: 'q' type: 'Silence' bottom: 'b' }\n"
        "layer { name: 'c' type: 'Convolution' bottom: 'a' top: 'c' param { name: 'w' }\n"
        "  convolution_param { num_output: 1 kernel_size: 3 } }\n"
        "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' }\n"));
}

CLEAN_TEST(saving_a_net_from_text) {
    GD_SCOPE;
    walk("saving a net from text", make_text_net);
}

CLEAN_TEST(reading_a_net_from_text) {
    for (fault_walk w = {.what = "a net from text", .dense = 40}; fault_next(&w);) {
        GD_SCOPE;
        fault_begin(&w);
        gd_module *net = make_text_net();
        fault_end(&w);
        CHECK_FAULT(&w, net ? GD_OK : gd_error_status());
    }
}

TEST_MAIN
