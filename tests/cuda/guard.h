/* guard.h - the setting `guard` of the emulated driver: memory whose surroundings cannot be used.
 *
 * An allocation ends at a page that is not mapped, or it begins after one, in turn. New memory, and
 * shared memory before each block, has all bits set: floats are NaN. An access to a page that is not
 * mapped ends the program with a message that names the kernel; so does a write to the rest of the
 * allocation's own pages, after the kernel.
 */
#ifndef GRADUS_TESTS_CUDA_GUARD_H
#define GRADUS_TESTS_CUDA_GUARD_H

#include <cstddef>

bool emulated_guards(void);

void *emulated_guard_alloc(size_t bytes); /* NULL: out of memory */
void emulated_guard_free(void *address);

/* Makes the first `bytes` of the dynamic shared memory accessible, and nothing else of it. */
void emulated_guard_shared(size_t bytes);
/* Fills shared memory: the dynamic one, and that of the kernels' variables. */
void emulated_poison_shared(size_t bytes, unsigned char *statics, unsigned char *end);
/* Checks the surroundings of all allocations after `what`, and those of the shared memory. */
void emulated_check_guards(const char *what);

#endif
