/* test_native.c - kernels compiled at run time, and their cache files.
 *
 * A loaded kernel stays loaded, so each part runs in its own child process and reports by its exit
 * code.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cpu/elementwise_job.h"
#include "child.h"
#include "codegen/native.h"
#include "files.h"
#include "gradus/gradus.h"
#include "test.h"

/* --- expressions ------------------------------------------------------------------------------ */

typedef struct expression {
    gd_ir ir;
    gd_ir_node nodes[GD_IR_MAX_NODES];
} expression;

static int find_input(gd_ir_builder *b, void *context, const char *name, size_t length) {
    (void)context;
    return length == 1 && *name >= 'a' && *name <= 'c' ? gd_ir_var(b, *name - 'a') : -1;
}

static void parse_expression(expression *e, const char *text) {
    gd_ir_builder b = {.count = 0};
    memset(e, 0, sizeof *e);
    int node = gd_ir_parse(&b, text, find_input, NULL);
    CHECK_SAYING(node >= 0, "%s", b.error);
    e->ir = gd_ir_finish(&b, &node, 1, e->nodes);
}

static gd_ew_fn kernel_of(const char *text) {
    expression e;
    parse_expression(&e, text);
    return (gd_ew_fn)(void *)gd_native_kernel(&(gd_kernel_source){.ir = &e.ir, .type = "f32"},
                                              gd_ew_target(gd_cpu_isa()));
}

/* Returns whether the kernel exists and computes a*b + a, for a length that is no multiple of a
 * vector. */
static bool kernel_works(gd_ew_fn fn) {
    float a[37], b[37], y[37];
    if (!fn) return false;
    for (int i = 0; i < 37; i++) a[i] = 0.5f * (float)i, b[i] = 3.0f - (float)i, y[i] = -1;
    fn(37, (const void *const[]){a, b}, (void *const[]){y}, NULL);
    for (int i = 0; i < 37; i++)
        if (y[i] != a[i] * b[i] + a[i]) return false;
    return true;
}
#define PRODUCT "a*b + a"

/* --- processes and directories ---------------------------------------------------------------- */

/* Bits of a child's exit code. */
enum { WORKS = 1, COMPILED = 2, LOADED = 4, FAILED = 8 };

static int make_product(void) {
    gd_ew_fn fn = kernel_of(PRODUCT);
    gd_native_counts c = gd_native_count();
    return (kernel_works(fn) ? WORKS : 0) | (c.compiled ? COMPILED : 0) | (c.loaded ? LOADED : 0) |
           (c.failed ? FAILED : 0);
}

static int call_body(void *body) { return (*(int (**)(void))body)(); }
static pid_t start_child(int (*body)(void)) { return child_start(call_body, &body); }
static int run_in_child(int (*body)(void)) { return child_run(call_body, &body); }

/* The folder of a test; in it the one that GRADUS_CACHE names; in that the folder of kernels. */
static char base_folder[64], top_folder[256], cache_folder[300];

static void fresh_cache(const char *name) {
    snprintf(base_folder, sizeof base_folder, "/tmp/gradus-native-XXXXXX");
    CHECK(mkdtemp(base_folder) != NULL);
    snprintf(top_folder, sizeof top_folder, "%s/%s", base_folder, name);
    snprintf(cache_folder, sizeof cache_folder, "%s/kernels", top_folder);
    setenv("GRADUS_CACHE", top_folder, 1);
    unsetenv("GRADUS_CC");
    unsetenv("GRADUS_NATIVE");
}

/* Counts the files that end with `end`; the path of one of them is stored in `last`. */
static int count_files(const char *directory, const char *end, char *last, size_t size) {
    DIR *d = opendir(directory);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        const size_t length = strlen(e->d_name), tail = strlen(end);
        if (e->d_name[0] == '.' || length < tail || strcmp(e->d_name + length - tail, end) != 0)
            continue;
        n++;
        if (last) snprintf(last, size, "%s/%s", directory, e->d_name);
    }
    if (d) closedir(d);
    return n;
}

/* --- working caches --------------------------------------------------------------------------- */

