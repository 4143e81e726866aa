// Gathers the molecules of one batch from the resident packed set into a slot, in one launch. `lanes` threads take one molecule, and
// threads do not communicate. The number of the batch may be read from the device, so that replays of one CUDA graph fill in one batch
// after the other.
//
// Macros:
//   END_BYTES        bytes of a number of `row_end`
//   NEIGHBOR_BYTES   bytes of a neighbour
//   STAGED           the set's arrays hold only this batch, in its order (a molgcn.data.resident.Piece)
// For each array x of MOLECULE_ARRAYS, ATOM_ARRAYS and BOND_ARRAYS (molgcn.data.packed_arrays):
//   x_COLUMNS        columns of the slot's rows of floats; 0: the slot has the codes
//   x_CODE_BYTES     bytes of a code into the table; 0: the set has the rows themselves
// Both are 0 where the set has no such array.
//
// The slot's layout is that of molgcn.data.slots.Slot. Offsets within the epoch come with the plan, so that nothing is scanned here.
#define JOIN(bytes) UINT_##bytes
#define UINT_1 unsigned char
#define UINT_2 unsigned short
#define UINT_4 unsigned int
#define UINT_0 float
#define TYPE(bytes) JOIN(bytes)
#include "collate_structs.h"  // molgcn/data/resident.py

// Copies entries of one of the set's arrays, from `from` on, to entries from `to` on of the slot's array. The threads of a molecule do
// it, with several loads under way.
template <int Columns, int CodeBytes, class Value>
__device__ void gather(void* slot, const Value* values, const float* table, long long from, long long to, int count, int lane, int lanes) {
    if constexpr (Columns != 0) {
        float* out = static_cast<float*>(slot) + to * Columns;
#pragma unroll 4
        for (int k = lane; k < count * Columns; k += lanes) {
            if constexpr (CodeBytes != 0) out[k] = __ldg(table + static_cast<int>(__ldg(values + from + k / Columns)) * Columns + k % Columns);
            else out[k] = __ldg(values + from * Columns + k);
        }
    } else if constexpr (CodeBytes != 0) {
        for (int k = lane; k < count; k += lanes) static_cast<int*>(slot)[to + k] = __ldg(values + from + k);
    }
}
#define GATHER(array, from, to, count) \
    gather<array##_COLUMNS, array##_CODE_BYTES>(p.slot_##array, p.array, p.array##_table, from, to, count, lane, p.lanes);
#define GATHER_MOLECULES(array) GATHER(array, row, i, 1)
#define GATHER_ATOMS(array) GATHER(array, from_node, node, nodes)
#define GATHER_BONDS(array) GATHER(array, from_edge, edge, edges)

#if !STAGED
__device__ BatchSpan span_of(const Parameters& p, int number) {
    BatchSpan at;
    at.first_graph = p.plan_batch_ptr[number];
    at.first_node = p.plan_node_ptr[at.first_graph];
    at.first_edge = p.plan_edge_ptr[at.first_graph];
    at.first_tile = p.plan_tile_starts[number];
    const long long end = p.plan_batch_ptr[number + 1];
    at.num_graphs = static_cast<int>(end - at.first_graph);
    at.num_nodes = static_cast<int>(p.plan_node_ptr[end] - at.first_node);
    at.num_edges = static_cast<int>(p.plan_edge_ptr[end] - at.first_edge);
    at.num_tiles = static_cast<int>(p.plan_tile_starts[number + 1] - at.first_tile) - 1;
    return at;
}
#endif

extern "C" __global__ void __launch_bounds__(256) collate(const __grid_constant__ Parameters p) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x, lane = threadIdx.x % p.lanes;
#if STAGED
    const BatchSpan at = p.span;
#else
    const int number = p.number < 0 ? p.cursor[p.slot] : p.number;
    if (thread == 0) p.cursor[1 - p.slot] = number + 1;  // so that no launch writes what it reads
    if (number >= p.num_batches) return;
    const BatchSpan at = span_of(p, number);
#endif
    for (int i = thread / p.lanes; i < at.num_graphs; i += threads / p.lanes) {
        const long long molecule = p.plan_order[at.first_graph + i];
        const int node = static_cast<int>(p.plan_node_ptr[at.first_graph + i] - at.first_node);
        const int edge = static_cast<int>(p.plan_edge_ptr[at.first_graph + i] - at.first_edge);
        const int nodes = static_cast<int>(p.plan_node_ptr[at.first_graph + i + 1] - at.first_node) - node;
        const int edges = static_cast<int>(p.plan_edge_ptr[at.first_graph + i + 1] - at.first_edge) - edge;
        const long long row = STAGED ? i : molecule;
        const long long from_node = STAGED ? node : p.node_ptr[molecule], from_edge = STAGED ? edge : p.edge_ptr[molecule];
        if (lane == 0) {
            p.slot_ptr[i + 1] = node + nodes;
            p.slot_indices[i] = molecule;
        }
        for (int k = lane; k < p.target_words; k += p.lanes)
            p.slot_targets[static_cast<long long>(i) * p.target_words + k] = p.targets[row * p.target_words + k];
        for (int k = lane; k < nodes; k += p.lanes) p.slot_rowptr[node + k + 1] = edge + static_cast<int>(__ldg(p.row_end + from_node + k));
        for (int k = lane; k < edges; k += p.lanes) p.slot_col[edge + k] = node + __ldg(p.neighbors + from_edge + k);
        MOLECULE_ARRAYS(GATHER_MOLECULES)
        ATOM_ARRAYS(GATHER_ATOMS)
        BOND_ARRAYS(GATHER_BONDS)
    }
    // Entries that stay empty hold molecules without atoms (see Slot).
    if (thread == 0) {
        p.slot_ptr[0] = p.slot_rowptr[0] = 0;
        p.slot_counts[0] = at.num_graphs, p.slot_counts[1] = at.num_nodes, p.slot_counts[2] = at.num_edges, p.slot_counts[3] = at.num_tiles;
    }
    const int missing = 0x7fffffff;  // NaN as a float32, and NaN as a float64 of two such words
    for (int k = thread; k <= p.max_tiles; k += threads) p.slot_tile_ptr[k] = k <= at.num_tiles ? p.plan_tile_ptr[at.first_tile + k] : at.num_graphs;
    for (int k = at.num_graphs + thread; k < p.max_graphs; k += threads) {
        p.slot_ptr[k + 1] = at.num_nodes;
        p.slot_indices[k] = -1;
        for (int t = 0; t < p.target_words; ++t) p.slot_targets[static_cast<long long>(k) * p.target_words + t] = missing;
    }
    for (int k = at.num_nodes + 1 + thread; k <= p.max_nodes; k += threads) p.slot_rowptr[k] = at.num_edges;
}
