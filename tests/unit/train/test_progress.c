/* test_progress.c - progress output in terminals of any width, files and pipes. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "capture.h"
#include "child.h"
#include "clean_test.h"
#include "fit_things.h"
#include "gradus/gradus.h"
#include "train/progress.h"

static const gd_progress_value values[] = {
    {"loss", 0.12345}, {"accuracy", 0.9712}, {"val_loss", 0.31}, {"val_accuracy", 0.95}};

static gd_progress_numbers half_done(void) {
    return (gd_progress_numbers){.what = "epoch",
                                 .epoch = 2,
                                 .epochs = 5,
                                 .batch = 844,
                                 .batches = 1875,
                                 .rate = 21312,
                                 .left = 12,
                                 .seconds = 4.2,
                                 .values = values,
                                 .n_values = 2};
}

static int column_count(const char *text) {
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

TEST(bars_fit_the_terminal_width) {
    static const struct {
        int width;
        const char *text;
    } cases[] = {
        {100, "epoch 2/5 ===========>----------------  45%   844/1875  21.3k/s  0:12  loss 0.1235  "
              "accuracy 0.9712"},
        {80, "epoch 2/5 =======>-----------  45%  21.3k/s  0:12  loss 0.1235  accuracy 0.9712"},
        {40, "epoch 2/5 =>---  45%  0:12  loss 0.1235"},
        {20, "2/5  loss 0.1235"},
        {8, "2/5"},
        {1, "2"},
    };
    char text[GD_PROGRESS_TEXT];
    const gd_progress_numbers n = half_done();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gd_progress_bar(&n, cases[i].width, (gd_progress_style){false, false}, text);
        CHECK_SAYING(strcmp(text, cases[i].text) == 0, "width %d: '%s'", cases[i].width, text);
    }
    for (int width = 1; width < 200; width++)
        for (int batch = 0; batch <= 1875; batch += 125) {
            gd_progress_numbers any = n;
            any.batch = batch;
            any.left = batch ? 1e5 / batch : NAN;
            gd_progress_bar(&any, width, (gd_progress_style){true, false}, text);
            CHECK_SAYING(column_count(text) < (width > 2 ? width : 2), "width %d: '%s'", width,
                         text);
            any.batches = any.epochs = 0;
            gd_progress_bar(&any, width, (gd_progress_style){true, false}, text);
            CHECK_SAYING(column_count(text) < (width > 2 ? width : 2), "width %d: '%s'", width,
                         text);
        }
}

TEST(permanent_lines_end_with_a_newline) {
    char text[GD_PROGRESS_TEXT];
    gd_progress_numbers n = half_done();
    n.n_values = 4;
    gd_progress_result(&n, 0, text);
    CHECK_SAYING(strcmp(text, "epoch 2/5  4.2s  21.3k/s  loss 0.1235  accuracy 0.9712  val_loss "
                              "0.3100  val_accuracy 0.9500") == 0,
                 "%s", text);
    gd_progress_result(&n, 80, text);
    CHECK_SAYING(strcmp(text, "epoch 2/5  4.2s  21.3k/s  loss 0.1235  accuracy 0.9712  val_loss "
                              "0.3100\n  val_accuracy 0.9500") == 0,
                 "%s", text);
    gd_progress_middle(&n, text);
    CHECK_SAYING(strncmp(text, "epoch 2/5  45%   844/1875  21.3k/s  0:12 left  loss 0.1235", 58) ==
                     0,
                 "%s", text);
}

TEST(numbers_are_printed_short) {
    static const struct {
        double value;
        const char *number;
    } numbers[] = {{0.12345, "0.1235"}, {0, "0.0000"},       {-1.5, "-1.5000"},
                   {12.3456, "12.346"}, {123.456, "123.46"}, {4321.5, "4321.5"},
                   {123456, "123456"},  {1e7, "1.00e+07"},   {1.2e-5, "1.20e-05"},
                   {NAN, "nan"},        {INFINITY, "inf"},   {-INFINITY, "-inf"}};
    char text[32];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        gd_progress_number(numbers[i].value, text);
        CHECK_SAYING(strcmp(text, numbers[i].number) == 0, "'%s', not '%s'", text,
                     numbers[i].number);
    }
    static const struct {
        double seconds;
        const char *time;
    } times[] = {{0, "0:00"},         {12.4, "0:12"}, {59.6, "1:00"}, {3725, "1:02:05"},
                 {90061, "1d 01:01"}, {-1, "?"},      {NAN, "?"},     {1e30, "?"}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        gd_progress_time(times[i].seconds, text);
        CHECK_SAYING(strcmp(text, times[i].time) == 0, "'%s', not '%s'", text, times[i].time);
    }
    static const struct {
        double rate;
        const char *text;
    } rates[] = {{0.25, "0.25/s"},   {3.44, "3.4/s"},   {812, "812/s"},
                 {21312, "21.3k/s"}, {999.7, "1.0k/s"}, {3.2e6, "3.2M/s"}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        gd_progress_rate(rates[i].rate, text);
        CHECK_SAYING(strcmp(text, rates[i].text) == 0, "'%s', not '%s'", text, rates[i].text);
    }
}

/* --- runs ------------------------------------------------------------------------------------- */

