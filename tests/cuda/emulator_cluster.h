// Blocks of a cluster: they meet, write to each other's shared memory, and are sent copies of global memory together. Part of emulator.h.
#pragma once

struct Count {  // of bytes: phase, whether it expects some, and how many
    std::uint32_t phase : 24, expects : 8;
    std::int32_t bytes;
    void turn() {
        if (expects && bytes == 0) phase++, expects = 0;
    }
};
namespace emulator {
void start_copy(void* to, const void* from, uint32 bytes, const void* count);
void take_copies(const void* count);  // that arrive there
void drop_copies(const void* count);
}
inline int cluster_rank() { return blockIdx.x % emulator::cluster; }
void cluster_arrive();
void cluster_wait();
template <class T>
T* at_peer(T* at, int rank) {
    const auto offset = reinterpret_cast<unsigned char*>(at) - emulator::current->block->shared;
    return reinterpret_cast<T*>(emulator::shared_of(blockIdx.x - cluster_rank() + rank) + offset);
}
inline void start_counting(uint64* count) {
    *reinterpret_cast<Count*>(count) = {0, 0, 0};
    emulator::drop_copies(count);  // of another launch
}
inline void expect(uint64* count, uint32 bytes) {
    Count& it = *reinterpret_cast<Count*>(count);
    if (it.expects) emulator::fail("a phase expects bytes twice");
    it.expects = 1, it.bytes += bytes;
    it.turn();
}
template <class T>
void store_to_peer(T* at, int rank, T x) {
    *at_peer(at, rank) = x;
}
template <class T>
void store_to_peer(float* at, int rank, const T& x, uint64* count) {
    *reinterpret_cast<T*>(at_peer(at, rank)) = x;
    Count& it = *reinterpret_cast<Count*>(at_peer(count, rank));
    it.bytes -= sizeof x;
    it.turn();
}
inline void wait_for_phase(uint64* count, int phase) {
    emulator::take_copies(count);
    while (reinterpret_cast<Count*>(count)->phase % 2 == phase) emulator::yield();
}
inline void copy_to_cluster(void* to, const void* from, uint32 bytes, uint64* count, int size) {
    if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) % 16) emulator::fail("misaligned copy");
    for (int rank = 0; rank < size; rank++) {
        void* there = at_peer(static_cast<unsigned char*>(to), rank);
        std::memset(there, 0xff, bytes);
        Count& it = *reinterpret_cast<Count*>(at_peer(count, rank));
        emulator::start_copy(there, from, bytes, &it);
        it.bytes -= bytes;
        it.turn();
    }
}
