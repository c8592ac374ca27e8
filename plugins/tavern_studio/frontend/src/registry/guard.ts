import {
  computed,
  defineComponent,
  h,
  onErrorCaptured,
  shallowRef,
  type Component,
  type ComponentInternalInstance,
  type Slots,
  type VNodeChild,
} from "vue";
import type { Owner } from "./owner";

type Shown = (attrs: Record<string, unknown>, slots: Slots, error: unknown, again: () => void) => VNodeChild;

/**
 * Return a component that shows one of a plugin, and `instead` once that has made a mistake: while it is drawn, in an event,
 * or in a promise. What goes wrong inside of `original` is not the plugin's, unless its code took part.
 */
export function guarded(
  owner: Owner,
  where: string,
  component: Component,
  instead: Shown,
  original?: Component,
): Component {
  return defineComponent({
    name: "PluginGuard",
    inheritAttrs: false,
    setup(_props, { attrs, slots, expose }) {
      const failed = shallowRef<{ error: unknown }>();
      expose({ hasFailed: computed(() => failed.value !== undefined) });
      onErrorCaptured((error, instance) => {
        if (failed.value) return undefined; // what is shown instead fails by itself
        if (isInside(instance?.$, original) && !owner.owns(error)) return undefined;
        failed.value = { error };
        owner.fail(where, error);
        return false;
      });
      const again = () => (failed.value = undefined);
      return () => (failed.value ? instead(attrs, slots, failed.value.error, again) : h(component, attrs, slots));
    },
  });
}

function isInside(instance: ComponentInternalInstance | null | undefined, original: Component | undefined): boolean {
  for (let one = instance; one; one = one.parent) if (one.type === original) return original !== undefined;
  return false;
}
