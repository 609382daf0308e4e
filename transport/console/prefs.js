// Preferences in the browser's storage. Storage may be forbidden or full; the page works without it.

const PREFIX = "greenroom.";

/** A stored preference, or null. */
export function recall(name) {
  try {
    return localStorage.getItem(PREFIX + name);
  } catch {
    return null;
  }
}

/** Keep a preference; null forgets it. */
export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // the preference holds until the page is closed
  }
}
