// What HTML cannot say: keys, modal dialogs, times in the reader's zone, copy, theme, the chat's switch.
//
// Hooks in the markup:
//   data-theme-button            cycles System, Light, Dark
//   data-shortcuts               opens the dialog Keyboard shortcuts
//   data-search                  the field that / and Ctrl+K go to
//   data-letter                  a link of the menu, opened by g and the letter
//   data-up data-next data-first data-edit   links and buttons that u ] [ e press
//   data-copy="#id"              copies the text of the element
//   data-compare                 boxes of which two are ticked; data-compare-button waits for two
//   button.chip[aria-pressed]    the chat's switch, with a hidden input memory_enabled in its form
//   data-send                    a text field in which Enter sends its form and Shift+Enter breaks
//   data-empty                   a text field that is emptied when its form was sent
//   data-remember="name"         a field that has what was last sent in it by this browser
//   data-here="address"          a form, with the address of what it begins
//   data-news                    what came in place of the focus, which goes there
//   data-abort="#form"           ends the request of the form
//   data-follow                  a list that scrolls along while it is at its end; "end" begins there

const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// The browser may refuse storage: then a choice lasts as long as the page.
const chosen = new Map();
const recall = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return chosen.get(name) ?? null;
  }
};
const keep = (name, value) => {
  chosen.set(name, value);
  try {
    localStorage.setItem(name, value);
  } catch {
    // `chosen` has it.
  }
};

const make = (tag, text, attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

// Theme: a cookie, so that the first paint of the next page is right.

const THEMES = { system: "System", light: "Light", dark: "Dark" };
const nameTheme = (button) => {
  const theme = document.documentElement.dataset.theme || "system";
  button.title = `Theme: ${THEMES[theme]}`;
  let shown = one("span", button);
  if (!shown) button.append(" ", (shown = make("span", "", { class: "muted", "aria-hidden": "true" })));
  shown.textContent = THEMES[theme];
};
const cycleTheme = () => {
  const names = Object.keys(THEMES);
  const now = names.indexOf(document.documentElement.dataset.theme || "system");
  const next = names[(now + 1) % names.length];
  document.documentElement.dataset.theme = next;
  document.cookie = `holdfast_theme=${next}; Path=/console; SameSite=Lax; Max-Age=31536000`;
  all("[data-theme-button]").forEach(nameTheme);
};

// Times: UTC in the markup; the exact time of the reader's zone on focus and hover.

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const dated = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const zoneTime = (element) => {
  const at = new Date(element.dateTime);
  if (Number.isNaN(at.getTime()) || element.dataset.zoned === element.dateTime) return;
  element.dataset.zoned = element.dateTime;
  element.title = exact.format(at);
  // Relative ones hold in any zone; a date may be another day here.
  if (/\d{4}/.test(element.textContent)) element.textContent = dated.format(at);
};

// Copy

const copyText = async (button) => {
  const from = one(button.dataset.copy);
  if (!from) return;
  const text = "value" in from ? from.value : from.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without leave, or over plain HTTP: select it, for the reader to copy.
    getSelection().selectAllChildren(from);
    return;
  }
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = before), 1500);
};

// Dialogs: shown open by the server; made modal here.

const makeModal = (dialog) => {
  if (dialog.matches(":modal")) return;
  dialog.close();
  dialog.showModal();
  dialog.addEventListener("close", () => one("#main").focus());
};

// What was done or refused is where Tab goes on from: its button Undo, or the field to correct.

const goToNews = (selector) => {
  const news = one(selector);
  if (!news || one("[autofocus]") || document.activeElement !== document.body) return;
  if (!news.matches("input, textarea, select")) news.tabIndex = -1;
  news.focus();
};

// Tick two to compare

const limitCompare = (form) => {
  const boxes = all("[data-compare]", form);
  const ticked = boxes.filter((box) => box.checked).length;
  const button = one("[data-compare-button]", form);
  if (!boxes.length || !button) return;
  button.disabled = ticked !== 2;
  button.title = ticked === 2 ? "" : "Tick two versions";
};

// The chat's switch: off unless this browser chose otherwise.

const MEMORY = "holdfast.memory";
const showMemory = (button, on) => {
  button.setAttribute("aria-pressed", String(on));
  button.textContent = on ? "Memory: on" : "Memory: off";
  const input = one("input[name=memory_enabled]", button.form ?? button.closest("form") ?? document);
  if (input) input.value = String(on);
};