TEST(a_kernel_is_compiled_once_and_then_found) {
    fresh_cache("new/deeper");
    CHECK(run_in_child(make_product) == (WORKS | COMPILED));
    CHECK(run_in_child(make_product) == (WORKS | LOADED));
    CHECK(count_files(cache_folder, "", NULL, 0) == 1 &&
          count_files(cache_folder, ".so", NULL, 0) == 1);
    struct stat s;
    CHECK(stat(cache_folder, &s) == 0 && (s.st_mode & 0777) == 0700);
    folder_remove(base_folder);
}

static int with_default_directory(void) {
    unsetenv("GRADUS_CACHE");
    return make_product();
}

TEST(the_directory_follows_the_environment) {
    char path[300];
    fresh_cache("x");
    setenv("XDG_CACHE_HOME", base_folder, 1);
    CHECK(run_in_child(with_default_directory) == (WORKS | COMPILED));
    snprintf(path, sizeof path, "%s/gradus/kernels", base_folder);
    CHECK(count_files(path, ".so", NULL, 0) == 1);
    unsetenv("XDG_CACHE_HOME");
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    setenv("HOME", base_folder, 1);
    CHECK(run_in_child(with_default_directory) == (WORKS | COMPILED));
    snprintf(path, sizeof path, "%s/.cache/gradus/kernels", base_folder);
    CHECK(count_files(path, ".so", NULL, 0) == 1);
    if (home) setenv("HOME", home, 1);
    free(home);
    folder_remove(base_folder);
}

TEST(names_are_never_read_by_a_shell) {
    char proof[300];
    fresh_cache("it's \"a\" dir; touch $(touch proof) `touch proof` & -o x");
    snprintf(proof, sizeof proof, "%s/proof", base_folder);
    CHECK(chdir(base_folder) == 0);
    CHECK(run_in_child(make_product) == (WORKS | COMPILED) &&
          run_in_child(make_product) == (WORKS | LOADED));
    CHECK(access(proof, F_OK) != 0);
    CHECK(chdir("/") == 0);
    folder_remove(base_folder);
}

static void *make_in_thread(void *arg) {
    *(bool *)arg = kernel_works(kernel_of(PRODUCT));
    return NULL;
}

static int make_in_threads(void) {
    pthread_t threads[6];
    bool right[6] = {false};
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], NULL, make_in_thread, &right[i]);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 6; i++)
        if (!right[i]) return 0;
    return gd_native_count().compiled == 1 && gd_native_count().loaded == 0 ? WORKS : COMPILED;
}

TEST(threads_that_need_the_same_kernel_wait_for_one_compiler) {
    fresh_cache("c");
    CHECK(run_in_child(make_in_threads) == WORKS);
    folder_remove(base_folder);
}

TEST(several_processes_may_fill_the_cache_at_once) {
    fresh_cache("c");
    pid_t children[4];
    for (int i = 0; i < 4; i++) children[i] = start_child(make_product);
    for (int i = 0; i < 4; i++) {
        const int got = child_wait(children[i]);
        CHECK_SAYING(got > 0 && (got & WORKS), "%d", got);
    }
    CHECK(count_files(cache_folder, "", NULL, 0) == 1 &&
          count_files(cache_folder, ".so", NULL, 0) == 1);
    folder_remove(base_folder);
}

/* --- corrupt files ---------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text, size_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    CHECK(fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes);
    close(fd);
}

TEST(a_truncated_cache_file_is_replaced) {
    char file[512];
    fresh_cache("c");
    CHECK(run_in_child(make_product) == (WORKS | COMPILED));
    CHECK(count_files(cache_folder, ".so", file, sizeof file) == 1);
    struct stat s;
    CHECK(stat(file, &s) == 0);
    const off_t sizes[] = {0, 1, 63, 500, 4096, s.st_size / 2, s.st_size - 41, s.st_size - 1};
    for (int i = 0; i < 8; i++) {
        CHECK(truncate(file, sizes[i]) == 0);
        const int got = run_in_child(make_product);
        CHECK_SAYING(got == (WORKS | COMPILED), "%d bytes: %d", (int)sizes[i], got);
    }
    folder_remove(base_folder);
}

TEST(a_corrupt_cache_file_is_replaced) {
    char file[512];
    fresh_cache("c");
    CHECK(run_in_child(make_product) == (WORKS | COMPILED));
    CHECK(count_files(cache_folder, ".so", file, sizeof file) == 1);
    write_file(file, "this is no library", 18);
    CHECK(run_in_child(make_product) == (WORKS | COMPILED));
    int fd = open(file, O_WRONLY); /* changes a byte in the middle */
    CHECK(fd >= 0 && pwrite(fd, "\xff", 1, 2000) == 1 && close(fd) == 0);
    CHECK(run_in_child(make_product) == (WORKS | COMPILED));
    unlink(file);
    CHECK(symlink("/etc/passwd", file) == 0);
    CHECK(run_in_child(make_product) == (WORKS | COMPILED));
    CHECK(access("/etc/passwd", R_OK) == 0);
    folder_remove(base_folder);
}

