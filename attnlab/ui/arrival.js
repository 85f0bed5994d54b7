// Tells the page that the browser has drawn it, once for each visit; see arrival.py. And begins again where nothing is left:
// an error in Streamlit's front end takes the whole page away, and its address holds all that is needed to bring it back.

// Streamlit puts it in the place of what it still has to fetch. Until a widget is there, the page's next run would take from it
// what the last one has set.
const TO_FETCH = "[data-testid=stSkeleton]";
const LOOK_MS = 50;
const FETCH_MS = 15_000;  // at most; what never comes is no reason to wait
const AGAIN_MS = 4000;  // a message can get lost
const PAUSE_MS = 10_000;  // between two beginnings
const BEGUN_MS = "attnlab-begun-again-ms";

function sayWhenDrawn(view, left_ms) {
  if (left_ms <= 0 || !document.querySelector(TO_FETCH)) say(view, 0);
  else view.timer = setTimeout(() => sayWhenDrawn(view, left_ms - LOOK_MS), LOOK_MS);
}

function say(view, times) {
  if (!view.here.isConnected) return;
  view.tell([view.visit, times]);  // what is said twice alike is not sent
  view.timer = setTimeout(() => say(view, times + 1), AGAIN_MS * 2 ** times);
}

function beginAgain() {
  const last = Number(sessionStorage.getItem(BEGUN_MS));
  setTimeout(() => {
    sessionStorage.setItem(BEGUN_MS, String(Date.now()));
    location.reload();
  }, Math.max(0, last + PAUSE_MS - Date.now()));
}

function watch(root) {
  if (!root || root._attnlabWatched) return;
  root._attnlabWatched = true;
  const observer = new MutationObserver(() => {
    if (root.childElementCount) return;
    observer.disconnect();
    beginAgain();
  });
  observer.observe(root, { childList: true });
}

export default function ({ data: [visit, heard], parentElement, setStateValue }) {
  const view = (parentElement._attnlabArrival ??= { here: parentElement, visit: null, timer: 0 });
  view.tell = (said) => setStateValue("drawn", said);
  parentElement.closest(".st-key-arrival")?.style.setProperty("display", "none");  // else it takes a line's gap
  watch(document.getElementById("root"));
  if (visit !== heard && visit === view.visit) return;  // is being said
  clearTimeout(view.timer);
  view.visit = visit === heard ? null : visit;
  if (view.visit !== null) view.timer = setTimeout(() => sayWhenDrawn(view, FETCH_MS), LOOK_MS);
}
