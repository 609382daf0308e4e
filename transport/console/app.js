// The console: the signed-in principal, the shown run, and the connections between the parts.

import { Api } from "./api.js";
import { ConnectionBar } from "./connectionbar.js";
import { askCancel, askPause, askToken, dialogOpen, showHelp, singleKeys } from "./dialogs.js";
import { announce, h, icon, say, sayAgain, tell } from "./dom.js";
import { Entries, lookAfter } from "./entries.js";
import { fieldsOf, filtersOf, queryOf } from "./filters.js";
import { number } from "./format.js";
import { Inbox } from "./inbox.js";
import { Link } from "./link.js";
import { RunModel } from "./model.js";
import { showQueues } from "./queues.js";
import { showRules } from "./rules.js";
import { offerLooks } from "./looks.js";
import { askStart } from "./newrun.js";
import { explain, toast } from "./messages.js";
import { Narrow } from "./narrow.js";
import { Overview } from "./overview.js";
import { Page } from "./page.js";
import { Places } from "./places.js";
import { Runs } from "./runs.js";
import { INBOX, addressOf, getToken, readAddress, setToken } from "./session.js";
import { knows, t } from "./words.js";

const NARROW = matchMedia("(max-width: 760px)"); // as in style.css
const HIDDEN_MS = 500; // between two updates of a hidden page

const part = (id) => document.getElementById(id);

class App {
  #entries = new Entries();
  #current = null;
  #scheduled = false;

