// The state of the connection: the pill in the top line, and the banner while no connection comes about.

import { say } from "./dom.js";

const PROBE_AFTER = 3; // consecutive failures before the page checks for the cause

const PARTS = ["link", "link-text", "link-now", "banner"];

export class ConnectionBar {
  /** @param {() => {name: string}} state the link's state */
  constructor(state) {
    this.state = state;
    [this.pill, this.text, this.now, this.banner] = PARTS.map((id) => document.getElementById(id));
  }

  /** Show a state of the link. */
  show(state) {
    this.tick();
    const [text, hint] = this.banner.children;
    if (state.name === "refused") {
      this.banner.hidden = false;
      say(text, "link.closed", state.why);
      hint.hidden = true;
    } else if (state.name === "waiting" && !state.lived && state.failures >= PROBE_AFTER) {
      this.#probe(text, hint, state.failures);
    } else if (state.name !== "connecting") {
      this.banner.hidden = true;
    }
  }

  /** What changes with the time. */
  tick() {
    const state = this.state();
    this.pill.dataset.state = state.name;
    const left = state.until ? Math.max(0, Math.ceil((state.until - Date.now()) / 1000)) : 0;
    say(this.text, `link.${state.name}`, state.name === "waiting" ? { n: left } : {});
    this.now.hidden = state.name !== "waiting" && state.name !== "refused";
    say(this.now, state.name === "refused" ? "link.again" : "link.now");
  }

  /** Check periodically whether the gateway is unreachable or only the WebSocket is blocked. */
  async #probe(text, hint, failures) {
    if (failures !== PROBE_AFTER && failures % 8) return;
    let there = false;
    try {
      there = (
        await fetch(new URL("healthz", document.baseURI), {
          cache: "no-store",
          credentials: "omit",
          signal: AbortSignal.timeout(3_000),
        })
      ).ok;
    } catch {
      // then the gateway is unreachable
    }
    if (this.state().name === "live") return;
    this.banner.hidden = false;
    hint.hidden = true;
    say(text, there ? "link.hint.blocked" : "link.hint.down");
  }
}