static int make_other_kernel(void) { return kernel_of("a - b") ? WORKS : 0; }

/* A valid cache file of another expression: the key inside differs. */
TEST(the_kernel_of_another_expression_is_not_used) {
    char mine[512], other[512], kept[600];
    fresh_cache("c");
    CHECK(run_in_child(make_product) == (WORKS | COMPILED) &&
          count_files(cache_folder, ".so", mine, sizeof mine) == 1);
    snprintf(kept, sizeof kept, "%s/kept", base_folder);
    CHECK(rename(mine, kept) == 0);
    CHECK(run_in_child(make_other_kernel) == WORKS &&
          count_files(cache_folder, ".so", other, sizeof other) == 1);
    CHECK(rename(other, mine) == 0);
    CHECK(run_in_child(make_product) == (WORKS | COMPILED));
    folder_remove(base_folder);
}

/* --- unusable directories and compilers ------------------------------------------------------- */

TEST(a_directory_writable_by_others_is_not_used) {
    static const mode_t modes[] = {0755, 0770, 0701, 0777};
    for (int i = 0; i < 4; i++) {
        fresh_cache("c");
        CHECK(mkdir(top_folder, 0700) == 0 && mkdir(cache_folder, 0700) == 0 &&
              chmod(cache_folder, modes[i]) == 0);
        CHECK(run_in_child(make_product) == FAILED && count_files(cache_folder, "", NULL, 0) == 0);
        folder_remove(base_folder);
    }
    char real[300];
    fresh_cache("c");
    snprintf(real, sizeof real, "%s/real", base_folder);
    CHECK(mkdir(top_folder, 0700) == 0 && mkdir(real, 0700) == 0 &&
          symlink(real, cache_folder) == 0);
    CHECK(run_in_child(make_product) == FAILED && count_files(real, "", NULL, 0) == 0);
    folder_remove(base_folder);
    fresh_cache("c");
    CHECK(mkdir(top_folder, 0700) == 0);
    write_file(cache_folder, "a file", 6);
    CHECK(run_in_child(make_product) == FAILED);
    folder_remove(base_folder);
}

TEST(a_directory_of_another_user_is_not_used) {
    if (geteuid() != 0) SKIP("only root can give a directory away");
    fresh_cache("c");
    CHECK(mkdir(top_folder, 0700) == 0 && mkdir(cache_folder, 0700) == 0 &&
          chown(cache_folder, 12345, 12345) == 0);
    CHECK(run_in_child(make_product) == FAILED && count_files(cache_folder, "", NULL, 0) == 0);
    folder_remove(base_folder);
}

TEST(without_a_compiler_there_is_no_kernel_and_no_leftover_file) {
    static const char *const compilers[] = {"/no/such/compiler", "no-such-compiler", "/bin/false",
                                            "/bin/true",         "/etc/passwd",      "/tmp"};
    for (int i = 0; i < 6; i++) {
        fresh_cache("c");
        setenv("GRADUS_CC", compilers[i], 1);
        CHECK_SAYING(run_in_child(make_product) == FAILED &&
                         count_files(cache_folder, "", NULL, 0) == 0,
                     "%s", compilers[i]);
        folder_remove(base_folder);
    }
    fresh_cache("c");
    setenv("GRADUS_NATIVE", "0", 1);
    CHECK(run_in_child(make_product) == FAILED && access(cache_folder, F_OK) != 0);
    folder_remove(base_folder);
}

