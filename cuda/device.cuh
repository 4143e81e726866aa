// What the kernels need of the machine: matrix products, barriers, ordering. The only file with PTX; under emulation (tests/cuda) the
// same names come from the emulator, so that everything else also compiles as plain C++.
#pragma once

#ifdef MOLGCN_EMULATOR
#include "emulator.h"
#else

using uint32 = unsigned int;
using uint64 = unsigned long long;

#define SHARED_MEMORY(name) extern __shared__ __align__(1024) unsigned char name[]

__device__ __forceinline__ uint32 bits(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float number(uint32 x) { return __uint_as_float(x); }
__device__ __forceinline__ float relu(float x) {  // keeps NaN, as torch.relu does
    float y;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ uint32 pack_bf16(float low, float high) {
    uint32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// d [16 x 8] += a [16 x 8] b [8 x 8]; the low 13 bits of each operand's mantissa are ignored.
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

// x. Keeps the compiler from computing ahead of a loop what follows from x in a few instructions: registers are scarcer than these.
__device__ __forceinline__ uint32 anew(uint32 x) {
    asm volatile("" : "+r"(x));
    return x;
}
// (mask << 1) | sign of x
__device__ __forceinline__ uint32 push_sign(uint32 mask, float x) { return __funnelshift_l(__float_as_uint(x), mask, 1); }
__device__ __forceinline__ uint32 add_bf16(uint32 x, uint32 y) {  // of two bf16 in a word
    uint32 sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(0x3f803f80u), "r"(y));
    return sum;
}
// Four 8 x 8 blocks of 16-bit numbers in shared memory, transposed: lane 8 i + r gives the address of row r of block i; lane 4 g + t gets
// rows 2 t and 2 t + 1 of column g.
__device__ __forceinline__ void load_transposed(uint32 (&v)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(static_cast<uint32>(__cvta_generic_to_shared(row)))
                 : "memory");
}
// 16 bytes from global to shared memory, zeros unless `there`
__device__ __forceinline__ void copy16(void* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32>(__cvta_generic_to_shared(to))), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ uint32 ballot(bool x) { return __ballot_sync(0xffffffffu, x); }
__device__ __forceinline__ int count_bits(uint32 x) { return __popc(x); }
__device__ __forceinline__ int largest(int x) { return __reduce_max_sync(0xffffffffu, x); }

__device__ __forceinline__ void barrier(int name, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory"); }
__device__ __forceinline__ void pause() { __nanosleep(20); }

__device__ __forceinline__ int load_acquire_block(const int* at) {
    int value;
    asm volatile("ld.acquire.cta.b32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
__device__ __forceinline__ void store_release_block(int* at, int value) {
    asm volatile("st.release.cta.b32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ uint32 load_acquire_grid(const uint32* at) {
    uint32 value;
    asm volatile("ld.acquire.gpu.b32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
// A kernel that was launched to overlap its predecessor waits for all of its writes, then lets its own successor start. What it reads
// before must be older.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ float load_past_l1(const float* at) { return __ldcg(at); }
__device__ __forceinline__ float4 load4_past_l1(const float* at) { return __ldcg(reinterpret_cast<const float4*>(at)); }
__device__ __forceinline__ void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

#endif
