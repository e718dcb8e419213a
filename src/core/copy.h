/* copy.h - elements from one view to another: any strides, any pair of dtypes. */
#ifndef GRADUS_CORE_COPY_H
#define GRADUS_CORE_COPY_H

#include "core/device.h"
#include "core/half.h"

/* dst and src have the same dims. Values convert as gradus/dtype.h says. */
void gd_copy_elements(const gd_view *dst, const gd_view *src);

/* n elements in a row. */
void gd_convert(gd_dtype to, void *dst, gd_dtype from, const void *src, int64_t n);

/* n elements at byte steps. */
void gd_convert_row(gd_dtype to, void *dst, int64_t dst_step, gd_dtype from, const void *src,
                    int64_t src_step, int64_t n);

/* One element. */
double gd_load_f64(gd_dtype dtype, const void *p);
int64_t gd_load_i64(gd_dtype dtype, const void *p);
void gd_store_f64(gd_dtype dtype, void *p, double value);
void gd_store_i64(gd_dtype dtype, void *p, int64_t value);

#endif
