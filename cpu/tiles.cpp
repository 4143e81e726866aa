#include "tiles.hpp"

#include <algorithm>

namespace molgcn {

namespace {
constexpr int tile_rows = 64;         // activations of a tile and a layer's weights lie in the first-level cache together
constexpr int64_t max_chunks = 128;   // enough to keep many cores busy
constexpr int64_t min_chunks = 8;
constexpr int64_t gradient_memory = 64 << 20;

bool rises(const int32_t* pointers, int64_t count) {
    bool valid = pointers[0] == 0;
    for (int64_t i = 0; i < count; i++) valid &= pointers[i] <= pointers[i + 1];
    return valid;
}
}  // namespace

Tiles::Tiles(const int32_t* row_ptr, int64_t num_graphs, int64_t gradient_bytes) {
    const int64_t chunks = std::clamp(gradient_memory / std::max<int64_t>(gradient_bytes, 1), min_chunks, max_chunks);
    const int64_t rows_per_chunk = std::max(chunk_rows, (row_ptr[num_graphs] + chunks - 1) / chunks);
    chunk_ptr_.push_back(0);
    int64_t in_chunk = 0;
    for (int g = 0; g < num_graphs;) {
        const int first = g++;
        while (g < num_graphs && g - first < tile_rows && row_ptr[g + 1] - row_ptr[first] <= tile_rows) g++;
        const int rows = row_ptr[g] - row_ptr[first];
        tiles_.push_back({first, g, row_ptr[first], rows});
        max_rows_ = std::max(max_rows_, rows);
        max_graphs_ = std::max(max_graphs_, g - first);
        in_chunk += rows;
        if (in_chunk >= rows_per_chunk) {
            chunk_ptr_.push_back(int(tiles_.size()));
            in_chunk = 0;
        }
    }
    if (chunk_ptr_.size() == 1 || chunk_ptr_.back() < int(tiles_.size())) chunk_ptr_.push_back(int(tiles_.size()));
}

void check_pointers(const int32_t* ptr, int64_t num_graphs, const int32_t* rowptr, int64_t num_nodes, int64_t num_edges) {
    if (!rises(ptr, num_graphs) || ptr[num_graphs] != num_nodes) {
        throw std::invalid_argument("gcn_stack: ptr must run from 0 to the number of atoms without decreasing");
    }
    if (!rises(rowptr, num_nodes) || rowptr[num_nodes] != num_edges) {
        throw std::invalid_argument("gcn_stack: rowptr must run from 0 to the number of bonds without decreasing");
    }
}

}  // namespace molgcn
