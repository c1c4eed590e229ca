"""`python -m benchmarks.zoo.real.farm`."""

from benchmarks.zoo.real.farm import main

main()
