// Batches cut into tiles and chunks, and their normalised adjacency.
#pragma once

#include <cmath>
#include <stdexcept>
#include <vector>

#include "gcn_stack.hpp"

namespace molgcn {

class Tiles {
public:
    // num_nodes is what there is room for: a padded batch uses less. Throws std::invalid_argument unless ptr rises from 0 to at most that.
    Tiles(const int32_t* ptr, int64_t num_graphs, int64_t num_nodes, int64_t gradient_bytes);

    Partition partition() const { return {tiles_.data(), chunk_ptr_.data(), int(tiles_.size()), int(chunk_ptr_.size()) - 1, max_nodes_, max_graphs_}; }

private:
    std::vector<Tile> tiles_;
    std::vector<int> chunk_ptr_;
    int max_nodes_ = 0, max_graphs_ = 0;
};

// Throws std::invalid_argument unless rowptr rises from 0 to at most num_edges.
void check_rowptr(const int32_t* rowptr, int64_t num_nodes, int64_t num_edges);

// D^-1/2 (A + I) D^-1/2, or without I, row by row; PyG's gcn_norm: duplicate bonds count, existing loops are replaced by one if loops are added.
template <typename T>
class Adjacency {
public:
    Adjacency(const Partition& partition, const int32_t* rowptr, const int32_t* col, int64_t num_nodes, int64_t num_edges, bool add_self_loops,
              int num_threads)
        : begin_(num_nodes), end_(num_nodes), entries_(num_edges + (add_self_loops ? num_nodes : 0)) {
        check_rowptr(rowptr, num_nodes, num_edges);
        std::vector<T> scale(num_nodes);
        bool outside = false;
#pragma omp parallel for num_threads(num_threads) reduction(|| : outside)
        for (int t = 0; t < partition.num_tiles; t++) {
            const Tile& tile = partition.tiles[t];
            const int first = tile.first_node, last = first + tile.num_nodes;
            for (int i = first; i < last; i++) {
                int degree = add_self_loops;
                for (int e = rowptr[i]; e < rowptr[i + 1]; e++) {
                    outside = outside || col[e] < first || col[e] >= last;
                    degree += !(add_self_loops && col[e] == i);
                }
                scale[i] = degree > 0 ? T(1) / std::sqrt(T(degree)) : T(0);
            }
            if (outside) continue;
            for (int i = first; i < last; i++) {
                begin_[i] = int64_t{rowptr[i]} + (add_self_loops ? i : 0);
                Entry<T>* entry = entries_.data() + begin_[i];
                for (int e = rowptr[i]; e < rowptr[i + 1]; e++) {
                    if (!(add_self_loops && col[e] == i)) *entry++ = {col[e] - first, scale[i] * scale[col[e]]};
                }
                if (add_self_loops) *entry++ = {i - first, scale[i] * scale[i]};
                end_[i] = entry - entries_.data();
            }
        }
        if (outside) throw std::invalid_argument("gcn_stack: col has an atom of another molecule; bonds must stay inside their molecule");
    }

    void attach(Stack<T>& stack) const {
        stack.entries = entries_.data();
        stack.entry_begin = begin_.data();
        stack.entry_end = end_.data();
    }

private:
    std::vector<int64_t> begin_, end_;
    std::vector<Entry<T>> entries_;
};

}  // namespace molgcn
