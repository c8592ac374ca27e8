"""The nodes. A picture on an edge is Pillow's own object: nothing is encoded between two nodes but a small preview."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import BytesIO
from typing import Annotated, Any, Literal, TypedDict

from PIL import Image, ImageChops, ImageColor, ImageDraw, ImageFilter, ImageFont, ImageOps

from tavern_host import Blob, InvalidInput, NodeContext, Slot, node

Input = Annotated[Any, Slot("A picture, of another of these nodes.", match_categories=("Picture",))]
Way = Literal["cover", "contain", "stretch"]
Look = Literal["blur", "sharpen", "edges", "grey", "invert"]
Mode = Literal["normal", "multiply", "screen", "lighter", "darker"]
Format = Literal["PNG", "JPEG", "WEBP"]

FITS: dict[str, Callable[[Image.Image, tuple[int, int]], Image.Image]] = {
    "cover": ImageOps.fit,
    "contain": ImageOps.contain,
    "stretch": Image.Image.resize,
}
LOOKS: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "blur": lambda image, strength: image.filter(ImageFilter.GaussianBlur(strength)),
    "sharpen": lambda image, strength: image.filter(ImageFilter.UnsharpMask(strength)),
    "edges": lambda image, _: image.filter(ImageFilter.FIND_EDGES),
    "grey": lambda image, _: ImageOps.grayscale(image).convert("RGB"),
    "invert": lambda image, _: ImageOps.invert(image),
}
MODES: dict[str, Callable[[Image.Image, Image.Image], Image.Image]] = {
    "normal": lambda _, other: other,
    "multiply": ImageChops.multiply,
    "screen": ImageChops.screen,
    "lighter": ImageChops.lighter,
    "darker": ImageChops.darker,
}


class Made(TypedDict):
    """What a node that makes a picture gives."""

    preview: Annotated[Blob, Slot("The picture, small, as a PNG.")]
    picture: Annotated[Any, Slot("The picture, for other nodes of this plugin.", match_categories=("Picture",))]


async def made(work: Callable[[], Image.Image], context: NodeContext) -> Made:
    """Return the picture that `work` makes on a thread, with its preview."""
    side = int(context.plugin.settings.get("preview"))

    def both() -> tuple[Image.Image, bytes]:
        picture = work()
        small = picture.copy()
        small.thumbnail((side, side))
        return picture, encoded(small, "PNG")

    picture, preview = await asyncio.to_thread(both)
    return {"preview": await context.blobs.put(preview, "image/png"), "picture": picture}


def encoded(picture: Image.Image, format: str, quality: int = 90) -> bytes:
    """Return a picture as the content of a file."""
    out = BytesIO()
    picture.save(out, format, quality=quality)
    return out.getvalue()


def size_of(width: int, height: int, context: NodeContext) -> tuple[int, int]:
    """Return a size. Raises `InvalidInput` for one of no pixels, or of more than the setting allows."""
    most = float(context.plugin.settings.get("megapixels")) * 1e6
    if width < 1 or height < 1 or width * height > most:
        raise InvalidInput(f"a picture of {width} by {height} pixels: expected 1 to {most / 1e6:g} megapixels")
    return width, height


@node(category="Pictures", display_name="Load picture", icon="image")
async def load(file: Annotated[bytes, Slot("The content of a picture file.")], context: NodeContext) -> Made:
    """Reads a picture: PNG, JPEG, WebP, GIF, TIFF and what else Pillow knows."""

    def work() -> Image.Image:
        try:
            with Image.open(BytesIO(file)) as opened:  # reads the size, not the pixels
                size_of(*opened.size, context)
                return ImageOps.exif_transpose(opened).convert("RGB")
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise InvalidInput(f"this is no picture that can be read: {error}") from None

    return await made(work, context)


@node(category="Pictures", display_name="Gradient", icon="image")
async def gradient(
    context: NodeContext, width: int = 512, height: int = 512, first: str = "#1b3a5c", second: str = "#f2b26b"
) -> Made:
    """Draws one colour that becomes another from top to bottom."""
    size = size_of(width, height, context)
    try:
        colours = [ImageColor.getrgb(colour)[:3] for colour in (first, second)]
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    grounds = [Image.new("RGB", size, colour) for colour in colours]
    return await made(lambda: Image.composite(grounds[1], grounds[0], Image.linear_gradient("L").resize(size)), context)


@node(category="Pictures", display_name="Resize picture", icon="image")
async def resize(picture: Input, context: NodeContext, width: int = 512, height: int = 512, fit: Way = "cover") -> Made:
    """Makes a picture larger or smaller."""
    size = size_of(width, height, context)
    return await made(lambda: FITS[fit](picture, size), context)


@node(category="Pictures", display_name="Change picture", icon="image")
async def change(
    picture: Input, context: NodeContext, look: Look = "blur", strength: Annotated[float, Slot(min=0, max=50)] = 4
) -> Made:
    """Blurs, sharpens, or changes a picture in another way."""
    return await made(lambda: LOOKS[look](picture, strength), context)


@node(category="Pictures", display_name="Blend pictures", icon="image")
async def blend(
    picture: Input,
    other: Input,
    context: NodeContext,
    mode: Mode = "normal",
    opacity: Annotated[float, Slot(min=0, max=1, step=0.05)] = 0.5,
) -> Made:
    """Lays one picture over another, in the size of the first."""

    def work() -> Image.Image:
        below: Image.Image = picture
        above = ImageOps.fit(other, below.size)
        return Image.blend(below, MODES[mode](below, above), opacity)

    return await made(work, context)


@node(category="Pictures", display_name="Write on picture", icon="image")
async def write(
    picture: Input, text: Annotated[str, Slot(multiline=True)], context: NodeContext, size: int = 48
) -> Made:
    """Writes a text into the middle of a picture."""

    def work() -> Image.Image:
        drawn: Image.Image = picture.copy()  # values on edges are everybody's
        middle = (drawn.width / 2, drawn.height / 2)
        font = ImageFont.load_default(max(1, min(size, 1000)))
        pen = ImageDraw.Draw(drawn)
        pen.multiline_text(middle, text, "white", font, "mm", align="center", stroke_width=2, stroke_fill="black")
        return drawn

    return await made(work, context)


@node(category="Pictures", display_name="Picture file", icon="image")
async def save(
    picture: Input, context: NodeContext, format: Format = "PNG", quality: Annotated[int, Slot(min=1, max=100)] = 90
) -> Annotated[Blob, Slot("The file, for nodes of any plugin.", key="file")]:
    """Makes a file of a picture."""
    content = await asyncio.to_thread(encoded, picture, format, quality)
    return await context.blobs.put(content, f"image/{format.lower()}")
