"""The fault laboratory: seeded faults against real processes (``docs/chaos.md``)."""
