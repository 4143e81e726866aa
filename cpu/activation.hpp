// Activations and their derivatives, as PyTorch defines them. relu's stand in simd.hpp, since it takes part in other loops.
#pragma once

#include "exponential.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

enum Activation : int { no_activation, of_relu, of_gelu, of_silu, of_leaky_relu, of_elu, of_tanh };  // molgcn.ops.layer_network.steps.ACTIVATIONS

// (1 + 2 z) exp(z^2) erfc(z) as a polynomial in (z - 3) / (z + 3), z >= 0, to the last digit: its Chebyshev series, cut off.
// Shepherd and Laframboise, "Chebyshev approximation of (1 + 2 x) exp(x^2) erfc x in 0 <= x < infinity", Math. Comp. 36, 1981.
template <typename T>
struct Series;
template <>
struct Series<float> {
    static constexpr float of[] = {1.25300806f, -0.135621069f, -0.0475621569f, 0.129644114f, -0.119275275f, 0.0683165678f,
                                   -0.0237635764f, 0.00249911687f, 0.00187507912f, -0.000726453679f, -9.25451669e-5f, 7.73102422e-5f};
};
template <>
struct Series<double> {
    static constexpr double of[] = {
        1.2530080582697296,      -0.13562110612458116,    -0.047562294353449197,  0.12964515870275939,    -0.11927366341538638,
        0.068308027344009904,    -0.023770514917171337,   0.0025293918156939695,  0.0018886903449991718,  -0.00077983226965433065,
        -0.00010515971958448065, 0.00012509934245837291,  4.9491966499683453e-6,  -2.0100542268525611e-5, -7.3082814687836139e-7,
        3.4723709449771682e-6,   3.5576086684080594e-7,   -6.1660114603987259e-7, -1.4047654315428462e-7, 1.0183620603842737e-7,
        4.1064013667940353e-8,   -1.3312919661038688e-8,  -8.2175950587114539e-9, 9.8625335103455876e-10, 8.3937348586908775e-10};
};

// The normal distribution's Phi(x), and its density.
template <typename T>
struct Normal {
    Vec<T> below, density;

    // Phi(x) is exp(-z^2) times the series over 2 (1 + 2 z), with z = |x| / sqrt(2).
    explicit Normal(Vec<T> x) {
        constexpr auto& series = Series<T>::of;
        constexpr int terms = sizeof(series) / sizeof(T);
        const Vec<T> cut = between<T>(x, -40, 40), z = (cut < Vec<T>{} ? -cut : cut) * T(0.70710678118654752440), t = (z - 3) / (z + 3);
        Vec<T> sum = splat<T>(series[terms - 1]);
        for (int i = terms - 2; i >= 0; i--) sum = sum * t + series[i];
        const Vec<T> bell = exp<T>(z * -z), tail = bell * sum / (z * 4 + 2);
        below = cut < Vec<T>{} ? tail : 1 - tail;
        density = bell * T(0.39894228040143267794);
    }
};

template <typename T>
inline Vec<T> activated(int activation, Vec<T> x) {
    const Vec<T> zero{};
    switch (activation) {
        case of_relu: return relu<T>(x);
        case of_gelu: return x * Normal<T>(x).below;
        case of_silu: return x * sigmoid<T>(x);
        case of_leaky_relu: return x > zero ? x : x * T(0.01);
        case of_elu: return x > zero ? x : expm1<T>(x);
        case of_tanh: return tanh<T>(x);
        default: return x;
    }
}

// Returns the derivative at x.
template <typename T>
inline Vec<T> slope(int activation, Vec<T> x) {
    const Vec<T> zero{}, one = splat<T>(1);
    switch (activation) {
        case of_relu: return where_positive<T>(x, one);
        case of_gelu: {
            const Normal<T> normal(x);
            return normal.below + x * normal.density;
        }
        case of_silu: {
            const Vec<T> s = sigmoid<T>(x);
            return s * (x * (1 - s) + 1);
        }
        case of_leaky_relu: return x > zero ? one : splat<T>(T(0.01));
        case of_elu: return x > zero ? one : exp<T>(x);
        case of_tanh: {
            const Vec<T> y = tanh<T>(x);
            return 1 - y * y;
        }
        default: return one;
    }
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