/* --- in a plan -------------------------------------------------------------------------------- */

static int debug_messages;
static void count_messages(gd_log_level level, const char *message, void *context) {
    (void)context;
    if (level == GD_LOG_DEBUG && strstr(message, "no compiled kernel")) debug_messages++;
}

static int run_a_plan(void) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *value = gd_full(gd_dims(100, 100), 0.5);
    gd_set_log(count_messages, NULL);
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(100, 100));
        y = gd_add(gd_mul(x, x), gd_neg(x));
    }
    gd_session *s = gd_session_new(graph);
    gd_tensor *got = gd_session_run(s, gd_feed(x, value), gd_list(y)).at[0];
    const bool right = !gd_failed() && ((const float *)gd_data(got))[9999] == -0.25f;
    gd_native_counts c = gd_native_count();
    return (right ? WORKS : 0) | (c.compiled ? COMPILED : 0) |
           (c.failed && debug_messages == 1 ? FAILED : 0);
}

TEST(a_plan_runs_with_and_without_a_compiler) {
    fresh_cache("c");
    CHECK(run_in_child(run_a_plan) == (WORKS | COMPILED));
    setenv("GRADUS_CC", "/bin/false", 1);
    CHECK(run_in_child(run_a_plan) == (WORKS | FAILED));
    unsetenv("GRADUS_CC");
    setenv("GRADUS_NATIVE", "0", 1); /* nothing to compile: the ops run their own kernels */
    CHECK(run_in_child(run_a_plan) == WORKS);
    unsetenv("GRADUS_NATIVE");
    folder_remove(base_folder);
}

/* --- log messages ----------------------------------------------------------------------------- */