static gd_status wait_a_little(gd_event *event, void *self) {
    (void)event, (void)self;
    usleep(10000);
    return GD_OK;
}

static void run_training(gd_progress mode) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd", .loss = "cross_entropy", .metrics = "accuracy");
    gd_fit(net, gd_list(x, y), .epochs = 2, .batch = 2, .progress = mode,
           .validation_tensors = gd_list(x, y),
           .callbacks = gd_callbacks(gd_callback_from(NULL, .batch_end = wait_a_little)));
}

/* Reads what a child writes to its stderr, which is connected to `mine`. */
static void read_child(int theirs, int mine, gd_progress mode, char *text, size_t size) {
    const pid_t child = fork();
    if (child == 0) {
        dup2(theirs, STDERR_FILENO);
        close(mine);
        run_training(mode);
        _exit(0);
    }
    close(theirs);
    size_t used = 0;
    for (ssize_t n; (n = read(mine, text + used, size - 1 - used)) > 0;) used += (size_t)n;
    text[used] = '\0';
    close(mine);
    child_wait(child);
}

static void read_terminal(int width, const char *term, gd_progress mode, char *text, size_t size) {
    const int mine = posix_openpt(O_RDWR | O_NOCTTY);
    char name[100];
    CHECK(mine >= 0 && grantpt(mine) == 0 && unlockpt(mine) == 0 &&
          ptsname_r(mine, name, sizeof name) == 0);
    const int theirs = open(name, O_RDWR | O_NOCTTY);
    const struct winsize window = {.ws_row = 24, .ws_col = (unsigned short)width};
    CHECK(theirs >= 0 && ioctl(theirs, TIOCSWINSZ, &window) == 0);
    setenv("TERM", term, 1);
    read_child(theirs, mine, mode, text, size);
}

static int count_occurrences(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

static char seen[1 << 18];

/* Returns the width of the widest line. Lines end at \r and
 * ; escape sequences have no width. */
static int widest_line(const char *text) {
    int widest = 0, width = 0;
    for (; *text; text++) {
        if (*text == '\x1b') {
            while (*text && !(*text >= 'A' && *text <= 'Z') && !(*text >= 'a' && *text <= 'z'))
                text++;
            continue;
        }
        if (*text == '\r' || *text == '\n') width = 0;
        else width += ((unsigned char)*text & 0xC0) != 0x80;
        if (width > widest) widest = width;
    }
    return widest;
}

TEST(a_terminal_gets_a_bar) {
    static const int widths[] = {80, 40, 22};
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
    for (int i = 0; i < 3; i++) {
        read_terminal(widths[i], "xterm", GD_PROGRESS_AUTO, seen, sizeof seen);
        CHECK_SAYING(widest_line(seen) < widths[i], "width %d: %d columns\n%s", widths[i],
                     widest_line(seen), seen);
        CHECK_SAYING(count_occurrences(seen, "\r") >= 4 && strstr(seen, "epoch 2/2  ") &&
                         strstr(seen, "val_accuracy"),
                     "%s", seen);
        /* updates at most ten times a second: 60 batches of 10 ms take longer than half a second */
        CHECK_SAYING(count_occurrences(seen, "\x1b[K") < 30, "%d redraws",
                     count_occurrences(seen, "\x1b[K"));
    }
    read_terminal(16, "xterm", GD_PROGRESS_AUTO, seen, sizeof seen); /* no room for a bar */
    CHECK_SAYING(strstr(seen, "━") == NULL, "%s", seen);
    read_terminal(80, "xterm", GD_PROGRESS_AUTO, seen, sizeof seen);
    CHECK(strstr(seen, "━") && strstr(seen, "\x1b[32m"));
    setenv("NO_COLOR", "1", 1);
    setenv("LC_ALL", "C", 1);
    read_terminal(80, "xterm", GD_PROGRESS_AUTO, seen, sizeof seen);
    CHECK(!strstr(seen, "━") && !strstr(seen, "\x1b[32m") && strstr(seen, "=>"));
    unsetenv("NO_COLOR");
}

static void check_lines(const char *text) {
    CHECK_SAYING(!strchr(text, '\x1b') && count_occurrences(text, "epoch 1/2") == 1 &&
                     count_occurrences(text, "epoch 2/2") == 1,
                 "%s", text);
    CHECK(strstr(text, "val_accuracy 0."));
}

TEST(a_pipe_and_a_dumb_terminal_get_lines) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    read_child(ends[1], ends[0], GD_PROGRESS_AUTO, seen, sizeof seen);
    check_lines(seen);
    CHECK_SAYING(!strchr(seen, '\r') && count_occurrences(seen, "\n") == 2, "%s", seen);
    read_terminal(80, "dumb", GD_PROGRESS_AUTO, seen, sizeof seen);
    check_lines(seen);
    CHECK(pipe(ends) == 0);
    read_child(ends[1], ends[0], GD_PROGRESS_NONE, seen, sizeof seen);
    CHECK(seen[0] == '\0');
}

