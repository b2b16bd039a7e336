"""``calipers serve``: models over HTTP, with a web page."""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from calipers._server_settings import ServerSettings, hosts_for, is_loopback

TOKEN_VARIABLE = "CALIPERS_TOKEN"  # noqa: S105 - its name, not a token


def serve_command(
    models: Annotated[
        list[str], typer.Argument(help="Model folders; name=folder serves one under that name.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            help="Bearer token that clients must send. Other users of the machine see options: "
            f"prefer --token-file or the environment variable {TOKEN_VARIABLE}."
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File that holds the token.", dir_okay=False)
    ] = None,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token", help="Allow other addresses than this machine's without a token."
        ),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Host name that requests may use; may be repeated."),
    ] = None,
    max_body: Annotated[
        int, typer.Option(min=1, help="Maximum size of a request in MiB.")
    ] = ServerSettings.max_body // 2**20,
    max_rows: Annotated[
        int, typer.Option(min=1, help="Maximum rows of a request.")
    ] = ServerSettings.max_rows,
    max_columns: Annotated[
        int, typer.Option(min=1, help="Maximum columns of a request.")
    ] = ServerSettings.max_columns,
    max_requests: Annotated[
        int, typer.Option(min=1, help="Maximum requests at a time; further ones get 429.")
    ] = ServerSettings.max_requests,
    max_memory: Annotated[
        int,
        typer.Option(min=1, help="Maximum memory of all requests in MiB; further ones get 503."),
    ] = ServerSettings.max_memory // 2**20,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Maximum seconds for a request.")
    ] = ServerSettings.timeout,
    window: Annotated[
        int, typer.Option(min=1, help="Rows in the rolling width and coverage of /metrics.")
    ] = ServerSettings.window,
    remember: Annotated[
        int, typer.Option(min=0, help="Predicted rows that are kept until their labels arrive.")
    ] = ServerSettings.remember,
    adapt: Annotated[
        bool,
        typer.Option(
            "--adapt", help="Adapt intervals to posted labels, and save that in the model folder."
        ),
    ] = ServerSettings.adapt,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log a line for each request.")
    ] = False,
) -> None:
    """Serve models over HTTP: a web page, predictions, metrics.

    Run calipers serve model/ and open the address that it prints. SIGINT or SIGTERM stops the
    server after it has answered the requests it has accepted.
    """
    secret = _token(token, token_file)
    from calipers import serve as library
    from calipers.cli._labelled import refuse_several_targets
    from calipers.storage import ModelFileError

    if not is_loopback(host) and secret is None and not no_token:
        raise typer.BadParameter(
            f"{host} can be reached from other machines: give a token, or --no-token if a proxy "
            "in front checks one"
        )
    settings = ServerSettings(
        token=secret,
        allowed_hosts=hosts_for(host, tuple(name.lower() for name in allow_host or ())),
        max_body=max_body * 2**20,
        max_rows=max_rows,
        max_columns=max_columns,
        max_requests=max_requests,
        max_memory=max_memory * 2**20,
        timeout=timeout,
        window=window,
        remember=remember,
        adapt=adapt,
    )
    try:
        app = library.create_app(models, settings)
    except ModelFileError:
        refuse_several_targets(library.named_folder(model)[1] for model in models)
        raise

    def notify(address: str) -> None:
        typer.echo(f"serving {len(models)} model{'s' * (len(models) > 1)} at {address}")

    def notify_stopped() -> None:
        with suppress(OSError):  # nobody may be reading any more
            typer.echo("stopped")

    level = "info" if log_requests else "warning"
    run = partial(library.run, notify=notify, notify_stopped=notify_stopped)
    run(app, settings, host=host, port=port, log_level=level)


def _token(token: str | None, file: Path | None) -> str | None:
    """Return the token from the option, the file or the environment, in this order."""
    if token is not None and file is not None:
        raise typer.BadParameter("give --token or --token-file, not both")
    if file is not None:
        try:
            token = file.read_text("utf-8").strip()
        except OSError as error:
            raise typer.BadParameter(f"--token-file {file}: {error.strerror}") from None
        if not token:
            raise typer.BadParameter(f"--token-file {file}: the file is empty")
    return token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
