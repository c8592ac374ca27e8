import { cornerOf, LOOP, type WorkflowDocument, type WorkflowNode } from "../editor/document";
import { lookOf } from "../editor/looks";
import { nameOf, type NodeDefinition } from "../editor/nodetypes";
import { zoneSize } from "../editor/zones";
import type { Hue } from "../kit/hues";

interface Box {
  id: string;
  x: number;
  y: number;
  width: number;
  height: number;
  hue: Hue;
  title: string;
  isZone: boolean;
}

/** A picture of a graph: where its nodes stand, in which hues, and the lines between them. */
export interface Sketch {
  view: { x: number; y: number; width: number; height: number };
  boxes: Box[];
  lines: string[];
}

const SIZE = { width: 220, height: 110 };
const MARGIN = 24;
/** Of a larger graph the first nodes are drawn: more cannot be told apart. */
const MOST = 400;

/** Sketch a workflow from its document alone: sizes are about those that its nodes have on the canvas. */
export function sketchOf(document: WorkflowDocument, byType: ReadonlyMap<string, NodeDefinition>): Sketch | undefined {
  const boxes = document.nodes.slice(0, MOST).map((node) => boxOf(node, document, byType));
  if (boxes.length === 0) return undefined;
  const places = new Map(boxes.map((box) => [box.id, box]));
  const lines = document.edges.flatMap(({ source, target }) => {
    const [from, to] = [places.get(source), places.get(target)];
    return from && to ? [lineBetween(from, to)] : [];
  });
  const x = Math.min(...boxes.map((box) => box.x)) - MARGIN;
  const y = Math.min(...boxes.map((box) => box.y)) - MARGIN;
  const width = Math.max(...boxes.map((box) => box.x + box.width)) + MARGIN - x;
  const height = Math.max(...boxes.map((box) => box.y + box.height)) + MARGIN - y;
  boxes.sort((a, b) => Number(b.isZone) - Number(a.isZone));
  return { view: { x, y, width, height }, boxes, lines };
}

function boxOf(node: WorkflowNode, document: WorkflowDocument, byType: ReadonlyMap<string, NodeDefinition>): Box {
  const isZone = node.type === LOOP;
  const definition = byType.get(node.type);
  return {
    id: node.id,
    ...cornerOf(document, node.id),
    ...(isZone ? zoneSize(node) : SIZE),
    hue: lookOf(definition).hue,
    title: node.displayName || nameOf(definition, node.type),
    isZone,
  };
}

/** From the right side of one to the left side of the other; inside of a zone from its left side, and to its right one. */
function lineBetween(from: Box, to: Box): string {
  const [x1, y1] = [from.isZone && isIn(to, from) ? from.x : from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = [to.isZone && isIn(from, to) ? to.x + to.width : to.x, to.y + to.height / 2];
  const bend = Math.max(40, Math.abs(x2 - x1) / 2);
  return `M ${x1} ${y1} C ${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

/** A sketch as an SVG file with the names of its nodes, in the colours that the page has now. */
export function svgOf({ view, boxes, lines }: Sketch): string {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const safe = (text: string) => text.replace(/[<>&"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const short = (text: string) => safe(text.length > 26 ? `${text.slice(0, 25)}…` : text);
  const drawn = boxes.map(({ x, y, width, height, hue, title, isZone }) => {
    const frame = `x="${x}" y="${y}" width="${width}" height="${height}" rx="8"`;
    const dash = isZone ? ' stroke-dasharray="8 6"' : "";
    const fill = isZone ? "none" : colour("panel");
    return (
      `<rect ${frame} fill="${fill}" stroke="${colour("line-strong")}"${dash}/>` +
      `<rect x="${x}" y="${y}" width="${width}" height="5" rx="2" fill="${colour(`hue-${hue}`)}"/>` +
      `<text x="${x + 14}" y="${y + 32}" fill="${colour("text")}">${short(title)}</text>`
    );
  });
  const paths = lines.map((d) => `<path d="${d}" fill="none" stroke="${colour("text-soft")}" stroke-width="2.5"/>`);
  const ground = `<rect x="${view.x}" y="${view.y}" width="${view.width}" height="${view.height}" fill="${colour("canvas")}"/>`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${view.width}" height="${view.height}" ` +
    `viewBox="${view.x} ${view.y} ${view.width} ${view.height}" font-family="sans-serif" font-size="15" font-weight="600">` +
    `${ground}${paths.join("")}${drawn.join("")}</svg>`
  );
}

/** The longest side of a picture in pixels, which every browser draws. */
const MAX_SIDE = 4000;

/** A sketch as a PNG picture. Raises where the browser draws none. */
export async function pngOf(sketch: Sketch): Promise<Uint8Array> {
  const { width, height } = sketch.view;
  const scale = Math.min(1.5, MAX_SIDE / Math.max(width, height));
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgOf(sketch))}`;
  await picture.decode();
  const canvas = Object.assign(document.createElement("canvas"), {
    width: Math.ceil(width * scale),
    height: Math.ceil(height * scale),
  });
  canvas.getContext("2d")!.drawImage(picture, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
  if (blob === null) throw new Error("the browser draws no picture of this size");
  return new Uint8Array(await blob.arrayBuffer());
}

function isIn(inner: Box, zone: Box): boolean {
  return inner.x >= zone.x && inner.y >= zone.y && inner.x < zone.x + zone.width && inner.y < zone.y + zone.height;
}
