/* state_unknown.c - what a file is that holds no weights: pages, pointers and archives that were
 * saved in place of the file. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/ascii.h"
#include "io/state_format.h"

static bool begins(const gd_state_probe *p, size_t at, const char *with, size_t bytes) {
    return p->n_first >= at + bytes && memcmp(p->first + at, with, bytes) == 0;
}

/* Whether the text begins with a tag of HTML, after spaces and a byte order mark. */
static bool is_page(const gd_state_probe *p) {
    static const char *const tags[] = {"<!doctype html", "<html", "<head", "<body", "<?xml"};
    size_t at = begins(p, 0, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (at < p->n_first && memchr(" \t\r\n", p->first[at], 4)) at++;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        const size_t length = strlen(tags[i]);
        if (p->n_first >= at + length &&
            gd_is_same_word((const char *)p->first + at, tags[i], length))
            return true;
    }
    return false;
}

static bool has_file(const char *folder, const char *name) {
    char path[4096];
    struct stat info;
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && stat(path, &info) == 0;
}

static gd_status unknown_folder(const char *path) {
    if (has_file(path, "saved_model.pb"))
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: is a SavedModel folder of TensorFlow, which is not read; tf2onnx makes "
                       "an ONNX file of it",
                       path);
    return gd_fail(GD_E_IO, "%s: is a folder, not a regular file with weights", path);
}

#define BEGINS(at, with) begins(p, at, with, sizeof with - 1)

gd_status gd_state_unknown(const gd_state_probe *p) {
    if (p->is_folder) return unknown_folder(p->path);
    if (p->bytes == 0)
        return gd_fail(GD_E_FORMAT,
                       "%s: is an empty file (0 bytes); was the download or the copy interrupted? "
                       "Get the file again",
                       p->path);
    if (is_page(p))
        return gd_fail(GD_E_FORMAT,
                       "%s: is a web page, not a file of weights: its address was that of a page "
                       "about the file; download the file itself (on Hugging Face the address has "
                       "/resolve/ in place of /blob/)",
                       p->path);
    if (BEGINS(0, "version https://git-lfs."))
        return gd_fail(GD_E_FORMAT,
                       "%s: is a pointer of Git LFS, not the file itself; 'git lfs pull' in its "
                       "repository gets the file",
                       p->path);
    if (BEGINS(0, "\x1f\x8b"))
        return gd_fail(GD_E_UNSUPPORTED, "%s: is compressed with gzip; unpack it with gunzip",
                       p->path);
    if (BEGINS(257, "ustar"))
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: is a tar archive; unpack it with 'tar xf' and load the file in it",
                       p->path);
    if (BEGINS(0, "\x89HDF\r\n"))
        return gd_fail(GD_E_UNSUPPORTED, "%s: is an HDF5 file without weights that are read here",
                       p->path);
    if (p->zip)
        return gd_fail(GD_E_FORMAT,
                       "%s: is a ZIP archive without data.pkl, which files of PyTorch have, and "
                       "without .npy files",
                       p->path);
    return GD_OK;
}
