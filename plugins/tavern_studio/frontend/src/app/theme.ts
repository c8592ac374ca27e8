import { ref, watchEffect } from "vue";

const KEPT = "tavern.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const chosen = ref(localStorage.getItem(KEPT));

/** Whether the page is dark: as the person chose, else as the system is. */
export const isDark = ref(false);

function look(): void {
  isDark.value = chosen.value === null ? system.matches : chosen.value === "dark";
}

system.addEventListener("change", look);
watchEffect(() => {
  look();
  document.documentElement.dataset.theme = isDark.value ? "dark" : "light";
});

export function toggleTheme(): void {
  chosen.value = isDark.value ? "light" : "dark";
  localStorage.setItem(KEPT, chosen.value);
}
