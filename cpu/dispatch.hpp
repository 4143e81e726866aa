// Chooses among kernels that are compiled once per instruction set, and declares how Python hands tensors over.
#pragma once

#include <cstdint>
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

// Declares `stem`<T>() in namespace molgcn. It returns the Kernels<T> of the widest instruction set in use, from that set's float_stem and
// double_stem.
#ifdef MOLGCN_X86
#define MOLGCN_DISPATCH(Kernels, stem)                \
    MOLGCN_DECLARE_KERNELS(portable, Kernels, stem)   \
    MOLGCN_DECLARE_KERNELS(avx2, Kernels, stem)       \
    MOLGCN_DECLARE_KERNELS(avx512, Kernels, stem)     \
    template <typename T>                             \
    const Kernels<T>& stem() {                        \
        MOLGCN_PICK_KERNELS(avx512, stem)             \
        MOLGCN_PICK_KERNELS(avx2, stem)               \
        if constexpr (sizeof(T) == sizeof(float)) return portable::float_##stem; \
        else return portable::double_##stem;          \
    }
#else
#define MOLGCN_DISPATCH(Kernels, stem)                \
    MOLGCN_DECLARE_KERNELS(portable, Kernels, stem)   \
    template <typename T>                             \
    const Kernels<T>& stem() {                        \
        if constexpr (sizeof(T) == sizeof(float)) return portable::float_##stem; \
        else return portable::double_##stem;          \
    }
#endif
