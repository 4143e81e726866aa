// A block's rows: Â times what is in shared memory, and its product with a weight.
#pragma once
#include "gcn_chain.cuh"

// tile = Â near, which has `count_quads` quads of columns. far(node, quad) returns the row of an atom that is not in `near`. done(row,
// quad, sum) receives each result.
template <class Far, class Done>
__device__ __forceinline__ void gather(const Parameters& p, const Shared& shared, const AtomRange& atoms, int count_quads, Far far, Done done) {
    constexpr int passes = (rows + teams - 1) / teams;
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes;
    const int team_of_warp = threadIdx.x / 32 * (32 / lanes);  // the first team of the warp; all lanes of a warp continue together
    if (*shared.num_far > 0) {
#pragma unroll 1
        for (int row = team; row < atoms.count; row += teams) {
            if (shared.sources[row].w >= 0) continue;
            const int node = atoms.first + row, end = __ldg(p.rowptr + node + 1);
#pragma unroll 1
            for (int quad = lane; quad < count_quads; quad += lanes) {
                float4 sum = nothing();
                if (SELF_LOOPS) add(sum, shared.own[row], four(shared.near + row * stride + 4 * quad));
#pragma unroll 1
                for (int bond = __ldg(p.rowptr + node); bond < end; bond++) {
                    const int neighbour = __ldg(p.col + bond), other = neighbour - atoms.first;
                    if (SELF_LOOPS && other == row) continue;
                    const float factor = __ldg(p.scale + node) * __ldg(p.scale + neighbour);
                    if (factor == 0.0f) continue;
                    add(sum, factor, other >= 0 && other < atoms.count ? four(shared.near + other * stride + 4 * quad) : far(neighbour, quad));
                }
                four(shared.tile + row * stride + 4 * quad) = sum;
            }
        }
    }
#pragma unroll 1
    for (int pass = 0; pass < passes && team_of_warp + teams * pass < rows; pass++) {
        const int row = team + teams * pass;
        const bool there = row < atoms.count;
        const float4 factor = there ? shared.factors[row] : nothing();
        const int4 source = there ? shared.sources[row] : make_int4(no_row, no_row, no_row, no_row);
        const float self = SELF_LOOPS && there ? shared.own[row] : 0.0f;
        const bool is_far = source.w < 0;
        float4 sum[lane_quads];
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {  // no branches, so that all loads are under way together
            const int quad = lane + lanes * i;
            const float* column = shared.near + 4 * (quad < count_quads ? quad : 0);
            sum[i] = nothing();
            if (SELF_LOOPS) add(sum[i], self, *reinterpret_cast<const float4*>(column + (there ? row : no_row) * stride));
            add(sum[i], factor.x, *reinterpret_cast<const float4*>(column + source.x * stride));
            add(sum[i], factor.y, *reinterpret_cast<const float4*>(column + source.y * stride));
            add(sum[i], factor.z, *reinterpret_cast<const float4*>(column + source.z * stride));
            add(sum[i], factor.w, *reinterpret_cast<const float4*>(column + (is_far ? no_row : source.w) * stride));
        }
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            if (is_far && lane + lanes * i < count_quads) sum[i] = four(shared.tile + row * stride + 4 * (lane + lanes * i));
#pragma unroll
            for (int e = 0; e < 4; e++) most = fmaxf(most, fabsf(at(sum[i], e)));
        }
        const Scale scale(row_most(most));
        if (!there) continue;
        if (lane == 0) shared.scales[row] = scale.down;
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int quad = lane + lanes * i;
            if (quad >= count_quads) break;
            done(row, quad, sum[i]);
            four(shared.tile + row * stride + 4 * quad) = operand(sum[i], scale.up);
        }
    }
}

// The tile times a weight, as (weight^T tile^T)^T: eight atoms side by side are the finest grain of the tensor cores. Lane 4 g + t of a
// warp has columns 2 g and 2 g + 1 of its 16, for atoms 2 t and 2 t + 1 of every eight.
struct Product {
    float sum[TILES][4];
    int lane, g, t, warp, column;

    __device__ __forceinline__ Product() {
        lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3, warp = threadIdx.x / 32, column = 16 * warp + 2 * g;
    }
    // Returns the atom of column n of eight. Accesses to even and odd rows then use different banks.
    static __device__ __forceinline__ int atom(int n) { return n ^ (n >> 1 & 1); }
    __device__ __forceinline__ int row(int m, int i) const { return 8 * m + atom(2 * t + i); }

    // Multiplies the tile's first 16 `in_chunks` columns; the result has 16 `across` columns.
    __device__ __forceinline__ void multiply(const Shared& shared, int in_chunks, int across) {
#pragma unroll
        for (int i = 0; i < 4 * TILES; i++) (&sum[0][0])[i] = 0.0f;
        if (warp >= across) return;
        const float4* weight = shared.weight + 64 * chunks * warp + lane;
        const float* corner = shared.tile + atom(g) * stride + 4 * t;
#pragma unroll 1
        for (int k = 0; k < in_chunks; k++) step(weight + 64 * k, corner + 16 * k);
    }
    __device__ __forceinline__ void step(const float4* weight, const float* corner) {
        uint32 a[2][4], b[TILES][2][2];
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const float4 x = weight[32 * part];
            a[part][0] = bits(x.x), a[part][1] = bits(x.y), a[part][2] = bits(x.z), a[part][3] = bits(x.w);
        }
#pragma unroll
        for (int m = 0; m < TILES; m++) {
            const float4 x = *reinterpret_cast<const float4*>(corner + 8 * m * stride);
            b[m][0][0] = bits(x.x), b[m][0][1] = bits(x.y), b[m][1][0] = bits(x.z), b[m][1][1] = bits(x.w);
        }
        if constexpr (PRECISION == PRECISION_FLOAT32) {  // small products first
#pragma unroll
            for (int m = 0; m < TILES; m++) mma_half(sum[m], a[1], b[m][0]);
#pragma unroll
            for (int m = 0; m < TILES; m++) mma_half(sum[m], a[0], b[m][1]);
        }
#pragma unroll
        for (int m = 0; m < TILES; m++) mma_half(sum[m], a[0], b[m][0]);
    }
    // Returns the lane's two columns of a row.
    __device__ __forceinline__ float2 get(const Shared& shared, const float2& scale, int m, int i) const {
        const float down = shared.scales[row(m, i)];
        return make_float2(sum[m][i] * (down * scale.x), sum[m][2 + i] * (down * scale.y));
    }
};

// Sums x over the lanes that have the same columns.
__device__ __forceinline__ float2 over_atoms(float2 x) {
    x.x += shuffle_xor(x.x, 1), x.y += shuffle_xor(x.y, 1);
    x.x += shuffle_xor(x.x, 2), x.y += shuffle_xor(x.y, 2);
    return x;
}
__device__ __forceinline__ float2 parameter2(const float* vector, int column) {
    return make_float2(parameter(vector, column), parameter(vector, column + 1));
}
