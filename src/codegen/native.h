/* native.h - kernels that are compiled while the program runs, and kept on disk.
 *
 * The printer (dialect.h) writes a kernel, the system's C compiler makes a shared object of it, and
 * the file stays in a cache, under a name that follows from its whole source, the flags and the
 * compiler. Where any of that is missing there is no kernel, and the caller goes another way; a
 * warning through the log says once in a process what is missing.
 *
 * docs/environment.md lists the environment variables: GRADUS_NATIVE, GRADUS_CC, GRADUS_CC_TIMEOUT,
 * GRADUS_CACHE and GRADUS_CACHE_MB.
 *
 * Threads: all of it may be called from any thread. An expression is compiled once in a process,
 * and others who want it wait. Processes may share a cache; files appear in it whole, and one that
 * is gone is made again. A fork() does not wait for a compiler that runs in another thread: the
 * child starts its own when it wants the same kernel.
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

/* Whether kernels can be compiled here: GRADUS_NATIVE is not 0, and there are a cache and a compiler.
 * It looks each time: a program may set the environment at any time. */
bool gd_native_is_ready(void);

/* How often a kernel was compiled, taken from the cache, and not to be had, in this process; and
 * how often the compiler ran. */
typedef struct gd_native_counts {
    int64_t compiled, loaded, failed, runs;
} gd_native_counts;
gd_native_counts gd_native_count(void);

/* For tests: what was asked for before counts as never asked for, and warnings as never given.
 * Kernels in use stay valid. */
void gd_native_forget(void);

/* --- the compiler (native_compiler.c) ------------------------------------------------------------ */

/* A sentence for the log: what is missing and what helps. Names in it are cut after GD_NATIVE_SHOWN
 * bytes. */
enum { GD_NATIVE_WHY = 512, GD_NATIVE_SHOWN = 256 };

/* Its path, looked for as the shell would. Where there is none, gd_native_no_compiler says so. */
bool gd_native_find_compiler(char *path, size_t size, struct stat *identity);
void gd_native_no_compiler(char why[GD_NATIVE_WHY]);

typedef enum gd_native_run { GD_NATIVE_RAN, GD_NATIVE_FAILED, GD_NATIVE_HUNG } gd_native_run;
/* Runs it and waits, though not for ever. */
gd_native_run gd_native_run_compiler(char *const *argv);

/* --- the cache (native_cache.c) ------------------------------------------------------------------ */

enum { GD_NATIVE_PATH = 1024, GD_NATIVE_KEY = 33 };

/* The directory, made if need be, with all links resolved. False with the reason in `why`. */
bool gd_native_directory(char *path, size_t size, char why[GD_NATIVE_WHY]);

/* Puts a mark behind the bytes of a finished file, and checks it: a file that was cut short, or is
 * no file of ours, must not reach the dynamic loader. */
bool gd_native_seal(const char *path);
bool gd_native_is_sealed(const char *path);

/* Gives a finished file one more name, in the place of what has it now. */
bool gd_native_name(const char *path, const char *name);

/* Notes that a file was used; removes those not used for longest, as far as there are too many. */
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
