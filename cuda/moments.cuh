// Moments of columns over all rows, in parts and without cancellation: sums of distances from some value near the mean. All kernels take
// the formulas from here. They differ in who has which rows, and in how parts reach each other.
#pragma once
#include "real.cuh"

// Adds the moments of `count` rows to sums of distances from `origin` and of their squares. `more`: the squared distances from `mean`.
__device__ __forceinline__ void add_moments(real& sum, real& squares, real origin, real mean, real more, real count) {
    const real distance = mean - origin;
    sum = multiply_add(count, distance, sum), squares += multiply_add(count * distance, distance, more);
}

template <class Sum>
struct MomentsOf {
    Sum mean, squares;  // sum of squared distances from the mean
};
using Moments = MomentsOf<real>;

// Returns the moments of `count` rows from such sums.
template <class Sum>
__device__ __forceinline__ MomentsOf<Sum> moments_of(Sum sum, Sum squares, Sum count, Sum origin) {
    const Sum distance = sum / (count > Sum(0) ? count : Sum(1)), rest = squares - sum * distance;
    return {origin + distance, rest < Sum(0) ? Sum(0) : rest};
}

// A column's sums. They take one pass over the rows.
struct Distances {
    real origin = 0, sum = 0, squares = 0;

    __device__ __forceinline__ void add(real x) { sum += x - origin, squares = multiply_add(x - origin, x - origin, squares); }
    __device__ __forceinline__ void add(real mean, real more, real count) { add_moments(sum, squares, origin, mean, more, count); }
    __device__ __forceinline__ Moments moments(int count) const { return moments_of(sum, squares, static_cast<real>(count), origin); }
};

// Running statistics after a batch, as torch updates them: they stay where there are no rows, and the variance is unbiased.
struct Running {
    real mean, variance;

    __device__ __forceinline__ Running after(const Moments& batch, real count, real momentum) const {
        if (!(count > real(0))) return *this;
        const real unbiased = batch.squares / (count > real(1) ? count - real(1) : real(1));
        return {(real(1) - momentum) * mean + momentum * batch.mean, (real(1) - momentum) * variance + momentum * unbiased};
    }
};

__device__ __forceinline__ int parts_of(int count, int each) { return (count + each - 1) / each; }
__device__ __forceinline__ int part_size(int count, int each, int i) { return min(each, count - i * each); }
