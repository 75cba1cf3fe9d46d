"""Keeps tables in shape beside running writers: compaction, expiry and clean-up, when due.

Only Flink changes files, by Paimon's procedures through the SQL Gateway; what is due is decided by
pure functions from facts (``decide.py``, ``budget.py``).
"""
