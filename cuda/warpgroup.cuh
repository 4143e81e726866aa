// What Hopper's tensor cores need to multiply rows in shared memory asynchronously: four warps issue a product together, and wait for it
// later. Only sm_90a has these instructions. Under emulation, tests/cuda/emulator_warpgroup.h defines the same names.
#pragma once
#include "device.cuh"

#ifdef MOLGCN_EMULATOR
#include "emulator_warpgroup.h"
#else

// A matrix of halves in shared memory, in blocks of eight rows of 16 bytes each: where it begins, and how many bytes there are from a block
// to the next one of the same rows, and to that of the next eight rows.
using HalvesMatrix = uint64;
__device__ __forceinline__ HalvesMatrix halves_matrix(const void* at, int next_columns, int next_rows) {
    return shared_address(at) >> 4 | uint64(next_columns / 16) << 16 | uint64(next_rows / 16) << 32;
}
__device__ __forceinline__ HalvesMatrix moved(HalvesMatrix matrix, int bytes) { return matrix + bytes / 16; }

// Makes a thread's writes to shared memory visible to asynchronous products that follow a barrier.
__device__ __forceinline__ void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Orders registers that have been written before the products that follow.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all products but those of the last LEFT groups.
template <int LEFT>
__device__ __forceinline__ void wait_for_products_but() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
// Keeps the compiler from using a sum before the wait that this follows.
__device__ __forceinline__ void arrived(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }

// Copies `bytes`, a multiple of 16, from global to shared memory. The barrier `count` counts them.
__device__ __forceinline__ void copy_in_bulk(void* to, const void* from, uint32 bytes, uint64* count) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from),
                 "r"(bytes), "r"(shared_address(count))
                 : "memory");
}

// Assembly of a product with 8 N rows: the number of rows, the registers of the sums and of the operands, whether to add, and the sums themselves.
#define ROWS_2 "16"
#define ROWS_4 "32"
#define ROWS_5 "40"
#define ROWS_6 "48"
#define ROWS_7 "56"
#define ROWS_8 "64"
#define ROWS_10 "80"
#define SUMS_2 "%0,%1,%2,%3,%4,%5,%6,%7"
#define SUMS_4 SUMS_2 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define SUMS_5 SUMS_4 ",%16,%17,%18,%19"
#define SUMS_6 SUMS_5 ",%20,%21,%22,%23"
#define SUMS_7 SUMS_6 ",%24,%25,%26,%27"
#define SUMS_8 SUMS_7 ",%28,%29,%30,%31"
#define SUMS_10 SUMS_8 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define OPERANDS_2 "{%8,%9,%10,%11}, %12, p"
#define OPERANDS_4 "{%16,%17,%18,%19}, %20, p"
#define OPERANDS_5 "{%20,%21,%22,%23}, %24, p"
#define OPERANDS_6 "{%24,%25,%26,%27}, %28, p"
#define OPERANDS_7 "{%28,%29,%30,%31}, %32, p"
#define OPERANDS_8 "{%32,%33,%34,%35}, %36, p"
#define OPERANDS_10 "{%40,%41,%42,%43}, %44, p"
#define ADD_2 "%13"
#define ADD_4 "%21"
#define ADD_5 "%25"
#define ADD_6 "%29"
#define ADD_7 "%33"
#define ADD_8 "%37"
#define ADD_10 "%45"
#define OF(m) "+f"(d[m][0]), "+f"(d[m][1]), "+f"(d[m][2]), "+f"(d[m][3])
#define ALL_2 OF(0), OF(1)
#define ALL_4 ALL_2, OF(2), OF(3)
#define ALL_5 ALL_4, OF(4)
#define ALL_6 ALL_5, OF(5)
#define ALL_7 ALL_6, OF(6)
#define ALL_8 ALL_7, OF(7)
#define ALL_10 ALL_8, OF(8), OF(9)

// d [64 x 8 N] += a [64 x 16] b [16 x 8 N], where b's columns are rows of the matrix, or without `adds` d = a b. A warp has 16 rows of a and of
// d, in the registers of mma_half, and d[m] is of the rows 8 m .. 8 m + 7 of the matrix.
#define DEFINE_PRODUCT(N)                                                                                                    \
    template <bool adds = true>                                                                                              \
    __device__ __forceinline__ void multiply_halves(float (&d)[N][4], const uint32 (&a)[4], HalvesMatrix b) {                \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " ADD_##N ", 0; wgmma.mma_async.sync.aligned.m64n" ROWS_##N              \
                     "k16.f32.f16.f16 {" SUMS_##N "}, " OPERANDS_##N ", 1, 1, 0;}"                                           \
                     : ALL_##N                                                                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(adds)                                         \
                     : "memory");                                                                                            \
    }
DEFINE_PRODUCT(2)
DEFINE_PRODUCT(4)
DEFINE_PRODUCT(5)
DEFINE_PRODUCT(6)
DEFINE_PRODUCT(7)
DEFINE_PRODUCT(8)
DEFINE_PRODUCT(10)

#endif
