// Chooses among kernels that are compiled once per instruction set, and declares how Python hands tensors over.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace molgcn {

const std::string& instruction_set_in_use();

template <typename T>
T* pointer(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

}  // namespace molgcn

#define MOLGCN_DECLARE_KERNELS(isa, Kernels, stem)          \
    namespace isa {                                         \
    extern const Kernels<float> float_##stem;               \
    extern const Kernels<double> double_##stem;             \
    }
#define MOLGCN_PICK_KERNELS(isa, stem)                                 \
    if (instruction_set_in_use() == #isa) {                            \
        if constexpr (sizeof(T) == sizeof(float)) return isa::float_##stem; \
        else return isa::double_##stem;                                \
    }

// CMakeLists.txt says which instruction sets are compiled.
#ifdef MOLGCN_HAS_PORTABLE
#define MOLGCN_IF_PORTABLE(...) __VA_ARGS__
#else
#define MOLGCN_IF_PORTABLE(...)
#endif
#ifdef MOLGCN_HAS_AVX2
#define MOLGCN_IF_AVX2(...) __VA_ARGS__
#else
#define MOLGCN_IF_AVX2(...)
#endif
#ifdef MOLGCN_HAS_AVX512
#define MOLGCN_IF_AVX512(...) __VA_ARGS__
#else
#define MOLGCN_IF_AVX512(...)
#endif

// Declares `stem`<T>() in namespace molgcn. It returns the Kernels<T> of the instruction set in use, from that set's float_stem and
// double_stem.
#define MOLGCN_DISPATCH(Kernels, stem)                                    \
    MOLGCN_IF_PORTABLE(MOLGCN_DECLARE_KERNELS(portable, Kernels, stem))   \
    MOLGCN_IF_AVX2(MOLGCN_DECLARE_KERNELS(avx2, Kernels, stem))           \
    MOLGCN_IF_AVX512(MOLGCN_DECLARE_KERNELS(avx512, Kernels, stem))       \
    template <typename T>                                                 \
    const Kernels<T>& stem() {                                            \
        MOLGCN_IF_AVX512(MOLGCN_PICK_KERNELS(avx512, stem))               \
        MOLGCN_IF_AVX2(MOLGCN_PICK_KERNELS(avx2, stem))                   \
        MOLGCN_IF_PORTABLE(MOLGCN_PICK_KERNELS(portable, stem))           \
        throw std::logic_error("an instruction set without kernels");     \
    }
