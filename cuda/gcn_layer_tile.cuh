// A block's rows in shared memory: Â times the layer's input, gathered from the atoms' bonds, and its product with a weight.
#pragma once
#include "gcn_layer.cuh"

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

// The bonds of an atom of the block; `end` is that of all its bonds, `begin` that of the fifth.
__device__ __forceinline__ void place_bonds(const Shared& shared, int row, int first, int count, int begin, int end, float scale, const int4& source,
                                            const float4& factor) {
    const auto place = [&](int atom, float weight) { return weight == 0.0f ? rows : atom >= first && atom < first + count ? atom - first : ~atom; };
    shared.sources[row] = make_int4(place(source.x, factor.x), place(source.y, factor.y), place(source.z, factor.z), place(source.w, factor.w));
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

// tile[row] = columns 4 first_quad .. + 4 count_quads of Â times read(quad)(node), which is asked for the block's own atoms once and for
// others where a bond leaves the block. own(node, quad, value) is told of the former, done(node, quad, sum) of the result. A row has one scale:
// columns that follow others (first_quad > 0) enlarge it where they must.
template <class Read, class Own, class Done>
__device__ __forceinline__ void gather(const Parameters& p, const Shared& shared, int first, int count, int first_quad, int count_quads,
                                       Read make_read, Own own, Done done) {
    constexpr int side = turns > 1 ? 2 : 1, needed = (rows + teams - 1) / teams, deep = needed < 4 ? needed : 4;  // loads under way together
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

// The part of gather that follows when own_rows has the block's rows
template <class Read, class Done>
__device__ __forceinline__ void pull_neighbours(const Parameters& p, const Shared& shared, int first, int count, int first_quad, int count_quads,
                                                Read make_read, Done done) {
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes;
    constexpr int most_turns = (depth / 4 + lanes - 1) / lanes;
    for (int row = team; row < rows; row += teams) {  // all lanes of a warp go on together
        const bool there = row < count;
        const float4 factor = there ? shared.factors[row] : nothing(), self = there ? shared.own[row] : nothing();
        const int4 source = there ? shared.sources[row] : make_int4(rows, rows, rows, rows);
        const bool leaves = (source.x | source.y | source.z | source.w) < 0;
        const int end = static_cast<int>(bits(self.w));
        float4 sum[most_turns];
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < most_turns; i++) {  // without branches, so that loads go together
            const int quad = lane + i * lanes;
            const float* column = shared.own_rows + 4 * (quad < count_quads ? quad : 0);
            const auto near = [&](int place) { return *reinterpret_cast<const float4*>(column + (place < 0 ? rows : place) * stride); };
            sum[i] = nothing();
            if (SELF_LOOPS) add(sum[i], self.x, near(row));
            add(sum[i], factor.x, near(source.x));
            add(sum[i], factor.y, near(source.y));
            add(sum[i], factor.z, near(source.z));
            add(sum[i], factor.w, near(source.w));
        }
#pragma unroll
        for (int i = 0; i < most_turns; i++) {
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
        for (int i = 0; i < most_turns; i++) {
            const int quad = lane + i * lanes;
            if (quad < count_quads) four(shared.tile + row * stride + 4 * quad) = operand(sum[i], scale.up);
        }
        if (lane == 0) shared.scales[row] = scale.down;
    }
}

// The tile times a weight, both as halves (halves.cuh), as (weight^T tile^T)^T: each operand is then what one load brings. Lane 4 g + t of a
// warp has columns 2 g and 2 g + 1 of every 16, of atoms 2 t and 2 t + 1 of every eight.
struct Product {
    static constexpr int ahead = 2;  // steps whose operands are under way
    static constexpr int groups = 2 * ROW_TILES;             // of eight atoms
    static constexpr bool exact = PRECISION == PRECISION_FLOAT32;
    float sum[COLUMN_TILES][groups][4];
    float4 w[ahead][COLUMN_TILES][2];  // halves, and what they leave
    const float4* operands[COLUMN_TILES];
    int lane, g, t, row, column;  // of the warp: first row, first 16 columns
    int in_chunks, across;

    __device__ Product() {
        const int warp = threadIdx.x / 32;
        lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
        row = warp / WARP_COLUMNS * 16 * ROW_TILES, column = warp % WARP_COLUMNS * COLUMN_TILES;
    }
    // The atom in column n of eight: rows of even and of odd number are then read from different banks.
    static __device__ __forceinline__ int atom(int n) { return n ^ (n >> 1 & 1); }
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int i = 0; i < COLUMN_TILES * groups * 4; i++) (&sum[0][0][0])[i] = 0.0f;
    }
    // Operands of `across` times 16 columns; the warp's are those from `begin` + column on. Beyond the last it repeats the last, and nobody
    // looks. Of `all_chunks` times 16 contracted numbers it takes `in_chunks` from `first_chunk` on, the first of which are under way from here on.
    __device__ __forceinline__ void start(const float* fragments, int first_chunk, int in_chunks_, int all_chunks, int across_, int begin = 0) {
        in_chunks = in_chunks_, across = across_;
#pragma unroll
        for (int i = 0; i < COLUMN_TILES; i++)
            operands[i] = reinterpret_cast<const float4*>(fragments) + 64 * (size_t(min(begin + column + i, across - 1)) * all_chunks + first_chunk) + lane;
#pragma unroll
        for (int step = 0; step < ahead; step++)
            if (step < in_chunks) load(step);
    }
    __device__ __forceinline__ void load(int step) {
#pragma unroll
        for (int i = 0; i < COLUMN_TILES; i++) {
            w[step][i][0] = __ldg(operands[i]);
            if (exact) w[step][i][1] = __ldg(operands[i] + 32);
            operands[i] += 64;
        }
    }
    // What has been added so far, in the rows' new scales
    __device__ __forceinline__ void shrink(const Shared& shared) {
#pragma unroll
        for (int c = 0; c < COLUMN_TILES; c++)
#pragma unroll
            for (int m = 0; m < groups; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) sum[c][m][i] *= shared.shrunk[row + 8 * m + atom(2 * t + i % 2)];
    }
    // Adds the tile's first 16 * in_chunks columns times the operands; `unrolled` is the quicker code, and takes NVRTC longer.
    __device__ __forceinline__ void multiply(const float* tile, bool unrolled = true) {
        const float* corner = tile + (row + atom(g)) * stride + 4 * t;
        float4 v[groups];
        read(v, corner);
        if (unrolled && in_chunks == chunks) {
            constexpr int at_once = wide ? 8 : chunks;
#pragma unroll 1
            for (int first = 0; first < chunks; first += at_once)
#pragma unroll
                for (int k = 0; k < at_once; k++)
                    if (first + k < chunks) step(k % ahead, first + k + ahead < chunks, v, first + k + 1 < chunks ? corner + 16 * (first + k + 1) : corner);
        } else {
#pragma unroll 1
            for (int first = 0; first < in_chunks; first += ahead)
#pragma unroll
                for (int i = 0; i < ahead; i++)
                    if (first + i < in_chunks) step(i, first + i + ahead < in_chunks, v, first + i + 1 < in_chunks ? corner + 16 * (first + i + 1) : corner);
        }
    }
    __device__ __forceinline__ void read(float4 (&v)[groups], const float* corner) const {
#pragma unroll
        for (int m = 0; m < groups; m++) v[m] = *reinterpret_cast<const float4*>(corner + 8 * m * stride);
    }
    // Adds v times operand i; meanwhile reads the next v, and the operand `ahead` steps on
    __device__ __forceinline__ void step(int i, bool more, float4 (&v)[groups], const float* next) {
        uint32 a[COLUMN_TILES][2][4], b[groups][2][2];
#pragma unroll
        for (int c = 0; c < COLUMN_TILES; c++)
#pragma unroll
            for (int part = 0; part < 1 + exact; part++)
#pragma unroll
                for (int e = 0; e < 4; e++) a[c][part][e] = bits(at(w[i][c][part], e));
#pragma unroll
        for (int m = 0; m < groups; m++)
#pragma unroll
            for (int e = 0; e < 4; e++) b[m][e / 2][e % 2] = bits(at(v[m], e));
        read(v, next);
        if (more) load(i);
#pragma unroll
        for (int pass = exact ? 0 : 2; pass < 3; pass++)  // small products first
#pragma unroll
            for (int c = 0; c < COLUMN_TILES; c++)
#pragma unroll
                for (int m = 0; m < groups; m++) mma_half(sum[c][m], a[c][pass == 0], b[m][pass == 1]);
    }
    // body(row, first of two columns, the two sums) for what the lane holds
    template <class Body>
    __device__ __forceinline__ void each(const Shared& shared, const float* scales, int begin, Body body) const {
#pragma unroll
        for (int c = 0; c < COLUMN_TILES; c++) {
            if (begin + column + c >= across) continue;
            const int first = 16 * (begin + column + c) + 2 * g;
            const float2 scale = __ldg(reinterpret_cast<const float2*>(scales + first));
#pragma unroll
            for (int m = 0; m < groups; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int mine = row + 8 * m + atom(2 * t + i);
                    const float down = shared.scales[mine];
                    body(mine, first, make_float2(sum[c][m][i] * (down * scale.x), sum[c][m][2 + i] * (down * scale.y)));
                }
        }
    }
};
