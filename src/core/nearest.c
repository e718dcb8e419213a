/* nearest.c - see nearest.h. The distance of two words is the number of letters that are added, left
 * out, replaced or swapped with the next; case does not count. */
#include "core/nearest.h"

#include <string.h>

#include "core/ascii.h"

enum { WORD_MAX = 63 };

static int least(int a, int b) { return a < b ? a : b; }

static int distance_of(const char *a, int n, const char *b, int m) {
    int rows[3][WORD_MAX + 1] = {{0}}; /* of the two letters before, and of this one */
    for (int k = 0; k <= m; k++) rows[0][k] = k;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3], *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
        row[0] = i;
        for (int k = 1; k <= m; k++) {
            const char x = gd_to_upper(a[i - 1]), y = gd_to_upper(b[k - 1]);
            row[k] = least(before[k - 1] + (x != y), least(before[k], row[k - 1]) + 1);
            if (i > 1 && k > 1 && x == gd_to_upper(b[k - 2]) && y == gd_to_upper(a[i - 2]))
                row[k] = least(row[k], two_before[k - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

gd_nearest gd_nearest_to(const char *word) { return (gd_nearest){.word = word}; }

void gd_nearest_try(gd_nearest *n, const char *candidate) {
    const size_t a = strlen(n->word), b = strlen(candidate), shorter = a < b ? a : b;
    if (shorter == 0 || a > WORD_MAX || b > WORD_MAX) return;
    const int similar = a <= 3 ? 1 : (int)a / 3;
    int distance = distance_of(n->word, (int)a, candidate, (int)b);
    /* one is the beginning of the other: "kernel", "kernel_size" */
    if (distance > similar && shorter >= 4 && strncmp(n->word, candidate, shorter) == 0)
        distance = similar > 2 ? similar : 2;
    else if (distance > similar || (size_t)distance >= shorter) return;
    if (n->best && n->distance <= distance) return;
    n->best = candidate;
    n->distance = distance;
}
