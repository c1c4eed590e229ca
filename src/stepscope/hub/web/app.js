// The shell: navigation, theme, the view that the address names, and signing in where the hub requires a token.
import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "./h.js";
import { useAccess } from "./access.js";
import { fetchJson, get } from "./api.js";
import { go, href, useRoute } from "./router.js";
import { saveChoice, savedChoice } from "./use.js";
import { nextTheme, useTheme } from "./theme.js";
import { IconButton } from "./parts/controls.js";
import { Toasts } from "./parts/overlays.js";
import { useRunName } from "./parts/run_names.js";
import { Empty, Failure, Loading, PartialAnswers, Reach } from "./parts/states.js";
import { escapeInvisible } from "./parts/invisible.js";

// The views. `name` is the first part of the address, `title` is shown in the navigation (none: not there),
// `all` says that it is over all projects, so that a token of one project cannot use it,
// `load` imports the module, whose default export is the component; it gets { parts, query } of the address.
const VIEWS = [
  { name: "projects", title: "Projects", load: () => import("./projects/view.js") },
  { name: "project", load: () => import("./workspace/view.js"), within: "projects" },
  { name: "runs", title: "Runs", load: () => import("./runs/view.js") },
  { name: "run", load: () => import("./run/view.js"), within: "runs" },
  { name: "share", load: () => import("./share/view.js"), within: "runs" },
  { name: "compare", load: () => import("./workspace/view.js"), within: "runs" },
  { name: "traces", title: "Traces", all: true, load: () => import("./trace/view.js") },
  { name: "logs", title: "Logs", all: true, load: () => import("./log/view.js") },
  { name: "alerts", title: "Alerts", load: () => import("./alerts/view.js") },
  { name: "dashboards", title: "Dashboards", load: () => import("./dashboards/view.js") },
  { name: "health", title: "Health", load: () => import("./health/view.js") },
  { name: "sql", title: "SQL", all: true, load: () => import("./sql/view.js") },
  { name: "api", title: "API", load: () => import("./reference/view.js") },
];

const ICON = new URL("icon.svg", import.meta.url).href;
const loaded = new Map();
const ASK_MS = 1000,
  RELOAD_MS = 10000;

function App() {
  const { name, parts, query } = useRoute();
  const view = VIEWS.find((each) => each.name === (name || "runs"));
  const [locked, setLocked] = useState(false);
  useEffect(() => {
    const lock = () => setLocked(true);
    addEventListener("stepscope:token", lock);
    return () => removeEventListener("stepscope:token", lock);
  }, []);
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <${Header} view=${view} />
    <${Reach} />
    <${PartialAnswers} />
    <main id="main" tabindex="-1">
      ${
        locked
          ? html`<${SignIn} />`
          : view
            ? html`<${Outlet} key=${view.name} view=${view} parts=${parts} query=${query} />`
            : html`<${Empty} title="Page not found"><a href=${href("runs")}>All runs</a><//>`
      }
    </main>
    <${Toasts} />`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Header({ view }) {
  const [theme, setTheme] = useTheme();
  const here = view?.within || view?.name;
  const nav = useRef(/** @type {HTMLElement | null} */ (null));
  const { limit } = useAccess();
  const views = VIEWS.filter(({ title, all }) => title && limit !== "run" && !(limit && all));
  useLayoutEffect(() => {
    // On a narrow screen the views do not all fit; the present one is in sight.
    const bar = nav.current,
      link = /** @type {HTMLElement | null | undefined} */ (bar?.querySelector("[aria-current]"));
    if (bar && link) bar.scrollLeft = link.offsetLeft - bar.offsetLeft - (bar.clientWidth - link.offsetWidth) / 2;
  }, [here]);
  return html`<header class="top">
    <${limit === "run" ? "span" : "a"} class="brand" href=${limit === "run" ? undefined : href("runs")}>
      <img src=${ICON} alt="" width="20" height="20" /><span>Stepscope</span><//>
    <nav aria-label="Views" ref=${nav}>${views.map(
      (each) => html`
      <a key=${each.name} href=${href(each.name)}
          aria-current=${each.name === here ? "page" : undefined}>${each.title}</a>`,
    )}
    </nav>
    <${IconButton} icon=${{ light: "sun", dark: "moon", auto: "auto" }[theme]} label=${`Theme: ${theme}`}
        onClick=${() => setTheme(nextTheme(theme))} />
  </header>`;
}

function Outlet({ view, parts, query }) {
  const [module, setModule] = useState(loaded.get(view.name) || null);
  const [failed, setFailed] = useState(/** @type {Error | null} */ (null));
  const [broken, repair] = useErrorBoundary((error) => console.error(error));
  const titled = ["compare", "project"].includes(view.name); // they have a title of their own
  const about = useRunName(titled ? "" : query.get("run"));
  useEffect(() => {
    if (titled) return;
    document.title = escapeInvisible([view.title || "Run", about, "Stepscope"].filter(Boolean).join(" · "));
  }, [view.name, about]);
  useEffect(() => {
    if (module) return;
    view.load().then((found) => {
      loaded.set(view.name, found);
      setModule(() => found);
    }, setFailed);
  }, [view.name]);
  const away = useReload(failed);
  if (failed)
    return html`<${Failure}
        error=${{ status: away ? 0 : 1, message: `This view cannot be loaded: ${failed.message}` }}
        reload=${() => location.reload()} />`;
  if (broken) return html`<${Failure} error=${{ message: `This view failed: ${broken.message}` }} reload=${repair} />`;
  if (!module) return html`<${Loading} />`;
  return html`<${module.default} parts=${parts} query=${query} />`;
}

// A module that could not be fetched is never fetched again by this document, so the document is, once the hub answers;
// what was shown is in the address. Not over and over, should the hub be there and the module not. Tells whether it is unavailable.
function useReload(failed) {
  const [away, setAway] = useState(true);
  useEffect(() => {
    if (!failed) return undefined;
    let due = Date.now() - savedChoice("reloaded", 0) > RELOAD_MS;
    const look = () =>
      get("health").then(
        () => {
          setAway(false);
          if (!due) return;
          saveChoice("reloaded", Date.now());
          location.reload();
        },
        (error) => {
          setAway(error.status === 0);
          due ||= error.status === 0;
        },
      );
    look();
    const timer = setInterval(look, ASK_MS);
    return () => clearInterval(timer);
  }, [failed]);
  return away;
}

// Exchanges the token for a cookie that no script can read.
function SignIn() {
  const [message, setMessage] = useState("");
  const enter = async (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token");
    try {
      await fetchJson("api/session", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ token }),
      });
      location.reload();
    } catch (error) {
      setMessage(error.message);
    }
  };
  return html`<form class="sign-in panel" onSubmit=${enter}>
    <h1>This hub requires a token</h1>
    <p>Create one with <code>stepscope hub token create --scope read</code>.</p>
    <label>Token <input name="token" type="password" autocomplete="current-password" required autofocus /></label>
    <button class="button primary">Sign in</button>
    ${message && html`<p role="alert" class="bad-text">${message}</p>`}
  </form>`;
}

if (!location.hash) go(href("runs"), { replace: true });
render(html`<${App} />`, document.getElementById("app") ?? document.body);
