/* races.cpp - see races.h. */
#include "races.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "execute.h"
#include "submit.h"

namespace {

/* --- what is known of other blocks ------------------------------------------------------------ */

/* Accesses of a block before phase `phase`, and those of one thread in it. */
struct known_block {
    unsigned phase, thread;
};
enum { NO_THREAD = 0xffff };
typedef std::map<uint64_t, known_block> knowledge;

void learn(knowledge &own, const knowledge &other) {
    for (const auto &[block, k] : other) {
        known_block &mine = own.try_emplace(block, k).first->second;
        if (mine.phase < k.phase) mine = k;
    }
}

/* A thread: what it knows; what its next fence makes known to it; what its latest fence lets the next
 * atomic tell. */
struct thread_knowledge {
    knowledge known, pending, told;
    bool waited; /* for the previous kernel */
};
typedef std::pair<uint64_t, unsigned> thread_key; /* block, thread */
std::map<thread_key, thread_knowledge> threads;
std::map<uint64_t, knowledge> blocks;
std::map<const void *, knowledge> atomics;

struct {
    const char *kernel;
    uint32_t number;
    bool early;
} launch;
bool checks; /* the kernels were compiled for it */

thread_knowledge &knowledge_of(const emulated_place &at) { return threads[{at.block, at.thread}]; }

bool knows(const emulated_place &at, uint64_t block, unsigned thread, unsigned phase) {
    auto covers = [&](const knowledge &k) {
        auto found = k.find(block);
        return found != k.end() &&
               (phase < found->second.phase ||
                (phase == found->second.phase && thread == found->second.thread));
    };
    auto own = threads.find({at.block, at.thread});
    auto all = blocks.find(at.block);
    return (own != threads.end() && covers(own->second.known)) ||
           (all != blocks.end() && covers(all->second));
}

void pass_fence() {
    const emulated_place at = emulated_this_place();
    thread_knowledge &own = knowledge_of(at);
    learn(own.known, own.pending);
    own.pending.clear();
    own.told = own.known;
    learn(own.told, blocks[at.block]);
    own.told[at.block] = {at.phase, at.thread};
}
void pass_atomic(const void *address) {
    thread_knowledge &own = knowledge_of(emulated_this_place());
    knowledge &there = atomics[address];
    learn(own.pending, there);
    learn(there, own.told);
}

/* --- accesses --------------------------------------------------------------------------------- */

struct stamp {
    const void *code; /* NULL: there was no access */
    emulated_place at;
    bool several; /* other threads of the block have read in the same phase, too */
};
/* The latest accesses to a byte. */
struct cell {
    uint32_t launch; /* of which the rest is */
    uint32_t others; /* number in other_readers; 0: none */
    stamp write, read;
};
/* Reads by further blocks: the latest of each. */
std::vector<std::vector<stamp>> other_readers;

/* Cells of the pages that were accessed. */
enum { PAGE = 4096, MAX_PAGES = 4000 };
typedef std::pair<uintptr_t, uint64_t> page_key; /* number, and block + 1 for shared memory */
struct page_hash {
    size_t operator()(const page_key &k) const { return k.first * 31 + k.second; }
};
std::unordered_map<page_key, std::unique_ptr<cell[]>, page_hash> pages;
page_key latest_key;
cell *latest_page;

bool is_ordered(const stamp &before, const emulated_place &now) {
    const emulated_place &at = before.at;
    if (at.block != now.block)
        return knows(now, at.block, before.several ? NO_THREAD : at.thread, at.phase);
    if (at.phase != now.phase) return true;
    if (before.several) return false;
    return at.thread == now.thread || (at.thread / 32 == now.thread / 32 && at.syncs != now.syncs);
}

bool found_any;
std::set<std::pair<const void *, const void *>> reported;

void print_code(const void *code) {
    Dl_info info = {};
    dladdr(code, &info);
    const char *slash = info.dli_fname ? strrchr(info.dli_fname, '/') : nullptr;
    fprintf(stderr, "%s+0x%zx", slash ? slash + 1 : "?",
            (size_t)((const char *)code - (const char *)info.dli_fbase));
}
void print_access(const char *what, const stamp &s) {
    fprintf(stderr, "    %s by block %llu, thread %u, phase %u: ", what,
            (unsigned long long)s.at.block, s.at.thread, s.at.phase);
    print_code(s.code);
    fprintf(stderr, "\n");
}
void report_race(const char *memory, const char *first, const stamp &a, const char *second,
                 const stamp &b) {
    found_any = true;
    if (!reported.insert({a.code, b.code}).second) return;
    fprintf(stderr, "emulated CUDA: a race in %s, in %s memory\n", launch.kernel, memory);
    print_access(first, a);
    print_access(second, b);
}

/* Adds a read to the latest one of its block. */
void join_read(stamp &read, const stamp &now) {
    const bool same_phase = read.at.phase == now.at.phase;
    if (!same_phase || is_ordered(read, now.at)) read = now;
    else read.several = true;
}

void note_read(cell &c, const stamp &now) {
    if (!c.read.code) c.read = now;
    else if (c.read.at.block == now.at.block) join_read(c.read, now);
    else {
        if (!c.others) {
            c.others = (uint32_t)other_readers.size();
            other_readers.emplace_back();
        }
        for (stamp &read : other_readers[c.others])
            if (read.at.block == now.at.block) return join_read(read, now);
        other_readers[c.others].push_back(now);
    }
}

void check_byte(cell &c, const stamp &now, bool writes, const char *memory) {
    if (c.write.code && !is_ordered(c.write, now.at))
        report_race(memory, "write", c.write, writes ? "write" : "read", now);
    if (!writes) return note_read(c, now);
    if (c.read.code && !is_ordered(c.read, now.at))
        report_race(memory, "read", c.read, "write", now);
    for (const stamp &read : other_readers[c.others])
        if (!is_ordered(read, now.at)) report_race(memory, "read", read, "write", now);
    c.write = now;
    c.read.code = nullptr;
    c.others = 0;
}

/* Which memory an address is in; NULL: none of the device. */
const char *memory_of(const void *address) {
    const unsigned char *p = (const unsigned char *)address;
    if (p >= emulated_shared && p < emulated_shared + EMULATED_SHARED_PAGES) return "shared";
    if (emulated_is_static_shared(p)) return "shared";
    return emulated_is_device_memory(p, 1) ? "global" : nullptr;
}

cell *cells_of(uintptr_t address, uint64_t block) {
    const page_key key = {address / PAGE, block};
    if (key != latest_key || !latest_page) {
        std::unique_ptr<cell[]> &page = pages[key];
        if (!page) page.reset(new cell[PAGE]());
        latest_key = key;
        latest_page = page.get();
    }
    return latest_page + address % PAGE;
}

void access(const void *address, size_t bytes, bool writes, const void *code) {
    if (!launch.kernel) return;
    const char *memory = memory_of(address);
    if (!memory) return;
    const bool shared = memory[0] == 's';
    const stamp now = {code, emulated_this_place(), false};
    if (!shared && launch.early && !knowledge_of(now.at).waited)
        report_race(memory, "work of the previous kernel", {}, writes ? "write" : "read", now);
    for (size_t i = 0; i < bytes; i++) {
        cell &c = *cells_of((uintptr_t)address + i, shared ? now.at.block + 1 : 0);
        if (c.launch != launch.number) c = {launch.number, 0, {}, {}};
        check_byte(c, now, writes, memory);
    }
}

} // namespace

