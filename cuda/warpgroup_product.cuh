// The product of rows and a wide weight by Hopper's asynchronous products (warpgroup.cuh): each four warps read the rows from shared memory
// once, not each warp, and nobody waits for the tensor cores.
//
// Macros: PRECISION, WARP_COLUMNS, ROW_GROUPS, as in halves_product.cuh.
#pragma once
#include "halves_product.cuh"
#include "warpgroup.cuh"

// As ProductOf, with CHUNKS times 16 contracted numbers. The rows' halves lie in blocks of eight rows and eight halves: of 16 columns those
// that lanes' operands have first (4 t and 4 t + 1), the others, and what these halves leave, in two blocks too. Every second 16 columns
// begin 64 bytes later, so that eight lanes that write 32 columns of a row, and those of three rows more, use all banks.
template <int COLUMNS, int CHUNKS>
struct WarpgroupProductOf {
    static constexpr int groups = ROW_GROUPS, ahead = 2, sets = ahead + 1;  // steps whose operands are under way, and with that in use
    static constexpr bool exact = PRECISION == PRECISION_FLOAT32;
    static constexpr int block = 128, group_bytes = 4 * block * CHUNKS + 64 * (CHUNKS / 2), numbers = groups * group_bytes / 4;
    float sum[COLUMNS][groups][4];
    float4 w[sets][COLUMNS][2];
    const float4* operands[COLUMNS];
    int lane, g, t, column;

    __device__ WarpgroupProductOf() {
        const int warp = threadIdx.x / 32;
        lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3, column = warp * COLUMNS;
    }
    static __device__ __forceinline__ constexpr int begin(int chunk) { return 4 * block * chunk + 64 * (chunk / 2 + chunk % 2); }
    // Writes four columns of a row, as `operand` returns them.
    static __device__ __forceinline__ void put(float* rows, int row, int column, const float4& x) {
        float* to = rows + (row / 8 * group_bytes + begin(column / 16) + 16 * Product::atom(row % 8)) / 4 + column / 4 % 4;
#pragma unroll
        for (int part = 0; part < 4; part++) to[block / 4 * part] = at(x, part);
    }
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int i = 0; i < COLUMNS * groups * 4; i++) (&sum[0][0][0])[i] = 0.0f;
    }
    __device__ __forceinline__ void start(const float* fragments, int across) {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
            operands[i] = reinterpret_cast<const float4*>(fragments) + 64 * size_t(min(column + i, across - 1)) * CHUNKS + lane;
#pragma unroll
        for (int step = 0; step < ahead && step < CHUNKS; step++) load(step);
    }
    __device__ __forceinline__ void load(int step) {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
#pragma unroll
            for (int part = 0; part < 1 + exact; part++) w[step % sets][i][part] = __ldg(operands[i] + 64 * step + 32 * part);
    }
    // Adds the rows times the operands. Registers of operands are free once the step that reads them is over.
    __device__ __forceinline__ void multiply(const float* rows) {
        const HalvesMatrix matrix = halves_matrix(rows, block, group_bytes);
#pragma unroll
        for (int step = 0; step < CHUNKS; step++) {
            begin_products();
#pragma unroll
            for (int pass = exact ? 0 : 2; pass < 3; pass++)  // small products first
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    uint32 a[4];
#pragma unroll
                    for (int e = 0; e < 4; e++) a[e] = bits(at(w[step % sets][c][pass == 0], e));
                    multiply_halves(sum[c], a, moved(matrix, begin(step) + (pass == 1 ? 2 * block : 0)));
                }
            commit_products();
            if (step + ahead < CHUNKS) wait_for_products_but<1>(), load(step + ahead);
        }
        wait_for_products_but<0>();
#pragma unroll
        for (int i = 0; i < COLUMNS * groups * 4; i++) arrived((&sum[0][0][0])[i]);
    }
};
