/* gpt.c - a small GPT that learns to write like a text.
 *
 *     gpt FILE [STEPS]           a text, such as the works of Shakespeare; 2000 steps by default
 *     gpt FILE --large [STEPS]   a net for a GPU: 10.8 million weights, in bf16; on tinyshakespeare
 *                                2500 steps give a validation loss below 1.50
 */
#include <gradus/gradus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "show.h"

enum { MAX_CONTEXT = 256 };

typedef struct sizes {
    int context, batch, stride, layers, heads, width, steps;
    double dropout;
    const char *optimizer, *schedule, *precision;
} sizes;

static const sizes small = {.context = 64,
                            .batch = 16,
                            .stride = 8,
                            .layers = 4,
                            .heads = 4,
                            .width = 128,
                            .steps = 2000,
                            .optimizer = "adamw lr=0.001",
                            .precision = "f32"};
static const sizes large = {.context = 256,
                            .batch = 64,
                            .stride = 32,
                            .layers = 6,
                            .heads = 6,
                            .width = 384,
                            .steps = 2500,
                            .dropout = 0.2,
                            .optimizer = "adamw lr=0.001 beta2=0.99 weight_decay=0.1",
                            .schedule = "cosine warmup=100 min_lr=0.0001",
                            .precision = "bf16"};

/* Samples characters one by one. */
static void write_text(gd_module *net, gd_dataset *text, int context, int length) {
    int64_t last[MAX_CONTEXT] = {0};
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
        if (count == context)
            memmove(last, last + 1, (size_t)(context - 1) * sizeof *last), count--;
        last[count++] = next;
    }
    putchar('\n');
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE [--large] [STEPS] [--device NAME]\n", argv[0]);
        return 2;
    }
    gd_seed(0);
    const bool is_large = argc > 2 && strcmp(argv[2], "--large") == 0;
    const sizes *s = is_large ? &large : &small;
    const int steps = argc > 2 + is_large ? atoi(argv[2 + is_large]) : s->steps;

    /* the last tenth of the text is for validation */
    gd_dataset *text =
        gd_dataset_text(argv[1], s->context, .unit = GD_CHARACTER, .stride = s->stride);
    const int64_t windows = gd_dataset_count(text), first = windows - windows / 10;
    gd_loader *train = gd_loader_new(gd_dataset_range(text, 0, first - s->context / s->stride),
                                     .batch = s->batch, .shuffle = true, .workers = 1);
    gd_loader *test = gd_loader_new(gd_dataset_range(text, first, windows - first),
                                    .batch = s->batch, .workers = 1);
    gd_module *net =
        gd_zoo_gpt(gd_dataset_class_count(text), .context = s->context, .layers = s->layers,
                   .heads = s->heads, .width = s->width, .dropout = s->dropout);
    /* the net returns scores (N, T, C); the targets are the next characters (N, T) */
    gd_compile(net, .optimizer = s->optimizer, .schedule = s->schedule,
               .loss = "cross_entropy axis=-1", .clip_norm = 1, .precision = s->precision);
    gd_history *h = gd_fit(net, train, .epochs = 1 << 20, .max_steps = steps, .validation = test);
    if (!h) return show_failure();
    write_text(net, text, s->context, 300);
    printf("loss %.3f, validation loss %.3f\n", gd_history_last(h, "loss"),
           gd_history_last(h, "val_loss"));
    return show_failure();
}
