import { expect, test } from "vitest";
import { durationTicks, nearestPlace, scaleOf, shown, thinned, timeTicks, unbroken } from "../src/kit/charts/scale";

test("an axis goes from nothing to above the greatest, in steps that people count in", () => {
  expect(scaleOf([3, 17, undefined, 9], "count").ticks).toEqual([0, 5, 10, 15, 20]);
  expect(scaleOf([0, 0], "count").ticks).toEqual([0, 1]);
  expect(scaleOf([1], "count").ticks).toEqual([0, 1]);
  expect(scaleOf([], "count").most).toBe(1);
  expect(scaleOf([150 * 1024 ** 2], "bytes").ticks.map((one) => shown(one, "bytes"))).toEqual([
    "0 B",
    "64 MiB",
    "128 MiB",
    "192 MiB",
  ]);
});

test("moments stand at whole minutes, quarters or hours, and durations at round ones", () => {
  const hour = Date.UTC(2030, 0, 1, 12, 7);
  expect(timeTicks(hour, hour + 3_600_000, 5).every((one) => one % 900_000 === 0)).toBe(true);
  expect(timeTicks(hour, hour + 3_600_000, 5)).toHaveLength(4);
  expect(durationTicks(42, 4)).toEqual([0, 20, 40]);
  expect(durationTicks(95_000, 5)).toEqual([0, 30_000, 60_000, 90_000]);
});

test("numbers are shown with their units", () => {
  expect([
    shown(1234, "count"),
    shown(2.5, "perMinute"),
    shown(1536, "bytes"),
    shown(0.42, "ms"),
    shown(undefined, "ms"),
  ]).toEqual(["1,234", "2.5/min", "1.5 KiB", "0.4 ms", "–"]);
});

test("a line is broken where nothing is known, and of many numbers the extremes stay", () => {
  expect(unbroken([1, 2, undefined, 3])).toEqual([[0, 1], [3]]);
  const many = Array.from({ length: 1000 }, (_, at) => (at === 500 ? 99 : 1));
  expect(thinned(many, 100)).toHaveLength(100);
  expect(Math.max(...thinned(many, 100).map((one) => one.value))).toBe(99);
  expect(nearestPlace([0, 10, 20], 14)).toBe(1);
});