static int warnings;
static char warning[1024];
static void keep_warning(gd_log_level level, const char *message, void *context) {
    (void)context;
    if (level != GD_LOG_WARNING) return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

static const char *expected_parts[2]; /* expected parts of the only warning; NULL: no warning */

/* Runs two plans, each with its own kernel, and checks their warnings. */
static int run_two_plans(void) {
    run_a_plan();
    gd_set_log(keep_warning, NULL);
    gd_native_forget(); /* resets the "warned already" flag */
    for (int i = 0; i < 2; i++) {
        GD_SCOPE;
        gd_graph *graph = gd_graph_new();
        gd_tensor *x, *y;
        {
            GD_GRAPH(graph);
            x = gd_placeholder(gd_dims(100, 100));
            y = gd_mul(gd_tanh(x), i ? x : gd_exp(x));
        }
        gd_session_run(gd_session_new(graph), gd_feed(x, gd_full(gd_dims(100, 100), 0.5)),
                       gd_list(y));
    }
    if (gd_failed()) return 0;
    if (!expected_parts[0]) return warnings == 0 ? WORKS : 0;
    const bool correct =
        warnings == 1 && strstr(warning, expected_parts[0]) && strstr(warning, expected_parts[1]);
    if (!correct) fprintf(stderr, "%d warnings: %s\n", warnings, warning);
    return correct ? WORKS : 0;
}

TEST(the_log_names_the_reason_and_the_remedy_once) {
    fresh_cache("c");
    CHECK(run_in_child(run_two_plans) == WORKS);
    expected_parts[0] = cache_folder;
    CHECK(chmod(cache_folder, 0755) == 0);
    expected_parts[1] = "chmod 700";
    CHECK(run_in_child(run_two_plans) == WORKS);
    CHECK(chmod(cache_folder, 0700) == 0);
    setenv("GRADUS_CC", "no-such-compiler", 1);
    expected_parts[0] = "no-such-compiler";
    expected_parts[1] = "GRADUS_CC";
    CHECK(run_in_child(run_two_plans) == WORKS);
    setenv("GRADUS_CC", "/bin/false", 1);
    expected_parts[0] = "/bin/false failed";
    CHECK(run_in_child(run_two_plans) == WORKS);
    unsetenv("GRADUS_CC");
    setenv("GRADUS_NATIVE", "0", 1); /* disabled on purpose: no warning */
    expected_parts[0] = NULL;
    CHECK(run_in_child(run_two_plans) == WORKS);
    unsetenv("GRADUS_NATIVE");
    folder_remove(base_folder);
}

static int plans_without_proc(void) {
    if (unshare(CLONE_NEWNS) != 0) return LOADED; /* nothing else gives LOADED */
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (mount("none", "/proc", "tmpfs", 0, NULL) != 0) return LOADED;
    return run_two_plans();
}

static pthread_t main_thread;

/* Waits until the process has no main thread, whose name in /proc is that of the process. */
static void *make_after_main(void *nothing) {
    pthread_join(main_thread, NULL);
    for (int i = 0; i < 10000 && access("/proc/self/fd/0", F_OK) == 0; i++) usleep(1000);
    if (access("/proc/self/fd/0", F_OK) == 0) _exit(LOADED);
    _exit(make_product());
    return nothing;
}

static int leave_main(void) {
    pthread_t thread;
    main_thread = pthread_self();
    pthread_create(&thread, NULL, make_after_main, NULL);
    pthread_exit(NULL);
}

TEST(kernels_are_compiled_after_the_main_thread_has_ended) {
    fresh_cache("c");
    CHECK(run_in_child(leave_main) == (WORKS | COMPILED));
    CHECK(run_in_child(leave_main) == (WORKS | LOADED));
    folder_remove(base_folder);
}

TEST(without_proc_no_kernel_is_compiled_and_the_log_says_so) {
    fresh_cache("c");
    expected_parts[0] = "/proc/thread-self/fd";
    expected_parts[1] = "mount /proc";
    const int got = run_in_child(plans_without_proc);
    expected_parts[0] = NULL;
    if (got == LOADED) SKIP("this process cannot mount a file system");
    CHECK(got == WORKS && count_files(cache_folder, "", NULL, 0) == 0);
    folder_remove(base_folder);
}

static char reason[1024]; /* of the first expression without a compiled kernel */
static void keep_reason(gd_log_level level, const char *message, void *context) {
    keep_warning(level, message, context);
    const char *why = strstr(message, "no compiled kernel");
    if (why && !*reason) snprintf(reason, sizeof reason, "%s", why);
}

/* The cache is in a file system from which no code may be loaded. */
static int load_without_exec(void) {
    if (unshare(CLONE_NEWNS) != 0) return LOADED;
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (mount("none", base_folder, "tmpfs", MS_NOEXEC, "mode=0700") != 0) return LOADED;
    gd_set_log(keep_reason, NULL);
    const bool none = !kernel_of(PRODUCT) && !kernel_of("a - b");
    const char *const parts[] = {cache_folder, "noexec", "GRADUS_CACHE", ".so cannot be loaded ("};
    bool said = warnings == 1 && !strstr(reason, "compiler") && !strstr(warning, "/proc");
    for (int i = 0; i < 4; i++) said &= strstr(warning, parts[i]) && strstr(reason, parts[i]);
    if (!said) fprintf(stderr, "%d warnings: %s\n%s\n", warnings, warning, reason);
    return none && said ? WORKS : 0;
}

TEST(a_compiled_kernel_that_cannot_be_loaded_is_not_blamed_on_the_compiler) {
    fresh_cache("c");
    const int got = run_in_child(load_without_exec);
    if (got == LOADED) SKIP("this process cannot mount a file system");
    CHECK(got == WORKS);
    folder_remove(base_folder);
}

/* --- exchanged files -------------------------------------------------------------------------- */

static bool exchanges; /* files of the cache are replaced right before they are loaded */

static void exchange_files(void) {
    char evil[400], file[400], copy[500], command[2000];
    snprintf(evil, sizeof evil, "%s/evil.so", base_folder);
    if (count_files(cache_folder, ".so", file, sizeof file) < 1) return;
    snprintf(copy, sizeof copy, "%s.new", file);
    snprintf(command, sizeof command, "cp %s %s && mv %s %s", evil, copy, copy, file);
    CHECK(system(command) == 0);
}

/* The library calls this definition of dlopen. */
void *dlopen(const char *path, int flags) {
    void *(*real)(const char *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    if (exchanges) exchange_files();
    return real(path, flags);
}

enum { EVIL = 99 };

static int load_exchanged(void) {
    exchanges = true;
    return make_product();
}

TEST(a_file_that_is_exchanged_after_its_check_is_not_loaded) {
    char source[300], command[900];
    fresh_cache("c");
    CHECK(run_in_child(make_product) == (WORKS | COMPILED));
    snprintf(source, sizeof source, "%s/evil.c", base_folder);
    static const char text[] = "#include <unistd.h>\n__attribute__((constructor)) "
                               "static void evil(void) { _exit(99); }\n";
    write_file(source, text, sizeof text - 1);
    snprintf(command, sizeof command, "cc -shared -fPIC -o %s/evil.so %s", base_folder, source);
    CHECK(system(command) == 0);
    const int folder = open(base_folder, O_RDONLY | O_DIRECTORY);
    CHECK(gd_native_seal(folder, "evil.so")); /* even with a valid checksum */
    close(folder);
    const int got = run_in_child(load_exchanged);
    CHECK_SAYING(got == (WORKS | LOADED), "%d; %d is that of the other file", got, EVIL);
    folder_remove(base_folder);
}

/* The descriptors of all three have the same number. */
static int load_one_after_the_other(void) {
    const bool right = kernel_works(kernel_of(PRODUCT)) && kernel_of("a - b") && kernel_of("a / b");
    const gd_native_counts c = gd_native_count();
    return right && c.failed == 0 ? (c.compiled == 3 ? WORKS | COMPILED : WORKS | LOADED) : 0;
}

TEST(each_load_gets_the_library_of_its_own_file) {
    fresh_cache("c");
    CHECK(run_in_child(load_one_after_the_other) == (WORKS | COMPILED));
    CHECK(run_in_child(load_one_after_the_other) == (WORKS | LOADED));
    folder_remove(base_folder);
}

/* --- several copies of the library ------------------------------------------------------------- */

/* Opens the plugin, runs plans first, first + 1, ... in it and closes it. Returns the number of
 * expressions without a kernel; -1: something else failed. */
static int run_in_plugin(int first, int count) {
    void *plugin = dlopen(GRADUS_CODEGEN_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    int (*run)(int) = NULL, failures = 0;
    if (plugin) *(void **)&run = dlsym(plugin, "run_plan");
    if (!run) fprintf(stderr, "%s\n", dlerror());
    for (int i = first; run && failures >= 0 && i < first + count; i++) {
        const int got = run(i);
        failures = got < 0 ? -1 : failures + got;
    }
    if (plugin) dlclose(plugin);
    return run ? failures : -1;
}

static int run_copies(void) {
    const int failures[3] = {run_in_plugin(1, 2), run_in_plugin(3, 3), run_in_plugin(6, 1)};
    const bool right = kernel_works(kernel_of(PRODUCT)) && kernel_of("a - b") && kernel_of("a / b");
    fprintf(stderr, "without a kernel: %d, %d, %d\n", failures[0], failures[1], failures[2]);
    return right && !failures[0] && !failures[1] && !failures[2] ? WORKS : 0;
}

TEST(copies_of_the_library_and_a_library_that_is_opened_again_load_their_own_kernels) {
    if (!*GRADUS_CODEGEN_PLUGIN) SKIP("this build has a sanitizer");
    fresh_cache("c");
    CHECK(run_in_child(run_copies) == WORKS); /* compiled */
    CHECK(run_in_child(run_copies) == WORKS); /* from the cache */
    folder_remove(base_folder);
}

/* --- several kernels -------------------------------------------------------------------------- */

/* A plan of up to three kernels; a plan of one shares the first. */
static int run_kernels(int count, bool *right) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y[3], *value = gd_full(gd_dims(100, 100), 0.5);
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(100, 100));
        y[0] = gd_add(gd_mul(x, x), gd_neg(x));
        y[1] = gd_cumsum(gd_sub(gd_square(gd_add(gd_cumsum(y[0], 0), gd_scalar(1))), x), 0);
        y[2] = gd_div(x, gd_add(gd_sum(gd_abs(x), .axis = -1, .keepdim = true), gd_scalar(50)));
    }
    gd_session *s = gd_session_new(graph);
    gd_tensors got = gd_session_run(s, gd_feed(x, value), ((gd_tensors){y, count}));
    *right = !gd_failed() && ((const float *)gd_data(got.at[0]))[9999] == -0.25f;
    if (count > 2) *right = *right && ((const float *)gd_data(got.at[2]))[9999] == 0.005f;
    return (int)gd_native_count().runs;
}

