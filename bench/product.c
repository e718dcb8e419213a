/* product.c - matrix products compared with OpenBLAS, which is loaded at run time if it is
 * installed. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "backend/cpu/isa.h"
#include "gradus/gradus.h"

typedef void (*sgemm_fn)(int order, int ta, int tb, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c,
                         int ldc);
typedef void (*threads_fn)(int n);

typedef struct {
    int64_t m, n, k;
    bool ta, tb;
    gd_tensor *a, *b, *c;
    const gd_op *matmul;
    sgemm_fn sgemm;
} product;

static void run_gradus(void *arg) {
    product *p = arg;
    gd_op_run_into(p->matmul, gd_list(p->a, p->b), NULL, gd_list(p->c));
}

static void run_openblas(void *arg) {
    product *p = arg;
    enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };
    p->sgemm(ROW_MAJOR, p->ta ? TRANSPOSE : NO_TRANSPOSE, p->tb ? TRANSPOSE : NO_TRANSPOSE,
             (int)p->m, (int)p->n, (int)p->k, 1, gd_data(p->a), (int)(p->ta ? p->m : p->k),
             gd_data(p->b), (int)(p->tb ? p->k : p->n), 0, gd_data(p->c), (int)p->n);
}

/* Idle threads of OpenBLAS spin for 2^28 clock ticks, a tenth of a second, on cores that our
 * threads need next. OPENBLAS_THREAD_TIMEOUT=22 limits that to 2^22, which is still far longer than
 * the time between two of its calls here, so it loses nothing; after REST_NS they sleep. */
static const double REST_NS = 5e6;

/* An OpenBLAS that is older than the processor does not recognize it and falls back to SSE kernels,
 * several times slower than its AVX2 or AVX-512 ones, which would be no fair comparison. So its
 * kernels are set to the instruction set that ours use, unless the user has set them; the choice is
 * printed. */
static void *open_openblas(void) {
    gd_isa isa = gd_cpu_isa();
    if (isa != GD_ISA_BASE)
        setenv("OPENBLAS_CORETYPE", isa == GD_ISA_AVX512 ? "SkylakeX" : "Haswell", 0);
    setenv("OPENBLAS_THREAD_TIMEOUT", "22", 0);
    void *library = dlopen("libopenblas.so.0", RTLD_NOW);
    char *(*core)(void) = library ? (char *(*)(void))dlsym(library, "openblas_get_corename") : NULL;
    if (core) printf("  (OpenBLAS with its %s kernels, ours with %s)\n", core(), gd_isa_name(isa));
    return library;
}

static void bench_matmul(void) {
    static const product shapes[] = {{.m = 32, .n = 32, .k = 32},
                                     {.m = 64, .n = 64, .k = 64},
                                     {.m = 128, .n = 128, .k = 128},
                                     {.m = 256, .n = 256, .k = 256},
                                     {.m = 512, .n = 512, .k = 512},
                                     {.m = 1024, .n = 1024, .k = 1024},
                                     {.m = 128, .n = 512, .k = 784, .tb = true},
                                     {.m = 512, .n = 784, .k = 128, .ta = true},
                                     {.m = 64, .n = 100, .k = 1000, .tb = true}};
    GD_SCOPE;
    void *library = open_openblas();
    sgemm_fn sgemm = library ? (sgemm_fn)dlsym(library, "cblas_sgemm") : NULL;
    threads_fn set_threads =
        library ? (threads_fn)dlsym(library, "openblas_set_num_threads") : NULL;
    if (!sgemm || !set_threads)
        printf("  (OpenBLAS is not installed: matmul_vs_openblas needs libopenblas0)\n");
    double logs = 0;
    int count = 0;
    for (int threads = 1; threads <= 2; threads++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            GD_SCOPE;
            product p = shapes[i];
            p.sgemm = sgemm;
            p.matmul = gd_op_find("matmul");
            p.a = gd_full(p.ta ? gd_dims(p.k, p.m) : gd_dims(p.m, p.k), 0.5);
            p.b = gd_full(p.tb ? gd_dims(p.n, p.k) : gd_dims(p.k, p.n), 0.25);
            p.c = gd_full(gd_dims(p.m, p.n), 0);
            if (p.ta) p.a = gd_permute(p.a, gd_dims(1, 0));
            if (p.tb) p.b = gd_permute(p.b, gd_dims(1, 0));
            gd_set_num_threads(threads);
            char name[64];
            double flops = 2.0 * (double)p.m * (double)p.n * (double)p.k;
            snprintf(name, sizeof name, "matmul_%lldx%lldx%lld%s_%dt", (long long)p.m,
                     (long long)p.n, (long long)p.k,
                     p.ta   ? "_tn"
                     : p.tb ? "_nt"
                            : "",
                     threads);
            if (!sgemm || !set_threads) {
                double spread, ns = bench_time(run_gradus, &p, &spread);
                bench_report(name, flops / ns, 0, "GFLOP/s", "");
                continue;
            }
            set_threads(threads);
            bench_pair pair = bench_versus(run_gradus, run_openblas, &p, threads > 1 ? REST_NS : 0);
            char note[64];
            snprintf(note, sizeof note, "%.2f times the speed of OpenBLAS", pair.ratio);
            bench_report(name, flops / pair.a, pair.spread * flops / pair.a, "GFLOP/s", note);
            logs += log(pair.ratio);
            count++;
        }
    if (count)
        bench_report("matmul_vs_openblas", exp(logs / count), 0, "ratio",
                     "geometric mean; target 1.1");
}

const bench_entry bench_product[] = {{"matmul", bench_matmul}, {NULL, NULL}};
