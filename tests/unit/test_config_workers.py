"""Several workers, and the listener for operators: what goes together, and where each worker listens."""

from __future__ import annotations

import pytest

from modelmeter_server.config import ConfigError, load
from modelmeter_server.config.addresses import last_port, of_worker
from modelmeter_server.core.shares import Share

REST = '[providers.p]\nkind = "replay"\nallow_direct_models = true\n'


@pytest.fixture
def server(tmp_path):
    """Return a function that reads a `[server]` section."""

    def read(text: str, **options):
        (tmp_path / "m.toml").write_text(f"[server]\n{text}\n{REST}")
        return load(tmp_path / "m.toml", {}, **options)

    return read


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("workers = 0", "server.workers", "write an integer from 1 to 256"),
        ('workers = 2\nlisten = "unix:/run/m.sock"', "server.listen", "belongs to one process"),
        ('private_listen = "0.0.0.0:1"', "server.private_listen", "other machines can reach 0.0.0.0:1"),
        (
            'allow_insecure = true\nprivate_listen = "0.0.0.0:1"',
            "server.private_listen",
            "private_allow_insecure",
        ),
        ('listen = "127.0.0.1:7"\nprivate_listen = "127.0.0.1:7"', "server.private_listen", "is public"),
        ('private_listen = "here"', "server.private_listen", 'write "host:port"'),
        ('workers = 3\nprivate_listen = "127.0.0.1:65534"', "server.private_listen", "choose a lower port"),
        ('admin_service = "private"', "server.admin_service", "add private_listen"),
        ('admin_service = "nowhere"', "server.admin_service", '"public", "private" or "both"'),
        ("drain_delay_seconds = -1", "server.drain_delay_seconds", "from 0 on"),
    ],
)
def test_what_does_not_go_together_is_told(server, text, path, words):
    with pytest.raises(ConfigError) as caught:
        server(text)
    (mistake,) = caught.value.mistakes
    assert mistake.path == path
    assert words in str(mistake)


def test_every_worker_needs_a_port_for_prometheus(server):
    with pytest.raises(ConfigError, match=r"telemetry\.prometheus\.listen: 3 workers need as many ports"):
        server('workers = 3\n[telemetry.prometheus]\nlisten = "127.0.0.1:65534"')


@pytest.mark.parametrize(
    "text",
    [
        'private_listen = "127.0.0.1:0"',
        'private_listen = "unix:/run/private.sock"\nadmin_service = "both"',
        'private_listen = "0.0.0.0:1"\nprivate_allow_insecure = true',
        'listen = "127.0.0.1:0"\nprivate_listen = "127.0.0.1:0"',
        'workers = 2\nprivate_listen = "127.0.0.1:65534"',
    ],
)
def test_a_private_listener_may_be_where_it_is_shielded(server, text):
    assert server(text).server.private_listen


def test_the_command_line_says_how_many_workers_there_are(server):
    settings = server("workers = 2", workers=4)
    assert (settings.server.workers, settings.share) == (4, Share(0, 4))


def test_a_worker_is_told_its_place_and_reads_the_rest(server):
    settings = server("workers = 2", share=Share(1, 3))
    assert (settings.server.workers, settings.share) == (2, Share(1, 3))


def test_a_server_without_workers_keeps_all_limits_to_itself(server):
    assert server("").share == Share(0, 1)


@pytest.mark.parametrize(
    ("address", "addresses"),
    [
        ("127.0.0.1:9464", ["127.0.0.1:9464", "127.0.0.1:9465", "127.0.0.1:9466"]),
        ("[::1]:9", ["[::1]:9", "[::1]:10", "[::1]:11"]),
        ("127.0.0.1:0", ["127.0.0.1:0"] * 3),
        ("unix:/run/m.sock", ["unix:/run/m.sock", "unix:/run/m.sock.1", "unix:/run/m.sock.2"]),
        ("", [""] * 3),
    ],
)
def test_what_cannot_be_shared_counts_up_from_worker_to_worker(address, addresses):
    assert [of_worker(address, index) for index in range(3)] == addresses


@pytest.mark.parametrize(
    ("address", "port"), [("127.0.0.1:5", 7), ("unix:/run/s", 0), ("127.0.0.1:0", 0), ("", 0)]
)
def test_the_last_port_that_is_needed_is_known(address, port):
    assert last_port(address, 3) == port
