def test_the_default_is_a_file_in_the_home_of_dagster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with SystemDatabase().connect() as database:
        assert database.location == str(tmp_path / "lakehouse.db")
    assert (tmp_path / "lakehouse.db").is_file()


def test_without_a_home_of_dagster_the_file_lies_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with SystemDatabase().connect():
        pass
    assert (tmp_path / ".local/share/lakehouse/lakehouse.db").is_file()
    assert not (tmp_path / "cache").exists()


def test_a_missing_home_of_dagster_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "gone"))
    with pytest.raises(SystemDatabaseError, match=r"gone of the system database does not exist"):
        SystemDatabase().connect()


def test_sqlite_runs_with_a_write_ahead_log_and_foreign_keys(db: Database) -> None:
    with db.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


def test_a_locked_database_says_so_after_the_timeout(db: Database, url: str) -> None:
    with SystemDatabase(url, busy_timeout_seconds=0.05).connect() as other:
        with db.write():
            with pytest.raises(SystemDatabaseError, match=r"stayed locked for 0.05 s"):
                Jobs(other, "lake").ensure("orders")
        Jobs(other, "lake").ensure("orders")


def test_readers_do_not_wait_for_a_writer(db: Database, url: str) -> None:
    Jobs(db, "lake").ensure("orders")
    with SystemDatabase(url, busy_timeout_seconds=0.05).connect() as other:
        with db.write() as connection:
            connection.execute(schema.jobs.delete())
            assert [job.name for job in Jobs(other, "lake").all()] == ["orders"]
    assert Jobs(db, "lake").all() == ()


def test_a_read_only_database_says_so(db: Database, tmp_path: Path) -> None:
    read_only = f"sqlite:///file:{tmp_path}/lakehouse.db?mode=ro&uri=true"
    with SystemDatabase(read_only).connect() as database:
        assert Jobs(database, "lake").all() == ()
        with pytest.raises(SystemDatabaseError, match="is read-only"):
            Jobs(database, "lake").ensure("orders")


def test_a_file_that_is_no_database_is_refused_and_left_alone(url: str, tmp_path: Path) -> None:
    file = tmp_path / "lakehouse.db"
    file.write_bytes(b"dear diary, " * 500)
    with pytest.raises(SystemDatabaseError, match="is not a SQLite database"):
        SystemDatabase(url).connect()
    assert file.read_bytes() == b"dear diary, " * 500


