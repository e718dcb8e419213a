/* stages.c - the stages of a net, which a program names in one text. */
#include "caffe/stages.h"

#include <string.h>

#include "core/error.h"
#include "dispatch/intern.h"

gd_status gd_caffe_read_stages(const char *text, const char *stages[GD_CAFFE_MAX_STAGES],
                               int *count) {
    char name[200];
    *count = 0;
    for (const char *s = text ? text : ""; *(s += strspn(s, " "));) {
        const size_t n = strcspn(s, " ");
        if (n >= sizeof name || *count == GD_CAFFE_MAX_STAGES)
            return gd_fail(GD_E_ARGUMENT, "stages: too long, or more than %d names",
                           GD_CAFFE_MAX_STAGES);
        memcpy(name, s, n);
        name[n] = 0;
        if (!(stages[(*count)++] = gd_intern(name))) return gd_no_memory(NULL, "for a net");
        s += n;
    }
    return GD_OK;
}
