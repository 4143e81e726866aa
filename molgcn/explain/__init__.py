"""What each atom and bond of a molecule contributes to a prediction."""
