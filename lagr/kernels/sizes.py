"""What the kernels can hold."""

MOST_ROWS = 64  # tokens, or slots, that a program keeps on chip; longer sentences fill general products well
LEAST = 16  # the smallest side of a product that the matrix units take
