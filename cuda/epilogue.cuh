// What follows the linear part of a layer, number by number: norm, activation and dropout, and their derivatives. All kernels take the
// formulas from here. They differ in which numbers a thread has, and in when a norm's moments are known.
#pragma once
#include "real.cuh"

// The numbers of molgcn.ops.layer_network.steps.ACTIVATIONS.
#define ACTIVATION_NONE 0
#define ACTIVATION_RELU 1
#define ACTIVATION_GELU 2
#define ACTIVATION_SILU 3
#define ACTIVATION_LEAKY_RELU 4
#define ACTIVATION_ELU 5
#define ACTIVATION_TANH 6

// Returns the gradient of a norm's input. `normal` is the normalised input, `mean_g` and `mean_gx` are the means of g and g * normal over the
// row or the column that was normalised.
__device__ __forceinline__ real through_norm(real factor, real g, real normal, real mean_g, real mean_gx) {
    return factor * (g - mean_g - normal * mean_gx);
}

// A column of a norm as an affine map. Forward and backward compute the same bits, so that they agree on what relu keeps.
struct Column {
    real mean, deviation, factor, bias;  // deviation: 1 / deviation; factor: times weight

    __device__ __forceinline__ real operator()(real x) const { return multiply_add(x - mean, factor, bias); }
    __device__ __forceinline__ real normal(real x) const { return (x - mean) * deviation; }
    // Returns the gradient of the input with the batch's statistics, from that of the output and the means of the sums in `NormSums`.
    __device__ __forceinline__ real through_statistics(real x, real g, real mean_g, real mean_gx) const {
        return through_norm(factor, g, normal(x), mean_g, mean_gx);
    }
};

__device__ __forceinline__ real phi(real x) { return real(0.5) * (real(1) + static_cast<real>(erf(x * real(0.70710678118654752440)))); }
__device__ __forceinline__ real sigmoid(real x) { return reciprocal(real(1) + static_cast<real>(exp(-x))); }

__device__ __forceinline__ real activated(int activation, real x) {
    switch (activation) {
        case ACTIVATION_RELU: return relu(x);
        case ACTIVATION_GELU: return x * phi(x);
        case ACTIVATION_SILU: return x * sigmoid(x);
        case ACTIVATION_LEAKY_RELU: return x > real(0) ? x : x * real(0.01);
        case ACTIVATION_ELU: return x > real(0) ? x : static_cast<real>(expm1(x));
        case ACTIVATION_TANH: return static_cast<real>(tanh(x));
        default: return x;
    }
}
// Returns the gradient of an activation's input x, from that of its output.
__device__ __forceinline__ real through_activation(int activation, real x, real g) {
    switch (activation) {
        case ACTIVATION_RELU: return x > real(0) ? g : real(0);
        case ACTIVATION_GELU: return g * multiply_add(x * real(0.39894228040143267794), static_cast<real>(exp(real(-0.5) * x * x)), phi(x));
        case ACTIVATION_SILU: return g * sigmoid(x) * (real(1) + x * (real(1) - sigmoid(x)));
        case ACTIVATION_LEAKY_RELU: return x > real(0) ? g : g * real(0.01);
        case ACTIVATION_ELU: return x > real(0) ? g : g * static_cast<real>(exp(x));
        case ACTIVATION_TANH: return g * (real(1) - static_cast<real>(tanh(x)) * static_cast<real>(tanh(x)));
        default: return g;
    }
}

// Returns the gradient of relu's input from that of dropout's output. `kept`: whether relu and dropout keep the number.
__device__ __forceinline__ real through_relu(bool kept, real g, real scale) { return kept ? g * scale : real(0); }

// Returns a number after dropout, or the gradient of its input. NaN stays NaN, as in torch.
__device__ __forceinline__ real dropped(bool kept, real x, real scale) { return x * (kept ? scale : real(0)); }
