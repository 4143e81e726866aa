// A block's rows in shared memory: Â times the layer's input, gathered from the atoms' bonds, and its product with a weight.
#pragma once
#include "gcn_layer.cuh"
#include "halves_product.cuh"

struct Shared {
    float* tile;      // [rows, stride]: Â times the input, as halves; before and after, sums on their way
    float* own_rows;  // [rows + 1, stride]: the atoms' own input, and zeros; then the product
    int4* sources;    // [rows]: of the first four bonds the row in own_rows, or ~ the atom where that is none of the block's
    float4* factors;  // [rows]
    float4* own;      // [rows]: the atom's own factor; then, as integers, its bonds beyond the fourth: first, end
    float* columns;   // [6, width]: numbers of each column
    float* scales;    // [rows]: of the tile
    float* shrunk;    // [rows]: their last change
    int* flag;

    __device__ explicit Shared(unsigned char* memory) {
        tile = reinterpret_cast<float*>(memory);
        own_rows = tile + rows * stride;
        sources = reinterpret_cast<int4*>(own_rows + (rows + 1) * stride);
        factors = reinterpret_cast<float4*>(sources + rows);
        own = factors + rows;
        columns = reinterpret_cast<float*>(own + rows);
        scales = columns + 6 * width;
        shrunk = scales + rows;
        flag = reinterpret_cast<int*>(shrunk + rows);
    }
    __device__ __forceinline__ float4 column4(int which, int quad) const { return four(columns + which * width + 4 * quad); }
};

// Stores the bonds of an atom of the block. `end` is the end of all its bonds, `begin` the index of the fifth.
__device__ __forceinline__ void place_bonds(const Shared& shared, int row, int first, int count, int begin, int end, float scale, const int4& source,
                                            const float4& factor) {
    const auto row_of = [&](int atom, float weight) { return weight == 0.0f ? rows : atom >= first && atom < first + count ? atom - first : ~atom; };
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

template <class Read, class Done>
__device__ __forceinline__ void pull_neighbours(const Parameters& p, const Shared& shared, int first, int count, int first_quad, int count_quads,
                                                Read make_read, Done done);

// tile[row] = columns 4 first_quad .. + 4 count_quads of Â times read(quad)(node). It is called once for each of the block's own atoms, and
// for other atoms where a bond leaves the block. own(node, quad, value) receives the own atoms' values, done(node, quad, sum) the results.
// A row has one scale; columns that follow others (first_quad > 0) enlarge it where they must.
template <class Read, class Own, class Done>
__device__ __forceinline__ void gather(const Parameters& p, const Shared& shared, int first, int count, int first_quad, int count_quads,
                                       Read make_read, Own own, Done done) {
    constexpr int side = lane_quads > 1 ? 2 : 1, needed = (rows + teams - 1) / teams, deep = needed < 4 ? needed : 4;  // loads under way together
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes;
    for (int begin = lane; begin < count_quads; begin += side * lanes)
        for (int top = team; top < rows; top += deep * teams) {
            float4 x[side][deep];
#pragma unroll
            for (int j = 0; j < side; j++) {
                const int quad = begin + j * lanes;
                const auto read = make_read(first_quad + (quad < count_quads ? quad : 0));
#pragma unroll
                for (int i = 0; i < deep; i++) {
                    const int row = top + i * teams;
                    x[j][i] = quad < count_quads && row < count ? read(first + row) : nothing();
                }
            }
#pragma unroll
            for (int j = 0; j < side; j++)
#pragma unroll
                for (int i = 0; i < deep; i++) {
                    const int row = top + i * teams, quad = begin + j * lanes;
                    if (row >= rows || quad >= count_quads) continue;
                    four(shared.own_rows + row * stride + 4 * quad) = x[j][i];
                    if (row < count) own(first + row, first_quad + quad, x[j][i]);
                }
        }
    __syncthreads();
    pull_neighbours(p, shared, first, count, first_quad, count_quads, make_read, done);
}

// The second part of `gather`, once own_rows has the block's rows.
template <class Read, class Done>
__device__ __forceinline__ void pull_neighbours(const Parameters& p, const Shared& shared, int first, int count, int first_quad, int count_quads,
                                                Read make_read, Done done) {
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes;
    constexpr int most_quads = (depth / 4 + lanes - 1) / lanes;
    for (int row = team; row < rows; row += teams) {  // all lanes of a warp continue together
        const bool there = row < count;
        const float4 factor = there ? shared.factors[row] : nothing(), self = there ? shared.own[row] : nothing();
        const int4 source = there ? shared.sources[row] : make_int4(rows, rows, rows, rows);
        const bool leaves = (source.x | source.y | source.z | source.w) < 0;
        const int end = static_cast<int>(bits(self.w));
        float4 sum[most_quads];
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < most_quads; i++) {  // no branches, so that all loads are under way together
            const int quad = lane + i * lanes;
            const float* column = shared.own_rows + 4 * (quad < count_quads ? quad : 0);
            const auto near = [&](int row) { return *reinterpret_cast<const float4*>(column + (row < 0 ? rows : row) * stride); };
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
            const auto read = make_read(first_quad + quad);
            if (leaves) {
                if (source.x < 0) add(sum[i], factor.x, read(~source.x));
                if (source.y < 0) add(sum[i], factor.y, read(~source.y));
                if (source.z < 0) add(sum[i], factor.z, read(~source.z));
                if (source.w < 0) add(sum[i], factor.w, read(~source.w));
            }
#pragma unroll 1
            for (int bond = static_cast<int>(bits(self.z)); bond < end; bond++) {
                const int neighbour = __ldg(p.col + bond), other = neighbour - first;
                if (SELF_LOOPS && other == row) continue;
                const bool inside = other >= 0 && other < count;
                add(sum[i], self.y * p.scale[neighbour], inside ? four(shared.own_rows + other * stride + 4 * quad) : read(neighbour));
            }
            if (there) done(first + row, first_quad + quad, sum[i]);
#pragma unroll
            for (int e = 0; e < 4; e++) most = fmaxf(most, fabsf(at(sum[i], e)));
        }
        Scale scale(row_most(most));
        if (first_quad > 0) {
            const float before = shared.scales[row];
            __syncwarp();  // all lanes have read it
            scale = scale.or_larger(before);
            if (lane == 0) shared.shrunk[row] = before * scale.up;
        }
#pragma unroll
        for (int i = 0; i < most_quads; i++) {
            const int quad = lane + i * lanes;
            if (quad < count_quads) four(shared.tile + row * stride + 4 * quad) = operand(sum[i], scale.up);
        }
        if (lane == 0) shared.scales[row] = scale.down;
    }
}
