"""What a code location has in memory after its definitions are loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys
from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog
lake = Lakehouse(
    catalog=PaimonCatalog(warehouse="/nowhere"),
    flink=FlinkCluster("http://127.0.0.1:9", "http://127.0.0.1:9"),
)
definitions = lake.definitions(sys.argv[1])
repository = definitions.get_repository_def()
assert len(repository.asset_graph.get_all_asset_keys()) == 2, repository.asset_graph
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_loaded_definitions_need_no_sqlglot(tmp_path: Path) -> None:
    script = tmp_path / "orders.sql"
    script.write_text(
        "CREATE TABLE ods.orders (id BIGINT, PRIMARY KEY (id) NOT ENFORCED);\n"
        "CREATE TEMPORARY TABLE topic (id BIGINT) WITH ('connector' = 'kafka', 'topic' = 'o');\n"
        "INSERT INTO ods.orders SELECT id FROM topic;\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "LAKEHOUSE_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 0, done.stderr
    assert "'dagster'" in done.stdout
    assert "'sqlglot'" not in done.stdout
