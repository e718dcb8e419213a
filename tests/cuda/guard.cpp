/* guard.cpp - see guard.h. */
#include "guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "execute.h"

namespace {

enum { PAGE = 4096, ALIGNMENT = 16, FILL = 0xff };

/* An allocation: its pages, and its bytes in them. */
struct region {
    unsigned char *pages;
    size_t page_bytes, offset, bytes;
};
std::map<void *, region> regions;
size_t shared_bytes, shared_pages;
struct sigaction earlier[2]; /* of SIGSEGV and SIGBUS */

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

void write_text(const char *text) {
    if (write(2, text, strlen(text)) < 0) abort();
}

/* Names the kernel of an access outside of all memory. The access then fails again, and the earlier
 * handler ends the program. */
void report_fault(int number, siginfo_t *info, void *) {
    char text[300];
    const char *position = emulated_position();
    snprintf(text, sizeof text, "emulated CUDA: %s accesses %p, which is outside of all memory\n",
             position ? position : "the host", info->si_addr);
    write_text(text);
    sigaction(number, &earlier[number == SIGBUS], nullptr);
}

bool start_guarding() {
    if (!emulated_setting("guard")) return false;
    static char stack[64 << 10]; /* the fault may be an overflow of a thread's stack */
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = report_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &earlier[0]);
    sigaction(SIGBUS, &action, &earlier[1]);
    return true;
}

bool is_filled(const unsigned char *from, const unsigned char *to) {
    for (; from < to; from++)
        if (*from != FILL) return false;
    return true;
}

[[noreturn]] void stop_for_write(const char *what, const char *where, size_t bytes) {
    fprintf(stderr, "emulated CUDA: %s has written %s %zu bytes\n", what, where, bytes);
    abort();
}

/* The bytes of its own pages near an allocation. */
void check_region(const region &r, const char *what) {
    enum { NEAR = 256 };
    const unsigned char *begin = r.pages + r.offset, *end = begin + r.bytes;
    const size_t before = r.offset, after = r.page_bytes - r.offset - r.bytes;
    if (!is_filled(begin - (before < NEAR ? before : NEAR), begin))
        stop_for_write(what, "before an allocation of", r.bytes);
    if (!is_filled(end, end + (after < NEAR ? after : NEAR)))
        stop_for_write(what, "after an allocation of", r.bytes);
}

} // namespace

bool emulated_guards(void) {
    static const bool guards = start_guarding();
    return guards;
}

void *emulated_guard_alloc(size_t bytes) {
    static size_t count;
    const size_t used = round_up(bytes, ALIGNMENT), pages = round_up(used, PAGE);
    void *all = mmap(nullptr, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return nullptr;
    region r = {(unsigned char *)all + PAGE, pages, count++ % 2 ? 0 : pages - used, bytes};
    if (mprotect(r.pages, pages, PROT_READ | PROT_WRITE) != 0) {
        munmap(all, pages + 2 * PAGE);
        return nullptr;
    }
    memset(r.pages, FILL, pages);
    void *address = r.pages + r.offset;
    regions[address] = r;
    return address;
}

void emulated_guard_free(void *address) {
    auto at = regions.find(address);
    if (at == regions.end()) return;
    check_region(at->second, "something");
    munmap(at->second.pages - PAGE, at->second.page_bytes + 2 * PAGE);
    regions.erase(at);
}

void emulated_guard_shared(size_t bytes) {
    const size_t pages = round_up(bytes, PAGE), all = EMULATED_SHARED_PAGES;
    shared_bytes = bytes;
    if (pages == shared_pages && bytes > 0) return;
    shared_pages = pages;
    mprotect(emulated_shared, all, PROT_READ | PROT_WRITE);
    if (pages < all) mprotect(emulated_shared + pages, all - pages, PROT_NONE);
}

void emulated_poison_shared(size_t bytes, unsigned char *statics, unsigned char *end) {
    memset(emulated_shared, FILL, emulated_guards() ? round_up(bytes, PAGE) : bytes);
    if (statics) memset(statics, FILL, (size_t)(end - statics));
}

void emulated_check_guards(const char *what) {
    for (const auto &each : regions) check_region(each.second, what);
    if (!is_filled(emulated_shared + shared_bytes, emulated_shared + shared_pages))
        stop_for_write(what, "after shared memory of", shared_bytes);
}
