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
