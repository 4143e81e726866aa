#include "tiles.hpp"

#include <algorithm>

namespace molgcn {

namespace {
constexpr int64_t max_chunks = 128;   // enough to keep many cores busy
constexpr int64_t min_chunks = 8;
constexpr int64_t gradient_memory = 64 << 20;

bool rises(const int32_t* pointers, int64_t count) {
    bool valid = pointers[0] == 0;
    for (int64_t i = 0; i < count; i++) valid &= pointers[i] <= pointers[i + 1];
    return valid;
}
}  // namespace

Tiles::Tiles(const int32_t* row_ptr, int64_t num_graphs, int64_t gradient_bytes, int rows) {
    for (int g = 0; g < num_graphs;) {
        const int first = g++;
        while (g < num_graphs && g - first < rows && row_ptr[g + 1] - row_ptr[first] <= rows) g++;
        const int taken = row_ptr[g] - row_ptr[first];
        tiles_.push_back({first, g, row_ptr[first], taken});
        max_rows_ = std::max(max_rows_, taken);
        max_graphs_ = std::max(max_graphs_, g - first);
    }
    const int64_t all = row_ptr[num_graphs], most = std::clamp(gradient_memory / std::max<int64_t>(gradient_bytes, 1), min_chunks, max_chunks);
    int64_t chunks = std::max<int64_t>(1, (all + chunk_rows - 1) / chunk_rows);
    if (chunks > 2) chunks = (chunks + 3) / 4 * 4;  // shares equally between two or four threads
    chunks = std::min(chunks, most);
    chunk_ptr_.push_back(0);
    for (int t = 0; t + 1 < int(tiles_.size()) && int64_t(chunk_ptr_.size()) < chunks; t++) {
        const int64_t end = int64_t{tiles_[t].first_row} + tiles_[t].num_rows;
        if ((end + rows / 2) * chunks >= all * int64_t(chunk_ptr_.size())) chunk_ptr_.push_back(t + 1);  // at the nearest tile
    }
    if (!tiles_.empty()) chunk_ptr_.push_back(int(tiles_.size()));
    if (chunk_ptr_.size() == 1) chunk_ptr_.push_back(0);
}

void check_pointers(const std::string& name, const int32_t* ptr, int64_t num_graphs, const int32_t* rowptr, int64_t num_nodes, int64_t num_edges) {
    if (!rises(ptr, num_graphs) || ptr[num_graphs] != num_nodes) {
        throw std::invalid_argument(name + ": ptr must run from 0 to the number of atoms without decreasing");
    }
    if (!rises(rowptr, num_nodes) || rowptr[num_nodes] != num_edges) {
        throw std::invalid_argument(name + ": rowptr must run from 0 to the number of bonds without decreasing");
    }
}

}  // namespace molgcn
