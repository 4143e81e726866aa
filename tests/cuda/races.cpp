// Finds accesses to a block's shared memory that nothing orders, by vector clocks as FastTrack does (Flanagan and Freund, PLDI 2009): of every
// byte the last write and each thread's last read. Barriers, __syncwarp and a release that is acquired order; products, shuffles and votes
// do not. A meeting of a cluster orders a block's threads; what other blocks store in its memory is not known here. The kernel is compiled
// with -fsanitize=thread; this is not, and takes the place of the sanitizer's library.
#include "races.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace {

using Place = std::uint32_t;  // of an instruction in the kernel's library
using Clock = std::vector<unsigned>;
struct Access {
    unsigned clock;
    Place place;
};
struct Cell {
    Access write;
    short writer;
    bool read;
};
struct Wait {
    Clock arrived, open;
};
struct Free {
    void operator()(void* p) const { std::free(p); }
};
template <class T>
using Zeros = std::unique_ptr<T[], Free>;  // most of it is never touched
struct Block {
    std::vector<Clock> clocks;
    std::map<int, Wait> waits;
    std::map<const void*, Clock> released;
    Zeros<Cell> cells;
    Zeros<Access> reads;  // a thread each
};

std::vector<Block> blocks;
std::set<std::pair<Place, Place>> found;
int threads, thread;
char* library;
size_t bytes;
Block* block;
const unsigned char* shared;

void join(Clock& to, const Clock& from) {
    for (int i = 0; i < threads; i++) to[i] = std::max(to[i], from[i]);
}

void access(const void* at, size_t size, bool write, void* from) {
    const size_t first = static_cast<const unsigned char*>(at) - shared;
    if (first >= bytes) return;  // an address below, too
    const Place place = static_cast<char*>(from) - library - 1;
    const Clock& now = block->clocks[thread];
    for (size_t i = first; i < first + size; i++) {
        Cell& cell = block->cells[i];
        Access* reads = &block->reads[i * threads];
        if (cell.write.clock > now[cell.writer]) found.insert({cell.write.place, place});
        if (!write) {
            reads[thread] = {now[thread], place};
            cell.read = true;
            continue;
        }
        for (int other = 0; cell.read && other < threads; other++) {
            if (reads[other].clock > now[other]) found.insert({reads[other].place, place});
            reads[other] = {};
        }
        cell = {{now[thread], place}, static_cast<short>(thread), false};
    }
}

}  // namespace

extern "C" {

void races_start(int count, int threads_, size_t bytes_, const void* kernel) {
    threads = threads_, bytes = bytes_;
    Dl_info info;
    dladdr(kernel, &info);
    library = static_cast<char*>(info.dli_fbase);
    blocks.clear();
    blocks.resize(count);
    for (Block& it : blocks) {
        it.clocks.assign(threads, Clock(threads));
        for (int i = 0; i < threads; i++) it.clocks[i][i] = 1;
        it.cells.reset(static_cast<Cell*>(std::calloc(bytes, sizeof(Cell))));
        it.reads.reset(static_cast<Access*>(std::calloc(bytes * threads, sizeof(Access))));
    }
}
void races_run(int block_, int thread_, const unsigned char* shared_) { block = &blocks[block_], thread = thread_, shared = shared_; }
void races_meet_warp() {
    const int first = thread / 32 * 32;
    Clock all(threads);
    for (int i = first; i < first + 32; i++) join(all, block->clocks[i]);
    for (int i = first; i < first + 32; i++) {
        block->clocks[i] = all;
        block->clocks[i][i]++;
    }
}
void races_arrive(int barrier) {
    Wait& it = block->waits[barrier];
    it.arrived.resize(threads);
    join(it.arrived, block->clocks[thread]);
}
void races_open(int barrier) {
    Wait& it = block->waits[barrier];
    it.open = it.arrived;
    it.arrived.assign(threads, 0);
}
void races_leave(int barrier) {
    join(block->clocks[thread], block->waits[barrier].open);
    block->clocks[thread][thread]++;
}
// To be called after each launch: its pairs of instructions, at most so many; how many there are.
int races_found(Place* pairs, int most) {
    std::vector<Block>().swap(blocks);
    shared = nullptr;  // this memory may be used for something else now
    const int count = found.size();
    for (const auto& [first, second] : found)
        if (most-- > 0) *pairs++ = first, *pairs++ = second;
    found.clear();
    return count;
}

#define AT __builtin_return_address(0)
#define ACCESSES(size)                                                                   \
    void __tsan_read##size(const void* at) { access(at, size, false, AT); }              \
    void __tsan_write##size(const void* at) { access(at, size, true, AT); }
#define UNALIGNED(size)                                                                  \
    void __tsan_unaligned_read##size(const void* at) { access(at, size, false, AT); }    \
    void __tsan_unaligned_write##size(const void* at) { access(at, size, true, AT); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
UNALIGNED(2)
UNALIGNED(4)
UNALIGNED(8)
UNALIGNED(16)
int __tsan_atomic32_load(const int* at, int) {
    const auto it = block->released.find(at);
    if (it != block->released.end()) join(block->clocks[thread], it->second);
    return *at;
}
void __tsan_atomic32_store(int* at, int value, int) {
    block->released[at] = block->clocks[thread];
    block->clocks[thread][thread]++;
    *at = value;
}
void __tsan_read_range(const void* at, size_t size) { access(at, size, false, AT); }
void __tsan_write_range(const void* at, size_t size) { access(at, size, true, AT); }
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
