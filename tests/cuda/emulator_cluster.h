// Blocks of a cluster: they meet, write to each other's shared memory, and are sent copies of global memory together. Part of emulator.h.
#pragma once

struct Count {  // of bytes: phase, whether it expects some, and how many
    std::uint32_t phase : 24, expects : 8;
    std::int32_t bytes;
    void turn() {
        if (expects && bytes == 0) phase++, expects = 0;
    }
};
// A copy under way. It arrives when a thread waits for its bytes; who does not wait reads NaN.
struct Copy {
    void* to;
    const void* from;
    std::uint32_t bytes;
    Count* count;
};
inline std::vector<Copy> copies;
template <class Take>
void take_copies(const void* count, Take take) {
    for (const Copy& copy : copies)
        if (copy.count == count) take(copy);
    copies.erase(std::remove_if(copies.begin(), copies.end(), [count](const Copy& copy) { return copy.count == count; }), copies.end());
}
inline int cluster_rank() { return blockIdx.x % emulator::cluster; }
inline void cluster_arrive() {
    emulator::Barrier& it = emulator::clusters[blockIdx.x / emulator::cluster];
    emulator::current->cluster_phase = it.phase;
    emulator::Barrier& own = emulator::current->block->barriers[emulator::cluster_barrier];
    races_arrive(emulator::cluster_barrier);
    if (++own.arrived == blockDim.x) own.arrived = 0, races_open(emulator::cluster_barrier);
    if (++it.arrived == emulator::cluster * blockDim.x) it.arrived = 0, it.phase++;
}
inline void cluster_wait() {
    emulator::wait_while(emulator::clusters[blockIdx.x / emulator::cluster].phase, emulator::current->cluster_phase);
    races_leave(emulator::cluster_barrier);
}
template <class T>
T* at_peer(T* at, int rank) {
    const auto offset = reinterpret_cast<unsigned char*>(at) - emulator::current->block->shared.data();
    return reinterpret_cast<T*>(emulator::all_blocks[blockIdx.x - cluster_rank() + rank].shared.data() + offset);
}
inline void start_counting(uint64* count) {
    *reinterpret_cast<Count*>(count) = {0, 0, 0};
    take_copies(count, [](const Copy&) {});  // of another launch
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
    take_copies(count, [](const Copy& copy) { std::memcpy(copy.to, copy.from, copy.bytes); });
    while (reinterpret_cast<Count*>(count)->phase % 2 == phase) emulator::yield();
}
inline void copy_to_cluster(void* to, const void* from, uint32 bytes, uint64* count, int size) {
    if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) % 16) emulator::fail("misaligned copy");
    for (int rank = 0; rank < size; rank++) {
        void* there = at_peer(static_cast<unsigned char*>(to), rank);
        std::memset(there, 0xff, bytes);
        Count& it = *reinterpret_cast<Count*>(at_peer(count, rank));
        copies.push_back({there, from, bytes, &it});
        it.bytes -= bytes;
        it.turn();
    }
}
