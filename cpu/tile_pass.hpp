// Runs a pass of a network: its instructions tile by tile, one segment of them after another.
#pragma once

#include <omp.h>

#include "moments.hpp"
#include "pooling.hpp"
#include "tile_attend.hpp"
#include "tile_edges.hpp"
#include "tile_finish.hpp"
#include "tile_gate.hpp"
#include "tile_gather.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

constexpr int table_rows = 64;  // of the table of distinct bonds in one tile

template <typename T>
class TilePass {
public:
    explicit TilePass(const LayerRun<T>& run)
        : run_(run),
          pass_(run.pass),
          stride_(row_stride<T>(pass_.channels)),
          parameters_(run),
          sums_(run),
          ones_(most_rows(run)),
          moments_(run.partition.num_chunks),
          columns_(2 * int64_t{run.partition.num_chunks} * stride_) {
        for (int i = 0; i < most_rows(run); i++) ones_[i] = T(1);
    }

    void operator()() const {
#pragma omp parallel num_threads(run_.num_threads)
        {
            const TileMemory<T> memory(pass_, run_.partition.max_rows, run_.max_bonds > table_rows ? run_.max_bonds : table_rows);
#pragma omp for schedule(static)
            for (int chunk = 0; chunk < sums_.num_chunks(); chunk++) sums_.clear(chunk);
            for (int s = 0; s < pass_.num_segments; s++) {
                const Segment& segment = pass_.segments[s];
                if (segment.table) {
                    if (s > 0) sums_.merge();
#pragma omp single
                    run_on_table(segment, memory);
                    continue;
                }
#pragma omp for schedule(dynamic, 1)
                for (int chunk = 0; chunk < run_.partition.num_chunks; chunk++) run_chunk(segment, chunk, memory);
                if (segment.norm >= 0) {
#pragma omp single
                    complete_norm(segment.norm);
                }
            }
            if (!pass_.segments[pass_.num_segments - 1].table) sums_.merge();
        }
        if (pass_.backward) sums_.write_gradients();
    }

private:
    // Returns the most rows of atoms or bonds of a tile.
    static int most_rows(const LayerRun<T>& run) { return run.partition.max_rows > run.max_bonds ? run.partition.max_rows : run.max_bonds; }

    void run_chunk(const Segment& segment, int chunk, const TileMemory<T>& memory) const {
        Deviations<T> deviations(columns_.data() + 2 * int64_t{chunk} * stride_, stride_);
        for (int number = run_.partition.chunk_ptr[chunk]; number < run_.partition.chunk_ptr[chunk + 1]; number++) {
            const Tile& tile = run_.partition.tiles[number];
            const int first_bond = run_.rowptr[tile.first_row], num_bonds = run_.rowptr[tile.first_row + tile.num_rows] - first_bond;
            const TileStep<T> t{run_, parameters_, sums_, memory, sums_.chunk(chunk), tile, first_bond, num_bonds};
            for (int i = segment.first; i < segment.last; i++) execute(t, pass_.instructions[i], deviations);
        }
        moments_[chunk] = deviations.moments();
    }

    void run_on_table(const Segment& segment, const TileMemory<T>& memory) const {
        const Tile none{};
        Deviations<T> deviations(columns_.data(), stride_);
        for (int64_t row = 0; row < run_.num_table_rows; row += table_rows) {
            const int rows = int(run_.num_table_rows - row < table_rows ? run_.num_table_rows - row : table_rows);
            const TileStep<T> t{run_, parameters_, sums_, memory, sums_.chunk(0), none, row, rows};
            for (int i = segment.first; i < segment.last; i++) execute(t, pass_.instructions[i], deviations);
        }
    }

