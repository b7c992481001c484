"""Sessions on a real server."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from helpers import PNG, Server, needs_index

from python_executor import AsyncClient, ConflictError, InvalidError, NotFoundError, Output

PICTURE = f"""
class Picture:
    def _repr_png_(self): return {PNG!r}
    def _repr_html_(self): return "<b>picture</b>"
Picture()
"""


async def test_names_and_files_stay_between_executions(server: Server) -> None:
    async with AsyncClient() as client:
        async with await client.open_session(name="stays", env={"K": "v"}) as session:
            await session.run("x = 100")
            result = await session.run("x + 1")
            assert result.value is not None and result.value.text == "101"
            assert result.session_id == session.session_id and result.session_state == "kept"
            assert [v.name for v in await session.variables()] == ["x"]
            assert (await session.run(command=["sh", "-c", "echo $K"])).stdout == "v\n"
            assert session.session_id in [s.session_id for s in await client.sessions()]
            same = await client.session(session.session_id)
            assert (await same.run("x")).value == (await session.run("x")).value
        assert session.info.status == "closed"
        with pytest.raises(ConflictError):
            await session.run("x")


async def test_displays_have_images(server: Server) -> None:
    async with AsyncClient() as client, await client.open_session() as session:
        result = await session.run(PICTURE)
        assert result.images == [PNG]
        (display,) = result.displays
        assert display.value and display.html == "<b>picture</b>" and display.png == PNG


async def test_files_go_up_and_down(server: Server, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1,2\n")
    async with AsyncClient() as client, await client.open_session() as session:
        file = await session.upload(tmp_path / "rows.csv", "data/a b/rows.csv")
        assert (file.path, file.size_bytes) == ("data/a b/rows.csv", 4)
        await session.upload(tmp_path / "rows.csv")
        await session.upload(b"\x00" * 10, "zeros")
        await session.upload(io.BytesIO(b"io"), "io")
        assert (await session.run("print(open('data/a b/rows.csv').read(), end='')")).stdout == "1,2\n"
        assert [f.path for f in await session.files()] == ["data", "io", "rows.csv", "zeros"]
        assert "data/a b/rows.csv" in [f.path for f in await session.files("data", recursive=True)]
        assert await session.download("zeros") == b"\x00" * 10
        await session.download_to("rows.csv", tmp_path / "back" / "rows.csv")
        assert (tmp_path / "back" / "rows.csv").read_text() == "1,2\n"
        target = io.BytesIO()
        await session.download_to("io", target)
        assert target.getvalue() == b"io"
        await session.remove("data")
        with pytest.raises(NotFoundError):
            await session.download("data/a b/rows.csv")
        with pytest.raises(InvalidError, match="path"):
            await session.upload(b"", "../out")
        with pytest.raises(InvalidError, match="path"):
            await session.upload(b"")


async def test_an_interrupt_keeps_the_names(server: Server) -> None:
    async with AsyncClient() as client, await client.open_session() as session:
        await session.run("x = 1")
        execution_id = await session.submit("print('go', flush=True)\nwhile True: pass")
        async with client.follow(execution_id) as events:
            async for event in events:
                if isinstance(event, Output):
                    break
        info = await session.interrupt()
        assert info.running is None
        assert (await client.get(execution_id)).status == "killed"
        assert (await session.run("print(x)")).stdout == "1\n"


async def test_a_restart_forgets_names_and_a_wipe_the_files(server: Server) -> None:
    async with AsyncClient() as client, await client.open_session() as session:
        await session.run("x = 1; open('f', 'w').close()")
        assert (await session.restart()).restarts == 1
        failed = await session.run("x")
        assert failed.status == "failed" and "NameError" in failed.stderr
        assert [f.path for f in await session.files()] == ["f"]
        await session.restart(wipe=True)
        assert await session.files() == []
        assert (await session.refresh()).restarts == 2


@needs_index
async def test_requirements_are_installed_into_a_session(server: Server) -> None:
    async with AsyncClient() as client, await client.open_session() as session:
        assert "idna==3.10" in await session.install("idna==3.10")
        assert (await session.run("import idna; idna.__version__")).value is not None
        with pytest.raises(InvalidError):
            await session.install("no-such-package-of-these-tests==1")


async def test_modes_and_empty_folders_stay(server: Server, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "tool").chmod(0o755)
    async with AsyncClient() as client, await client.open_session(name="by its name"):
        session = await client.session("by its name")
        assert (await session.upload(tmp_path / "tool")).mode == 0o755
        assert (await session.upload(b"#!/bin/sh\necho ran\n", "bin/tool", mode=0o711)).mode == 0o711
        assert (await session.upload(b"", "plain")).mode == 0o644
        assert (await session.make_folder("bin/empty")).directory
        assert (await session.run(command=["sh", "-c", "./tool; bin/tool; ls -a bin/empty | wc -l"])).stdout == "ran\nran\n2\n"
        modes = {f.path: f.mode for f in await session.files(recursive=True) if not f.directory}
        assert modes == {"bin/tool": 0o711, "plain": 0o644, "tool": 0o755}


async def test_a_session_shows_its_output_live(server: Server) -> None:
    text = io.StringIO()
    async with AsyncClient() as client, await client.open_session() as session:
        await session.run("print('live')", stdout=text)
        assert text.getvalue() == "live\n"
