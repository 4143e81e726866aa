// Mean and squared deviations of a batch's columns, merged without loss of accuracy.
#pragma once

#include <cstdint>

namespace molgcn {
namespace MOLGCN_ISA {

struct Moments {
    double count, mean, squares;

    // Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
    void merge(const Moments& other) {
        if (other.count == 0) return;
        const double total = count + other.count, delta = other.mean - mean;
        mean += delta * other.count / total;
        squares += other.squares + delta * delta * count * other.count / total;
        count = total;
    }
};

// Adds the rows of z [rows, stride], each as often as `copies` says, to the columns' moments.
template <typename T>
void add_moments(const T* z, const T* copies, int rows, int channels, int stride, Moments* moments) {
    if (rows == 0) return;
    for (int c = 0; c < channels; c++) {
        double count = 0, total = 0, squares = 0;
        for (int i = 0; i < rows; i++) {
            count += copies[i];
            total += double(copies[i]) * z[int64_t{i} * stride + c];
        }
        const double mean = total / count;
        for (int i = 0; i < rows; i++) {
            const double delta = z[int64_t{i} * stride + c] - mean;
            squares += copies[i] * delta * delta;
        }
        moments[c].merge({count, mean, squares});
    }
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
