// The form in which RDKit stores a molecule (Mol.ToBinary, MolPickler.cpp in RDKit's sources), version 16, as far as graphs need it:
// every atom's and bond's numbers and the rings. Whatever is not known here makes the reading fail, never differ.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace molgcn {

// What featurisers read from an atom; molgcn.data.atoms.AtomFields has the same fields in the same order.
struct AtomFields {
    uint8_t number, degree;
    int8_t charge;
    uint8_t num_hs, hidden_hs, explicit_hs, hybridization, flags;
};
static_assert(sizeof(AtomFields) == 8);
enum AtomFlags : uint8_t { kAromatic = 1, kInRing = 2 };

class RdkitBinary {
  public:
    std::vector<AtomFields> atoms;
    std::vector<uint16_t> ends;  // the two atoms of each bond

    // Reads one molecule in place of the last; false for anything unknown.
    bool read(const uint8_t* data, size_t size) {
        next_ = data;
        end_ = data + size;
        good_ = true;
        const bool header = integer() == kEndian && integer() == 0 && integer() == kMajor;
        integer(), integer();  // minor version and patch
        const uint32_t num_atoms = integer(), num_bonds = integer();
        if (!header || byte() != kCompact || !good_ || num_atoms > kMaxAtoms || num_bonds > size) return false;
        wide_ = num_atoms > 255;
        atoms.assign(num_atoms, AtomFields{});
        ends.resize(2 * num_bonds);
        expect(kBeginAtoms);
        for (uint32_t i = 0; i < num_atoms && good_; ++i) atom(atoms[i]);
        expect(kBeginBonds);
        for (uint32_t i = 0; i < num_bonds && good_; ++i) bond(ends.data() + 2 * i);
        const uint8_t kind = byte();
        good_ = good_ && (kind == kSmallestRings || (kind >= kSymmetrizedRings && kind <= kOtherRings));
        const uint32_t num_rings = integer();
        for (uint32_t i = 0; i < num_rings && good_; ++i) ring();
        expect(kEndMolecule);
        return good_ && next_ == end_;
    }

  private:
    static constexpr uint32_t kEndian = 0xDEADBEEF, kMajor = 16, kMaxAtoms = 65535;
    enum Tag : uint8_t {
        kBeginAtoms = 1,
        kBeginBonds = 11,
        kSmallestRings = 20,
        kEndMolecule = 22,
        kSymmetrizedRings = 66,
        kOtherRings = 68,
        kCompact = 128,
    };
    enum AtomFlag : uint8_t { kNoImplicit = 32, kAtomIsAromatic = 64 };
    enum AtomValue : uint32_t {  // in the order in which they are written
        kCharge = 2,
        kChiralTag = 4,
        kHybridization = 8,
        kExplicitHs = 16,
        kExplicitValence = 32,
        kImplicitValence = 64,
        kRadicals = 128,
        kIsotope = 256,
        kAllValues = 510,
    };
    enum BondFlag : uint8_t { kStereo = 2, kDirection = 4, kType = 8, kQuery = 16, kEndPoints = 1, kUnknown = 128 };
    static constexpr uint8_t kSP3 = 4;  // Atom::HybridizationType, the only one that is not written

    uint8_t byte() {
        good_ = good_ && next_ < end_;
        return good_ ? *next_++ : 0;
    }
    uint32_t integer() {
        const uint32_t a = byte(), b = byte(), c = byte(), d = byte();
        return a | b << 8 | c << 16 | d << 24;
    }
    uint32_t index() {
        const uint32_t i = wide_ ? integer() : byte();
        good_ = good_ && i < atoms.size();
        return good_ ? i : 0;
    }
    void expect(uint8_t tag) { good_ = byte() == tag && good_; }

    void atom(AtomFields& to) {
        to.number = byte();
        const uint8_t flags = byte();
        const uint32_t values = integer();
        good_ = good_ && (flags & ~(kNoImplicit | kAtomIsAromatic)) == 0 && (values & ~kAllValues) == 0;
        const auto value = [&](AtomValue which, uint8_t otherwise = 0) { return values & which ? byte() : otherwise; };
        to.charge = static_cast<int8_t>(value(kCharge));
        value(kChiralTag);
        to.hybridization = value(kHybridization, kSP3);
        to.explicit_hs = value(kExplicitHs);
        value(kExplicitValence);
        const uint8_t implicit_hs = value(kImplicitValence);
        value(kRadicals);
        if (values & kIsotope) integer();
        to.hidden_hs = to.explicit_hs + (flags & kNoImplicit ? 0 : implicit_hs);
        to.num_hs = to.hidden_hs;
        to.flags = flags & kAtomIsAromatic ? kAromatic : 0;
    }

    void bond(uint16_t* to) {
        const uint32_t i = index(), j = index();
        to[0] = i, to[1] = j;
        const uint8_t flags = byte();
        good_ = good_ && (flags & (kQuery | kEndPoints | kUnknown)) == 0;
        if (!good_) return;
        if (flags & kType) byte();
        if (flags & kDirection) byte();
        if (flags & kStereo) {
            byte();
            for (uint8_t left = byte(); left > 0; --left) index();
        }
        neighbor(atoms[i], atoms[j]);
        neighbor(atoms[j], atoms[i]);
    }
    static void neighbor(AtomFields& of, const AtomFields& other) {
        of.degree += of.degree < 255;
        of.num_hs += other.number == 1 && of.num_hs < 255;
    }

    void ring() {
        for (uint32_t left = wide_ ? integer() : byte(); left > 0 && good_; --left) {
            const uint32_t i = index();
            if (good_) atoms[i].flags |= kInRing;
        }
    }

    const uint8_t *next_ = nullptr, *end_ = nullptr;
    bool good_ = false, wide_ = false;
};

}  // namespace molgcn
