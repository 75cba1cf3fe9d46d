"""Maintenance at high frequency beside three streaming writers, with random kills."""
