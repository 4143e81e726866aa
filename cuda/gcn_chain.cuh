// What the forward and the backward kernel for all layers in one launch share (batch norm in training).
//
// All blocks are on the GPU at once. Each has `rows` consecutive atoms, whose features stay in shared memory from layer to layer. From the
// other blocks a layer needs the sums over all atoms, for its norm, and the rows where a bond leaves the block. A barrier over the grid
// comes in between. Blocks form clusters. They add their sums up in each other's shared memory. They get the next layer's weight together,
// while the sums are on their way through the grid.
//
// Macros: HIDDEN (H), PRECISION, DROPOUT, SELF_LOOPS, POOL, TILES (of 8 atoms in a block), CLUSTER (blocks, an even number), MAX_LAYERS.
#pragma once
#include "gcn_layer_basics.cuh"
#include "gcn_chain_structs.h"  // molgcn/ops/gcn_layers_arguments.py

constexpr int rows = 8 * TILES;
constexpr int halo_rows = 16;                                   // room for the halo: atoms of other blocks that bonds lead to
constexpr int stride = width % 32 == 0 ? width + 16 : width;    // two rows side by side use all banks
constexpr int threads = 32 * chunks * ((7 + chunks) / chunks);  // a warp has 16 columns of the product, if there are any left
constexpr int teams = threads / lanes;
constexpr int slice = 16 * ((chunks + CLUSTER - 1) / CLUSTER);  // columns whose sums and weights a block handles for its cluster
constexpr int step = threads / quads;                           // rows that the threads cover at once, a quad each
constexpr int items = (rows + step - 1) / step;                 // quads of a thread
constexpr int halo_items = (halo_rows + step - 1) / step;
constexpr int no_row = rows + halo_rows;
constexpr int batch = 8;                                        // sums whose loads are under way together
static_assert(items <= 8, "masks of a thread's quads fit a word");

__device__ __forceinline__ size_t plane(const Parameters& p) { return size_t(p.num_nodes) * width; }
__device__ __forceinline__ bool adds_input(const Parameters& p, int layer) { return layer > 0 ? p.residual : p.first_residual; }

struct Shared {
    float* near;       // [rows + halo_rows + 1, stride]: what is pulled, of the atoms and their halo, and zeros
    float* held;       // [rows, stride]: forward the norm's input, backward the gradient of the layer's output
    float* tile;       // [rows, stride]: Â times `near`, four halves and what they leave, as operands of the product
    float4* weight;    // [columns' chunks, rows' chunks, 2, 32]
    int4* sources;     // [rows]: in near; none and -1 where one has none, or there are more than four
    float4* factors;   // [rows]
    float* own;        // [rows]: the atom's own factor
    float* columns;    // [6, width]: numbers of each column
    float* exchange;   // [CLUSTER, 2, slice]: sums of the cluster's blocks
    float* scales;     // [rows]: of the tile
    uint64* arrived;   // bytes of the weight
    uint64* offered;   // bytes of the exchange
    uint64* sent;      // bytes of the columns
    int* halo_count;
    int* num_far;      // atoms that have neighbours without a row
    int* halo;         // [halo_rows]: atoms

    __device__ explicit Shared(unsigned char* memory) {
        weight = reinterpret_cast<float4*>(memory);
        near = reinterpret_cast<float*>(weight + 64 * chunks * chunks);
        held = near + (rows + halo_rows + 1) * stride;
        tile = held + rows * stride;
        sources = reinterpret_cast<int4*>(tile + rows * stride);
        factors = reinterpret_cast<float4*>(sources + rows);
        own = reinterpret_cast<float*>(factors + rows);
        columns = own + rows;
        exchange = columns + 6 * width;
        scales = exchange + CLUSTER * 2 * slice;
        arrived = reinterpret_cast<uint64*>(scales + rows);
        offered = arrived + 1;
        sent = offered + 1;
        halo_count = reinterpret_cast<int*>(sent + 1), num_far = halo_count + 1, halo = halo_count + 2;
    }
    __device__ __forceinline__ float4 column4(int which, int quad) const { return four(columns + which * width + 4 * quad); }
};

