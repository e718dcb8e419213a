/* log.c - glog's prefix before a line. See log.h. */
#include "caffe/log.h"

#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/number.h"

/* "I1117 13:55:54.546108 22943 solver.c:258] " */
static int print_prefix(char *text, size_t size, char severity, const char *file, int line) {
    struct timespec now;
    struct tm t;
    const char *name = strrchr(file, '/');
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &t);
    return snprintf(text, size, "%c%02d%02d %02d:%02d:%02d.%06ld %5ld %s:%d] ", severity,
                    t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, now.tv_nsec / 1000,
                    (long)syscall(SYS_gettid), name ? name + 1 : file, line);
}

void gd_caffe_say_at(const gd_caffe_log *log, char severity, const char *file, int line,
                     const char *format, ...) {
    char prefix[200] = "";
    va_list args;
    va_start(args, format);
    const int length = gd_vsnprintf(NULL, 0, format, args);
    va_end(args);
    const int before = log->line ? print_prefix(prefix, sizeof prefix, severity, file, line) : 0;
    char *text = gd_malloc((size_t)(before + length) + 1);
    if (!text) return;
    memcpy(text, prefix, (size_t)before);
    va_start(args, format);
    gd_vsnprintf(text + before, (size_t)length + 1, format, args);
    va_end(args);
    if (length > 0 && text[before + length - 1] == '\n') text[before + length - 1] = '\0';
    if (log->line) log->line(text, log->user);
    else gd_notice(severity == 'I' ? GD_LOG_INFO : GD_LOG_WARNING, "%s", text);
    gd_free(text);
}
