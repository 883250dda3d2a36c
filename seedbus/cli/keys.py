"""The command `seedbus keys`: make keys, and authorise them at a server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbus.cli.options import KEYS, KeysFolder, Output
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import say
from seedbus.scenarios.transports.placement import is_public

if TYPE_CHECKING:
    from seedbus.bus.zeromq.keys import Identity

CLIENT_KEY = "client"

keys = typer.Typer(
    help="Make keys, and authorise those that a server lets in. A running server notices changes.",
    rich_markup_mode="markdown",
)
_Name = Annotated[str, typer.Argument(help="What the key is called.")]


@keys.command("new")
def new_command(name: _Name = CLIENT_KEY, folder: KeysFolder = None) -> None:
    """Make a pair of keys: NAME.secret, which stays on this machine, and NAME.public, which may be shown."""
    with cli_errors():
        from seedbus.bus.zeromq.keys import PUBLIC, SECRET, KeyPair

        key_folder = keys_folder(folder)
        pair = KeyPair.new()
        pair.save(key_folder, name)
        say(pair.public.decode())
        say(f"written: {key_folder / (name + SECRET)} and {name + PUBLIC}", to_stderr=True)


@keys.command("list")
def list_command(folder: KeysFolder = None, output: Output = "text") -> None:
    """List this machine's own keys, and those that its servers let in."""
    with cli_errors():
        from seedbus.bus.zeromq.keys import SECRET, TABLE, KeyPair, read_table

        key_folder = keys_folder(folder)
        own = {path.stem: KeyPair.load(path).public.decode() for path in sorted(key_folder.glob(f"*{SECRET}"))}
        entries = read_table(key_folder / TABLE)
        if output == "json":
            authorised = [
                {"name": each.name, "public": each.public.decode(), "clients": each.spans, "evaluator": each.evaluator}
                for each in entries
            ]
            say(json.dumps({"own": own, "authorised": authorised}))
            return
        for name, public in own.items():
            say(f"own         {public}  {name}")
        for each in entries:
            clients = "all clients" if each.spans is None else "clients " + each.clients
            say(f"authorised  {each.public.decode()}  {each.name}: {clients}{', evaluator' * each.evaluator}")
        if not own and not entries:
            say(f"no keys in {key_folder}; `seedbus keys new` makes some", to_stderr=True)


@keys.command("authorise")
def authorise_command(
    key: Annotated[str, typer.Argument(help="A public key, or the file of one.")],
    name: Annotated[str, typer.Option(help="What it is called from now on.")],
    clients: Annotated[
        str, typer.Option(help="Which clients it may host, by number (0-24,40; 7: number 7 alone), all or none.")
    ] = "all",
    evaluator: Annotated[bool, typer.Option("--evaluator", help="It may host the evaluator, and decides x₀.")] = False,
    folder: KeysFolder = None,
) -> None:
    """Authorise a key, at once. If the name exists, this key replaces its old one."""
    with cli_errors():
        from seedbus.bus.zeromq.keys import TABLE, Entry, check_name, clients_of, public_key, read_table, write_table

        check_name(name)
        try:
            spans = clients_of(clients)
        except ValueError:
            raise ScenarioError(
                f"--clients {clients}", ["expected which, like 0-24 or 0-9,40-49, all or none"]
            ) from None
        table = keys_folder(folder) / TABLE
        entry = Entry(name, public_key(key), spans, evaluator)
        others = [each for each in read_table(table) if each.name != name]
        other_name = next((each.name for each in others if each.public == entry.public), None)
        if other_name is not None:
            raise ScenarioError(
                f"--name {name}", [f"this key is called {other_name} already; `seedbus keys revoke {other_name}`"]
            )
        write_table(table, [*others, entry])
        say(f"{name} is authorised in {table}", to_stderr=True)


@keys.command("revoke")
def revoke_command(name: _Name, folder: KeysFolder = None) -> None:
    """Revoke a key: the processes that use it are sent away within two heartbeats."""
    with cli_errors():
        from seedbus.bus.zeromq.keys import TABLE, read_table, write_table

        table = keys_folder(folder) / TABLE
        entries = read_table(table)
        remaining = [each for each in entries if each.name != name]
        if len(remaining) == len(entries):
            known = ", ".join(each.name for each in entries) or "none"
            raise ScenarioError(f"keys revoke {name}", [f"no such key in {table}; expected one of: {known}"])
        write_table(table, remaining)
        say(f"{name} is revoked in {table}", to_stderr=True)


def keys_folder(option: Path | None) -> Path:
    """Return the folder of keys: that of the --keys option if it is given, else the default folder."""
    if option is not None:
        return option
    if os.environ.get(KEYS):
        return Path(os.environ[KEYS])
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "seedbus" / "keys"


def server_keys(bind: str, option: Path | None, insecure: bool) -> Path | None:
    """Return the folder of a server's keys; None for a server without keys.

    Without the --keys option, it is the default folder if other machines can reach the server.

    Raises:
        ScenarioError: both --keys and --insecure are given.
    """
    if insecure:
        if option is not None:
            raise ScenarioError("--insecure", ["it means no keys, and --keys names some; expected one of them"])
        if is_public(bind):
            say(
                f"seedbus: warning: --insecure: whoever reaches {bind} can read this run, join it and keep it from "
                "its end",
                to_stderr=True,
            )
        return None
    return keys_folder(None) if option is None and is_public(bind) else option


def identity(server_key: str, key: Path | None) -> Identity | None:
    """Return the identity with which a client process connects; None if no server key is given.

    Raises:
        BadKey: a key cannot be read.
        ScenarioError: a secret key is given without the server's key.
    """
    from seedbus.bus.zeromq.keys import Identity, KeyPair, public_key

    if not server_key:
        if key is not None:
            raise ScenarioError(f"--key {key}", ["whom to show it to is not known; expected --server-key too"])
        return None
    pinned = public_key(server_key)
    file = "" if pinned.decode() == server_key else str(Path(server_key).absolute())
    return Identity(KeyPair.load(secret_key(key)), pinned, file)


def secret_key(key: Path | None) -> Path:
    """Return the file of a client's secret key; None: the one that `seedbus keys new` makes where nothing is named."""
    from seedbus.bus.zeromq.keys import SECRET

    return key if key is not None else keys_folder(None) / f"{CLIENT_KEY}{SECRET}"