struct AtomRange {  // the atoms of a block
    int num_nodes, first, count;

    __device__ explicit AtomRange(const Parameters& p) {
        num_nodes = __ldg(p.ptr + p.num_graphs), first = blockIdx.x * rows;
        count = max(0, min(rows, num_nodes - first));
    }
};

// Brings a layer's weight into shared memory, as `across` times `count` blocks of 16 x 16. Each block of a cluster sends its slice to all
// of them, once it knows that they are done with the same slice of the weight before.
__device__ __forceinline__ void fetch_weight(const Parameters& p, const Shared& shared, int layer, int across, int count) {
    const int begin = layer == 0 ? 0 : 64 * chunks * (p.in_width / 16 + (layer - 1) * chunks);
    if (threadIdx.x != 0) return;
    expect(shared.arrived, 1024 * across * count);
    const int first = cluster_rank() * (slice / 16);
    for (int i = first; i < min(first + slice / 16, across); i++)
        copy_to_cluster(shared.weight + 64 * chunks * i, p.fragments + begin + 64 * count * i, 1024 * count, shared.arrived, CLUSTER);
}
// Waits for the weight. Must be called before the block's next barrier.
__device__ __forceinline__ void wait_for_weight(const Shared& shared, int phase) { wait_for_phase(shared.arrived, phase & 1); }

// Finds the atoms' bonds, as rows of `near`.
__device__ __forceinline__ void start(const Parameters& p, const Shared& shared, const AtomRange& atoms) {
    if (threadIdx.x == 0) {
        *shared.halo_count = *shared.num_far = 0;
        start_counting(shared.arrived), start_counting(shared.offered), start_counting(shared.sent);
    }
    for (int i = threadIdx.x; i < stride; i += threads) shared.near[no_row * stride + i] = 0.0f;
    __syncthreads();
    const auto row_of = [&](int node, float factor) {
        const int other = node - atoms.first;
        if (factor == 0.0f) return no_row;
        if (other >= 0 && other < atoms.count) return other;
        const int slot = atomicAdd(shared.halo_count, 1);
        if (slot >= halo_rows) return -1;
        shared.halo[slot] = node;
        return rows + slot;
    };
    for (int row = threadIdx.x; row < atoms.count; row += threads) {
        const int node = atoms.first + row;
        const int4 source = __ldg(p.sources + node);
        const float4 factor = __ldg(p.factors + node);
        const int begin = __ldg(p.rowptr + node) + 4, end = __ldg(p.rowptr + node + 1);
        const float scale = __ldg(p.scale + node);
        int4 row_in = make_int4(row_of(source.x, factor.x), row_of(source.y, factor.y), row_of(source.z, factor.z), row_of(source.w, factor.w));
        if (begin < end || (row_in.x | row_in.y | row_in.z | row_in.w) < 0) {
            row_in = make_int4(no_row, no_row, no_row, -1);
            atomicAdd(shared.num_far, 1);
        }
        shared.sources[row] = row_in;
        shared.factors[row] = factor;
        shared.own[row] = SELF_LOOPS ? scale * scale : 0.0f;
    }
    __syncthreads();
    if (threadIdx.x == 0) *shared.halo_count = min(*shared.halo_count, halo_rows);
    cluster_arrive(), cluster_wait();
    __syncthreads();
}

