/* nvrtc_check.cpp - compiles a kernel with a real NVRTC for all architectures of the project.
 *
 *     nvrtc_check LIBRARY FOLDER OPTION...
 *
 * FOLDER has the source, "source", and the headers that it may include. The emulated NVRTC starts this
 * program without its own folder in LD_LIBRARY_PATH, because NVRTC loads a driver if there is one.
 */
#include <dirent.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

static std::string read_text(const std::string &file) {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
}

static void *library;
#define REAL(name, ...) ((int (*)(__VA_ARGS__))dlsym(library, #name))

static bool compile_for(const char *architecture, const std::map<std::string, std::string> &texts,
                        std::vector<const char *> flags) {
    std::vector<const char *> headers, names;
    for (const auto &[name, text] : texts)
        if (name != "source") names.push_back(name.c_str()), headers.push_back(text.c_str());
    const std::string target = std::string("--gpu-architecture=") + architecture;
    flags.push_back(target.c_str());
    void *program = nullptr;
    if (REAL(nvrtcCreateProgram, void **, const char *, const char *, int, const char *const *,
             const char *const *)(&program, texts.at("source").c_str(), "kernel",
                                  (int)headers.size(), headers.data(), names.data()) != 0)
        return false;
    if (REAL(nvrtcCompileProgram, void *, int, const char *const *)(program, (int)flags.size(),
                                                                    flags.data()) == 0)
        return true;
    size_t bytes = 0;
    REAL(nvrtcGetProgramLogSize, void *, size_t *)(program, &bytes);
    std::string log(bytes, 0);
    REAL(nvrtcGetProgramLog, void *, char *)(program, log.data());
    printf("%s: %s\n", architecture, log.c_str());
    return false;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return printf("%s\n", dlerror()), 1;
    std::map<std::string, std::string> texts;
    DIR *folder = opendir(argv[2]);
    if (!folder) return printf("%s cannot be read\n", argv[2]), 1;
    while (const dirent *entry = readdir(folder))
        if (entry->d_name[0] != '.')
            texts[entry->d_name] = read_text(std::string(argv[2]) + "/" + entry->d_name);
    closedir(folder);
    std::vector<const char *> flags;
    for (int i = 3; i < argc; i++)
        if (strncmp(argv[i], "--gpu-architecture", 18) != 0) flags.push_back(argv[i]);
    for (const char *architecture : {"sm_80", "sm_90", "sm_100"})
        if (!compile_for(architecture, texts, flags)) return 1;
    return 0;
}