/* --- receivers -------------------------------------------------------------------------------- */

typedef struct receiver {
    gd_progress_receiver receiver;
    char text[1 << 16];
    size_t used;
    int calls, finals, wrong; /* wrong: `final` is not the end of a line, or another thread calls */
    int fails_at;             /* the call that fails; 0: none */
    pthread_t thread;
} receiver;

static gd_status receive(const char *text, bool final, void *user) {
    receiver *r = user;
    const size_t bytes = strlen(text);
    r->calls++;
    r->finals += final;
    r->wrong += final != (text[bytes - 1] == '\n') || !pthread_equal(r->thread, pthread_self());
    r->wrong += gd_item(gd_sum(gd_ones(gd_dims(3)))) != 3; /* it may call the library */
    if (r->used + bytes < sizeof r->text) memcpy(r->text + r->used, text, bytes + 1);
    r->used += bytes;
    return r->calls == r->fails_at ? gd_raise(GD_E_IO, "the window is closed") : GD_OK;
}

static void start_receiver(receiver *r, int width) {
    *r = (receiver){.receiver = {receive, r, .redraws = width > 0, .width = width},
                    .thread = pthread_self()};
}

static gd_history *fit_with(gd_module *net, int64_t epochs, gd_progress mode,
                            const gd_progress_receiver *r) {
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_compile(net, .optimizer = "sgd", .loss = "cross_entropy", .metrics = "accuracy");
    return gd_fit(net, gd_list(x, y), .epochs = epochs, .batch = 2, .progress = mode,
                  .validation_tensors = gd_list(x, y), .progress_receiver = r,
                  .callbacks = gd_callbacks(gd_callback_from(NULL, .batch_end = wait_a_little)));
}

/* Removes what times decide from "epoch 1/2  0.7s  85/s  loss 1.0323". */
static void drop_times(char *text) {
    char *to = text;
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n'), *from = strstr(line, "  "),
                   *loss = strstr(line, "loss ");
        CHECK(end && from && loss && from < loss && loss < end);
        memmove(to, line, (size_t)(from - line));
        to += from - line;
        memmove(to, loss, (size_t)(end + 1 - loss));
        to += end + 1 - loss;
        line = end + 1;
    }
    *to = '\0';
}

TEST(a_receiver_gets_what_stderr_gets) {
    GD_SCOPE;
    static receiver r;
    int ends[2];
    CHECK(pipe(ends) == 0);
    read_child(ends[1], ends[0], GD_PROGRESS_AUTO, seen, sizeof seen);
    start_receiver(&r, 0);
    capture_stderr();
    gd_history *h = fit_with(make_net(), 2, GD_PROGRESS_AUTO, &r.receiver);
    char *other = end_stderr_capture();
    CHECK_SAYING(h && !*other, "%s%s", gd_error_message(), other);
    free(other);
    CHECK_SAYING(r.calls == 2 && r.finals == 2 && r.wrong == 0, "%d calls, %d final: %s", r.calls,
                 r.finals, r.text);
    drop_times(r.text);
    drop_times(seen);
    CHECK_SAYING(strcmp(r.text, seen) == 0, "%s\n%s", r.text, seen);
}