/* The exit code encodes compiled, loaded and run kernels as digits; 0 means wrong results. */
static int kernel_counts(int count) {
    bool right;
    const int runs = run_kernels(count, &right);
    const gd_native_counts c = gd_native_count();
    return right ? (int)(c.compiled * 25 + c.loaded * 5) + runs + 1 : 0;
}
static int one_kernel(void) { return kernel_counts(1); }
static int three_kernels(void) { return kernel_counts(3); }
static int three_in_reference(void) { /* interpreted, whatever the compiler does */
    bool right;
    run_kernels(3, &right);
    return right && gd_native_count().compiled == 0 ? WORKS : 0;
}
#define DIGITS(compiled, loaded, runs) ((compiled)*25 + (loaded)*5 + (runs) + 1)

TEST(kernels_of_a_plan_are_compiled_together_and_found_separately) {
    fresh_cache("c");
    CHECK(run_in_child(three_kernels) == DIGITS(3, 0, 1));
    CHECK(count_files(cache_folder, ".so", NULL, 0) == 3 &&
          count_files(cache_folder, "", NULL, 0) == 3);
    CHECK(run_in_child(three_kernels) == DIGITS(0, 3, 0));
    CHECK(run_in_child(one_kernel) == DIGITS(0, 1, 0));
    folder_remove(base_folder);
    fresh_cache("c");
    CHECK(run_in_child(one_kernel) == DIGITS(1, 0, 1));
    CHECK(run_in_child(three_kernels) == DIGITS(2, 1, 1));
    folder_remove(base_folder);
}

