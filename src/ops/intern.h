/* intern.h - strings that live as long as the library: attribute texts, names of user ops. */
#ifndef GRADUS_OPS_INTERN_H
#define GRADUS_OPS_INTERN_H

#include <stddef.h>

/* The one copy of `text`; NULL when there is no memory. */
const char *gd_intern(const char *text);

/* Zeroed memory that is freed when the library is unloaded, or by gd_free_early. */
void *gd_calloc_until_exit(size_t bytes);
void gd_free_early(void *block); /* NULL is fine */

#endif
