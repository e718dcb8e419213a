/* empty.c - a library without functions, which stands for one that is missing or too old. The
 * folder emulated_cuda/no_NAME has all emulated libraries, but this one as NAME. */
extern const int gradus_empty_library;
__attribute__((visibility("default"))) const int gradus_empty_library = 1;
