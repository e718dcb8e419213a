/* native.h - native code: kernels that are compiled while the program runs, and cached on disk.
 *
 * The printer (dialect.h) writes the source of a kernel, and the system's C compiler compiles it to
 * a shared object. The file stays in a cache; its name is a hash of the source, the flags and the
 * compiler. It is loaded through the descriptor with which its checksum was read, so that it cannot
 * be exchanged in between; that needs /proc. Without a compiler or a cache there is no kernel, and
 * the caller runs something else. A warning in the log, once in a process, names what is missing.
 *
 * docs/guide/environment.md lists the environment variables: GRADUS_NATIVE, GRADUS_CC,
 * GRADUS_CC_TIMEOUT, GRADUS_CACHE and GRADUS_CACHE_MB.
 *
 * Threads: all functions may be called from any thread. A source is compiled once in a process;
 * other threads that need the same kernel wait for it. Processes may share a cache: files are added
 * atomically, and a missing one is compiled again. A fork() does not wait for a compiler that runs
 * in another thread: the child starts its own if it needs the same kernel.
 */
#ifndef GRADUS_CODEGEN_NATIVE_H
#define GRADUS_CODEGEN_NATIVE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "codegen/dialect.h"

/* A target that kernels are compiled for. */
typedef struct gd_native_target {
    const char *name; /* "avx2" */
    const gd_dialect *dialect;
    const char *const *flags; /* compiler flags for this instruction set; NULL at the end */
    const char *prelude;      /* source text that precedes the kernel's */
    size_t prelude_bytes;
} gd_native_target;

typedef void (*gd_compiled_fn)(void);

/* The prelude of gd_dialect_scalar. It ends with a zero byte, which is not counted. */
extern const char gd_scalar_prelude[];
extern const size_t gd_scalar_prelude_bytes;

/* The kernel of a source, a function with the dialect's signature; NULL if it cannot be
 * compiled. */
gd_compiled_fn gd_native_kernel(const gd_kernel_source *source, const gd_native_target *target);

/* The same for n sources, with one run of the compiler for those that are not in the cache. */
void gd_native_kernels(const gd_kernel_source *sources, int n, const gd_native_target *target,
                       gd_compiled_fn *fns);

/* Whether kernels can be compiled: GRADUS_NATIVE is not 0, and there are a cache and a compiler. It
 * reads the environment each time, since a program may change it. */
bool gd_native_is_ready(void);

/* Numbers of kernels of this process: compiled, loaded from the cache, and failed; and of runs of
 * the compiler. */
typedef struct gd_native_counts {
    int64_t compiled, loaded, failed, runs;
} gd_native_counts;
gd_native_counts gd_native_count(void);

/* For tests: forgets all kernels and that a warning was given. Kernels in use stay valid. */
void gd_native_forget(void);

/* --- the compiler (native_compiler.c) --------------------------------------------------------- */

/* The size of a sentence for the log, which says what is missing and what helps. Names in it are
 * cut after GD_NATIVE_SHOWN bytes. */
enum { GD_NATIVE_WHY = 512, GD_NATIVE_SHOWN = 256 };

/* Finds the absolute path of the compiler as a shell does. If there is none, gd_native_no_compiler
 * writes why. */
bool gd_native_find_compiler(char *path, size_t size, struct stat *identity);
void gd_native_no_compiler(char why[GD_NATIVE_WHY]);

typedef enum gd_native_run { GD_NATIVE_RAN, GD_NATIVE_FAILED, GD_NATIVE_HUNG } gd_native_run;
/* Runs the compiler in a folder, whose files it finds by their names alone, and waits at most
 * GRADUS_CC_TIMEOUT seconds. */
gd_native_run gd_native_run_compiler(int folder, char *const *argv);

/* --- the cache (native_folder.c, native_cache.c) ---------------------------------------------- */

enum { GD_NATIVE_PATH = 1024, GD_NATIVE_KEY = 33, GD_NATIVE_NAME = 48 };

/* Opens the folder of compiled kernels, "kernels" in the cache folder, and creates what is missing
 * of its path. No other user can write to it or exchange it: the owners and modes of it and of all
 * folders above are checked. close() the result. -1: the reason is in `why`. */
int gd_native_open_folder(char why[GD_NATIVE_WHY]);

/* Creates a temporary file with a name of its own, which ends in ".c", ".so" or ".bin", and opens
 * it for writing. */
int gd_native_create(int folder, const char *end, char name[GD_NATIVE_NAME]);

/* Appends a checksum to a finished file. */
bool gd_native_seal(int folder, const char *name);
/* Opens a file for reading; close() the result. -1: there is none, another user can write to it, or
 * its checksum is wrong: a truncated file, or one of another program, must not be loaded. */
int gd_native_open_sealed(int folder, const char *name);

/* Gives a finished file another name (a hard link); replaces a file of that name. */
bool gd_native_name(int folder, const char *file, const char *name);

/* Code of another compiler in the same cache, in the file KEY.bin; `key` has 32 digits. The code
 * that was stored under the key, to be released with gd_free; NULL: there is none, it is damaged,
 * or there is no cache. */
void *gd_native_load_code(const char *key, size_t *bytes);
/* Stores code. False: there is no cache, or no space in it, which is harmless. Processes may store
 * the same key at the same time. */
bool gd_native_store_code(const char *key, const void *code, size_t bytes);

/* Records that an open file was used. */
void gd_native_touch(int fd);
/* Removes the least recently used files of a full cache. */
void gd_native_trim(int folder);

/* A hash of 128 bits, written as 32 digits. */
typedef struct gd_native_hash {
    uint64_t a, b;
} gd_native_hash;
void gd_native_hash_start(gd_native_hash *hash);
void gd_native_hash_add(gd_native_hash *hash, const void *bytes, size_t count);
void gd_native_hash_text(const gd_native_hash *hash, char text[GD_NATIVE_KEY]);

#endif