  constructor() {
    const address = readAddress();
    const socket = new URL("v1/ws", document.baseURI);
    socket.protocol = socket.protocol.replace("http", "ws");
    this.api = new Api(getToken);
    this.link = new Link({ url: socket.href, token: getToken, listener: this });
    this.bar = new ConnectionBar(() => this.link.state);
    this.page = new Page({
      may: (scope) => this.may(scope),
      me: () => this.principal,
      command: (frame) => this.link.command(frame),
      connected: () => this.link.state.name === "live",
      explain,
      keys: singleKeys,
      open: (run) => this.#open(run),
      follow: (run) => {
        this.#entries.take(run).degraded = null;
        this.#follow(run);
      },
      revive: (run) => this.api.revive(run),
      artifact: (run, artifact) => this.api.artifact(run, artifact),
      evidence: (run) => this.api.evidence(run),
      prices: () => this.api.prices(),
      again: (given) => this.#start(given),
      messages: (thread, query) => this.api.messages(thread, query),
      part: (run, file) => this.api.part(run, file),
    });
    this.runs = new Runs(
      {
        api: this.api,
        link: this.link,
        me: () => this.principal,
        changed: (waiting) => this.#waiting(waiting),
        onUnauthenticated: () => this.#signIn(true),
        explain,
      },
      {
        list: part("runs"),
        scroller: part("runs-scroll"),
        more: part("more"),
        note: part("runs-note"),
        asOf: part("runs-as-of"),
      },
    );
    this.overview = new Overview(part("overview"), {
      api: this.api,
      link: this.link,
      me: () => this.principal,
      show: (filters) => this.#list(filters),
    });
    this.narrow = new Narrow({
      changed: (filters) => this.#filtered(filters),
      agents: async () => (this.may("start") ? await this.api.agents() : []),
      me: () => this.principal,
    });
    this.places = new Places(part("places"));
    this.inbox = new Inbox(part("inbox"), {
      api: this.api,
      link: this.link,
      me: () => this.principal,
      may: (scope) => this.may(scope),
      keys: singleKeys,
      explain,
      open: () => (location.hash = INBOX),
      counted: (n, more) => this.#asked(n, more),
    });
    this.#controls();
    sayAgain();
    if (address.fields) this.narrow.set(filtersOf(address.fields));
    this.#go(address.run, address.place);
    this.link.open();
    setInterval(() => document.hidden || this.#tick(), 1_000);
    // animation frames do not fire in a hidden page, but its title is visible
    document.addEventListener("visibilitychange", () => document.hidden && this.#scheduled && this.#later());
  }

  /** True if the principal has this scope. */
  may(scope) {
    return [scope, "admin"].some((one) => this.scopes?.includes(one));
  }

  // --- --- notifications of the link ---------------------------------------------------------------------------------

  state(state) {
    if (state.name === "waiting") this.#steady = false;
    this.bar.show(state);
    this.#schedule();
    if (state.name === "live") this.#welcomed(this.link.welcome);
    else {
      this.runs.offline();
      if (state.name !== "waiting" && state.name !== "connecting") this.overview.connected(false);
    }
    if (state.name === "unauthenticated") this.#signIn(state.refused);
    if (state.name === "waiting" && state.failures === 1) announce(t("link.said.waiting"));
  }

  listed(watch, frame) {
    this.runs.listed(watch, frame);
    this.overview.listed(watch, frame);
    if (frame.counts) this.overview.counted(frame.counts);
  }

  counted(counts) {
    this.runs.counted(counts);
    this.overview.counted(counts);
  }

  asked(frame) {
    this.inbox.asked(frame);
  }

  unlisted(watch, error) {
    this.inbox.unlisted(watch, error);
    this.runs.unlisted(watch, error);
  }

  subscribed(run, frame) {
    const entry = this.#entries.get(run);
    entry.head = frame.head;
    this.#schedule();
  }

  event(run, event) {
    const entry = this.#entries.get(run);
    try {
      entry.model.apply(event);
    } catch (error) {
      reportError(error); // the event counts as applied: applying it again would fail again, without end
      entry.model.add({ kind: "unknown", type: event.type, payload: event.payload, at: Date.parse(event.timestamp) });
    }
    entry.degraded = null; // the run has an owner
    if (entry.live) this.page.measureSkew(event);
    this.#schedule();
  }

  live(run) {
    this.#entries.get(run).live = true;
    this.#schedule();
  }

  reset(run) {
    const entry = this.#entries.get(run);
    Object.assign(entry, { model: new RunModel(run), live: false, notice: ["run.reset", {}] });
    this.#schedule();
  }

  ended(run, frame) {
    const entry = this.#entries.get(run);
    entry.live = true;
    if (frame.reason === "degraded") entry.degraded = { detail: frame.detail, asked: null, at: Date.now() };
    if (frame.reason === "gone") entry.notice = ["run.gone", {}];
    this.#schedule();
  }

  refused(run, error) {
    this.#entries.drop(run);
    if (this.#current?.run === run) {
      this.#current = null;
      this.overview.show(false);
      this.page.missing(explain(error));
      document.title = t("app.title");
    }
  }

  // --- --- the principal ---------------------------------------------------------------------------------------------

  #welcomed({ principal, scopes }) {
    document.querySelector("dialog.sign-in")?.close();
    const changed = JSON.stringify(this.scopes) !== JSON.stringify(scopes);
    Object.assign(this, { principal, scopes });
    part("you").hidden = part("out").hidden = false;
    tell(part("you"), principal);
    say(part("you"), "bar.you", { name: principal, scopes: scopes.join(", ") }, "title");
    part("start").hidden = !this.may("start");
    part("queues").hidden = !this.may("admin");
    part("rules").hidden = !this.may("follow");
    if (this.#steady === false) announce(t("link.said.live"));
    this.#steady = true;
    if (this.may("follow")) this.inbox.watch();
    if (this.may("follow")) this.runs.open();
    else this.runs.forbidden();
    this.overview.connected(this.may("follow"));
    if (changed && this.#current) this.page.show(this.#current);
  }
  #steady = null;

  #signIn(refused) {
    if (refused) setToken(null);
    this.runs.clear();
    this.inbox.clear();
    for (const id of ["you", "out", "start", "queues", "rules"]) part(id).hidden = true;
    askToken({
      refused,
      onToken: (token) => {
        setToken(token);
        this.link.open();
      },
    });
  }

  #signOut() {
    setToken(null);
    this.link.close();
    this.#entries.clear();
    this.#current = null;
    this.scopes = null;
    this.page.show(null);
    this.overview.show(false);
    this.#signIn(false);
  }

  // --- --- the shown run ---------------------------------------------------------------------------------------------

  /** Show the run in the address, or another place: the inbox, or the start page. */
  #go(run, place = null) {
    part("shell").dataset.view = place ?? (run ? "run" : "list");
    this.inbox.show(place === "inbox");
    this.overview.show(place === "overview" || !(run || place));
    this.places.show(place ?? (run || NARROW.matches ? null : "overview"));
    if (run === null && !this.#current) this.page.show(null); // in place of a run that is not there
    if (this.#current?.run === run) return;
    if (this.#current) this.#current.cursor = this.link.leave(this.#current.run);
    this.#current = run ? this.#entries.take(run) : null;
    this.runs.select(run);
    this.page.show(this.#current);
    if (this.#current) this.#follow(run);
    this.#title();
  }

  #follow(run) {
    const entry = this.#entries.take(run);
    this.link.follow(run, entry.cursor ?? this.link.leave(run) ?? undefined);
    entry.cursor = undefined;
  }

  #open(run) {
    const address = addressOf(run, this.#fields);
    if (location.hash !== address) history.pushState(null, "", address);
    this.#go(run);
  }

  /** Show the runs of these filters: in the list, which a narrow screen shows alone. */
  #list(filters) {
    this.#open(null);
    this.narrow.set(filters);
    part("search").focus({ preventScroll: true });
  }

  /** An address that only names a run, such as that of a row, leaves the list as it is. */
  #addressChanged() {
    const { run, place, fields, tokenCame } = readAddress();
    if (tokenCame) this.link.open();
    this.#go(run, place);
    if (fields) this.narrow.set(filtersOf(fields));
    else if (!place) this.#keepAddress(run);
  }

  /** The list has other filters: they are in the address, so that it can be sent, kept and loaded again. */
  #filtered(filters) {
    this.#fields = fieldsOf(filters);
    this.runs.filter(filters.show, queryOf(filters));
    if (!readAddress().place) this.#keepAddress(readAddress().run);
  }
  #fields = [];

  #keepAddress(run) {
    const address = addressOf(run, this.#fields);
    if (location.hash !== address) history.replaceState(history.state, "", address);
  }

  // --- drawing -------------------------------------------------------------------------------------------------------

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    if (document.hidden) this.#later();
    else requestAnimationFrame(() => this.#draw());
  }

  #later() {
    setTimeout(() => this.#draw(), HIDDEN_MS);
  }

  #draw() {
    this.#scheduled = false;
    this.page.draw();
    if (this.#current?.live) this.runs.overlay(this.#current.model);
    this.#title();
  }

  #tick() {
    this.page.tick();
    this.bar.tick();
    if (this.#current && this.link.state.name === "live" && this.may("follow"))
      lookAfter(
        this.#current,
        this.api,
        (run) => this.#follow(run),
        () => this.#schedule(),
      );
  }

  #title() {
    const entry = this.#current;
    const waiting = Math.max(this.waiting ?? 0, this.inbox.list.count, entry?.model.open.length ?? 0);
    const { agent, shown: stage } = entry?.model ?? {};
    const named = agent && stage ? `${agent} · ${knows(`stage.${stage}`) ? t(`stage.${stage}`) : stage} - ` : "";
    const title = `${waiting ? `(${number(waiting)}) ` : ""}${named}${t("app.title")}`;
    if (document.title !== title) document.title = title;
  }

