// The device functions that cuda/device.cuh and the kernels use, on a CPU: every thread of every block is a fiber, warps meet in
// collectives, blocks in barriers. It checks logic and arithmetic (TF32 and bf16 operands are rounded as the hardware does), not memory
// ordering or speed. Shared memory starts as NaN. This file is precompiled, and what no macro changes is compiled once, in emulator.cpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#define __device__ inline  // functions that a kernel does not call are not compiled
#define __global__
#define __forceinline__
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define SHARED_MEMORY(name) unsigned char* name = emulator::current->block->shared
#define threadIdx (emulator::current->thread_index)
#define blockIdx (emulator::current->block_index)
#define blockDim (emulator::block_dim)
#define gridDim (emulator::grid_dim)

using uint32 = std::uint32_t;
using uint64 = unsigned long long;
using std::max;
using std::min;
using std::size_t;
struct float2 { float x, y; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulator {

struct Index { int x; };
struct Block { unsigned char* shared; };
struct Thread {
    Block* block;
    Index thread_index, block_index;
};
struct Warp {
    int arrived = 0, kind = 0;
    unsigned phase = 0;
    uint32 in[32][16], out[32][4];
};

// Of emulator.cpp, which is compiled once for all kernels.
extern Thread* current;
extern Index block_dim, grid_dim;
extern int cluster;  // blocks
[[noreturn]] void fail(const char* what);
void yield();
const uint32* meet(int kind, const uint32* in, int words, void (*compute)(Warp&, const void*), const void* what);
unsigned char* shared_of(int block);

// All lanes of a warp meet; the last one computes everybody's result from everybody's input.
template <class Compute>
const uint32* collective(int kind, const uint32* in, int words, const Compute& compute) {
    return meet(kind, in, words, [](Warp& warp, const void* what) { (*static_cast<const Compute*>(what))(warp); }, &compute);
}

}  // namespace emulator

inline uint32 bits(float x) { uint32 u; std::memcpy(&u, &x, 4); return u; }
inline float number(uint32 u) { float x; std::memcpy(&x, &u, 4); return x; }
inline float at_least(float x, float floor) { return x != x ? number(0x7fffffffu) : x < floor ? floor : x; }
inline float relu(float x) { return at_least(x, 0.0f); }
inline float reciprocal(float x) { return 1 / x; }
extern bool rounds_tf32;  // a Hopper or later
inline uint32 round_tf32(uint32 x) {
    if (!rounds_tf32) return x + 0x1000u;
    return (x & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : (x + 0xfffu + (x >> 13 & 1)) & 0xffffe000u;
}
inline uint32 bf16(float x) { const uint32 u = bits(x); return x != x ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1)) >> 16; }
inline uint32 anew(uint32 x) { return x; }
inline unsigned char* one_address(const unsigned char* at) { return const_cast<unsigned char*>(at); }
inline uint32 push_sign(uint32 mask, float x) { return mask << 1 | bits(x) >> 31; }
inline uint32 pack_half(float low, float high) {
    const _Float16 both[2] = {static_cast<_Float16>(low), static_cast<_Float16>(high)};
    uint32 u;
    std::memcpy(&u, both, 4);
    return u;
}
inline float2 unpack_half(uint32 u) {
    _Float16 both[2];
    std::memcpy(both, &u, 4);
    return {static_cast<float>(both[0]), static_cast<float>(both[1])};
}
inline uint32 pack_bf16(float low, float high) { return bf16(low) | bf16(high) << 16; }
inline uint32 pack_bf16_relu(float low, float high) { return pack_bf16(relu(low), relu(high)); }

// Tensor cores cut sums off where others round them.
inline float cut_off(double sum) {
    const float x = static_cast<float>(sum);
    return std::isfinite(x) && std::abs(double(x)) > std::abs(sum) ? std::nextafter(x, 0.0f) : x;
}
void mma_tf32(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]);
void mma_bf16(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]);
void mma_half(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]);

inline uint32 add_bf16(uint32 x, uint32 y) {
    return pack_bf16(number(x << 16) + number(y << 16), number(x & 0xffff0000u) + number(y & 0xffff0000u));
}
inline uint32 multiply_bf16(uint32 x, uint32 y) {
    return pack_bf16(number(x << 16) * number(y << 16), number(x & 0xffff0000u) * number(y & 0xffff0000u));
}
inline void load_transposed(uint32 (&v)[4], const void* row) {
    const auto address = reinterpret_cast<std::uintptr_t>(row);
    const uint32 in[2] = {uint32(address), uint32(std::uint64_t(address) >> 32)};
    const uint32* out = emulator::collective(7, in, 2, [](emulator::Warp& warp) {
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 4; i++) {
                std::uint16_t half[2];
                for (int e = 0; e < 2; e++) {
                    const uint32* from = warp.in[8 * i + 2 * (lane % 4) + e];
                    half[e] = reinterpret_cast<const std::uint16_t*>(std::uint64_t(from[1]) << 32 | from[0])[lane / 4];
                }
                warp.out[lane][i] = half[0] | uint32(half[1]) << 16;
            }
    });
    for (int i = 0; i < 4; i++) v[i] = out[i];
}
template <int bytes>
void copy(void* to, const void* from, bool there) {
    if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % bytes) emulator::fail("misaligned copy");
    if (there)
        std::memcpy(to, from, bytes);
    else
        std::memset(to, 0, bytes);
}
inline void copy16(void* to, const void* from, bool there) { copy<16>(to, from, there); }
inline void copy16_last(void* to, const void* from, bool there) { copy<16>(to, from, there); }
inline void copy4(void* to, const void* from, bool there) { copy<4>(to, from, there); }
inline void wait_for_copies() {}
inline void commit_copies() {}
template <int>
void wait_for_copies_but() {}

void __syncwarp();
float shuffle_xor(float x, int mask);
inline double shuffle_xor(double x, int mask) {
    float half[2];
    std::memcpy(half, &x, 8);
    for (float& it : half) it = shuffle_xor(it, mask);
    std::memcpy(&x, half, 8);
    return x;
}
uint32 ballot(bool x);
inline int count_bits(uint32 x) { return __builtin_popcount(x); }
int largest(int x);
void barrier(int name, int threads);
inline void __syncthreads() { barrier(0, blockDim.x); }
inline void pause() { emulator::yield(); }
inline void spin() { emulator::yield(); }
inline int load_acquire_block(const int* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
inline void store_release_block(int* at, int value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
inline uint32 load_acquire_grid(const uint32* at) { return *at; }
inline void add_release_grid(uint32* at, uint32 x) { *at += x; }
inline float load_past_l1(const float* at) { return *at; }
inline float4 load4_past_l1(const float* at) { return *reinterpret_cast<const float4*>(at); }
inline void prefetch(const void*) {}
inline void discard(void* at) { std::memset(at, 0xff, 128); }
inline void __threadfence() {}
inline void wait_for_previous() {}
inline void wait_and_hold_next() {}
inline void run_beside_previous() {}
template <class T>
T atomicAdd(T* at, T x) { const T old = *at; *at += x; return old; }
template <class T>
T __ldg(const T* at) {
    if (reinterpret_cast<std::uintptr_t>(at) % sizeof(T)) emulator::fail("misaligned load");
    return *at;
}
template <class T>
T __ldcs(const T* at) { return __ldg(at); }
template <class T>
void __stcs(T* at, const T& x) {
    if (reinterpret_cast<std::uintptr_t>(at) % sizeof(T)) emulator::fail("misaligned store");
    *at = x;
}

#include "emulator_cluster.h"
