/* test_callbacks.c - the library's callbacks, with events of a fake run (fake_run.h). */
#include <math.h>

#include "clean_test.h"
#include "fake_run.h"
#include "files.h"
#include "gradus/gradus.h"
#include "temp.h"

static void set_weight(gd_module *net, double weight) {
    const float both[] = {(float)weight, (float)weight};
    CHECK(gd_copy_from(gd_module_tensor(net, "weight"), both, sizeof both) == GD_OK);
}
static gd_module *net_of(double weight) {
    gd_module *net = gd_nn_linear(2, 1, .bias = false);
    set_weight(net, weight);
    return net;
}
static double weight_of(gd_module *net) {
    GD_SCOPE;
    return gd_item(gd_mean(gd_module_tensor(net, "weight")));
}

#define CHECK_OK(...)                                              \
    do {                                                           \
        const gd_status status_ = (__VA_ARGS__);                   \
        CHECK_SAYING(status_ == GD_OK, "%s", gd_latest_failure()); \
    } while (0)

/* Copies the state of a callback to a new one, as a checkpoint does. */
static void copy_state(gd_callback *from, gd_callback *to) {
    const char *path = temp_path("callback.safetensors");
    CHECK_OK(gd_save_state(path, gd_part("c", from)));
    CHECK_OK(gd_load_state(path, gd_part("c", to)));
}

/* --- early stopping --------------------------------------------------------------------------- */

CLEAN_TEST(early_stopping_ends_the_run_and_restores_the_best_weights) {
    GD_SCOPE;
    fake_run r;
    gd_module *net = net_of(0);
    gd_callback *c = gd_early_stopping(.patience = 2);
    fake_begin(&r, net, NULL);
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
    const double losses[] = {3, 2, 2.5, NAN};
    for (int i = 0; i < 4; i++) {
        CHECK(!*r.stopped);
        set_weight(net, i);
        CHECK_OK(fake_epoch(&r, c, 1, "val_loss", losses[i]));
    }
    CHECK_SAYING(strcmp(r.stopped,
                        "val_loss has not improved for 2 epochs; the best was 2, in epoch 2") == 0,
                 "%s", r.stopped);
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_END));
    CHECK(weight_of(net) == 1);
    r.event.step = r.event.epoch = 0; /* a second run starts */
    *r.stopped = 0;
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
    CHECK_OK(fake_epoch(&r, c, 1, "val_loss", 9));
    CHECK_OK(fake_epoch(&r, c, 1, "val_loss", 9));
    CHECK(!*r.stopped);
    CHECK_OK(fake_epoch(&r, c, 1, "val_loss", 9));
    CHECK(*r.stopped);
}

