/* npy.h - tensors in NumPy's files: one array in a .npy, several with names in a .npz.
 *
 *     gd_save_npy("w.npy", w);                                      // np.load("w.npy")
 *     gd_tensor *w = gd_load_npy("w.npy");                          // np.save("w.npy", w)
 *     gd_save_npz("net.npz", gd_names("w", "b"), gd_list(w, b));    // np.load("net.npz")["w"]
 *     gd_tensor *b = gd_load_npz("net.npz", "b");                   // np.savez("net.npz", w=w, b=b)
 *
 * Saving: every dtype, any strides, any device. The file is there whole or not at all: a failure
 * leaves the old file as it was. Nothing is saved while a failure of this thread is recorded. NumPy
 * has no bfloat16; such tensors become '<V2', as JAX writes them (np.load(path).view("bfloat16")
 * with ml_dtypes).
 *
 * Loading puts the tensor on the thread's default device. Files in Fortran order or of the other
 * byte order are turned around; compressed .npz files and gzipped .npy files are read; np.load's
 * pickled objects are refused, as are strings, structures and complex numbers. Types that there are none of here are
 * widened to one that holds all their values: int16 and uint16 become i32, uint32 becomes i64;
 * uint64 becomes i64 too, and a value beyond 2^63 - 1 in it is an error.
 */
#ifndef GRADUS_NPY_H
#define GRADUS_NPY_H

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- one array -------------------------------------------------------------------------------- */

#define gd_save_npy(...) gd_save_npy_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_save_npy_at(const char *site, const char *path, const gd_tensor *t);
#define gd_load_npy(...) gd_load_npy_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_load_npy_at(const char *site, const char *path);

/* --- several, with names ---------------------------------------------------------------------- */

/* A list of names, as many as there are tensors in the list beside it. */
#ifdef __cplusplus
} /* like gd_list, it lives until the end of the call that it is written in */
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

/* names has tensors.count entries; each may be used once. */
#define gd_save_npz(...) gd_save_npz_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_save_npz_at(const char *site, const char *path, const char *const *names,
                                gd_tensors tensors);

/* The array of that name. To load several, open the file once: */
#define gd_load_npz(...) gd_load_npz_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_load_npz_at(const char *site, const char *path, const char *name);

/* An open .npz file. It belongs to the scope like a tensor does; several threads may load from it
 * at once. gd_npz_open returns NULL, and records the failure, when the file cannot be opened; the
 * calls below accept that NULL. */
typedef struct gd_npz gd_npz;
#define gd_npz_open(...) gd_npz_open_at(GD_HERE, __VA_ARGS__)
GD_API gd_npz *gd_npz_open_at(const char *site, const char *path);

/* How many arrays it has, and the name of each in the file's order; NULL for an i beyond. */
GD_API int64_t gd_npz_count(const gd_npz *npz);
GD_API const char *gd_npz_name(const gd_npz *npz, int64_t i);
GD_API bool gd_npz_has(const gd_npz *npz, const char *name);

#define gd_npz_load(...) gd_npz_load_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_npz_load_at(const char *site, const gd_npz *npz, const char *name);

/* All of them, in the order of gd_npz_name, or none: error tensors, when one fails. */
#define gd_npz_load_all(...) gd_npz_load_all_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_npz_load_all_at(const char *site, const gd_npz *npz);

#ifdef __cplusplus
}
#endif
#endif
