/* gpt.c - a small GPT that learns to write like a text.
 *
 *     gpt FILE [STEPS]     a text, such as the works of Shakespeare; 2000 steps by default
 */
#include <gradus/gradus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 64, BATCH = 16 };

/* Scores (N, T, C) and the next characters (N, T): each position is a sample. */
static gd_tensor *next_character_loss(gd_tensors outputs, gd_tensors targets, void *user) {
    (void)user;
    return gd_cross_entropy(gd_flatten(outputs.at[0], .start_axis = 0, .end_axis = 1),
                            gd_flatten(targets.at[0]));
}

/* Samples characters one by one. */
static void write_text(gd_module *net, gd_dataset *text, int length) {
    int64_t last[CONTEXT] = {0};
    int count = 1;
    GD_NO_GRAD;
    gd_module_eval(net);
    for (int i = 0; i < length; i++) {
        GD_SCOPE;
        gd_tensor *x = gd_from_array(gd_dims(1, count), GD_I64, last);
        gd_tensor *scores = gd_select(gd_module_forward(net, x), 1, count - 1);
        const int64_t next = gd_item_int(gd_multinomial(gd_softmax(scores, .axis = 1), 1));
        if (gd_failed()) return;
        fputs(gd_dataset_class_name(text, next), stdout);
        if (count == CONTEXT) memmove(last, last + 1, sizeof last - sizeof *last), count--;
        last[count++] = next;
    }
    putchar('\n');
}

int main(int argc, char **argv) {
    GD_SCOPE;
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE [STEPS]\n", argv[0]);
        return 2;
    }
    gd_seed(0);
    const int steps = argc > 2 ? atoi(argv[2]) : 2000;
    gd_dataset *text = gd_dataset_text(argv[1], CONTEXT, .unit = GD_CHARACTER, .stride = 8);
    gd_loader *train = gd_loader_new(text, .batch = BATCH, .shuffle = true, .workers = 1);
    gd_module *net = gd_zoo_gpt(gd_dataset_class_count(text), .context = CONTEXT, .layers = 4,
                                .heads = 4, .width = 128, .dropout = 0);
    gd_compile(net, .optimizer = "adamw lr=0.001", .loss_function = next_character_loss,
               .clip_norm = 1);
    gd_history *h = gd_fit(net, train, .epochs = 1 << 20, .max_steps = steps);
    if (!h) {
        fprintf(stderr, "%s\n", gd_error_message());
        return 1;
    }
    write_text(net, text, 300);
    printf("loss %.3f\n", gd_history_last(h, "loss"));
    return !gd_failed() && gd_history_last(h, "loss") < 3.5 ? 0 : 1;
}
