/* test_jit.c - kernels compiled while a program runs, and the files they are kept in.
 *
 * What a process has loaded stays loaded, so each part runs in a child of its own; what it returns
 * says what it saw.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/elementwise_job.h"
#include "codegen/jit.h"
#include "gradus/gradus.h"
#include "test.h"

/* --- expressions
 * ---------------------------------------------------------------------------------- */

typedef struct expression {
    gd_ir ir;
    gd_ir_node nodes[GD_IR_MAX_NODES];
} expression;

static int lookup(gd_ir_builder *b, void *context, const char *name, size_t length) {
    (void)context;
    return length == 1 && *name >= 'a' && *name <= 'c' ? gd_ir_var(b, *name - 'a') : -1;
}

static void parse(expression *e, const char *text) {
    gd_ir_builder b = {.count = 0};
    memset(e, 0, sizeof *e);
    int node = gd_ir_parse(&b, text, lookup, NULL);
    CHECK_SAYING(node >= 0, "%s", b.error);
    e->ir = gd_ir_finish(&b, &node, 1, e->nodes);
}

static gd_ew_fn kernel_of(const char *text) {
    expression e;
    parse(&e, text);
    return (gd_ew_fn)(void *)gd_jit_kernel(&(gd_jit_source){.ir = &e.ir, .type = "f32"},
                                           gd_ew_target(gd_cpu_isa()));
}

/* Whether it is there and computes a*b + a, over a length that is no multiple of a vector. */
static bool works(gd_ew_fn fn) {
    float a[37], b[37], y[37];
    if (!fn) return false;
    for (int i = 0; i < 37; i++) a[i] = 0.5f * (float)i, b[i] = 3.0f - (float)i, y[i] = -1;
    fn(37, (const void *const[]){a, b}, (void *const[]){y}, NULL);
    for (int i = 0; i < 37; i++)
        if (y[i] != a[i] * b[i] + a[i]) return false;
    return true;
}
#define PRODUCT "a*b + a"

/* --- processes and directories
 * --------------------------------------------------------------------- */

/* The bits that a child returns. */
enum { WORKS = 1, COMPILED = 2, LOADED = 4, FAILED = 8 };

static int make_product(void) {
    gd_ew_fn fn = kernel_of(PRODUCT);
    gd_jit_counts c = gd_jit_count();
    return (works(fn) ? WORKS : 0) | (c.compiled ? COMPILED : 0) | (c.loaded ? LOADED : 0) |
           (c.failed ? FAILED : 0);
}

static pid_t start(int (*body)(void)) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(body());
    return child;
}

static int finish(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status) - 1000;
}

static int in_child(int (*body)(void)) { return finish(start(body)); }

static char base[64], cache[256];

static void fresh_cache(const char *name) {
    snprintf(base, sizeof base, "/tmp/gradus-jit-XXXXXX");
    CHECK(mkdtemp(base) != NULL);
    snprintf(cache, sizeof cache, "%s/%s", base, name);
    setenv("GRADUS_CACHE", cache, 1);
    unsetenv("GRADUS_CC");
    unsetenv("GRADUS_JIT");
}