// Rows and keys

const rows = () =>
  all("main .list tbody tr, main .stack").filter((row) => one("a[href]", row) && row.offsetParent);
const goToRow = (step) => {
  const found = rows();
  if (!found.length) return;
  const now = found.findIndex((row) => row.contains(document.activeElement));
  const next = now < 0 ? (step > 0 ? 0 : found.length - 1) : now + step;
  const row = found[Math.min(Math.max(next, 0), found.length - 1)];
  one("a[href]", row).focus();
  row.scrollIntoView({ block: "nearest" });
};
const press = (selector) => {
  const found = one(selector);
  if (!found) return false;
  found.click();
  return true;
};
const search = () => {
  const field = one("[data-search]");
  if (!field) return false;
  field.focus();
  field.select();
  return true;
};

// Lists know the next page only: the one before is in the history, or else the first one is near.
const previousPage = () => {
  if (!one("[data-first]")) return false;
  const entries = window.navigation?.entries() ?? [];
  const before = entries[(window.navigation?.currentEntry?.index ?? 0) - 1];
  if (!before?.url || new URL(before.url).pathname !== location.pathname) return press("[data-first]");
  history.back();
  return true;
};

const SINGLE = {
  "/": search,
  j: () => goToRow(1),
  k: () => goToRow(-1),
  u: () => press("[data-up]"),
  e: () => press("[data-edit]"),
  "]": () => press("[data-next]"),
  "[": () => previousPage(),
};
const HELP = [
  ["/  or  Ctrl+K", "Search everything"],
  ["j  k", "Next row, previous row"],
  ["Enter", "Open the row"],
  ["u", "Up one level"],
  ["e", "Edit"],
  ["[  ]", "Previous page, next page"],
  ["?", "Keyboard shortcuts"],
  ["Esc", "Close; leave a field"],
];
const SINGLE_OFF = "holdfast.single-keys-off";

const shortcuts = () => {
  let dialog = one("#shortcuts");
  if (!dialog) {
    dialog = make("dialog", "", { id: "shortcuts", class: "dialog", "aria-labelledby": "shortcuts-title" });
    const facts = make("dl", "", { class: "facts" });
    const menu = all("[data-letter]").map((link) => [`g ${link.dataset.letter}`, link.textContent]);
    for (const [keys, what] of [...HELP, ...menu]) {
      const term = make("dt", "");
      term.append(make("kbd", keys));
      facts.append(term, make("dd", what));
    }
    const label = make("label", "");
    const box = make("input", "", { type: "checkbox" });
    box.checked = recall(SINGLE_OFF) !== "true";
    box.addEventListener("change", () => keep(SINGLE_OFF, String(!box.checked)));
    label.append(box, "Single keys act (Ctrl+K and Esc always do)");
    const close = make("button", "Close", { type: "button", class: "btn" });
    close.addEventListener("click", () => dialog.close());
    const switchRow = make("p", "");
    switchRow.append(label);
    const end = make("p", "", { class: "row end" });
    end.append(close);
    dialog.append(make("h2", "Keyboard shortcuts", { id: "shortcuts-title" }), facts, switchRow, end);
    document.body.append(dialog);
  }
  if (dialog.open) dialog.close();
  else dialog.showModal();
  return true;
};
SINGLE["?"] = shortcuts;

let waitsForLetter = 0;
// A box to tick takes no text: j goes on from it to the next row.
const ofField = (element) =>
  element.isContentEditable || element.matches?.("input:not([type=checkbox]), textarea, select");

const openLetter = (event) => {
  clearTimeout(waitsForLetter);
  waitsForLetter = 0;
  const link = all("[data-letter]").find((each) => each.dataset.letter === event.key);
  if (!link) return;
  event.preventDefault();
  // The menu may be folded away.
  location.assign(link.href);
};

