/* alloc.h - host memory of the library. Every allocation goes through these functions, so that a
 * test can make the n-th one fail (gd_fault_after).
 */
#ifndef GRADUS_CORE_ALLOC_H
#define GRADUS_CORE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

void *gd_malloc(size_t bytes);
void *gd_calloc(size_t count, size_t bytes);
void *gd_realloc(void *old, size_t bytes);
void *gd_aligned_alloc(size_t alignment, size_t bytes);
void gd_free(void *p); /* for all of the above */

/* Pages, which gd_free_pages returns to the system; malloc might keep them. */
void *gd_alloc_pages(size_t bytes);
void gd_free_pages(void *p, size_t bytes);

#endif
