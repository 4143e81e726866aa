// The end of a layer, four columns at a time: norm, activation and dropout, and their derivatives.
//
// Macros of the pass: DROPOUT, OTHERS (whether the network has activations besides relu).
#pragma once
#include "rows.cuh"

// Four columns of a norm in shared memory, or without a norm the identity.
struct Norm {
    Columns from;
    int first = 0;
    bool is_there = false;

    __device__ __forceinline__ Norm() {}
    __device__ __forceinline__ Norm(const Columns& from, int first) : from(from), first(first), is_there(true) {}
    __device__ __forceinline__ Quad operator()(const Quad& x) const {
        if (!is_there) return x;
        const Quad mean = number(0), factor = number(2), bias = number(3);
        return each([&](int e) { return Column{mean.e[e], real(0), factor.e[e], bias.e[e]}(x.e[e]); });
    }
    __device__ __forceinline__ Quad normal(const Quad& x) const {
        const Quad mean = number(0), deviation = number(1);
        return each([&](int e) { return Column{mean.e[e], deviation.e[e]}.normal(x.e[e]); });
    }
    // Returns the gradient of the input from that of the output. Without the batch's statistics it does not depend on other rows.
    __device__ __forceinline__ Quad grad(const Quad& x, const Quad& g, bool batch) const {
        if (!is_there) return g;
        const Quad mean = number(0), deviation = number(1), factor = number(2), mean_g = batch ? number(4) : Quad(), mean_gx = batch ? number(5) : Quad();
        return each([&](int e) { return Column{mean.e[e], deviation.e[e], factor.e[e]}.through_statistics(x.e[e], g.e[e], mean_g.e[e], mean_gx.e[e]); });
    }

private:
    __device__ __forceinline__ Quad number(int i) const { return load(from.at + i * from.count + first); }
};

__device__ __forceinline__ Quad dropped(const Parameters& p, const LayerEnd& it, int row, int quad, const Quad& y) {
    if (!DROPOUT || it.dropout_site < 0) return y;
    const uint32 kept = drawn(p, row, quad, it.dropout_site);
    return each([&](int e) { return dropped(kept >> e & 1, y.e[e], static_cast<real>(p.dropout_scale)); });
}
// Applies activation and dropout, where wanted, to the norm's output.
__device__ __forceinline__ Quad activated(const Parameters& p, const LayerEnd& it, int row, int quad, Quad y) {
    if (it.activation) y = each([&](int e) { return activated(OTHERS ? it.activation : ACTIVATION_RELU, y.e[e]); });
    return dropped(p, it, row, quad, y);
}
// Four columns of a row of `p.source`, and of `p.add` if there is one.
struct Source {
    Quad x, residual;

    __device__ __forceinline__ Source() {}
    __device__ __forceinline__ Source(const Parameters& p, int row, int quad)
        : x(load(p.source + offset_of(p, row, quad))), residual(load_if(p, p.add, row, quad)) {}
    // Returns the columns after `p.end`, with what is added.
    __device__ __forceinline__ Quad ended(const Parameters& p, const Norm& norm, int row, int quad) const {
        Quad y = activated(p, p.end, row, quad, norm(x));
        add(y, residual);
        return y;
    }
};
// Loads four columns of a row of `p.source`, and with `ends` takes them through `p.end`.
template <bool ends>
__device__ __forceinline__ Quad load_source(const Parameters& p, const Norm& norm, int row, int quad) {
    return ends ? Source(p, row, quad).ended(p, norm, row, quad) : load(p.source + offset_of(p, row, quad));
}
// Returns the gradient of the norm's output y, from that of the output of activation and dropout.
__device__ __forceinline__ Quad activated_grad(const Parameters& p, const LayerEnd& it, int row, int quad, const Quad& y, Quad grad) {
    if (it.activation) grad = each([&](int e) { return through_activation(OTHERS ? it.activation : ACTIVATION_RELU, y.e[e], grad.e[e]); });
    return dropped(p, it, row, quad, grad);
}

// Brings a norm's columns that a block's teams need to `room` in shared memory, as LoadColumns does. What follows them there may be used
// again.
struct LoadNorm {
    LoadColumns columns;
    bool is_there;

    __device__ __forceinline__ LoadNorm(const Parameters& p, const LayerEnd& it, const Team& team, unsigned char*& room, bool backward)
        : columns(it, team.chunk * 4 * p.lanes, it.weight == nullptr ? 0 : 4 * p.lanes, reinterpret_cast<real*>(room), backward, team.part == 0),
          is_there(it.weight != nullptr) {
        if (is_there) room += 6 * 4 * p.lanes * sizeof(real);
    }
    __device__ __forceinline__ Norm merged(const Parameters& p, const Team& team, int num_atoms, unsigned char* room) {
        if (!is_there) return {};
        return {columns.merged(p.stride, num_atoms, reinterpret_cast<real*>(room)), 4 * team.lane};
    }
};
