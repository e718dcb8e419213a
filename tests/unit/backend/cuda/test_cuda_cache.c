/* test_cuda_cache.c - kernels that NVRTC has compiled, in the cache on disk. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "cuda_child.h"

static char base_folder[64], top_folder[96], cache_folder[128]; /* cache_folder: of kernels */

static void fresh_cache(void) {
    snprintf(base_folder, sizeof base_folder, "/tmp/gradus-cuda-XXXXXX");
    CHECK(mkdtemp(base_folder) != NULL);
    snprintf(top_folder, sizeof top_folder, "%s/cache", base_folder);
    snprintf(cache_folder, sizeof cache_folder, "%s/kernels", top_folder);
    setenv("GRADUS_CACHE", top_folder, 1);
}

static void remove_cache(void) {
    char command[320];
    snprintf(command, sizeof command, "rm -rf %s", base_folder);
    chmod(cache_folder, 0700);
    CHECK(system(command) == 0);
    unsetenv("GRADUS_CACHE");
}

/* Calls `change` for each file of the cache; returns their number. */
static int each_file(void (*change)(const char *path)) {
    DIR *d = opendir(cache_folder);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[512];
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".bin") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", cache_folder, e->d_name);
        if (change) change(path);
        n++;
    }
    if (d) closedir(d);
    return n;
}

static void truncate_file(const char *path) {
    struct stat s;
    CHECK(stat(path, &s) == 0 && truncate(path, s.st_size / 2) == 0);
}

static bool is_nvrtc_loaded(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    bool found = false;
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, "libnvrtc") != NULL;
    if (maps) fclose(maps);
    return found;
}

static gd_tensors compute_chain(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x = in.at[0], *z = gd_sub(gd_mul(x, x), gd_scalar(3));
    return gd_listed(gd_mul(z, x), gd_sum(gd_exp(gd_neg(z))));
}

/* Runs a plan with fused kernels and checks its results. */
static void run_plan(void) {
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    if (!device) return;
    const float values[5] = {1, 2, 3, 4, 5}, expected[5] = {-2, 2, 18, 52, 110};
    gd_jit *jit = gd_jit_new(compute_chain, NULL);
    gd_tensors y = gd_jit_call(jit, gd_list(cuda_tensor(device, gd_dims(5), values)));
    CHECK(cuda_has_values(y.at[0], 5, expected));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* Tests that run in processes of the others. */
#define PART(name)                          \
    static void name##_body(void);          \
    TEST(name) {                            \
        if (cuda_in_child()) name##_body(); \
    }                                       \
    static void name##_body(void)

PART(part_compiles) {
    run_plan();
    CHECK(is_nvrtc_loaded());
}
PART(part_finds_all_in_the_cache) {
    run_plan();
    CHECK(!is_nvrtc_loaded());
}

PART(part_runs) { run_plan(); }

static int run_part(const char *part) { return cuda_run_child(part, EMULATED, ""); }

TEST(a_later_process_does_not_load_nvrtc) {
    if (cuda_in_child()) return;
    fresh_cache();
    CHECK(run_part("part_compiles") == 0);
    CHECK(each_file(NULL) >= 1);
    CHECK(run_part("part_finds_all_in_the_cache") == 0);
    remove_cache();
}

static gd_tensors compute_chains(gd_tensors in, void *user) {
    gd_tensor *results[4];
    for (int i = 0; i < 4; i++) results[i] = compute_chain((gd_tensors){&in.at[i], 1}, user).at[0];
    return gd_listed(results[0], results[1], results[2], results[3]);
}

PART(part_with_equal_kernels) {
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    if (!device) return;
    const float values[5] = {1, 2, 3, 4, 5}, expected[5] = {-2, 2, 18, 52, 110};
    gd_tensor *x[4];
    for (int i = 0; i < 4; i++) x[i] = cuda_tensor(device, gd_dims(5), values);
    gd_jit *jit = gd_jit_new(compute_chains, NULL);
    gd_tensors y = gd_jit_call(jit, gd_list(x[0], x[1], x[2], x[3]));
    for (int i = 0; i < 4; i++) CHECK(cuda_has_values(y.at[i], 5, expected));
    void *backend = dlopen(GRADUS_TEST_BACKENDS "/libgradus_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    _Atomic(int64_t) *compiles = backend ? dlsym(backend, "gradus_cuda_compiles") : NULL;
    CHECK(compiles && *compiles == 1);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST(equal_kernels_of_a_plan_are_compiled_once) {
    if (cuda_in_child()) return;
    fresh_cache();
    CHECK(run_part("part_with_equal_kernels") == 0);
    CHECK(each_file(NULL) == 1);
    remove_cache();
}

TEST(damaged_files_are_compiled_again) {
    if (cuda_in_child()) return;
    fresh_cache();
    CHECK(run_part("part_compiles") == 0);
    CHECK(each_file(truncate_file) >= 1);
    CHECK(run_part("part_compiles") == 0);
    CHECK(run_part("part_finds_all_in_the_cache") == 0);
    remove_cache();
}

TEST(plans_run_without_a_cache) {
    if (cuda_in_child()) return;
    fresh_cache();
    setenv("GRADUS_CACHE", "/proc/nothing", 1);
    CHECK(run_part("part_compiles") == 0);
    setenv("GRADUS_CACHE", top_folder, 1);
    CHECK(mkdir(top_folder, 0700) == 0 && mkdir(cache_folder, 0777) == 0 &&
          chmod(cache_folder, 0777) == 0);
    CHECK(run_part("part_compiles") == 0); /* others could write to the folder */
    CHECK(each_file(NULL) == 0);
    remove_cache();
}

TEST(processes_may_fill_the_cache_at_once) {
    enum { PROCESSES = 3 };
    if (cuda_in_child()) return;
    fresh_cache();
    cuda_child child = {"part_runs", EMULATED, ""};
    pid_t ids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) ids[i] = child_start(cuda_exec_child, &child);
    int failed = 0;
    for (int i = 0; i < PROCESSES; i++) failed += child_wait(ids[i]) != 0;
    CHECK(failed == 0);
    CHECK(run_part("part_finds_all_in_the_cache") == 0);
    remove_cache();
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
