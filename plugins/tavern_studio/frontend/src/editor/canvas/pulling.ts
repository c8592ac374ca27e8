import { shallowRef } from "vue";
import type { Size } from "../zones";

/** The size that a box on the canvas has while the pointer pulls its corner; what it is in the end is kept. */
export function usePulling(
  box: () => HTMLElement | undefined,
  size: () => Size,
  least: () => Size,
  keep: (size: Size) => void,
) {
  const pulled = shallowRef<Size>();

  function pull(down: PointerEvent): void {
    const grip = down.currentTarget as HTMLElement;
    const [{ width, height }, smallest, element] = [size(), least(), box()];
    if (element === undefined) return;
    const zoom = element.getBoundingClientRect().width / element.offsetWidth;
    grip.setPointerCapture(down.pointerId);
    grip.onpointermove = (move) => {
      pulled.value = {
        width: Math.max(smallest.width, Math.round(width + (move.clientX - down.clientX) / zoom)),
        height: Math.max(smallest.height, Math.round(height + (move.clientY - down.clientY) / zoom)),
      };
    };
    grip.onlostpointercapture = () => {
      grip.onpointermove = grip.onlostpointercapture = null;
      const now = pulled.value;
      pulled.value = undefined;
      if (now) keep(now);
    };
  }

  return { pulled, pull };
}
