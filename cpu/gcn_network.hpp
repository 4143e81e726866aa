// Networks of graph convolutions alone on the CPU: the problem as plain arrays. Every instruction set's implementation shares these declarations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace molgcn {

enum class Pool : int { mean, sum, max, none };  // none: of layer_network alone
enum class Norm : int { none, batch, layer };

// Consecutive whole molecules that are computed together, in one core's cache.
struct Tile {
    int first_graph, last_graph, first_row, num_rows;
};

// Tiles in order, in chunks of about equal work: chunk i holds tiles chunk_ptr[i] .. chunk_ptr[i + 1]. Neither depends on the number of
// threads, so that sums over chunks in order give the same bits for any number of threads.
struct Partition {
    const Tile* tiles;
    const int* chunk_ptr;
    int num_tiles, num_chunks, max_rows, max_graphs;  // max_rows, max_graphs: the most in one tile
};

// An entry of the normalised adjacency between rows: the source's row in the tile, its weight, and the weight in the transposed matrix.
template <typename T>
struct Entry {
    int32_t source;
    T weight, transposed;
};

template <typename T>
struct Problem {
    int64_t num_graphs, num_nodes, num_rows;
    int in_channels, hidden_channels, num_layers, num_norms, num_threads;
    const T* x;
    const int32_t* ptr;
    const T* const* weights;
    const T* const* biases;
    const T* const* norm_weights;
    const T* const* norm_biases;
    const T* const* running_means;
    const T* const* running_vars;
    Pool pool;
    Norm norm;
    bool residual, last_activation, training;
    double dropout, eps, momentum;
    uint64_t seed;

    Partition partition;
    const int32_t* row_ptr;   // [B + 1], first row of each molecule
    const int32_t* row_atom;  // [num_rows], the first atom of each row; see leaf_rows.hpp
    const int32_t* atom_row;  // [N], the row of each atom
    const T* copies;          // [num_rows], atoms of each row
    const Entry<T>* entries;  // those of row i lie at entry_begin[i] .. entry_end[i]
    const int64_t* entry_begin;
    const int64_t* entry_end;

    // What forward keeps for backward with batch norm in training, else null. First come K planes [num_rows, stride] of inputs of the
    // norms. With residual, K planes of the activated layers' outputs follow. Last are [K, stride] means and [K, stride] reciprocal
    // standard deviations.
    T* saved;

    bool activated(int layer) const { return last_activation || layer < num_layers - 1; }
    bool normed(int layer) const { return norm != Norm::none && activated(layer); }
    bool adds_input(int layer) const { return residual && (layer > 0 || in_channels == hidden_channels); }
    bool batch_statistics() const { return norm == Norm::batch && training; }
    double dropout_rate() const { return training ? dropout : 0.0; }
};

template <typename T>
struct ForwardOutputs {
    T* pooled;  // [B, H]
    T *const *running_means, *const *running_vars;  // updated statistics, K of [H], batch norm in training; may be the present arrays
};

template <typename T>
struct Gradients {
    const T* pooled;  // [B, H], given
    T* x;             // [N, F] or null
    T *first_weight, *weights;     // [H, F], and the other layers' [L - 1, H, H]
    T* biases;                     // [L, H]
    T *norm_weights, *norm_biases;  // [K, H]
};

// Rows of features start on cache lines, whatever the vector width, and have as many columns in float32 and float64.
template <typename T>
constexpr int row_stride(int channels) {
    constexpr int line = 16;
    return (channels + line - 1) / line * line;
}

// The kernels of one instruction set.
template <typename T>
struct Kernels {
    void (*forward)(const Problem<T>&, const ForwardOutputs<T>&);
    void (*backward)(const Problem<T>&, const Gradients<T>&);
};

}  // namespace molgcn
