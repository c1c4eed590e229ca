"""A zoo of training runs with known faults, and of healthy ones that look odd: what diagnosis is measured by."""