CLEAN_TEST(early_stopping_compares_values_by_mode_and_min_delta) {
    GD_SCOPE;
    struct {
        const char *monitor, *options;
        double values[3];
        bool stops;
    } const cases[] = {
        {"val_accuracy", "monitor=val_accuracy", {0.5, 0.6, 0.7}, false},
        {"val_accuracy", "monitor=val_accuracy", {0.5, 0.4, 0.4}, true},
        {"val_accuracy", "monitor=val_accuracy mode=min", {0.5, 0.4, 0.3}, false},
        {"val_rmse", "monitor=val_rmse", {3, 2, 1}, false},
        {"perplexity", "monitor=perplexity", {3, 4, 5}, true},
        {"loss", "monitor=loss min_delta=0.5", {3, 2.6, 2.4}, true},
        {"loss", "monitor=loss min_delta=0.5 patience=3", {3, 2.6, 2.4}, false},
        {"top_5", "monitor=top_5 min_delta=0.1", {0.5, 0.59, 0.9}, true},
        {"loss", "monitor=loss patience=0", {2, 1, 1}, true},
        {"loss", "monitor=loss patience=0", {3, 2, 1}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake_run r;
        fake_begin(&r, net_of(1), NULL);
        gd_callback *c = gd_callback_new("early_stopping", cases[i].options);
        for (int k = 0; k < 3; k++)
            CHECK_OK(fake_epoch(&r, c, 1, cases[i].monitor, cases[i].values[k]));
        CHECK_SAYING((*r.stopped != 0) == cases[i].stops, "%s: %s", cases[i].options, r.stopped);
    }
}

CLEAN_TEST(early_stopping_resumes_from_its_state) {
    GD_SCOPE;
    fake_run r;
    gd_module *net = net_of(7);
    gd_callback *before = gd_early_stopping(.patience = 2, .monitor = "loss");
    fake_begin(&r, net, NULL);
    CHECK_OK(fake_epoch(&r, before, 1, "loss", 1));
    set_weight(net, 8);
    CHECK_OK(fake_epoch(&r, before, 1, "loss", 2));
    gd_callback *after = gd_early_stopping(.patience = 2, .monitor = "loss");
    copy_state(before, after);
    CHECK_OK(fake_call(&r, after, GD_ON_FIT_BEGIN));
    CHECK(!*r.stopped);
    CHECK_OK(fake_epoch(&r, after, 1, "loss", 2));
    CHECK(strstr(r.stopped, "for 2 epochs; the best was 1, in epoch 1"));
    gd_callback *again = gd_early_stopping(.patience = 2, .monitor = "loss"); /* after the stop */
    copy_state(after, again);
    *r.stopped = 0;
    CHECK_OK(fake_call(&r, again, GD_ON_FIT_BEGIN));
    CHECK(strstr(r.stopped, "for 2 epochs"));
    CHECK_OK(fake_call(&r, again, GD_ON_FIT_END));
    CHECK(weight_of(net) == 7);
    /* saved after the end: a resumed run starts with the last weights and ends with the best */
    gd_callback *last = gd_early_stopping(.patience = 2, .monitor = "loss");
    copy_state(again, last);
    CHECK_OK(fake_call(&r, last, GD_ON_FIT_BEGIN));
    CHECK(weight_of(net) == 8);
    CHECK_OK(fake_call(&r, last, GD_ON_FIT_END));
    CHECK(weight_of(net) == 7);
    gd_callback *fresh = gd_early_stopping(
            .monitor = "loss"); /* a state without weights, loaded into a callback that has some */
    copy_state(fresh, again);
    set_weight(net, 5);
    CHECK_OK(fake_call(&r, again, GD_ON_FIT_END));
    CHECK(weight_of(net) == 5);
}

CLEAN_TEST(an_unknown_metric_name_is_an_error) {
    GD_SCOPE;
    fake_run r;
    fake_begin(&r, net_of(1), NULL);
    fake_set(&r, "loss", 1);
    fake_set(&r, "accuracy", 1);
    gd_callback *c = gd_early_stopping(.monitor = "val_los");
    CHECK(fake_epoch(&r, c, 1, "val_loss", 1) == GD_E_ARGUMENT);
    CHECK_SAYING(strcmp(gd_latest_failure(),
                        "early_stopping: there is no value 'val_los'; there are loss, "
                        "accuracy, val_loss") == 0,
                 "%s", gd_latest_failure());
    CHECK(!gd_early_stopping(.monitor = "") && says("gd_early_stopping: monitor is empty"));
    gd_clear_error();
    CHECK(!gd_early_stopping(.patience = -1) &&
          says("gd_early_stopping: patience is -1; it must be in [0, inf)"));
    gd_clear_error();
    CHECK(!gd_callback_new("early_stoping", "") &&
          says("there is no callback 'early_stoping'; there are"));
}

/* --- learning rates --------------------------------------------------------------------------- */

static double lr_of(gd_optimizer *o, int group) {
    GD_SCOPE;
    return gd_item(gd_optimizer_lr(o, .group = group));
}

CLEAN_TEST(reduce_on_plateau_follows_keras) {
    GD_SCOPE;
    fake_run r;
    gd_module *net = net_of(1);
    gd_optimizer *o = gd_optim_sgd(gd_module_parameters(net), .lr = 1);
    gd_tensor *extra = gd_requires_grad(gd_ones(gd_dims(2)));
    gd_optimizer_add(o, gd_list(extra), .lr = 0.5);
    gd_callback *c = gd_reduce_on_plateau(.monitor = "loss", .factor = 0.5, .patience = 2,
                                          .cooldown = 1, .min_lr = 0.3, .min_delta = 0);
    fake_begin(&r, net, o);
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
    const double losses[] = {3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2};
    /* Keras: wait 0, 1, 2 -> lr; cooldown; 1, 2 -> lr; 2 is better while cooling; 1, 2 -> min_lr */
    const double rates[] = {1, 1, .5, .5, .5, .3, .3, .3, .3, .3, .3};
    for (int i = 0; i < 11; i++) {
        CHECK_OK(fake_epoch(&r, c, 1, "loss", losses[i]));
        CHECK_SAYING(lr_of(o, 0) == rates[i], "epoch %d: %g", i, lr_of(o, 0));
        CHECK(lr_of(o, 1) == (i < 2 ? 0.5 : 0.3));
        if (i == 4) { /* resume here */
            gd_callback *other =
                gd_reduce_on_plateau(.monitor = "loss", .factor = 0.5, .patience = 2, .cooldown = 1,
                                     .min_lr = 0.3, .min_delta = 0);
            copy_state(c, other);
            c = other;
            CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
        }
    }
    fake_begin(&r, net, NULL);
    CHECK(fake_call(&r, c, GD_ON_FIT_BEGIN) == GD_E_STATE);
    CHECK(strstr(gd_latest_failure(),
                 "reduce_on_plateau: the net was compiled without an optimizer"));
}

CLEAN_TEST(a_schedule_steps_after_epochs_or_batches) {
    GD_SCOPE;
    for (int every = 0; every < 2; every++) {
        gd_module *net = net_of(1), *other = net_of(1);
        gd_optimizer *o = gd_optim_sgd(gd_module_parameters(net), .lr = 0.1);
        gd_optimizer *reference = gd_optim_sgd(gd_module_parameters(other), .lr = 0.1);
        gd_schedule *schedule = gd_lr_cosine(reference, 10, .warmup = 2);
        gd_callback *c =
            gd_callback_new("scheduled", every ? "schedule='cosine steps=10 warmup=2' every=step"
                                               : "schedule='cosine steps=10 warmup=2'");
        fake_run r;
        fake_begin(&r, net, o);
        CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
        for (int epoch = 0; epoch < 6; epoch++) {
            for (int batch = 0; batch < 2; batch++) {
                CHECK_SAYING(lr_of(o, 0) == lr_of(reference, 0), "%.17g, expected %.17g",
                             lr_of(o, 0), lr_of(reference, 0));
                CHECK_OK(fake_batch(&r, c));
                if (every) gd_schedule_step(schedule);
            }
            CHECK_OK(fake_epoch_end(&r, c));
            if (!every) gd_schedule_step(schedule);
            if (epoch != 2) continue;
            /* as in a new process: another optimizer and callback load the state */
            const char *path = temp_path("scheduled.safetensors");
            CHECK_OK(gd_save_state(path, gd_part("o", o), gd_part("c", c)));
            o = gd_optim_sgd(gd_module_parameters(net), .lr = 0.1);
            c = every ? gd_scheduled("cosine steps=10 warmup=2", .every = GD_STEP)
                      : gd_scheduled("cosine steps=10 warmup=2");
            CHECK_OK(gd_load_state(path, gd_part("o", o), gd_part("c", c)));
            r.event.optimizer = o;
            CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
        }
    }
    CHECK(!gd_scheduled("cosinus steps=3") && says("gd_scheduled: there is no schedule 'cosinus'"));
    gd_clear_error();
    CHECK(!gd_scheduled("cosine") && says("steps"));
    gd_clear_error();
    CHECK(!gd_scheduled(NULL) && gd_failed());
    gd_clear_error();
}

/* --- CSV -------------------------------------------------------------------------------------- */

CLEAN_TEST(csv_log_writes_a_row_for_each_epoch) {
    GD_SCOPE;
    fake_run r;

    const char *path = temp_path("deep/er/log.csv");
    gd_module *net = net_of(1);
    gd_optimizer *o = gd_optim_sgd(gd_module_parameters(net), .lr = 0.25);
    gd_callback *c = gd_csv_log(path);
    fake_begin(&r, net, o);
    fake_set(&r, "loss", 1.5);
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
    CHECK(file_has_text(path, ""));
    CHECK_OK(fake_epoch(&r, c, 3, "val_loss", 0.1));
    CHECK(file_has_text(
        path, "epoch,step,loss,val_loss,lr\n1,3,1.5,0.1,0.25\n")); /* written immediately */
    fake_set(&r, "loss", INFINITY);
    CHECK_OK(fake_epoch(&r, c, 3, "val_loss", NAN));
    CHECK_OK(fake_epoch(&r, c, 3, "a \"b\", c", 1e-7)); /* a new column whose name needs quotes */
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_END));
    CHECK(file_has_text(
        path, "epoch,step,loss,val_loss,lr,\"a \"\"b\"\", c\"\n1,3,1.5,0.1,0.25\n2,6,inf,nan,0.25\n"
              "3,9,inf,nan,0.25,1e-07\n"));
    /* resumed after two epochs: the third row is removed, the header kept */
    gd_callback *before = gd_csv_log(path), *after = gd_csv_log(path);
    fake_run two;
    fake_begin(&two, net, o);
    gd_callback *writer = gd_csv_log(temp_path("other.csv")); /* has written two rows */
    CHECK_OK(fake_call(&two, writer, GD_ON_FIT_BEGIN));
    for (int i = 0; i < 2; i++) CHECK_OK(fake_epoch(&two, writer, 3, "loss", 1));
    copy_state(writer, after);
    r.event.step = 6, r.event.epoch = 2;
    CHECK_OK(fake_call(&r, after, GD_ON_FIT_BEGIN));
    fake_set(&r, "loss", 9);
    CHECK_OK(fake_epoch(&r, after, 3, "val_loss", 8));
    CHECK(file_has_text(
        path, "epoch,step,loss,val_loss,lr,\"a \"\"b\"\", c\"\n1,3,1.5,0.1,0.25\n2,6,inf,nan,0.25\n"
              "3,9,9,8,0.25,1e-07\n"));
    /* a file that was truncated inside a row */
    file_write_text(path, "epoch,step,loss\n1,3,1.5\n2,6,0.");
    copy_state(writer, before);
    r.event.step = 6, r.event.epoch = 2;
    CHECK_OK(fake_call(&r, before, GD_ON_FIT_BEGIN));
    CHECK(file_has_text(path, "epoch,step,loss\n1,3,1.5\n"));
    /* another run replaces a log, but no other file */
    r.event.step = r.event.epoch = 0;
    CHECK_OK(fake_call(&r, before, GD_ON_FIT_BEGIN));
    CHECK(file_has_text(path, ""));
    file_write_text(path, "name,age\nAda,36\n");
    CHECK(fake_call(&r, before, GD_ON_FIT_BEGIN) == GD_E_FORMAT);
    CHECK(strstr(gd_latest_failure(), "not a log of csv_log") && strstr(gd_latest_failure(), path));
    CHECK(file_has_text(path, "name,age\nAda,36\n"));
}

