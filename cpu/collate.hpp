// Copies molecules of the packed set into a batch's slot. The layout is that of molgcn.data.GraphBatch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace molgcn {

struct Features {  // a molgcn.data.packed_arrays.BatchArray
    const void* values;   // codes, or rows of float32
    int code_bytes;       // 0: rows
    int64_t entry_bytes;  // of a code or row
    int64_t columns;      // of the batch's rows of float32; 0: the batch has the codes as int32
    const float* table;   // the rows that the codes stand for, each padded to a multiple of 4 columns
    int64_t num_codes;
};

struct Packed {  // the arrays of molgcn.data.PackedMolecules
    const int64_t *node_ptr, *edge_ptr;
    const void *degree, *neighbors;
    int degree_bytes, neighbor_bytes;
    std::vector<Features> molecules, atoms, bonds;
    const int32_t* target_words;  // one word for each float32 target, two for each float64 target
    int64_t num_target_words;
};

struct Plan {  // the arrays of molgcn.data.sampler.EpochPlan
    const int64_t *order, *batch_ptr, *node_ptr, *edge_ptr, *tile_starts;
    const int32_t* tile_ptr;
};

struct Slot {  // the arrays of molgcn.data.slots.Slot
    std::vector<void*> molecules, atoms, bonds;  // in the order of Packed's
    int32_t *ptr, *rowptr, *col, *target_words;
    int64_t* indices;
    int32_t *tile_ptr, *counts;
    int64_t max_graphs, max_nodes, max_edges, max_tiles;
};

inline int64_t padded_columns(int64_t columns) { return (columns + 3) / 4 * 4; }

template <class T>
inline void add_offset(int32_t* out, const T* in, int64_t count, int32_t offset) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(in[i]) + offset;
}

template <class T>
inline void running_sum(int32_t* out, const T* in, int64_t count, int32_t start) {
    for (int64_t i = 0; i < count; ++i) out[i] = start += in[i];
}

// Copies a table row into a row of the batch, by whole vectors. What is written behind the row is overwritten by the next one.
template <int Vectors>
inline void copy_row(float* out, const float* row, int64_t columns) {
    if constexpr (Vectors > 0) {
        std::memcpy(out, row, Vectors * 4 * sizeof(float));
    } else {
        std::memcpy(out, row, columns * sizeof(float));
    }
}

template <class Code, int Vectors>
void look_up(const Features& features, const Code* codes, int64_t count, float* out, const float* end) {
    const int64_t columns = features.columns, stride = padded_columns(columns);
    for (int64_t i = 0; i < count; ++i, out += columns) {
        const float* row = features.table + codes[i] * stride;
        if (out + stride <= end) copy_row<Vectors>(out, row, columns);
        else std::memcpy(out, row, columns * sizeof(float));
    }
}

template <class Code>
void look_up(const Features& features, const Code* codes, int64_t count, float* out, const float* end) {
    switch ((features.columns + 3) / 4) {
        case 1: return look_up<Code, 1>(features, codes, count, out, end);
        case 2: return look_up<Code, 2>(features, codes, count, out, end);
        case 3: return look_up<Code, 3>(features, codes, count, out, end);
        case 4: return look_up<Code, 4>(features, codes, count, out, end);
        case 7: return look_up<Code, 7>(features, codes, count, out, end);
        case 11: return look_up<Code, 11>(features, codes, count, out, end);
        default: return look_up<Code, 0>(features, codes, count, out, end);
    }
}

template <class Code>
void gather_codes(const Features& features, int64_t from, int64_t count, void* out, int64_t to, int64_t end) {
    const Code* codes = static_cast<const Code*>(features.values) + from;
    if (features.columns == 0) return add_offset(static_cast<int32_t*>(out) + to, codes, count, 0);
    float* rows = static_cast<float*>(out);
    look_up(features, codes, count, rows + to * features.columns, rows + end * features.columns);
}

// Copies entries [from, from + count) of the set to entries from `to` on of the slot's array. Entries before `end` may be written over.
inline void gather(const Features& features, int64_t from, int64_t count, void* out, int64_t to, int64_t end) {
    if (features.code_bytes == 1) return gather_codes<uint8_t>(features, from, count, out, to, end);
    if (features.code_bytes == 2) return gather_codes<uint16_t>(features, from, count, out, to, end);
    const char* rows = static_cast<const char*>(features.values) + from * features.entry_bytes;
    std::memcpy(static_cast<char*>(out) + to * features.entry_bytes, rows, count * features.entry_bytes);
}

// Asks for the cache lines of the molecules that come a few entries behind `i`, since a shuffled batch finds none of them in the cache. It
// is inlined by force, because GCC leaves out calls of a function that does nothing but prefetch.
[[gnu::always_inline]] inline void prefetch(const Packed& packed, const Plan& plan, int64_t i, int64_t end) {
    constexpr int64_t kAhead = 6;
    if (i + 2 * kAhead < end) {
        __builtin_prefetch(packed.node_ptr + plan.order[i + 2 * kAhead]);
        __builtin_prefetch(packed.edge_ptr + plan.order[i + 2 * kAhead]);
    }
    if (i + kAhead < end) {
        const int64_t molecule = plan.order[i + kAhead], node = packed.node_ptr[molecule];
        __builtin_prefetch(static_cast<const char*>(packed.degree) + node * packed.degree_bytes);
        __builtin_prefetch(static_cast<const char*>(packed.neighbors) + packed.edge_ptr[molecule] * packed.neighbor_bytes);
        for (const Features& features : packed.atoms) __builtin_prefetch(static_cast<const char*>(features.values) + node * features.entry_bytes);
        for (const Features& features : packed.bonds)
            __builtin_prefetch(static_cast<const char*>(features.values) + packed.edge_ptr[molecule] * features.entry_bytes);
        for (const Features& features : packed.molecules)
            __builtin_prefetch(static_cast<const char*>(features.values) + molecule * features.entry_bytes);
        __builtin_prefetch(packed.target_words + molecule * packed.num_target_words);
    }
}

