/** Where elements stand on the grid of a panel: twelve columns, whole rows, nothing above another and no holes. Pure. */

export const COLUMNS = 12;

export interface Place {
  id: string;
  x: number;
  y: number;
  w: number;
  h: number;
}

const bounded = (value: number, least: number, most: number) => Math.max(least, Math.min(most, value));
const sharesColumns = (a: Place, b: Place) => a.x < b.x + b.w && b.x < a.x + a.w;

/** Bring a place into the grid. Its row stays, since it may say between which two it is wanted. */
function fitted(place: Place): Place {
  const w = bounded(Math.round(place.w), 1, COLUMNS);
  const h = bounded(Math.round(place.h), 1, 1000);
  return { ...place, w, h, x: bounded(Math.round(place.x), 0, COLUMNS - w), y: Math.max(0, place.y) };
}

/**
 * Let each element rise until it stands below another one; of two that want the same row, `first` is above. They are in the
 * order in which they are read, which is the order of a narrow screen.
 */
export function settled(places: Place[], first?: string): Place[] {
  const sorted = places
    .map(fitted)
    .sort((a, b) => a.y - b.y || Number(b.id === first) - Number(a.id === first) || a.x - b.x);
  const done: Place[] = [];
  for (const one of sorted) {
    const above = done.filter((other) => sharesColumns(one, other));
    done.push({ ...one, y: Math.max(0, ...above.map((other) => other.y + other.h)) });
  }
  return done.sort((a, b) => a.y - b.y || a.x - b.x);
}

/** Give an element another place; what stood there goes below it. */
export function moved(places: Place[], wanted: Place): Place[] {
  return settled(
    places.map((one) => (one.id === wanted.id ? wanted : one)),
    wanted.id,
  );
}

/** What an arrow key does to an element: it goes a column aside, or above or below its neighbour; resized, by one. */
export function nudged(places: Place[], id: string, key: string, isResized: boolean): Place[] {
  const one = places.find((place) => place.id === id);
  if (one === undefined) return places;
  const dx = Number(key === "ArrowRight") - Number(key === "ArrowLeft");
  const dy = Number(key === "ArrowDown") - Number(key === "ArrowUp");
  if (isResized) return moved(places, { ...one, w: Math.min(one.w + dx, COLUMNS - one.x), h: one.h + dy });
  if (dx !== 0) return moved(places, { ...one, x: one.x + dx });
  const others = places.filter((other) => other.id !== id && sharesColumns(one, other));
  const above = others.filter((other) => other.y < one.y).sort((a, b) => b.y - a.y)[0];
  const below = others.filter((other) => other.y > one.y).sort((a, b) => a.y - b.y)[0];
  const neighbour = dy < 0 ? above : below;
  return neighbour === undefined ? places : moved(places, { ...one, y: neighbour.y + (dy < 0 ? 0 : 0.5) });
}

/** Where an element of a size is put that is new: below all others. */
export function below(places: Place[], size: { w: number; h: number }): Omit<Place, "id"> {
  return { x: 0, y: Math.max(0, ...places.map((one) => one.y + one.h)), ...size };
}