/* Its files, and the name of the last one that ends so. */
static int files(const char *directory, const char *end, char *last, size_t size) {
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

static void remove_tree(const char *path) {
    pid_t child = fork();
    if (child == 0) {
        execlp("rm", "rm", "-rf", "--", path, (char *)NULL);
        _exit(1);
    }
    finish(child);
}

/* --- what must work
 * --------------------------------------------------------------------------------- */

TEST(a_kernel_is_compiled_once_and_then_found) {
    fresh_cache("new/deeper");
    CHECK(in_child(make_product) == (WORKS | COMPILED));
    CHECK(in_child(make_product) == (WORKS | LOADED));
    CHECK(files(cache, "", NULL, 0) == 1 && files(cache, ".so", NULL, 0) == 1);
    struct stat s;
    CHECK(stat(cache, &s) == 0 && (s.st_mode & 0777) == 0700);
    remove_tree(base);
}

static int with_default_directory(void) {
    unsetenv("GRADUS_CACHE");
    return make_product();
}

TEST(the_directory_follows_the_environment) {
    char path[300];
    fresh_cache("x");
    setenv("XDG_CACHE_HOME", base, 1);
    CHECK(in_child(with_default_directory) == (WORKS | COMPILED));
    snprintf(path, sizeof path, "%s/gradus", base);
    CHECK(files(path, ".so", NULL, 0) == 1);
    unsetenv("XDG_CACHE_HOME");
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    setenv("HOME", base, 1);
    CHECK(in_child(with_default_directory) == (WORKS | COMPILED));
    snprintf(path, sizeof path, "%s/.cache/gradus", base);
    CHECK(files(path, ".so", NULL, 0) == 1);
    if (home) setenv("HOME", home, 1);
    free(home);
    remove_tree(base);
}

TEST(names_are_never_read_by_a_shell) {
    char proof[300];
    fresh_cache("it's \"a\" dir; touch $(touch proof) `touch proof` & -o x");
    snprintf(proof, sizeof proof, "%s/proof", base);
    CHECK(chdir(base) == 0);
    CHECK(in_child(make_product) == (WORKS | COMPILED) &&
          in_child(make_product) == (WORKS | LOADED));
    CHECK(access(proof, F_OK) != 0);
    CHECK(chdir("/") == 0);
    remove_tree(base);
}

static void *make_in_thread(void *arg) {
    *(bool *)arg = works(kernel_of(PRODUCT));
    return NULL;
}

static int make_in_threads(void) {
    pthread_t threads[6];
    bool right[6] = {false};
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], NULL, make_in_thread, &right[i]);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 6; i++)
        if (!right[i]) return 0;
    return gd_jit_count().compiled == 1 && gd_jit_count().loaded == 0 ? WORKS : COMPILED;
}

TEST(threads_that_want_the_same_kernel_wait_for_one_compiler) {
    fresh_cache("c");
    CHECK(in_child(make_in_threads) == WORKS);
    remove_tree(base);
}

TEST(processes_may_fill_the_cache_at_once) {
    fresh_cache("c");
    pid_t children[4];
    for (int i = 0; i < 4; i++) children[i] = start(make_product);
    for (int i = 0; i < 4; i++) CHECK(finish(children[i]) & WORKS);
    CHECK(files(cache, "", NULL, 0) == 1 && files(cache, ".so", NULL, 0) == 1);
    remove_tree(base);
}

/* --- files that are not what they should be
 * --------------------------------------------------------- */

static void write_file(const char *path, const char *text, size_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    CHECK(fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes);
    close(fd);
}

TEST(a_file_that_was_cut_short_is_made_again) {
    char file[512];
    fresh_cache("c");
    CHECK(in_child(make_product) == (WORKS | COMPILED));
    CHECK(files(cache, ".so", file, sizeof file) == 1);
    struct stat s;
    CHECK(stat(file, &s) == 0);
    const off_t sizes[] = {0, 1, 63, 500, 4096, s.st_size / 2, s.st_size - 41, s.st_size - 1};
    for (int i = 0; i < 8; i++) {
        CHECK(truncate(file, sizes[i]) == 0);
        const int got = in_child(make_product);
        CHECK_SAYING(got == (WORKS | COMPILED), "%d bytes: %d", (int)sizes[i], got);
    }
    remove_tree(base);
}

TEST(a_file_of_another_kind_is_made_again) {
    char file[512];
    fresh_cache("c");
    CHECK(in_child(make_product) == (WORKS | COMPILED));
    CHECK(files(cache, ".so", file, sizeof file) == 1);
    write_file(file, "this is no library", 18);
    CHECK(in_child(make_product) == (WORKS | COMPILED));
    int fd = open(file, O_WRONLY); /* a byte in the middle */
    CHECK(fd >= 0 && pwrite(fd, "\xff", 1, 2000) == 1 && close(fd) == 0);
    CHECK(in_child(make_product) == (WORKS | COMPILED));
    unlink(file);
    CHECK(symlink("/etc/passwd", file) == 0);
    CHECK(in_child(make_product) == (WORKS | COMPILED));
    CHECK(access("/etc/passwd", R_OK) == 0);
    remove_tree(base);
}

