/* text_parity.c - trains a char-LSTM or a GPT on a text. Writes the initial weights, the batches,
 * and the mean loss of every 100 steps, so that text_parity.py can repeat the training in PyTorch.
 *
 *     text_parity NET FILE STEPS FOLDER       NET is char_lstm or gpt
 */
#include <gradus/gradus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 64, EVERY = 100 };

typedef struct run {
    gd_tensor *sum; /* of the losses since the last report */
    FILE *losses;
} run;

static gd_tensor *train_step(gd_module *net, gd_tensors batch, void *user) {
    run *r = user;
    gd_tensor *scores = gd_module_forward(net, batch.at[0]);
    gd_tensor *loss = gd_cross_entropy(gd_flatten(scores, .start_axis = 0, .end_axis = 1),
                                       gd_flatten(batch.at[1]));
    gd_backward(loss);
    GD_NO_GRAD;
    gd_add_(r->sum, gd_detach(loss));
    return loss;
}

static gd_status report_loss(gd_event *event, void *self) {
    run *r = self;
    if (event->step % EVERY) return GD_OK;
    const float zero = 0;
    fprintf(r->losses, "%.9g\n", gd_item(r->sum) / EVERY);
    printf("%lld %.4f\n", (long long)event->step, gd_item(r->sum) / EVERY);
    fflush(stdout);
    return gd_copy_from(r->sum, &zero, sizeof zero);
}

/* The batches of all steps, (steps, batch, length + 1), from a loader with the order of the
 * training one. */
static gd_tensor *collect_batches(gd_loader *loader, int64_t steps) {
    gd_tensor *all = NULL;
    for (int64_t i = 0; i < steps;) {
        gd_tensors batch;
        if (!gd_loader_next(loader, &batch)) {
            if (gd_failed()) return NULL;
            continue; /* the next epoch */
        }
        GD_SCOPE;
        gd_tensor *last = gd_slice(batch.at[1], .axis = 1, .start = LENGTH - 1);
        gd_tensor *both = gd_cat(gd_list(batch.at[0], last), .axis = 1);
        const int64_t n = gd_tensor_numel(both);
        if (!all)
            all = gd_keep(
                gd_zeros(gd_dims(steps, gd_tensor_dim(both, 0), LENGTH + 1), .dtype = GD_I64));
        if (gd_failed()) return NULL;
        memcpy((int64_t *)gd_data(all) + i * n, gd_data(gd_contiguous(both)),
               (size_t)n * sizeof(int64_t));
        i++;
    }
    return all;
}

int main(int argc, char **argv) {
    GD_SCOPE;
    if (argc != 5) return 2;
    const bool gpt = strcmp(argv[1], "gpt") == 0;
    const int64_t steps = atoll(argv[3]), batch = gpt ? 16 : 32;
    char path[1000];
    gd_seed(0);
    gd_dataset *text = gd_dataset_text(argv[2], LENGTH, .unit = GD_CHARACTER, .stride = 16);
    const int64_t vocabulary = gd_dataset_class_count(text);
    gd_module *net =
        gpt ? gd_zoo_gpt(vocabulary, .context = LENGTH, .layers = 4, .heads = 4, .width = 128)
            : gd_zoo_char_lstm(vocabulary, .embedding = 64, .hidden = 256);
    snprintf(path, sizeof path, "%s/start.safetensors", argv[4]);
    gd_save_state(path, gd_part("", net));
    snprintf(path, sizeof path, "%s/batches.npy", argv[4]);
    gd_save_npy(
        path, collect_batches(
                  gd_loader_new(text, .batch = batch, .shuffle = true, .drop_last = true), steps));
    snprintf(path, sizeof path, "%s/losses.txt", argv[4]);
    run r = {gd_zeros(gd_dims()), fopen(path, "w")};
    if (gd_failed() || !r.losses) {
        fprintf(stderr, "%s\n", gd_error_message());
        return 1;
    }
    gd_compile(net, .optimizer = "adamw lr=0.002", .clip_norm = 1);
    gd_loader *train =
        gd_loader_new(text, .batch = batch, .shuffle = true, .drop_last = true, .workers = 1);
    gd_fit(net, train, .epochs = steps, .max_steps = steps, .step = train_step, .step_user = &r,
           .callbacks = gd_callbacks(gd_callback_from(&r, .batch_end = report_loss)),
           .progress = GD_PROGRESS_NONE);
    fclose(r.losses);
    if (gd_failed()) fprintf(stderr, "%s\n", gd_error_message());
    return gd_failed();
}
