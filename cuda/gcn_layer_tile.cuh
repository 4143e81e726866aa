// A block's rows in shared memory: Â times the layer's input, gathered from the atoms' bonds, and its product with a weight.
#pragma once
#include "gcn_layer.cuh"

struct Shared {
    float* tile;      // [rows, stride]: Â times the input, as halves; before and after, sums on their way
    float* own_rows;  // [rows, stride]: the atoms' own input; then the product
    int4* sources;    // [rows]
    float4* factors;  // [rows]
    float4* own;      // [rows]: the atom's own factor; then, as integers, its bonds beyond the fourth: first, end
    float* columns;   // [6, width]: numbers of each column
    float* scales;    // [rows]: of the tile
    float* shrunk;    // [rows]: their last change
    int* flag;

    __device__ explicit Shared(unsigned char* memory) {
        tile = reinterpret_cast<float*>(memory);
        own_rows = tile + rows * stride;
        sources = reinterpret_cast<int4*>(own_rows + rows * stride);
        factors = reinterpret_cast<float4*>(sources + rows);
        own = factors + rows;
        columns = reinterpret_cast<float*>(own + rows);
        scales = columns + 6 * width;
        shrunk = scales + rows;
        flag = reinterpret_cast<int*>(shrunk + rows);
    }
    __device__ __forceinline__ float4 column4(int which, int quad) const { return four(columns + which * width + 4 * quad); }
};

__device__ __forceinline__ void read_bonds(const Parameters& p, const Shared& shared, int first, int count) {
    for (int row = threadIdx.x; row < count; row += threads) {
        const int node = first + row;
        const int begin = __ldg(p.rowptr + node) + 4, end = __ldg(p.rowptr + node + 1);
        const float scale = p.scale[node];
        shared.sources[row] = p.sources[node];
        shared.factors[row] = p.factors[node];
        const uint32 none = 0;
        shared.own[row] = make_float4(SELF_LOOPS ? scale * scale : 0.0f, scale, number(begin < end ? begin : none), number(begin < end ? end : none));
    }
}

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
    constexpr int most_turns = (depth / 4 + lanes - 1) / lanes;
    for (int row = team; row < rows; row += teams) {  // all lanes of a warp go on together
        const bool there = row < count;
        const float4 factor = there ? shared.factors[row] : nothing(), self = there ? shared.own[row] : nothing();
        const int4 source = there ? shared.sources[row] : make_int4(0, 0, 0, 0);
        float4 sum[most_turns];
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < most_turns; i++) {
            const int quad = lane + i * lanes;
            sum[i] = nothing();
            if (quad >= count_quads) continue;
            const auto value = [&](int node) {
                const int other = node - first;
                if (other >= 0 && other < count) return four(shared.own_rows + other * stride + 4 * quad);
                return make_read(first_quad + quad)(node);
            };
            if (SELF_LOOPS) add(sum[i], self.x, four(shared.own_rows + row * stride + 4 * quad));
            if (factor.x != 0.0f) add(sum[i], factor.x, value(source.x));
            if (factor.y != 0.0f) add(sum[i], factor.y, value(source.y));
            if (factor.z != 0.0f) add(sum[i], factor.z, value(source.z));
            if (factor.w != 0.0f) add(sum[i], factor.w, value(source.w));
            const int end = static_cast<int>(bits(self.w));
#pragma unroll 1
            for (int bond = static_cast<int>(bits(self.z)); bond < end; bond++) {
                const int neighbour = __ldg(p.col + bond);
                if (!(SELF_LOOPS && neighbour == first + row)) add(sum[i], self.y * p.scale[neighbour], value(neighbour));
            }
            if (there) done(first + row, first_quad + quad, sum[i]);
#pragma unroll
            for (int e = 0; e < 4; e++) most = fmaxf(most, fabsf(at(sum[i], e)));
        }
        Scale scale(row_most(most));
        if (first_quad > 0) {
            const float before = shared.scales[row];
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

// The tile times a weight, both as halves (halves.cuh). Lane 4 g + t of a warp has columns 4 t .. 4 t + 3 of every 16, of atoms g and g + 8.
struct Product {
    static constexpr int ahead = COLUMN_TILES == 1 ? 4 : 2;  // steps whose operands are under way
    static constexpr bool exact = PRECISION == PRECISION_FLOAT32;
    float sum[ROW_TILES][COLUMN_TILES][2][4];
    float4 w[ahead][COLUMN_TILES][2];  // halves, and what they leave
    const float4* operands[COLUMN_TILES];
    int lane, g, t, row, column;  // of the warp: first row, first 16 columns
    int in_chunks, across;

    __device__ Product() {
        const int warp = threadIdx.x / 32;
        lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
        row = warp / WARP_COLUMNS * 16 * ROW_TILES, column = warp % WARP_COLUMNS * COLUMN_TILES;
    }
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int i = 0; i < ROW_TILES * COLUMN_TILES * 8; i++) (&sum[0][0][0][0])[i] = 0.0f;
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
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int c = 0; c < COLUMN_TILES; c++)
#pragma unroll
                for (int i = 0; i < 8; i++) sum[m][c][i / 4][i % 4] *= shared.shrunk[row + 16 * m + i % 4 / 2 * 8 + g];
    }
    // Adds the tile's first 16 * in_chunks columns times the operands.
    __device__ __forceinline__ void multiply(const float* tile) {
        const float* corner = tile + (row + g) * stride + 4 * t;
        float4 v[ROW_TILES][2];
        read(v, corner);
        if (in_chunks == chunks) {
#pragma unroll
            for (int k = 0; k < chunks; k++) step(k % ahead, k + ahead < chunks, v, k + 1 < chunks ? corner + 16 * (k + 1) : corner);
        } else {
#pragma unroll 1
            for (int first = 0; first < in_chunks; first += ahead)
#pragma unroll
                for (int i = 0; i < ahead; i++)
                    if (first + i < in_chunks) step(i, first + i + ahead < in_chunks, v, first + i + 1 < in_chunks ? corner + 16 * (first + i + 1) : corner);
        }
    }
    __device__ __forceinline__ void read(float4 (&v)[ROW_TILES][2], const float* corner) const {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
            v[m][0] = *reinterpret_cast<const float4*>(corner + 16 * m * stride);
            v[m][1] = *reinterpret_cast<const float4*>(corner + (16 * m + 8) * stride);
        }
    }
    // Adds v times operand i; meanwhile reads the next v, and the operand `ahead` steps on
    __device__ __forceinline__ void step(int i, bool more, float4 (&v)[ROW_TILES][2], const float* next) {
        uint32 a[ROW_TILES][2][4], b[COLUMN_TILES][2][2][2];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int e = 0; e < 4; e++)
