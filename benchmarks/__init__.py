"""What is measured, each a command: ``python -m benchmarks NAME``.

A benchmark compares the project with the bare thing, in the same run, in interleaved pairs; the
baseline imports none of our code. It prints one JSON line a goal and says whether the goal holds.
"""
