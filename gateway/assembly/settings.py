"""What a route's configuration says, as the Router and the Bridge take it."""

from gateway.bridge.settings import Renames, RouteSettings
from gateway.config.images import ImagesConfig
from gateway.config.routes import MatchConfig, RouteConfig
from gateway.core.frozen import replace
from gateway.routing.conditions import Conditions


def conditions(match: MatchConfig) -> Conditions:
    """`match` as the Router takes it."""
    return Conditions(
        match.listener or "",
        match.protocol or "",
        match.path or "",
        match.model or "",
        match.version or "",
        match.operation,
        tuple((name.lower(), text) for name, text in match.header.items()),
    )


def route_settings(config: RouteConfig) -> RouteSettings:
    """What the Bridge needs of a route."""
    translate = config.translate
    settings = RouteSettings(
        model=config.rewrite.model,
        version=config.rewrite.version,
        signature=config.signature,
        cast=translate.cast,
        max_rows=translate.max_rows,
        stream=translate.stream,
        carry_config=translate.carry_config,
        operations=translate.companions,
        rename=Renames(
            tuple((pair.client, pair.backend) for pair in translate.rename.inputs),
            tuple((pair.client, pair.backend) for pair in translate.rename.outputs),
        ),
        constants=translate.constants,
        select=translate.select,
        order=translate.order,
        drop=frozenset(translate.drop),
        translate=translate.for_codecs,
    )
    return settings if translate.images is None else _with_images(settings, translate.images)


def _with_images(settings: RouteSettings, images: ImagesConfig) -> RouteSettings:
    from gateway.bridge.images import ImageInput, ImageOutput  # needs Pillow, which other routes do without

    return replace(
        settings,
        image_inputs={
            each.name: ImageInput(each.layout, each.channels, each.resize, each.scale, each.max_pixels)
            for each in images.inputs
        },
        image_outputs={
            each.name: ImageOutput(each.format, each.lossy, each.layout, each.channels) for each in images.outputs
        },
    )
