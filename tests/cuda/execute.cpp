/* execute.cpp - runs kernels on the CPU: threads, barriers, and the order in which they run.
 *
 * The threads of a block are coroutines if the kernel has barriers or shuffles. A coroutine runs up
 * to its next barrier. The driver's setting order=N chooses the order of the threads between two
 * barriers and that of the blocks:
 *
 *     0   ascending
 *     1   descending
 *     N   random, from the seed N, and new after each barrier; some warps, and some blocks of a
 *         cooperative launch, stay behind for a while
 *
 * A correct kernel computes the same bits in every order.
 */
#include "execute.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "guard.h"
#include "races.h"

emulated_index threadIdx, blockIdx, blockDim, gridDim;
alignas(4096) unsigned char emulated_shared[EMULATED_SHARED_PAGES];

namespace {

/* --- order ------------------------------------------------------------------------------------ */

uint64_t order_number; /* of the launch that runs */
uint64_t random_state;

/* A random number below `limit` (splitmix64). */
uint64_t draw(uint64_t limit) {
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % limit;
}

/* 0 .. n - 1 in the order in which they run. */
void arrange(std::vector<unsigned> &order, unsigned n) {
    order.resize(n);
    for (unsigned i = 0; i < n; i++) order[i] = order_number == 1 ? n - 1 - i : i;
    if (order_number > 1)
        for (unsigned i = n; i > 1; i--) std::swap(order[i - 1], order[draw(i)]);
}

/* A permutation of many numbers: i becomes (i * step + first) % count. */
struct spread {
    uint64_t count, step = 1, first = 0;
    explicit spread(uint64_t n) : count(n) {
        if (order_number <= 1 || n < 2) return;
        do step = 1 + draw(n);
        while (greatest_divisor(step, n) != 1);
        first = draw(n);
    }
    uint64_t at(uint64_t i) const {
        if (order_number == 1) return count - 1 - i;
        return (uint64_t)(((unsigned __int128)i * step + first) % count);
    }
    static uint64_t greatest_divisor(uint64_t a, uint64_t b) {
        return b ? greatest_divisor(b, a % b) : a;
    }
};

/* --- threads ---------------------------------------------------------------------------------- */

/* Coroutines are created once and reused for every block. A switch is a _longjmp, which costs no
 * system call. */
struct async_copy {
    void *to;
    const void *from;
    int bytes, size;
};
struct coroutine {
    ucontext_t entry;
    jmp_buf at;
    bool started, done;
    uint16_t syncs;
    std::deque<std::vector<async_copy>> copies; /* committed groups, and the next one */
    alignas(16) char lane[16];
    char stack[64 << 10];
};
enum { MAX_THREADS = 1024, WARP = 32 };
jmp_buf scheduler;
const emulated_launch *running;
unsigned current;
uint64_t progress; /* barriers reached and threads done */

/* Threads that meet at a barrier: a block or a warp. */
struct group {
    unsigned alive, arrived, phase;
};

/* A block. Those of a cooperative launch run together: each has its threads and, while another one
 * runs, a copy of its dynamic shared memory. (Static shared memory is not supported there.) */
struct block_state {
    coroutine *threads[MAX_THREADS];
    group all, warps[MAX_THREADS / WARP];
    std::vector<unsigned char> shared;
};
std::vector<block_state *> block_states;
block_state *block; /* that runs */

void set_index(unsigned thread) {
    current = thread;
    threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
                 thread / blockDim.x / blockDim.y};
}

void yield_thread() {
    if (_setjmp(block->threads[current]->at) == 0) _longjmp(scheduler, 1);
}

void release_group(group &g) {
    progress++;
    if (g.arrived < g.alive || g.arrived == 0) return;
    g.arrived = 0;
    g.phase++;
}
void wait_for_group(group &g) {
    const unsigned phase = g.phase;
    g.arrived++;
    release_group(g);
    while (g.phase == phase) yield_thread();
}
void leave_group(group &g) {
    g.alive--;
    release_group(g);
}

void run_threads() {
    for (;;) {
        running->kernel->call(running->parameters);
        block->threads[current]->done = true;
        leave_group(block->all);
        leave_group(block->warps[current / WARP]);
        yield_thread();
    }
}

void resume_thread(unsigned t) {
    coroutine *c = block->threads[t];
    set_index(t);
    if (_setjmp(scheduler) != 0) return;
    if (c->started) _longjmp(c->at, 1);
    c->started = true;
    setcontext(&c->entry);
}

