// Before anything is drawn: the choice of dark or light that was made the last time.
"use strict";
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // A browser that keeps nothing: as the system has it.
  }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
}
