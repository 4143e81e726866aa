// Rows scaled to length 1, as torch.nn.functional.normalize, and the gradient of it.
#include "rows_lines.cuh"

constexpr real shortest = real(1e-12);

__device__ __forceinline__ real length_of(const Parameters& p, const Line& line, const real* row, bool there) {
    return root(line.over_row(p, there, [&](int quad) { return product_of(load(row + 4 * quad), load(row + 4 * quad)); }));
}

extern "C" __global__ void __launch_bounds__(256) rows_normalize(const __grid_constant__ Parameters p) {
    const Line line(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    for (int row = line.first; line.more(p, row); row += line.step) {
        const bool there = row < num_atoms;
        const real* source = p.source + place(p, row, 0);
        const real length = length_of(p, line, source, there), divisor = length < shortest ? shortest : length;
        if (row >= p.num_atoms) continue;
        line.each_quad(p, [&](int quad) {
            if (!there) return store(p, p.out, row, quad, constant(real(0)));
            const Quad x = load(source + 4 * quad);
            store(p, p.out, row, quad, each([&](int e) { return x.e[e] / divisor; }));
        });
    }
}

extern "C" __global__ void __launch_bounds__(256) rows_normalize_grad(const __grid_constant__ Parameters p) {
    const Line line(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    for (int row = line.first; line.more(p, row); row += line.step) {
        const bool there = row < num_atoms;
        const real *source = p.source + place(p, row, 0), *grad = p.grad + place(p, row, 0);
        const real length = length_of(p, line, source, there), divisor = length < shortest ? shortest : length;
        const real along = line.over_row(p, there, [&](int quad) {
            const Quad x = load(source + 4 * quad);
            return product_of(load(grad + 4 * quad), each([&](int e) { return x.e[e] / divisor; }));
        });
        if (row >= p.num_atoms) continue;
        line.each_quad(p, [&](int quad) {
            if (!there) return store(p, p.of_source.out, row, quad, constant(real(0)));
            const Quad x = load(source + 4 * quad), g = load(grad + 4 * quad);
            const real slope = length < shortest ? real(0) : along;  // what is shorter is divided by a constant
            write(p, p.of_source, row, quad, each([&](int e) { return (g.e[e] - x.e[e] / divisor * slope) / divisor; }));
        });
    }
}