document.addEventListener("keydown", (event) => {
  if (event.isComposing || event.defaultPrevented) return;
  const target = event.target;
  if (target.matches?.("[data-send]") && event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    if (target.value.trim()) target.form.requestSubmit();
    return;
  }
  // A link with the role of a button opens with Space, too.
  if (event.key === " " && target.matches?.("a[role=button]")) {
    event.preventDefault();
    target.click();
    return;
  }
  if (ofField(target) && event.key === "Escape" && !one("dialog:modal")) target.blur();
  if (ofField(target) || event.altKey) return;
  if (event.ctrlKey || event.metaKey) {
    if (event.key.toLowerCase() === "k" && !one("dialog:modal") && search()) event.preventDefault();
    return;
  }
  if (recall(SINGLE_OFF) === "true") return;
  if (one("dialog:modal")) {
    if (event.key === "?" && one("#shortcuts[open]")) shortcuts();
    return;
  }
  if (waitsForLetter) {
    openLetter(event);
  } else if (event.key === "g") {
    waitsForLetter = setTimeout(() => (waitsForLetter = 0), 1500);
  } else if (SINGLE[event.key]?.() !== false && SINGLE[event.key]) {
    event.preventDefault();
  }
});

document.addEventListener("click", (event) => {
  const pressed = event.target.closest?.("button, a");
  if (!pressed) return;
  if (pressed.matches("[data-theme-button]")) cycleTheme();
  else if (pressed.matches("[data-shortcuts]")) shortcuts();
  else if (pressed.matches("[data-copy]")) copyText(pressed);
  else if (pressed.matches("[data-abort]")) {
    one(pressed.dataset.abort)?.dispatchEvent(new CustomEvent("htmx:abort"));
    all(".working").forEach((line) => line.replaceWith(make("p", "Stopped.", { class: "small muted" })));
  }
  else if (pressed.matches(".chip[aria-pressed]")) {
    const on = pressed.getAttribute("aria-pressed") !== "true";
    keep(MEMORY, String(on));
    showMemory(pressed, on);
  }
});

document.addEventListener("input", (event) => {
  const shown = event.target.type === "range" && one(`output[for="${event.target.id}"]`);
  if (shown) shown.textContent = event.target.value;
});

document.addEventListener("change", (event) => {
  if (event.target.matches?.("[data-compare]")) limitCompare(event.target.form);
});

const sent = new WeakMap();
document.addEventListener("htmx:before:request", (event) => {
  const form = event.target;
  if (!form.matches?.("form")) return;
  all("[data-remember]", form).forEach((field) => keep(field.dataset.remember, field.value));
  if (form.dataset.here) history.replaceState(null, "", form.dataset.here);
  // The request has what was typed.
  all("[data-empty]", form).forEach((field) => {
    sent.set(field, field.value);
    field.value = "";
  });
});
document.addEventListener("htmx:before:response", (event) => {
  const form = event.target;
  if (event.detail.ctx?.response?.status !== 401 || !form.matches?.("form")) return;
  // The sign-in lapsed: sent as a page, the form is kept until it is renewed.
  event.preventDefault();
  all("[data-empty]", form).forEach((field) => (field.value = sent.get(field) ?? field.value));
  form.submit();
});

// A name that its cell cuts off is whole in its title.
document.addEventListener("pointerover", (event) => {
  const name = event.target.closest?.(".list bdi, .workspace, .who");
  if (name && !name.title && name.scrollWidth > name.clientWidth) name.title = name.textContent;
});

// What is on the page, and what live parts put there

const following = new WeakSet();
const follow = (list) => {
  if (following.has(list)) return;
  following.add(list);
  if (list.dataset.follow === "end") list.scrollTop = list.scrollHeight;
  let atEnd = true;
  list.addEventListener("scroll", () => {
    atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  });
  new MutationObserver(() => {
    if (atEnd) list.scrollTop = list.scrollHeight;
  }).observe(list, { childList: true, subtree: true, characterData: true });
};

const dress = (root) => {
  all("time[datetime]", root).forEach(zoneTime);
  all("dialog.dialog[open]", root).forEach(makeModal);
  all("[data-follow]", root).forEach(follow);
  new Set(all("[data-compare]", root).map((box) => box.form)).forEach(limitCompare);
  all(".chip[aria-pressed]:not(:disabled)", root).forEach((button) => {
    showMemory(button, recall(MEMORY) === "true");
  });
  all("[data-remember]:not([readonly])", root).forEach((field) => {
    field.value = recall(field.dataset.remember) || field.value;
  });
};

all("[data-theme-button]").forEach(nameTheme);
dress(document);
goToNews('main [aria-invalid="true"], .alert[role="alert"], .status:has(> *)');
document.addEventListener("htmx:after:settle", () => {
  dress(document);
  goToNews("[data-news]");
});
