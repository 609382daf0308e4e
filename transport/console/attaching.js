// Images and files that go with an input: chosen, pasted or dropped; read here, and sent as base64.

import { button, h, icon, say, tell } from "./dom.js";
import { oneLine, size } from "./format.js";

const MOST = 100; // attachments of an input, the gateway's limit
const BODY_BYTES = 1_048_576; // of a request, where the gateway does not say it
const SHARE = 0.7; // of a request's body that the bytes of attachments may take: base64 is a third longer

export class AttachmentList {
  #files = []; // {name, mediaType, data, size, url: of the thumbnail or null}

  /** @param {{changed: () => void, most: number}} context `most`: bytes of a request */
  constructor({ changed, most = BODY_BYTES }) {
    Object.assign(this, { changed, most: Math.floor(most * SHARE) });
    this.input = h("input", { id: "attach", type: "file", multiple: true, class: "unseen", tabindex: "-1" });
    this.input.setAttribute("aria-hidden", "true");
    this.input.addEventListener("change", () => {
      this.add([...this.input.files]);
      this.input.value = "";
    });
    const choose = button(
      "quiet small",
      { on: { click: () => this.input.click() } },
      icon("file"),
      h("span", { say: "attach.add" }),
    );
    this.list = h("ul", { class: "attached", hidden: true, sayLabel: "attach.list" });
    this.fault = h("p", { class: "fault", role: "alert" });
    const line = h("div", { class: "attach-line" }, choose, h("span", { class: "hint", say: "attach.hint" }));
    this.element = h("div", { class: "attach" }, this.input, line, this.list, this.fault);
  }

  /** The attachments as an order has them. */
  get order() {
    return this.#files.map(({ name, mediaType, data }) => ({
      ...(mediaType ? { mediaType } : {}),
      data,
      ...(mediaType.startsWith("image/") ? {} : { name }),
    }));
  }

  async add(files) {
    tell(this.fault, "");
    for (const file of files) {
      const taken = this.#files.reduce((sum, one) => sum + one.size, 0);
      if (this.#files.length >= MOST || taken + file.size > this.most) {
        say(this.fault, "attach.large", { name: oneLine(file.name, 60), limit: size(this.most) });
        break;
      }
      try {
        this.#files.push(await read(file));
      } catch {
        say(this.fault, "attach.unread", { name: oneLine(file.name, 60) }); // a folder, or a file that is gone
      }
    }
    this.#draw();
  }

  clear() {
    for (const { url } of this.#files) if (url) URL.revokeObjectURL(url);
    this.#files = [];
  }

  #remove(file) {
    this.#files = this.#files.filter((one) => one !== file);
    if (file.url) URL.revokeObjectURL(file.url);
    this.#draw();
    (this.list.querySelector("button") ?? this.element.querySelector("button")).focus();
  }

  #draw() {
    this.list.hidden = this.#files.length === 0;
    this.list.replaceChildren(...this.#files.map((file) => this.#chip(file)));
    this.changed();
  }

  #chip(file) {
    const name = oneLine(file.name, 60);
    const remove = button(
      "icon-only quiet",
      {
        sayLabel: ["attach.remove", { name }],
        sayTitle: ["attach.remove", { name }],
        on: { click: () => this.#remove(file) },
      },
      icon("close"),
    );
    const picture = file.url ? h("img", { src: file.url, alt: "" }) : icon("file");
    return h("li", {}, picture, h("bdi", {}, name), h("span", { class: "hint" }, size(file.size)), remove);
  }
}

async function read(file) {
  const data = await encoded(file);
  const mediaType = file.type;
  const drawn = /^image\/(png|jpeg|gif|webp)$/.test(mediaType);
  return { name: file.name, mediaType, data, size: file.size, url: drawn ? URL.createObjectURL(file) : null };
}

const encoded = (file) =>
  new Promise((done, failed) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => done(reader.result.slice(reader.result.indexOf(",") + 1)));
    reader.addEventListener("error", () => failed(reader.error));
    reader.readAsDataURL(file);
  });
