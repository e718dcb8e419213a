/* npy.h - tensors in NumPy files: one array in a .npy, several named arrays in a .npz.
 *
 *     gd_save_npy("w.npy", w);                                    // np.load("w.npy")
 *     gd_tensor *w = gd_load_npy("w.npy");                        // np.save("w.npy", w)
 *     gd_save_npz("net.npz", gd_names("w", "b"), gd_list(w, b));  // np.load("net.npz")["w"]
 *     gd_tensor *b = gd_load_npz("net.npz", "b");                 // np.savez("net.npz", w=w, b=b)
 *
 * Saving supports every dtype, any strides and any device. The file is replaced atomically: a
 * failure leaves the old file unchanged. Nothing is saved while a failure of this thread is
 * recorded. NumPy has no bfloat16; such tensors become '<V2', as JAX writes them
 * (np.load(path).view("bfloat16") with ml_dtypes).
 *
 * Loading puts the tensor on the thread's default device. Fortran order and the other byte order
 * are converted; compressed .npz files and gzipped .npy files are supported. Pickled objects,
 * strings, structures and complex numbers fail. Integer types that do not exist here are widened:
 * int16 and uint16 become i32, uint32 becomes i64. uint64 becomes i64 as well; a value beyond 2^63
 * - 1 is an error.
 */
#ifndef GRADUS_NPY_H
#define GRADUS_NPY_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- one array -------------------------------------------------------------------------------- */

#define gd_save_npy(...) gd_save_npy_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_save_npy_at(const char *site, const char *path, const gd_tensor *t);
#define gd_load_npy(...) gd_load_npy_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_load_npy_at(const char *site, const char *path);

/* --- several named arrays --------------------------------------------------------------------- */

/* A list of names, one for each tensor of a list. */
#ifdef __cplusplus
} /* like gd_list, it lives until the end of the enclosing call */
template <int count> struct gd_names_of_ {
    const char *at[count];
    operator const char * const *() const { return at; }
};
template <typename... Names> inline gd_names_of_<sizeof...(Names)> gd_names(Names... names) {
    return gd_names_of_<sizeof...(Names)>{{names...}};
}
extern "C" {
#else
#define gd_names(...) ((const char *const[]){__VA_ARGS__})
#endif

/* `names` has tensors.count entries, all different. */
#define gd_save_npz(...) gd_save_npz_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_save_npz_at(const char *site, const char *path, const char *const *names,
                                gd_tensors tensors);

/* The array of that name. To load several, open the file once: */
#define gd_load_npz(...) gd_load_npz_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_load_npz_at(const char *site, const char *path, const char *name);

/* An open .npz file. It belongs to the scope, like a tensor; several threads may load from it at
 * the same time. If the file cannot be opened, gd_npz_open records the failure and returns NULL,
 * which the calls below accept. */
typedef struct gd_npz gd_npz;
#define gd_npz_open(...) gd_npz_open_at(GD_HERE, __VA_ARGS__)
GD_API gd_npz *gd_npz_open_at(const char *site, const char *path);

/* The number of arrays, and the name of array i in the order of the file; NULL beyond the last. */
GD_API int64_t gd_npz_count(const gd_npz *npz);
GD_API const char *gd_npz_name(const gd_npz *npz, int64_t i);
GD_API bool gd_npz_has(const gd_npz *npz, const char *name);

#define gd_npz_load(...) gd_npz_load_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_npz_load_at(const char *site, const gd_npz *npz, const char *name);

/* All arrays, in the order of gd_npz_name. If one fails, the list holds only error tensors. */
#define gd_npz_load_all(...) gd_npz_load_all_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_npz_load_all_at(const char *site, const gd_npz *npz);

#ifdef __cplusplus
}
#endif
#endif
