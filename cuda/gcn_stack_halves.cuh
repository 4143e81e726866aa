// Forward's products in float32 accuracy from halves (halves.cuh), for up to 32 features whose weights lie in shared memory: half the work of
// the tensor cores that TF32 in three products is, and half the error. A row is scaled when all its neighbours are pulled, a layer's weights
// once. Warps of fewer rows are quicker with TF32.
#pragma once
#include "gcn_stack.cuh"
#include "halves.cuh"

constexpr bool in_halves = PRECISION == PRECISION_FLOAT32 && width <= 32 && ROW_TILES >= 3 && SHARED_WEIGHTS && !WIDE_INPUT;

__device__ __forceinline__ uint32 largest_of(const Segment& s, uint32 most) {
#pragma unroll
    for (int i = 0; i < words; i++) most = bits(fmaxf(number(most), fabsf(number(s.word[i]))));
    return most;
}
// A lane's numbers as halves, then what those leave
__device__ __forceinline__ Segment halved(const Segment& s, float up) {
    Segment all;
#pragma unroll
    for (int i = 0; i < words / 2; i++)
        split_halves(number(s.word[2 * i]) * up, number(s.word[2 * i + 1]) * up, all.word[i], all.word[words / 2 + i]);
    return all;
}

// sum = (A + I) (buffer) W, where a row's number is still to be multiplied by its `down` and the layer's. see(m, half, b, pulled) each segment.
template <bool large, class See>
__device__ __forceinline__ void multiply_pulled_halves(Features& sum, float (&down)[ROW_TILES][2], const Neighbours<large>& neighbours,
                                                       const unsigned char* buffer, const Parameters& p, const Tile& tile, const Group& group,
                                                       const Segment* weights, int end_column, See see) {
#pragma unroll
    for (int m0 = 0; m0 < ROW_TILES; m0 += pair) {
        Segment pulled[spans][pair][2];
#pragma unroll
        for (int b = 0; b < spans; b++) {
            if (span * b < end_column) {
                neighbours.pull(pulled[b], buffer, p.bonds, tile, group, b, m0);
            } else {
#pragma unroll
                for (int i = 0; i < 2 * pair; i++) pulled[b][i / 2][i % 2] = zeros();
            }
#pragma unroll
            for (int i = 0; i < 2 * pair && m0 + i / 2 < ROW_TILES; i++) see(m0 + i / 2, i % 2, b, pulled[b][i / 2][i % 2]);
        }
#pragma unroll
        for (int i = 0; i < 2 * pair && m0 + i / 2 < ROW_TILES; i++) {
            uint32 most = 0;
#pragma unroll
            for (int b = 0; b < spans; b++) most = largest_of(pulled[b][i / 2][i % 2], most);
            float all = number(most);
            all = fmaxf(all, shuffle_xor(all, 1));
            all = fmaxf(all, shuffle_xor(all, 2));
            const Scale scale(bits(all));
            down[m0 + i / 2][i % 2] = scale.down;
#pragma unroll
            for (int b = 0; b < spans; b++) pulled[b][i / 2][i % 2] = halved(pulled[b][i / 2][i % 2], scale.up);
        }
#pragma unroll
        for (int b = 0; b < spans; b++) {
            uint32 right[column_tiles][2][2];
#pragma unroll
            for (int j = 0; j < column_tiles; j++) {
                const Segment w = weights[(b * column_tiles + j) * 32 + group.lane];
#pragma unroll
                for (int i = 0; i < words; i++) right[j][i / 2][i % 2] = w.word[i];
            }
#pragma unroll
            for (int pass = 0; pass < 3; pass++)
#pragma unroll
                for (int i = 0; i < pair && m0 + i < ROW_TILES; i++)
#pragma unroll
                    for (int j = 0; j < column_tiles; j++) {
                        const int low = pass == 0 ? 2 : 0;
                        const Segment(&rows)[2] = pulled[b][i];
                        const uint32 left[4] = {rows[0].word[low], rows[1].word[low], rows[0].word[low + 1], rows[1].word[low + 1]};
                        mma_half(sum.v[m0 + i][j], left, right[j][pass == 1]);
                    }
        }
    }
}
