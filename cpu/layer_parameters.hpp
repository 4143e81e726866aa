// A pass's parameters in the form in which its products and norms read them, and the sums of their gradients over chunks of tiles.
#pragma once

#include <cmath>
#include <memory>
#include <utility>

#include "layer_network.hpp"
#include "panels.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// A norm's parameters, and the mean and 1 / deviation of the batch or of running statistics, where it has them. All are padded to whole
// vectors with zeros.
template <typename T>
struct Norm {
    bool layer;
    const T *gamma, *beta;
    T *mean, *rstd, *scale;       // scale: gamma * rstd
    T *mean_grad, *mean_weighted;  // means over the batch of the output's gradient, and of it times the normalised input
};

// Returns the width of the widest rows of a pass, padded.
template <typename T>
int widest(const LayerPass& pass) {
    int width = 0;
    for (int i = 0; i < pass.num_buffers; i++) width = pass.buffers[i].width > width ? pass.buffers[i].width : width;
    return int(row_stride<T>(width));
}

template <typename T>
class LayerParameters {
public:
    explicit LayerParameters(const LayerRun<T>& run)
        : run_(run),
          stride_(row_stride<T>(run.pass.channels)),
          vectors_(new std::unique_ptr<Array<T>>[run.pass.num_parameters]),
          transposed_(new std::unique_ptr<Panels<T>>[run.pass.num_parameters]),
          panels_(new std::unique_ptr<Panels<T>>[run.pass.num_parameters]),
          norms_(new Norm<T>[run.pass.num_norms]),
          zeros_(widest<T>(run.pass)),
          statistics_(5 * int64_t{stride_} * run.pass.num_norms) {
        // A weight is prepared once, however many instructions read it: threads must not do so at the same time.
        const std::unique_ptr<bool[]> is_transposed(new bool[run.pass.num_parameters]()), is_read(new bool[run.pass.num_parameters]());
        for (int i = 0; i < run.pass.num_instructions(); i++) {
            const Instruction& step = run.pass.instructions[i];
            if (step.op == Op::linear) is_transposed[step.weight] = true;
            if (step.op == Op::input_grad) is_read[step.weight] = true;
        }
#pragma omp parallel for num_threads(run.num_threads) schedule(dynamic, 1)
        for (int p = 0; p < run.pass.num_parameters; p++) {
            const T* weight = run.parameters[p];
            const Shape shape = run.pass.parameters[p];
            if (is_transposed[p]) transposed_[p].reset(new Panels<T>(weight, shape.columns, shape.rows, 1, shape.columns));
            if (is_read[p]) panels_[p].reset(new Panels<T>(weight, shape.rows, shape.columns, shape.columns, 1));
        }
        for (int p = 0; p < run.pass.num_parameters; p++) {
            if (run.pass.parameters[p].rows == 1) make_vector(p);
        }
        zero(zeros_.data(), widest<T>(run.pass));
        zero(statistics_.data(), 5 * int64_t{stride_} * run.pass.num_norms);
        for (int n = 0; n < run.pass.num_norms; n++) make_norm(n);
    }

    // Returns a vector, padded; zeros where there is none.
    const T* vector(int parameter) const { return parameter < 0 ? zeros_.data() : vectors_[parameter]->data(); }
    T scalar(int parameter) const { return run_.parameters[parameter][0]; }
    const Panels<T>& transposed(int parameter) const { return *transposed_[parameter]; }
    const Panels<T>& matrix(int parameter) const { return *panels_[parameter]; }
    const Norm<T>& norm(int number) const { return norms_[number]; }

    void set_statistics(int norm, const T* mean, const T* rstd) const {
        const Norm<T>& n = norms_[norm];
        for (int c = 0; c < run_.pass.channels; c++) {
            n.mean[c] = mean[c];
            n.rstd[c] = rstd[c];
            n.scale[c] = n.gamma[c] * rstd[c];
        }
    }

private:
    void make_vector(int parameter) const {
        const int columns = run_.pass.parameters[parameter].columns, padded = row_stride<T>(columns);
        vectors_[parameter].reset(new Array<T>(padded));
        zero(vectors_[parameter]->data(), padded);
        std::memcpy(vectors_[parameter]->data(), run_.parameters[parameter], columns * sizeof(T));
    }

