// One tile of a pass: its molecules' atoms and bonds, or a part of the table of distinct bonds, and the rows in its memory.
#pragma once

#include "equal_rows.hpp"
#include "layer_parameters.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
class TileMemory {
public:
    // Reserves room for tiles of at most max_atoms and max_bonds. Products read up to slack_rows more.
    TileMemory(const LayerPass& pass, int max_atoms, int max_bonds)
        : pass_(pass), max_rows_{max_atoms, max_bonds}, size_(int64_t{pass.buffer_columns[0]} * max_atoms + int64_t{pass.buffer_columns[1]} * max_bonds),
          data_(size_ + slack(pass)), equal_(std::max(max_atoms, max_bonds), widest<T>(pass)) {
        zero(data_.data(), size_ + slack(pass));
    }

    const EqualRows<T>& equal() const { return equal_; }

    T* at(const Buffer& buffer) const {
        const int64_t before = buffer.bonds ? int64_t{pass_.buffer_columns[0]} * max_rows_[0] : 0;
        return data_.data() + before + int64_t{buffer.offset} * max_rows_[buffer.bonds];
    }

private:
    static int64_t slack(const LayerPass& pass) {
        const int widest = pass.buffer_columns[0] > pass.buffer_columns[1] ? pass.buffer_columns[0] : pass.buffer_columns[1];
        return int64_t{slack_rows} * widest;
    }

    const LayerPass& pass_;
    int max_rows_[2];
    int64_t size_;
    Array<T> data_;
    EqualRows<T> equal_;
};

template <typename T>
struct TileStep {
    const LayerRun<T>& run;
    const LayerParameters<T>& parameters;
    const PartialSums<T>& sums;
    const TileMemory<T>& memory;
    T* partial;         // the chunk's part of `sums`
    const Tile& tile;   // molecules and atoms
    int64_t first_bond;  // in the batch, or row of the table
    int num_bonds;

    TileRows<T> rows(int number) const {
        if (number < 0) return {nullptr, 0, 0, 0};
        const Buffer& buffer = run.pass.buffers[number];
        T* data = buffer.memory < 0 ? memory.at(buffer) : outside(buffer.memory);
        return {data, row_stride<T>(buffer.width), buffer.width, buffer.bonds ? num_bonds : tile.num_rows};
    }

    // Returns the number of the first of these rows in the batch.
    int64_t first_row(int number) const { return run.pass.buffers[number].bonds ? first_bond : int64_t{tile.first_row}; }

    // Returns the rows in memory outside the tile, from the tile's first row on.
    T* outside(int number) const {
        const Memory& m = run.pass.memory[number];
        return run.memory[number] + (m.kind > 0 ? first_bond : int64_t{tile.first_row}) * m.stride;
    }
};

template <typename T>
void load_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> out = t.rows(step.out);
    const T* from = t.outside(step.memory);
    for (int i = 0; i < out.count; i++, from += t.run.pass.memory[step.memory].stride) {
        std::memcpy(out[i], from, out.width * sizeof(T));
        zero(out[i] + out.width, out.stride - out.width);
    }
}

template <typename T>
void store_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source);
    const int stride = t.run.pass.memory[step.memory].stride;
    T* to = t.outside(step.memory);
    for (int i = 0; i < source.count; i++, to += stride) std::memcpy(to, source[i], (stride < source.stride ? stride : source.stride) * sizeof(T));
}

// Ends a gradient: adds that of the later steps and multiplies by the derivative of relu and dropout, which is 0 where the value is 0.
template <typename T>
void end_gradient(const TileStep<T>& t, const Instruction& step, bool added) {
    const TileRows<T> out = t.rows(step.out), add = t.rows(added ? -1 : step.add), mask = t.rows(step.mask);
    if (!add && !mask) return;
    const T scale = step.dropped ? T(1 / (1 - t.run.dropout)) : T(1);
    const int64_t size = out.count * out.stride;
    for (int64_t at = 0; at < size; at += lanes<T>) {
        Vec<T> v = load(out.data + at);
        if (add) v += load(add.data + at);
        if (mask) v = where_positive<T>(load(mask.data + at), v * scale);
        store(out.data + at, v);
    }
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
