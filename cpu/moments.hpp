// Mean and squared deviations of a batch's columns, added up without loss of accuracy.
#pragma once

#include <cmath>

#include "simd.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// The moments of some rows: how many they are, and the mean and the sum of squared deviations of each column.
struct Moments {
    double count;
    double *mean, *squares;

    // Merges by the method of Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
    void merge(const Moments& other, int channels) {
        if (other.count == 0) return;
        const double total = count + other.count, share = other.count / total;
        for (int c = 0; c < channels; c++) {
            const double delta = other.mean[c] - mean[c];
            mean[c] += delta * share;
            squares[c] += other.squares[c] + delta * delta * count * share;
        }
        count = total;
    }
};

// Merges the moments of all chunks in order into the first, and returns it.
inline const Moments& merged(Moments* moments, int num_chunks, int channels) {
    for (int chunk = 1; chunk < num_chunks; chunk++) moments[0].merge(moments[chunk], channels);
    return moments[0];
}

// Stores what batch norm keeps of a batch, column by column: its mean and 1 / deviation, and the running statistics, from the present ones.
// These stay as they are where there are no rows.
template <typename T>
struct NormStatistics {
    T *mean, *rstd;
    const T *running_mean, *running_var;
    T *new_mean, *new_var;
};

template <typename T>
void write_statistics(const Moments& sum, int channels, double eps, double momentum, const NormStatistics<T>& out) {
    momentum = sum.count > 0 ? momentum : 0;
    for (int c = 0; c < channels; c++) {
        const double variance = sum.count > 0 ? sum.squares[c] / sum.count : 0, unbiased = sum.squares[c] / (sum.count > 1 ? sum.count - 1 : 1);
        out.mean[c] = T(sum.mean[c]);
        out.rstd[c] = T(1 / std::sqrt(variance + eps));
        out.new_mean[c] = T((1 - momentum) * out.running_mean[c] + momentum * sum.mean[c]);
        out.new_var[c] = T((1 - momentum) * out.running_var[c] + momentum * unbiased);
    }
}

// Collects the moments of a chunk's tiles: the sums of a tile in T, of deviations from its own mean, and all others in double precision.
// Around another centre rows that are nearly equal, as those of a large molecule may be, would cancel.
template <typename T>
class Deviations {
public:
    // `memory` holds 2 * stride numbers.
    Deviations(double* memory, int stride) : stride_(stride), mean_(memory), squares_(memory + stride) {
        for (int i = 0; i < 2 * stride; i++) memory[i] = 0;
    }

    // Adds the rows of z [rows, stride], each of them `copies` times.
    void add(const T* z, const T* copies, int rows) {
        T count = 0;
        for (int i = 0; i < rows; i++) count += copies[i];
        if (count == 0) return;
        int column = 0;
        for (; column + 4 * lanes<T> <= stride_; column += 4 * lanes<T>) add_columns<4>(z + column, copies, rows, count, column);
        for (; column < stride_; column += lanes<T>) add_columns<1>(z + column, copies, rows, count, column);
        count_ += count;
    }

    Moments moments() const { return {count_, mean_, squares_}; }

private:
    template <int P>
    void add_columns(const T* z, const T* copies, int rows, T count, int column) const {
        Vec<T> centre[P] = {}, sum[P] = {}, squares[P] = {};
        for (int i = 0; i < rows; i++) {
            for (int p = 0; p < P; p++) centre[p] += copies[i] * load(z + ptrdiff_t{i} * stride_ + p * lanes<T>);
        }
        for (int p = 0; p < P; p++) centre[p] *= 1 / count;
        for (int i = 0; i < rows; i++) {
            for (int p = 0; p < P; p++) {
                const Vec<T> delta = load(z + ptrdiff_t{i} * stride_ + p * lanes<T>) - centre[p], weighted = copies[i] * delta;
                sum[p] += weighted;
                squares[p] += weighted * delta;
            }
        }
        double mean[P * lanes<T>], left[P * lanes<T>];
        for (int p = 0; p < P; p++) {
            for (int i = 0; i < lanes<T>; i++) {
                const double more = double(sum[p][i]) / count;
                mean[p * lanes<T> + i] = centre[p][i] + more;
                left[p * lanes<T> + i] = squares[p][i] - more * sum[p][i];
            }
        }
        Moments{count_, mean_ + column, squares_ + column}.merge({count, mean, left}, P * lanes<T>);
    }

    int stride_;
    double count_ = 0;
    double *mean_, *squares_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
