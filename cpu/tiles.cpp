#include "tiles.hpp"

#include <algorithm>

namespace molgcn {

namespace {
constexpr int tile_nodes = 64;             // activations of a tile and a layer's weights lie in the first-level cache together
constexpr int64_t chunk_nodes = 256;       // at least, so that adding up a chunk's gradients costs little beside computing them
constexpr int64_t max_chunks = 128;        // enough to keep many cores busy
constexpr int64_t min_chunks = 8;
constexpr int64_t gradient_memory = 64 << 20;
}  // namespace

Tiles::Tiles(const int32_t* ptr, int64_t num_graphs, int64_t num_nodes, int64_t gradient_bytes) {
    bool valid = ptr[0] == 0 && ptr[num_graphs] <= num_nodes;
    for (int64_t g = 0; g < num_graphs; g++) valid = valid && ptr[g] <= ptr[g + 1];
    if (!valid) throw std::invalid_argument("gcn_stack: ptr must run from 0 to at most the number of atoms without decreasing");

    num_nodes = ptr[num_graphs];
    const int64_t chunks = std::clamp(gradient_memory / std::max<int64_t>(gradient_bytes, 1), min_chunks, max_chunks);
    const int64_t nodes_per_chunk = std::max(chunk_nodes, (num_nodes + chunks - 1) / chunks);
    chunk_ptr_.push_back(0);
    int64_t in_chunk = 0;
    for (int g = 0; g < num_graphs;) {
        const int first = g++;
        while (g < num_graphs && g - first < tile_nodes && ptr[g + 1] - ptr[first] <= tile_nodes) g++;
        const int nodes = ptr[g] - ptr[first];
        tiles_.push_back({first, g, ptr[first], nodes});
        max_nodes_ = std::max(max_nodes_, nodes);
        max_graphs_ = std::max(max_graphs_, g - first);
        in_chunk += nodes;
        if (in_chunk >= nodes_per_chunk) {
            chunk_ptr_.push_back(int(tiles_.size()));
            in_chunk = 0;
        }
    }
    if (chunk_ptr_.size() == 1 || chunk_ptr_.back() < int(tiles_.size())) chunk_ptr_.push_back(int(tiles_.size()));
}

void check_rowptr(const int32_t* rowptr, int64_t num_nodes, int64_t num_edges) {
    bool valid = rowptr[0] == 0 && rowptr[num_nodes] <= num_edges;
    for (int64_t i = 0; i < num_nodes; i++) valid = valid && rowptr[i] <= rowptr[i + 1];
    if (!valid) throw std::invalid_argument("gcn_stack: rowptr must run from 0 to at most the number of bonds without decreasing");
}

}  // namespace molgcn
