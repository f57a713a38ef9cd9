"""Small training programs, each with seeded faults and healthy variants."""
