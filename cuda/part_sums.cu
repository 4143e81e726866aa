// Adds up the parts of sums that blocks or warps have left, each number in the same order every time.
//
// Macros: DOUBLE, MAX_SUMS.
#include "real.cuh"
#include "part_sums_structs.h"  // molgcn/ops/layer_network/part_sums.py

constexpr int together = 8;  // parts that are under way

extern "C" __global__ void __launch_bounds__(256) part_sums(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    real* shared = reinterpret_cast<real*>(memory);  // [shares][numbers of the block]
    const Sum& it = entry_of_block(p.sums, p.num_sums);
    const int side_by_side = blockDim.x / it.shares, share = threadIdx.x / side_by_side;
    const int number = (blockIdx.x - it.first_block) * side_by_side + threadIdx.x % side_by_side;
    wait_for_previous();
    real sum = 0;
    for (int first = share; number < it.numbers && first < it.num_parts; first += together * it.shares) {
        real part[together];
#pragma unroll
        for (int i = 0; i < together; i++)
            part[i] = first + i * it.shares < it.num_parts ? it.parts[size_t(first + i * it.shares) * it.step + number] : real(0);
#pragma unroll
        for (int i = 0; i < together; i++) sum += part[i];
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (share > 0 || number >= it.numbers) return;
    for (int i = 1; i < it.shares; i++) sum += shared[i * side_by_side + threadIdx.x];
    it.out[number] = it.add == nullptr ? sum : sum + it.add[number];
}
