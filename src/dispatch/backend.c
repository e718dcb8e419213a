/* backend.c - finds and loads backend libraries (gradus/backend.h), when a program asks for a device
 * by name. */
#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "core/alloc.h"
#include "dispatch/call.h"
#include "dispatch/codegen_api.h"
#include "dispatch/library_folders.h"

enum { PATH_BYTES = 1024, SEARCHED_BYTES = 600 };

/* --- host functions that a backend calls ------------------------------------------------------ */

static void log_warning(const char *text) { gd_notice(GD_LOG_WARNING, "%s", text); }
static bool is_fused(const gd_op *op) { return op->fusion != NULL; }
static size_t attrs_size_of(const gd_op *op) { return op->attrs_size; }
static const gd_ir *expression_of(const gd_op *op) { return op->ir; }

static void fill_params(const gd_op *op, const void *attrs, double *reals, int64_t *integers) {
    for (int i = 0; i < op->n_attrs && attrs; i++) {
        reals[i] = gd_attr_number(&op->attrs[i], attrs).value;
        integers[i] = gd_attr_param(&op->attrs[i], attrs, GD_I64).integer;
    }
}

static const gd_host *make_host(void) {
    static gd_host host;
    host = (gd_host){.bytes = sizeof host,
                     .version = gd_version(),
                     .layout = GD_LAYOUT,
                     .fail = gd_fail,
                     .log = log_warning,
                     .allocate = gd_malloc,
                     .release = gd_free,
                     .wait = gd_device_wait_in_call,
                     .kernel_output = gd_kernel_output,
                     .op_name = gd_op_name,
                     .op_attr_at = gd_op_attr_at,
                     .op_flags = gd_op_flags,
                     .op_is_fused = is_fused,
                     .op_attrs_size = attrs_size_of,
                     .op_expression = expression_of,
                     .op_params = fill_params,
                     .expression_types = gd_ir_types,
                     .evaluate_f64 = gd_ir_eval_real,
                     .evaluate_f32 = gd_ir_eval_f32,
                     .evaluate_integer = gd_ir_eval_integer,
                     .codegen = &gd_codegen,
                     .each_library_folder = gd_each_library_folder};
    return &host;
}

/* --- finding the library ---------------------------------------------------------------------- */

/* Opens DIRECTORY/libgradus_KIND.so if that file exists. If not, appends the path to `searched`,
 * with the reason if the file exists and cannot be opened. */
static void *open_in_folder(const char *directory, size_t length, const char *kind,
                            char *searched) {
    char path[PATH_BYTES];
    if ((size_t)snprintf(path, sizeof path, "%.*s/libgradus_%s.so", (int)length, directory, kind) >=
        sizeof path)
        return NULL;
    FILE *file = fopen(path, "rb");
    if (file) fclose(file);
    void *library = file ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const size_t used = strlen(searched);
    if (!library)
        snprintf(searched + used, SEARCHED_BYTES - used, "%s%.200s%s%.200s", used ? ", " : "", path,
                 file ? ": " : "", file ? dlerror() : "");
    return library;
}

/* The folder of this library, or of the program that it is linked into. Returns its length. The
 * name of a program, as dladdr gives it, is what its caller chose, so a program is found through
 * /proc. One with the privileges of another user, to which others may have links, has no folder. */
