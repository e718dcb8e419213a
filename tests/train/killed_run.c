/* killed_run.c - see killed_run.h. */
#include "killed_run.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "files.h"
#include "gradus/gradus.h"

enum { SAMPLES = 96, SIDE = 8, CLASSES = 4, BATCH = 8, EPOCHS = 8 };

killed_page *killed_page_open(const char *path) {
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    void *page = fd >= 0 && ftruncate(fd, sizeof(killed_page)) == 0
                     ? mmap(NULL, sizeof(killed_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    if (fd >= 0) close(fd);
    return page == MAP_FAILED ? NULL : page;
}

static void record_message(gd_log_level level, const char *message, void *user) {
    killed_page *page = user;
    int64_t step;
    if (sscanf(message, "resumed from step %" SCNd64, &step) == 1) page->resumed = step;
    if (sscanf(message, "gd_fit: stopped after step %" SCNd64 ": SIG", &step) == 1 &&
        strstr(message, "SIGTERM"))
        page->stopped = step;
    if (level < GD_LOG_WARNING && !strstr(message, "cannot be traced")) return;
    snprintf(page->warning, sizeof page->warning, "%s", message);
    page->warnings++;
}

/* --- data ------------------------------------------------------------------------------------- */

static int64_t count_samples(void *self) { return *(int *)self; }

/* Image (1, SIDE, SIDE) with a bright stripe at one of four positions, the class. The noise depends
 * only on the sample. */
static gd_tensors get_sample(int64_t index, gd_random *random, void *self) {
    (void)random;
    float image[SIDE * SIDE];
    gd_random own = gd_random_of(5, (uint64_t)(index + 1000 * *(int *)self));
    const int class = (int)(index % CLASSES);
    for (int i = 0; i < SIDE * SIDE; i++)
        image[i] = (float)(1.6 * gd_random_normal(&own) + (i / SIDE / 2 == class ? 1.0 : 0.0));
    return gd_listed(gd_from_array(gd_dims(1, SIDE, SIDE), GD_F32, image),
                     gd_scalar_of(class, GD_I64));
}

/* A user-defined augmentation. */
static gd_tensors jitter_sample(gd_tensors sample, gd_random *random, void *user) {
    (void)user;
    const double scale = gd_random_between(random, 0.8, 1.2),
                 shift = gd_random_between(random, -0.2, 0.2);
    return gd_listed(gd_add(gd_mul(sample.at[0], gd_scalar(scale)), gd_scalar(shift)),
                     sample.at[1]);
}

static gd_loader *make_loader(int *samples, bool train) {
    gd_dataset *data =
        gd_dataset_from(samples, .count = count_samples, .get = get_sample, .name = "stripes");
    if (train) {
        data = gd_dataset_transform(data, gd_transform_flip(),
                                    gd_transform_crop(SIDE, .padding = gd_dims(1, 0)),
                                    gd_transform_erase(.p = 0.3));
        data = gd_dataset_map(data, jitter_sample, NULL);
    }
    return gd_loader_new(data, .batch = BATCH, .shuffle = train, .seed = 3,
                         .workers = train ? 4 : 0);
}

/* --- the run ---------------------------------------------------------------------------------- */

/* The state of a callback; its numbers are part of the result. */
typedef struct counter {
    int64_t batches, epochs;
    double sum;
} counter;
static killed_page *page_of_run;

static gd_status batch_end(gd_event *event, void *self) {
    ((counter *)self)->batches++;
    page_of_run->step = event->step;
    if (event->step == page_of_run->die_at) raise(SIGKILL);
    return GD_OK;
}
static gd_status epoch_end(gd_event *event, void *self) {
    ((counter *)self)->epochs++;
    ((counter *)self)->sum += gd_event_value(event, "val_loss");
    return GD_OK;
}

static gd_module *make_net(void) {
    return gd_nn_sequential(gd_nn_conv2d(1, 4, 3, .padding = 1), gd_nn_batch_norm2d(4),
                            gd_nn_relu(), gd_nn_flatten(), gd_nn_dropout(.p = 0.3),
                            gd_nn_linear(4 * SIDE * SIDE, 24), gd_nn_tanh(),
                            gd_nn_dropout(.p = 0.2), gd_nn_linear(24, CLASSES));
}

/* Writes the history with all bits of its numbers, without times. */
static void write_history(const char *result, const gd_history *h, const counter *c) {
    char path[4096];
    snprintf(path, sizeof path, "%s.txt", result);
    FILE *f = fopen(path, "w");
    if (!f) return;
    for (int64_t k = 0; k < gd_history_columns(h); k++) {
        const char *name = gd_history_name(h, k);
        if (strcmp(name, "seconds") == 0) continue;
        fprintf(f, "%s", name);
        for (int64_t r = 0; r < gd_history_rows(h); r++)
            fprintf(f, " %a", gd_history_value(h, name, r));
        fprintf(f, "\n");
    }
    fprintf(f, "%" PRId64 " batches, %" PRId64 " epochs, %a\n", c->batches, c->epochs, c->sum);
    fclose(f);
}

static gd_history *train(gd_module *net, const char *folder, counter *c) {
    static int train_samples = SAMPLES, test_samples = SAMPLES / 3;
    gd_compile(net, .optimizer = "adam lr=0.03", .schedule = "cosine steps=60 warmup=6",
               .loss = "cross_entropy", .metrics = "accuracy", .accumulate = 2, .clip_norm = 1.0);
    gd_callback *count_all = gd_callback_from(c, .batch_end = batch_end, .epoch_end = epoch_end,
                                              .state_bytes = sizeof *c, .name = "counter");
    gd_callback *save =
        gd_checkpoint(folder, .every_steps = KILLED_EVERY_STEPS, .keep = 3, .best = "val_loss");
    gd_callback *stop = gd_callback_new("early_stopping", "monitor=val_loss patience=3");
    return gd_fit(net, make_loader(&train_samples, true), .epochs = EPOCHS,
                  .validation = make_loader(&test_samples, false),
                  .callbacks = gd_callbacks(save, count_all, stop), .resume = folder,
                  .progress = GD_PROGRESS_NONE);
}

int killed_run(const char *folder, const char *result, killed_page *page) {
    GD_SCOPE;
    page_of_run = page;
    page->resumed = -1;
    gd_set_log(record_message, page);
    gd_set_num_threads(2);
    gd_seed(11);
    counter c = {0};
    gd_module *net = make_net(), *best = make_net();
    const char *kind = getenv("GRADUS_KILL_DEVICE"); /* default: the CPU */
    if (kind) gd_module_to(net, kind, GD_DTYPE_NONE);
    const gd_history *h = train(net, folder, &c);
    char path[4096];
    snprintf(path, sizeof path, "%s/best.safetensors", folder);
    if (file_exists(path)) gd_load_state(path, gd_part("net", best));
    gd_save_state(result, gd_part("net", net), gd_part("best", best));
    if (h && !gd_failed()) write_history(result, h, &c);
    if (gd_failed()) fprintf(stderr, "%s\n", gd_error_message());
    gd_set_log(NULL, NULL);
    return gd_failed();
}
