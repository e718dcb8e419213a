/* native.h - native code: kernels that are compiled while the program runs, and cached on disk.
 *
 * The printer (dialect.h) writes a kernel and the system's C compiler makes a shared object of it.
 * The file stays in a cache; its name is a hash of the source, the flags and the compiler. Without
 * a compiler or a cache there is no kernel, and the caller runs something else; a warning in the
 * log names what is missing, once in a process.
 *
 * docs/environment.md lists the environment variables: GRADUS_NATIVE, GRADUS_CC, GRADUS_CC_TIMEOUT,
 * GRADUS_CACHE and GRADUS_CACHE_MB.
 *
 * Threads: all functions may be called from any thread. A source is compiled once in a process;
 * other threads that need the same kernel wait for it. Processes may share a cache: files appear in
 * it complete, and a missing one is compiled again. A fork() does not wait for a compiler that runs
 * in another thread: the child starts its own when it needs the same kernel.
 */
#ifndef GRADUS_CODEGEN_NATIVE_H
#define GRADUS_CODEGEN_NATIVE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "codegen/dialect.h"

/* What kernels are compiled for. */
typedef struct gd_native_target {
    const char *name; /* "avx2" */
    const gd_dialect *dialect;
    const char *const *flags; /* of the compiler, for this instruction set; NULL at the end */
    const char *prelude;      /* what the kernel's text needs before it */
    size_t prelude_bytes;
} gd_native_target;

typedef void (*gd_compiled_fn)(void);

/* The prelude of gd_dialect_scalar. It ends with a zero byte, which is not counted. */
extern const char gd_scalar_prelude[];
extern const size_t gd_scalar_prelude_bytes;

/* The kernel of a source, a function of the dialect's own signature; NULL where it cannot be
 * compiled. */
gd_compiled_fn gd_native_kernel(const gd_kernel_source *source, const gd_native_target *target);

/* Several, by one run of the compiler for those that are not in the cache. */
void gd_native_kernels(const gd_kernel_source *sources, int n, const gd_native_target *target,
                       gd_compiled_fn *fns);

/* Whether kernels can be compiled: GRADUS_NATIVE is not 0, and there are a cache and a compiler. It
 * reads the environment each time, since a program may change it. */
bool gd_native_is_ready(void);

/* Kernels of this process that were compiled, loaded from the cache, and could not be had; and runs
 * of the compiler. */
typedef struct gd_native_counts {
    int64_t compiled, loaded, failed, runs;
} gd_native_counts;
gd_native_counts gd_native_count(void);

/* For tests: forgets all kernels and that a warning was given. Kernels in use stay valid. */
void gd_native_forget(void);

/* --- the compiler (native_compiler.c) --------------------------------------------------------- */

/* A sentence for the log: what is missing and what helps. Names in it are cut after
 * GD_NATIVE_SHOWN bytes. */
enum { GD_NATIVE_WHY = 512, GD_NATIVE_SHOWN = 256 };

/* Its path, found as a shell finds it. Where there is none, gd_native_no_compiler writes why. */
bool gd_native_find_compiler(char *path, size_t size, struct stat *identity);
void gd_native_no_compiler(char why[GD_NATIVE_WHY]);

typedef enum gd_native_run { GD_NATIVE_RAN, GD_NATIVE_FAILED, GD_NATIVE_HUNG } gd_native_run;
/* Runs it and waits, at most GRADUS_CC_TIMEOUT seconds. */
gd_native_run gd_native_run_compiler(char *const *argv);

/* --- the cache (native_cache.c) --------------------------------------------------------------- */

enum { GD_NATIVE_PATH = 1024, GD_NATIVE_KEY = 33 };

/* The directory, created if missing, with all links resolved. False with the reason in `why`. */
bool gd_native_directory(char *path, size_t size, char why[GD_NATIVE_WHY]);

/* Appends a checksum to a finished file, and checks it: a file that was cut short, or that another
 * program wrote, must not reach the dynamic loader. */
bool gd_native_seal(const char *path);
bool gd_native_is_sealed(const char *path);

/* Gives a finished file one more name, which may replace another file. */
bool gd_native_name(const char *path, const char *name);

/* Records that a file was used; removes the least recently used files of a full cache. */
void gd_native_touch(const char *path);
void gd_native_trim(const char *directory);

/* 128 bits of hash as 32 digits. */
typedef struct gd_native_hash {
    uint64_t a, b;
} gd_native_hash;
void gd_native_hash_start(gd_native_hash *hash);
void gd_native_hash_add(gd_native_hash *hash, const void *bytes, size_t count);
void gd_native_hash_text(const gd_native_hash *hash, char text[GD_NATIVE_KEY]);

#endif