void create_coroutine(unsigned t) {
    coroutine *c = block->threads[t] = new coroutine;
    c->started = false;
    getcontext(&c->entry);
    c->entry.uc_stack.ss_sp = c->stack;
    c->entry.uc_stack.ss_size = sizeof c->stack;
    c->entry.uc_link = nullptr;
    makecontext(&c->entry, run_threads, 0);
}

void begin_block(size_t number, unsigned count) {
    while (block_states.size() <= number) block_states.push_back(new block_state{});
    block = block_states[number];
    for (unsigned t = 0; t < count; t++) {
        if (!block->threads[t]) create_coroutine(t);
        block->threads[t]->done = false;
        block->threads[t]->syncs = 0;
        block->threads[t]->copies.clear();
    }
    block->all = {count, 0, 0};
    for (unsigned w = 0; w * WARP < count; w++)
        block->warps[w] = {count - w * WARP < WARP ? count - w * WARP : WARP, 0, 0};
}

/* Warps, or blocks, that stay behind, for 1 to 1024 rounds or until the others wait. */
struct stragglers {
    uint32_t mask = 0; /* bit i: number i modulo 32 stays behind */
    uint64_t rounds = 0;
    void choose(bool progressed) {
        if (order_number <= 1) return;
        if (!progressed) mask = 0, rounds = 1;
        if (rounds-- > 0) return;
        mask = (uint32_t)draw(1ull << 32);
        rounds = 1ull << draw(11);
    }
    bool has(unsigned i) const { return mask >> i % 32 & 1; }
};

/* Runs the threads of the block until all are done or wait, or for this many rounds. */
void resume_block(unsigned count, uint64_t rounds) {
    static std::vector<unsigned> order;
    stragglers behind;
    for (bool progressed = true; block->all.alive && rounds > 0; rounds--) {
        const uint64_t before = progress;
        behind.choose(progressed);
        arrange(order, count);
        for (unsigned t : order)
            if (!block->threads[t]->done && !behind.has(t / WARP)) resume_thread(t);
        progressed = progress != before;
        if (!progressed && !behind.mask) return;
    }
}

[[noreturn]] void stop_waiting(const char *which) {
    fprintf(stderr, "emulated CUDA: %s of %s wait for each other\n", which, running->kernel->name);
    abort();
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* In ascending order, and without guards, shared memory has what the block before has left. */
void poison_shared() {
    const emulated_kernel *k = running->kernel;
    if (emulated_guards() || order_number)
        emulated_poison_shared(running->shared, k->statics[0], k->statics[1]);
}

void run_blocks_together(unsigned blocks, unsigned count) {
    static std::vector<unsigned> order;
    const unsigned shared = running->shared;
    unsigned alive = blocks;
    stragglers behind;
    for (unsigned b = 0; b < blocks; b++) {
        begin_block(b, count);
        block->shared.assign(shared, 0xff);
    }
    for (bool progressed = true; alive > 0;) {
        const uint64_t before = progress;
        behind.choose(progressed);
        arrange(order, blocks);
        for (unsigned b : order) {
            block = block_states[b];
            if (block->all.alive == 0 || behind.has(b)) continue;
            blockIdx = {b, 0, 0};
            memcpy(emulated_shared, block->shared.data(), shared);
            resume_block(count, behind.mask ? 1 + draw(8) : UINT64_MAX);
            memcpy(block->shared.data(), emulated_shared, shared);
            alive -= block->all.alive == 0;
        }
        progressed = progress != before;
        if (!progressed && !behind.mask) stop_waiting("blocks");
    }
}

void set_block(uint64_t number) {
    blockIdx = {(unsigned)(number % gridDim.x), (unsigned)(number / gridDim.x % gridDim.y),
                (unsigned)(number / gridDim.x / gridDim.y)};
}

void run_blocks(uint64_t blocks, unsigned count) {
    const spread order(blocks);
    for (uint64_t b = 0; b < blocks; b++) {
        set_block(order.at(b));
        poison_shared();
        begin_block(0, count);
        resume_block(count, UINT64_MAX);
        if (block->all.alive) stop_waiting("threads");
    }
}

/* Without barriers a thread runs to its end. Those of different blocks are mixed. */
void run_single_threads(uint64_t blocks, unsigned count) {
    const spread order(blocks * count);
    for (uint64_t i = 0; i < blocks * count; i++) {
        const uint64_t at = order.at(i);
        set_block(at / count);
        set_index((unsigned)(at % count));
        running->kernel->call(running->parameters);
    }
}

} // namespace

