// Runs a kernel's threads by turns. The part of the emulator that is the same for all kernels; see emulator.h.
#include "emulator.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "races.h"

bool rounds_tf32;

namespace emulator {

Thread* current;
Index block_dim, grid_dim;
int cluster;

namespace {

struct Barrier {
    int arrived = 0;
    unsigned phase = 0;
};
struct BlockState : Block {
    std::vector<unsigned char> bytes;
    std::vector<Warp> warps;
    Barrier barriers[17];
};
// What a fiber runs on. A launch leaves it to the next one, in the middle of `enter`.
struct Stack {
    jmp_buf state;
    bool started = false;
};
struct Fiber : Thread {
    Stack* stack;
    const unsigned* awaited = nullptr;  // what has to differ from `phase` before it goes on
    unsigned phase = 0;
    bool done = false;
    unsigned cluster_phase = 0;
};
// A copy under way. It arrives when a thread waits for its bytes; who does not wait reads NaN.
struct Copy {
    void* to;
    const void* from;
    std::uint32_t bytes;
    const void* count;
};

constexpr int cluster_barrier = 16;  // among a block's barriers, for the race finder
constexpr size_t stack_bytes = 256 << 10;
jmp_buf scheduler;
std::vector<Stack> stacks;
char* memory;  // of the stacks
std::vector<BlockState> blocks;
std::vector<Barrier> clusters;
std::vector<Copy> copies;
void (*kernel)(const void*);
const void* parameters;

Fiber& fiber() { return *static_cast<Fiber*>(current); }
BlockState& block() { return *static_cast<BlockState*>(current->block); }

void wait_while(const unsigned& at, unsigned phase) {
    fiber().awaited = &at, fiber().phase = phase;
    if (at == phase) yield();
    fiber().awaited = nullptr;
}
void enter() {
    for (;;) {
        kernel(parameters);
        fiber().done = true;
        yield();
    }
}
void go_on() {
    if (_setjmp(scheduler)) return;
    Stack& it = *fiber().stack;
    if (it.started) _longjmp(it.state, 1);
    it.started = true;
    static ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = memory + (&it - stacks.data()) * stack_bytes;
    start.uc_stack.ss_size = stack_bytes;
    start.uc_link = nullptr;
    makecontext(&start, enter, 0);
    setcontext(&start);
}
void make_stacks(size_t count) {
    if (count <= stacks.size()) return;
    if (memory) munmap(memory, stacks.size() * stack_bytes);
    stacks = std::vector<Stack>(count);
    void* pages = mmap(nullptr, count * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) std::perror("emulator: stacks"), std::abort();
    memory = static_cast<char*>(pages);  // most are never touched, and the heap stays as it is
}

}  // namespace

void fail(const char* what) {
    std::fprintf(stderr, "emulator: %s (block %d, thread %d)\n", what, current->block_index.x, current->thread_index.x);
    std::abort();
}
void yield() {
    if (!_setjmp(fiber().stack->state)) _longjmp(scheduler, 1);
}
unsigned char* shared_of(int index) { return blocks[index].shared; }

const uint32* meet(int kind, const uint32* in, int words, void (*compute)(Warp&, const void*), const void* what) {
    Warp& warp = block().warps[current->thread_index.x / 32];
    const int lane = current->thread_index.x % 32;
    if (warp.arrived == 0) warp.kind = kind;
    if (warp.kind != kind) fail("lanes of a warp meet in different collectives");
    std::memcpy(warp.in[lane], in, 4 * words);
    const unsigned phase = warp.phase;
    if (++warp.arrived == 32) {
        compute(warp, what);
        warp.arrived = 0;
        warp.phase++;
    } else {
        wait_while(warp.phase, phase);
    }
    return warp.out[lane];
}

void start_copy(void* to, const void* from, uint32 bytes, const void* count) { copies.push_back({to, from, bytes, count}); }
void drop_copies(const void* count) {
    copies.erase(std::remove_if(copies.begin(), copies.end(), [count](const Copy& copy) { return copy.count == count; }), copies.end());
}
void take_copies(const void* count) {
    for (const Copy& copy : copies)
        if (copy.count == count) std::memcpy(copy.to, copy.from, copy.bytes);
    drop_copies(count);
}

// Warps take turns collective by collective, or with a `slice` the odd and the even ones of each block by so many at a time (the even ones
// first if it is negative): what is not ordered by a barrier then comes in another order.
extern "C" void launch(
    void (*kernel_)(const void*), const void* parameters_, int grid, int threads, int shared_bytes, int cluster_, int slice, bool hopper
) {
    kernel = kernel_, parameters = parameters_, cluster = cluster_, rounds_tf32 = hopper;
    block_dim = {threads}, grid_dim = {grid};
    blocks = std::vector<BlockState>(grid);
    clusters.assign((grid + cluster - 1) / cluster, {});
    std::vector<Fiber> fibers(grid * threads);
    make_stacks(fibers.size());
    for (int i = 0; i < grid * threads; i++) {
        BlockState& it = blocks[i / threads];
        if (i % threads == 0) it.bytes.assign(shared_bytes, 0xff), it.shared = it.bytes.data(), it.warps.resize(threads / 32);
        fibers[i].block = &it, fibers[i].stack = &stacks[i];
        fibers[i].thread_index = {i % threads}, fibers[i].block_index = {i / threads};
    }
    races_start(grid, threads, shared_bytes, reinterpret_cast<const void*>(kernel));
    size_t left = fibers.size();
    for (size_t sweep = 0; left > 0; sweep++) {
        for (Fiber& it : fibers) {
            if (it.done || (it.awaited && *it.awaited == it.phase)) continue;
            if (slice != 0 && (sweep / std::abs(slice) + it.thread_index.x / 32 + (slice < 0)) % 2 == 0) continue;
            current = &it;
            races_run(it.block_index.x, it.thread_index.x, it.block->shared);
            go_on();
            if (it.done) left--;
        }
    }
    blocks.clear();
}

}  // namespace emulator

