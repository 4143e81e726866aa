// Cuts batches into tiles and chunks, and computes their normalised adjacency.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "leaf_rows.hpp"

namespace molgcn {

constexpr int tile_rows = 64;         // activations of a tile and a layer's weights of width 64 lie in the first-level cache together
constexpr int64_t chunk_rows = 256;  // the fewest, so that adding up a chunk's gradients costs little beside computing them

class Tiles {
public:
    // Cuts tiles of about `rows` rows. A molecule with more rows is a tile of its own.
    Tiles(const int32_t* row_ptr, int64_t num_graphs, int64_t gradient_bytes, int rows = tile_rows);

    Partition partition() const { return {tiles_.data(), chunk_ptr_.data(), int(tiles_.size()), int(chunk_ptr_.size()) - 1, max_rows_, max_graphs_}; }

private:
    std::vector<Tile> tiles_;
    std::vector<int> chunk_ptr_;
    int max_rows_ = 0, max_graphs_ = 0;
};

// Throws std::invalid_argument, in the operator's name, unless ptr and rowptr rise from 0 to the numbers of atoms and bonds in use.
void check_pointers(const std::string& name, const int32_t* ptr, int64_t num_graphs, const int32_t* rowptr, int64_t num_nodes, int64_t num_edges);

// Returns (bonds at atom i)^-1/2, or 0 without bonds. With `add_self_loops` one loop counts instead of those that are there.
inline double inverse_root_degree(const int32_t* rowptr, const int32_t* col, int64_t i, bool add_self_loops) {
    int degree = add_self_loops;
    for (int e = rowptr[i]; e < rowptr[i + 1]; e++) degree += !(add_self_loops && col[e] == i);
    return degree > 0 ? 1 / std::sqrt(double(degree)) : 0;
}

// D^-1/2 (A + I) D^-1/2, or without I, row by row, as PyG's gcn_norm: duplicate bonds count, and added loops replace existing ones.
template <typename T>
class Adjacency {
public:
    // Computes the entries. `problem` has its rows and partition already.
    Adjacency(const Problem<T>& problem, const int32_t* rowptr, const int32_t* col, bool add_self_loops)
        : begin_(new int64_t[problem.num_rows]),
          end_(new int64_t[problem.num_rows]),
          entries_(new Entry<T>[rowptr[problem.num_nodes] + (add_self_loops ? problem.num_nodes : 0)]) {
        const std::unique_ptr<double[]> scale(new double[problem.num_nodes]);
#pragma omp parallel for num_threads(problem.num_threads)
        for (int t = 0; t < problem.partition.num_tiles; t++) {
            const Tile& tile = problem.partition.tiles[t];
            for (int i = problem.ptr[tile.first_graph]; i < problem.ptr[tile.last_graph]; i++) {
                scale[i] = inverse_root_degree(rowptr, col, i, add_self_loops);
            }
            for (int row = tile.first_row; row < tile.first_row + tile.num_rows; row++) {
                const int i = problem.row_atom[row];
                begin_[row] = int64_t{rowptr[i]} + (add_self_loops ? i : 0);
                Entry<T>* entry = entries_.get() + begin_[row];
                for (int e = rowptr[i]; e < rowptr[i + 1]; e++) {
                    const int j = col[e], source = problem.atom_row[j];
                    if ((add_self_loops && j == i) || problem.row_atom[source] != j) continue;  // the first of equal leaves stands for all
                    const double weight = scale[i] * scale[j];  // rounded once: all layers share its error
                    *entry++ = {source - tile.first_row, T(problem.copies[source] * weight), T(problem.copies[row] * weight)};
                }
                if (add_self_loops) *entry++ = {row - tile.first_row, T(scale[i] * scale[i]), T(scale[i] * scale[i])};
                end_[row] = entry - entries_.get();
            }
        }
    }

    void attach(Problem<T>& problem) const {
        problem.entries = entries_.get();
        problem.entry_begin = begin_.get();
        problem.entry_end = end_.get();
    }

private:
    std::unique_ptr<int64_t[]> begin_, end_;
    std::unique_ptr<Entry<T>[]> entries_;
};

}  // namespace molgcn