const char *emulated_setting(const char *word) {
    const char *all = getenv("GRADUS_EMULATED_CUDA");
    const char *at = all ? strstr(all, word) : nullptr;
    return at ? at + strlen(word) : nullptr;
}

const char *emulated_position(void) {
    static char text[200];
    if (!running) return nullptr;
    snprintf(text, sizeof text, "%s, block (%u, %u, %u), thread %u,", running->kernel->name,
             blockIdx.x, blockIdx.y, blockIdx.z, current);
    return text;
}

emulated_place emulated_this_place(void) {
    const uint32_t number = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (!running->kernel->has_barriers) return {number, 0, (uint16_t)current, 0};
    return {number, block->all.phase, (uint16_t)current, block->threads[current]->syncs};
}

bool emulated_is_static_shared(const unsigned char *address) {
    unsigned char *const *statics = running->kernel->statics;
    return address >= statics[0] && address < statics[1];
}

void emulated_execute(const emulated_launch &l, uint64_t order) {
    const unsigned count = l.block[0] * l.block[1] * l.block[2];
    const uint64_t blocks = (uint64_t)l.grid[0] * l.grid[1] * l.grid[2];
    gridDim = {l.grid[0], l.grid[1], l.grid[2]};
    blockDim = {l.block[0], l.block[1], l.block[2]};
    running = &l;
    order_number = random_state = order;
    if (emulated_guards()) emulated_guard_shared(l.shared);
    poison_shared();
    emulated_races_begin(l.kernel->name, l.early);
    if (l.together) run_blocks_together(l.grid[0], count);
    else if (l.kernel->has_barriers) run_blocks(blocks, count);
    else run_single_threads(blocks, count);
    emulated_races_end();
    if (emulated_guards()) emulated_check_guards(l.kernel->name);
    running = nullptr;
}

/* --- barriers (shim.h) ------------------------------------------------------------------------ */

extern "C" void emulated_barrier(void) {
    emulated_races_barrier();
    wait_for_group(block->all);
}
extern "C" void emulated_warp_barrier(void) { wait_for_group(block->warps[current / WARP]); }
extern "C" void emulated_sync_warp(void) {
    emulated_warp_barrier();
    block->threads[current]->syncs++;
}
extern "C" void emulated_wait(void) { yield_thread(); }

extern "C" int emulated_any(int predicate) {
    const unsigned count = blockDim.x * blockDim.y * blockDim.z;
    int any = 0;
    memcpy(block->threads[current]->lane, &predicate, sizeof predicate);
    emulated_barrier();
    for (unsigned t = 0; t < count; t++) {
        int other;
        memcpy(&other, block->threads[t]->lane, sizeof other);
        if (!block->threads[t]->done) any |= other != 0;
    }
    emulated_barrier();
    return any;
}

extern "C" void *emulated_lane(int lane) {
    const unsigned thread = current / 32 * 32 + (unsigned)lane;
    const unsigned count = blockDim.x * blockDim.y * blockDim.z;
    coroutine *const *threads = block->threads;
    return thread < count && !threads[thread]->done ? threads[thread]->lane : nullptr;
}

/* --- asynchronous copies (shim.h) ------------------------------------------------------------- */

static void finish_copy(const async_copy &c) {
    emulated_write(c.to, (size_t)c.size);
    memset(c.to, 0, (size_t)c.size);
    memcpy(c.to, c.from, (size_t)c.bytes);
}

/* In ascending order copies are done at once, in descending order as late as possible. */
extern "C" void emulated_copy_async(void *to, const void *from, int bytes, int size) {
    const async_copy copy = {to, from, bytes, size};
    std::deque<std::vector<async_copy>> &copies = block->threads[current]->copies;
    if (order_number == 0 || (order_number > 1 && draw(2))) {
        finish_copy(copy);
        return;
    }
    emulated_write(to, (size_t)size);
    if (copies.empty()) copies.emplace_back();
    copies.back().push_back(copy);
}
extern "C" void emulated_commit_copies(void) {
    std::deque<std::vector<async_copy>> &copies = block->threads[current]->copies;
    if (copies.empty()) copies.emplace_back();
    copies.emplace_back();
}
extern "C" void emulated_wait_copies(int groups) {
    std::deque<std::vector<async_copy>> &copies = block->threads[current]->copies;
    for (; copies.size() > (size_t)groups + 1; copies.pop_front())
        for (const async_copy &c : copies.front()) finish_copy(c);
}
