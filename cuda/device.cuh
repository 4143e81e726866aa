// What the kernels need of the machine: matrix products, barriers and memory ordering. Only this file and warpgroup.cuh have PTX. Under
// emulation (tests/cuda) the emulator defines the same names, so that everything else also compiles as plain C++.
#pragma once

#ifdef MOLGCN_EMULATOR
#include "emulator.h"
#else

using uint32 = unsigned int;
using uint64 = unsigned long long;

#define SHARED_MEMORY(name) extern __shared__ __align__(1024) unsigned char name[]

__device__ __forceinline__ uint32 bits(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float number(uint32 x) { return __uint_as_float(x); }
__device__ __forceinline__ float at_least(float x, float floor) {  // keeps NaN
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(floor));
    return y;
}
__device__ __forceinline__ float relu(float x) { return at_least(x, 0.0f); }  // as torch.relu
__device__ __forceinline__ uint32 pack_bf16(float low, float high) {
    uint32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// Returns 1 / x but for the last bit, and 0 where that is below 2^-126. This is one instruction; a division is ten and a branch.
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Packs two numbers after relu, which makes negative numbers zero and keeps NaN.
__device__ __forceinline__ uint32 pack_bf16_relu(float low, float high) {
    uint32 packed;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// Rounds x to nearest, as an operand of a TF32 product. From Hopper on this is one instruction, which clears the bits that products ignore
// and keeps NaN.
#if __CUDA_ARCH__ >= 900
constexpr bool rounds_tf32 = true;
__device__ __forceinline__ uint32 round_tf32(uint32 x) {
    uint32 y;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
    return y;
}
#else
constexpr bool rounds_tf32 = false;
__device__ __forceinline__ uint32 round_tf32(uint32 x) { return x + 0x1000u; }
#endif

// d [16 x 8] += a [16 x 8] b [8 x 8]. The low 13 bits of each operand's mantissa are ignored.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// d [16 x 8] += a [16 x 16] b [16 x 8]
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32 pack_half(float low, float high) {
    uint32 packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
__device__ __forceinline__ float2 unpack_half(uint32 x) {
    float2 y;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}" : "=f"(y.x), "=f"(y.y) : "r"(x));
    return y;
}
// d [16 x 8] += a [16 x 16] b [16 x 8]
__device__ __forceinline__ void mma_half(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Returns x, but hides its value from the compiler. What follows from x is then computed where it is used instead of ahead of a loop, where
// it would take registers.
__device__ __forceinline__ uint32 anew(uint32 x) {
    asm volatile("" : "+r"(x));
    return x;
}
// (mask << 1) | sign of x
__device__ __forceinline__ uint32 push_sign(uint32 mask, float x) { return __funnelshift_l(__float_as_uint(x), mask, 1); }
__device__ __forceinline__ uint32 add_bf16(uint32 x, uint32 y) {  // adds two pairs of bf16
    uint32 sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(0x3f803f80u), "r"(y));
    return sum;
}
__device__ __forceinline__ uint32 multiply_bf16(uint32 x, uint32 y) {
    uint32 product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(x), "r"(y), "r"(0x80008000u));
    return product;
}
__device__ __forceinline__ uint32 shared_address(const void* at) { return static_cast<uint32>(__cvta_generic_to_shared(at)); }
// Returns the same address in shared memory, in one register. The compiler then adds constants to it instead of computing it from its parts
// again.
__device__ __forceinline__ unsigned char* one_address(const unsigned char* at) {
    return static_cast<unsigned char*>(__cvta_shared_to_generic(anew(shared_address(at))));
}
// Loads four 8 x 8 blocks of 16-bit numbers from shared memory, transposed. Lane 8 i + r gives the address of row r of block i; lane 4 g +
// t gets rows 2 t and 2 t + 1 of column g.
__device__ __forceinline__ void load_transposed(uint32 (&v)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// Copies 16 or 4 bytes asynchronously from global to shared memory; writes zeros unless `there`.
__device__ __forceinline__ void copy16(void* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}
// Copies 16 bytes that nobody reads again: they are the first to leave the cache.
__device__ __forceinline__ void copy16_last(void* to, const void* from, bool there) {
    uint64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16 : 0), "l"(policy)
                 : "memory");
}
__device__ __forceinline__ void copy4(void* to, const void* from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 4 : 0)
                 : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Makes a group of the thread's copies since the last group, and waits for all groups but the last LEFT.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_for_copies_but() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

