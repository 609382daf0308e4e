// Where the token is: in the fragment when it comes, then in this tab's session storage and nowhere else.

const KEY = "greenroom.token";
let inMemory = null; // for browsers that forbid storage

/** What the address says: `#run=...` is the run to show, `#token=...` is taken out at once. */
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

/** The address of a run; of the list without one. */
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
    // it holds until the page is closed
  }
}
