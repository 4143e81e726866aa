// The end of a layer with layer norm, forward and backward.
#include "rows_lines.cuh"
#include "rows_merge.cuh"
#include "rows_norm.cuh"

// Mean and 1 / deviation of a row; forward and backward agree to the bit
struct RowMoments {
    real mean, deviation;

    __device__ __forceinline__ RowMoments(const Parameters& p, const Line& line, const real* row, bool there) {
        mean = line.over_row(p, there, [&](int quad) { return sum_of(load(row + 4 * quad)); }) / static_cast<real>(p.width);
        const real squares = line.over_row(p, there, [&](int quad) {
            const Quad x = load(row + 4 * quad);
            const Quad distance = each([&](int e) { return 4 * quad + e < p.width ? x.e[e] - mean : real(0); });
            return product_of(distance, distance);
        });
        deviation = real(1) / root(squares / static_cast<real>(p.width) + static_cast<real>(p.norm_eps));
    }
    __device__ __forceinline__ Affine norm(const Parameters& p, int quad) const { return {p, quad, constant(mean), constant(deviation)}; }
};

extern "C" __global__ void __launch_bounds__(256) rows_layer_norm(const __grid_constant__ Parameters p) {
    const Line line(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    for (int row = line.first; line.more(p, row); row += line.step) {
        const bool there = row < num_atoms;
        const real* source = p.source + place(p, row, 0);
        const RowMoments moments(p, line, source, there);
        if (row >= p.num_atoms) continue;
        line.each_quad(p, [&](int quad) {
            if (there)
                finish(p, moments.norm(p, quad), row, quad, load(source + 4 * quad));
            else
                store(p, p.out, row, quad, constant(real(0)));
        });
    }
}

extern "C" __global__ void __launch_bounds__(256) rows_layer_norm_grad(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    int* flag = reinterpret_cast<int*>(memory);
    NormSums* all = reinterpret_cast<NormSums*>(memory + 16);  // [lines of a block][stride]: each number is one thread's
    const Line line(p);
    const int num_atoms = atoms_of(p), lines = blockDim.x / line.lanes;
    NormSums* sums = all + threadIdx.x / line.lanes * p.stride;
    line.each_quad(p, [&](int quad) {
        for (int e = 0; e < 4; e++) sums[4 * quad + e] = {};
    });
    wait_for_previous();
    for (int row = line.first; line.more(p, row); row += line.step) {
        const bool there = row < num_atoms;
        const size_t begin = place(p, row, 0);
        const RowMoments moments(p, line, p.source + begin, there);
        const auto of_output = [&](int quad, const Affine& norm, const Quad& x) {
            return activated_grad(p, row, quad, norm(x), load(p.grad + begin + 4 * quad));
        };
        real level = 0, slope = 0;
        if (there)
            line.each_quad(p, [&](int quad) {
                const Affine norm = moments.norm(p, quad);
                const Quad x = load(p.source + begin + 4 * quad), g = of_output(quad, norm, x), normal = norm.normal(x);
                for (int e = 0; e < 4; e++) {
                    if (4 * quad + e >= p.width) break;
                    const real along = g.e[e] * norm.factor.e[e];  // weight / deviation
                    sums[4 * quad + e].add(g.e[e], normal.e[e]);
                    level += along, slope = multiply_add(along, normal.e[e], slope);
                }
            });
        level = line.sum(level) / static_cast<real>(p.width), slope = line.sum(slope) / static_cast<real>(p.width);
        if (row >= p.num_atoms) continue;
        line.each_quad(p, [&](int quad) {
            if (!there) return store(p, p.of_source.out, row, quad, constant(real(0)));
            const Affine norm = moments.norm(p, quad);
            const Quad x = load(p.source + begin + 4 * quad), g = of_output(quad, norm, x), normal = norm.normal(x);
            write(p, p.of_source, row, quad, each([&](int e) { return g.e[e] * norm.factor.e[e] - level - normal.e[e] * slope; }));
        });
    }
    __syncthreads();
    for (int column = threadIdx.x; column < p.stride; column += blockDim.x)
        for (int i = 1; i < lines; i++) all[column].merge(all[i * p.stride + column]);
    __syncthreads();
    merge_blocks(p.merge, 0, blockIdx.x, gridDim.x, p.stride, all, flag, [&](int column, const NormSums& it) {
        if (column < p.width) p.grad_bias[column] = it.grad, p.grad_weight[column] = it.slope;
    });
}
