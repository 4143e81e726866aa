// Layers of large batches with batch norm in training: a block goes through many tiles, one after the other. While it computes one tile,
// the next one's rows are on their way to shared memory. Its sums over all atoms leave it once.
//
// A thread has one quad of columns, of every `shares`-th row: it copies, activates and finishes the same parts of shared memory. Bonds may
// lead to atoms of other tiles, the halo. Up to HALO_ROWS of these lie beside the tile's own rows; the others are read where they are pulled.
//
// Macros besides those of gcn_layer.cuh: HALO_ROWS, and ROWS_BESIDE, which each kernel defines.
#pragma once
#include "gcn_layer_gradients.cuh"

static_assert(statistics, "other norms do not wait for all atoms");

constexpr int thread_rows = (rows + shares - 1) / shares;  // the most rows of a thread
// The first of own_rows that holds an atom of the halo. The halo follows the rest of struct Shared.
constexpr int first_halo_row = rows + 1 + (56 * rows + 4 * 6 * width + 16 + 4 * stride - 1) / (4 * stride);

struct Stream : Shared {
    float* beside;         // [ROWS_BESIDE, rows, stride]: the residual's part or the gradient of own_rows
    float* halo_beside;    // [HALO_ROWS, stride]: of the halo
    float* after;          // [4, width]: numbers of each column for what follows the product
    float* sums;           // [2 * shares, width]: forward's, so far
    int4* next_sources;    // [rows]: of the next tile, as they lie in memory
    float4* next_factors;  // [rows]
    float* next_scale;     // [rows]
    int2* next_bonds;      // [rows]: first and end
    int* halo;             // [HALO_ROWS]: the atoms
    int* num_foreign;      // atoms of other tiles, those without room too

    __device__ explicit Stream(unsigned char* memory) : Shared(memory) {
        beside = own_rows + (first_halo_row + HALO_ROWS) * stride;
        halo_beside = beside + ROWS_BESIDE * rows * stride;
        after = halo_beside + HALO_ROWS * stride;
        sums = after + 4 * width;
        next_sources = reinterpret_cast<int4*>(sums + (ROWS_BESIDE == 1 ? 2 * shares * width : 0));
        next_factors = reinterpret_cast<float4*>(next_sources + rows);
        next_bonds = reinterpret_cast<int2*>(next_factors + rows);
        next_scale = reinterpret_cast<float*>(next_bonds + rows);
        halo = reinterpret_cast<int*>(next_scale + rows), num_foreign = halo + HALO_ROWS;
    }
    __device__ __forceinline__ float* halo_row(int index) const { return own_rows + (first_halo_row + index) * stride; }
    __device__ __forceinline__ int halo_count() const { return min(*num_foreign, HALO_ROWS); }
};

// The atoms of a block. All blocks have equally many whole tiles.
struct Span {
    int each, begin, end;

    __device__ __forceinline__ explicit Span(int num_nodes) {
        each = parts_of(parts_of(num_nodes, rows), gridDim.x) * rows;
        begin = blockIdx.x * each, end = min(begin + each, num_nodes);
    }
    __device__ __forceinline__ int count(int first) const { return min(rows, end - first); }  // of a tile; none beyond the last
};

// Starts to copy the bonds of the rows whose halo the thread looks for.
__device__ __forceinline__ void copy_bonds(const Parameters& p, const Stream& shared, int first, int count) {
    for (int row = threadIdx.x; row < count; row += threads) {
        const int node = first + row;
        copy16(shared.next_sources + row, p.sources + node, true);
        copy16(shared.next_factors + row, p.factors + node, true);
        copy4(shared.next_scale + row, p.scale + node, true);
        copy4(&shared.next_bonds[row].x, p.rowptr + node, true);
        copy4(&shared.next_bonds[row].y, p.rowptr + node + 1, true);
    }
}
// Reads bonds that have arrived. Atoms of other tiles get rows in the order of the tile's rows, so that sums have one order on every run.
// The whole halo is known after the block's next barrier.
__device__ __forceinline__ void find_halo(const Stream& shared, int first, int count) {
    static_assert(rows <= 32, "a warp sees to all of them");
    if (threadIdx.x >= 32) return;
    const int row = threadIdx.x;
    int4 source = make_int4(rows, rows, rows, rows);
    if (row < count) {
        const int2 bonds = shared.next_bonds[row];
        place_bonds(shared, row, first, count, bonds.x + 4, bonds.y, shared.next_scale[row], shared.next_sources[row], shared.next_factors[row]);
        source = shared.sources[row];
    }
    int num_foreign = 0;
    const auto give_row = [&](int& atom) {
        const uint32 foreign = ballot(atom < 0);
        const int index = num_foreign + count_bits(foreign & ((1u << row) - 1));
        num_foreign += count_bits(foreign);
        if (atom >= 0 || index >= HALO_ROWS) return;
        shared.halo[index] = ~atom;
        atom = first_halo_row + index;
    };
    give_row(source.x), give_row(source.y), give_row(source.z), give_row(source.w);
    if (row < count) shared.sources[row] = source;
    if (row == 0) *shared.num_foreign = num_foreign;
}

// Starts to copy rows of `count_quads` quads to shared memory; writes zeros beyond the first `count`.
__device__ __forceinline__ void copy_rows(float* to, const float* from, int first, int count, int count_quads) {
    const int step = threads / count_quads, quad = threadIdx.x % count_quads;
    int row = threadIdx.x / count_quads;
    if (row >= step) return;
#pragma unroll 4
    for (; row < rows; row += step) {
        const bool there = row < count;
        copy16(to + row * stride + 4 * quad, there ? from + (size_t(first + row) * count_quads + quad) * 4 : from, there);
    }
}
// Starts to copy the rows of the halo.
__device__ __forceinline__ void copy_halo(const Stream& shared, float* to, const float* from, int count_quads) {
    for (int item = threadIdx.x; item < shared.halo_count() * count_quads; item += threads) {
        const int index = item / count_quads, quad = item % count_quads;
        copy16(to + index * stride + 4 * quad, from + (size_t(shared.halo[index]) * count_quads + quad) * 4, true);
    }
}

// Runs body(row) for a thread's rows below `count`.
template <class Body>
__device__ __forceinline__ void each_row(int count, Body body) {
    const int share = threadIdx.x / quads;
#pragma unroll
    for (int i = 0; i < thread_rows; i++)
        if (share < shares && share + i * shares < count) body(share + i * shares);
}
// Runs body(index) for a thread's rows of the halo.
template <class Body>
__device__ __forceinline__ void each_halo_row(const Stream& shared, Body body) {
    for (int index = threadIdx.x / quads; threadIdx.x < shares * quads && index < shared.halo_count(); index += shares) body(index);
}