    void make_norm(int number) const {
        const NormOptions& options = run_.pass.norms[number];
        T* memory = statistics_.data() + 5 * int64_t{stride_} * number;
        norms_[number] = {options.layer != 0, vector(options.weight), vector(options.bias), memory, memory + stride_, memory + 2 * stride_,
                          memory + 3 * stride_, memory + 4 * stride_};
        if (options.layer) return;
        const int channels = run_.pass.channels;
        if (run_.moments == nullptr) {
            const Array<T> rstd(channels);
            for (int c = 0; c < channels; c++) rstd[c] = T(1) / std::sqrt(run_.running_vars[options.batch_norm][c] + T(run_.eps));
            set_statistics(number, run_.running_means[options.batch_norm], rstd.data());
        } else if (run_.pass.backward) {
            const T* moments = run_.moments + 2 * int64_t{channels} * options.batch_norm;
            set_statistics(number, moments, moments + channels);
        }
    }

    const LayerRun<T>& run_;
    int stride_;
    std::unique_ptr<std::unique_ptr<Array<T>>[]> vectors_;
    std::unique_ptr<std::unique_ptr<Panels<T>>[]> transposed_, panels_;
    std::unique_ptr<Norm<T>[]> norms_;
    Array<T> zeros_, statistics_;
};

// The gradients of all parameters and tables of a chunk: one flat array for each chunk, rows padded to whole vectors.
template <typename T>
class PartialSums {
public:
    explicit PartialSums(const LayerRun<T>& run)
        : run_(run), offsets_(new int64_t[run.pass.num_parameters + run.pass.num_tables + 1]), size_(lay_out(run, offsets_.get())),
          data_(size_ * num_chunks()), written_(int64_t{run.pass.num_parameters} * num_chunks()) {}

    T* chunk(int chunk) const { return data_.data() + size_ * chunk; }
    // Zeroes vectors and tables. Matrices, which are larger, wait for what is written first.
    void clear(int number) const {
        for (int p = 0; p < run_.pass.num_parameters; p++) {
            bool& written = written_[int64_t{number} * run_.pass.num_parameters + p];
            written = run_.pass.parameters[p].rows == 1;
            if (written) zero(chunk(number) + offsets_[p], offsets_[p + 1] - offsets_[p]);
        }
        const int64_t first = offsets_[run_.pass.num_parameters];
        zero(chunk(number) + first, size_ - first);
    }
    // Returns whether a chunk has nothing yet of a matrix, which then counts as written.
    bool is_first(const T* chunk, int parameter) const {
        bool& written = written_[(chunk - data_.data()) / size_ * run_.pass.num_parameters + parameter];
        return !std::exchange(written, true);
    }
    T* parameter(T* chunk, int number) const { return chunk + offsets_[number]; }
    T* table(T* chunk, int number) const { return chunk + offsets_[run_.pass.num_parameters + number]; }
    int num_chunks() const { return run_.pass.backward ? run_.partition.num_chunks : 0; }

    // Adds the chunks in order to the first one. All threads of a region must call it.
    void merge() const {
        constexpr int64_t slice = 1024;
#pragma omp for schedule(static)
        for (int number = 0; number < num_chunks(); number++) {
            for (int p = 0; p < run_.pass.num_parameters; p++)
                if (is_first(chunk(number), p)) zero(chunk(number) + offsets_[p], offsets_[p + 1] - offsets_[p]);
        }
#pragma omp for schedule(static)
        for (int64_t first = 0; first < size_; first += slice) {
            const int64_t last = first + slice < size_ ? first + slice : size_;
            for (int number = 1; number < num_chunks(); number++) {
                const T* next = chunk(number);
                for (int64_t i = first; i < last; i++) data_[i] += next[i];
            }
        }
    }

    void write_gradients() const {
        for (int p = 0; p < run_.pass.num_parameters; p++) {
            const Shape shape = run_.pass.parameters[p];
            const T* from = parameter(data_.data(), p);
            T* to = run_.grad_parameters[p];
            for (int row = 0; row < shape.rows; row++, from += row_stride<T>(shape.columns), to += shape.columns) {
                std::memcpy(to, from, shape.columns * sizeof(T));
            }
        }
    }

private:
    static int64_t lay_out(const LayerRun<T>& run, int64_t* offsets) {
        int64_t size = 0;
        for (int p = 0; p < run.pass.num_parameters; p++) {
            offsets[p] = size;
            size += int64_t{run.pass.parameters[p].rows} * row_stride<T>(run.pass.parameters[p].columns);
        }
        for (int t = 0; t < run.pass.num_tables; t++) {
            offsets[run.pass.num_parameters + t] = size;
            size += run.num_table_rows * row_stride<T>(run.pass.table_widths[t]);
        }
        offsets[run.pass.num_parameters + run.pass.num_tables] = size;
        return size;
    }

    const LayerRun<T>& run_;
    std::unique_ptr<int64_t[]> offsets_;
    int64_t size_;
    Array<T> data_;
    Array<bool> written_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
