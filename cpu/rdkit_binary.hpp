// Reads the form in which RDKit stores a molecule (Mol.ToBinary, MolPickler.cpp in RDKit's sources), version 16, as far as graphs need it:
// every atom's and bond's numbers and the rings. Anything unknown makes the reading fail; it never gives a different molecule. CIP labels
// are not stored in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace molgcn {

// What featurisers read. molgcn.data.featurizers.fields has the same fields in the same order and packs them in the same way, except the
// CIP label.
struct AtomFields {
    uint8_t number, hidden_hs, num_hs, explicit_hs, charge, degree, hybridization, ring_size, radicals, aromatic, chiral_tag;

    uint64_t packed() const {
        uint64_t bits = 0;
        int shift = 0;
        const auto put = [&](uint8_t value, int width) {
            bits |= uint64_t{std::min<uint8_t>(value, (1 << width) - 1)} << shift;
            shift += width;
        };
        for (const uint8_t value : {number, hidden_hs, num_hs, explicit_hs, charge}) put(value, 8);
        for (const uint8_t value : {degree, hybridization, ring_size}) put(value, 4);
        put(radicals, 3), put(aromatic, 1), put(chiral_tag, 4);
        return bits;
    }
};
struct BondFields {
    uint8_t type, conjugated, ring_size, stereo;
};
static_assert(sizeof(BondFields) == 4);

class RdkitBinary {
  public:
    std::vector<uint64_t> packed;  // an atom each
    std::vector<uint16_t> ends;    // the two atoms of each bond
    std::vector<BondFields> bonds;

    // Reads one molecule in place of the last. Returns false for anything unknown.
    bool read(const uint8_t* data, size_t size) {
        next_ = data;
        end_ = data + size;
        good_ = true;
        const bool header = integer() == kEndian && integer() == 0 && integer() == kMajor;
        integer(), integer();  // minor version and patch
        const uint32_t num_atoms = integer(), num_bonds = integer();
        if (!header || byte() != kCompact || !good_ || num_atoms > kMaxAtoms || num_bonds > size) return false;
        wide_ = num_atoms > 255;
        atoms_.assign(num_atoms, AtomFields{});
        last_end_.assign(num_atoms, kNone);
        ends.resize(2 * num_bonds);
        end_before_.resize(2 * num_bonds);
        bonds.resize(num_bonds);
        expect(kBeginAtoms);
        for (uint32_t i = 0; i < num_atoms && good_; ++i) atom(atoms_[i]);
        expect(kBeginBonds);
        for (uint32_t i = 0; i < num_bonds && good_; ++i) bond(i);
        const uint8_t kind = byte();
        good_ = good_ && (kind == kSmallestRings || (kind >= kSymmetrizedRings && kind <= kOtherRings));
        const uint32_t num_rings = integer();
        for (uint32_t i = 0; i < num_rings && good_; ++i) ring();
        expect(kEndMolecule);
        packed.resize(num_atoms);
        std::transform(atoms_.begin(), atoms_.end(), packed.begin(), [](const AtomFields& fields) { return fields.packed(); });
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
    enum BondFlag : uint8_t { kEndPoints = 1, kStereo = 2, kDirection = 4, kType = 8, kQuery = 16, kConjugated = 32, kUnknown = 128 };
    static constexpr uint8_t kSP3 = 4, kSingle = 1;  // Atom::HybridizationType and Bond::BondType that are not written
    static constexpr uint32_t kNone = 0xFFFFFFFF;

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
        good_ = good_ && i < atoms_.size();
        return good_ ? i : 0;
    }
    void expect(uint8_t tag) { good_ = byte() == tag && good_; }

    void atom(AtomFields& to) {
        to.number = byte();
        const uint8_t flags = byte();
        const uint32_t values = integer();
        good_ = good_ && (flags & ~(kNoImplicit | kAtomIsAromatic)) == 0 && (values & ~kAllValues) == 0;
        const auto value = [&](AtomValue which, uint8_t otherwise = 0) { return values & which ? byte() : otherwise; };
        to.charge = value(kCharge);
        to.chiral_tag = value(kChiralTag);
        to.hybridization = value(kHybridization, kSP3);
        to.explicit_hs = value(kExplicitHs);
        value(kExplicitValence);
        const uint8_t implicit_hs = value(kImplicitValence);
        to.radicals = value(kRadicals);
        if (values & kIsotope) integer();
        to.hidden_hs = to.explicit_hs + (flags & kNoImplicit ? 0 : implicit_hs);
        to.num_hs = to.hidden_hs;
        to.aromatic = (flags & kAtomIsAromatic) != 0;
    }

    void bond(uint32_t number) {
        const uint32_t i = index(), j = index();
        const uint8_t flags = byte();
        good_ = good_ && (flags & (kQuery | kEndPoints | kUnknown)) == 0;
        if (!good_) return;
        BondFields& to = bonds[number];
        to = {kSingle, (flags & kConjugated) != 0, 0, 0};
        if (flags & kType) to.type = byte();
        if (flags & kDirection) byte();
        if (flags & kStereo) {
            to.stereo = byte();
            for (uint8_t left = byte(); left > 0; --left) index();
        }
        add_end(2 * number, i, atoms_[j]);
        add_end(2 * number + 1, j, atoms_[i]);
    }
    void add_end(uint32_t end, uint32_t i, const AtomFields& other) {
        ends[end] = i;
        end_before_[end] = last_end_[i];
        last_end_[i] = end;
        atoms_[i].degree += atoms_[i].degree < 255;
        atoms_[i].num_hs += other.number == 1 && atoms_[i].num_hs < 255;
    }

    void ring() {  // atoms are listed along it
        ring_.clear();
        for (uint32_t left = wide_ ? integer() : byte(); left > 0 && good_; --left) ring_.push_back(index());
        const uint8_t size = std::min<size_t>(ring_.size(), 255);
        for (size_t k = 0; k < ring_.size() && good_; ++k) {
            const uint32_t i = ring_[k], j = ring_[k + 1 < ring_.size() ? k + 1 : 0];
            uint32_t end = last_end_[i];
            while (end != kNone && ends[end ^ 1] != j) end = end_before_[end];
            good_ = end != kNone;
            if (!good_) return;
            lower(atoms_[i].ring_size, size);
            lower(bonds[end / 2].ring_size, size);
        }
    }
    static void lower(uint8_t& least, uint8_t size) { least = least == 0 ? size : std::min(least, size); }

    std::vector<AtomFields> atoms_;
    std::vector<uint32_t> last_end_, end_before_;  // of an atom, the last entry in `ends`; of such an entry, the atom's one before it
    std::vector<uint32_t> ring_;
    const uint8_t *next_ = nullptr, *end_ = nullptr;
    bool good_ = false, wide_ = false;
};

}  // namespace molgcn
