/* test_loader_device.c - batches that a loader copies to an asynchronous device in advance, and
 * training that does not wait for the device at each step. */
#include "backend/test/device.h"
#include "clean_test.h"
#include "core/device.h"
#include "fit_things.h"
#include "gradus/gradus.h"

static gd_device *device;

__attribute__((constructor)) static void open_device(void) { device = gd_test_device(); }

/* The sum over all batches of an epoch of i * (sum of batch i). */
static double epoch_sum(gd_loader *loader, gd_device *expected) {
    double sum = 0;
    int number = 0;
    for (gd_tensors batch; gd_loader_next(loader, &batch);) {
        GD_SCOPE;
        CHECK(batch.count == 2);
        CHECK(gd_tensor_device(batch.at[0]) == expected);
        CHECK(gd_tensor_device(batch.at[1]) == expected);
        sum += ++number * (gd_item(gd_sum(batch.at[0])) + gd_item(gd_sum(batch.at[1])));
    }
    CHECK(number == 8);
    return sum;
}

CLEAN_TEST(batches_on_a_device_have_the_values_of_those_on_the_cpu) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_dataset *data = gd_dataset_tensors(x, y);
    gd_loader *plain = gd_loader_new(data, .batch = 8, .shuffle = true);
    const double expected = epoch_sum(plain, gd_tensor_device(x));
    for (int workers = 0; workers <= 3; workers++) {
        gd_loader *l =
            gd_loader_new(data, .batch = 8, .shuffle = true, .workers = workers, .device = device);
        const double sum = epoch_sum(l, device);
        CHECK_SAYING(fabs(sum - expected) < 1e-3 * fabs(expected), "%d workers: %g, not %g",
                     workers, sum, expected);
    }
    CHECK(!gd_failed());
}

CLEAN_TEST(batches_that_were_prefetched_and_not_used_are_freed) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_synchronize(device);
    const int64_t before = gd_memory_stats(device).live_bytes;
    for (int i = 0; i < 20; i++) {
        GD_SCOPE;
        gd_tensors batch;
        gd_loader *l =
            gd_loader_new(gd_dataset_tensors(x, y), .batch = 4, .workers = 2, .device = device);
        CHECK(gd_loader_next(l, &batch));
        if (i % 2) gd_loader_stop(l);
    }
    CHECK(gd_memory_stats(device).live_bytes == before);
    CHECK(!gd_failed());
}

/* Tensors of a device are copied to the CPU when the dataset is created. */
CLEAN_TEST(a_dataset_of_tensors_on_a_device_has_samples_on_the_cpu) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_dataset *data = gd_dataset_tensors(gd_to_device(x, device), gd_to_device(y, device));
    gd_tensors sample = gd_dataset_get(data, 3);
    CHECK(sample.count == 2 && gd_tensor_device(sample.at[0]) == gd_tensor_device(x));
    CHECK(gd_item(gd_sum(gd_abs(gd_sub(sample.at[0], gd_select(x, 0, 3))))) == 0);
    CHECK(!gd_failed());
}

/* Samples are on the CPU, also if the default device is another one. */
CLEAN_TEST(samples_do_not_depend_on_the_default_device) {
    GD_SCOPE;
    gd_dataset *digits = gd_dataset_digits(.count = 4);
    gd_device *cpu = gd_tensor_device(gd_dataset_get(digits, 0).at[0]);
    gd_set_default_device(device);
    gd_tensors sample = gd_dataset_get(digits, 1);
    gd_set_default_device(NULL);
    CHECK(sample.count == 2 && gd_tensor_device(sample.at[0]) == cpu);
    CHECK(!gd_failed());
}

/* --- fit -------------------------------------------------------------------------------------- */

static gd_history *fit_on_device(const char *name, int epochs, int workers) {
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_dropout_net();
    gd_module_to(net, name, GD_DTYPE_NONE);
    gd_compile(net, .optimizer = "adam lr=0.01", .loss = "cross_entropy", .metrics = "accuracy");
    return gd_fit(net, gd_dataset_tensors(x, y), .epochs = epochs, .batch = 4, .workers = workers,
                  .shuffle = true, QUIET);
}

CLEAN_TEST(training_waits_for_the_device_once_an_epoch_not_once_a_step) {
    GD_SCOPE;
    fit_on_device(gd_device_name(device), 1, 1); /* creates the queues */
    enum { EPOCHS = 3, STEPS = EPOCHS * SAMPLES / 4, READS = 4 /* loss, weight, accuracy, lr */ };
    for (int workers = 0; workers < 2; workers++) {
        const int64_t before = gd_device_waits(device);
        fit_on_device(gd_device_name(device), EPOCHS, workers);
        const int64_t waits = gd_device_waits(device) - before;
        CHECK_SAYING(waits <= 3 * READS * EPOCHS && waits < STEPS, "%lld waits in %d steps",
                     (long long)waits, (int)STEPS);
    }
    CHECK(!gd_failed());
}

CLEAN_TEST(training_on_a_device_has_the_losses_of_the_cpu) {
    GD_SCOPE;
    gd_history *a = fit_on_device("cpu", 4, 0), *b = fit_on_device(gd_device_name(device), 4, 2);
    for (int64_t i = 0; i < 4; i++)
        CHECK(fabs(gd_history_value(a, "loss", i) - gd_history_value(b, "loss", i)) < 1e-4);
    CHECK(!gd_failed());
}

TEST_MAIN
