"""`phantora image build|list|prune`: the images that sandboxed runs use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phantora.options import SandboxOptions
from phantora_runtime.quantities import format_bytes

app = typer.Typer(
    help="Build, list and remove the images that sandboxed runs use.", rich_markup_mode=None, no_args_is_help=True
)


@app.command()
def build(
    base_image: Annotated[
        str | None,
        typer.Option("--base-image", metavar="IMG", envvar="PHANTORA_BASE_IMAGE", help="What the image is built on."),
    ] = None,
    torch: Annotated[str | None, typer.Option("--torch", metavar="VERSION", help="Version of torch.")] = None,
    requirements: Annotated[
        Path | None, typer.Option("--requirements", metavar="FILE", help="Further packages.")
    ] = None,
    ca_bundle: Annotated[
        Path | None,
        typer.Option("--ca-bundle", metavar="FILE", envvar="PHANTORA_CA_BUNDLE", help="Certificates the build trusts."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build again although it is there.")] = False,
) -> None:
    """Build the image that `phantora sandbox` with the same options uses, and print its name."""
    from phantora.sandbox import check, engine, image

    options = SandboxOptions(base_image=base_image, torch=torch, requirements=requirements, ca_bundle=ca_bundle)
    check.check_image(options)
    typer.echo(image.ensure(engine.connect(), options, rebuild=force))


@app.command("list")
def list_images() -> None:
    """List the images on this machine, with their sizes."""
    from phantora.sandbox import engine, image

    for name, size in image.present(engine.connect()):
        typer.echo(f"{name}\t{format_bytes(size)}")


@app.command()
def prune() -> None:
    """Remove all of these images that no container uses, and what building them left behind."""
    from phantora.sandbox import engine, image

    removed, stages = image.prune(engine.connect())
    for name, size in removed:
        typer.echo(f"removed {name}\t{format_bytes(size)}")
    if stages:
        typer.echo(f"removed what building left behind\t{format_bytes(stages)}")


def register(root: typer.Typer) -> None:
    """Adds the verbs."""
    root.add_typer(app, name="image")