    void execute(const TileStep<T>& t, const Instruction& step, Deviations<T>& deviations) const {
        switch (step.op) {
            case Op::load: return load_rows(t, step);
            case Op::store: return store_rows(t, step);
            case Op::gather: return gather_rows(t, step);
            case Op::linear: return linear_rows(t, step);
            case Op::finish: return finish_rows(t, step);
            case Op::normalize: return normalize_rows(t, step);
            case Op::pool: return pool(t, step);
            case Op::moments: return deviations.add(t.rows(step.source).data, ones_.data(), t.rows(step.source).count);
            case Op::pool_grad: return pool_gradient(t, step);
            case Op::norm_sums: return add_norm_sums(t, step);
            case Op::activation_grad: return activation_gradient(t, step);
            case Op::finish_grad: return finish_gradient(t, step);
            case Op::input_grad: return input_gradient(t, step);
            case Op::product: return add_product(t, step);
            case Op::gather_grad: return gather_gradient(t, step);
            case Op::bonds_grad: return bonds_gradient(t, step);
            case Op::eps_grad: return add_eps_gradient(t, step);
            case Op::normalize_grad: return normalize_gradient(t, step);
            case Op::table_grad: return table_gradient(t, step);
            case Op::expand: return expand_rows(t, step);
            case Op::expand_grad: return expand_gradient(t, step);
            case Op::expand_bonds_grad: return expand_bonds_gradient(t, step);
            case Op::sum_incoming: return sum_incoming_rows(t, step);
            case Op::sum_incoming_grad: return sum_incoming_gradient(t, step);
            case Op::sum_non_backtracking: return sum_non_backtracking(t, step);
            case Op::average_directions: return average_directions(t, step);
            case Op::add_grad: return add_gradient(t, step);
            case Op::attend: return attend_rows(t, step);
            case Op::attend_grad: return attend_gradient(t, step);
            case Op::gate: return gate_rows(t, step);
            case Op::gate_grad: return gate_gradient(t, step);
            case Op::gate_source_grad: return gate_source_gradient(t, step);
        }
    }

    Pooling pooling(const TileRows<T>& rows) const {
        return {Pool(pass_.pool), run_.ptr, run_.ptr, pass_.channels, rows.stride, run_.pooled_stride};
    }

    // Returns the first row of the result, from the columns of what a step pools on.
    T* pooled(const Instruction& step) const { return run_.pooled + step.table * pass_.channels; }

    // Returns an atom's row in the result where molecules are not pooled.
    T* unpooled(const TileStep<T>& t, const Instruction& step, int row) const {
        return pooled(step) + (int64_t{t.tile.first_row} + row) * run_.pooled_stride;
    }

    void pool(const TileStep<T>& t, const Instruction& step) const {
        const TileRows<T> source = t.rows(step.source);
        if (Pool(pass_.pool) != Pool::none) return pool_forward(pooling(source), t.tile, ones_.data(), source.data, pooled(step));
        for (int i = 0; i < source.count; i++) std::memcpy(unpooled(t, step, i), source[i], pass_.channels * sizeof(T));
    }

    void pool_gradient(const TileStep<T>& t, const Instruction& step) const {
        const TileRows<T> out = t.rows(step.out), source = t.rows(step.source);
        zero(out.data, out.count * out.stride);
        if (Pool(pass_.pool) == Pool::none)
            for (int i = 0; i < out.count; i++) std::memcpy(out[i], unpooled(t, step, i), pass_.channels * sizeof(T));
        else
            pool_backward<T>(pooling(out), t.tile, ones_.data(), pooled(step), source.data, out.data);
        end_gradient(t, step, false);
    }

    // Completes a batch norm from the sums of all chunks: its statistics or, in a backward pass, what the gradient of its input takes from
    // all rows.
    void complete_norm(int number) const {
        const NormOptions& options = pass_.norms[number];
        const int channels = pass_.channels, index = options.batch_norm;
        if (!pass_.backward) {
            const Moments& sum = merged(moments_.data(), run_.partition.num_chunks, channels);
            T *mean = run_.moments + 2 * int64_t{channels} * index, *rstd = mean + channels;
            write_statistics<T>(sum, channels, run_.eps, run_.momentum,
                                {mean, rstd, run_.running_means[index], run_.running_vars[index], run_.new_means[index], run_.new_vars[index]});
            return parameters_.set_statistics(number, mean, rstd);
        }
        const Norm<T>& norm = parameters_.norm(number);
        const int64_t num_rows = options.of_edges ? run_.num_edges : run_.num_nodes;
        for (int c = 0; c < channels; c++) {
            double beta = 0, gamma = 0;
            for (int chunk = 0; chunk < run_.partition.num_chunks; chunk++) {
                beta += sums_.parameter(sums_.chunk(chunk), options.bias)[c];
                gamma += sums_.parameter(sums_.chunk(chunk), options.weight)[c];
            }
            norm.mean_grad[c] = T(beta / num_rows);
            norm.mean_weighted[c] = T(gamma / num_rows);
        }
    }

    const LayerRun<T>& run_;
    const LayerPass& pass_;
    const int stride_;
    const LayerParameters<T> parameters_;
    const PartialSums<T> sums_;
    const Array<T> ones_;
    const Array<Moments> moments_;
    const Array<double> columns_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
