/* backend.c - devices of the installed package: one that is there, and ones that are not. */
#include <gradus/gradus.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void expect(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "failed: %s: %s\n", what, gd_error_message());
    failures++;
}

/* No device of that name, and the message has this in it. */
static void expect_refusal(const char *name, const char *part) {
    expect(!gd_device_get(name) && gd_error_status() == GD_E_DEVICE &&
               strstr(gd_error_message(), part),
           name);
    gd_clear_error();
}

int main(void) {
    GD_SCOPE;
    expect_refusal("missing", "no backend 'missing' was found");
    expect_refusal("missing", "GRADUS_BACKEND_PATH");
    expect_refusal("text", "libgradus_text.so");
    expect_refusal("other", "is no backend of Gradus");
    expect_refusal("older", "is of version 0.0.1");
    expect_refusal("layout", "other op records");
    expect_refusal("empty", "there is no such processor here");
    gd_device *device = gd_device_get("test");
    expect(device && strcmp(gd_device_name(device), "test:0") == 0, "test");
    gd_tensor *x = gd_to_device(gd_ones(gd_dims(3, 4)), device);
    expect(gd_item(gd_sum(gd_mul(x, gd_scalar(2)))) == 24, "sum");
    expect_refusal("test:7", "there is cpu, test:0");
    expect(!gd_failed(), "end");
    return failures != 0;
}
