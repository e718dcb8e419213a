/* images.c - a program that needs the libraries of images; for static linking. */
#include <gradus/gradus.h>

#include <string.h>

int main(void) {
    GD_SCOPE;
    gd_tensor *none = gd_load_image("there-is-no-such-file.png");
    return gd_tensor_is_error(none) && strstr(gd_error_message(), "there-is-no-such-file") ? 0 : 1;
}
