/* nvrtc.cpp - an emulated NVRTC, libnvrtc.so.13: compiles kernels for the emulated driver with the
 * system's C++ compiler. The "machine code" is the path of a library.
 *
 * If GRADUS_NVRTC_CHECK is the path of a real NVRTC, that also compiles each kernel, for all
 * architectures of the project; GRADUS_NVRTC_SAMPLE=N checks one kernel in N (GRADUS_TEST_FULL=1: all).
 */
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

struct program {
    std::string source, code, log;
    std::vector<std::string> headers, header_names;
};

static std::string read_text(const std::string &file) {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
}

/* Compiled kernels, by a hash of their source and of shim.h; kept between runs of the tests. */
static std::string cache_folder() {
    const char *set = getenv("GRADUS_EMULATED_CACHE");
    return set ? set : EMULATED_CACHE;
}

static std::string hash_text(const std::string &text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
    char digits[20];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)hash);
    return digits;
}

static bool has_barriers(const std::string &source) {
    for (const char *word : {"__syncthreads", "__syncwarp", "__shfl", "__ballot"})
        if (source.find(word) != std::string::npos) return true;
    return false;
}

/* The name after "__global__ void", without the launch bounds. */
static std::string kernel_name(const std::string &source) {
    size_t at = source.find("__global__ void ");
    if (at == std::string::npos) return "";
    at += strlen("__global__ void ");
    const std::string bounds = "__launch_bounds__";
    if (source.compare(at, bounds.size(), bounds) == 0) at = source.find(')', at) + 2;
    return source.substr(at, source.find('(', at) - at);
}

/* --- a real NVRTC ------------------------------------------------------------------------------- */

/* Whether a real NVRTC, if there is one, compiles the program (nvrtc_check.cpp). A file records that
 * it did. */
static bool check_with_real(program *p, const std::string &base,
                            const std::vector<std::string> &options) {
    const char *const path = getenv("GRADUS_NVRTC_CHECK"), *const sample =
                                                               getenv("GRADUS_NVRTC_SAMPLE");
    const bool all = getenv("GRADUS_TEST_FULL") || !sample || atol(sample) < 1;
    const unsigned long one_in = all ? 1 : (unsigned long)atol(sample);
    const std::string passed = base + ".checked", folder = base + "." + std::to_string(getpid());
    if (!path || !*path || strtoull(hash_text(p->source).c_str(), nullptr, 16) % one_in != 0 ||
        access(passed.c_str(), R_OK) == 0)
        return true;
    mkdir(folder.c_str(), 0777);
    std::ofstream(folder + "/source") << p->source;
    for (size_t i = 0; i < p->headers.size(); i++)
        std::ofstream(folder + "/" + p->header_names[i]) << p->headers[i];
    const std::string file = path, beside = file.substr(0, file.rfind('/') + 1); /* its builtins */
    std::string command =
        "LD_LIBRARY_PATH=" + beside + " " EMULATED_CHECK " " + file + " " + folder;
    for (const std::string &option : options) command += " " + option;
    const int status = system((command + " > " + folder + ".log 2>&1").c_str());
    p->log = read_text(folder + ".log");
    if (status == 0) std::ofstream(passed) << "\n";
    for (const std::string &name : p->header_names) unlink((folder + "/" + name).c_str());
    unlink((folder + "/source").c_str());
    unlink((folder + ".log").c_str());
    rmdir(folder.c_str());
    return status == 0;
}

/* --- the functions of NVRTC --------------------------------------------------------------------- */

extern "C" {

int nvrtcCreateProgram(program **p, const char *source, const char *, int n,
                       const char *const *headers, const char *const *names) {
    *p = new program{source, "", "", {}, {}};
    for (int i = 0; i < n; i++) {
        (*p)->headers.push_back(headers[i]);
        (*p)->header_names.push_back(names[i]);
    }
    return 0;
}

int nvrtcCompileProgram(program *p, int n, const char *const *options) {
    const std::string name = kernel_name(p->source);
    const std::string text =
        "#include \"" EMULATED_PRELUDE "\"\n" + p->source +
        "\nextern \"C\" const emulated_kernel emulated_kernels_compiled[];\n"
        "const emulated_kernel emulated_kernels_compiled[] = {EMULATED_KERNEL(" +
        name + (has_barriers(p->source) ? ", true), {}};\n" : ", false), {}};\n");
    static const std::string shim = read_text(EMULATED_SHIM);
    const std::string base = cache_folder() + "/" + hash_text(shim + text), library = base + ".so";
    if (!check_with_real(p, base, {options, options + n})) return 6; /* NVRTC_ERROR_COMPILATION */
    if (access(library.c_str(), R_OK) != 0) {
        const std::string own = base + "." + std::to_string(getpid());
        std::ofstream(own + ".cpp") << text;
        const std::string compile = EMULATED_COMPILER " -c " + own + ".cpp -o " + own + ".o",
                          link = EMULATED_LINKER " -shared " + own + ".o -o " + own +
                                 ".so " EMULATED_FOLDER "/libcuda.so.1 -Wl,-rpath," EMULATED_FOLDER,
                          log = " > " + own + ".log 2>&1";
        const int status = system((compile + log + " && " + link + log).c_str());
        p->log = read_text(own + ".log");
        if (status == 0) rename((own + ".so").c_str(), library.c_str());
        unlink((own + ".cpp").c_str());
        unlink((own + ".o").c_str());
        unlink((own + ".log").c_str());
        if (status != 0) return 6;
    }
    p->code = "emulated:" + library;
    return 0;
}

int nvrtcGetCUBINSize(program *p, size_t *bytes) {
    *bytes = p->code.size() + 1;
    return 0;
}
int nvrtcGetCUBIN(program *p, char *code) {
    memcpy(code, p->code.c_str(), p->code.size() + 1);
    return 0;
}
int nvrtcGetProgramLogSize(program *p, size_t *bytes) {
    *bytes = p->log.size() + 1;
    return 0;
}
int nvrtcGetProgramLog(program *p, char *log) {
    memcpy(log, p->log.c_str(), p->log.size() + 1);
    return 0;
}
int nvrtcDestroyProgram(program **p) {
    delete *p;
    *p = nullptr;
    return 0;
}

} // extern "C"
