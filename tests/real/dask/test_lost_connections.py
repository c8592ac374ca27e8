"""A scheduler that is lost, or not there; and a cluster that the host starts itself."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from distributed import Client
from distributed.security import Security
from engine_bench import Bench, workflow
from helpers.dask_cluster import FOLDERS, TRUST, TestCluster
from helpers.repetition import repetitions

from tavern_host import Host
from tavern_host.contracts.executions import RunStatus
from tavern_host.contracts.settings import SETTINGS, SettingsChange

WAITS = {"extensions.tavern-dask.whenLost": "wait"}


async def begun(seen: Path) -> None:
    async with asyncio.timeout(60):
        while not (seen.exists() and seen.read_text() == "begun"):
            await asyncio.sleep(0.02)


async def have_to_connect(seconds: float | None, *hosts: Host) -> None:
    for host in hosts:
        change = SettingsChange(plugin="tavern-dask", values={"connectSeconds": seconds})
        await host.services.get(SETTINGS).save(change)


async def test_nodes_fail_or_wait_without_a_scheduler(
    cluster: TestCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen, tries, notes = tmp_path / "seen", tmp_path / "tries", tmp_path / "notes"
    values = {"path": str(notes), "text": "once", "seconds": 600}
    note = {
        "type": "acme-far:Note",
        "placement": "cluster",
        "policy": {"onError": "skip_branch"},
        "inputValues": values,
    }
    wait = {"type": "acme-far:WaitFor", "inputValues": {"path": str(seen)}}
    pause = {"type": "acme-far:PauseAtFirst", "inputValues": {"path": str(tries)}}
    long = {"type": "acme-far:Grow", "inputValues": {"size": 200_000}}
    async with (
        AsyncExitStack() as stack,
        Host(tmp_path / "fails", plugins=FOLDERS, trust=TRUST, settings=cluster.settings) as failing,
        Host(tmp_path / "waits", plugins=FOLDERS, trust=TRUST, settings=cluster.settings | WAITS) as waiting,
    ):
        fails = await Bench(failing).start(workflow({"wait": wait}))
        await begun(seen)
        nodes = {"long": long, "pause": pause, "length": "acme-far:Length", "after": "Take", "noted": note}
        edges = ["long.value > length.value", "pause.value > after.value", "length.value > pause.after"]
        cluster.start_worker()
        waits = await Bench(waiting).start(workflow(nodes, *edges))
        async with asyncio.timeout(60):
            while not tries.exists() or not notes.exists():
                await asyncio.sleep(0.02)
        stack.callback(cluster.start_again)
        await have_to_connect(0.2, failing, waiting)  # there is no scheduler then
        await asyncio.to_thread(cluster.kill)
        run = await Bench(failing).engine.wait(fails)
        assert run.status is RunStatus.ERROR and run.error is not None
        assert "the connection to the Dask scheduler was lost" in run.error.message
        run = await Bench(failing).run(workflow({"take": "Take"}))
        assert (
            run.error is not None and f"the Dask scheduler at {cluster.address} cannot be reached" in run.error.message
        )
        await asyncio.to_thread(cluster.start_again)
        await have_to_connect(None, failing, waiting)
        run = await Bench(waiting).engine.wait(waits)
        assert (run.status, run.error) == (RunStatus.COMPLETE, None)
        assert run.nodes["after"].output == {"value": 2} and tries.read_text() == "xx"
        noted = run.nodes["noted"].error
        assert noted is not None and "may not be run twice" in noted.message and notes.read_text() == "once\n"
        run = await Bench(failing).run(workflow({"take": "Take"}))
        assert run.error is None
    assert "nodes wait for it" in caplog.text
    assert [record for record in caplog.records if record.name in ("distributed.batched", "distributed.client")] == []


async def test_a_local_cluster_keeps_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "hidden")
    own = {"scheduler": "local", "workers": 1, "nodes": "pure"}
    settings = {f"extensions.tavern-dask.{key}": value for key, value in own.items()}
    async with Host(tmp_path / "project", plugins=FOLDERS, trust=TRUST, settings=settings) as host:
        bench = Bench(host)
        before, others = psutil.Process().children(), {*Client._instances}
        run = await bench.run(workflow({"place": "acme-far:Place"}))
        assert run.error is None and run.nodes["place"].output is not None
        place = run.nodes["place"].output["value"]
        assert isinstance(place, dict) and place["secret"] is None
        started = _children(before)
        assert len(started) == 2 and place["process"] in [child.pid for child in started]
        listening = [c.laddr.ip for p in started for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        assert set(listening) == {"127.0.0.1"}
        if repetitions(0, 1):
            die = {"type": "acme-far:Die", "policy": {"onError": "skip_branch"}}
            turns = {f"turn{n}": {"type": "acme-far:Turn", "inputValues": {"number": n}} for n in range(50)}
            run = await bench.run(workflow({"die": die, "after": "Take", **turns}, "die.value > after.value"))
            error = run.nodes["die"].error
            assert error is not None and "was lost while it ran, for the 5th time" in error.message
            assert [name for name in turns if run.nodes[name].output is None] == [] and run.error is None
            assert run.nodes["after"].status is RunStatus.SKIPPED
        _children(before)[-1].kill()
        run = await bench.run(workflow({"place": {"type": "acme-far:Place", "inputValues": {"value": 1}}}))
        assert run.error is None
        (client,) = {*Client._instances} - others
        await client.close()  # it does so without a scheduler
        run = await bench.run(workflow({"place": {"type": "acme-far:Place", "inputValues": {"value": 2}}}))
        assert run.error is None
        _children(before)[0].suspend()  # the scheduler does not end by itself, and answers nobody
    assert _children(before) == []


def _children(before: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that were started since, the oldest first."""
    return sorted((c for c in psutil.Process().children() if c not in before), key=lambda child: child.create_time())


