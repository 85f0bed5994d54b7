// The keys of the stage. What is pressed goes to the page as a list of [number, action]; numbers only grow, so that the page
// acts on each once. Keys that an input, a list or a slider in hand needs are left to it.

const ACTIONS = {
  ArrowRight: "next", PageDown: "next", ArrowLeft: "back", PageUp: "back", Home: "first",
  " ": "run", r: "run", l: "scale", p: "reveal", n: "preset", Escape: "leave",
};
const KEPT = 16;
const AGAIN_MS = 1500;
const DISMISSED = "attnlab-keys-dismissed";
const ROOT_SIZE = "max(17px, min(1.33vw, 2.36vh))";  // 17 px at 1280 × 720; all type and spacing of the page are in rem
const LINE = "→ next · ← back · space run · L log / linear · P next path · N next preset · F full screen · esc leave";

function typing(element) {
  return element?.isContentEditable || element?.matches?.("textarea, select, input:not([type=range], [type=radio], [type=checkbox])");
}

function choosing(element) {  // the arrows move what is chosen
  return element?.matches?.("input[type=range], input[type=radio], [role=slider], [role=radio], [role=listbox], [role=combobox]");
}

function hear(view, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const moves = key.startsWith("Arrow") || key.startsWith("Page") || key === "Home";
  if (moves && choosing(event.target)) return;
  if (key === " " && event.target?.closest?.("button, label, [role=radio], [role=checkbox]")) return;
  if (key === "f") {
    document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen?.();
  } else if (!(key in ACTIONS)) {
    return;
  } else {
    const player = ACTIONS[key] === "run" && document.querySelector('.attnlab-tiles [data-do="play"]');
    if (player) player.click();
    else press(view, ACTIONS[key]);
  }
  event.preventDefault();
  event.stopPropagation();  // Streamlit has an R of its own
}

function press(view, action) {
  view.number = Math.max(Date.now(), view.number + 1);
  view.presses = [...view.presses, [view.number, action]].slice(-KEPT);
  view.tell(view.presses);
  sayAgain(view, view.number, AGAIN_MS);
}

// What the page has not heard is said again, ever later: each time costs a run of the page.
function sayAgain(view, number, after) {
  setTimeout(() => {
    if (view.heard >= number || view.number !== number || !view.line.isConnected) return;
    view.tell([...view.presses, [after, "again"]]);  // what is said twice alike is not sent
    sayAgain(view, number, 2 * after);
  }, after);
}

// A slider that was moved by the pointer gives the arrows back to the talk.
function release() {
  const held = document.activeElement;
  if (choosing(held) || held?.matches?.("button")) held.blur();
}

function button(words, says, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = words;
  made.setAttribute("aria-label", says);
  made.style.cssText = "font:inherit;color:inherit;background:none;border:0;cursor:pointer;padding:0 .3em";
  made.onclick = act;
  return made;
}

function make(parentElement) {
  const line = document.createElement("div");
  line.className = "attnlab-keys";
  line.style.cssText = "display:flex;justify-content:flex-end;align-items:center;gap:.6em;height:1.3em;line-height:1.3;" +
    "font-family:var(--st-font);font-size:.8rem;color:var(--st-text-color);opacity:.5;white-space:nowrap;overflow:hidden";
  parentElement.appendChild(line);
  const view = { line, number: 0, heard: 0, presses: [] };
  const words = document.createElement("span");
  words.textContent = LINE;
  const rehearsal = button("Rehearsal", "Go to the rehearsal", () => press(view, "rehearse"));
  rehearsal.style.textDecoration = "underline";
  const dismiss = button("×", "Dismiss the keys", () => {
    sessionStorage.setItem(DISMISSED, "1");
    line.replaceChildren();
  });
  if (!sessionStorage.getItem(DISMISSED)) line.append(words, rehearsal, dismiss);
  view.onKey = (event) => hear(view, event);
  view.onUp = () => setTimeout(release, 0);
  window.addEventListener("keydown", view.onKey, true);
  window.addEventListener("pointerup", view.onUp, true);
  document.documentElement.style.fontSize = ROOT_SIZE;
  return view;
}

export default function ({ data, parentElement, setStateValue }) {
  const view = (parentElement._attnlabKeys ??= make(parentElement));
  [view.heard] = data;
  view.tell = (presses) => setStateValue("pressed", presses);
  return () => setTimeout(() => {
    if (view.line.isConnected) return;
    window.removeEventListener("keydown", view.onKey, true);
    window.removeEventListener("pointerup", view.onUp, true);
    document.documentElement.style.fontSize = "";
    delete parentElement._attnlabKeys;
  });
}
