// Adds up the parts of sums that blocks or warps have left, each number in the same order every time. A thread has four numbers where they
// are aligned.
//
// Macros: DOUBLE, MAX_SUMS.
#include "real.cuh"
#include "part_sums_structs.h"  // molgcn/ops/part_sums.py

constexpr int together = 8;  // parts that are under way

__device__ __forceinline__ void add(real& sum, real x) { sum += x; }

template <class Numbers>  // of a thread: Quad or real
__device__ __forceinline__ void add_up(const Sum& it, unsigned char* memory) {
    Numbers* shared = reinterpret_cast<Numbers*>(memory);  // [shares][numbers of the block]
    const int side_by_side = blockDim.x / it.shares, share = threadIdx.x / side_by_side;
    const int index = (blockIdx.x - it.first_block) * side_by_side + threadIdx.x % side_by_side, number = it.vector * index;
    const auto at = [&](const real* from) { return *reinterpret_cast<const Numbers*>(from + number); };
    Numbers sum = {};
    for (int first = share; number < it.numbers && first < it.num_parts; first += together * it.shares) {
        Numbers part[together];
#pragma unroll
        for (int i = 0; i < together; i++)
            part[i] = first + i * it.shares < it.num_parts ? at(it.parts + size_t(first + i * it.shares) * it.step) : Numbers{};
#pragma unroll
        for (int i = 0; i < together; i++) add(sum, part[i]);
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (share > 0 || number >= it.numbers) return;
    for (int i = 1; i < it.shares; i++) add(sum, shared[i * side_by_side + threadIdx.x]);
    if (it.add != nullptr) add(sum, at(it.add));
    *reinterpret_cast<Numbers*>(it.out + number) = sum;
}

extern "C" __global__ void __launch_bounds__(256) part_sums(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Sum& it = entry_of_block(p.sums, p.num_sums);
    wait_for_previous();
    if (it.vector == 4)
        add_up<Quad>(it, memory);
    else
        add_up<real>(it, memory);
}
