// A block's rows in shared memory: Â times the layer's input, pulled along the atoms' bonds, and its product with a weight.
#pragma once
#include "gcn_layer.cuh"
#include "halves_product.cuh"

struct Shared {
    float* tile;      // [rows, stride]: Â times the input, as halves; before and after, sums on their way
    float* own_rows;  // [rows + 1, stride]: the atoms' own input, and zeros; then the product
    int4* sources;    // [rows]: of the first four bonds the row in own_rows, or of zeros where that is none of the block's
    float4* factors;  // [rows]
    float4* own;      // [rows]: the atom's own factor; then, as integers, its bonds beyond the fourth: first, end
    float* columns;   // [6, width]: numbers of each column
    float* scales;    // [rows]: of the tile

    __device__ explicit Shared(unsigned char* memory) {
        tile = reinterpret_cast<float*>(memory);
        own_rows = tile + rows * stride;
        sources = reinterpret_cast<int4*>(own_rows + (rows + 1) * stride);
        factors = reinterpret_cast<float4*>(sources + rows);
        own = factors + rows;
        columns = reinterpret_cast<float*>(own + rows);
        scales = columns + 6 * width;
    }
    __device__ __forceinline__ float4 column4(int which, int quad) const { return four(columns + which * width + 4 * quad); }
};

// Stores the bonds of an atom of the block. `end` is the end of all its bonds, `begin` the index of the fifth.
__device__ __forceinline__ void place_bonds(const Shared& shared, int row, int first, int count, int begin, int end, float scale, const int4& source,
                                            const float4& factor) {
    const auto row_of = [&](int atom, float weight) { return weight != 0.0f && atom >= first && atom < first + count ? atom - first : rows; };
    shared.sources[row] = make_int4(row_of(source.x, factor.x), row_of(source.y, factor.y), row_of(source.z, factor.z), row_of(source.w, factor.w));
    shared.factors[row] = factor;
    const uint32 none = 0;
    shared.own[row] = make_float4(SELF_LOOPS ? scale * scale : 0.0f, scale, number(begin < end ? begin : none), number(begin < end ? end : none));
}
__device__ __forceinline__ void read_bonds(const Parameters& p, const Shared& shared, int first, int count) {
    for (int row = threadIdx.x; row < count; row += threads) {
        const int node = first + row;
        const int begin = __ldg(p.rowptr + node) + 4, end = __ldg(p.rowptr + node + 1);
        const float scale = p.scale[node];
        const int4 source = p.sources[node];
        const float4 factor = p.factors[node];
        place_bonds(shared, row, first, count, begin, end, scale, source, factor);
    }
    for (int quad = threadIdx.x; quad < stride / 4; quad += threads) four(shared.own_rows + rows * stride + 4 * quad) = nothing();
}

// tile[row] = Â times own_rows, of `count_quads` quads. done(node, quad, sum) receives the results.
template <class Done>
__device__ __forceinline__ void pull_neighbours(const Parameters& p, const Shared& shared, int first, int count, int count_quads, Done done) {
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes;
    constexpr int most_quads = (depth / 4 + lanes - 1) / lanes;
    for (int row = team; row < rows; row += teams) {  // all lanes of a warp continue together
        const bool there = row < count;
        const float4 factor = there ? shared.factors[row] : nothing(), self = there ? shared.own[row] : nothing();
        const int4 source = there ? shared.sources[row] : make_int4(rows, rows, rows, rows);
        const int end = static_cast<int>(bits(self.w));
        float4 sum[most_quads];
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < most_quads; i++) {  // no branches, so that all loads are under way together
            const int quad = lane + i * lanes;
            const float* column = shared.own_rows + 4 * (quad < count_quads ? quad : 0);
            const auto near = [&](int row) { return *reinterpret_cast<const float4*>(column + row * stride); };
            sum[i] = nothing();
            if (SELF_LOOPS) add(sum[i], self.x, near(row));
            add(sum[i], factor.x, near(source.x));
            add(sum[i], factor.y, near(source.y));
            add(sum[i], factor.z, near(source.z));
            add(sum[i], factor.w, near(source.w));
        }
#pragma unroll
        for (int i = 0; i < most_quads; i++) {
            const int quad = lane + i * lanes;
            if (quad >= count_quads) continue;
#pragma unroll 1
            for (int bond = static_cast<int>(bits(self.z)); bond < end; bond++) {
                const int neighbour = __ldg(p.col + bond), other = neighbour - first;
                if (SELF_LOOPS && other == row) continue;
                const bool inside = other >= 0 && other < count;
                if (inside) add(sum[i], self.y * p.scale[neighbour], four(shared.own_rows + other * stride + 4 * quad));
            }
            if (there) done(first + row, quad, sum[i]);
#pragma unroll
            for (int e = 0; e < 4; e++) most = fmaxf(most, fabsf(at(sum[i], e)));
        }
        const Scale scale(row_most(most));
#pragma unroll
        for (int i = 0; i < most_quads; i++) {
            const int quad = lane + i * lanes;
            if (quad < count_quads) four(shared.tile + row * stride + 4 * quad) = operand(sum[i], scale.up);
        }
        if (lane == 0) shared.scales[row] = scale.down;
    }
}
