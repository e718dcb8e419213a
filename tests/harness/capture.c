/* capture.c - see capture.h. */
#include "capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the library's log ------------------------------------------------------------------------ */

log_capture captured;

static void capture_message(gd_log_level level, const char *message, void *user) {
    const size_t length = strlen(captured.text);
    (void)user;
    if (level < captured.least) return;
    captured.infos += level == GD_LOG_INFO;
    captured.warnings += level == GD_LOG_WARNING;
    snprintf(captured.text + length, sizeof captured.text - length, "%s\n", message);
}

void capture_log(gd_log_level least) {
    captured = (log_capture){.least = least};
    gd_set_log(capture_message, NULL);
}

void end_log_capture(void) { gd_set_log(NULL, NULL); }

/* --- stderr ----------------------------------------------------------------------------------- */

static FILE *stderr_file;
static int stderr_before;

void capture_stderr(void) {
    fflush(stderr);
    stderr_file = tmpfile();
    stderr_before = dup(STDERR_FILENO);
    if (!stderr_file || stderr_before < 0) perror("capture_stderr"), abort();
    dup2(fileno(stderr_file), STDERR_FILENO);
}

char *end_stderr_capture(void) {
    fflush(stderr);
    dup2(stderr_before, STDERR_FILENO);
    close(stderr_before);
    const long bytes = lseek(fileno(stderr_file), 0, SEEK_END);
    char *text = calloc(1, (size_t)bytes + 1);
    if (!text || pread(fileno(stderr_file), text, (size_t)bytes, 0) != bytes)
        perror("end_stderr_capture"), abort();
    fclose(stderr_file);
    return text;
}