/* Uses a shell script in place of the compiler. */
static void use_script(const char *text) {
    char path[300], body[2000];
    snprintf(path, sizeof path, "%s/compiler", base_folder);
    const int length = snprintf(body, sizeof body, "#!/bin/sh\n%s\n", text);
    write_file(path, body, (size_t)length);
    CHECK(chmod(path, 0700) == 0);
    setenv("GRADUS_CC", path, 1);
}

TEST(a_kernel_that_does_not_compile_does_not_affect_the_others) {
    fresh_cache("c");
    /* fails for sources with a square, and so also for the three together */
    use_script(
        "for a in \"$@\"; do case $a in *.c) sed '1,/#define GD_NATIVE_KERNEL/d' $a | grep -q "
        "'v_mul_f32(t' && exit 1;; esac; "
        "done; exec cc \"$@\"");
    const int got = run_in_child(three_kernels);
    CHECK_SAYING(got == DIGITS(2, 0, 4), "%d", got);
    folder_remove(base_folder);
}

TEST(plans_run_without_a_compiler_that_crashes_or_hangs) {
    char pid[300];
    fresh_cache("c");
    use_script("kill -SEGV $$");
    CHECK(run_in_child(three_in_reference) == WORKS && count_files(cache_folder, "", NULL, 0) == 0);
    folder_remove(base_folder);
    fresh_cache("c");
    snprintf(pid, sizeof pid, "%s/pid", base_folder);
    char script[400];
    snprintf(script, sizeof script, "sleep 1000 & echo $! > %s; wait", pid);
    use_script(script);
    setenv("GRADUS_CC_TIMEOUT", "0.3", 1);
    CHECK(run_in_child(three_in_reference) == WORKS && count_files(cache_folder, "", NULL, 0) == 0);
    FILE *f = fopen(pid, "r"); /* the compiler's own child process is gone, too */
    int number = 0;
    CHECK(f && fscanf(f, "%d", &number) == 1 && number > 1);
    if (f) fclose(f);
    char state = 0, line[400];
    for (int i = 0; i < 1000; i++) { /* gone, or a zombie that has not been reaped yet */
        snprintf(line, sizeof line, "/proc/%d/stat", number);
        f = fopen(line, "r");
        state = 0;
        if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 0;
        if (f) fclose(f);
        if (state == 0 || state == 'Z') break;
        usleep(10000);
    }
    CHECK(state == 0 || state == 'Z');
    unsetenv("GRADUS_CC_TIMEOUT");
    folder_remove(base_folder);
}

