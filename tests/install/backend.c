/* backend.c - backends of the installed package: one that works, and ones that fail to load. */
#include <gradus/gradus.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void expect(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "failed: %s: %s\n", what, gd_error_message());
    failures++;
}

/* gd_device_get fails for this name, with a message that contains `part`. */
static void expect_failure(const char *name, const char *part) {
    expect(!gd_device_get(name) && gd_error_status() == GD_E_DEVICE &&
               strstr(gd_error_message(), part),
           name);
    gd_clear_error();
}

int main(void) {
    GD_SCOPE;
    expect_failure("missing", "no backend 'missing' was found");
    expect_failure("missing", "GRADUS_BACKEND_PATH");
    expect_failure("text", "libgradus_text.so");
    expect_failure("other", "is no backend of Gradus");
    expect_failure("older", "is of version 0.0.1");
    expect_failure("layout", "other op records");
    expect_failure("empty", "there is no such processor here");
    gd_device *device = gd_device_get("test");
    expect(device && strcmp(gd_device_name(device), "test:0") == 0, "test");
    gd_tensor *x = gd_to_device(gd_ones(gd_dims(3, 4)), device);
    expect(gd_item(gd_sum(gd_mul(x, gd_scalar(2)))) == 24, "sum");
    expect_failure("test:7", "there is cpu, test:0");
    expect(!gd_failed(), "end");
    return failures != 0;
}
