// Products of matrices in shared memory, in float32, by all threads of a block.
//
// A group of lanes computes 4 x 4 numbers of the result. It shares the contraction where there are fewer groups than threads. All sums
// have a fixed order.
#pragma once
#include "quads.cuh"

__device__ __forceinline__ constexpr int quads_of(int count) { return (count + 3) / 4; }

// One operand: 4 `quads` vectors, which lie along the matrix's rows or across them. Rows begin at multiples of 16 bytes. Loads are free of
// bank conflicts if `stride` / 4 is odd.
template <bool ALONG>
struct Operand {
    const float* begin;
    int stride, quads;

    // Returns the offset of a vector of a quad.
    __device__ __forceinline__ int vector(int quad, int e) const { return ALONG ? quad + e * quads : 4 * quad + e; }
    // Loads four numbers of each of a quad's vectors.
    __device__ __forceinline__ void load(float4 (&x)[4], int quad, int step) const {
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = *reinterpret_cast<const float4*>(begin + (ALONG ? vector(quad, e) * stride + 4 * step : (4 * step + e) * stride + 4 * quad));
    }
    // Returns number k of vector e from what was loaded.
    __device__ __forceinline__ static float number_of(const float4 (&x)[4], int e, int k) { return ALONG ? at(x[e], k) : at(x[k], e); }
};

// Calls write(quad of left, quad of right, sums) once for each pair of quads, where sums[m][n] is the dot product of their vectors m and n
// over 4 `steps` numbers.
template <class Left, class Right, class Write>
__device__ __forceinline__ void product(const Left& left, const Right& right, int steps, const Write& write) {
    int across = 0, shared = 0;  // log2 of how many neighbours of one left quad are side by side, and of the lanes of a group
    while (across < 3 && 2 << across <= right.quads) across++;
    const int strips = (right.quads + (1 << across) - 1) >> across, pairs = left.quads * strips << across;
    while (shared < 5 && 2 << shared <= steps && pairs << (shared + 1) <= static_cast<int>(blockDim.x)) shared++;
    const int lane = threadIdx.x & ((1 << shared) - 1);
    for (int first = 0; first < pairs; first += blockDim.x >> shared) {  // all lanes of a warp go on to the shuffles
        const int pair = first + (threadIdx.x >> shared), strip = (pair >> across) / left.quads;
        const int i = (pair >> across) - strip * left.quads, j = (strip << across) + (pair & ((1 << across) - 1));
        const bool there = strip < strips && j < right.quads;
        float sum[4][4] = {};
#pragma unroll 2
        for (int step = there ? lane : steps; step < steps; step += 1 << shared) {
            float4 a[4], b[4];
            left.load(a, i, step);
            right.load(b, j, step);
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int m = 0; m < 4; m++)
#pragma unroll
                    for (int n = 0; n < 4; n++) sum[m][n] = fmaf(left.number_of(a, m, k), right.number_of(b, n, k), sum[m][n]);
        }
        for (int mask = 1; mask < 1 << shared; mask *= 2)
#pragma unroll
            for (int e = 0; e < 16; e++) sum[e / 4][e % 4] += shuffle_xor(sum[e / 4][e % 4], mask);
        if (lane == 0 && there) write(i, j, sum);
    }
}