/* --- a fork while a kernel is compiled -------------------------------------------------------- */

static int compile_in_grandchild(void) {
    unsetenv("GRADUS_CC");
    return kernel_works(kernel_of(PRODUCT)) && kernel_of("a - b*c") ? WORKS : 0;
}

static int fork_while_compiling(void) {
    char mark[300];
    bool right = false;
    pthread_t thread;
    snprintf(mark, sizeof mark, "%s/started", base_folder);
    pthread_create(&thread, NULL, make_in_thread, &right);
    while (access(mark, F_OK) != 0) usleep(1000);
    /* the child must not wait for a compiler that runs only in its parent */
    const int got = run_in_child(compile_in_grandchild);
    char go[300];
    snprintf(go, sizeof go, "%s/go", base_folder);
    write_file(go, "", 0);
    pthread_join(thread, NULL);
    return got == WORKS && right ? WORKS : got;
}

TEST(a_forked_child_does_not_wait_for_the_compiler_of_its_parent) {
    char script[900];
    fresh_cache("c");
    snprintf(script, sizeof script,
             "touch %s/started; while [ ! -e %s/go ]; do sleep 0.05; done; exec cc \"$@\"",
             base_folder, base_folder);
    use_script(script);
    CHECK(run_in_child(fork_while_compiling) == WORKS);
    folder_remove(base_folder);
}

/* --- cache size ------------------------------------------------------------------------------- */

static double bytes_of(const char *directory) {
    DIR *d = opendir(directory);
    double bytes = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat s;
        if (e->d_name[0] != '.' && fstatat(dirfd(d), e->d_name, &s, 0) == 0)
            bytes += (double)s.st_size;
    }
    if (d) closedir(d);
    return bytes;
}

static int many_kernels(void) {
    for (int i = 0; i < 12; i++) {
        char text[40];
        snprintf(text, sizeof text, "a*%d + b", i + 2 + (int)(getpid() % 1000) * 100);
        if (!kernel_of(text) || !kernel_works(kernel_of(PRODUCT))) return 0;
        gd_native_forget();
    }
    return WORKS;
}

TEST(the_cache_stays_small_and_keeps_recently_used_kernels) {
    char old[400];
    fresh_cache("c");
    CHECK(run_in_child(make_product) == (WORKS | COMPILED));
    const double one = bytes_of(cache_folder);
    char limit[32];
    snprintf(limit, sizeof limit, "%g", 5.5 * one / 1e6);
    setenv("GRADUS_CACHE_MB", limit, 1);
    /* a temporary file of a process killed yesterday */
    snprintf(old, sizeof old, "%s/new-0123456789abcdef.c", cache_folder);
    write_file(old, "x", 1);
    const struct timespec yesterday[2] = {{.tv_sec = time(NULL) - 86400},
                                          {.tv_sec = time(NULL) - 86400}};
    CHECK(utimensat(AT_FDCWD, old, yesterday, 0) == 0);
    pid_t children[3];
    for (int i = 0; i < 3; i++) children[i] = start_child(many_kernels);
    for (int i = 0; i < 3; i++) CHECK(child_wait(children[i]) == WORKS);
    CHECK_SAYING(bytes_of(cache_folder) <= 5.6 * one, "%g of %g", bytes_of(cache_folder), one);
    CHECK(count_files(cache_folder, ".so", NULL, 0) >= 3 &&
          count_files(cache_folder, ".c", NULL, 0) == 0);
    CHECK(run_in_child(make_product) == (WORKS | LOADED)); /* it was used in every round */
    unsetenv("GRADUS_CACHE_MB");
    folder_remove(base_folder);
}

TEST_MAIN
