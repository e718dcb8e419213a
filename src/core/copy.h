/* copy.h - copies between views with any strides, and conversions between all dtypes. */
#ifndef GRADUS_CORE_COPY_H
#define GRADUS_CORE_COPY_H

#include "core/device.h"
#include "core/half.h"

/* dst and src have the same dims. Values are converted as gradus/dtype.h defines. */
void gd_copy_elements(const gd_view *dst, const gd_view *src);

/* n contiguous elements. */
void gd_convert(gd_dtype to, void *dst, gd_dtype from, const void *src, int64_t n);

/* n elements with strides in bytes. */
void gd_convert_row(gd_dtype to, void *dst, int64_t dst_step, gd_dtype from, const void *src,
                    int64_t src_step, int64_t n);

/* One element. */
double gd_load_f64(gd_dtype dtype, const void *p);
int64_t gd_load_i64(gd_dtype dtype, const void *p);
void gd_store_f64(gd_dtype dtype, void *p, double value);
void gd_store_i64(gd_dtype dtype, void *p, int64_t value);

#endif