using emulator::collective;
using emulator::Warp;

void barrier(int name, int threads) {
    if (name > 15) emulator::fail("there are 16 barriers");
    emulator::Barrier& it = emulator::block().barriers[name];
    const unsigned phase = it.phase;
    races_arrive(name);
    if (++it.arrived == threads) {
        it.arrived = 0;
        it.phase++;
        races_open(name);
    } else {
        emulator::wait_while(it.phase, phase);
    }
    races_leave(name);
}
void cluster_arrive() {
    emulator::Barrier& it = emulator::clusters[blockIdx.x / emulator::cluster];
    emulator::fiber().cluster_phase = it.phase;
    emulator::Barrier& own = emulator::block().barriers[emulator::cluster_barrier];
    races_arrive(emulator::cluster_barrier);
    if (++own.arrived == blockDim.x) own.arrived = 0, races_open(emulator::cluster_barrier);
    if (++it.arrived == emulator::cluster * blockDim.x) it.arrived = 0, it.phase++;
}
void cluster_wait() {
    emulator::wait_while(emulator::clusters[blockIdx.x / emulator::cluster].phase, emulator::fiber().cluster_phase);
    races_leave(emulator::cluster_barrier);
}

void __syncwarp() {
    const uint32 none = 0;
    collective(4, &none, 1, [](Warp&) { races_meet_warp(); });
}
float shuffle_xor(float x, int mask) {
    const uint32 in[2] = {bits(x), uint32(mask)};
    return number(collective(5, in, 2, [](Warp& warp) {
        for (int lane = 0; lane < 32; lane++) warp.out[lane][0] = warp.in[lane ^ warp.in[lane][1]][0];
    })[0]);
}
uint32 ballot(bool x) {
    const uint32 in = x;
    return collective(7, &in, 1, [](Warp& warp) {
        uint32 all = 0;
        for (int lane = 0; lane < 32; lane++) all |= warp.in[lane][0] << lane;
        for (int lane = 0; lane < 32; lane++) warp.out[lane][0] = all;
    })[0];
}
int largest(int x) {
    const uint32 in = uint32(x);
    return int(collective(6, &in, 1, [](Warp& warp) {
        int most = int(warp.in[0][0]);
        for (int lane = 1; lane < 32; lane++) most = std::max(most, int(warp.in[lane][0]));
        for (int lane = 0; lane < 32; lane++) warp.out[lane][0] = uint32(most);
    })[0]);
}

#include "emulator_products.h"