TEST(a_receiver_that_redraws_gets_a_bar) {
    static receiver r;
    for (int utf8 = 0; utf8 < 2; utf8++) {
        GD_SCOPE;
        start_receiver(&r, utf8 ? 50 : 40);
        r.receiver.utf8 = r.receiver.colour = utf8;
        CHECK(fit_with(make_net(), 2, GD_PROGRESS_AUTO, &r.receiver));
        CHECK_SAYING(widest_line(r.text) < r.receiver.width && r.wrong == 0, "%s", r.text);
        CHECK_SAYING(r.finals == 2 && r.calls > 4 && count_occurrences(r.text, "\r") == r.calls,
                     "%d calls, %d final: %s", r.calls, r.finals, r.text);
        CHECK((strstr(r.text, "━") != NULL) == utf8 &&
              (strstr(r.text, "\x1b[32m") != NULL) == utf8);
        start_receiver(&r, 40); /* the mode counts, not the receiver */
        CHECK(fit_with(make_net(), 1, GD_PROGRESS_LINES, &r.receiver));
        CHECK(r.calls == 1 && !strchr(r.text, '\r'));
        start_receiver(&r, 40);
        CHECK(fit_with(make_net(), 1, GD_PROGRESS_NONE, &r.receiver) && r.calls == 0);
    }
}

static void *fit_in_thread(void *user) {
    GD_SCOPE;
    receiver *r = user;
    r->thread = pthread_self();
    return (
        void *)(fit_with(make_net(), r->receiver.redraws ? 3 : 2, GD_PROGRESS_AUTO, &r->receiver)
                    ? NULL
                    : "failed");
}

TEST(two_runs_in_two_threads_have_their_own_receivers) {
    static receiver r[2];
    pthread_t threads[2];
    void *failed[2];
    for (int i = 0; i < 2; i++) {
        start_receiver(&r[i], i ? 60 : 0);
        CHECK(pthread_create(&threads[i], NULL, fit_in_thread, &r[i]) == 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &failed[i]);
    CHECK(!failed[0] && !failed[1] && r[0].wrong == 0 && r[1].wrong == 0);
    CHECK_SAYING(r[0].finals == 2 && r[0].calls == 2 && !strstr(r[0].text, "/3  "), "%s",
                 r[0].text);
    CHECK_SAYING(r[1].finals == 3 && r[1].calls > 5 && !strstr(r[1].text, "/2  "), "%s", r[1].text);
}

TEST(gd_evaluate_writes_to_a_receiver) {
    GD_SCOPE;
    static receiver r;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd", .loss = "cross_entropy", .metrics = "accuracy");
    start_receiver(&r, 60);
    CHECK(gd_evaluate(net, gd_list(x, y), .progress = GD_PROGRESS_AUTO,
                      .progress_receiver = &r.receiver));
    CHECK_SAYING(r.finals == 1 && r.wrong == 0 && strstr(r.text, "evaluate  ") &&
                     strstr(r.text, "accuracy"),
                 "%s", r.text);
    start_receiver(&r, 60);
    CHECK(gd_evaluate(net, gd_list(x, y), .progress_receiver = &r.receiver) && r.calls == 0);
}

TEST(a_receiver_that_fails_ends_the_run) {
    static receiver r;
    for (int at = 1; at <= 3; at++) { /* a bar, a later bar, or a bar of another epoch */
        GD_SCOPE;
        gd_module *net = make_net();
        start_receiver(&r, 60);
        r.fails_at = at;
        CHECK(!fit_with(net, 2, GD_PROGRESS_AUTO, &r.receiver) && r.calls == at);
        CHECK_SAYING(gd_error_status() == GD_E_IO &&
                         strstr(gd_error_message(), "the window is closed"),
                     "%s", gd_error_message());
        gd_clear_error();
        start_receiver(&r, 0);
        CHECK(fit_with(net, 1, GD_PROGRESS_AUTO, &r.receiver) && r.finals == 1);
        start_receiver(&r, 0);
        r.fails_at = 1; /* the line after the last epoch */
        CHECK(!fit_with(net, 1, GD_PROGRESS_AUTO, &r.receiver) && r.calls == 1);
        gd_clear_error();
        gd_tensor *x, *y;
        make_data(&x, &y);
        start_receiver(&r, 0);
        r.fails_at = 1;
        CHECK(!gd_evaluate(net, gd_list(x, y), .progress = GD_PROGRESS_LINES,
                           .progress_receiver = &r.receiver));
        CHECK(strstr(gd_error_message(), "the window is closed"));
        gd_clear_error();
        const gd_progress_receiver none = {.user = &r};
        CHECK(!fit_with(net, 1, GD_PROGRESS_AUTO, &none));
        CHECK_SAYING(gd_error_status() == GD_E_ARGUMENT && strstr(gd_error_message(), ".write"),
                     "%s", gd_error_message());
        gd_clear_error();
    }
}

TEST_MAIN
