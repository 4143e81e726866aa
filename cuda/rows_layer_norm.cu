// The end of a layer with layer norm, forward and backward.
#include "rows_lines.cuh"
#include "rows_merge.cuh"
#include "rows_norm.cuh"

// Mean and 1 / deviation of a row. Forward and backward agree to the bit.
struct RowMoments {
    real mean, deviation;

    __device__ __forceinline__ RowMoments(const Parameters& p, const Line& line, const Quad (&x)[turns]) {
        mean = line.over_row(p, [&](int turn, int) { return x[turn]; }) / static_cast<real>(p.width);
        const real squares = line.over_row(p, [&](int turn, int quad) {
            const Quad distance = each([&](int e) { return 4 * quad + e < p.width ? x[turn].e[e] - mean : real(0); });
            return product(distance, distance);
        });
        deviation = real(1) / root(squares / static_cast<real>(p.width) + static_cast<real>(p.end.eps));
    }
    __device__ __forceinline__ Column column(const Quad& weight, const Quad& bias, int e) const { return {mean, deviation, deviation * weight.e[e], bias.e[e]}; }
    __device__ __forceinline__ Quad norm(const Parameters& p, int quad, const Quad& x) const {
        const Quad weight = load_vector(p, p.end.weight, quad), bias = load_vector(p, p.end.bias, quad);
        return each([&](int e) { return column(weight, bias, e)(x.e[e]); });
    }
};

extern "C" __global__ void __launch_bounds__(256) rows_layer_norm(const __grid_constant__ Parameters p) {
    const Line line(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    for (int row = line.first; line.more(p, row); row += line.step) {
        Quad x[turns], residual[turns];
        line.load_row(x, p, p.source, row, row < num_atoms);
        if (p.add != nullptr) line.load_row(residual, p, p.add, row, row < num_atoms);
        const RowMoments moments(p, line, x);
        if (row >= p.num_atoms) continue;
        line.each_quad(p, [&](int turn, int quad) {
            Quad y = activated(p, p.end, row, quad, moments.norm(p, quad, x[turn]));
            add(y, residual[turn]);
            if (row < num_atoms)
                store(p, p.out, row, quad, y);
            else
                store(p, p.out, row, quad, constant(real(0)));
        });
    }
}

extern "C" __global__ void __launch_bounds__(512, 2) rows_layer_norm_grad(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    int* flag = reinterpret_cast<int*>(memory);
    NormSums* all = reinterpret_cast<NormSums*>(memory + 16);  // [lines of a block][stride]
    const Line line(p);
    const int num_atoms = atoms_of(p), lines = blockDim.x / line.lanes;
    NormSums sums[turns][4];
    wait_for_previous();
    for (int row = line.first; line.more(p, row); row += line.step) {
        const bool there = row < num_atoms;
        Quad x[turns], g[turns];  // g: of the norm's output, then times weight / deviation
        line.load_row(x, p, p.source, row, there);
        line.load_row(g, p, p.grad, row, there);
        const RowMoments moments(p, line, x);
        line.each_quad(p, [&](int turn, int quad) {
            if (!there) return;
            g[turn] = activated_grad(p, p.end, row, quad, moments.norm(p, quad, x[turn]), g[turn]);
            x[turn] = each([&](int e) { return moments.column({}, {}, e).normal(x[turn].e[e]); });
#pragma unroll
            for (int e = 0; e < 4; e++) sums[turn][e].add(g[turn].e[e], x[turn].e[e]);
            const Quad weight = load_vector(p, p.end.weight, quad);
            g[turn] = each([&](int e) { return moments.deviation * weight.e[e] * g[turn].e[e]; });
        });
        const real level = line.over_row(p, [&](int turn, int) { return g[turn]; }) / static_cast<real>(p.width);
        const real slope = line.over_row(p, [&](int turn, int) { return product(g[turn], x[turn]); }) / static_cast<real>(p.width);
        if (row >= p.num_atoms) continue;
        line.each_quad(p, [&](int turn, int quad) {
            if (there)
                write(p, p.of_source, row, quad, each([&](int e) { return g[turn].e[e] - level - x[turn].e[e] * slope; }));
            else
                store(p, p.of_source.out, row, quad, constant(real(0)));
        });
    }
    line.each_quad(p, [&](int turn, int quad) {
#pragma unroll
        for (int e = 0; e < 4; e++) all[threadIdx.x / line.lanes * p.stride + 4 * quad + e] = sums[turn][e];
    });
    merge_blocks(p.merge, 0, blockIdx.x, gridDim.x, p.stride, all, lines, flag, [&](int column, const NormSums& it) {
        if (column < p.width) p.end.grad_bias[column] = it.grad, p.end.grad_weight[column] = it.slope;
    });
}
