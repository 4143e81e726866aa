// molgcn::layer_network on the CPU: a pass as instructions on tiles and plain arrays. Every instruction set's implementation shares these
// declarations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gcn_network.hpp"

namespace molgcn {

// The instructions of molgcn/ops/layer_network/instructions.py, which documents them. -1 stands for none.
enum class Op : int {
    load, store, gather, linear, finish, normalize, pool, moments,
    pool_grad, norm_sums, activation_grad, finish_grad, input_grad, product, gather_grad, bonds_grad, eps_grad, normalize_grad, table_grad,
    expand, expand_grad, expand_bonds_grad, sum_incoming, sum_incoming_grad, sum_non_backtracking, average_directions, add_grad,
    attend, attend_grad, gate, gate_grad, gate_source_grad,
};

enum class Aggregation : int { sum, mean, max, gcn, gcn_loops };

struct Instruction {
    Op op;
    int out, source, grad, bonds, result, add, mask;  // buffers
    int memory, dropped, weight, bias, norm, kind, table, activation, site;
    int target, second, third;  // buffers
    int attend;
};

struct Segment {
    int first, last;  // instructions
    int norm;         // the batch norm whose sums over all tiles are then complete, or -1
    int table;        // 1: tiles are rows of the table of distinct bonds
};

// Rows of one value, one for each atom or for each bond. `memory` is the number of rows outside that are used in place. It is -1 for rows in a
// tile's memory, which begin after `offset` columns of the same kind.
struct Buffer {
    int bonds, width, offset, memory;
};

// Rows in memory outside tiles: of atoms (0), of bonds (1), which may be a table of distinct ones, or of directed bonds (2).
struct Memory {
    int kind, width, stride;
    int output;  // 1: zeros where the batch is padding
};

struct NormOptions {
    int layer, weight, bias;  // 1: the norm of each row, else of the batch; numbers of parameters
    int batch_norm;           // number among the norms of the batch, or -1
    int of_edges;             // 1: its rows are directed bonds, else atoms
};

// A step that attends. The vectors are numbers of parameters.
struct AttendOptions {
    int heads, concat, att, att_target, att_bonds, dropout;
    int slope[2], rate[2];  // the bits of doubles
};

inline double double_of(const int (&bits)[2]) {
    double value;
    std::memcpy(&value, bits, sizeof value);
    return value;
}

struct Shape {
    int rows, columns;
};

// What is static about a pass.
struct LayerPass {
    int num_segments, num_buffers, num_memory, num_norms, num_parameters, num_tables, num_attends;
    int buffer_columns[2];  // of a tile's atoms and bonds
    int channels;           // of norms over the batch, and of each value that is pooled
    int backward, pool;     // 1: a backward pass; a Pool
    const Segment* segments;
    const Instruction* instructions;
    const Buffer* buffers;
    const Memory* memory;
    const NormOptions* norms;
    const Shape* parameters;
    const int* table_widths;  // of the gradients of tables
    const AttendOptions* attends;

    int num_instructions() const { return segments[num_segments - 1].last; }

    // Returns the number of values that are pooled, whose columns are side by side.
    int num_pooled() const {
        int last = 0;
        for (int i = 0; i < num_instructions(); i++) {
            if (instructions[i].op == Op::pool || instructions[i].op == Op::pool_grad) last = std::max(last, instructions[i].table);
        }
        return last + 1;
    }
};

// A pass on a batch. Counts are those of what is in use, without padding.
template <typename T>
struct LayerRun {
    LayerPass pass;
    int64_t num_graphs, num_nodes, num_edges, num_table_rows;
    Partition partition;
    int num_threads, max_bonds;  // the latter in one tile
    const int32_t *ptr, *rowptr, *col, *code;
    const int32_t* reverse;  // [E] position of each bond's reverse, or null where no step has rows of directed bonds
    const double* scale;  // [N] (bonds at each atom)^-1/2, 0 without bonds, or null where no gather is normalised
    T* const* memory;     // of each of pass.memory
    const T* const* parameters;
    T* const* grad_parameters;
    T* pooled;   // [B, pooled_stride], or its gradient
    int pooled_stride;
    T* moments;  // mean and 1 / deviation [2, H] of each norm over the batch, or null where running statistics take their place
    const T *const *running_means, *const *running_vars;
    T *const *new_means, *const *new_vars;
    double dropout, eps, momentum;
    uint64_t seed;
};

template <typename T>
using LayerKernel = void (*)(const LayerRun<T>&);

}  // namespace molgcn
