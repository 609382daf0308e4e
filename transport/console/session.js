// The token: from the fragment of the address to this tab's session storage, and to no other place.

const KEY = "greenroom.token";
/** The address of the inbox. */
export const INBOX = "#inbox";
/** The address of the start page, which a wide screen shows in place of a run, too. */
export const OVERVIEW = "#overview";
const PLACES = ["inbox", "overview"];
let inMemory = null; // for browsers that forbid storage

/**
 * Parse the address: `run` is the run to show, `token` is removed immediately, `fields` are the filters of the list,
 * null in an address that only names a run or a place; `place` is "inbox", "overview" or null.
 */
export function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  const token = said.get("token");
  if (token !== null) {
    said.delete("token");
    const rest = said.toString();
    history.replaceState(history.state, "", location.pathname + (rest ? `#${rest}` : ""));
    if (token.trim()) setToken(token.trim());
  }
  const run = said.get("run");
  const place = PLACES.find((name) => said.has(name)) ?? null;
  for (const name of ["run", ...PLACES]) said.delete(name);
  return { run, place, fields: (run || place) && !said.size ? null : said, tokenCame: token !== null };
}

/** The address of a run; without a run, the address of the list. `fields` are the filters of the list. */
export function addressOf(run, fields = []) {
  const said = String(new URLSearchParams([...(run ? [["run", run]] : []), ...fields]));
  return said ? `#${said}` : location.pathname;
}

export function getToken() {
  try {
    return sessionStorage.getItem(KEY) ?? inMemory;
  } catch {
    return inMemory;
  }
}

export function setToken(token) {
  inMemory = token;
  try {
    if (token === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, token);
  } catch {
    // the token is kept until the page is closed
  }
}
