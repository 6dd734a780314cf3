"""Flags of the master: a bad value is one clear line and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from croupier.master.__main__ import main
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.weights import Weights
from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.process.tls.flags import TlsFlags

TLS = ("--tls-cert", "/cert", "--tls-key", "/key")
MUTUAL = (*TLS, "--tls-ca", "/ca")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--listen", "nonsense"], "--listen"),
        (["--listen", "1.2.3.4:99999"], "not a port"),
        (["--store", "redis:x"], "memory or sqlite:PATH"),
        (["--store", "sqlite:"], "memory or sqlite:PATH"),
        (["--weights", "ads"], "ROLE=WEIGHT"),
        (["--weights", "ads=0"], "above 0"),
        (["--weights", "ads=-1"], "not a weight"),
        (["--weights", "ads=nan"], "not a weight"),
        (["--weights", "a//b=1"], "illegal component"),
        (["--offer-lease", "0"], "--offer-lease"),
        (["--heartbeat", "nan"], "--heartbeat"),
        (["--agent-timeout", "1"], "--agent-timeout"),
        (["--agent-return-timeout", "0"], "--agent-return-timeout"),
        (["--agent-removals", "0"], "--agent-removals"),
        (["--listen", "0.0.0.0:5050"], "--insecure"),
        (["--log-format", "xml"], "--log-format"),
        (["--event-log-size", "1KB"], "--event-log-size"),
        (["--event-log-size", "0.01MB"], "between 0.1MB and 64GB"),
        (["--event-log-files", "1"], "--event-log-files"),
        (["--store", "etcd://"], "no address given"),
        (["--store", "etcd://h:1/a//b"], "cannot be part of a prefix"),
        (["--lease", "1"], "--lease"),
        (["--lease", "5 parsecs"], "not a duration"),
        (["--lease", "1h"], "between 2 and 60 seconds"),
        (["--store", "etcd://10.0.0.1"], "--etcd-ca"),
        (["--store", "etcd://127.0.0.1", "--etcd-ca", "/no/such/file"], "/no/such/file"),
        (["--store", "etcd://127.0.0.1", "--etcd-cert", "/dev/null"], "needs its key"),
        (["--store", "etcd://127.0.0.1", "--etcd-user", "u"], "password file"),
        (["--store", "etcd://127.0.0.1", "--advertise", "here:0"], "--advertise"),
        (["--store", "etcd://127.0.0.1", "--insecure", "--listen", "0.0.0.0:5050"], "--advertise"),
        (["--etcd-user", "u"], "--etcd-user is for --store etcd://"),
        (["--advertise", "h:1"], "--advertise is for --store etcd://"),
        (["--tls-cert", "/c"], "--tls-cert needs --tls-key"),
        (["--tls-ca", "/ca"], "a master with --tls-ca needs --tls-cert and --tls-key"),
        (["--tls-name", "m"], "--tls-name is for TLS: give --tls-ca"),
        (["--token-listen", "127.0.0.1:1"], "--token-listen is for a master with --tls-ca"),
        (
            ["--listen", "0.0.0.0:1", "--no-auth", *TLS],
            "nothing would be authenticated; give --auth",
        ),
        (["--http", "0.0.0.0:1", "--no-auth", *TLS], "0.0.0.0:1 can be reached"),
        (["--token-listen", "0.0.0.0:1", "--no-auth", *MUTUAL], "0.0.0.0:1 can be reached"),
        (["--listen", "0.0.0.0:1", "--auth", "--insecure"], "--auth without TLS is for loopback"),
        (["--store", "etcd://10.0.0.1", *MUTUAL], "traffic to etcd at 10.0.0.1:2379 would not be"),
        (["--bogus"], "--bogus"),
        (["stray"], "stray"),
    ],
)
def test_bad_flag_is_one_line_and_exit_code_2(
    flags: list[str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["croupier-master", *flags])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert expected in err
    assert len(err.strip().splitlines()) == 1
    assert not out


def test_bad_flag_ends_the_process_with_exit_code_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "croupier.master", "--lease", "1"],
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 2, done.stderr
    assert "--lease" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_weights_are_exact() -> None:
    weights = Weights.parse("ads=2, web=0.5")
    assert weights.by_role == {"ads": 2000, "web": 500}
    assert str(weights) == "ads=2,web=0.5"
    with pytest.raises(InvalidRequest, match="twice"):
        Weights.parse("a=1,a=2")


def test_store_choice_round_trips() -> None:
    for text in ("memory", "sqlite:/a/b.db", "etcd://10.0.0.1:2379,[::1]:23/a/b"):
        assert str(StoreChoice.parse(text)) == text
    assert str(StoreChoice.parse("etcd://h1,h2")) == "etcd://h1:2379,h2:2379/croupier"


def test_authentication_is_on_with_tls() -> None:
    tls = TlsFlags(tls_cert=Path("/cert"), tls_key=Path("/key"))
    everywhere = Address("0.0.0.0", 5050)
    assert not MasterConfig().requires_auth
    assert not MasterConfig(listen=everywhere, insecure=True).requires_auth
    assert MasterConfig(auth=True).requires_auth
    assert MasterConfig(tls=tls).requires_auth
    assert not MasterConfig(tls=tls, auth=False).requires_auth
    assert MasterConfig(tls=tls, listen=everywhere, http=everywhere).requires_auth


def test_non_loopback_address_needs_tls_or_insecure() -> None:
    everywhere = Address("0.0.0.0", 5050)
    with pytest.raises(InvalidRequest, match="--insecure"):
        MasterConfig(listen=everywhere, store=StoreChoice(None))
    assert MasterConfig(listen=everywhere, insecure=True).listen == everywhere
