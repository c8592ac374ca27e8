import { h, type Component, type FunctionalComponent } from "vue";

interface Props {
  /** What it does, for those who hear the page and those who point at it. */
  label: string;
  icon: Component;
  size?: number;
}

/** A button that is an icon. */
const IconButton: FunctionalComponent<Props> = ({ label, icon, size }) =>
  h(
    "button",
    { type: "button", class: "button icon", "aria-label": label, title: label },
    h(icon, { size: size ?? 16, "aria-hidden": "true" }),
  );
IconButton.props = { label: null, icon: null, size: null };

export default IconButton;