static int make_other(void) { return kernel_of("a - b") ? WORKS : 0; }

/* A whole file of ours, but of another expression: the key inside tells. */
TEST(the_kernel_of_another_expression_is_not_taken) {
    char mine[512], other[512], kept[600];
    fresh_cache("c");
    CHECK(in_child(make_product) == (WORKS | COMPILED) &&
          files(cache, ".so", mine, sizeof mine) == 1);
    snprintf(kept, sizeof kept, "%s/kept", base);
    CHECK(rename(mine, kept) == 0);
    CHECK(in_child(make_other) == WORKS && files(cache, ".so", other, sizeof other) == 1);
    CHECK(rename(other, mine) == 0);
    CHECK(in_child(make_product) == (WORKS | COMPILED));
    remove_tree(base);
}

/* --- where it must not work
 * --------------------------------------------------------------------------- */

TEST(a_directory_that_others_can_use_is_left_alone) {
    static const mode_t modes[] = {0755, 0770, 0701, 0777};
    for (int i = 0; i < 4; i++) {
        fresh_cache("c");
        CHECK(mkdir(cache, 0700) == 0 && chmod(cache, modes[i]) == 0);
        CHECK(in_child(make_product) == FAILED && files(cache, "", NULL, 0) == 0);
        remove_tree(base);
    }
    char real[300];
    fresh_cache("c");
    snprintf(real, sizeof real, "%s/real", base);
    CHECK(mkdir(real, 0700) == 0 && symlink(real, cache) == 0);
    CHECK(in_child(make_product) == FAILED && files(real, "", NULL, 0) == 0);
    remove_tree(base);
    fresh_cache("c");
    write_file(cache, "a file", 6);
    CHECK(in_child(make_product) == FAILED);
    remove_tree(base);
}

TEST(a_directory_of_another_user_is_left_alone) {
    if (geteuid() != 0) SKIP("only root can give a directory away");
    fresh_cache("c");
    CHECK(mkdir(cache, 0700) == 0 && chown(cache, 12345, 12345) == 0);
    CHECK(in_child(make_product) == FAILED && files(cache, "", NULL, 0) == 0);
    remove_tree(base);
}

TEST(without_a_compiler_there_is_no_kernel_and_no_rest) {
    static const char *const compilers[] = {"/no/such/compiler", "no-such-compiler", "/bin/false",
                                            "/bin/true",         "/etc/passwd",      "/tmp"};
    for (int i = 0; i < 6; i++) {
        fresh_cache("c");
        setenv("GRADUS_CC", compilers[i], 1);
        CHECK_SAYING(in_child(make_product) == FAILED && files(cache, "", NULL, 0) == 0, "%s",
                     compilers[i]);
        remove_tree(base);
    }
    fresh_cache("c");
    setenv("GRADUS_JIT", "0", 1);
    CHECK(in_child(make_product) == FAILED && access(cache, F_OK) != 0);
    remove_tree(base);
}

/* --- in a plan
 * ------------------------------------------------------------------------------------------ */

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
    gd_jit_counts c = gd_jit_count();
    return (right ? WORKS : 0) | (c.compiled ? COMPILED : 0) |
           (c.failed && debug_messages == 1 ? FAILED : 0);
}

TEST(a_plan_runs_with_a_compiler_and_without) {
    fresh_cache("c");
    CHECK(in_child(run_a_plan) == (WORKS | COMPILED));
    setenv("GRADUS_CC", "/bin/false", 1);
    CHECK(in_child(run_a_plan) == (WORKS | FAILED));
    unsetenv("GRADUS_CC");
    setenv("GRADUS_JIT", "0", 1);
    CHECK(in_child(run_a_plan) == (WORKS | FAILED));
    unsetenv("GRADUS_JIT");
    remove_tree(base);
}

TEST_MAIN
