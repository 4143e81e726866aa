// A batch's part of the packed set, still packed, in the order of the batch. It is sent to a GPU that does not hold the set.
#pragma once

#include "collate.hpp"

namespace molgcn {

struct Piece {  // the arrays of molgcn.data.resident.Piece
    int64_t *order, *node_ptr, *edge_ptr;
    int32_t *tile_ptr, *target_words;
    void *row_end, *neighbors;
    std::vector<void*> molecules, atoms, bonds;  // in the order of Packed's
    int end_bytes;
    int64_t max_graphs, max_nodes, max_edges, max_tiles;
};

// Copies entries [from, from + count) of the set, as they are, to entries from `to` on of the piece's array.
inline void copy_entries(void* out, int64_t to, const void* values, int64_t from, int64_t count, int64_t entry_bytes) {
    std::memcpy(static_cast<char*>(out) + to * entry_bytes, static_cast<const char*>(values) + from * entry_bytes, count * entry_bytes);
}

template <class End, class Degree>
void row_ends(void* out, const void* degree, int64_t to, int64_t from, int64_t count) {
    End* ends = static_cast<End*>(out) + to;
    const Degree* degrees = static_cast<const Degree*>(degree) + from;
    int64_t end = 0;
    for (int64_t i = 0; i < count; ++i) ends[i] = static_cast<End>(end += degrees[i]);
}

inline void fill_share(const Packed& packed, const Plan& plan, int64_t number, int64_t first, int64_t last, const Piece& piece) {
    const int64_t begin = plan.batch_ptr[number], end = plan.batch_ptr[number + 1];
    const int64_t node_base = plan.node_ptr[begin], edge_base = plan.edge_ptr[begin];
    const int64_t word_bytes = packed.num_target_words * static_cast<int64_t>(sizeof(int32_t));
    for (int64_t i = first; i < last; ++i) {
        prefetch(packed, plan, i, end);
        const int64_t molecule = plan.order[i];
        const int64_t from_node = packed.node_ptr[molecule], from_edge = packed.edge_ptr[molecule];
        const int64_t node = plan.node_ptr[i] - node_base, edge = plan.edge_ptr[i] - edge_base;
        const int64_t nodes = plan.node_ptr[i + 1] - plan.node_ptr[i], edges = plan.edge_ptr[i + 1] - plan.edge_ptr[i];
        std::memcpy(piece.target_words + (i - begin) * packed.num_target_words, packed.target_words + molecule * packed.num_target_words, word_bytes);
        for (size_t k = 0; k < packed.molecules.size(); ++k)
            copy_entries(piece.molecules[k], i - begin, packed.molecules[k].values, molecule, 1, packed.molecules[k].entry_bytes);
        copy_entries(piece.neighbors, edge, packed.neighbors, from_edge, edges, packed.neighbor_bytes);
        for (size_t k = 0; k < packed.atoms.size(); ++k)
            copy_entries(piece.atoms[k], node, packed.atoms[k].values, from_node, nodes, packed.atoms[k].entry_bytes);
        for (size_t k = 0; k < packed.bonds.size(); ++k)
            copy_entries(piece.bonds[k], edge, packed.bonds[k].values, from_edge, edges, packed.bonds[k].entry_bytes);
        if (packed.degree_bytes == 1 && piece.end_bytes == 1) row_ends<uint8_t, uint8_t>(piece.row_end, packed.degree, node, from_node, nodes);
        else if (packed.degree_bytes == 1 && piece.end_bytes == 2) row_ends<uint16_t, uint8_t>(piece.row_end, packed.degree, node, from_node, nodes);
        else if (packed.degree_bytes == 1) row_ends<int32_t, uint8_t>(piece.row_end, packed.degree, node, from_node, nodes);
        else if (piece.end_bytes == 2) row_ends<uint16_t, uint16_t>(piece.row_end, packed.degree, node, from_node, nodes);
        else row_ends<int32_t, uint16_t>(piece.row_end, packed.degree, node, from_node, nodes);
    }
}

// Writes the plan of the batch. Offsets are counted through the epoch, as in the plan itself.
inline void fill_rest(const Packed&, const Plan& plan, int64_t number, const Piece& piece) {
    const int64_t begin = plan.batch_ptr[number], graphs = plan.batch_ptr[number + 1] - begin;
    const int64_t tile = plan.tile_starts[number];
    std::memcpy(piece.order, plan.order + begin, graphs * sizeof(int64_t));
    std::memcpy(piece.node_ptr, plan.node_ptr + begin, (graphs + 1) * sizeof(int64_t));
    std::memcpy(piece.edge_ptr, plan.edge_ptr + begin, (graphs + 1) * sizeof(int64_t));
    std::memcpy(piece.tile_ptr, plan.tile_ptr + tile, (plan.tile_starts[number + 1] - tile) * sizeof(int32_t));
}

}  // namespace molgcn