def expired_and_locked(folder: Path, key: RSAPrivateKey) -> None:
    """Write a certificate of this key that is not valid any more, and the key with a password."""
    name, then = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "host")]), datetime(2020, 1, 1)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, then, then + timedelta(1))
    (folder / "expired").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"password")
    (folder / "locked").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))


async def test_wrong_addresses_and_certificates_are_explained(
    cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("tlsCa", "tlsCert", "tlsKey")
    right = {name: cluster.settings[f"extensions.tavern-dask.{name}"] for name in names}
    monkeypatch.setenv("HOME", str(Path(right["tlsKey"]).parent))
    expired_and_locked(tmp_path, load_pem_private_key(Path(right["tlsKey"]).read_bytes(), None))
    (tmp_path / "other").write_text(Security.temporary().tls_ca_file)
    silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(0), "127.0.0.1")
    port = silent.sockets[0].getsockname()[1]
    there, soon = {"scheduler": cluster.address, **right}, {"connectSeconds": 0.2}
    expired, locked, other, absent = (str(tmp_path / name) for name in ("expired", "locked", "other", "absent"))
    setting = "extensions.tavern-dask"
    wrong = [
        ({"scheduler": "tls://127.0.0.1:1"}, f"not complete; not set: {setting}.tlsCa, {setting}.tlsCert"),
        ({"scheduler": "tcp://127.0.0.1:1", "tlsCa": "ca.pem"}, f"not complete; not set: {setting}.tlsCert, "),
        ({"scheduler": "tcp://127.0.0.1:2", **soon}, "the Dask scheduler at tcp://127.0.0.1:2 cannot be reached"),
        ({"scheduler": f"tcp://127.0.0.1:{port}", **soon}, "cannot be reached: it does not answer in time"),
        (
            {"scheduler": "ftp://example"},
            f"{setting}.scheduler is not such as tls://scheduler.example:8786, or local",
        ),
        ({**there, "scheduler": "tcp://127.0.0.1:2"}, "both sides need TLS"),
        ({**there, "tlsKey": absent}, f"{setting}.tlsKey: {absent} cannot be read: No such file"),
        ({**there, "tlsCa": right["tlsKey"]}, f"{setting}.tlsCa: {right['tlsKey']} is no certificate in PEM"),
        ({**there, "tlsKey": locked}, f"{locked} is no key of tlsCert in PEM, or has a password"),
        ({**there, "tlsCert": expired}, f"{expired} was valid until 2020-01-02 00:00 UTC"),
        ({**there, "tlsCa": other}, "CERTIFICATE_VERIFY_FAILED"),
        (
            {"scheduler": cluster.address.replace("tls", "tcp"), "connectSeconds": 60},
            "both sides need TLS",
        ),
        ({**there, "tlsKey": "~/tlsKey", "scheduler": f" {cluster.address} "}, ""),
    ]
    grow = workflow({"grow": {"type": "acme-far:Grow", "placement": "cluster", "inputValues": {"size": 3}}})
    faults = []
    async with Host(tmp_path / "project") as host:  # whether there is a cluster is read at the start
        await host.services.get(SETTINGS).save(SettingsChange(plugin="tavern-dask", values={"scheduler": "local"}))
    async with silent, Host(tmp_path / "project", plugins=FOLDERS, trust=TRUST) as host:
        for values, expected in wrong:
            change = {key: values.get(key) for key in ("scheduler", "connectSeconds", *names)}
            await host.services.get(SETTINGS).save(SettingsChange(plugin="tavern-dask", values=change))
            run = await Bench(host).run(grow)
            said = run.error.message if run.error is not None else ""
            if expected not in said or bool(expected) != bool(said):
                faults.append((values, said))
    assert faults == []
