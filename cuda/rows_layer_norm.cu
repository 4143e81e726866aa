// The end of a layer with layer norm, forward and backward.
#include "rows_warp_teams.cuh"
#include "rows_parts.cuh"

// Mean and 1 / deviation of a row. Forward and backward agree to the bit.
struct RowMoments {
    real mean, deviation;

    __device__ __forceinline__ RowMoments(const Parameters& p, const WarpTeam& team, const Quad (&x)[lane_quads]) {
        mean = team.over_row(p, [&](int i, int) { return x[i]; }) / static_cast<real>(p.width);
        const real squares = team.over_row(p, [&](int i, int quad) {
            const Quad distance = each([&](int e) { return 4 * quad + e < p.width ? x[i].e[e] - mean : real(0); });
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
    const WarpTeam team(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    for (int row = team.first; team.more(p, row); row += team.step) {
        Quad x[lane_quads], residual[lane_quads];
        team.load_row(x, p, p.source, row, row < num_atoms);
        if (p.add != nullptr) team.load_row(residual, p, p.add, row, row < num_atoms);
        const RowMoments moments(p, team, x);
        if (row >= p.num_atoms) continue;
        team.each_quad(p, [&](int i, int quad) {
            Quad y = activated(p, p.end, row, quad, moments.norm(p, quad, x[i]));
            add(y, residual[i]);
            if (row < num_atoms)
                store(p, p.out, row, quad, y);
            else
                store(p, p.out, row, quad, constant(real(0)));
        });
    }
}

extern "C" __global__ void __launch_bounds__(512, 2) rows_layer_norm_grad(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    NormSums* all = reinterpret_cast<NormSums*>(memory);  // [teams][stride]
    const WarpTeam team(p);
    const int num_atoms = atoms_of(p), teams = blockDim.x / team.lanes;
    NormSums sums[lane_quads][4];
    wait_for_previous();
    for (int row = team.first; team.more(p, row); row += team.step) {
        const bool there = row < num_atoms;
        Quad x[lane_quads], g[lane_quads];  // g: of the norm's output, then times weight / deviation
        team.load_row(x, p, p.source, row, there);
        team.load_row(g, p, p.grad, row, there);
        const RowMoments moments(p, team, x);
        team.each_quad(p, [&](int i, int quad) {
            if (!there) return;
            g[i] = activated_grad(p, p.end, row, quad, moments.norm(p, quad, x[i]), g[i]);
            x[i] = each([&](int e) { return moments.column({}, {}, e).normal(x[i].e[e]); });
#pragma unroll
            for (int e = 0; e < 4; e++) sums[i][e].add(g[i].e[e], x[i].e[e]);
            const Quad weight = load_vector(p, p.end.weight, quad);
            g[i] = each([&](int e) { return moments.deviation * weight.e[e] * g[i].e[e]; });
        });
        const real mean_g = team.over_row(p, [&](int i, int) { return g[i]; }) / static_cast<real>(p.width);
        const real mean_gx = team.over_row(p, [&](int i, int) { return product(g[i], x[i]); }) / static_cast<real>(p.width);
        if (row >= p.num_atoms) continue;
        team.each_quad(p, [&](int i, int quad) {
            if (there)
                write(p, p.of_source, row, quad, each([&](int e) { return through_norm(real(1), g[i].e[e], x[i].e[e], mean_g, mean_gx); }));
            else
                store(p, p.of_source.out, row, quad, constant(real(0)));
        });
    }
    team.each_quad(p, [&](int i, int quad) {
#pragma unroll
        for (int e = 0; e < 4; e++) all[threadIdx.x / team.lanes * p.stride + 4 * quad + e] = sums[i][e];
    });
    merge_block(all, teams, p.stride);
    real* part = p.sum_parts + size_t(blockIdx.x) * 2 * p.width;
    for (int column = threadIdx.x; column < p.width; column += blockDim.x) part[column] = all[column].weight, part[p.width + column] = all[column].bias;
}
