import type { Hue } from "../../kit/hues";

/** A node as one block of the far view, in pixels of the screen. */
export interface Block {
  x: number;
  y: number;
  width: number;
  height: number;
  hue: Hue;
  title: string;
  icon: CanvasImageSource | undefined;
  alpha: number;
}

/** What blocks are drawn with: the colours of the page, and how near they are seen. */
export interface Look {
  zoom: number;
  colours: Record<"panel" | "line" | "text", string> & { hues: Record<Hue, string> };
  font: string;
  /** How much of the hue is in a block, in percent: none where it has a name. */
  tint: number;
  hasNames: boolean;
  hasIcons: boolean;
}

const LETTERS = 12;
const LINE = 1.2;
const GAP = 4;

/** Below this zoom round corners cannot be told from others, which cost a fifth. */
const ROUND = 0.35;

/** Draw blocks in their order, each with what stands in it. */
export function drawBlocks(to: CanvasRenderingContext2D, blocks: readonly Block[], look: Look): void {
  to.imageSmoothingQuality = "medium"; // icons are drawn at a third of their size
  for (const one of blocks) {
    drawBody(to, one, look);
    if (look.hasIcons) drawFace(to, one, look);
  }
}

function drawBody(to: CanvasRenderingContext2D, block: Block, { colours, zoom, tint }: Look): void {
  const { x, y, width, height, hue, alpha } = block;
  const line = zoom;
  const bar = 3 * zoom;
  const body = tint ? `color-mix(in srgb, ${colours.hues[hue]} ${tint}%, ${colours.panel})` : colours.panel;
  const fill = (style: string, inset: number, top: number, high: number, corners: number[]) => {
    to.fillStyle = style;
    if (zoom < ROUND) return to.fillRect(x + inset, top, width - 2 * inset, high);
    to.beginPath();
    to.roundRect(x + inset, top, width - 2 * inset, high, corners);
    to.fill();
  };
  const corner = 8 * zoom;
  to.globalAlpha = alpha;
  fill(colours.line, 0, y, height, [corner]);
  fill(colours.hues[hue], line, y + line, bar, [corner, corner, 0, 0]);
  fill(body, line, y + line + bar, height - 2 * line - bar, [0, 0, corner, corner]);
}

/** The icon and the name of a node in the middle of its block; the icon alone where there is no room for letters. */
function drawFace(to: CanvasRenderingContext2D, block: Block, { font, zoom, colours, hasNames }: Look): void {
  const { x, y, width, height, alpha } = block;
  const letters = LETTERS * Math.max(1, zoom);
  const size = Math.min(1.5 * letters, height * 0.75);
  to.globalAlpha = alpha;
  to.font = `600 ${letters}px ${font}`;
  const room = width - size - 4 * GAP;
  const most = Math.max(1, Math.min(3, Math.floor(height / (letters * LINE))));
  const lines = hasNames ? linesOf(block.title, room, most, (text) => to.measureText(text).width) : [];
  const wide = Math.max(0, ...lines.map((line) => to.measureText(line).width));
  const left = x + (width - size - (wide && GAP + wide)) / 2;
  // At whole pixels, since all icons of a picture are as sharp then.
  const [iconX, iconY, side] = [left, y + (height - size) / 2, size].map(Math.round) as [number, number, number];
  if (block.icon) to.drawImage(block.icon, iconX, iconY, side, side);
  to.fillStyle = colours.text;
  to.textBaseline = "middle";
  for (const [index, line] of lines.entries()) {
    const middle = y + height / 2 + (index - (lines.length - 1) / 2) * letters * LINE;
    to.fillText(line, left + size + GAP, middle);
  }
}

/** A name in at most so many lines of a width; what does not fit is cut, and says so. */
export function linesOf(title: string, room: number, most: number, widthOf: (text: string) => number): string[] {
  const lines: string[] = [];
  let line = "";
  const words = title.split(/\s+|(?<=\p{Script=Han})/u).filter(Boolean);
  for (const [index, word] of words.entries()) {
    const isJoined = /\p{Script=Han}$/u.test(line);
    const longer = line ? `${line}${isJoined ? "" : " "}${word}` : word;
    if (!line || widthOf(longer) <= room) {
      line = longer;
    } else if (lines.length + 1 < most) {
      lines.push(cut(line, room, widthOf));
      line = word;
    } else {
      line = [line, ...words.slice(index)].join(" ");
      break;
    }
  }
  return [...lines, cut(line, room, widthOf)];
}

function cut(text: string, room: number, widthOf: (text: string) => number): string {
  if (widthOf(text) <= room) return text;
  let end = text.length;
  while (end > 1 && widthOf(`${text.slice(0, end)}…`) > room) end--;
  return `${text.slice(0, end)}…`;
}

const SHAPES = {
  path: ["d"],
  circle: ["cx", "cy", "r"],
  ellipse: ["cx", "cy", "rx", "ry"],
  rect: ["x", "y", "width", "height", "rx"],
  line: ["x1", "y1", "x2", "y2"],
};

/** The lines of an icon that the page draws as SVG; of elements that are no shapes nothing. */
export function pathOf(svg: SVGElement): Path2D {
  const all = new Path2D();
  for (const shape of svg.querySelectorAll("path, circle, ellipse, rect, line, polyline, polygon")) {
    const name = shape.tagName as keyof typeof SHAPES | "polyline" | "polygon";
    const points = shape.getAttribute("points");
    if (points !== null) {
      all.addPath(new Path2D(`M${points}${name === "polygon" ? "Z" : ""}`));
    } else if (name === "path") {
      all.addPath(new Path2D(shape.getAttribute("d") ?? ""));
    } else if (name !== "polyline" && name !== "polygon") {
      const [a = 0, b = 0, c = 0, d = 0, e = 0] = SHAPES[name].map((key) => Number(shape.getAttribute(key) ?? 0));
      const one = new Path2D();
      if (name === "rect") one.roundRect(a, b, c, d, e);
      else if (name === "line") one.addPath(new Path2D(`M${a} ${b}L${c} ${d}`));
      else one.ellipse(a, b, c, name === "circle" ? c : d, 0, 0, 2 * Math.PI);
      all.addPath(one);
    }
  }
  return all;
}
