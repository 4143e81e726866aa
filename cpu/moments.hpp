// Mean and squared deviations of a batch's columns, merged without loss of accuracy.
#pragma once

#include "simd.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Of some rows: how many, and each column's mean and sum of squared deviations.
struct Moments {
    double count;
    double *mean, *squares;

    // Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
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

// Adds the rows of z [rows, stride], each as often as `copies` says. Two passes over a tile, the second around the first's mean, whose own
// rounding is taken out again (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983, equation 1.7).
template <typename T>
void add_moments(const T* z, const T* copies, int rows, int stride, Moments& moments) {
    T count = 0;
    for (int i = 0; i < rows; i++) count += copies[i];
    if (count == 0) return;
    for (int column = 0; column < stride; column += lanes<T>) {
        Vec<T> total{}, rest{}, squares{};
        for (int i = 0; i < rows; i++) total += copies[i] * load(z + ptrdiff_t{i} * stride + column);
        const Vec<T> centre = total / count;
        for (int i = 0; i < rows; i++) {
            const Vec<T> delta = load(z + ptrdiff_t{i} * stride + column) - centre, weighted = copies[i] * delta;
            rest += weighted;
            squares += weighted * delta;
        }
        double mean[lanes<T>], deviations[lanes<T>];
        for (int i = 0; i < lanes<T>; i++) {
            const double offset = double(rest[i]) / count;
            mean[i] = centre[i] + offset;
            deviations[i] = squares[i] - offset * rest[i];
        }
        Moments columns{moments.count, moments.mean + column, moments.squares + column};
        columns.merge({double(count), mean, deviations}, lanes<T>);
    }
    moments.count += count;
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
