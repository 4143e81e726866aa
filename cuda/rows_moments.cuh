// Mean and variance of a column over the atoms, without cancellation.
#pragma once
#include "rows.cuh"

struct Moments {
    real count = 0, mean = 0, squares = 0;  // sum of squared distances from the mean

    __device__ __forceinline__ void merge(const Moments& x) {
        if (x.count == real(0)) return;
        const real both = count + x.count, distance = x.mean - mean, share = x.count / both;
        squares += x.squares + distance * distance * count * share;
        mean = multiply_add(distance, share, mean);
        count = both;
    }
};

// Sums of four columns' distances from one of the rows, so that nothing much larger than the deviation cancels.
struct Distances {
    int count = 0;
    Quad origin, sum, squares;

    __device__ __forceinline__ void add(const Quad& x) {
        count++;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const real distance = x.e[e] - origin.e[e];
            sum.e[e] += distance, squares.e[e] = multiply_add(distance, distance, squares.e[e]);
        }
    }
    __device__ __forceinline__ Moments moments(int e) const {
        if (count == 0) return {};
        const real number = static_cast<real>(count), mean = sum.e[e] / number, rest = squares.e[e] - sum.e[e] * mean;
        return {number, origin.e[e] + mean, rest < real(0) ? real(0) : rest};
    }
};

__device__ __forceinline__ real inverse_deviation(const Parameters& p, const Moments& it) {
    return real(1) / root(it.squares / (it.count > real(0) ? it.count : real(1)) + static_cast<real>(p.norm_eps));
}

// A column's running statistics.
struct Running {
    real mean = 0, variance = 0;

    __device__ __forceinline__ Running() {}
    __device__ __forceinline__ Running(const Parameters& p, int column) : mean(p.mean[column]), variance(p.variance[column]) {}
};

// Stores a column's mean and 1 / deviation and updates its running statistics as torch does: the biased variance normalises, the running
// one is unbiased.
__device__ __forceinline__ void keep_moments(const Parameters& p, int column, const Moments& it, const Running& old) {
    const real momentum = static_cast<real>(p.momentum), unbiased = it.squares / (it.count > real(1) ? it.count - real(1) : real(1));
    p.new_moments[column] = it.mean;
    p.new_moments[p.width + column] = inverse_deviation(p, it);
    p.new_mean[column] = it.count > real(0) ? (real(1) - momentum) * old.mean + momentum * it.mean : old.mean;
    p.new_variance[column] = it.count > real(0) ? (real(1) - momentum) * old.variance + momentum * unbiased : old.variance;
}
