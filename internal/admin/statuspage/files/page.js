"use strict";
// Live updates. The server sends the content of <main> again when it has changed; what
// differs is replaced in place, so that focus, selection and scroll position stay.
(() => {
  const main = document.querySelector("main");
  const text = document.getElementById("live-text");
  const button = document.getElementById("live-pause");
  let stream = null;
  let paused = false;

  const say = (message) => { if (text.textContent !== message) text.textContent = message; };

  function update(old, now) {
    if (old.nodeName !== now.nodeName || old.id !== now.id) return old.replaceWith(now);
    if (old.nodeType === Node.TEXT_NODE) { if (old.data !== now.data) old.data = now.data; return; }
    for (const { name } of [...old.attributes]) if (!now.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    updateChildren(old, now);
  }
  function updateChildren(old, now) {
    const was = [...old.childNodes], is = [...now.childNodes];
    is.forEach((node, i) => (i < was.length ? update(was[i], node) : old.append(node)));
    was.slice(is.length).forEach((node) => node.remove());
  }

  function open() {
    if (stream || paused || document.hidden) return;
    stream = new EventSource(location.href);
    stream.onmessage = (event) => {
      const template = document.createElement("template");
      template.innerHTML = "\n" + event.data + "\n";
      updateChildren(main, template.content);
      say("Live");
    };
    stream.onerror = () => {
      say("No connection; the page shows the state before");
      if (stream && stream.readyState === EventSource.CLOSED) { close(); setTimeout(open, 15000); }
    };
  }
  function close() { if (stream) stream.close(); stream = null; }

  button.hidden = false;
  button.onclick = () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    if (paused) { close(); say("Paused"); } else open();
  };
  document.onvisibilitychange = () => (document.hidden ? close() : open());
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
})();
