/* test_privileges.c - a program with the privileges of another user or group loads no library that
 * its caller chose. The test starts a copy of itself with such privileges. */
#include <grp.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "files.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

enum { LOADED = 99, NOT_LOADED = 98, NO_PRIVILEGES = 97 };

/* In the copy: asks for the device whose library would end the process. */
static int ask_for_device(bool privileged) {
    GD_SCOPE;
    if (privileged && !getauxval(AT_SECURE)) return NO_PRIVILEGES;
    gd_device_get("evil");
    return gd_failed() ? NOT_LOADED : 0;
}

typedef struct copy {
    const char *path, *name; /* argv[0] may be another than the path */
    const char *mode;
} copy;

static int start_copy(void *user) {
    const copy *c = user;
    execl(c->path, c->name, c->mode, (char *)NULL);
    return 1;
}

/* A library whose constructor ends the process; everyone can read it. */
static const char *make_evil_folder(void) {
    char command[1200];
    CHECK(chmod(temp_folder(), 0755) == 0);
    const char *folder = temp_new_folder("evil");
    CHECK(chmod(folder, 0755) == 0);
    const char *source = temp_write_text(
        "evil.c", "#include <unistd.h>\n"
                  "__attribute__((constructor)) static void evil(void) { _exit(99); }\n");
    snprintf(command, sizeof command, "cc -shared -fPIC -o %s/libgradus_evil.so %s", folder,
             source);
    CHECK(system(command) == 0);
    CHECK(chmod(temp_path("evil/libgradus_evil.so"), 0755) == 0);
    return folder;
}

/* Copies this program to another folder, with the privileges of another user or group. */
static bool make_privileged_copy(const char *path) {
    size_t bytes;
    char *program = file_read("/proc/self/exe", &bytes);
    CHECK(program);
    file_write(path, program, bytes);
    free(program);
    gid_t groups[64];
    const int count = getgroups(64, groups);
    if (geteuid() == 0) return chown(path, 12345, 12345) == 0 && chmod(path, 04755) == 0;
    for (int i = 0; i < count; i++)
        if (groups[i] != getegid() && chown(path, (uid_t)-1, groups[i]) == 0)
            return chmod(path, 02755) == 0;
    return false;
}

TEST(a_set_user_id_program_loads_no_library_of_its_caller) {
    const char *evil = make_evil_folder(), *folder = temp_new_folder("copy"),
               *path = temp_path("copy/program");
    CHECK(chmod(folder, 0755) == 0);
    if (!make_privileged_copy(path)) SKIP("this user cannot make a set-group-ID program");
    setenv("GRADUS_BACKEND_PATH", evil, 1);
    const int plain = child_run(start_copy, &(copy){"/proc/self/exe", "program", "plain"});
    CHECK_SAYING(plain == LOADED, "%d", plain); /* the variable works for others */
    const int privileged = child_run(start_copy, &(copy){path, path, "privileged"});
    if (privileged == NO_PRIVILEGES) SKIP("the file system of temporary files has no set-user-ID");
    CHECK_SAYING(privileged == NOT_LOADED, "%d", privileged);
    unsetenv("GRADUS_BACKEND_PATH");
    /* nor beside the name that the caller gave it, or beside a link to it */
    const int named = child_run(start_copy, &(copy){path, temp_path("evil/program"), "privileged"});
    CHECK_SAYING(named == NOT_LOADED, "%d", named);
    CHECK(link(path, temp_path("evil/program")) == 0);
    const char *linked = temp_path("evil/program");
    CHECK(child_run(start_copy, &(copy){linked, linked, "privileged"}) == NOT_LOADED);
}

int main(int argc, char **argv) {
    /* _exit: the search for leaks at the end of a program does not work in a set-user-ID program */
    if (argc > 1 && strcmp(argv[1], "plain") == 0) _exit(ask_for_device(false));
    if (argc > 1 && strcmp(argv[1], "privileged") == 0) _exit(ask_for_device(true));
    return test_run_all(argc, argv);
}
