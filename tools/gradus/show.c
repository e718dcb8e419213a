/* show.c - prints images and confusion matrices in a terminal. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tool.h"

static int terminal_width(void) {
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* The pixels of an image, row-major; to be freed with free(). */
static float *pixels_of(gd_tensor *image, int *height, int *width) {
    const int rank = gd_tensor_rank(image);
    *height = (int)gd_tensor_dim(image, rank - 2);
    *width = (int)gd_tensor_dim(image, rank - 1);
    const size_t bytes = sizeof(float) * (size_t)*height * (size_t)*width;
    float *p = malloc(bytes);
    if (p && gd_copy_to(gd_contiguous(gd_cast(image, GD_F32)), p, bytes) != GD_OK) {
        free(p);
        return NULL;
    }
    return p;
}

/* One character for two pixels, one above the other: half blocks and shades. */
static const char *cell_for(float top, float bottom) {
    const bool t = top > 0.35f, b = bottom > 0.35f;
    if (t && b) return top + bottom > 1.3f ? "█" : "▓";
    if (t) return "▀";
    if (b) return "▄";
    return top + bottom > 0.35f ? "░" : " ";
}

static void print_row(const float *p, int height, int width, int row, int left, int right) {
    for (int x = left; x < right; x++) {
        const float top = p[row * width + x],
                    bottom = row + 1 < height ? p[(row + 1) * width + x] : 0;
        fputs(cell_for(top, bottom), stdout);
    }
}

void show_images(gd_tensor *const *images, const char *const *captions, int count) {
    enum { MAX_IMAGES = 16, GAP = 2, TRIM = 3 };
    float *p[MAX_IMAGES];
    int height = 0, width = 0, shown = 0;
    if (count > MAX_IMAGES) count = MAX_IMAGES;
    for (; shown < count; shown++)
        if (!(p[shown] = pixels_of(images[shown], &height, &width))) break;
    const int trim = width >= 28 ? TRIM : 0, columns = width - 2 * trim;
    int per_line = (terminal_width() - 1) / (columns + GAP);
    if (per_line < 1) per_line = 1;
    for (int first = 0; first < shown; first += per_line) {
        const int last = first + per_line < shown ? first + per_line : shown;
        for (int row = trim; row < height - trim; row += 2) {
            for (int i = first; i < last; i++) {
                print_row(p[i], height, width, row, trim, width - trim);
                if (i + 1 < last) printf("%*s", GAP, "");
            }
            putchar('\n');
        }
        for (int i = first; i < last; i++) printf("%-*.*s", columns + GAP, columns, captions[i]);
        fputs("\n\n", stdout);
    }
    for (int i = 0; i < shown; i++) free(p[i]);
}

double *confusion_values(gd_tensor *matrix, int *classes) {
    const int n = *classes = (int)gd_tensor_dim(matrix, 0);
    const size_t bytes = sizeof(double) * (size_t)n * (size_t)n;
    double *m = malloc(bytes);
    if (m && gd_copy_to(gd_contiguous(gd_cast(matrix, GD_F64)), m, bytes) == GD_OK) return m;
    free(m);
    return NULL;
}

/* The label of class i: its name, or its number. */
static const char *label(char *const *names, int64_t n_names, int i, char text[16]) {
    if (names && i < n_names) return names[i];
    snprintf(text, 16, "%d", i);
    return text;
}

void show_confusion(gd_tensor *matrix, char *const *names, int64_t n_names) {
    int n, wide = 5;
    char text[16];
    double *m = confusion_values(matrix, &n);
    if (!m) return;
    for (int i = 0; i < n; i++) {
        const int length = (int)strlen(label(names, n_names, i, text));
        if (length > wide) wide = length < 12 ? length : 12;
    }
    printf("Confusion matrix: rows are true classes, columns are predictions.\n\n%*s", wide + 1,
           "");
    for (int j = 0; j < n; j++) printf(" %5.5s", label(names, n_names, j, text));
    putchar('\n');
    for (int i = 0; i < n; i++) {
        double all = 0;
        printf("%*.*s ", wide, wide, label(names, n_names, i, text));
        for (int j = 0; j < n; j++) all += m[i * n + j];
        for (int j = 0; j < n; j++)
            if (m[i * n + j] == 0) printf("     %s", "·");
            else printf(" %5.0f", m[i * n + j]);
        printf("   %5.1f %%\n", all > 0 ? 100 * m[i * n + i] / all : 0.0);
    }
    putchar('\n');
    free(m);
}