CLEAN_TEST(csv_log_writes_rows_for_steps) {
    GD_SCOPE;
    fake_run r;

    const char *path = temp_path("log.csv");
    gd_callback *c = gd_csv_log(path, .every = 2);
    fake_begin(&r, net_of(1), NULL);
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
    fake_set(&r, "loss", 2);
    CHECK_OK(fake_epoch(&r, c, 5, "val_loss", 3));
    CHECK_OK(fake_epoch(&r, c, 1, "val_loss", 4));
    CHECK(
        file_has_text(path, "epoch,step,loss,val_loss\n1,2,2\n1,4,2\n1,5,2,3\n2,6,2,\n2,6,2,4\n"));
}

CLEAN_TEST(a_full_disk_loses_rows_but_training_continues) {
    GD_SCOPE;
    fake_run r;

    const char *path = temp_path("log.csv");
    gd_callback *c = gd_csv_log(path);
    fake_begin(&r, net_of(1), NULL);
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
    CHECK_OK(fake_epoch(&r, c, 1, "loss", 0.5));
    file_size_limit((long)strlen("epoch,step,loss\n1,1,0.5\n") + 3); /* a part of a row fits */
    CHECK_OK(fake_epoch(&r, c, 1, "loss", 0.25));
    CHECK_SAYING(strstr(r.said, "csv_log: rows are lost, and training continues: ") &&
                     strstr(r.said, path),
                 "%s", r.said);
    *r.said = 0;
    CHECK_OK(fake_epoch(&r, c, 1, "loss", 0.125));
    CHECK(!*r.said); /* reported once */
    file_size_limit(-1);
    CHECK_OK(fake_epoch(&r, c, 1, "loss", 0.0625));
    CHECK(file_has_text(path, "epoch,step,loss\n1,1,0.5\n4,4,0.0625\n"));
    gd_callback *nowhere = gd_csv_log("/proc/no/such/log.csv"); /* a wrong path fails immediately */
    CHECK(fake_call(&r, nowhere, GD_ON_FIT_BEGIN) == GD_E_IO);
    CHECK(!gd_csv_log("") && says("gd_csv_log: the path is empty"));
    gd_clear_error();
}