__device__ __forceinline__ float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ double shuffle_xor(double x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ uint32 ballot(bool x) { return __ballot_sync(0xffffffffu, x); }
__device__ __forceinline__ int count_bits(uint32 x) { return __popc(x); }
__device__ __forceinline__ int largest(int x) { return __reduce_max_sync(0xffffffffu, x); }

__device__ __forceinline__ void barrier(int name, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory"); }
// Between looks at what other blocks write. Only cooperative launches wait so, which CUDA refuses unless all blocks run at once, also in the
// share of a GPU that MPS leaves a process.
__device__ __forceinline__ void pause() { __nanosleep(20); }
__device__ __forceinline__ void spin() {}  // used where another warp is done in less than a pause

// Loads from shared memory, ordered within the block.
__device__ __forceinline__ int load_acquire_block(const int* at) {
    int value;
    asm volatile("ld.acquire.cta.shared::cta.b32 %0, [%1];" : "=r"(value) : "r"(shared_address(at)) : "memory");
    return value;
}
__device__ __forceinline__ void store_release_block(int* at, int value) {
    asm volatile("st.release.cta.shared::cta.b32 [%0], %1;" ::"r"(shared_address(at)), "r"(value) : "memory");
}
__device__ __forceinline__ uint32 load_acquire_grid(const uint32* at) {
    uint32 value;
    asm volatile("ld.acquire.gpu.b32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
// Adds x. Whoever sees the sum also sees what this thread, and those it met in a barrier, wrote before.
__device__ __forceinline__ void add_release_grid(uint32* at, uint32 x) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}
// Waits for all writes of the previous kernel, then lets the next kernel start. It does something only in a kernel that was launched to
// overlap its predecessor. What the kernel reads before must be older than the predecessor.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Lets the next kernel start, in a kernel that runs beside its predecessor: neither touches what the other writes. The predecessor started when
// what came before it had ended, but this multiprocessor's cache may be older. The kernel waits for its predecessor at its own end.
__device__ __forceinline__ void run_beside_previous() {
#if __CUDA_ARCH__ >= 900
    __threadfence();
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// The same as wait_for_previous, but the next kernel starts only when this one has ended.
__device__ __forceinline__ void wait_and_hold_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Functions for the blocks of a cluster, from Hopper on. They meet, write to each other's shared memory, and get copies of global memory
// together.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// An mbarrier counts bytes on their way. One thread says how many to expect, and all wait for the end of a phase (0, 1, 0, ...).
__device__ __forceinline__ void start_counting(uint64* count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(shared_address(count)) : "memory");
}
__device__ __forceinline__ void expect(uint64* count, uint32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(count)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_for_phase(uint64* count, int phase) {
    uint32 done;
    do {
        asm volatile(
            "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
            : "=r"(done)
            : "r"(shared_address(count)), "r"(phase)
            : "memory");
    } while (!done);
}
__device__ __forceinline__ uint32 peer_address(const void* at, int rank) {
    uint32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(at)), "r"(rank));
    return there;
}
// Stores x at the address `at` in the shared memory of block `rank`, and counts its bytes in that block's `count`.
__device__ __forceinline__ void store_to_peer(float* at, int rank, float x, uint64* count) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(peer_address(at, rank)), "f"(x),
                 "r"(peer_address(count, rank))
                 : "memory");
}
__device__ __forceinline__ void store_to_peer(float* at, int rank, const float2& x, uint64* count) {
    const uint32 there = peer_address(at, rank), counted = peer_address(count, rank);
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(there), "f"(x.x), "f"(x.y), "r"(counted)
                 : "memory");
}
// Copies `bytes`, a multiple of 16, to the same address in the shared memory of the cluster's first `size` blocks. Each block counts them.
__device__ __forceinline__ void copy_to_cluster(void* to, const void* from, uint32 bytes, uint64* count, int size) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(count)), "h"(static_cast<unsigned short>((1u << size) - 1))
                 : "memory");
}
#endif
__device__ __forceinline__ float load_past_l1(const float* at) { return __ldcg(at); }
__device__ __forceinline__ float4 load4_past_l1(const float* at) { return __ldcg(reinterpret_cast<const float4*>(at)); }
__device__ __forceinline__ void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
// Discards the 128 bytes at `at` from the cache without writing them to memory. Their values are undefined from now on.
__device__ __forceinline__ void discard(void* at) { asm volatile("discard.global.L2 [%0], 128;" ::"l"(at) : "memory"); }

#endif

// Tensor cores truncate sums where float32 arithmetic rounds them, so that results come out too small, layer after layer. Weights are taken
// larger to make up for it, by a number of units of 2^-23 that grows with the length of the dot product (docs/decisions/cuda_accuracy.md).
__device__ __forceinline__ constexpr float larger_by(float units) { return 1.0f + units * (1.0f / (1 << 23)); }

// Returns the sum over lanes 4 g .. 4 g + 3 of a warp, at each of them. They share rows or columns of a tensor core's result.
__device__ __forceinline__ float over_four_lanes(float x) {
    x += shuffle_xor(x, 1);
    return x + shuffle_xor(x, 2);
}

// Returns the entry that a block belongs to: the last of `count` whose first block is not after this block.
template <class Entry>
__device__ __forceinline__ const Entry& entry_of_block(const Entry* entries, int count) {
    int index = 0, beyond = count;
    while (beyond - index > 1) {
        const int middle = (index + beyond) / 2;
        if (entries[middle].first_block <= static_cast<int>(blockIdx.x))
            index = middle;
        else
            beyond = middle;
    }
    return entries[index];
}
