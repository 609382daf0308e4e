// The token: from the fragment of the address to this tab's session storage, and to no other place.

const KEY = "greenroom.token";
let inMemory = null; // for browsers that forbid storage

/** Parse the address: `#run=...` is the run to show, `#token=...` is removed at once. */
export function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  const token = said.get("token");
  if (token !== null) {
    said.delete("token");
    const rest = said.toString();
    history.replaceState(history.state, "", location.pathname + (rest ? `#${rest}` : ""));
    if (token.trim()) setToken(token.trim());
  }
  return { run: said.get("run"), tokenCame: token !== null };
}

/** The address of a run; without a run, the address of the list. */
export const addressOf = (run) => (run ? `#${new URLSearchParams({ run })}` : location.pathname);

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
