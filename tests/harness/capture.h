/* capture.h - captures the library's log messages and the process's stderr, for tests that check
 * them.
 *
 *     capture_log(GD_LOG_WARNING);
 *     ...
 *     CHECK(captured.warnings == 1 && strstr(captured.text, "is not saved"));
 *     end_log_capture();
 */
#ifndef GRADUS_TESTS_HARNESS_CAPTURE_H
#define GRADUS_TESTS_HARNESS_CAPTURE_H

#include "gradus/status.h"

typedef struct log_capture {
    gd_log_level least; /* messages below this level are dropped */
    int infos, warnings;
    char text[20000]; /* all messages, each followed by a line break */
} log_capture;

extern log_capture captured;

/* Discards captured messages and starts to capture those of this level and above. */
void capture_log(gd_log_level least);
void end_log_capture(void);

/* Redirects stderr to a file until end_stderr_capture, which returns the text. free() it. */
void capture_stderr(void);
char *end_stderr_capture(void);

#endif