/* --- user-defined callbacks ------------------------------------------------------------------- */

typedef struct user_callback {
    double best;
    int calls[5];
    int destroyed;
} user_callback;

static gd_status count_call(gd_event *event, void *self) {
    ((user_callback *)self)->calls[event->kind]++;
    return GD_OK;
}
static gd_status check_loss(gd_event *event, void *self) {
    user_callback *m = self;
    m->calls[event->kind]++;
    m->best = gd_event_value(event, "loss");
    if (m->best > 5) gd_event_stop(event, "the loss is large");
    if (m->best > 6) return GD_E_STATE;
    if (m->best < 0) return gd_reshape(gd_ones(gd_dims(3)), gd_dims(7)), GD_OK;
    return GD_OK;
}
static void destroy_user_callback(void *self) { ((user_callback *)self)->destroyed++; }

CLEAN_TEST(a_program_may_define_callbacks_from_functions) {
    user_callback m = {0}, other = {0};
    {
        GD_SCOPE;
        fake_run r;
        fake_begin(&r, net_of(1), NULL);
        gd_callback *c = gd_callback_from(&m, .fit_begin = count_call, .epoch_begin = count_call,
                                          .batch_end = count_call, .epoch_end = check_loss,
                                          .fit_end = count_call, .destroy = destroy_user_callback,
                                          .state_bytes = sizeof m, .name = "mine");
        CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
        CHECK_OK(fake_call(&r, c, GD_ON_EPOCH_BEGIN));
        CHECK_OK(fake_epoch(&r, c, 3, "loss", 2));
        CHECK_OK(fake_call(&r, c, GD_ON_FIT_END));
        CHECK(m.calls[0] == 1 && m.calls[1] == 1 && m.calls[2] == 3 && m.calls[3] == 1 &&
              m.calls[4] == 1);
        CHECK(m.best == 2 && !*r.stopped);
        CHECK_OK(fake_epoch(&r, c, 0, "loss", 5.5));
        CHECK(strcmp(r.stopped, "the loss is large") == 0);
        CHECK(fake_epoch(&r, c, 0, "loss", 7) == GD_E_STATE);
        CHECK_SAYING(strcmp(gd_latest_failure(), "mine: it returned GD_E_STATE") == 0, "%s",
                     gd_latest_failure());
        CHECK(fake_epoch(&r, c, 0, "loss", -1) == GD_E_SHAPE); /* an op has failed */
        CHECK(strncmp(gd_latest_failure(), "mine: reshape", 13) == 0 && !gd_failed());
        gd_callback *to = gd_callback_from(&other, .state_bytes = sizeof other);
        copy_state(c, to);
        CHECK(memcmp(&m, &other, sizeof m) == 0);
        user_callback small = {.best = 3};
        gd_callback *unfit = gd_callback_from(&small, .state_bytes = 8);
        CHECK(gd_set_state(unfit, gd_state_of(c)) != GD_OK && small.best == 3);
        gd_clear_error();
        CHECK_OK(fake_call(&r, gd_callback_from(NULL),
                           GD_ON_FIT_BEGIN)); /* a callback without functions */
        CHECK(!gd_callback_from(NULL, .state_bytes = 3) && says("self is NULL"));
        gd_clear_error();
    }
    CHECK(m.destroyed == 1);
}

