/* nvrtc.cpp - an emulated NVRTC, libnvrtc.so.13: compiles kernels for the emulated driver with the
 * system's C++ compiler. The "machine code" is the path of a library. */
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

struct program {
    std::string source, code, log;
};

/* Compiled kernels, by a hash of their source; kept between runs of the tests. */
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

extern "C" {

int nvrtcCreateProgram(program **p, const char *source, const char *, int, const char *const *,
                       const char *const *) {
    *p = new program{source, "", ""};
    return 0;
}

int nvrtcCompileProgram(program *p, int, const char *const *) {
    const std::string name = kernel_name(p->source);
    const std::string text =
        "#include \"" EMULATED_PRELUDE "\"\n" + p->source +
        "\nextern \"C\" const emulated_kernel emulated_kernels_compiled[];\n"
        "const emulated_kernel emulated_kernels_compiled[] = {EMULATED_KERNEL(" +
        name + (has_barriers(p->source) ? ", true), {}};\n" : ", false), {}};\n");
    const std::string base = cache_folder() + "/" + hash_text(text), library = base + ".so";
    if (access(library.c_str(), R_OK) != 0) {
        const std::string own = base + "." + std::to_string(getpid());
        std::ofstream(own + ".cpp") << text;
        const std::string command = EMULATED_COMPILER " -shared " + own + ".cpp -o " + own +
                                    ".so " EMULATED_FOLDER "/libcuda.so.1 -Wl,-rpath," EMULATED_FOLDER
                                    " > " + own + ".log 2>&1";
        const int status = system(command.c_str());
        std::ifstream log(own + ".log");
        p->log.assign(std::istreambuf_iterator<char>(log), {});
        if (status == 0) rename((own + ".so").c_str(), library.c_str());
        unlink((own + ".cpp").c_str());
        unlink((own + ".log").c_str());
        if (status != 0) return 6; /* NVRTC_ERROR_COMPILATION */
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