static size_t library_folder(char *path) {
    Dl_info info;
    struct link_map *map = NULL;
    path[0] = 0;
    if (!dladdr1((void *)(uintptr_t)library_folder, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return 0;
    const bool is_library = map->l_name && *map->l_name;
    if (!is_library && getauxval(AT_SECURE)) return 0;
    if (!realpath(is_library ? map->l_name : "/proc/self/exe", path)) return 0;
    char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

/* Visits the folders in which backends are searched, until one visit returns true. */
static void each_folder(gd_visit_folder *visit, void *arg) {
    char folder[4096];
    const char *path = secure_getenv("GRADUS_BACKEND_PATH"); /* not in a set-user-ID program */
    while (path && *path) {
        const size_t length = strcspn(path, ":");
        if (length && visit(path, length, arg)) return;
        path += length + (path[length] == ':');
    }
    const size_t length = library_folder(folder);
    static const char *const beside[] = {"", "/gradus", "/../lib/gradus"};
    for (size_t i = 0; i < sizeof beside / sizeof *beside && length; i++) {
        snprintf(folder + length, sizeof folder - length, "%s", beside[i]);
        if (visit(folder, strlen(folder), arg)) return;
    }
}

typedef struct search {
    const char *kind;
    void *library;
    char searched[SEARCHED_BYTES];
} search;

static bool search_folder(const char *folder, size_t length, void *arg) {
    search *s = arg;
    s->library = open_in_folder(folder, length, s->kind, s->searched);
    return s->library != NULL;
}

static gd_status find_library(const char *kind, void **library) {
    search s = {.kind = kind};
    each_folder(search_folder, &s);
    *library = s.library;
    if (s.library) return GD_OK;
    return gd_fail(GD_E_DEVICE,
                   "no backend '%s' was found (%s); GRADUS_BACKEND_PATH lists further folders",
                   kind, s.searched);
}

/* --- opening it ------------------------------------------------------------------------------- */

static gd_status check_info(const char *kind, const gd_backend_info *info) {
    if (!info || info->magic != GD_BACKEND_MAGIC)
        return gd_fail(GD_E_DEVICE, "libgradus_%s.so is no backend of Gradus", kind);
    if (strcmp(info->version, gd_version()) != 0)
        return gd_fail(GD_E_DEVICE,
                       "libgradus_%s.so is of version %s, this library is of version %s", kind,
                       info->version, gd_version());
    if (info->layout != GD_LAYOUT || strcmp(info->kind, kind) != 0)
        return gd_fail(GD_E_DEVICE,
                       "libgradus_%s.so was built from other op records than this library; build "
                       "both from the same source",
                       kind);
    return GD_OK;
}

enum { MAX_KINDS = GD_DEVICE_KINDS };
/* Kinds whose kernels are registered, and of these the ones with devices. */
static struct {
    char kind[32];
    bool has_devices;
} known[MAX_KINDS];
static int n_known;

static int find_known(const char *kind) {
    int i = 0;
    while (i < n_known && strcmp(known[i].kind, kind) != 0) i++;
    return i;
}

static gd_status register_kernels(const char *kind, const gd_backend *backend) {
    if (find_known(kind) < n_known) return GD_OK; /* by a load that found no device */
    for (int i = 0; i < backend->n_kernels; i++) {
        const gd_kernel *k = &backend->kernels[i];
        if (strcmp(k->device, kind) != 0)
            return gd_fail(GD_E_DEVICE, "the backend '%s' has a kernel for '%s'", kind, k->device);
        GD_TRY(gd_kernel_add(k));
    }
    snprintf(known[n_known++].kind, sizeof known[0].kind, "%s", kind);
    return GD_OK;
}

/* Registers kernels first, devices last: a device that can be found has all its kernels, so kernel
 * selection needs no lock. */
static gd_status register_backend(const char *kind, const gd_backend *backend) {
    if (backend->n_devices < 1)
        return gd_fail(GD_E_DEVICE, "the backend '%s' found no device", kind);
    GD_TRY(register_kernels(kind, backend));
    for (int i = 0; i < backend->n_devices; i++) GD_TRY(gd_device_register(backend->devices[i]));
    return GD_OK;
}

static gd_status open_backend(const char *kind) {
    void *library;
    GD_TRY(find_library(kind, &library)); /* it is never unloaded */
    const gd_backend_info *info = dlsym(library, "gradus_backend_info");
    GD_TRY(check_info(kind, info));
    gd_status (*open)(const gd_host *, gd_backend *);
    *(void **)&open = dlsym(library, "gradus_backend_open");
    if (!open) return gd_fail(GD_E_DEVICE, "libgradus_%s.so has no gradus_backend_open", kind);
    gd_backend backend = {0};
    gd_status status = open(make_host(), &backend);
    if (status == GD_OK) return register_backend(kind, &backend);
    if (backend.n_kernels > 0) register_kernels(kind, &backend);
    return status;
}

/* Loading takes the locks of the op table, of the devices and of the compiler while it holds this
 * one. Its fork handlers are registered late, at the first load, so that a fork takes it first. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void lock_before_fork(void) { pthread_mutex_lock(&lock); }
static void unlock_after_fork(void) { pthread_mutex_unlock(&lock); }
static void register_fork_handlers(void) {
    pthread_atfork(lock_before_fork, unlock_after_fork, unlock_after_fork);
}

/* Loads the backend of a kind ("cuda") and registers its kernels and devices, once. */
static gd_status load_backend(const char *kind) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork_handlers);
    gd_status status = GD_OK;
    pthread_mutex_lock(&lock);
    int at = find_known(kind);
    if (at == MAX_KINDS)
        status = gd_fail(GD_E_DEVICE, "more than %d kinds of device are loaded", MAX_KINDS);
    else if (at == n_known || !known[at].has_devices) {
        status = open_backend(kind);
        at = find_known(kind);
        if (status == GD_OK) known[at].has_devices = true;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Loads the backends of a folder. */
static bool load_folder(const char *folder, size_t length, void *arg) {
    (void)arg;
    static const char prefix[] = "libgradus_", suffix[] = ".so";
    enum { BEFORE = sizeof prefix - 1, AFTER = sizeof suffix - 1 };
    char path[PATH_BYTES], kind[32];
    snprintf(path, sizeof path, "%.*s", (int)length, folder);
    DIR *files = opendir(path);
    for (struct dirent *file; files && (file = readdir(files));) {
        const char *name = file->d_name;
        const size_t letters = strlen(name);
        if (letters <= BEFORE + AFTER || letters - BEFORE - AFTER >= sizeof kind ||
            strncmp(name, prefix, BEFORE) != 0 || strcmp(name + letters - AFTER, suffix) != 0)
            continue;
        snprintf(kind, sizeof kind, "%.*s", (int)(letters - BEFORE - AFTER), name + BEFORE);
        if (!gd_device_kind_exists(kind)) load_backend(kind);
    }
    if (files) closedir(files);
    return false;
}

void gd_backends_load(void) { each_folder(load_folder, NULL); }

/* --- devices by name -------------------------------------------------------------------------- */

/* Copies the kind of a device name: "cuda" of "cuda:1". False if the name is not valid. */
static bool device_kind(const char *name, char *kind, size_t size) {
    size_t length = strcspn(name, ":");
    if (length == 0 || length >= size ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") < length)
        return false;
    memcpy(kind, name, length);
    kind[length] = 0;
    return true;
}

static gd_status get_device(const char *name, gd_device **device) {
    char names[256], kind[32];
    *device = gd_device_find(name, names, sizeof names);
    if (*device) return GD_OK;
    /* if its kind exists, the backend is loaded and has no such device */
    if (device_kind(name, kind, sizeof kind) && !gd_device_kind_exists(kind)) {
        gd_status status = load_backend(kind);
        if (status != GD_OK) {
            gd_error_prefix("there is no device '%s' (there is %s): ", name, names);
            return status;
        }
        *device = gd_device_find(name, names, sizeof names);
    }
    return *device ? GD_OK
                   : gd_fail(GD_E_DEVICE, "there is no device '%s'; there is %s", name, names);
}

gd_device *gd_device_get(const char *name) {
    gd_device *device = NULL;
    gd_status status = get_device(name ? name : "", &device);
    if (status != GD_OK) gd_report(NULL, status);
    return device;
}

gd_status gd_set_default_device_named(const char *name) {
    gd_device *device = NULL;
    const gd_status status = name ? get_device(name, &device) : GD_OK;
    return status == GD_OK ? gd_set_default_device(device) : gd_report(NULL, status);
}
