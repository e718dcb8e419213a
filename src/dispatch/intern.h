/* intern.h - strings and memory that live as long as the library: texts of options, ops that are
 * created at run time. */
#ifndef GRADUS_DISPATCH_INTERN_H
#define GRADUS_DISPATCH_INTERN_H

#include <stddef.h>

/* The single copy of `text`: equal texts give equal pointers. NULL: no memory. */
const char *gd_intern(const char *text);

/* Zeroed memory that is freed when the library is unloaded, or by gd_free_early. */
void *gd_calloc_until_exit(size_t bytes);
void gd_free_early(void *block); /* NULL is fine */

#endif