static gd_tensor *save_text(void *self) {
    const char *text = self;
    return *text ? gd_from_array(gd_dims((int64_t)strlen(text)), GD_U8, text) : NULL;
}
static void load_text(const gd_tensor *bytes, void *self) {
    memcpy(self, gd_data((gd_tensor *)(uintptr_t)bytes), (size_t)gd_tensor_numel(bytes));
}

CLEAN_TEST(a_program_may_save_state_of_any_size) {
    GD_SCOPE;
    char longer[20] = "seventeen", other[20] = "", none[20] = "";
    gd_callback *c = gd_callback_from(longer, .save = save_text, .load = load_text),
                *to = gd_callback_from(other, .save = save_text, .load = load_text),
                *empty = gd_callback_from(none, .save = save_text, .load = load_text);
    copy_state(c, to);
    CHECK(strcmp(other, "seventeen") == 0);
    copy_state(empty, to);
    CHECK(strcmp(other, "seventeen") == 0 && !gd_failed());
}

static void *open_user_callback(const void *options) {
    const struct { int64_t times; } *o = options;
    user_callback *m = o->times < 9 ? calloc(1, sizeof *m) : NULL;
    if (m) m->best = (double)o->times;
    return m;
}

CLEAN_TEST(a_program_may_register_callbacks) {
    GD_SCOPE;
    CHECK(gd_callback_define("beep\nRings.\n  times int = 1   in [1, inf)\n",
                             (gd_callback_type){.open = open_user_callback,
                                                .functions = {.epoch_end = check_loss,
                                                              .destroy = free}}) == GD_OK);
    fake_run r;
    fake_begin(&r, net_of(1), NULL);
    gd_callback *c = gd_callback_new("beep", "times=4");
    CHECK(c != NULL);
    CHECK(fake_epoch(&r, c, 1, "loss", 7) == GD_E_STATE &&
          strncmp(gd_latest_failure(), "beep: ", 6) == 0);
    CHECK(!gd_callback_new("beep", "times=0") && says("gd_beep: times is 0"));
    gd_clear_error();
    CHECK(!gd_callback_new("beep", "times=9") && says("gd_beep: its open returned NULL"));
    gd_clear_error();
    int count = 0;
    while (gd_record_at("callback", count)) count++;
    CHECK(count >= 8 && !gd_record_at("callback", -1));
}

CLEAN_TEST(a_list_of_callbacks_is_called_in_its_order) {
    GD_SCOPE;
    fake_run r;
    user_callback a = {0}, b = {0};
    fake_begin(&r, net_of(1), NULL);
    r.event.kind = GD_ON_EPOCH_END;
    fake_set(&r, "loss", 9);
    gd_callback_list list = gd_callbacks(gd_callback_from(&a, .epoch_end = count_call),
                                         gd_callback_from(&b, .epoch_end = check_loss),
                                         gd_callback_from(&a, .epoch_end = count_call));
    CHECK(gd_callbacks_call(list, &r.event) == GD_E_STATE);
    CHECK(a.calls[GD_ON_EPOCH_END] == 1 &&
          b.calls[GD_ON_EPOCH_END] == 1); /* a failure ends the list */
}

TEST_MAIN
