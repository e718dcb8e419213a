/* log.h - the lines of a solver, with the text that Caffe's log has, which its parsers read.
 *
 * A program that gives a function for them gets each with glog's prefix: "I1117 13:55:54.546108 22943
 * solver_log.c:25] Iteration 100, lr = 0.01". Without one they go to the log of the library, bare.
 */
#ifndef GRADUS_CAFFE_LOG_H
#define GRADUS_CAFFE_LOG_H

#include "core/error.h"

typedef struct gd_caffe_log {
    void (*line)(const char *line, void *user); /* NULL: the library's log */
    void *user;
} gd_caffe_log;

/* Numbers are printed as by C++: %g. `file` may have folders. */
void gd_caffe_say_at(const gd_caffe_log *log, char severity, const char *file, int line,
                     const char *format, ...) GD_PRINTF(5, 6);
#define gd_caffe_say(log, ...)  gd_caffe_say_at(log, 'I', __FILE__, __LINE__, __VA_ARGS__)
#define gd_caffe_warn(log, ...) gd_caffe_say_at(log, 'W', __FILE__, __LINE__, __VA_ARGS__)

#endif
