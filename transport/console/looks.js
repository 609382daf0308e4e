// The theme and the language of the page, and the buttons that change them; the browser keeps both.

import { icon, say, sayAgain } from "./dom.js";
import { keep, recall } from "./prefs.js";
import { getLanguage, setLanguage } from "./words.js";

const NEXT_THEME = { auto: "light", light: "dark", dark: "auto" };

/** Let two buttons change the looks; `said` is called in another language. */
export function offerLooks({ theme, language }, said) {
  theme.addEventListener("click", () => use(theme, NEXT_THEME[recall("theme") ?? "auto"]));
  language.addEventListener("click", () => {
    setLanguage(getLanguage() === "zh" ? "en" : "zh");
    keep("language", getLanguage());
    sayAgain();
    said();
  });
  use(theme, recall("theme") ?? "auto");
}

function use(button, theme) {
  keep("theme", theme === "auto" ? null : theme);
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.replaceChildren(icon(theme));
  say(button, "bar.theme", { theme }, "label");
  say(button, "bar.theme", { theme }, "title");
}