#pragma unroll
                for (int half = 0; half < 2; half++) a[m][e / 2][e % 2 * 2 + half] = bits(at(v[m][half], e));
#pragma unroll
        for (int c = 0; c < COLUMN_TILES; c++)
#pragma unroll
            for (int part = 0; part < 1 + exact; part++)
#pragma unroll
                for (int e = 0; e < 4; e++) b[c][part][e % 2][e / 2] = bits(at(w[i][c][part], e));
        read(v, next);
        if (more) load(i);
#pragma unroll
        for (int pass = exact ? 0 : 2; pass < 3; pass++)  // small products first
#pragma unroll
            for (int c = 0; c < COLUMN_TILES; c++)
#pragma unroll
                for (int j = 0; j < 2; j++)
#pragma unroll
                    for (int m = 0; m < ROW_TILES; m++) mma_half(sum[m][c][j], a[m][pass == 0], b[c][pass == 1][j]);
    }
    // body(row, first of four columns, the four sums) for what the lane holds
    template <class Body>
    __device__ __forceinline__ void each(const Shared& shared, const float* scales, int begin, Body body) const {
#pragma unroll
        for (int i = 0; i < COLUMN_TILES; i++) {
            if (begin + column + i >= across) continue;
            const int first = 16 * (begin + column + i) + 4 * t;
            const float4 scale = load4(scales + first);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int mine = row + 16 * m + 8 * half + g;
                    const float down = shared.scales[mine];
                    const float(&s)[2][4] = sum[m][i];
                    body(mine, first, make_float4(s[0][2 * half] * (down * scale.x), s[1][2 * half] * (down * scale.y), s[0][2 * half + 1] * (down * scale.z),
                                                  s[1][2 * half + 1] * (down * scale.w)));
                }
        }
    }
};
