/* resize_template.h - resizing of one plane of `real` (f32 or f64), and its gradient. NAME(x) forms
 * function names for the dtype. Tables hold the sources of the elements (resize_kernels.c).
 */

/* The rows of x (or of its gradient) that row (d, h) of y is interpolated from, and their weights:
 * up to 4. */
static int NAME(source_rows)(const resize_job *r, int64_t d, int64_t h, int64_t row[4],
                             real weight[4]) {
    const gd_resize_source *z = &r->sources[0][d], *v = &r->sources[1][h];
    const int64_t depth[2] = {z->low, z->high}, height[2] = {v->low, v->high};
    const double depth_weight[2] = {1 - z->part, z->part},
                 height_weight[2] = {1 - v->part, v->part};
    int n = 0;
    for (int i = 0; i < (r->form.linear && z->part != 0 ? 2 : 1); i++)
        for (int k = 0; k < (r->form.linear && v->part != 0 ? 2 : 1); k++, n++) {
            row[n] = (depth[i] * r->form.in[1] + height[k]) * r->form.in[2];
            weight[n] = r->form.linear ? (real)(depth_weight[i] * height_weight[k]) : 1;
        }
    return n;
}

/* `line` has room for a row of x. */
static void NAME(resize_plane)(const resize_job *r, int64_t plane, void *line) {
    const int64_t in_w = r->form.in[2], out_w = r->form.out[2];
    const real *x = (const real *)r->x + plane * r->in;
    real *y = (real *)r->y + plane * r->out, *blend = line, weight[4];
    const gd_resize_source *w = r->sources[2];
    int64_t row[4];
    for (int64_t d = 0; d < r->form.out[0]; d++)
        for (int64_t h = 0; h < r->form.out[1]; h++, y += out_w) {
            const int n = NAME(source_rows)(r, d, h, row, weight);
            const real *from = x + row[0];
            if (n > 1) {
                for (int64_t i = 0; i < in_w; i++)
                    blend[i] = weight[0] * x[row[0] + i] + weight[1] * x[row[1] + i];
                for (int k = 2; k < n; k++)
                    for (int64_t i = 0; i < in_w; i++) blend[i] += weight[k] * x[row[k] + i];
                from = blend;
            }
            if (!r->form.linear)
                for (int64_t o = 0; o < out_w; o++) y[o] = from[w[o].low];
            else
                for (int64_t o = 0; o < out_w; o++) {
                    const real fraction = (real)w[o].part, low = from[w[o].low];
                    y[o] = w[o].part == 0 ? low : (1 - fraction) * low + fraction * from[w[o].high];
                }
        }
}

/* The gradient: accumulates each row of y into a row of width in_w, and adds that to the source
 * rows. */
static void NAME(gradient_plane)(const resize_job *r, int64_t plane, void *line) {
    const int64_t in_w = r->form.in[2], out_w = r->form.out[2];
    real *x = (real *)(uintptr_t)r->x + plane * r->in, *row_grad = line, weight[4];
    const real *y = (const real *)r->y + plane * r->out;
    const gd_resize_source *w = r->sources[2];
    int64_t row[4];
    memset(x, 0, (size_t)r->in * sizeof *x);
    for (int64_t d = 0; d < r->form.out[0]; d++)
        for (int64_t h = 0; h < r->form.out[1]; h++, y += out_w) {
            memset(row_grad, 0, (size_t)in_w * sizeof *row_grad);
            if (!r->form.linear)
                for (int64_t o = 0; o < out_w; o++) row_grad[w[o].low] += y[o];
            else
                for (int64_t o = 0; o < out_w; o++) {
                    const real fraction = (real)w[o].part;
                    row_grad[w[o].low] += (1 - fraction) * y[o];
                    if (w[o].part != 0) row_grad[w[o].high] += fraction * y[o];
                }
            const int n = NAME(source_rows)(r, d, h, row, weight);
            for (int k = 0; k < n; k++)
                for (int64_t i = 0; i < in_w; i++) x[row[k] + i] += weight[k] * row_grad[i];
        }
}

#undef real
#undef NAME
