// The button for dark and light.

import { write } from "./rows.js";

function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

/** Makes `button` change the theme; `changed` is called when the colours are others. */
export function themeButton(button, changed) {
  const show = () => write(button, `theme: ${theme()}`);
  button.addEventListener("click", () => {
    const all = ["system", "dark", "light"];
    const name = all[(all.indexOf(theme()) + 1) % all.length];
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    try {
      localStorage.setItem("theme", name);
    } catch {
      // A browser that keeps nothing: the choice lasts as long as the page.
    }
    show();
    changed();
  });
  matchMedia("(prefers-color-scheme: light)").addEventListener("change", changed);
  show();
}
