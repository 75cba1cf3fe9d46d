"""Operate Flink streaming jobs and Apache Paimon tables from Dagster."""
