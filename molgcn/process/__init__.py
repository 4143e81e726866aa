"""What a long process needs: its ending on signals, its progress and its memory."""
