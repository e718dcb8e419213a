/* char_rnn.c - an LSTM that learns to write like a text, character by character.
 *
 *     char_rnn FILE [STEPS]     a text, such as the works of Shakespeare; 1500 steps by default
 */
#include <gradus/gradus.h>
#include <stdio.h>
#include <stdlib.h>

#include "show.h"

enum { LENGTH = 64, BATCH = 32 };

/* Samples characters one by one; the states h and c represent the text so far. */
static void write_text(gd_module *net, gd_dataset *text, int length) {
    int64_t last = 0;
    gd_tensor *h = NULL, *c = NULL;
    GD_NO_GRAD;
    gd_module_eval(net);
    for (int i = 0; i < length; i++) {
        GD_SCOPE;
        gd_tensors y =
            gd_module_call(net, gd_list(gd_from_array(gd_dims(1, 1), GD_I64, &last), h, c));
        last = gd_item_int(gd_multinomial(gd_softmax(gd_select(y.at[0], 1, 0), .axis = 1), 1));
        if (gd_failed()) return;
        gd_release(h), gd_release(c);
        h = gd_retain(y.at[1]), c = gd_retain(y.at[2]);
        fputs(gd_dataset_class_name(text, last), stdout);
    }
    gd_release(h), gd_release(c);
    putchar('\n');
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE [STEPS]\n", argv[0]);
        return 2;
    }
    gd_seed(0);
    const int steps = argc > 2 ? atoi(argv[2]) : 1500;
    gd_dataset *text = gd_dataset_text(argv[1], LENGTH, .unit = GD_CHARACTER, .stride = 8);
    gd_loader *train = gd_loader_new(text, .batch = BATCH, .shuffle = true, .workers = 1);
    gd_module *net = gd_zoo_char_lstm(gd_dataset_class_count(text), .hidden = 256, .embedding = 64);
    /* The net returns scores (N, T, C), and then its last states, which the loss does not take. */
    gd_compile(net, .optimizer = "adam lr=0.002", .loss = "cross_entropy axis=-1", .clip_norm = 5);
    gd_history *history = gd_fit(net, train, .epochs = 1 << 20, .max_steps = steps);
    if (!history) return show_failure();
    write_text(net, text, 300);
    printf("loss %.3f\n", gd_history_last(history, "loss"));
    return show_failure();
}
