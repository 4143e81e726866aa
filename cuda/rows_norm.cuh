// The end of a layer, four columns at a time: norm as an affine map of each column, relu and dropout, and their derivatives.
#pragma once
#include "rows.cuh"

// The norm as an affine map: mean and 1 / deviation of its input, and its weight and bias. Without a norm it is the identity.
struct Affine {
    Quad mean = {}, deviation = constant(real(1)), factor = constant(real(1)), bias = {};

    __device__ __forceinline__ Affine() {}
    __device__ __forceinline__ Affine(const Parameters& p, int quad) {
        if (p.weight == nullptr) return;
        const bool batch = p.moments != nullptr;
        const Quad spread = load_vector(p, batch ? p.moments + p.width : p.variance, quad);
        const auto deviation = [&](int e) { return batch ? spread.e[e] : real(1) / root(spread.e[e] + static_cast<real>(p.norm_eps)); };
        *this = Affine(load_vector(p, batch ? p.moments : p.mean, quad), each(deviation), load_vector(p, p.weight, quad), load_vector(p, p.bias, quad));
    }
    __device__ __forceinline__ Affine(const Quad& mean, const Quad& deviation, const Quad& weight, const Quad& bias)
        : mean(mean), deviation(deviation), factor(each([&](int e) { return deviation.e[e] * weight.e[e]; })), bias(bias) {}
    // Returns the norm's output. Forward and backward compute the same bits, so that they agree on what relu keeps.
    __device__ __forceinline__ Quad operator()(const Quad& x) const {
        return each([&](int e) { return multiply_add(x.e[e] - mean.e[e], factor.e[e], bias.e[e]); });
    }
    __device__ __forceinline__ Quad normal(const Quad& x) const {
        return each([&](int e) { return (x.e[e] - mean.e[e]) * deviation.e[e]; });
    }
};

// Applies relu and dropout, where wanted, to the norm's output.
__device__ __forceinline__ Quad activated(const Parameters& p, int row, int quad, Quad y) {
    if (p.relu) y = each([&](int e) { return y.e[e] < real(0) ? real(0) : y.e[e]; });
    if (p.dropout_site < 0) return y;
    const uint32 kept = drawn(p, row, quad, p.dropout_site);
    return each([&](int e) { return kept >> e & 1 ? y.e[e] * static_cast<real>(p.dropout_scale) : real(0); });
}
// Returns the gradient of the norm's output y, from that of the output of relu and dropout.
__device__ __forceinline__ Quad activated_grad(const Parameters& p, int row, int quad, const Quad& y, Quad grad) {
    if (p.relu) grad = each([&](int e) { return y.e[e] > real(0) ? grad.e[e] : real(0); });
    if (p.dropout_site < 0) return grad;
    const uint32 kept = drawn(p, row, quad, p.dropout_site);
    return each([&](int e) { return kept >> e & 1 ? grad.e[e] * static_cast<real>(p.dropout_scale) : real(0); });
}

// Ends four columns of a row and adds `residual`.
__device__ __forceinline__ void finish(const Parameters& p, const Affine& norm, int row, int quad, const Quad& x, const Quad& residual) {
    Quad y = activated(p, row, quad, p.weight == nullptr ? x : norm(x));
    add(y, residual);
    store(p, p.out, row, quad, y);
}

// The gradients of a norm's bias and weight in a column: the sums of the gradient g of its output, and of g times the normalised input.
struct NormSums {
    real bias = 0, weight = 0;
    __device__ __forceinline__ void add(real g, real normal) { bias += g, weight = multiply_add(g, normal, weight); }
    __device__ __forceinline__ void merge(const NormSums& x) { bias += x.bias, weight += x.weight; }
};

// Returns the gradient of a norm's input with the batch's statistics of `count` rows, from that of its output and those of its bias and weight.
__device__ __forceinline__ Quad through_statistics(const Affine& norm, const Quad& x, const Quad& g, const Quad& grad_bias, const Quad& grad_weight,
                                                   real count) {
    const Quad normal = norm.normal(x);
    return each([&](int e) { return norm.factor.e[e] * (g.e[e] - grad_bias.e[e] / count - normal.e[e] * (grad_weight.e[e] / count)); });
}
