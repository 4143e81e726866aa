"""Small reactions with atom maps whose label depends on which bonds form and break."""

LEAVING = {"F": 4.0, "Cl": 2.5, "Br": 2.0, "I": 1.5}
ENTERING = {"OH-": ("OH", 0.5), "SH-": ("SH", 0.1), "NH2-": ("NH2", 0.3), "CH3-": ("CH3", 0.9)}
SOLVENTS = {"O": 0.0, "CCO": 0.2, "C1CCOC1": 0.7, "CS(C)=O": 0.4}


def substitutions(count: int) -> list[tuple[str, str, str, float]]:
    """Return the reaction, its solvent, its reverse and its label for `count` substitutions on chains of several lengths."""
    rows = []
    for number in range(count):
        leaving, (entering, (bound, gain)) = (list(kind.items())[place % 4] for kind, place in ((LEAVING, number), (ENTERING, number // 4)))
        solvent, shift = list(SOLVENTS.items())[number // 3 % 4]
        length = 1 + number // 16 % 7
        chain = "".join(f"[CH2:{place}]" for place in range(10, 9 + length))
        reactants = f"[CH3:1]{chain}[CH2:2][{leaving[0]}:3].[{entering}:4]"
        products = f"[CH3:1]{chain}[CH2:2][{bound}:4].[{leaving[0]}-:3]"
        rows.append((f"{reactants}>>{products}", solvent, f"{products}>>{reactants}", leaving[1] - gain + shift + 0.05 * length))
    return rows