void emulated_races_begin(const char *kernel, bool early) {
    if (!checks) return;
    launch = {kernel, launch.number + 1, early};
    threads.clear();
    blocks.clear();
    atomics.clear();
    other_readers.assign(1, {}); /* number 0 stays empty */
    latest_page = nullptr;
    if (pages.size() > MAX_PAGES) pages.clear();
}
void emulated_races_end(void) { launch.kernel = nullptr; }

void emulated_races_barrier(void) {
    if (!launch.kernel || threads.empty()) return;
    const emulated_place at = emulated_this_place();
    auto own = threads.find({at.block, at.thread});
    if (own != threads.end()) learn(blocks[at.block], own->second.known);
}

/* Statuses of a process that has found races differ from those of one that fails for other reasons. */
__attribute__((destructor)) static void end_with_races() {
    if (!found_any) return;
    fflush(nullptr);
    _exit(66);
}

/* --- functions that kernels call -------------------------------------------------------------- */

extern "C" {

void emulated_fence(void) {
    if (launch.kernel) pass_fence();
}
void emulated_atomic(const void *address) {
    if (launch.kernel) pass_atomic(address);
}
void emulated_previous_kernel(void) {
    if (launch.kernel) knowledge_of(emulated_this_place()).waited = true;
}
void emulated_write(const void *address, size_t bytes) {
    access(address, bytes, true, __builtin_return_address(0));
}

#define EACH_SIZE(X) X(1) X(2) X(4) X(8) X(16)
#define DEFINE(bytes)                                                                          \
    void __tsan_read##bytes(void *p) { access(p, bytes, false, __builtin_return_address(0)); } \
    void __tsan_write##bytes(void *p) { access(p, bytes, true, __builtin_return_address(0)); } \
    void __tsan_unaligned_read##bytes(void *p) {                                               \
        access(p, bytes, false, __builtin_return_address(0));                                  \
    }                                                                                          \
    void __tsan_unaligned_write##bytes(void *p) {                                              \
        access(p, bytes, true, __builtin_return_address(0));                                   \
    }
EACH_SIZE(DEFINE)
void __tsan_read_range(void *p, size_t bytes) {
    access(p, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void *p, size_t bytes) {
    access(p, bytes, true, __builtin_return_address(0));
}
void __tsan_init(void) { checks = true; } /* the constructors of such kernels call it */
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}

} // extern "C"
