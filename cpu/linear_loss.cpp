// `molgcn::linear_loss` on CPUs: a linear map and the loss of what it predicts over targets that are not missing (NaN), and the gradients of its
// input, weight and bias. One thread: it is a thousandth of the layers' work.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace nb = nanobind;

namespace molgcn {
namespace {

using Address = uintptr_t;
enum Kind { mse, l1, huber };

struct Size {
    int64_t graphs, width, targets;
};

float* at(Address address) { return reinterpret_cast<float*>(address); }

float term(int kind, float d, float delta) {
    const float size = d < 0 ? -d : d;
    if (kind == mse) return d * d;
    if (kind == l1) return size;
    return size < delta ? 0.5f * d * d : delta * (size - 0.5f * delta);
}

float slope(int kind, float d, float delta) {
    if (kind == mse) return 2 * d;
    const float sign = d > 0 ? 1.0f : d < 0 ? -1.0f : d;  // keeps NaN
    if (kind == l1) return sign;
    return d < delta && d > -delta ? d : delta * sign;
}

float dot(const float* a, const float* b, int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

void add_scaled(float* sum, float factor, const float* values, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sum[i] += factor * values[i];
}

// x [B, H], weight [T, H], bias [T], target [B, T], mean [T], std [T]; slopes [B, T], sums double [2], loss
void forward(std::array<int64_t, 3> sizes, int kind, float delta, std::array<Address, 9> tensors) {
    const nb::gil_scoped_release release;
    const Size size{sizes[0], sizes[1], sizes[2]};
    const float *x = at(tensors[0]), *weight = at(tensors[1]), *bias = at(tensors[2]), *target = at(tensors[3]), *mean = at(tensors[4]), *deviation = at(tensors[5]);
    float* slopes = at(tensors[6]);
    double total = 0, known = 0;
    for (int64_t b = 0; b < size.graphs; b++) {
        for (int64_t t = 0; t < size.targets; t++) {
            const int64_t place = b * size.targets + t;
            const float d = dot(x + b * size.width, weight + t * size.width, size.width) + bias[t] - (target[place] - mean[t]) / deviation[t];
            const bool there = target[place] == target[place];
            slopes[place] = there ? slope(kind, d, delta) : 0.0f;
            if (there) total += term(kind, d, delta), known += 1;
        }
    }
    auto* sums = reinterpret_cast<double*>(tensors[7]);
    sums[0] = total, sums[1] = known;
    *at(tensors[8]) = float(total / std::max(known, 1.0));
}

// x [B, H], weight [T, H], slopes [B, T], sums double [2], grad_loss; grad_x [B, H], grad_weight [T, H], grad_bias [T]
void backward(std::array<int64_t, 3> sizes, std::array<Address, 8> tensors) {
    const nb::gil_scoped_release release;
    const Size size{sizes[0], sizes[1], sizes[2]};
    const float *x = at(tensors[0]), *weight = at(tensors[1]), *slopes = at(tensors[2]);
    const float scale = *at(tensors[4]) / float(std::max(reinterpret_cast<const double*>(tensors[3])[1], 1.0));
    float* grad_x = at(tensors[5]);
    constexpr int64_t rows = 64;  // whose sums are taken in float
    const int64_t columns = size.width + 1;  // of a target: its weights and its bias
    std::vector<float> part(size.targets * columns);
    std::vector<double> total(part.size());
    for (int64_t first = 0; first < size.graphs; first += rows) {
        std::fill(part.begin(), part.end(), 0.0f);
        for (int64_t b = first; b < std::min(first + rows, size.graphs); b++) {
            float* gradient = grad_x + b * size.width;
            std::fill(gradient, gradient + size.width, 0.0f);
            for (int64_t t = 0; t < size.targets; t++) {
                const float factor = scale * slopes[b * size.targets + t];
                add_scaled(gradient, factor, weight + t * size.width, size.width);
                add_scaled(part.data() + t * columns, factor, x + b * size.width, size.width);
                part[t * columns + size.width] += factor;
            }
        }
        for (size_t i = 0; i < part.size(); i++) total[i] += part[i];
    }
    for (int64_t t = 0; t < size.targets; t++) {
        const double* sums = total.data() + t * columns;
        std::copy(sums, sums + size.width, at(tensors[6]) + t * size.width);
        at(tensors[7])[t] = float(sums[size.width]);
    }
}

}  // namespace

void bind_linear_loss(nb::module_& m) {
    m.def("linear_loss_forward", &forward);
    m.def("linear_loss_backward", &backward);
}

}  // namespace molgcn
