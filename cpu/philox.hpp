// Dropout's random numbers, Philox 4x32-10 (Salmon et al., SC 2011). They depend on seed, layer, atom and channel alone, as in
// molgcn/ops/philox.py.
#pragma once

#include <cstdint>

namespace molgcn {
namespace MOLGCN_ISA {

class Dropout {
public:
    Dropout(uint64_t seed, int layer, double rate) : key_{uint32_t(seed), uint32_t(seed >> 32)}, layer_(layer), threshold_(rate * 4294967296.0) {}

    bool active() const { return threshold_ > 0; }

    // Zeroes the dropped channels of one atom and scales the others. Rows of another kind have numbers of their own.
    template <typename T>
    void apply(uint32_t atom, int channels, T kept_scale, T* row, uint32_t kind = 0) const {
        constexpr int width = 8;  // counters at a time, so that the rounds become vector instructions
        for (int first = 0; first < channels; first += 4 * width) {
            uint32_t words[4][width];
            for (int i = 0; i < width; i++) {
                words[0][i] = atom;
                words[1][i] = first / 4 + i;
                words[2][i] = layer_;
                words[3][i] = kind;
            }
            uint32_t k0 = key_[0], k1 = key_[1];
            for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
                for (int i = 0; i < width; i++) {
                    const uint64_t a = uint64_t{0xD2511F53u} * words[0][i], b = uint64_t{0xCD9E8D57u} * words[2][i];
                    words[0][i] = uint32_t(b >> 32) ^ words[1][i] ^ k0;
                    words[1][i] = uint32_t(b);
                    words[2][i] = uint32_t(a >> 32) ^ words[3][i] ^ k1;
                    words[3][i] = uint32_t(a);
                }
            }
            for (int c = first; c < channels && c < first + 4 * width; c++) {
                row[c] *= words[c % 4][(c - first) / 4] >= threshold_ ? kept_scale : T(0);  // NaN stays NaN, as in torch
            }
        }
    }

private:
    uint32_t key_[2];
    uint32_t layer_, threshold_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
