"""`modelmeter serve` as a process, called by `modelmeter call`."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from tests.support.certificates import write_server
from tests.support.command_line import COMMAND, run, started


async def test_without_a_configuration_the_embedded_provider_answers(replay_address):
    listed = await run("models", "--json", "--address", replay_address)
    answer = await run("call", "replay/answer", "Hi", "--json", "--address", replay_address)
    names = [model["name"] for model in json.loads(listed.out)["models"]]
    assert {"replay/answer", "replay/cut", "replay/refused"} <= set(names)
    completion = json.loads(answer.out)["completion"]
    assert answer.code == 0
    assert completion["text"]
    assert (completion["certainty"], completion["settled"]) == ("EXACT", False)
    assert completion["cost"]["nano_units"] > 0


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("refused", 3, "NONE: nothing was or will be billed"),
        ("rate_limited", 4, "yes after 2 s"),
        ("unreachable", 5, "DID_NOT_HAPPEN"),
        ("cut", 6, "AT_LEAST: a lower bound"),
        ("cut_before_usage", 6, "UNKNOWN: it may have generated"),
        ("bad_json", 6, "UNUSABLE"),
    ],
)
async def test_every_ending_reaches_the_shell_with_its_bill(replay_address, script, code, words):
    schema = '{"type": "object", "properties": {"answer": {"type": "string"}}}'
    asked = ("call", f"replay/{script}", "Hi", "--address", replay_address)
    result = await run(*asked, *(("--schema", schema) if script == "bad_json" else ()))
    assert (result.code, result.out) == (code, "")
    assert words in result.err


async def test_an_unknown_model_is_refused_with_its_name(replay_address):
    result = await run("call", "nosuch", "Hi", "--address", replay_address)
    assert result.code == 3
    assert "nosuch" in result.err


async def test_an_empty_prompt_is_refused_and_the_field_is_named(replay_address):
    result = await run("call", "replay/answer", "-", "--address", replay_address, stdin=b"")
    assert result.code == 3
    assert result.err.splitlines()[1].split()[0] == "text"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_an_idle_server_in_good_order(served, number):
    async with served() as server:
        assert await server.end(number) == 0


@asynccontextmanager
async def starting(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Callable[[], None]]]:
    """Start a server that waits for its configuration; yield it, and what lets it have one."""
    file = folder / "m.toml"
    os.mkfifo(file)
    async with started("serve", "--config", str(file), env={"MODELMETER_LEDGER_URL": "none"}) as process:
        pipe = await asyncio.to_thread(os.open, file, os.O_WRONLY)

        def go_on() -> None:
            text = '[server]\nlisten = "127.0.0.1:0"\n[providers.r]\nkind = "replay"\nallow_direct_models = true\n'
            file.unlink()
            file.write_text(text)  # it is looked at once more
            os.write(pipe, text.encode())
            os.close(pipe)

        yield process, go_on


async def test_sigterm_ends_a_server_that_has_not_begun_to_serve(tmp_path):
    async with starting(tmp_path) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_sighup_does_no_harm_to_a_server_that_has_not_begun_to_serve(tmp_path):
    async with starting(tmp_path) as (process, go_on):
        process.send_signal(signal.SIGHUP)
        go_on()
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"modelmeter is listening on ")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


@pytest.mark.parametrize(("limit", "allowed", "warns"), [("-Sn 256", 4000, False), ("-n 300", 300, True)])
async def test_a_server_may_open_as_many_files_as_its_calls_need_or_says_that_it_may_not(
    limit, allowed, warns
):
    words = ("-c", f'ulimit {limit}; exec "$0" serve --listen 127.0.0.1:0', COMMAND)
    async with started(*words, program="/bin/sh") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert (await process.stdout.readline()).startswith(b"modelmeter is listening on ")
        soft, _ = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        process.send_signal(signal.SIGTERM)
        log = (await process.stderr.read()).decode()
    assert soft == allowed
    assert ("RLIMIT_NOFILE" in log) is warns


async def test_a_second_signal_cuts_what_runs_and_the_caller_is_told_the_bill(served):
    stalled = ("call", "replay/stall", "Hi", "--stream")
    async with served() as server, started(*stalled, "--address", server.address) as caller:
        assert caller.stdout is not None
        assert await caller.stdout.read(1)
        server.process.send_signal(signal.SIGTERM)
        # Two signals in one moment are one to the kernel.
        assert server.process.stderr is not None
        while b'"draining"' not in await server.process.stderr.readline():
            pass
        assert await server.end(signal.SIGTERM) == 0
        _, err = await caller.communicate()
    assert caller.returncode == 6
    assert err.decode().startswith("INTERRUPTED: ")
    assert "ended by DRAIN" in err.decode()


async def test_a_port_in_use_is_told_in_one_line(replay_address):
    result = await run("serve", "--listen", replay_address)
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"cannot listen on {replay_address}: Address already in use; "
        "stop the other process, or choose another port\n"
    )


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("192.0.2.1:0", "Cannot assign requested address; choose an address of this machine"),
        ("host.invalid:0", "choose another address"),
    ],
)
async def test_an_address_that_is_not_this_machine_s_is_told_in_one_line(address, words):
    result = await run("serve", "--listen", address, env={"MODELMETER_ALLOW_INSECURE": "true"})
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert line.startswith(f"cannot listen on {address}: ")
    assert line.endswith(words)


async def test_a_private_address_that_is_taken_is_told_in_one_line(tmp_path, replay_address):
    config = tmp_path / "m.toml"
    config.write_text(
        f'[server]\nprivate_listen = "{replay_address}"\n'
        '[providers.replay]\nkind = "replay"\nallow_direct_models = true\n'
    )
    result = await run("serve", "--config", str(config), "--listen", "127.0.0.1:0")
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert line.startswith(f"cannot listen on {replay_address}: Address already in use")


async def test_a_metrics_address_that_is_taken_is_told_in_one_line(tmp_path, replay_address):
    config = tmp_path / "m.toml"
    config.write_text(
        f'[telemetry.prometheus]\nlisten = "{replay_address}"\n'
        '[providers.replay]\nkind = "replay"\nallow_direct_models = true\n'
    )
    result = await run("serve", "--config", str(config), "--listen", "127.0.0.1:0")
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert line.startswith(
        f"cannot listen on {replay_address} (telemetry.prometheus.listen): Address already"
    )


async def test_an_address_for_other_machines_is_refused_without_tls():
    result = await run("serve", "--listen", "0.0.0.0:0")
    assert result.code == 2
    assert result.err.startswith("option --listen: server.listen: other machines can reach 0.0.0.0:0")


async def test_several_addresses_are_served_and_announced(served, tmp_path):
    socket = f"unix:{tmp_path}/s"
    async with served("--listen", "127.0.0.1:0", "--listen", socket) as server:
        assert server.announced.endswith(f", {socket}\n")
        assert (await run("models", "--address", socket)).code == 0
        assert (await run("models", "--address", server.address)).code == 0


async def test_tls_is_spoken_with_the_configured_certificate(served, tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "m.toml").write_text(
        '[server]\ntls = { certificate = "server.pem", key = "server.key" }\n'
        '[providers.replay]\nkind = "replay"\nallow_direct_models = true\n'
    )
    async with served("--config", f"{tmp_path}/m.toml") as server:
        port = server.address.rpartition(":")[2]
        address = ("--address", f"localhost:{port}", "--ca-file", f"{tmp_path}/ca.pem")
        assert (await run("call", "replay/answer", "Hi", *address)).code == 0
        assert (await run("healthcheck", *address)).code == 0
        assert (await run("healthcheck", *address[:2], "--timeout", "1")).code == 1


async def test_a_probe_shows_a_certificate_to_a_server_that_asks_for_one(served, tmp_path):
    authority = trustme.CA()
    files = write_server(tmp_path, authority, authority)
    own = authority.issue_cert("probe")
    own.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")
    own.private_key_pem.write_to_path(tmp_path / "own.key")
    (tmp_path / "m.toml").write_text(
        f'[server]\ntls = {{ certificate = "{files.certificate}", key = "{files.key}", '
        f'client_ca = "{files.client_ca}" }}\n'
        '[providers.replay]\nkind = "replay"\nallow_direct_models = true\n'
    )
    async with served("--config", f"{tmp_path}/m.toml") as server:
        address = f"localhost:{server.address.rpartition(':')[2]}"
        probe = ("healthcheck", "--address", address, "--timeout", "2")
        shown = ("--client-cert", f"{tmp_path}/own.pem", "--client-key", f"{tmp_path}/own.key")
        env = {"MODELMETER_CA_FILE": str(files.client_ca)}
        without, alone, whole = await asyncio.gather(
            run(*probe, env=env), run(*probe, *shown[:2], env=env), run(*probe, *shown, env=env)
        )
    assert (without.code, whole.code) == (1, 0)
    assert (alone.code, "give both or neither" in alone.err) == (2, True)


async def test_scripts_of_ones_own_are_played_in_turn(served, tmp_path):
    (tmp_path / "s.toml").write_text('[scripts.mine]\ntext = "Well."\n[[scripts.mine.calls]]\nstatus = 503\n')
    (tmp_path / "m.toml").write_text(
        '[providers.r]\nkind = "replay"\nscripts = "s.toml"\n[models.claude]\nprovider = "r"\nmodel = "mine"\n'
    )
    async with served("--config", f"{tmp_path}/m.toml") as server:
        first = await run("call", "claude", "Hi", "--address", server.address)
        second = await run("call", "claude", "Hi", "--address", server.address)
    assert (first.code, second.code, second.out) == (5, 0, "Well.\n")


FIVE_MISTAKES = """\
[server]
drain_second = 3
[providers.a]
kind = "anthropic"
api_key_env = "NOT_SET_ANYWHERE"
[models.one]
provider = "b"
model = "m"
max_output_tokens = 0
price = { currency = "USD", input = "1", output = 2 }
"""
LINES = (2, 5, 7, 9, 10)


async def test_a_configuration_with_five_mistakes_is_told_in_five_lines_and_nothing_is_served(tmp_path):
    (tmp_path / "m.toml").write_text(FIVE_MISTAKES)
    result = await run("serve", "--config", "m.toml", cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert [line.split(": ")[0] for line in result.err.splitlines()] == [f"m.toml:{line}" for line in LINES]


async def test_config_check_tells_the_same_lines(tmp_path):
    (tmp_path / "m.toml").write_text(FIVE_MISTAKES)
    result = await run("config", "check", "m.toml", cwd=tmp_path)
    assert result.code == 2
    assert [line.split(": ")[0] for line in result.out.splitlines()] == [f"m.toml:{line}" for line in LINES]
    assert result.err == "5 mistakes\n"


async def test_a_missing_key_names_its_variable(tmp_path):
    (tmp_path / "m.toml").write_text(
        '[providers.a]\nkind = "anthropic"\napi_key_env = "MY_KEY"\nallow_direct_models = true\n'
    )
    result = await run("serve", "--config", "m.toml", cwd=tmp_path)
    assert result.code == 2
    assert result.err == (
        "m.toml:3: providers.a.api_key_env: the environment variable MY_KEY is not set; "
        "set it, or use api_key_file\n"
    )


async def test_config_check_tells_a_correct_file_and_needs_no_keys_when_told_so(tmp_path):
    (tmp_path / "m.toml").write_text(
        '[providers.a]\nkind = "anthropic"\napi_key_env = "MY_KEY"\n[models.m]\nprovider = "a"\nmodel = "x"\n'
    )
    assert (await run("config", "check", "m.toml", cwd=tmp_path)).code == 2
    result = await run("config", "check", "m.toml", "--no-keys", cwd=tmp_path)
    assert (result.code, result.out) == (0, "m.toml is correct; it serves on 127.0.0.1:50051: m\n")


async def test_a_server_that_takes_calls_is_healthy(replay_address):
    ready = await run("healthcheck", "--address", replay_address)
    alive = await run("healthcheck", "--service", "liveness", env={"MODELMETER_LISTEN": replay_address})
    unknown = await run("healthcheck", "--service", "nosuch", "--address", replay_address)
    assert (ready.code, ready.out) == (0, f"{replay_address}: readiness is SERVING\n")
    assert (alive.code, alive.out) == (0, f"{replay_address}: liveness is SERVING\n")
    assert unknown.code == 1


async def test_no_server_is_not_healthy():
    result = await run("healthcheck", "--address", "127.0.0.1:1")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("127.0.0.1:1: UNAVAILABLE: ")


async def test_a_probe_finds_a_server_that_listens_on_every_address(served):
    env = {"MODELMETER_ALLOW_INSECURE": "true"}
    async with served("--listen", "0.0.0.0:0", env=env) as server:
        port = server.address.rpartition(":")[2]
        result = await run("healthcheck", env={"MODELMETER_LISTEN": f"0.0.0.0:{port},unix:/elsewhere"})
    assert (result.code, result.out) == (0, f"127.0.0.1:{port}: readiness is SERVING\n")


async def test_without_a_configuration_the_books_are_a_file_in_the_working_directory(tmp_path):
    no_override = {"MODELMETER_LEDGER_URL": ""}
    async with started("serve", "--listen", "127.0.0.1:0", cwd=tmp_path, env=no_override) as process:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        address = line.removeprefix("modelmeter is listening on ").strip()
        asked = ("call", "replay/answer", "Hi", "--json", "--address", address)
        completion = json.loads((await run(*asked)).out)["completion"]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert completion["settled"]
    assert (tmp_path / "modelmeter.db").is_file()


async def test_a_ledger_that_cannot_be_opened_is_said_and_nothing_is_served(tmp_path):
    elsewhere = {"MODELMETER_LEDGER_URL": f"sqlite:///{tmp_path}/no/such/folder/ledger.db"}
    result = await run("serve", "--listen", "127.0.0.1:0", env=elsewhere)
    assert result.code == 1
    assert "ledger" in result.err
