"use strict";
// Live updates. The server sends the content of <main> again when it has changed; what
// differs is replaced in place, so that focus, selection and scroll position stay.
(() => {
  const main = document.querySelector("main");
  const text = document.getElementById("live-text");
  const button = document.getElementById("live-pause");
  const gone = document.getElementById("gone");
  // The server sends something every 15 seconds at least. A process that is stopped keeps the connection.
  const patience = 40000;
  let stream = null;
  let paused = false;
  let silence = 0;
  let heard = Date.now();

  const say = (message) => { if (text.textContent !== message) text.textContent = message; };
  const clock = (time) => new Date(time).toLocaleTimeString();

  function update(old, now) {
    if (old.nodeName !== now.nodeName || old.id !== now.id) return old.replaceWith(now);
    if (old.nodeType === Node.ELEMENT_NODE && "own" in old.dataset) return; // the script has filled it
    if (old.nodeType === Node.TEXT_NODE) { if (old.data !== now.data) old.data = now.data; return; }
    const keeps = (name) => name === "open" && old.nodeName === "DETAILS" || name === "title" && old.nodeName === "TIME";
    for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && !keeps(name)) old.removeAttribute(name);
    for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    updateChildren(old, now);
  }
  function updateChildren(old, now) {
    const was = [...old.childNodes], is = [...now.childNodes];
    is.forEach((node, i) => (i < was.length ? update(was[i], node) : old.append(node)));
    was.slice(is.length).forEach((node) => node.remove());
  }

  function alive() {
    heard = Date.now();
    gone.hidden = true;
    gone.textContent = "";
    document.documentElement.classList.remove("gone");
    say("Live");
    clearTimeout(silence);
    silence = setTimeout(lose, patience);
  }
  // lose dims the page: it may be wrong.
  function lose() {
    clearTimeout(silence);
    if (paused || document.hidden) return;
    say("Not live");
    if (!gone.hidden) return;
    gone.textContent = "feedbridge does not answer. Below is what it reported until " + clock(heard) + ". This page continues by itself when it answers again.";
    gone.hidden = false;
    document.documentElement.classList.add("gone");
  }
  function open() {
    if (stream || paused || document.hidden) return;
    const opened = stream = new EventSource(location.href);
    silence = setTimeout(lose, patience);
    stream.addEventListener("alive", alive);
    stream.onmessage = (event) => {
      const template = document.createElement("template");
      template.innerHTML = "\n" + event.data + "\n";
      updateChildren(main, template.content);
      alive();
    };
    stream.onerror = () => {
      if (stream !== opened) return;
      if (stream.readyState !== EventSource.CLOSED) return lose();
      close();
      setTimeout(open, 15000);
      // Something answers, but not with a stream: too many are open, or the process ends.
      fetch("/healthz").then((answer) => (answer.ok ? say("Not live: too many pages are open; reload this one") : lose()), lose);
    };
  }
  function close() { clearTimeout(silence); if (stream) stream.close(); stream = null; }

  document.documentElement.classList.add("script");
  button.hidden = false;
  button.onclick = () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    if (paused) { close(); say("Paused"); } else open();
  };
  document.onvisibilitychange = () => (document.hidden ? close() : open());
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);

  // Times are in UTC, as in logs. The local one is shown on hover.
  document.addEventListener("mouseover", (event) => {
    const time = event.target.closest("time[datetime]");
    if (time) time.title = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
  });
  // A token in an address is not used: addresses end up in histories and logs.
  const address = new URL(location.href);
  if (address.searchParams.has("token") || /[#&]token=/.test(address.hash)) {
    address.searchParams.delete("token");
    address.hash = "";
    history.replaceState(null, "", address);
    document.getElementById("token-in-url").hidden = false;
  }

  // Requests that need the token. It is kept for this tab, and sent in a header only, which no other site can do.
  const ask = document.getElementById("ask");
  const kept = "feedbridge admin.token";
  function askToken(why) {
    const input = document.getElementById("ask-token");
    document.getElementById("ask-why").textContent = why;
    ask.returnValue = input.value = "";
    ask.showModal();
    return new Promise((resolve) => {
      ask.addEventListener("close", () => { resolve(ask.returnValue === "ok" ? input.value.trim() : ""); input.value = ""; }, { once: true });
    });
  }
  async function send(method, path) {
    for (let why = ""; ;) {
      const token = ask && (sessionStorage.getItem(kept) || await askToken(why));
      if (ask && !token) throw new Error("Nothing was done: there is no token.");
      const answer = await fetch(path, { method, headers: token ? { Authorization: "Bearer " + token } : {}, credentials: "omit", redirect: "error" });
      const text = await answer.text();
      if (answer.status === 401 && ask) { sessionStorage.removeItem(kept); why = "That is not the token."; continue; }
      if (token) sessionStorage.setItem(kept, token);
      if (answer.ok) return JSON.parse(text);
      let errors = [text.trim() || "status " + answer.status];
      try { errors = JSON.parse(text).errors; } catch { /* it is text */ }
      throw new Error(errors.join("; "));
    }
  }
  function sentence(verb, is) {
    const still = is.work ? "; it is still " + is.work : "";
    if (verb !== "poll") return (is.paused ? (is.changed ? "Paused" : "It was paused already") : is.changed ? "Resumed" : "It was not paused") + still + ".";
    if (is.error) return "The feed is " + is.state + ": " + is.error;
    if (is.state === "reading") return "The poll has not ended, and continues" + still + ".";
    return "Polled: " + is.published + " published, " + is.duplicates + " left out as duplicates; the feed is " + is.state + ".";
  }
  main.addEventListener("click", async (event) => {
    const button = event.target.closest("button.act");
    if (!button || button.getAttribute("aria-disabled")) return;
    const path = button.dataset.post, said = button.closest(".commands").querySelector("output");
    button.setAttribute("aria-disabled", "true"); // and not disabled, which would lose the focus
    said.textContent = "…";
    said.className = "";
    try {
      said.textContent = sentence(path.slice(path.lastIndexOf("/") + 1), await send("POST", path));
    } catch (error) {
      said.textContent = error.message;
      said.className = "refused";
    }
    button.removeAttribute("aria-disabled");
  });

  // The newest messages of a feed's topic. All of them are text.
  const element = (name, text, kind) => Object.assign(document.createElement(name), { textContent: text, className: kind || "" });
  async function showNewest(box) {
    const again = element("button", "Read again");
    again.type = "button";
    again.onclick = () => showNewest(box).then(() => box.querySelector("button").focus());
    try {
      const { messages } = await send("GET", box.dataset.get);
      const shown = messages.map((m) => {
        const article = element("article", "");
        const time = element("time", m.modified);
        time.dateTime = m.modified;
        const line = element("p", "", "quiet");
        line.append(time, " " + m.operation + " ", element("code", m.id));
        if (m.title) article.append(element("h3", m.title));
        article.append(line);
        if (m.text) article.append(element("p", m.text, "text"));
        return article;
      });
      const heading = document.querySelector("h1");
      if (messages[0]?.feed_title && heading.textContent !== messages[0].feed_title) shown.unshift(element("p", "From " + messages[0].feed_title, "quiet"));
      box.replaceChildren(...(shown.length ? shown : [element("p", "There are none at the end of the topic.")]), again);
    } catch (error) {
      box.replaceChildren(element("p", error.message, "refused"), again);
    }
  }
  const newest = document.querySelector("[data-get]");
  if (newest && ("readable" in newest.dataset || sessionStorage.getItem(kept))) showNewest(newest);
  else if (newest) {
    const show = element("button", "Show them");
    show.type = "button";
    show.onclick = () => showNewest(newest);
    newest.replaceChildren(show);
  }

  // The old command works also where the page does not come from this machine or by HTTPS.
  main.addEventListener("click", (event) => {
    const copy = event.target.closest("button.copy");
    if (!copy) return;
    getSelection().selectAllChildren(copy.previousElementSibling);
    copy.textContent = document.execCommand("copy") ? "Copied" : "Selected";
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
  open();
})();
