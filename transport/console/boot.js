// Runs before the first paint, so that a stored theme or language does not flash in. No other code belongs here.
(() => {
  const read = (name) => {
    try {
      return localStorage.getItem(name);
    } catch {
      return null; // storage may be forbidden: the page works without it
    }
  };
  const page = document.documentElement;
  const theme = read("greenroom.theme");
  if (theme === "light" || theme === "dark") page.dataset.theme = theme;
  const language = read("greenroom.language") ?? navigator.language ?? "en";
  page.lang = /^zh\b/i.test(language) ? "zh-CN" : "en";
})();
