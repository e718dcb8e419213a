/* nearest.h - the word that was probably meant, for messages: "num_outputs; did you mean
 * num_output?".
 *
 *     gd_nearest n = gd_nearest_to(word);
 *     for (...) gd_nearest_try(&n, names[i]);
 *     if (n.best) ...
 */
#ifndef GRADUS_CORE_NEAREST_H
#define GRADUS_CORE_NEAREST_H

typedef struct gd_nearest {
    const char *word;
    const char *best; /* NULL: no word is similar */
    int distance;     /* of `best` */
} gd_nearest;

/* Words of more than 63 characters are similar to none. */
gd_nearest gd_nearest_to(const char *word);
void gd_nearest_try(gd_nearest *n, const char *candidate);

#endif