  #asked(count, more) {
    this.places.counted(count, more);
    this.#title();
  }

  #waiting(count) {
    this.waiting = count;
    const badge = part("waiting");
    badge.hidden = count === 0;
    tell(badge, number(count));
    this.#title();
  }

  // --- controls ------------------------------------------------------------------------------------------------------

  #controls() {
    const named = (id, drawn, key) => {
      const control = part(id);
      control.replaceChildren(icon(drawn));
      say(control, key, {}, "label");
      say(control, key, {}, "title");
      return control;
    };
    named("help", "help", "bar.help").addEventListener("click", () => showHelp());
    named("queues", "queues", "bar.queues").addEventListener("click", () => showQueues(this.api, explain));
    const rules = () => showRules({ api: this.api, explain, mayRevoke: this.may("decide") });
    named("rules", "lock", "bar.rules").addEventListener("click", rules);
    named("out", "out", "bar.out").addEventListener("click", () => this.#signOut());
    part("back").replaceChildren(icon("back"));
    part("back").addEventListener("click", () => this.#open(null));
    part("start").replaceChildren(icon("plus"), h("span", { say: "bar.start" }));
    say(part("start"), "bar.start", {}, "label");
    part("start").addEventListener("click", () => this.#start());
    part("pause").replaceChildren(icon("hand"), h("span", { say: "run.pause" }));
    say(part("pause"), "run.pause", {}, "label");
    part("pause").addEventListener("click", () => this.#pause());
    const long = h("span", { class: "long", say: "run.cancel" });
    part("cancel").replaceChildren(long, h("span", { class: "short", say: "run.cancel.short" }));
    say(part("cancel"), "run.cancel", {}, "label");
    part("cancel").addEventListener("click", () => this.#cancel());
    part("link-now").addEventListener("click", () => this.link.now());
    part("skip").addEventListener("click", () => part("main").focus());
    offerLooks({ theme: part("theme"), language: part("language") }, () => this.#again());
    addEventListener("hashchange", () => this.#addressChanged());
    addEventListener("popstate", () => this.#addressChanged());
    document.addEventListener("keydown", (event) => this.#key(event));
    addEventListener("error", (event) => this.#bug(event.message));
    addEventListener("unhandledrejection", (event) => this.#bug(String(event.reason?.message ?? event.reason)));
  }

  #start(given) {
    if (!this.may("start") || dialogOpen()) return;
    askStart({
      agents: () => this.api.agents(),
      start: (order) => this.api.start(order),
      onStarted: (ack) => this.#open(ack.run),
      may: (scope) => this.may(scope),
      most: this.link.welcome?.limits?.bodyBytes,
      explain,
      given,
    });
  }

  #cancel() {
    askCancel({
      run: this.#current.run,
      cancel: (frame) => this.link.command(frame),
      onCancelled: () => toast("cancel.sent"),
      onClosed: () => this.page.land(),
      explain,
    });
  }

  #pause() {
    askPause({
      run: this.#current.run,
      pause: (frame) => this.link.command(frame),
      onPaused: () => toast("pause.sent"),
      onClosed: () => this.page.land(),
      explain,
    });
  }

  /** Redraw in another language. */
  #again() {
    this.runs.again();
    this.overview.again();
    this.inbox.again();
    this.page.again();
    this.#title();
  }

  #key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || dialogOpen())
      return;
    if (event.target.closest?.("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const inList = part("runs").contains(event.target);
    if (this.inbox.shown && this.inbox.key(event)) return event.preventDefault();
    if (inList && (event.key === "ArrowDown" || event.key === "ArrowUp"))
      this.runs.move(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Escape") this.#back();
    else if (!singleKeys() || !this.#single(event.key)) return;
    event.preventDefault();
  }

  /** Handle a single-letter shortcut; false if the letter has no meaning. */
  #single(key) {
    switch (key) {
      case "j":
      case "k":
        this.runs.move(key === "j" ? 1 : -1);
        return true;
      case "n":
        this.#start();
        return true;
      case "/":
        this.narrow.focus();
        return true;
      case "w":
        return this.page.approvals.focusNext();
      case "l":
        this.page.timeline.toLatest();
        return true;
      case "i":
        location.hash = INBOX;
        return true;
      case "?":
        showHelp();
        return true;
      default:
        return false;
    }
  }

  #back() {
    const narrow = getComputedStyle(part("back")).display !== "none";
    if (narrow && (this.#current || part("shell").dataset.view === "overview")) return this.#open(null);
    this.runs.move(0);
  }

  #bug(message) {
    toast("app.bug", { message }, "bad");
  }
}

new App();