// Hands the block's sums of two columns to the block of the cluster that adds them up.
__device__ __forceinline__ void offer(const Shared& shared, int column, int kind, const float2& x) {
    store_to_peer(shared.exchange + (cluster_rank() * 2 + kind) * slice + column % slice, column / slice, x, shared.offered);
}
// Calls combine(column, what the blocks offered of it) for the columns of the block's slice.
template <class Combine>
__device__ __forceinline__ void take_offers(const Shared& shared, int phase, Combine combine) {
    const int first = cluster_rank() * slice, size = min(slice, width - first), column = threadIdx.x;
    if (size <= 0 || column >= size) return;
    if (column == 0) expect(shared.offered, CLUSTER * 8 * size);
    wait_for_phase(shared.offered, phase & 1);
    float2 offers[CLUSTER];
#pragma unroll
    for (int i = 0; i < CLUSTER; i++) offers[i] = make_float2(shared.exchange[2 * i * slice + column], shared.exchange[(2 * i + 1) * slice + column]);
    combine(first + column, offers);
}

// Sends a number of a column to all blocks of the cluster, from the block that handles the column. The lanes of half a warp send to half of
// the blocks.
__device__ __forceinline__ void send_to_cluster(const Shared& shared, int which, int column, int half, float x) {
#pragma unroll
    for (int i = 0; i < CLUSTER / 2; i++) store_to_peer(shared.columns + which * width + column, half + 2 * i, x, shared.sent);
}
// Waits until all columns have got `numbers` numbers.
__device__ __forceinline__ void wait_for_columns(const Shared& shared, int numbers, int phase) {
    if (threadIdx.x == 0) expect(shared.sent, 4 * width * numbers);
    wait_for_phase(shared.sent, phase & 1);
}
// Returns the column whose sums the lane reads; two lanes share a column. Other warps get `width` or more.
__device__ __forceinline__ int own_column() {
    const int warp = threadIdx.x / 32, first = cluster_rank() * slice;
    return 16 * warp < slice ? first + 16 * warp + threadIdx.x % 16 : width;
}

__device__ __forceinline__ int parts(const AtomRange& atoms) { return parts_of(atoms.num_nodes, rows * CLUSTER); }
__device__ __forceinline__ float* sums_of(const Parameters& p, int layer) {
    return p.sums + size_t(layer % 2) * parts_of(gridDim.x / CLUSTER, 2 * batch) * 2 * batch * 2 * width;
}

// Adds up a layer's sums: calls add(first, second, atoms) with each cluster's. The lanes of half a warp take every other cluster; beyond
// the last one the sums are zeros of no atoms. All loads are under way together.
template <class Add>
__device__ __forceinline__ void add_parts(const Parameters& p, const AtomRange& atoms, int layer, int column, int half, Add add) {
    const float* sums = sums_of(p, layer) + half * 2 * width + column;
    const int count = parts(atoms);
#pragma unroll 1
    for (int base = half; base < count; base += 2 * batch, sums += 2 * batch * 2 * width) {
        float first[batch], second[batch];
#pragma unroll
        for (int i = 0; i < batch; i++) {
            first[i] = load_past_l1(sums + i * 4 * width), second[i] = load_past_l1(sums + i * 4 * width + width);
        }
#pragma unroll
        for (int i = 0; i < batch; i++)  // no branches: the compiler would move the loads into them
            add(first[i], second[i], static_cast<float>(max(part_size(atoms.num_nodes, rows * CLUSTER, base + 2 * i), 0)));
    }
}

// Arrives at the barrier over the grid. What a block wrote before is visible to those that waited.
__device__ __forceinline__ void arrive(const Parameters& p) {
    __syncthreads();
    if (threadIdx.x == 0) add_release_grid(p.arrivals, 1u);
}
__device__ __forceinline__ void wait_for_all(const Parameters& p, int times) {
    if (threadIdx.x == 0)
        while (load_acquire_grid(p.arrivals) < static_cast<uint32>(times) * gridDim.x) pause();
    __syncthreads();
}

__device__ __forceinline__ unsigned char* mask_of(const Parameters& p, int node, int quad, int layer) {
    return p.masks + (size_t(layer) * p.num_nodes + node) * quads + quad;
}