// Copies molecules [first, last) of batch `number`, counted through the epoch. Shares of one batch write to different parts of the slot.
template <class Degree, class Neighbor>
void fill_share(const Packed& packed, const Plan& plan, int64_t number, int64_t first, int64_t last, const Slot& slot) {
    const int64_t begin = plan.batch_ptr[number], end = plan.batch_ptr[number + 1];
    const int64_t node_base = plan.node_ptr[begin], edge_base = plan.edge_ptr[begin];
    const auto* degree = static_cast<const Degree*>(packed.degree);
    const auto* neighbors = static_cast<const Neighbor*>(packed.neighbors);
    const int64_t word_bytes = packed.num_target_words * static_cast<int64_t>(sizeof(int32_t));
    const int64_t end_node = plan.node_ptr[last] - node_base, end_edge = plan.edge_ptr[last] - edge_base;

    for (int64_t i = first; i < last; ++i) {
        prefetch(packed, plan, i, end);
        const int64_t molecule = plan.order[i], row = i - begin;
        const int64_t from_node = packed.node_ptr[molecule], from_edge = packed.edge_ptr[molecule];
        const int64_t node = plan.node_ptr[i] - node_base, edge = plan.edge_ptr[i] - edge_base;
        const int64_t nodes = plan.node_ptr[i + 1] - plan.node_ptr[i], edges = plan.edge_ptr[i + 1] - plan.edge_ptr[i];
        slot.ptr[row + 1] = static_cast<int32_t>(node + nodes);
        slot.indices[row] = molecule;
        std::memcpy(slot.target_words + row * packed.num_target_words, packed.target_words + molecule * packed.num_target_words, word_bytes);
        running_sum(slot.rowptr + node + 1, degree + from_node, nodes, static_cast<int32_t>(edge));
        add_offset(slot.col + edge, neighbors + from_edge, edges, static_cast<int32_t>(node));
        for (size_t k = 0; k < packed.molecules.size(); ++k) gather(packed.molecules[k], molecule, 1, slot.molecules[k], row, row + 1);
        for (size_t k = 0; k < packed.atoms.size(); ++k) gather(packed.atoms[k], from_node, nodes, slot.atoms[k], node, end_node);
        for (size_t k = 0; k < packed.bonds.size(); ++k) gather(packed.bonds[k], from_edge, edges, slot.bonds[k], edge, end_edge);
    }
}

inline void fill_share(const Packed& packed, const Plan& plan, int64_t number, int64_t first, int64_t last, const Slot& slot) {
    if (packed.degree_bytes == 1 && packed.neighbor_bytes == 1) fill_share<uint8_t, uint8_t>(packed, plan, number, first, last, slot);
    else if (packed.degree_bytes == 1) fill_share<uint8_t, uint16_t>(packed, plan, number, first, last, slot);
    else if (packed.neighbor_bytes == 1) fill_share<uint16_t, uint8_t>(packed, plan, number, first, last, slot);
    else fill_share<uint16_t, uint16_t>(packed, plan, number, first, last, slot);
}

// Writes everything of a batch that does not belong to a molecule: tiles, counts, and the entries that stay empty, which hold molecules
// without atoms.
inline void fill_rest(const Packed& packed, const Plan& plan, int64_t number, const Slot& slot) {
    const int64_t begin = plan.batch_ptr[number], graphs = plan.batch_ptr[number + 1] - begin;
    const auto nodes = static_cast<int32_t>(plan.node_ptr[begin + graphs] - plan.node_ptr[begin]);
    const auto edges = static_cast<int32_t>(plan.edge_ptr[begin + graphs] - plan.edge_ptr[begin]);
    const int64_t tiles = plan.tile_starts[number + 1] - plan.tile_starts[number] - 1;
    slot.ptr[0] = slot.rowptr[0] = 0;
    for (int64_t i = graphs + 1; i <= slot.max_graphs; ++i) slot.ptr[i] = nodes;
    for (int64_t i = nodes + 1; i <= slot.max_nodes; ++i) slot.rowptr[i] = edges;
    for (int64_t i = graphs; i < slot.max_graphs; ++i) slot.indices[i] = -1;
    constexpr int32_t kMissing = 0x7fffffff;  // NaN as a float32, and NaN as a float64 of two such words
    std::fill(slot.target_words + graphs * packed.num_target_words, slot.target_words + slot.max_graphs * packed.num_target_words, kMissing);
    std::memcpy(slot.tile_ptr, plan.tile_ptr + plan.tile_starts[number], (tiles + 1) * sizeof(int32_t));
    for (int64_t i = tiles + 1; i <= slot.max_tiles; ++i) slot.tile_ptr[i] = static_cast<int32_t>(graphs);
    const int32_t counts[] = {static_cast<int32_t>(graphs), nodes, edges, static_cast<int32_t>(tiles)};
    std::memcpy(slot.counts, counts, sizeof counts);
}

}  // namespace molgcn
